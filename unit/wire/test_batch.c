/* Record batches: a golden one as Kafka's Java classes write it, damage, the builder. */
#include <string.h>

#include "base/kc_crc32c.h"
#include "kt.h"
#include "wire/kw_batch.h"
#include "wire_help.h"

/* Producer id 77, epoch 3, sequence 5; ("k","v", headers h=x, n=null), (null,"w"), ("z",null). */
static const char GOLDEN[] =
    "000000000000000000000051ffffffff022092f49800000000000200000000000003e800000000000003ed00000000"
    "0000004d000300000005000000031e000000026b02760402680278026e010e000a02010277000e000104027a0100";

static size_t golden(uint8_t *out, size_t room)
{
    return wire_unhex(GOLDEN, out, room);
}

static struct kc_bytes text(const char *s)
{
    return s ? (struct kc_bytes){(const uint8_t *)s, (int32_t)strlen(s)} : KC_BYTES_NULL;
}

static bool is(struct kc_bytes b, const char *s)
{
    return s ? b.ptr && b.len == (int32_t)strlen(s) && memcmp(b.ptr, s, strlen(s)) == 0 : !b.ptr;
}

static void header_of_a_golden_batch(void)
{
    uint8_t data[128];
    size_t n = golden(data, sizeof(data));
    struct kw_batch b;
    KT_EQ(kw_batch_view(data, n, &b), 0);
    KT_TRUE(kw_batch_crc_ok(&b));
    KT_EQ(b.size, n);
    KT_EQ(b.base_offset, 0);
    KT_EQ(b.leader_epoch, -1);
    KT_EQ(b.producer_id, 77);
    KT_EQ(b.producer_epoch, 3);
    KT_EQ(b.base_sequence, 5);
    KT_EQ(b.count, 3);
    KT_EQ(kw_batch_last_offset(&b), 2);
    KT_EQ(b.base_timestamp_ms, 1000);
    KT_EQ(b.max_timestamp_ms, 1005);
    KT_EQ(kw_batch_codec(&b), KW_CODEC_NONE);
}

static void records_of_a_golden_batch(void)
{
    uint8_t data[128];
    size_t n = golden(data, sizeof(data));
    struct kw_batch b;
    KT_EQ(kw_batch_view(data, n, &b), 0);
    struct kw_record_iter it;
    KT_EQ(kw_record_iter_init(&it, &b), 0);
    struct kw_record r;
    KT_EQ(kw_record_next(&it, &r), 1);
    KT_TRUE(is(r.key, "k") && is(r.value, "v") && r.offset == 0 && r.timestamp_ms == 1000);
    struct kw_record_header h;
    KT_TRUE(kw_record_header_next(&r, &h) && h.key.len == 1 && *h.key.ptr == 'h' &&
            is(h.value, "x"));
    KT_TRUE(kw_record_header_next(&r, &h) && *h.key.ptr == 'n' && is(h.value, NULL));
    KT_FALSE(kw_record_header_next(&r, &h));
    KT_EQ(kw_record_next(&it, &r), 1);
    KT_TRUE(is(r.key, NULL) && is(r.value, "w") && r.offset == 1 && r.timestamp_ms == 1005);
    KT_EQ(kw_record_next(&it, &r), 1);
    KT_TRUE(is(r.key, "z") && is(r.value, NULL) && r.offset == 2 && r.timestamp_ms == 999);
    KT_EQ(kw_record_next(&it, &r), 0);
    KT_EQ(kw_record_next(&it, &r), 0);
}

static void the_builder_writes_the_golden_batch(void)
{
    struct kw_batch_args args = {
        .leader_epoch = -1, .producer_id = 77, .producer_epoch = 3, .base_sequence = 5};
    struct kw_batch_builder b;
    kw_batch_builder_init(&b, &args, 4096);
    struct kw_record_header headers[] = {{KC_STR_LIT("h"), text("x")},
                                         {KC_STR_LIT("n"), text(NULL)}};
    kw_batch_builder_add(&b, 1000, text("k"), text("v"), headers, 2);
    kw_batch_builder_add(&b, 1005, text(NULL), text("w"), NULL, 0);
    kw_batch_builder_add(&b, 999, text("z"), text(NULL), NULL, 0);
    struct kc_bytes got;
    KT_EQ(kw_batch_builder_end(&b, &got), 0);
    uint8_t want[128];
    size_t n = golden(want, sizeof(want));
    KT_EQ(got.len, n);
    KT_TRUE(memcmp(got.ptr, want, n) == 0);
    kw_batch_builder_fini(&b);
}

static void long_records_get_long_lengths(void)
{
    static uint8_t big[70000];
    struct kw_batch_args args = KW_BATCH_ARGS_PLAIN;
    struct kw_batch_builder b;
    kw_batch_builder_init(&b, &args, 1 << 20);
    for (int i = 0; i < 3; i++) {
        kw_batch_builder_add(&b, i, text("key"), (struct kc_bytes){big, 100 << (4 * i)}, NULL, 0);
    }
    struct kc_bytes got;
    KT_EQ(kw_batch_builder_end(&b, &got), 0);
    struct kw_batch v;
    KT_EQ(kw_batch_view(got.ptr, (size_t)got.len, &v), 0);
    KT_TRUE(kw_batch_crc_ok(&v));
    struct kw_record_iter it;
    KT_EQ(kw_record_iter_init(&it, &v), 0);
    struct kw_record r;
    for (int i = 0; i < 3; i++) {
        KT_EQ(kw_record_next(&it, &r), 1);
        KT_EQ(r.value.len, 100 << (4 * i));
    }
    KT_EQ(kw_record_next(&it, &r), 0);
    kw_batch_builder_fini(&b);
}

static void builder_limits_are_errors(void)
{
    struct kw_batch_args args = KW_BATCH_ARGS_PLAIN;
    struct kw_batch_builder b;
    struct kc_bytes got;
    kw_batch_builder_init(&b, &args, 80);
    KT_EQ(kw_batch_builder_end(&b, &got), KC_E_MALFORMED); /* no record */
    kw_batch_builder_fini(&b);
    kw_batch_builder_init(&b, &args, 80);
    kw_batch_builder_add(&b, 0, text("key"), text("more than twenty bytes"), NULL, 0);
    KT_EQ(kw_batch_builder_end(&b, &got), KC_E_TOO_LARGE);
    kw_batch_builder_fini(&b);
}

static int view_with(size_t at, uint8_t value)
{
    uint8_t data[128];
    size_t n = golden(data, sizeof(data));
    data[at] = value;
    struct kw_batch b;
    return kw_batch_view(data, n, &b);
}

static void impossible_headers_are_refused(void)
{
    uint8_t data[128];
    size_t n = golden(data, sizeof(data));
    struct kw_batch b;
    for (size_t cut = 0; cut < n; cut++) {
        KT_EQ(kw_batch_view(data, cut, &b), KC_E_TRUNCATED);
    }
    KT_EQ(view_with(16, 1), KC_E_UNSUPPORTED); /* magic */
    KT_EQ(view_with(16, 3), KC_E_UNSUPPORTED);
    KT_EQ(view_with(11, 48), KC_E_MALFORMED); /* length below the header's */
    KT_EQ(view_with(8, 0xff), KC_E_MALFORMED);
    KT_EQ(view_with(8, 0x7f), KC_E_TRUNCATED);
    KT_EQ(view_with(0, 0x80), KC_E_MALFORMED); /* base offset */
    KT_EQ(view_with(23, 0x80), KC_E_MALFORMED); /* last offset delta */
    KT_EQ(view_with(57, 0x80), KC_E_MALFORMED); /* count */
    KT_EQ(view_with(60, 4), KC_E_MALFORMED); /* more records than offsets */
}

/* Every flipped bit behind the CRC is found by it; walking the records is safe all the same. */
static void damage_is_found(void)
{
    uint8_t data[128];
    size_t n = golden(data, sizeof(data));
    for (size_t bit = 17 * 8; bit < n * 8; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        struct kw_batch b;
        if (kw_batch_view(data, n, &b) == 0) {
            KT_FALSE(kw_batch_crc_ok(&b));
            struct kw_record_iter it;
            struct kw_record r;
            int rc = kw_record_iter_init(&it, &b);
            for (int i = 0; rc == 0 && i < 10 && kw_record_next(&it, &r) == 1; i++) {
                struct kw_record_header h;
                while (kw_record_header_next(&r, &h)) {
                    KT_TRUE(h.key.ptr);
                }
            }
        }
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

static void offset_and_epoch_are_outside_the_crc(void)
{
    uint8_t data[128];
    size_t n = golden(data, sizeof(data));
    data[7] = 99; /* base offset */
    data[15] = 12; /* leader epoch */
    struct kw_batch b;
    KT_EQ(kw_batch_view(data, n, &b), 0);
    KT_TRUE(kw_batch_crc_ok(&b));
    KT_EQ(b.base_offset, 99);
}

static void trailing_bytes_and_compressed_batches_are_refused(void)
{
    uint8_t data[128];
    size_t n = golden(data, sizeof(data));
    data[60] = 2; /* count: one record fewer than there are */
    struct kw_batch b;
    KT_EQ(kw_batch_view(data, n, &b), 0);
    struct kw_record_iter it;
    struct kw_record r;
    KT_EQ(kw_record_iter_init(&it, &b), 0);
    KT_EQ(kw_record_next(&it, &r), 1);
    KT_EQ(kw_record_next(&it, &r), 1);
    KT_EQ(kw_record_next(&it, &r), KC_E_MALFORMED);
    golden(data, sizeof(data));
    data[22] = KW_CODEC_LZ4;
    KT_EQ(kw_batch_view(data, n, &b), 0);
    KT_EQ(kw_record_iter_init(&it, &b), KC_E_UNSUPPORTED);
}

KT_MAIN("wire batch", KT(header_of_a_golden_batch), KT(records_of_a_golden_batch),
        KT(the_builder_writes_the_golden_batch), KT(long_records_get_long_lengths),
        KT(builder_limits_are_errors), KT(impossible_headers_are_refused), KT(damage_is_found),
        KT(offset_and_epoch_are_outside_the_crc),
        KT(trailing_bytes_and_compressed_batches_are_refused))
