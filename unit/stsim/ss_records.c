#include "ss_records.h"

#include <stdio.h>
#include <string.h>

#include "base/kc_crc32c.h"
#include "base/kc_mem.h"
#include "storage/ks_bytes.h"

enum { KEYS = 5, KEY_LEN = 2, NUMBER_LEN = 8, VALUE_MIN = 64, RECORD_ROOM = 64 };

/* ---- what follows from the number ---- */

static uint64_t dice(uint64_t number, int64_t delta)
{
    uint64_t z = number * 0x9e3779b97f4a7c15u + (uint64_t)delta * 0xd1342543de82ef95u;
    z = (z ^ (z >> 29)) * 0xbf58476d1ce4e5b9u;
    return z ^ (z >> 32);
}

static void key_of(uint64_t number, int64_t delta, uint8_t out[KEY_LEN])
{
    out[0] = 'k';
    out[1] = (uint8_t)('0' + dice(number, delta) % KEYS);
}

static bool is_tombstone(uint64_t number, int64_t delta)
{
    return dice(number, delta) / KEYS % 8 == 0;
}

static size_t value_len(uint64_t number)
{
    return VALUE_MIN + (number % 13 == 0 ? 5000 : number % 7 * 40);
}

/* ---- making them ---- */

static uint8_t *put_varint(uint8_t *p, int64_t v)
{
    uint64_t z = ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
    for (; z >= 0x80; z >>= 7) {
        *p++ = (uint8_t)(z | 0x80);
    }
    *p++ = (uint8_t)z;
    return p;
}

static uint8_t *put_bytes(uint8_t *p, const void *from, size_t n)
{
    p = put_varint(p, (int64_t)n);
    memcpy(p, from, n);
    return p + n;
}

/* Key, value and one header, whose value is the number. */
static uint8_t *put_content(uint8_t *p, uint64_t number, int32_t delta)
{
    uint8_t key[KEY_LEN];
    size_t value = value_len(number);
    key_of(number, delta, key);
    p = put_bytes(p, key, KEY_LEN);
    if (is_tombstone(number, delta)) {
        p = put_varint(p, -1);
    } else {
        p = put_varint(p, (int64_t)value);
        memset(p, (int)('a' + number % 26), value);
        p += value;
    }
    p = put_varint(p, 1);
    p = put_bytes(p, "n", 1);
    p = put_varint(p, NUMBER_LEN);
    ks_put64(p, number);
    return p + NUMBER_LEN;
}

static uint8_t *put_record(uint8_t *p, uint64_t number, int32_t delta)
{
    uint8_t *body = p + RECORD_ROOM; /* behind the room for what stands before it */
    size_t content = (size_t)(put_content(body, number, delta) - body);
    uint8_t head[RECORD_ROOM], *h = head;
    *h++ = 0; /* attributes */
    h = put_varint(h, 0);
    h = put_varint(h, delta);
    size_t n = (size_t)(h - head);
    p = put_varint(p, (int64_t)(n + content));
    memcpy(p, head, n);
    memmove(p + n, body, content);
    return p + n + content;
}

struct kc_slice ss_batch(uint64_t number, int32_t records, int64_t pid, int32_t seq)
{
    size_t room = KS_BATCH_HEADER + (size_t)records * (value_len(number) + RECORD_ROOM);
    struct kc_buf *buf = kc_buf_new(room + 2 * (size_t)RECORD_ROOM);
    KC_ASSERT(buf);
    uint8_t *raw = buf->data, *p = raw + KS_BATCH_HEADER;
    memset(raw, 0, KS_BATCH_HEADER);
    for (int32_t i = 0; i < records; i++) {
        p = put_record(p, number, i);
    }
    size_t len = (size_t)(p - raw);
    ks_put32(raw + 8, (uint32_t)(len - KS_BATCH_PREFIX));
    ks_put32(raw + 12, UINT32_MAX);
    raw[16] = 2;
    ks_put32(raw + 23, (uint32_t)(records - 1));
    ks_put64(raw + 27, 1700000001000u);
    ks_put64(raw + 35, 1700000001000u);
    ks_put64(raw + 43, (uint64_t)pid);
    ks_put16(raw + 51, pid < 0 ? UINT16_MAX : 0);
    ks_put32(raw + 53, (uint32_t)(pid < 0 ? -1 : seq));
    ks_put32(raw + 57, (uint32_t)records);
    ks_put32(raw + 17, kc_crc32c(0, raw + 21, len - 21));
    return (struct kc_slice){.buf = buf, .ptr = raw, .len = len};
}

/* ---- knowing them again ---- */

uint64_t ss_record_number(const struct ks_record *r)
{
    return r->rest_len > NUMBER_LEN ? ks_get64(r->rest + r->rest_len - NUMBER_LEN) : UINT64_MAX;
}

bool ss_record_is(const struct ks_record *r, uint64_t number)
{
    uint8_t want[VALUE_MIN + 6000];
    size_t len = (size_t)(put_content(want, number, (int32_t)r->offset_delta) - want);
    return r->timestamp == 1700000001000 && r->attrs == 0 && r->rest_len == len &&
           memcmp(r->rest, want, len) == 0;
}
