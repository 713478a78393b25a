#include "wire/kw_batch.h"

#include "base/kc_crc32c.h"

enum {
    CRC_FROM = 21, /* the CRC covers the batch from its attributes on */
    MIN_RECORD_LEN = 7, /* length, attributes, two deltas, two lengths, header count */
};

int kw_batch_view(const void *data, size_t len, struct kw_batch *ret)
{
    struct kw_cursor c;
    kw_cursor_init(&c, data, len);
    struct kw_batch b = {.data = data};
    b.base_offset = kw_cursor_i64(&c);
    int32_t length = kw_cursor_i32(&c);
    b.leader_epoch = kw_cursor_i32(&c);
    int8_t magic = kw_cursor_i8(&c);
    if (c.error) {
        return c.error;
    }
    if (magic != KW_BATCH_MAGIC) {
        return KC_E_UNSUPPORTED;
    }
    if (length < KW_BATCH_HEADER_LEN - KW_BATCH_PREFIX_LEN) {
        return KC_E_MALFORMED;
    }
    b.size = (size_t)length + KW_BATCH_PREFIX_LEN;
    if (b.size > len) {
        return KC_E_TRUNCATED;
    }
    b.crc = kw_cursor_u32(&c);
    b.attributes = kw_cursor_i16(&c);
    b.last_offset_delta = kw_cursor_i32(&c);
    b.base_timestamp_ms = kw_cursor_i64(&c);
    b.max_timestamp_ms = kw_cursor_i64(&c);
    b.producer_id = kw_cursor_i64(&c);
    b.producer_epoch = kw_cursor_i16(&c);
    b.base_sequence = kw_cursor_i32(&c);
    b.count = kw_cursor_i32(&c);
    /* Compaction may leave fewer records than offsets, never more. */
    if (b.base_offset < 0 || b.last_offset_delta < 0 || b.count < 0 ||
        b.base_offset > INT64_MAX - b.last_offset_delta ||
        (int64_t)b.count > (int64_t)b.last_offset_delta + 1) {
        return KC_E_MALFORMED;
    }
    *ret = b;
    return 0;
}

bool kw_batch_crc_ok(const struct kw_batch *b)
{
    return kc_crc32c(0, b->data + CRC_FROM, b->size - CRC_FROM) == b->crc;
}

int kw_record_iter_init(struct kw_record_iter *it, const struct kw_batch *b)
{
    if (kw_batch_codec(b) != KW_CODEC_NONE) {
        return KC_E_UNSUPPORTED;
    }
    it->batch = b;
    it->done = 0;
    kw_cursor_init(&it->c, b->data + KW_BATCH_HEADER_LEN, b->size - KW_BATCH_HEADER_LEN);
    if ((size_t)b->count > kw_cursor_left(&it->c) / MIN_RECORD_LEN) {
        return KC_E_MALFORMED;
    }
    return 0;
}

/* Bytes behind a zigzag length; -1 is null. */
static struct kc_bytes read_bytes(struct kw_cursor *c)
{
    int32_t len = kw_cursor_varint(c);
    if (len < -1) {
        kw_cursor_fail(c, KC_E_MALFORMED);
    }
    const uint8_t *p = len < 0 || c->error ? NULL : kw_cursor_raw(c, (size_t)len);
    return p ? (struct kc_bytes){p, len} : KC_BYTES_NULL;
}

/* A header's key may not be null. */
static void read_header(struct kw_cursor *c, struct kw_record_header *ret)
{
    struct kc_bytes key = read_bytes(c);
    if (!key.ptr) {
        kw_cursor_fail(c, KC_E_MALFORMED);
    }
    ret->key = (struct kc_str){(const char *)key.ptr, key.len};
    ret->value = read_bytes(c);
}

/* Leaves a copy of the cursor in r->headers and walks over them, so that readers need no checks. */
static void read_headers(struct kw_cursor *c, struct kw_record *r)
{
    r->n_headers = kw_cursor_varint(c);
    if (r->n_headers < 0 || (size_t)r->n_headers > kw_cursor_left(c) / 2) {
        kw_cursor_fail(c, KC_E_MALFORMED);
    }
    r->headers = *c;
    for (int32_t i = 0; i < r->n_headers && !c->error; i++) {
        struct kw_record_header h;
        read_header(c, &h);
    }
}

int kw_record_next(struct kw_record_iter *it, struct kw_record *ret)
{
    const struct kw_batch *b = it->batch;
    if (!it->c.error && it->done == b->count) {
        return kw_cursor_left(&it->c) ? KC_E_MALFORMED : 0;
    }
    int32_t len = kw_cursor_varint(&it->c);
    if (len < 0) {
        kw_cursor_fail(&it->c, KC_E_MALFORMED);
    }
    const uint8_t *body = it->c.error ? NULL : kw_cursor_raw(&it->c, (size_t)len);
    if (!body) {
        return it->c.error;
    }
    struct kw_cursor c;
    kw_cursor_init(&c, body, (size_t)len);
    struct kw_record r = {0};
    kw_cursor_i8(&c); /* attributes: none are defined */
    int64_t timestamp_delta = kw_cursor_varlong(&c);
    int32_t offset_delta = kw_cursor_varint(&c);
    r.key = read_bytes(&c);
    r.value = read_bytes(&c);
    read_headers(&c, &r);
    if (!c.error &&
        (kw_cursor_left(&c) || offset_delta < 0 || offset_delta > b->last_offset_delta)) {
        kw_cursor_fail(&c, KC_E_MALFORMED);
    }
    if (c.error) {
        kw_cursor_fail(&it->c, c.error);
        return c.error;
    }
    r.offset = b->base_offset + offset_delta;
    /* Wraps instead of overflowing: both numbers are the client's. */
    r.timestamp_ms = b->attributes & KW_BATCH_LOG_APPEND_TIME
                         ? b->max_timestamp_ms
                         : (int64_t)((uint64_t)b->base_timestamp_ms + (uint64_t)timestamp_delta);
    it->done++;
    *ret = r;
    return 1;
}

bool kw_record_header_next(struct kw_record *r, struct kw_record_header *ret)
{
    if (r->n_headers <= 0) {
        return false;
    }
    r->n_headers--;
    read_header(&r->headers, ret);
    return !r->headers.error;
}
