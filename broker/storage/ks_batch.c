#include "storage/ks_batch.h"

#include "base/kc_crc32c.h"
#include "storage/ks_bytes.h"
#include "storage/ks_wire.h"

enum {
    OFF_LENGTH = 8,
    OFF_EPOCH = 12,
    OFF_MAGIC = 16,
    OFF_CRC = 17,
    OFF_ATTRS = 21,
    OFF_MAX_TS = 35
};
enum { NO_TIMESTAMP = -1 };

bool ks_batch_parse(const uint8_t *p, struct ks_batch *ret)
{
    int32_t length = (int32_t)ks_get32(p + OFF_LENGTH);
    if (length < KS_BATCH_HEADER - KS_BATCH_PREFIX || length > KS_BATCH_MAX) {
        return false;
    }
    *ret = (struct ks_batch){
        .base = (int64_t)ks_get64(p),
        .size = (size_t)length + KS_BATCH_PREFIX,
        .epoch = (int32_t)ks_get32(p + OFF_EPOCH),
        .magic = (int8_t)p[OFF_MAGIC],
        .crc = ks_get32(p + OFF_CRC),
        .attrs = ks_get16(p + OFF_ATTRS),
        .last_delta = (int32_t)ks_get32(p + 23),
        .base_ts = (int64_t)ks_get64(p + 27),
        .max_ts = (int64_t)ks_get64(p + OFF_MAX_TS),
        .producer_id = (int64_t)ks_get64(p + 43),
        .producer_epoch = (int16_t)ks_get16(p + 51),
        .first_seq = (int32_t)ks_get32(p + 53),
        .count = (int32_t)ks_get32(p + 57),
    };
    return ret->last_delta >= 0 && ret->base <= INT64_MAX - INT32_MAX - 1;
}

bool ks_batch_crc_ok(const uint8_t *p, const struct ks_batch *b)
{
    return kc_crc32c(0, p + OFF_ATTRS, b->size - OFF_ATTRS) == b->crc;
}

void ks_batch_place(uint8_t *p, int64_t base, int32_t epoch)
{
    ks_put64(p, (uint64_t)base);
    ks_put32(p + OFF_EPOCH, (uint32_t)epoch);
}

uint32_t ks_batch_stamp(uint8_t *p, size_t size, bool append_time, int64_t max_ts)
{
    uint16_t attrs = ks_get16(p + OFF_ATTRS) & (uint16_t)~KS_ATTR_APPEND_TIME;
    ks_put16(p + OFF_ATTRS, append_time ? attrs | KS_ATTR_APPEND_TIME : attrs);
    ks_put64(p + OFF_MAX_TS, (uint64_t)max_ts);
    uint32_t crc = kc_crc32c(0, p + OFF_ATTRS, size - OFF_ATTRS);
    ks_put32(p + OFF_CRC, crc);
    return crc;
}

/* Zigzag varint of at most 10 bytes. */
static bool varint(const uint8_t **p, const uint8_t *end, int64_t *ret)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 70 && *p < end; shift += 7) {
        uint8_t b = *(*p)++;
        v |= (uint64_t)(b & 0x7f) << KC_MIN(shift, 63u);
        if (!(b & 0x80)) {
            *ret = (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
            return true;
        }
    }
    return false;
}

enum ks_marker ks_batch_marker(const uint8_t *p, const struct ks_batch *b)
{
    const uint8_t *at = p + KS_BATCH_HEADER, *end = p + b->size;
    int64_t len, ts_delta, offset_delta, key_len;
    if (!(b->attrs & KS_ATTR_CONTROL) || (b->attrs & KS_ATTR_CODEC) || !varint(&at, end, &len) ||
        len < 1 || len > end - at) {
        return KS_MARK_NONE;
    }
    end = at + len;
    at++; /* attributes of the record */
    if (!varint(&at, end, &ts_delta) || !varint(&at, end, &offset_delta) ||
        !varint(&at, end, &key_len) || key_len < 4 || key_len > end - at) {
        return KS_MARK_NONE;
    }
    uint16_t type = ks_get16(at + 2); /* behind the key's version */
    return type == KS_MARK_ABORT || type == KS_MARK_COMMIT ? (enum ks_marker)type : KS_MARK_NONE;
}

void ks_records_begin(struct ks_record_iter *it, const uint8_t *p, const struct ks_batch *b)
{
    *it = (struct ks_record_iter){
        .p = p + KS_BATCH_HEADER, .end = p + b->size, .base_ts = b->base_ts, .left = b->count};
}

int ks_records_next(struct ks_record_iter *it, struct ks_record *ret)
{
    if (it->left <= 0) {
        return it->p == it->end ? 0 : -1;
    }
    it->left--;
    int64_t len, ts_delta, offset_delta, key_len;
    if (!varint(&it->p, it->end, &len) || len < 1 || len > it->end - it->p) {
        return -1;
    }
    const uint8_t *next = it->p + len;
    const uint8_t *p = it->p + 1;
    uint8_t attrs = *it->p;
    if (!varint(&p, next, &ts_delta) || !varint(&p, next, &offset_delta) || offset_delta < 0 ||
        offset_delta > INT32_MAX) {
        return -1;
    }
    const uint8_t *rest = p;
    if (!varint(&p, next, &key_len)) {
        return -1;
    }
    *ret = (struct ks_record){
        .offset_delta = offset_delta,
        .timestamp = (int64_t)((uint64_t)it->base_ts + (uint64_t)ts_delta),
        .keyed = key_len >= 0,
        .rest = rest,
        .rest_len = (size_t)(next - rest),
        .attrs = attrs,
    };
    it->p = next;
    return 1;
}

bool ks_record_kv(const struct ks_record *r, struct ks_record_kv *ret)
{
    const uint8_t *p = r->rest, *end = r->rest + r->rest_len;
    int64_t key_len, value_len;
    if (!varint(&p, end, &key_len) || key_len < -1 || key_len > end - p) {
        return false;
    }
    const uint8_t *key = key_len < 0 ? NULL : p;
    p += KC_MAX(key_len, (int64_t)0);
    if (!varint(&p, end, &value_len) || value_len < -1 || value_len > end - p) {
        return false;
    }
    *ret = (struct ks_record_kv){
        .key = key, .key_len = key_len, .value = value_len < 0 ? NULL : p, .value_len = value_len};
    return true;
}

static struct ks_verdict bad(int16_t error, const char *message)
{
    return (struct ks_verdict){.error = error, .message = message};
}

/* Of a request that Kafka refuses before it comes to the log, or of bytes it cannot trust. */
static struct ks_verdict blind(int16_t error, const char *message)
{
    return (struct ks_verdict){.error = error, .message = message, .blind = true};
}

/* A codec bit without that codec's own magic number is refused here: consumers would fail on it.
 * (Kafka answers -1 there, after it has tried.) Snappy has no magic of its own. */
static bool codec_plausible(const uint8_t *p, const struct ks_batch *b)
{
    static const struct {
        uint8_t magic[4];
        size_t len;
    } codecs[] = {[1] = {{0x1f, 0x8b}, 2},
                  [2] = {{0}, 0},
                  [3] = {{0x04, 0x22, 0x4d, 0x18}, 4},
                  [4] = {{0x28, 0xb5, 0x2f, 0xfd}, 4}};
    size_t codec = b->attrs & KS_ATTR_CODEC;
    if (codec >= KC_ARRAY_LEN(codecs) || b->size < KS_BATCH_HEADER + codecs[codec].len) {
        return false;
    }
    for (size_t i = 0; i < codecs[codec].len; i++) {
        if (p[KS_BATCH_HEADER + i] != codecs[codec].magic[i]) {
            return false;
        }
    }
    return true;
}

static bool ts_outside(int64_t ts, const struct ks_rules *rules, int64_t now)
{
    if (ts == NO_TIMESTAMP) {
        return false;
    }
    return (rules->ts_before_max_ms >= 0 && ts < now - rules->ts_before_max_ms) ||
           (rules->ts_after_max_ms >= 0 && ts > now && ts - now > rules->ts_after_max_ms);
}

/* Walks what can be walked without a codec: record framing, offset deltas, timestamps. */
static struct ks_verdict judge_records(const uint8_t *p, const struct ks_batch *b,
                                       const struct ks_rules *rules, int64_t now)
{
    int64_t max_ts = b->max_ts;
    bool outside, keyless = false;
    /* A producer's own LogAppendTime: the one timestamp of all records, and not what is kept. */
    bool one_ts = b->attrs & KS_ATTR_APPEND_TIME;
    if (b->attrs & KS_ATTR_CODEC) {
        if (!codec_plausible(p, b)) {
            return bad(KS_K_INVALID_RECORD, "compressed records do not match their codec");
        }
        outside = ts_outside(b->base_ts, rules, now) || ts_outside(b->max_ts, rules, now);
    } else {
        struct ks_record_iter it;
        struct ks_record r;
        int rc;
        int64_t i = 0;
        max_ts = -1;
        outside = false;
        ks_records_begin(&it, p, b);
        while ((rc = ks_records_next(&it, &r)) > 0) {
            if (r.offset_delta != i++) {
                return bad(KS_K_INVALID_RECORD, "record offsets in a batch are not consecutive");
            }
            int64_t ts = one_ts ? b->max_ts : r.timestamp;
            max_ts = KC_MAX(max_ts, ts);
            bool no_key = rules->compact && rules->from_client && !r.keyed;
            keyless = keyless || no_key;
            outside = outside || (!no_key && ts_outside(ts, rules, now));
        }
        if (rc < 0) {
            return bad(KS_K_INVALID_RECORD, "malformed record in a batch");
        }
    }
    if (one_ts && (rules->append_time || b->max_ts == NO_TIMESTAMP)) {
        return bad(KS_K_INVALID_TIMESTAMP,
                   "a producer must not set the timestamp type to LogAppendTime");
    }
    if (outside && !rules->append_time) {
        return bad(KS_K_INVALID_TIMESTAMP, "timestamp of a record is out of range");
    }
    if (keyless) {
        return bad(KS_K_INVALID_RECORD, "records of a compacted topic need a key");
    }
    if (rules->append_time) {
        return (struct ks_verdict){.stamp = true, .max_ts = now};
    }
    /* A wrong max timestamp is not refused, but set right (measured). */
    return (struct ks_verdict){.stamp = one_ts || max_ts != b->max_ts, .max_ts = max_ts};
}

struct ks_verdict ks_batch_judge(const uint8_t *p, size_t len, const struct ks_rules *rules,
                                 int64_t now_wall_ms, struct ks_batch *ret_batch)
{
    struct ks_batch b;
    if (len < KS_BATCH_HEADER) {
        return blind(KS_K_INVALID_RECORD, "no whole record batch");
    }
    if (p[OFF_MAGIC] > 2) {
        return blind(KS_K_CORRUPT_MESSAGE, NULL);
    }
    if (p[OFF_MAGIC] != 2) {
        return blind(KS_K_INVALID_RECORD, "only record batches of magic 2 are accepted");
    }
    if (!ks_batch_parse(p, &b) || b.size > len) {
        return blind(KS_K_INVALID_RECORD, "record batch is truncated");
    }
    if (rules->from_client) {
        if (b.size != len) {
            return blind(KS_K_INVALID_RECORD, "exactly one record batch a partition is accepted");
        }
        if (b.base != 0) {
            return bad(KS_K_INVALID_RECORD, "the base offset of a produced batch must be 0");
        }
    }
    if (b.size > (size_t)KC_MAX(rules->max_message_bytes, 0)) {
        return blind(KS_K_MESSAGE_TOO_LARGE, NULL);
    }
    if (!ks_batch_crc_ok(p, &b)) {
        return blind(KS_K_CORRUPT_MESSAGE, NULL);
    }
    if (b.count <= 0 || b.count != b.last_delta + 1) {
        return bad(KS_K_INVALID_RECORD, "record count does not match the last offset delta");
    }
    if ((b.attrs & KS_ATTR_CONTROL) && rules->from_client) {
        return bad(KS_K_INVALID_RECORD, "clients must not write control batches");
    }
    if (b.producer_id >= 0 && !(b.attrs & KS_ATTR_CONTROL) && b.first_seq < 0) {
        return bad(KS_K_INVALID_RECORD, "a producer id needs a sequence number");
    }
    struct ks_verdict v = judge_records(p, &b, rules, now_wall_ms);
    if (!v.error && b.size > (uint64_t)KC_MAX(rules->segment_bytes, (int64_t)0)) {
        return blind(KS_K_RECORD_LIST_TOO_LARGE, NULL);
    }
    if (!v.error) {
        *ret_batch = b;
    }
    return v;
}
