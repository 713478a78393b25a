/* Appending: validation and offsets on the owner's loop; the bytes go to the commit thread. */
#include <errno.h>

#include "base/kc_mem.h"
#include "storage/ks_clean_batch.h"
#include "storage/ks_int.h"

/* log_start: told of what the log refuses, not of what never came to it, as Kafka does. */
static void answer(const struct ks_append_args *args, int16_t error, const char *message,
                   int64_t log_start)
{
    struct ks_append_result r = {
        .error = error,
        .base_offset = -1,
        .append_time_ms = -1,
        .log_start = log_start,
        .message = message,
    };
    args->done(args->ctx, &r);
}

static int16_t refused(const struct ks_log *log, const struct ks_append_args *args)
{
    switch (log->state) {
    case KS_OPEN:
        if (ks_volume_state(log->e) != KS_VOLUME_OK) {
            return KS_K_STORAGE_ERROR;
        }
        break;
    case KS_SUSPENDED:
        return KS_K_STORAGE_ERROR;
    case KS_OPENING:
    case KS_STOPPED:
        return KS_K_NOT_LEADER;
    }
    /* Back-pressure is the connections' business; this bound only keeps memory finite. */
    size_t queued = atomic_load_explicit(&log->e->queued_bytes, memory_order_relaxed);
    return queued + args->batches.len > KS_QUEUE_BYTES_MAX ? KS_K_STORAGE_ERROR : 0;
}

struct checked {
    int64_t records; /* offsets the append takes */
    const struct ks_prod_batch *original; /* the batch is a repeat of that one */
    int16_t refusal; /* of the producer's state */
    uint32_t batches;
    int64_t first_ts, max_ts; /* as placed: of the first batch, and of all */
    uint32_t crc; /* as placed: of the last one */
    struct ks_batch last; /* the last one judged, and the verdict on it */
    struct ks_verdict verdict;
};

/* A compacted topic takes no record without a key (Kafka's LogValidator): a compressed batch is opened
 * for that, within the bounds of ks_codec.h. For other topics none is. */
static struct ks_verdict check_keys(const uint8_t *p, const struct ks_batch *b,
                                    struct ks_verdict fine)
{
    int rc = ks_clean_keyed(p, b);
    if (rc == 1) {
        return fine;
    }
    return (struct ks_verdict){.error = rc == -ENOMEM ? KS_K_STORAGE_ERROR : KS_K_INVALID_RECORD,
                               .message =
                                   rc == 0 ? "records of a compacted topic need a key"
                                           : "compressed records of a compacted topic do not open"};
}

/* Judges every batch of the slice; nothing is changed yet. */
static struct checked check(struct ks_log *log, const struct ks_append_args *args)
{
    struct checked c = {.max_ts = -1};
    struct ks_rules rules = {
        .max_message_bytes = log->cfg.max_message_bytes,
        .segment_bytes = log->cfg.segment_bytes,
        .ts_before_max_ms = log->cfg.timestamp_before_max_ms,
        .ts_after_max_ms = log->cfg.timestamp_after_max_ms,
        .append_time = log->cfg.log_append_time,
        .compact = log->cfg.compact,
        .from_client = args->origin == KS_FROM_CLIENT,
    };
    const uint8_t *p = args->batches.ptr;
    size_t left = args->batches.len;
    do {
        c.verdict = ks_batch_judge(p, left, &rules, args->now_wall_ms, &c.last);
        if (!c.verdict.error && rules.compact && rules.from_client &&
            (c.last.attrs & KS_ATTR_CODEC)) {
            c.verdict = check_keys(p, &c.last, c.verdict);
        }
        if (!c.verdict.error) {
            c.refusal = ks_prods_check(&log->st.prods, &c.last, &c.original);
        }
        if (c.verdict.error || c.refusal || c.original) {
            return c;
        }
        c.batches++;
        c.records += c.last.last_delta + 1LL;
        p += c.last.size;
        left -= c.last.size;
    } while (left > 0);
    if (ks_prods_reserve(&log->st.prods, c.batches, args->now_wall_ms) ||
        (!rules.from_client && ks_aborts_reserve(&log->st.aborts, c.batches))) {
        c.verdict.error = KS_K_STORAGE_ERROR;
        c.verdict.blind = true;
    }
    return c;
}

/* Gives one batch its offset, epoch and timestamps, and notes its producer. */
static void place_one(struct ks_log *log, uint8_t *p, struct checked *c, struct ks_batch *b,
                      struct ks_verdict v, int64_t offset, int64_t now)
{
    if (v.stamp) {
        b->crc = ks_batch_stamp(p, b->size, log->cfg.log_append_time, v.max_ts);
        b->max_ts = v.max_ts;
    }
    ks_batch_place(p, offset, log->epoch);
    b->base = offset;
    int rc = ks_state_produced(&log->st, b, ks_batch_marker(p, b), now);
    KC_ASSERT(rc == 0); /* check() made room */
    c->first_ts = offset == log->end ? b->max_ts : c->first_ts;
    c->max_ts = KC_MAX(c->max_ts, b->max_ts);
    c->crc = b->crc;
}

static void place(struct ks_log *log, uint8_t *p, struct checked *c,
                  const struct ks_append_args *args)
{
    if (c->batches == 1) {
        place_one(log, p, c, &c->last, c->verdict, log->end, args->now_wall_ms);
        return;
    }
    struct ks_rules rules = {
        .max_message_bytes = INT32_MAX,
        .segment_bytes = INT64_MAX,
        .ts_before_max_ms = -1,
        .ts_after_max_ms = -1,
        .append_time = log->cfg.log_append_time,
    };
    int64_t offset = log->end;
    for (size_t left = args->batches.len; left > 0;) {
        struct ks_batch b = {0};
        struct ks_verdict v = ks_batch_judge(p, left, &rules, args->now_wall_ms, &b);
        KC_ASSERT(!v.error); /* the same bytes passed check() */
        place_one(log, p, c, &b, v, offset, args->now_wall_ms);
        offset += b.last_delta + 1LL;
        p += b.size;
        left -= b.size;
    }
}

static void enqueue(struct ks_log *log, struct ks_entry *entry, const struct ks_append_args *args)
{
    struct ks_append_result now = {
        .base_offset = entry->duplicate_base >= 0 ? entry->duplicate_base : entry->base,
        .append_time_ms = entry->append_time_ms,
        .log_start = log->st.start,
    };
    entry->done = args->acks == 0 ? NULL : args->done;
    entry->ctx = args->ctx;
    if (log->pend_tail) {
        log->pend_tail->onext = entry;
    } else {
        log->pend_head = entry;
    }
    log->pend_tail = entry;
    ks_commit_push_soon(log->e, entry);
    if (args->acks == 0) {
        args->done(args->ctx, &now);
    }
}

void ks_log_append(struct ks_log *log, const struct ks_append_args *args)
{
    int16_t error = refused(log, args);
    if (error) {
        answer(args, error, NULL, -1);
        return;
    }
    struct checked c = check(log, args);
    if (c.verdict.error || (c.refusal && args->acks == 0)) {
        answer(args, c.verdict.error ? c.verdict.error : c.refusal, c.verdict.message,
               c.verdict.blind ? -1 : log->st.start);
        return;
    }
    struct ks_entry *entry = ks_entry_append(log);
    if (!entry) {
        answer(args, KS_K_STORAGE_ERROR, NULL, -1);
        return;
    }
    entry->base = entry->end = log->end;
    entry->append_time_ms = log->cfg.log_append_time ? args->now_wall_ms : -1;
    if (c.refusal || c.original) {
        /* A repeat is acked after its original, so it waits in the same line; so does what is out of
         * sequence: a deposed owner does not know the newest sequences, and a producer that believes
         * its word starts a new epoch and sends again what the real owner may have. */
        entry->refusal = c.refusal;
        if (c.original) {
            entry->duplicate_base = c.original->last_offset - c.last.last_delta;
            entry->append_time_ms = c.original->max_ts;
        }
        enqueue(log, entry, args);
        return;
    }
    uint8_t *p;
    entry->end = log->end + c.records;
    entry->data = ks_cache_add(log, args->batches, entry->base, entry->end, &p);
    if (!entry->data.buf) {
        ks_entry_free(entry);
        answer(args, KS_K_STORAGE_ERROR, NULL, -1);
        return;
    }
    place(log, p, &c, args);
    entry->first_ts = c.first_ts;
    entry->max_ts = c.max_ts;
    entry->crc = c.crc;
    log->end = entry->end;
    ks_ckpt_appended(log, entry->data.len);
    enqueue(log, entry, args);
}
