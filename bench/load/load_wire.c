/* load_wire.c - requests that are written, answers that are read, and the one record batch. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_base.h"
#include "base/kc_crc32c.h"
#include "base/kc_mem.h"
#include "load.h"

void ld_put16(uint8_t *p, int v)
{
    uint16_t b = htobe16((uint16_t)v);
    memcpy(p, &b, 2);
}

void ld_put32(uint8_t *p, int64_t v)
{
    uint32_t b = htobe32((uint32_t)v);
    memcpy(p, &b, 4);
}

void ld_put64(uint8_t *p, int64_t v)
{
    uint64_t b = htobe64((uint64_t)v);
    memcpy(p, &b, 8);
}

int16_t ld_get16(const uint8_t *p)
{
    uint16_t b;
    memcpy(&b, p, 2);
    return (int16_t)be16toh(b);
}

int32_t ld_get32(const uint8_t *p)
{
    uint32_t b;
    memcpy(&b, p, 4);
    return (int32_t)be32toh(b);
}

int64_t ld_get64(const uint8_t *p)
{
    uint64_t b;
    memcpy(&b, p, 8);
    return (int64_t)be64toh(b);
}

/* ---- writing ---- */

void ld_w_bytes(struct ld_w *w, const void *data, size_t len)
{
    if (w->len + len > w->cap) {
        w->cap = (w->len + len) * 2 + 64;
        w->p = kc_realloc(w->p, w->cap);
    }
    if (len) {
        memcpy(w->p + w->len, data, len);
    }
    w->len += len;
}

void ld_w8(struct ld_w *w, int v)
{
    uint8_t b = (uint8_t)v;
    ld_w_bytes(w, &b, 1);
}

void ld_w16(struct ld_w *w, int v)
{
    uint8_t b[2];
    ld_put16(b, v);
    ld_w_bytes(w, b, sizeof(b));
}

void ld_w32(struct ld_w *w, int64_t v)
{
    uint8_t b[4];
    ld_put32(b, v);
    ld_w_bytes(w, b, sizeof(b));
}

void ld_w64(struct ld_w *w, int64_t v)
{
    uint8_t b[8];
    ld_put64(b, v);
    ld_w_bytes(w, b, sizeof(b));
}

void ld_w_str(struct ld_w *w, const char *s)
{
    ld_w16(w, s ? (int)strlen(s) : -1);
    if (s) {
        ld_w_bytes(w, s, strlen(s));
    }
}

static void w_varint(struct ld_w *w, int64_t v)
{
    uint64_t z = ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
    for (; z > 127; z >>= 7) {
        ld_w8(w, (int)(z & 127) | 128);
    }
    ld_w8(w, (int)z);
}

void ld_w_request(struct ld_w *w, int api, int version, int32_t correlation)
{
    w->len = 0;
    ld_w32(w, 0);
    ld_w16(w, api);
    ld_w16(w, version);
    ld_w32(w, correlation);
    ld_w_str(w, "kaas-load");
}

/* ---- reading ---- */

const uint8_t *ld_r_bytes(struct ld_r *r, int64_t len)
{
    if (r->bad || len < 0 || r->end - r->p < len) {
        r->bad = true;
        return NULL;
    }
    r->p += len;
    return r->p - len;
}

int16_t ld_r16(struct ld_r *r)
{
    const uint8_t *p = ld_r_bytes(r, 2);
    return p ? ld_get16(p) : 0;
}

int32_t ld_r32(struct ld_r *r)
{
    const uint8_t *p = ld_r_bytes(r, 4);
    return p ? ld_get32(p) : 0;
}

int64_t ld_r64(struct ld_r *r)
{
    const uint8_t *p = ld_r_bytes(r, 8);
    return p ? ld_get64(p) : 0;
}

void ld_r_str(struct ld_r *r, char *ret_s, size_t cap)
{
    int16_t len = ld_r16(r);
    const uint8_t *p = len > 0 ? ld_r_bytes(r, len) : NULL;
    size_t n = p ? KC_MIN((size_t)len, cap - 1) : 0;
    if (n) {
        memcpy(ret_s, p, n);
    }
    ret_s[n] = '\0';
}

int32_t ld_r_count(struct ld_r *r, size_t least)
{
    int32_t n = ld_r32(r);
    if (n > 0 && (size_t)n > (size_t)(r->end - r->p) / least) {
        r->bad = true;
    }
    return r->bad || n < 0 ? 0 : n;
}

/* ---- the batch ---- */

static void record(struct ld_w *w, int32_t offset, int64_t rec, uint64_t *random)
{
    uint64_t x = *random;
    ld_w8(w, 0);
    w_varint(w, 0);
    w_varint(w, offset);
    w_varint(w, -1);
    w_varint(w, rec);
    for (int64_t i = 0; i < rec; i += 8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        ld_w_bytes(w, &x, (size_t)KC_MIN(rec - i, (int64_t)8));
    }
    ld_w8(w, 0);
    *random = x;
}

void ld_batch_build(struct ld_batch *b, int64_t target, int64_t rec)
{
    static const uint8_t header[LD_BATCH_HEADER];
    struct ld_w w = {0}, r = {0};
    uint64_t random = 88172645463325252u;
    int32_t n = 0;
    ld_w_bytes(&w, header, sizeof(header));
    do {
        r.len = 0;
        record(&r, n, rec, &random);
        if (n && (int64_t)(w.len + r.len + 4) > target) {
            break;
        }
        w_varint(&w, (int64_t)r.len);
        ld_w_bytes(&w, r.p, r.len);
        if (!n++) {
            b->value_at = w.len - 1 - (size_t)rec;
        }
    } while ((int64_t)w.len < target);
    ld_put32(w.p + 8, (int64_t)w.len - 12);
    ld_put32(w.p + 12, -1);
    w.p[16] = 2;
    ld_put32(w.p + 23, n - 1);
    ld_put64(w.p + 43, -1);
    ld_put16(w.p + 51, -1);
    ld_put32(w.p + 53, -1);
    ld_put32(w.p + 57, n);
    ld_batch_stamp(w.p, w.len, (int64_t)(ld_wall_s() * 1000));
    b->p = w.p;
    b->len = w.len;
    b->records = n;
    kc_free(r.p);
}

void ld_batch_stamp(uint8_t *p, size_t len, int64_t wall_ms)
{
    ld_put64(p + 27, wall_ms);
    ld_put64(p + 35, wall_ms);
    ld_put32(p + 17, kc_crc32c(0, p + 21, len - 21));
}
