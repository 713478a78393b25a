/* The checksum against one that counts bit by bit: every short length, every alignment, both ends of the
 * readable memory. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/kc_crc32c.h"
#include "kt.h"

static uint32_t bit_by_bit(uint32_t crc, const uint8_t *p, size_t len)
{
    crc = ~crc;
    while (len--) {
        crc ^= *p++;
        for (int k = 0; k < 8; k++) {
            crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1)));
        }
    }
    return ~crc;
}

/* Bytes between two pages that nobody may touch. */
static uint8_t *room(size_t len)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (len + page - 1) / page * page;
    uint8_t *p = mmap(NULL, whole + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    KT_REQUIRE(p != MAP_FAILED);
    KT_REQUIRE(mprotect(p + page, whole, PROT_READ | PROT_WRITE) == 0);
    for (size_t i = 0; i < whole; i++) {
        p[page + i] = (uint8_t)(i * 131 + (i >> 8) * 31 + 7);
    }
    return p + page;
}

static void it_agrees_with_rfc3720(void)
{
    uint8_t zeros[32] = {0}, rising[32];
    for (int i = 0; i < 32; i++) {
        rising[i] = (uint8_t)i;
    }
    KT_EQ(kc_crc32c(0, zeros, 32), 0x8a9136aau);
    KT_EQ(kc_crc32c(0, rising, 32), 0x46dd794eu);
    KT_EQ(kc_crc32c(kc_crc32c(0, rising, 7), rising + 7, 25), 0x46dd794eu);
    KT_EQ(kc_crc32c(0, "123456789", 9), 0xe3069283u);
}

static void no_bytes_change_nothing(void)
{
    KT_EQ(kc_crc32c(0, NULL, 0), 0u);
    KT_EQ(kc_crc32c(0, "x", 0), 0u);
    KT_EQ(kc_crc32c(0x46dd794eu, NULL, 0), 0x46dd794eu);
}

static void every_short_length_at_both_ends_of_memory(void)
{
    enum { SIZE = 4096, LONGEST = 600, ALIGNMENTS = 16 };
    uint8_t *p = room(SIZE);
    for (size_t len = 0; len <= LONGEST; len++) {
        for (size_t off = 0; off < ALIGNMENTS; off++) {
            uint32_t start = (uint32_t)(len * 2654435761u) * (off & 1);
            KT_EQ(kc_crc32c(start, p + off, len), bit_by_bit(start, p + off, len));
            const uint8_t *last = p + SIZE - len;
            KT_EQ(kc_crc32c(start, last, len), bit_by_bit(start, last, len));
            last = p + SIZE - len - off;
            KT_EQ(kc_crc32c(start, last, len), bit_by_bit(start, last, len));
        }
    }
}

static void long_ones_and_their_parts(void)
{
    enum { SIZE = 1 << 20 };
    uint8_t *p = room(SIZE);
    static const size_t lengths[] = {1000, 4095, 4097, 16384, 65536 + 3, SIZE - 16};
    for (size_t i = 0; i < KC_ARRAY_LEN(lengths); i++) {
        for (size_t off = 0; off < 16; off += 5) {
            uint32_t want = bit_by_bit(0, p + off, lengths[i]);
            KT_EQ(kc_crc32c(0, p + off, lengths[i]), want);
            size_t cut = lengths[i] / 3 + off;
            uint32_t part = kc_crc32c(0, p + off, cut);
            KT_EQ(kc_crc32c(part, p + off + cut, lengths[i] - cut), want);
        }
    }
}

/* More than a length of type int would hold, of memory that is not there: all zeros. */
static void more_than_an_int_counts(void)
{
    size_t len = ((size_t)INT32_MAX) + 70000, half = len / 2;
    uint8_t *p = mmap(NULL, len, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    KT_REQUIRE(p != MAP_FAILED);
    uint32_t parts = kc_crc32c(0, p, half);
    KT_EQ(kc_crc32c(0, p, len), kc_crc32c(parts, p + half, len - half));
    munmap(p, len);
}

KT_MAIN("crc32c", KT(it_agrees_with_rfc3720), KT(no_bytes_change_nothing),
        KT(every_short_length_at_both_ends_of_memory), KT(long_ones_and_their_parts),
        KT(more_than_an_int_counts))
