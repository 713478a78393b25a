/* SipHash-2-4-128 against the vectors of its reference (key 00 01 .. 0f, data 00 01 ..). */
#include "base/kc_siphash.h"
#include "kt.h"

static void agrees_with_the_reference(void)
{
    static const uint8_t want[3][16] = {
        {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02,
         0x93},
        {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc,
         0x45},
        {0x81, 0x77, 0x22, 0x8d, 0xa4, 0xa4, 0x5d, 0xc7, 0xfc, 0xa3, 0x8b, 0xde, 0xf6, 0x0a, 0xff,
         0xe4},
    };
    uint8_t key[16], data[16], out[16];
    for (uint8_t i = 0; i < 16; i++) {
        key[i] = data[i] = i;
    }
    for (size_t len = 0; len < 3; len++) {
        kc_siphash128(key, data, len, out);
        KT_TRUE(memcmp(out, want[len], sizeof(out)) == 0);
    }
}

static void every_byte_of_key_and_data_counts(void)
{
    uint8_t key[16] = {0}, data[24] = {0}, first[16], out[16];
    kc_siphash128(key, data, sizeof(data), first);
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = 1;
        kc_siphash128(key, data, sizeof(data), out);
        KT_TRUE(memcmp(out, first, sizeof(out)) != 0);
        data[i] = 0;
    }
    for (size_t i = 0; i < sizeof(key); i++) {
        key[i] = 1;
        kc_siphash128(key, data, sizeof(data), out);
        KT_TRUE(memcmp(out, first, sizeof(out)) != 0);
        key[i] = 0;
    }
}

KT_MAIN("siphash", KT(agrees_with_the_reference), KT(every_byte_of_key_and_data_counts))
