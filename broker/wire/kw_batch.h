/* kw_batch.h - record batches of format v2: header view, CRC, records of uncompressed batches, and a
 * builder for the records of internal topics and for tests.
 *
 * Any thread, one owner. Views and records borrow from the bytes they were read from. Client data
 * stays opaque: the broker looks at headers only, except where a rule needs the records.
 *
 * Layout: base offset i64, length i32 (of what follows), leader epoch i32, magic i8, CRC-32C u32
 * of everything behind it, attributes i16, last offset delta i32, base timestamp i64, max timestamp i64,
 * producer id i64, producer epoch i16, base sequence i32, record count i32, records. The CRC leaves
 * base offset and leader epoch out, so the broker sets them without touching it. */
#ifndef KW_BATCH_H
#define KW_BATCH_H

#include "wire/kw_cursor.h"
#include "wire/kw_writer.h"

enum {
    KW_BATCH_HEADER_LEN = 61,
    KW_BATCH_PREFIX_LEN = 12, /* base offset and length: not counted by length */
    KW_BATCH_MAGIC = 2,
    KW_BATCH_MAGIC_AT = 16, /* also in the formats 0 and 1 */
};

enum kw_codec { KW_CODEC_NONE, KW_CODEC_GZIP, KW_CODEC_SNAPPY, KW_CODEC_LZ4, KW_CODEC_ZSTD };

enum {
    KW_BATCH_CODEC_MASK = 0x07,
    KW_BATCH_LOG_APPEND_TIME = 0x08,
    KW_BATCH_TRANSACTIONAL = 0x10,
    KW_BATCH_CONTROL = 0x20,
    KW_BATCH_DELETE_HORIZON = 0x40,
};

struct kw_batch {
    const uint8_t *data;
    size_t size; /* of the whole batch, header included */
    int64_t base_offset;
    int32_t leader_epoch;
    uint32_t crc;
    int16_t attributes;
    int32_t last_offset_delta;
    int64_t base_timestamp_ms;
    int64_t max_timestamp_ms;
    int64_t producer_id; /* -1: not idempotent */
    int16_t producer_epoch;
    int32_t base_sequence;
    int32_t count;
};

/* Reads the header of the batch at the start of data. 0; KC_E_TRUNCATED when data ends before the
 * batch does; KC_E_UNSUPPORTED for another magic; KC_E_MALFORMED for sizes and counts that cannot be.
 * The CRC is not checked. */
int kw_batch_view(const void *data, size_t len, struct kw_batch *ret) KC_MUST_CHECK;
bool kw_batch_crc_ok(const struct kw_batch *b);

static inline int kw_batch_codec(const struct kw_batch *b)
{
    return b->attributes & KW_BATCH_CODEC_MASK;
}
static inline int64_t kw_batch_last_offset(const struct kw_batch *b)
{
    return b->base_offset + b->last_offset_delta;
}

struct kw_record {
    int64_t offset;
    int64_t timestamp_ms;
    struct kc_bytes key; /* nullable, as is value */
    struct kc_bytes value;
    int32_t n_headers;
    struct kw_cursor headers; /* checked; read with kw_record_header_next */
};

struct kw_record_iter {
    const struct kw_batch *batch;
    struct kw_cursor c;
    int32_t done;
};

/* KC_E_UNSUPPORTED for a compressed batch. The batch must outlive the iterator. */
int kw_record_iter_init(struct kw_record_iter *it, const struct kw_batch *b) KC_MUST_CHECK;
/* 1 and the next record; 0 at the end, when exactly `count` records have filled the batch; else
 * KC_E_TRUNCATED or KC_E_MALFORMED. */
int kw_record_next(struct kw_record_iter *it, struct kw_record *ret) KC_MUST_CHECK;

struct kw_record_header {
    struct kc_str key;
    struct kc_bytes value; /* nullable */
};
/* False at the end. */
bool kw_record_header_next(struct kw_record *r, struct kw_record_header *ret);

struct kw_batch_args {
    int64_t base_offset;
    int32_t leader_epoch;
    int16_t attributes; /* codec none */
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t base_sequence;
};
/* Not idempotent, offset 0, epoch -1: what a client without idempotence sends. */
#define KW_BATCH_ARGS_PLAIN                                                                        \
    ((struct kw_batch_args){                                                                       \
        .leader_epoch = -1, .producer_id = -1, .producer_epoch = -1, .base_sequence = -1})

struct kw_batch_builder {
    struct kw_writer w;
    struct kw_batch_args args;
    int64_t base_timestamp_ms;
    int64_t max_timestamp_ms;
    int32_t count;
};

void kw_batch_builder_init(struct kw_batch_builder *b, const struct kw_batch_args *args,
                           size_t max_bytes);
void kw_batch_builder_fini(struct kw_batch_builder *b);
/* Appends a record at the next offset; errors are sticky until ..._end. Headers may be NULL. */
void kw_batch_builder_add(struct kw_batch_builder *b, int64_t timestamp_ms, struct kc_bytes key,
                          struct kc_bytes value, const struct kw_record_header *headers,
                          int32_t n_headers);
/* Completes the batch: its bytes, borrowed until fini. KC_E_TOO_LARGE, -ENOMEM or KC_E_MALFORMED (no
 * record; a null header key). */
int kw_batch_builder_end(struct kw_batch_builder *b, struct kc_bytes *ret) KC_MUST_CHECK;

#endif
