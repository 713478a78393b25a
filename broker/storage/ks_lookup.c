/* Offsets by timestamp (ListOffsets).
 *
 * Index and max timestamps find the batch, which is walked to the record, as Kafka does; a compressed
 * one is unpacked for it. Memory: the batch and UNPACK_MAX bytes a thread of the read pool. Of a batch
 * that holds more than that the answer is its first offset with its max timestamp: a consumer that
 * seeks there starts at most one batch early and misses nothing; for KS_TS_MAX its last offset. A
 * batch that does not open is CORRUPT_MESSAGE. With LogAppendTime every record has the batch's max
 * timestamp. */
#include <errno.h>

#include "base/kc_mem.h"
#include "storage/ks_codec.h"
#include "storage/ks_read.h"
#include "storage/ks_scan.h"

enum { UNPACK_MAX = 32 * 1024 * 1024 };

static bool stop_here(const struct ks_read_req *r, const struct ks_batch *b)
{
    int64_t want = r->ts == KS_TS_MAX ? r->max_ts : r->ts;
    return b->count > 0 && b->max_ts >= want && ks_batch_last(b) >= r->floor &&
           !(b->attrs & KS_ATTR_CONTROL);
}

struct probe {
    struct ks_read_req *r;
    struct ks_batch batch;
};

static int on_batch(void *arg, const struct ks_batch *b, uint64_t pos)
{
    struct probe *p = arg;
    (void)pos;
    p->batch = *b;
    return stop_here(p->r, b);
}

static void take(struct ks_read_req *r, int64_t offset, int64_t ts)
{
    r->found_offset = offset;
    r->found_ts = ts;
}

/* Walks records to the first one with the asked timestamp; for KS_TS_MAX to the first with the largest
 * there is, whatever the header says. 1 = found, 0 = none has it, KC_E_CORRUPT. */
static int in_records(struct ks_read_req *r, struct ks_record_iter *it, int64_t base)
{
    bool max = r->ts == KS_TS_MAX;
    struct ks_record rec;
    int more;
    while ((more = ks_records_next(it, &rec)) > 0) {
        int64_t offset = base + rec.offset_delta;
        if (offset < r->floor ||
            (max ? r->found_offset >= 0 && rec.timestamp <= r->found_ts : rec.timestamp < r->ts)) {
            continue;
        }
        take(r, offset, rec.timestamp);
        if (!max) {
            return 1;
        }
    }
    return more < 0 ? KC_E_CORRUPT : r->found_offset >= 0;
}

/* The batch as it was read. 1 = found, 0 = go on behind it, negative = error. */
static int search(struct ks_read_req *r, const uint8_t *p, const struct ks_batch *b)
{
    struct ks_bytes_buf plain = {0};
    struct ks_record_iter it;
    int rc = ks_batch_crc_ok(p, b) ? ks_records_open(p, b, UNPACK_MAX, &plain, &it) : KC_E_CORRUPT;
    if (rc == KC_E_TOO_LARGE) {
        bool max = r->ts == KS_TS_MAX;
        take(r, max ? ks_batch_last(b) : KC_MAX(b->base, r->floor), b->max_ts);
        rc = 1;
    } else if (rc == 0) {
        rc = in_records(r, &it, b->base);
    }
    ks_bytes_free(&plain);
    return rc;
}

/* 1 = found, 0 = go on behind this batch, negative = error. */
static int open_batch(struct ks_read_req *r, const struct ks_batch *b, uint64_t pos)
{
    if (b->attrs & KS_ATTR_APPEND_TIME) {
        take(r, KC_MAX(b->base, r->floor), b->max_ts);
        return 1;
    }
    uint8_t *p = kc_try_alloc(b->size);
    if (!p) {
        return -ENOMEM;
    }
    ssize_t n = ks_fs_pread(&r->log->e->fs, ks_file_fd(r->file), p, b->size, pos);
    int rc = n < 0 ? (int)n : n < (ssize_t)b->size ? KC_E_CORRUPT : search(r, p, b);
    kc_free(p);
    if (rc == KC_E_CORRUPT) {
        ks_read_corrupt(r, b->base);
    }
    return rc;
}

static struct ks_mark by_ts(const struct ks_seg *s, int64_t ts)
{
    return ts == KS_TS_MAX ? ks_seg_find(s, s->max_ts_base) : ks_seg_find_ts(s, ts);
}

static void run_lookup(struct ks_read_req *r)
{
    int fd = ks_read_pin(r);
    if (fd >= 0 && r->want_index && r->index.indexed) {
        r->from = by_ts(&r->index, r->ts);
        r->max_ts = r->index.max_ts;
    }
    struct probe p = {.r = r};
    struct ks_scan s = ks_read_scan(r);
    int rc = fd < 0 ? fd : 0;
    while (rc == 0 && (rc = ks_scan(&r->log->e->fs, &s, on_batch, &p)) == 1) {
        rc = open_batch(r, &p.batch, s.pos);
        r->found_epoch = p.batch.epoch;
        if (rc == 0) {
            s.pos += p.batch.size;
            s.next = ks_batch_last(&p.batch) + 1;
        }
    }
    if (fd >= 0) {
        ks_file_release(r->file);
    }
    r->error = rc == KC_E_CORRUPT ? KS_K_CORRUPT_MESSAGE : rc < 0 ? KS_K_STORAGE_ERROR : 0;
}

static void fail_lookup(struct ks_read_req *r, int16_t error)
{
    r->lookup_done(r->ctx, error, -1, -1, -1);
}

static void start(struct ks_log *log, int64_t ts, int64_t from_offset, ks_lookup_done done,
                  void *ctx);

/* Only the index was asked for: now the timestamps of that segment are known. */
static void finish_index(struct ks_read_req *r)
{
    if (r->index.indexed || r->index.base < r->log->st.start) {
        int64_t from = r->index.indexed ? r->asked_from : r->index.end;
        start(r->log, r->ts, from, r->lookup_done, r->ctx);
    } else {
        fail_lookup(r, KS_K_STORAGE_ERROR);
    }
}

static void run_index(struct ks_read_req *r)
{
    if (ks_read_pin(r) >= 0) {
        ks_file_release(r->file);
    }
}

static void finish_lookup(struct ks_read_req *r)
{
    if (r->error && r->missing && r->index.base < r->log->st.start) {
        r->error = 0; /* retention took the file: what is left may have it */
    } else if (r->error && ks_read_replaced(r)) {
        start(r->log, r->ts, r->from.offset, r->lookup_done, r->ctx);
        return;
    }
    if (r->error || r->found_offset >= 0) {
        r->lookup_done(r->ctx, r->error, r->error ? -1 : r->found_offset,
                       r->error ? -1 : r->found_ts, r->error ? -1 : r->found_epoch);
        return;
    }
    start(r->log, r->ts, r->seg_end, r->lookup_done, r->ctx); /* the next segment may have it */
}

/* The segment to search, from from_offset on, and where in it. */
static struct ks_seg *choose(const struct ks_state *st, int64_t ts, int64_t from_offset,
                             struct ks_mark *ret)
{
    struct ks_seg *best = NULL;
    for (uint32_t i = 0; i < st->n_segs; i++) {
        struct ks_seg *s = &st->segs[i];
        if (s->end > from_offset && !s->ts_known) {
            return s; /* only the chain was read of it: its index first */
        }
        if (s->end <= from_offset || s->end == s->base || (s->max_ts < 0 && ts != KS_TS_MAX)) {
            continue;
        }
        if (ts ==
            KS_TS_MAX) { /* -1 is one, too: the largest where no record has any, as in Kafka */
            best = !best || s->max_ts > best->max_ts ? s : best;
        } else if (s->max_ts >= ts) {
            best = s;
            break;
        }
    }
    if (best) {
        *ret = by_ts(best, ts);
    }
    return best;
}

static void start(struct ks_log *log, int64_t ts, int64_t from_offset, ks_lookup_done done,
                  void *ctx)
{
    struct ks_mark from = {0};
    struct ks_seg *seg = choose(&log->st, ts, from_offset, &from);
    struct ks_read_req *r = seg ? ks_read_new(log, seg, from) : NULL;
    if (!r) {
        done(ctx, seg ? KS_K_STORAGE_ERROR : 0, -1, -1, -1);
        return;
    }
    r->ts = ts;
    r->max_ts = seg->max_ts;
    r->floor = ts == KS_TS_MAX ? 0 : log->st.start; /* as Kafka: what a segment remembers */
    r->lookup_done = done;
    r->ctx = ctx;
    r->found_offset = r->found_ts = -1;
    r->asked_from = from_offset;
    r->want_index = r->want_index || !seg->ts_known;
    r->run = seg->ts_known ? run_lookup : run_index;
    r->finish = seg->ts_known ? finish_lookup : finish_index;
    r->fail = fail_lookup;
    ks_read_post(r);
}

void ks_log_lookup(struct ks_log *log, int64_t timestamp_ms, ks_lookup_done done, void *ctx)
{
    if (log->state == KS_STOPPED || log->closed) {
        done(ctx, KS_K_NOT_LEADER, -1, -1, -1);
        return;
    }
    start(log, timestamp_ms, log->st.start, done, ctx);
}
