#include "storage/ks_clean_batch.h"

#include <errno.h>
#include <string.h>

#include "base/kc_crc32c.h"
#include "base/kc_error.h"
#include "storage/ks_bytes.h"

enum { VARINT_MAX = 10 };

void ks_clean_filter_fini(struct ks_clean_filter *f)
{
    ks_clean_txns_fini(&f->txns);
    ks_bytes_free(&f->plain);
    ks_bytes_free(&f->kept);
}

/* The records of a batch, unpacked within what it may become. */
static int open_records(const uint8_t *p, const struct ks_batch *b, struct ks_bytes_buf *scratch,
                        struct ks_record_iter *ret)
{
    return ks_records_open(p, b, ks_codec_limit(b->size - KS_BATCH_HEADER), scratch, ret);
}

int ks_clean_keyed(const uint8_t *p, const struct ks_batch *b)
{
    struct ks_bytes_buf scratch = {0};
    struct ks_record_iter it;
    struct ks_record r;
    struct ks_record_kv kv;
    int more = 0, rc = open_records(p, b, &scratch, &it);
    bool keyed = true;
    while (!rc && (more = ks_records_next(&it, &r)) > 0) {
        rc = ks_record_kv(&r, &kv) ? 0 : KC_E_CORRUPT;
        keyed = keyed && !rc && kv.key;
    }
    ks_bytes_free(&scratch);
    return rc ? rc : more < 0 ? KC_E_CORRUPT : keyed;
}

int ks_clean_map_batch(struct ks_clean_map *m, const uint8_t *p, const struct ks_batch *b,
                       int64_t from_offset, struct ks_bytes_buf *scratch)
{
    struct ks_record_iter it;
    struct ks_record r;
    struct ks_record_kv kv;
    int rc = open_records(p, b, scratch, &it);
    int more = 0;
    while (!rc && (more = ks_records_next(&it, &r)) > 0) {
        int64_t offset = b->base + r.offset_delta;
        if (r.offset_delta > b->last_delta || !ks_record_kv(&r, &kv)) {
            return KC_E_CORRUPT;
        }
        if (kv.key_len < 0 || offset < from_offset) {
            continue;
        }
        if (!ks_clean_map_put(m, kv.key, (size_t)kv.key_len, offset)) {
            m->latest = KC_MAX(m->latest, offset - 1);
            return 1;
        }
    }
    rc = rc || more == 0 ? rc : KC_E_CORRUPT;
    m->latest = rc ? m->latest : KC_MAX(m->latest, ks_batch_last(b));
    return rc;
}

/* A repeat of it may still come. */
static bool last_of_producer(const struct ks_clean_filter *f, const struct ks_batch *b)
{
    uint32_t lo = 0, hi = b->producer_id < 0 ? 0 : f->n_producers;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (f->producers[mid].producer_id < b->producer_id) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    if (b->producer_id < 0 || lo >= f->n_producers ||
        f->producers[lo].producer_id != b->producer_id) {
        return false;
    }
    const struct ks_clean_producer *who = &f->producers[lo];
    for (uint8_t i = 0; i < who->n; i++) {
        if (ks_batch_last(b) == who->last_offsets[i]) {
            return true;
        }
    }
    return who->n == 0 && (b->attrs & KS_ATTR_CONTROL) && b->producer_epoch == who->epoch;
}

/* What a look at the records of a batch found. */
struct verdict {
    int32_t kept;
    bool tombstones;
    int64_t first_ts, max_ts; /* of what is kept */
};

static bool stays(const struct ks_clean_filter *f, const struct ks_batch *b, int64_t offset,
                  const struct ks_record_kv *kv)
{
    if (offset > f->map->latest) {
        return true; /* not looked at yet */
    }
    if (kv->key_len < 0) {
        return false; /* of a time before the topic was compacted: nothing can ever supersede it */
    }
    if (offset < ks_clean_map_get(f->map, kv->key, (size_t)kv->key_len)) {
        return false;
    }
    return kv->value || !(b->attrs & KS_ATTR_HORIZON) || f->now_wall_ms < b->base_ts;
}

static size_t put_varint(uint8_t *p, int64_t v)
{
    uint64_t z = ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
    size_t n = 0;
    do {
        p[n] = (uint8_t)((z & 0x7f) | (z > 0x7f ? 0x80 : 0));
        z >>= 7;
        n++;
    } while (z);
    return n;
}

/* Appends a record whose timestamp counts from base_ts. */
static int copy_record(struct ks_bytes_buf *out, const struct ks_record *r, int64_t base_ts)
{
    uint8_t delta[VARINT_MAX], len[VARINT_MAX], offset[VARINT_MAX];
    size_t n_delta = put_varint(delta, (int64_t)((uint64_t)r->timestamp - (uint64_t)base_ts));
    size_t n_offset = put_varint(offset, r->offset_delta);
    size_t body = 1 + n_delta + n_offset + r->rest_len;
    size_t n_len = put_varint(len, (int64_t)body);
    int rc = ks_bytes_reserve(out, n_len + body, KS_BATCH_MAX);
    if (rc) {
        return rc;
    }
    uint8_t *p = out->p + out->len;
    memcpy(p, len, n_len);
    p += n_len;
    *p++ = r->attrs;
    memcpy(p, delta, n_delta);
    memcpy(p + n_delta, offset, n_offset);
    memcpy(p + n_delta + n_offset, r->rest, r->rest_len);
    out->len += n_len + body;
    return 0;
}

/* Walks the records twice at most: to judge (copy false), then to copy what stays. */
static int walk(struct ks_clean_filter *f, struct ks_record_iter it, const struct ks_batch *b,
                bool copy, int64_t base_ts, struct verdict *v)
{
    struct ks_record r;
    struct ks_record_kv kv;
    int more;
    *v = (struct verdict){.first_ts = -1, .max_ts = -1};
    while ((more = ks_records_next(&it, &r)) > 0) {
        if (r.offset_delta > b->last_delta || !ks_record_kv(&r, &kv)) {
            return KC_E_CORRUPT;
        }
        bool control = b->attrs & KS_ATTR_CONTROL;
        if (!control && !stays(f, b, b->base + r.offset_delta, &kv)) {
            continue;
        }
        v->first_ts = v->kept == 0 ? r.timestamp : v->first_ts;
        v->max_ts = v->kept == 0 ? r.timestamp : KC_MAX(v->max_ts, r.timestamp);
        v->kept++;
        v->tombstones = v->tombstones || (!control && !kv.value);
        int rc = copy ? copy_record(&f->kept, &r, base_ts) : 0;
        if (rc) {
            return rc;
        }
    }
    return more < 0 ? KC_E_CORRUPT : 0;
}

/* Fills in the header of the batch that begins at out->p + at and ends at the end of out. */
static void finish(struct ks_bytes_buf *out, size_t at, const uint8_t *old,
                   const struct ks_batch *b, const struct verdict *v, uint16_t attrs,
                   int64_t base_ts)
{
    uint8_t *p = out->p + at;
    size_t size = out->len - at;
    memcpy(p, old, KS_BATCH_HEADER); /* base, epoch, last delta, producer stay as they are */
    ks_put32(p + 8, (uint32_t)(size - KS_BATCH_PREFIX));
    ks_put16(p + 21, attrs);
    ks_put64(p + 27, (uint64_t)base_ts);
    bool own = v->kept == 0 || (attrs & KS_ATTR_APPEND_TIME);
    ks_put64(p + 35, (uint64_t)(own ? b->max_ts : v->max_ts));
    ks_put32(p + 57, (uint32_t)v->kept);
    ks_put32(p + 17, kc_crc32c(0, p + 21, size - 21));
}

/* A batch without records: only its offsets, epoch, producer and sequence. */
static int write_empty(struct ks_bytes_buf *out, const uint8_t *p, const struct ks_batch *b)
{
    size_t at = out->len;
    struct verdict none = {0};
    int rc = ks_bytes_reserve(out, KS_BATCH_HEADER, SIZE_MAX / 2);
    if (!rc) {
        out->len += KS_BATCH_HEADER;
        uint16_t attrs = (uint16_t)(b->attrs & ~(KS_ATTR_CODEC | KS_ATTR_HORIZON));
        finish(out, at, p, b, &none, attrs, -1);
    }
    return rc;
}

static int rebuild(struct ks_clean_filter *f, const struct ks_record_iter *it, const uint8_t *p,
                   const struct ks_batch *b, bool new_horizon, const struct verdict *seen,
                   struct ks_bytes_buf *out)
{
    enum ks_codec codec = (enum ks_codec)(b->attrs & KS_ATTR_CODEC);
    size_t at = out->len;
    struct verdict v;
    uint16_t attrs = (uint16_t)(b->attrs | (new_horizon ? KS_ATTR_HORIZON : 0));
    int64_t base_ts = new_horizon               ? f->now_wall_ms + f->delete_retention_ms
                      : attrs & KS_ATTR_HORIZON ? b->base_ts
                                                : seen->first_ts;
    f->kept.len = 0;
    int rc = walk(f, *it, b, true, base_ts, &v);
    rc = rc ? rc : ks_bytes_reserve(out, KS_BATCH_HEADER, SIZE_MAX / 2);
    if (rc) {
        return rc;
    }
    out->len += KS_BATCH_HEADER;
    struct kc_bytes like = {p + KS_BATCH_HEADER, (int32_t)(b->size - KS_BATCH_HEADER)};
    rc = ks_codec_pack(codec, f->kept.p, f->kept.len, like, out);
    if (!rc && out->len - at > KS_BATCH_MAX) {
        rc = KC_E_TOO_LARGE;
    }
    if (rc) {
        out->len = at;
        return rc;
    }
    finish(out, at, p, b, &v, attrs, base_ts);
    f->stats.records_kept += (uint64_t)v.kept;
    return 0;
}

static int write_whole(struct ks_clean_filter *f, struct ks_bytes_buf *out, const uint8_t *p,
                       const struct ks_batch *b)
{
    f->stats.records_kept += (uint64_t)KC_MAX(b->count, 0);
    f->stats.batches_whole++;
    return ks_bytes_add(out, p, b->size, SIZE_MAX / 2);
}

int ks_clean_batch(struct ks_clean_filter *f, const uint8_t *p, const struct ks_batch *b, bool keep,
                   struct ks_bytes_buf *out)
{
    bool control = b->attrs & KS_ATTR_CONTROL, horizon = b->attrs & KS_ATTR_HORIZON;
    bool is_void = ks_clean_txns_read(&f->txns, b, ks_batch_marker(p, b));
    bool discard = is_void && (!control || (horizon && b->base_ts <= f->now_wall_ms));
    size_t before = out->len;
    struct ks_record_iter it;
    struct verdict v = {0};
    int rc = 0;
    f->stats.batches_read++;
    f->stats.bytes_read += b->size;
    f->stats.records_read += (uint64_t)KC_MAX(b->count, 0);
    keep = keep || last_of_producer(f, b);
    if (!control && b->base > f->map->latest && !is_void) {
        rc = write_whole(f, out, p, b); /* the map says nothing of it yet */
        f->stats.bytes_kept += out->len - before;
        return rc;
    }
    if (!discard) {
        rc = open_records(p, b, &f->plain, &it);
        rc = rc ? rc : walk(f, it, b, false, 0, &v);
    }
    if (rc) {
        return rc;
    }
    bool new_horizon = !horizon && (v.tombstones || (control && is_void));
    if (v.kept > 0) {
        rc = v.kept == b->count && !new_horizon ? write_whole(f, out, p, b)
                                                : rebuild(f, &it, p, b, new_horizon, &v, out);
    } else if (keep && b->count == 0) {
        rc = write_whole(f, out, p, b);
    } else if (keep) {
        rc = write_empty(out, p, b);
    }
    f->stats.bytes_kept += out->len - before;
    return rc;
}
