/* ks_batch.h - the header of a record batch v2, and the checks of Kafka's broker on it.
 *
 * Pure. The log keeps batches as opaque bytes; only base offset and leader epoch (outside the CRC)
 * and, where Kafka does so too, timestamp type and max timestamp (inside it) are rewritten. */
#ifndef KS_BATCH_H
#define KS_BATCH_H

#include "base/kc_base.h"

enum {
    KS_BATCH_PREFIX = 12, /* base offset and length: not counted by the length field */
    KS_BATCH_HEADER = 61, /* up to the first record */
    KS_BATCH_MAX = 256 * 1024 * 1024 /* what a reader accepts at all */
};

enum {
    KS_ATTR_CODEC = 0x07,
    KS_ATTR_APPEND_TIME = 0x08,
    KS_ATTR_TRANSACTIONAL = 0x10,
    KS_ATTR_CONTROL = 0x20,
    KS_ATTR_HORIZON = 0x40 /* the base timestamp is a delete horizon (KIP-534) */
};

struct ks_batch {
    int64_t base;
    size_t size; /* whole, with the prefix */
    int32_t epoch;
    int8_t magic;
    uint32_t crc;
    uint16_t attrs;
    int32_t last_delta;
    int64_t base_ts, max_ts;
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t first_seq;
    int32_t count;
};

static inline int64_t ks_batch_last(const struct ks_batch *b)
{
    return b->base + b->last_delta;
}

/* Reads the header of `p` (at least KS_BATCH_HEADER bytes). False if length or last delta cannot
 * be those of a batch v2; nothing else is judged. */
bool ks_batch_parse(const uint8_t *p, struct ks_batch *ret);
/* p holds b->size bytes. */
bool ks_batch_crc_ok(const uint8_t *p, const struct ks_batch *b);
/* Writes base offset and leader epoch (not covered by the CRC). */
void ks_batch_place(uint8_t *p, int64_t base, int32_t epoch);
/* Writes max timestamp, timestamp type, and the CRC anew, which it returns. */
uint32_t ks_batch_stamp(uint8_t *p, size_t size, bool append_time, int64_t max_ts);

/* What a control batch says: the key of its first record (KIP-98). p holds b->size bytes. */
enum ks_marker { KS_MARK_NONE = -1, KS_MARK_ABORT = 0, KS_MARK_COMMIT = 1 };
enum ks_marker ks_batch_marker(const uint8_t *p, const struct ks_batch *b);

/* A record inside an uncompressed batch. */
struct ks_record {
    int64_t offset_delta;
    int64_t timestamp;
    bool keyed;
    const uint8_t *rest; /* key, value and headers, as they stand */
    size_t rest_len;
    uint8_t attrs;
};
struct ks_record_kv {
    const uint8_t *key; /* NULL without one */
    int64_t key_len; /* -1 = none */
    const uint8_t *value; /* NULL without one: a tombstone */
    int64_t value_len; /* -1 = none */
};
struct ks_record_iter {
    const uint8_t *p, *end;
    int64_t base_ts;
    int32_t left;
};
/* p holds b->size bytes. Nothing may be read of a compressed batch. */
void ks_records_begin(struct ks_record_iter *it, const uint8_t *p, const struct ks_batch *b);
/* 1 = *ret filled, 0 = end, exactly at the last byte; -1 = malformed. */
int ks_records_next(struct ks_record_iter *it, struct ks_record *ret);
/* Key and value of a record; false: malformed. */
bool ks_record_kv(const struct ks_record *r, struct ks_record_kv *ret);

/* What a topic demands of a client's batch. */
struct ks_rules {
    int32_t max_message_bytes;
    int64_t segment_bytes;
    int64_t ts_before_max_ms, ts_after_max_ms; /* < 0 = no bound */
    bool append_time;
    bool compact; /* every record of a client needs a key */
    bool from_client; /* coordinators may write control batches, several at once */
};
struct ks_verdict {
    int16_t error; /* Kafka's code */
    const char *message;
    bool blind; /* refused before the log was looked at: its start is not told */
    bool stamp; /* max timestamp or type must be rewritten */
    int64_t max_ts;
};
/* Judges one batch at p of len bytes (which must be all of it for a client). Fills *ret_batch when
 * error is 0. Answers as measured of Kafka 3.7 and 4.4 (research/kafka-api.md, 3.1). */
struct ks_verdict ks_batch_judge(const uint8_t *p, size_t len, const struct ks_rules *rules,
                                 int64_t now_wall_ms, struct ks_batch *ret_batch);

#endif
