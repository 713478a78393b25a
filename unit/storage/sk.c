#include "sk.h"

#include <stdlib.h>

#include "base/kc_clock.h"
#include "base/kc_crc32c.h"
#include "base/kc_mem.h"
#include "storage/ks_bytes.h"

static uint8_t *varint(uint8_t *p, int64_t v)
{
    uint64_t z = ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
    for (; z > 0x7f; z >>= 7) {
        *p++ = (uint8_t)((z & 0x7f) | 0x80);
    }
    *p++ = (uint8_t)z;
    return p;
}

static uint8_t *put_record(uint8_t *p, const struct sk_record *r, int64_t base_ts, int32_t delta,
                           size_t padding)
{
    uint8_t *body = kc_alloc(128 + padding), *q = body;
    char text[32];
    *q++ = 0;
    q = varint(q, r->ts - base_ts);
    q = varint(q, delta);
    int n = snprintf(text, sizeof(text), "key-%d", r->key);
    q = varint(q, r->key < 0 ? -1 : n);
    if (r->key >= 0) {
        memcpy(q, text, (size_t)n);
        q += n;
    }
    n = snprintf(text, sizeof(text), "%d", r->value);
    q = varint(q, r->value < 0 ? -1 : n + (int64_t)padding);
    if (r->value >= 0) {
        memcpy(q, text, (size_t)n);
        memset(q + n, ' ', padding);
        q += (size_t)n + padding;
    }
    *q++ = 0; /* headers */
    p = varint(p, q - body);
    memcpy(p, body, (size_t)(q - body));
    p += q - body;
    kc_free(body);
    return p;
}

static struct kc_slice finish(const uint8_t *records, size_t len, const struct sk_batch *b,
                              int64_t base_ts, int64_t max_ts)
{
    struct ks_bytes_buf out = {0};
    uint8_t head[KS_BATCH_HEADER] = {0};
    KT_REQUIRE(ks_bytes_add(&out, head, sizeof(head), 1 << 26) == 0);
    enum ks_codec codec = (enum ks_codec)(b->attrs & KS_ATTR_CODEC);
    KT_REQUIRE(ks_codec_pack(codec, records, len, KC_BYTES_NULL, &out) == 0);
    uint8_t *p = out.p;
    ks_put32(p + 8, (uint32_t)(out.len - 12));
    ks_put32(p + 12, UINT32_MAX);
    p[16] = 2;
    ks_put16(p + 21, b->attrs);
    ks_put32(p + 23, (uint32_t)(b->n - 1));
    ks_put64(p + 27, (uint64_t)base_ts);
    ks_put64(p + 35, (uint64_t)max_ts);
    ks_put64(p + 43, (uint64_t)(b->pid ? b->pid : -1));
    ks_put16(p + 51, (uint16_t)(b->pid ? b->epoch : -1));
    ks_put32(p + 53, (uint32_t)(b->pid && !(b->attrs & KS_ATTR_CONTROL) ? b->seq : -1));
    ks_put32(p + 57, (uint32_t)b->n);
    struct kc_buf *buf = kc_buf_new(out.len);
    KT_REQUIRE(buf != NULL);
    memcpy(buf->data, out.p, out.len);
    struct kc_slice s = {.buf = buf, .ptr = buf->data, .len = out.len};
    ks_bytes_free(&out);
    st_fix_crc(s);
    return s;
}

struct kc_slice sk_make(const struct sk_batch *b)
{
    uint8_t *raw = kc_alloc((size_t)b->n * (160 + b->padding)), *p = raw;
    int64_t base_ts = b->records[0].ts ? b->records[0].ts : kc_wall_ms(), max_ts = 0;
    for (int32_t i = 0; i < b->n; i++) {
        struct sk_record r = b->records[i];
        r.ts = r.ts ? r.ts : base_ts;
        max_ts = KC_MAX(max_ts, r.ts);
        p = put_record(p, &r, base_ts, i, b->padding);
    }
    struct kc_slice s = finish(raw, (size_t)(p - raw), b, base_ts, max_ts);
    kc_free(raw);
    return s;
}

struct kc_slice sk_marker(int64_t pid, int16_t epoch, bool commit)
{
    uint8_t raw[64], body[32] = {0}, *q = body + 1, *p = raw;
    q = varint(varint(q, 0), 0);
    q = varint(q, 4);
    ks_put32(q, commit ? 1 : 0); /* version 0, type */
    q = varint(q + 4, 6);
    memset(q, 0, 6);
    q += 6;
    *q++ = 0;
    p = varint(p, q - body);
    memcpy(p, body, (size_t)(q - body));
    p += q - body;
    struct sk_batch b = {
        .n = 1, .attrs = KS_ATTR_CONTROL | KS_ATTR_TRANSACTIONAL, .pid = pid, .epoch = epoch};
    int64_t now = kc_wall_ms();
    return finish(raw, (size_t)(p - raw), &b, now, now);
}

int64_t sk_append(struct st_broker *b, struct ks_log *log, struct kc_slice batch)
{
    struct st_append a;
    struct ks_batch head;
    KT_REQUIRE(ks_batch_parse(batch.ptr, &head));
    st_append_start(log, batch, head.attrs & KS_ATTR_CONTROL ? KS_FROM_COORDINATOR : KS_FROM_CLIENT,
                    &a);
    st_until(b, &a.done);
    return a.r.error ? -a.r.error : a.r.base_offset;
}

int64_t sk_put(struct st_broker *b, struct ks_log *log, int32_t key, int32_t value)
{
    struct sk_record r = {.key = key, .value = value};
    return sk_append(b, log, sk_make(&(struct sk_batch){.n = 1, .records = &r, .padding = 100}));
}

/* ---- what is there ---- */

static int32_t number(const uint8_t *p, int64_t len, const char *prefix)
{
    char text[32] = {0};
    memcpy(text, p, (size_t)KC_MIN(len, (int64_t)sizeof(text) - 1));
    size_t n = strlen(prefix);
    KT_REQUIRE(strncmp(text, prefix, n) == 0);
    return (int32_t)strtol(text + n, NULL, 10);
}

void sk_view_add(struct sk_view *v, const uint8_t *p, const struct ks_batch *b)
{
    struct ks_bytes_buf scratch = {0};
    struct ks_record_iter it;
    struct ks_record r;
    struct ks_record_kv kv;
    v->batches++;
    v->empty_batches += b->count == 0;
    v->horizons += (b->attrs & KS_ATTR_HORIZON) != 0;
    KT_REQUIRE(ks_records_open(p, b, 1 << 26, &scratch, &it) == 0);
    int rc;
    while ((rc = ks_records_next(&it, &r)) > 0) {
        KT_REQUIRE(ks_record_kv(&r, &kv));
        if (v->n == v->room) {
            v->room = KC_MAX(v->room * 2, (size_t)64);
            v->v = kc_realloc(v->v, v->room * sizeof(*v->v));
        }
        bool control = b->attrs & KS_ATTR_CONTROL;
        struct sk_found *f = &v->v[v->n++];
        *f = (struct sk_found){.offset = b->base + r.offset_delta,
                               .ts = r.timestamp,
                               .key = -1,
                               .value = -1,
                               .epoch = b->epoch,
                               .control = control};
        if (!control) {
            f->key = kv.key ? number(kv.key, kv.key_len, "key-") : -1;
            f->value = kv.value ? number(kv.value, kv.value_len, "") : -1;
        }
        KT_TRUE(r.offset_delta <= b->last_delta);
    }
    KT_EQ(rc, 0);
    ks_bytes_free(&scratch);
}

static void on_read(void *ctx, const struct ks_read_result *r)
{
    struct st_read *s = ctx;
    s->done = true;
    s->r = *r;
}

void sk_read_all(struct st_broker *b, struct ks_log *log, struct sk_view *ret)
{
    struct ks_offsets o = ks_log_offsets(log);
    *ret = (struct sk_view){.next = o.start};
    ks_cache_drop(log);
    while (ret->next < o.high_watermark) {
        struct st_read s = {0};
        struct ks_read_args args = {.offset = ret->next,
                                    .limit_offset = o.high_watermark,
                                    .max_bytes = 4096,
                                    .at_least_one = true};
        ks_log_read(log, &args, on_read, &s);
        st_until(b, &s.done);
        KT_REQUIRE(s.r.error == 0 && s.r.next_offset > ret->next);
        for (int32_t i = 0; i < s.r.n_slices; i++) {
            struct ks_batch batch;
            for (size_t at = 0; at < s.r.slices[i].len; at += batch.size) {
                const uint8_t *p = s.r.slices[i].ptr + at;
                KT_REQUIRE(ks_batch_parse(p, &batch) && at + batch.size <= s.r.slices[i].len);
                KT_TRUE(ks_batch_crc_ok(p, &batch));
                KT_TRUE(batch.base >= ret->next);
                ret->next = ks_batch_last(&batch) + 1;
                sk_view_add(ret, p, &batch);
            }
            kc_buf_unref(s.r.slices[i].buf);
        }
        KT_EQ(s.r.next_offset, ret->next);
    }
}

void sk_view_free(struct sk_view *v)
{
    kc_free(v->v);
    *v = (struct sk_view){0};
}

/* ---- a compacted log ---- */

struct ks_open_args sk_args(struct st_broker *b, const struct kc_uuid *topic, struct st_open *o)
{
    struct ks_open_args a = st_args(b, topic, 0, o);
    a.config.segment_bytes = 2048;
    a.config.compact = a.config.compact_only = true;
    a.config.max_compaction_lag_ms = INT64_MAX;
    a.config.delete_retention_ms = 86400000;
    return a;
}

struct ks_log *sk_log(struct st_broker *b, const struct kc_uuid *topic,
                      const struct ks_open_args *a, struct st_open *o)
{
    (void)topic;
    if (st_open_rc(b, a, o)) {
        fprintf(stderr, "open: %d %s\n", o->rc, o->err.msg);
    }
    KT_REQUIRE(o->rc == 0 && o->log != NULL);
    ks_log_own(o->log, &b->loop);
    st_turn(b);
    return o->log;
}

void sk_clean(struct st_broker *b)
{
    int64_t end = kc_mono_ms() + 60000;
    while (!ks_clean_now(b->e) && kc_mono_ms() < end) {
        uv_run(&b->loop.uv, UV_RUN_ONCE);
    }
    while (!ks_clean_idle(b->e) && kc_mono_ms() < end) {
        uv_run(&b->loop.uv, UV_RUN_ONCE);
    }
    KT_TRUE(ks_clean_idle(b->e));
}
