/* Runs of appends: what a turn takes of a log's queue, and writes. */
#include "storage/ks_int.h"

#include "base/kc_clock.h"

enum {
    TURN_ENTRIES = 1024,
    MUCH_BYTES = 64 * 1024 /* a write of so much may have to wait for a server */
};

/* Whether the entry belongs into another file than one that is pos bytes long and began with first_ts:
 * as Kafka's LogSegment.shouldRoll. Time is that of the records, where they have one. */
static bool must_roll(const struct ks_log *log, uint64_t pos, int64_t first_ts,
                      const struct ks_entry *entry)
{
    uint64_t limit = (uint64_t)KC_MAX(atomic_load(&log->c_segment_bytes), (int64_t)1);
    if (pos == 0 || entry->data.len == 0) {
        return false;
    }
    int64_t jitter = (int64_t)((double)atomic_load(&log->c_jitter_ms) * log->c_jitter / 0x1p32);
    int64_t age = first_ts >= 0 ? entry->max_ts - first_ts : kc_wall_ms() - log->c_made_ms;
    return pos + entry->data.len > limit || age > atomic_load(&log->c_segment_ms) - jitter;
}

/* Bytes of a run that goes into the journal, and into no sync of its file. */
static uint64_t frame_max(const struct ks_log *log)
{
    return KC_MIN((uint64_t)KS_FRAME_MAX, log->e->unconfirmed);
}

/* Bytes of the file that no sync has confirmed, and that no journal has. */
static uint64_t ahead(const struct ks_log *log)
{
    return log->c_pos - log->c_durable;
}

/* Bytes of the next run. Beside a sync it stays below the bound that claimants count on (ADR 10), as nothing
 * else may sync the file now; where none is under way and none is to come, it leaves room for the next one,
 * which runs beside the sync that this one makes due. */
static uint64_t run_max(const struct ks_task *t, int64_t flush_messages)
{
    const struct ks_log *log = t->log;
    uint64_t bound = log->e->unconfirmed;
    if (t->beside) {
        return bound - ahead(log);
    }
    return log->c_syncing ? frame_max(log) : flush_messages > 1 ? bound / 2 : bound;
}

/* Takes the run of appends that this turn writes, into one file. They are of one epoch: what was
 * queued before a recovery is refused, what came after it is not. */
static void take_run(struct ks_task *t, bool write, int64_t flush_messages)
{
    struct ks_log *log = t->log;
    size_t bytes = 0;
    int64_t first_ts = log->c_first_ts;
    int64_t records = log->c_unsynced;
    uint64_t most = write ? run_max(t, flush_messages) : UINT64_MAX;
    int32_t epoch = log->c_head ? log->c_head->epoch : -1;
    for (int n = 0; log->c_head && log->c_head->kind == KS_E_APPEND &&
                    log->c_head->epoch == epoch && n < TURN_ENTRIES;
         n++) {
        const struct ks_entry *e = log->c_head;
        records += e->end - e->base;
        bool first =
            log->c_syncing ? n == 0 : bytes == 0; /* a repeat has no bytes: it fits always */
        if (write && !first &&
            (bytes + e->data.len > most || (t->beside && records >= flush_messages) ||
             must_roll(log, log->c_pos + bytes, first_ts, e))) {
            break;
        }
        if (e->data.len > 0 && log->c_pos + bytes == 0) {
            first_ts = e->first_ts;
        }
        bytes += e->data.len;
        ks_task_take(t);
    }
    log->c_first_ts = write ? first_ts : log->c_first_ts;
}

/* What goes out with the next write. */
struct run {
    struct iovec iov[TURN_ENTRIES];
    int n;
    size_t len;
};

static int write_out(struct ks_log *log, struct run *r)
{
    int rc =
        r->n ? ks_fs_pwritev(&log->e->fs, ks_file_fd(log->c_file), r->iov, r->n, log->c_pos) : 0;
    log->c_lies = log->c_lies || rc;
    log->c_pos += r->len;
    r->n = 0;
    r->len = 0;
    return rc;
}

/* A piece more, of whole batches. What no sync has confirmed stays below the bound that claimants count
 * on (ADR 10), or is one batch alone. Neighbours in memory go as one piece. */
static int put(struct ks_log *log, struct run *r, uint8_t *p, size_t len, int64_t records)
{
    uint64_t open = ahead(log) + r->len;
    int rc = 0;
    if (open > 0 && open + len > log->e->unconfirmed) {
        rc = write_out(log, r);
        rc = rc ? rc : ks_task_sync_file(log);
    }
    if (r->n > 0 && (uint8_t *)r->iov[r->n - 1].iov_base + r->iov[r->n - 1].iov_len == p) {
        r->iov[r->n - 1].iov_len += len;
    } else {
        r->iov[r->n++] = (struct iovec){.iov_base = p, .iov_len = len};
    }
    r->len += len;
    log->c_unsynced += records;
    return rc;
}

/* An entry goes as one piece where that can be: nobody looks at its batches again. */
static int put_entry(struct ks_log *log, struct run *r, const struct ks_entry *e)
{
    uint8_t *p = (uint8_t *)(uintptr_t)e->data.ptr;
    if (e->data.len <= log->e->unconfirmed) {
        return put(log, r, p, e->data.len, e->end - e->base);
    }
    struct ks_batch b;
    int rc = 0;
    for (size_t at = 0; at < e->data.len && !rc && ks_batch_parse(p + at, &b); at += b.size) {
        rc = put(log, r, p + at, b.size, b.last_delta + 1LL);
    }
    return rc;
}

/* After a write: Kafka's flush.messages and flush.ms. Left to the end of the turn if that syncs for
 * many (ADR 13). */
static int maybe_sync(struct ks_task *t, int64_t flush_messages)
{
    struct ks_log *log = t->log;
    int64_t wait_ms = atomic_load(&log->c_flush_ms);
    int64_t now = kc_mono_ms();
    int64_t at = atomic_load(&log->c_flush_at_ms);
    if (!at && wait_ms > 0 && wait_ms < INT64_MAX - now) {
        at = now + wait_ms;
        atomic_store(&log->c_flush_at_ms, at); /* the watch thread sees to it if nobody else does */
    }
    if (t->beside || (log->c_unsynced < flush_messages && !(at && at <= now))) {
        return 0;
    }
    t->unsynced = t->later;
    return t->later ? 0 : ks_task_sync_file(log);
}

/* Writes the taken appends at c_pos. */
static int write_run(struct ks_task *t, int64_t flush_messages)
{
    struct ks_log *log = t->log;
    struct run r; /* large: not to be cleared for each run */
    uint64_t from = log->c_pos;
    int rc = 0;
    bool any = false;
    r.n = 0;
    r.len = 0;
    for (struct ks_entry *e = t->taken; e && !rc; e = e->next) {
        if (e->data.len == 0) {
            continue;
        }
        e->pos = log->c_pos + r.len;
        e->file = ks_file_ref(log->c_file);
        rc = put_entry(log, &r, e);
        log->c_new_end = e->end;
        log->c_new_crc = e->crc;
        any = true;
    }
    rc = rc ? rc : write_out(log, &r);
    t->written = log->c_pos - from;
    return !rc && any && log->c_unsynced ? maybe_sync(t, flush_messages) : rc;
}

static void set_errors(struct ks_task *t)
{
    const struct ks_log *log = t->log;
    for (struct ks_entry *e = t->taken; e; e = e->next) {
        e->error = log->c_failed              ? log->c_error
                   : e->epoch != log->c_epoch ? KS_K_STORAGE_ERROR
                                              : KS_K_NONE;
    }
}

/* After a write or a sync of the run went wrong: none of it is acked. */
static void append_failed(struct ks_task *t, int rc)
{
    ks_task_log_error(t->log, "append_failed", rc);
    ks_task_fail(t->log, rc == KC_E_DEPOSED ? KS_K_NOT_LEADER : KS_K_STORAGE_ERROR);
    t->issued = t->unsynced = false;
    set_errors(t);
}

void ks_run_appends(struct ks_task *t)
{
    struct ks_log *log = t->log;
    int rc = 0;
    if (log->c_failed || log->c_head->epoch != log->c_epoch) {
        take_run(t, false, 1);
        set_errors(t);
        return;
    }
    /* While a sync behind is under way the turn takes only what fits (ks_task_fits, ks_task_beside), so
     * that what the clock or a new configuration say in between counts from the next one on. */
    int64_t flush_messages = atomic_load(&log->c_flush_messages);
    if (log->c_syncing) {
        flush_messages = t->beside ? KC_MAX(flush_messages, (int64_t)2) : 1;
    }
    bool strict = log->c_unsynced == 0 && flush_messages <= 1;
    if (!log->c_syncing && must_roll(log, log->c_pos, log->c_first_ts, log->c_head)) {
        rc = ks_task_roll(log);
    }
    take_run(t, true, flush_messages);
    rc = rc ? rc : write_run(t, flush_messages);
    if (rc) {
        append_failed(t, rc);
        return;
    }
    t->issued = true;
    t->fits = strict && t->written <= KS_FRAME_MAX;
    set_errors(t);
}

bool ks_task_fits(const struct ks_log *log)
{
    const struct ks_entry *head = log->c_head;
    return head->data.len <= frame_max(log) && log->c_unsynced == 0 &&
           atomic_load(&log->c_flush_messages) <= 1 &&
           !must_roll(log, log->c_pos, log->c_first_ts, head);
}

/* At least so many bytes wait to be written. */
static bool much(const struct ks_log *log)
{
    size_t bytes = 0;
    for (const struct ks_entry *e = log->c_head; e && bytes < MUCH_BYTES; e = e->next) {
        bytes += e->data.len;
    }
    return bytes >= MUCH_BYTES;
}

bool ks_task_may_wait(const struct ks_task *t, bool far)
{
    const struct ks_log *log = t->log;
    const struct ks_entry *head = log->c_head;
    switch (head->kind) {
    case KS_E_APPEND:
        break;
    case KS_E_RECOVERED:
    case KS_E_RETRY:
    case KS_E_SEALED:
        return false;
    default:
        return true;
    }
    if (log->c_failed || head->epoch != log->c_epoch) {
        return false; /* they are refused */
    }
    if (must_roll(log, log->c_pos, log->c_first_ts, head) || (far && much(log))) {
        return true;
    }
    bool strict = log->c_unsynced == 0 && atomic_load(&log->c_flush_messages) <= 1;
    bool full = ahead(log) + head->data.len > log->e->unconfirmed;
    return !t->later && (strict || full) && ks_task_sync_waits(log->e);
}

bool ks_task_beside(const struct ks_log *log)
{
    const struct ks_entry *head = log->c_head;
    int64_t flush_messages = atomic_load(&log->c_flush_messages);
    return flush_messages > 1 && ahead(log) + head->data.len <= log->e->unconfirmed &&
           log->c_unsynced + (head->end - head->base) < flush_messages &&
           !must_roll(log, log->c_pos, log->c_first_ts, head);
}

bool ks_task_far_ahead(const struct ks_log *log)
{
    return ahead(log) >= KC_MAX(log->e->unconfirmed / 2, (uint64_t)1);
}

void ks_task_sync(struct ks_task *t)
{
    int rc = ks_task_sync_file(t->log);
    t->unsynced = false;
    if (rc) {
        append_failed(t, rc);
    }
}

void ks_task_refuse(struct ks_task *t)
{
    ks_task_fail(t->log, KS_K_STORAGE_ERROR);
    t->issued = t->unsynced = false;
    set_errors(t);
}
