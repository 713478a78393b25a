#include <string.h>

#include "base/kc_crc32c.h"
#include "wire/kw_batch.h"

enum { CRC_AT = 17, CRC_FROM = 21 };

void kw_batch_builder_init(struct kw_batch_builder *b, const struct kw_batch_args *args,
                           size_t max_bytes)
{
    *b = (struct kw_batch_builder){.args = *args};
    kw_writer_init(&b->w, max_bytes);
    static const uint8_t header[KW_BATCH_HEADER_LEN];
    kw_writer_raw(&b->w, header, sizeof(header));
}

void kw_batch_builder_fini(struct kw_batch_builder *b)
{
    kw_writer_fini(&b->w);
}

static void write_bytes(struct kw_writer *w, struct kc_bytes v)
{
    kw_writer_varint(w, v.ptr ? v.len : -1);
    if (v.ptr) {
        kw_writer_raw(w, v.ptr, (size_t)v.len);
    }
}

/* Moves the record written since `at` back and puts its zigzag length in front. */
static void insert_len(struct kw_writer *w, size_t at)
{
    if (w->error) {
        return;
    }
    size_t size = w->own.len - at;
    if (size > INT32_MAX) {
        kw_writer_fail(w, KC_E_TOO_LARGE);
        return;
    }
    kw_writer_varint(w, (int32_t)size);
    if (w->error) {
        return;
    }
    size_t n = w->own.len - at - size; /* bytes of the length, now at the end */
    uint8_t prefix[5];
    memcpy(prefix, w->own.data + at + size, n);
    memmove(w->own.data + at + n, w->own.data + at, size);
    memcpy(w->own.data + at, prefix, n);
}

void kw_batch_builder_add(struct kw_batch_builder *b, int64_t timestamp_ms, struct kc_bytes key,
                          struct kc_bytes value, const struct kw_record_header *headers,
                          int32_t n_headers)
{
    struct kw_writer *w = &b->w;
    if (b->count == INT32_MAX) {
        kw_writer_fail(w, KC_E_TOO_LARGE);
        return;
    }
    if (b->count == 0) {
        b->base_timestamp_ms = b->max_timestamp_ms = timestamp_ms;
    }
    b->max_timestamp_ms = KC_MAX(b->max_timestamp_ms, timestamp_ms);
    size_t at = w->own.len;
    kw_writer_i8(w, 0);
    kw_writer_varlong(w, (int64_t)((uint64_t)timestamp_ms - (uint64_t)b->base_timestamp_ms));
    kw_writer_varint(w, b->count);
    write_bytes(w, key);
    write_bytes(w, value);
    kw_writer_varint(w, n_headers);
    for (int32_t i = 0; i < n_headers; i++) {
        if (!headers[i].key.ptr) {
            kw_writer_fail(w, KC_E_MALFORMED);
        }
        write_bytes(w, (struct kc_bytes){(const uint8_t *)headers[i].key.ptr, headers[i].key.len});
        write_bytes(w, headers[i].value);
    }
    insert_len(w, at);
    b->count++;
}

/* The header of a batch of `size` bytes; crc 0 leaves the place for it. */
static void write_header(const struct kw_batch_builder *b, size_t size, struct kw_writer *w)
{
    kw_writer_i64(w, b->args.base_offset);
    kw_writer_i32(w, (int32_t)(size - KW_BATCH_PREFIX_LEN));
    kw_writer_i32(w, b->args.leader_epoch);
    kw_writer_i8(w, KW_BATCH_MAGIC);
    kw_writer_u32(w, 0);
    kw_writer_i16(w, b->args.attributes);
    kw_writer_i32(w, b->count - 1);
    kw_writer_i64(w, b->base_timestamp_ms);
    kw_writer_i64(w, b->max_timestamp_ms);
    kw_writer_i64(w, b->args.producer_id);
    kw_writer_i16(w, b->args.producer_epoch);
    kw_writer_i32(w, b->args.base_sequence);
    kw_writer_i32(w, b->count);
}

int kw_batch_builder_end(struct kw_batch_builder *b, struct kc_bytes *ret)
{
    struct kw_writer *w = &b->w;
    size_t size = w->own.len;
    if (!w->error && b->count == 0) {
        kw_writer_fail(w, KC_E_MALFORMED);
    }
    if (!w->error && size > INT32_MAX) {
        kw_writer_fail(w, KC_E_TOO_LARGE);
    }
    if (w->error) {
        return w->error;
    }
    struct kw_writer header;
    kw_writer_init(&header, KW_BATCH_HEADER_LEN);
    write_header(b, size, &header);
    int rc = header.error;
    if (rc == 0) {
        uint8_t *data = w->own.data;
        memcpy(data, header.own.data, KW_BATCH_HEADER_LEN);
        uint32_t crc = kc_crc32c(0, data + CRC_FROM, size - CRC_FROM);
        for (unsigned i = 0; i < 4; i++) {
            data[CRC_AT + i] = (uint8_t)(crc >> (24 - 8 * i));
        }
        *ret = (struct kc_bytes){data, (int32_t)size};
    }
    kw_writer_fini(&header);
    return rc;
}
