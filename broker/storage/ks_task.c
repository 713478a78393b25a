/* The lower half of a log: writes, syncs, rolls, seals. Runs on the commit thread or, when several
 * logs have work, on the sync pool; never two tasks of one log at once.
 *
 * Order of an ack (storage.md): pwrite, fdatasync of the file or of the journal (ADR 13), then (commit
 * thread, once for all) the forced check of the claim file, then ks_task_settle moves the acked length.
 * An error on a file is final for its epoch: nothing is written under it any more, and a recovery
 * claims a new one. */
#include "storage/ks_clean.h"

#include <errno.h>
#include <inttypes.h>

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_rng.h"

enum {
    TURN_ENTRIES = 1024,
    SLOW_SYNC_US = 50, /* about what it takes to wake a thread */
    SYNC_MEMORY = 8,
    MUCH_BYTES = 64 * 1024 /* a write of so much may have to wait for a server */
};

void ks_task_log_error(const struct ks_log *log, const char *what, int rc)
{
    char path[KS_PATH_MAX];
    ks_path_part(path, &log->topic, log->partition, NULL);
    kc_log(KC_ERROR, "storage", "event=%s partition=%s epoch=%d error=%d text=\"%s\"", what, path,
           log->c_epoch, rc, kc_strerror(rc));
    atomic_fetch_add(&log->e->m_errors, 1);
}

void ks_task_fail(struct ks_log *log, int16_t error)
{
    log->c_failed = true;
    log->c_error = error;
}

static void take(struct ks_task *t)
{
    struct ks_log *log = t->log;
    struct ks_entry *entry = log->c_head;
    log->c_head = entry->next;
    if (!log->c_head) {
        log->c_tail = NULL;
    }
    entry->next = NULL;
    if (t->taken_tail) {
        t->taken_tail->next = entry;
    } else {
        t->taken = entry;
    }
    t->taken_tail = entry;
}

int ks_data_file_create(struct ks_log *log, struct ks_file_id *ret)
{
    for (int tries = 0; tries < 16; tries++) {
        struct ks_file_id id = {.inc8 = log->inc->inc8,
                                .seq = atomic_fetch_add(&log->inc->next_seq, 1)};
        char path[KS_PATH_MAX];
        ks_path_file(path, &log->topic, log->partition, id);
        int fd;
        do {
            fd = ks_fs_open(&log->e->fs, path, KS_CREATE);
        } while (ks_fs_make_room(&log->e->fs, fd));
        if (fd != -EEXIST) { /* else: an older incarnation with the same first digits */
            *ret = id;
            return fd;
        }
    }
    return -EEXIST;
}

int ks_data_file_new(struct ks_log *log, struct ks_file **ret)
{
    struct ks_file_id id;
    int fd = ks_data_file_create(log, &id);
    if (fd < 0) {
        return fd;
    }
    struct ks_file *f = ks_file_new(&log->e->fs, &log->e->fds, &log->topic, log->partition, id, fd);
    if (!f) {
        char path[KS_PATH_MAX];
        ks_path_file(path, &log->topic, log->partition, id);
        ks_fs_close(&log->e->fs, fd);
        ks_fs_unlink(&log->e->fs, path); /* ours, and nothing names it yet */
        return -ENOMEM;
    }
    *ret = f;
    return 0;
}

/* Up at once, down slowly: a volume that is slow now and then counts as slow. */
static void note_sync(struct ks_engine *e, int64_t us)
{
    int64_t known = atomic_load_explicit(&e->sync_us, memory_order_relaxed);
    us = us < known ? known - (known - us + SYNC_MEMORY - 1) / SYNC_MEMORY : us;
    atomic_store_explicit(&e->sync_us, us, memory_order_relaxed);
}

bool ks_task_sync_waits(const struct ks_engine *e)
{
    return atomic_load_explicit(&e->sync_us, memory_order_relaxed) >= SLOW_SYNC_US;
}

int ks_task_sync_file(struct ks_log *log)
{
    KC_ASSERT(!log->c_syncing); /* an error is told once, and it would not be told here (J7) */
    int64_t before_us = kc_mono_us();
    int rc = ks_fs_datasync(&log->e->fs, ks_file_fd(log->c_file));
    note_sync(log->e, kc_mono_us() - before_us);
    atomic_fetch_add(&log->e->m_fsyncs, 1);
    log->c_lies = log->c_lies || rc;
    if (!rc) {
        log->c_unsynced = 0;
        atomic_store(&log->c_flush_at_ms, 0);
        log->c_synced = log->c_durable = log->c_pos;
    }
    return rc;
}

int ks_task_sync_dir(struct ks_log *log)
{
    char dir[KS_PATH_MAX];
    ks_path_part(dir, &log->topic, log->partition, NULL);
    return ks_fs_syncdir(&log->e->fs, dir);
}

/* A file of ours that no record names, nor will. */
static void give_up(struct ks_log *log, struct ks_file *f)
{
    if (f) {
        char path[KS_PATH_MAX];
        ks_path_file(path, &log->topic, log->partition, f->id);
        ks_fs_unlink(&log->e->fs, path);
        ks_file_unref(f);
    }
}

void ks_log_file_begins(struct ks_log *log)
{
    log->c_first_ts = -1;
    log->c_made_ms = kc_wall_ms();
    kc_random_bytes(&log->c_jitter, sizeof(log->c_jitter));
}

/* The next file. Everything in the current one is acked whole here, for a turn starts only after
 * the one before was settled; and nothing is acked in the next one before its ROLL stands (M10). */
static int roll(struct ks_log *log)
{
    struct ks_file *next = NULL;
    int rc = log->c_synced < log->c_pos ? ks_task_sync_file(log) : 0;
    rc = rc ? rc : ks_data_file_new(log, &next);
    rc = rc || ks_fs_ordered(&log->e->fs) ? rc : ks_task_sync_dir(log);
    if (rc) {
        give_up(log, next);
        return rc;
    }
    struct ks_rec r = {
        .type = KS_ROLL,
        .k = log->c_next_k,
        .epoch = log->c_epoch,
        .roll = {.file = next->id,
                 .base = log->c_end,
                 .prev_len = log->c_acked,
                 .prev_crc = log->c_crc},
    };
    rc = ks_chain_append(&log->e->fs, &log->topic, log->partition, &r, NULL, NULL);
    if (rc == KC_E_EXISTS || (rc && !r.issued)) {
        give_up(log, next);
        return rc == KC_E_EXISTS ? KC_E_DEPOSED : rc;
    }
    rc = rc ? rc : ks_task_sync_dir(log);
    if (rc) {
        ks_file_unref(next); /* the record may stand there, or come to (ADR 12) */
        return rc;
    }
    ks_file_release(log->c_file); /* readers only, from now on */
    ks_file_unref(log->c_file);
    log->c_file = next;
    log->c_next_k++;
    log->c_pos = log->c_acked = log->c_synced = log->c_durable = 0;
    log->c_crc = log->c_new_crc = 0;
    ks_log_file_begins(log);
    return 0;
}

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

/* Takes the run of appends that this turn writes, into one file. They are of one epoch: what was
 * queued before a recovery is refused, what came after it is not. */
static void take_run(struct ks_task *t, bool write)
{
    struct ks_log *log = t->log;
    size_t bytes = 0;
    int64_t first_ts = log->c_first_ts;
    int32_t epoch = log->c_head ? log->c_head->epoch : -1;
    for (int n = 0; log->c_head && log->c_head->kind == KS_E_APPEND &&
                    log->c_head->epoch == epoch && n < TURN_ENTRIES;
         n++) {
        const struct ks_entry *e = log->c_head;
        uint64_t most = log->c_syncing ? frame_max(log) : log->e->unconfirmed;
        if (write && bytes > 0 &&
            (bytes + e->data.len > most || must_roll(log, log->c_pos + bytes, first_ts, e))) {
            break;
        }
        if (e->data.len > 0 && log->c_pos + bytes == 0) {
            first_ts = e->first_ts;
        }
        bytes += e->data.len;
        take(t);
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
    uint64_t open = log->c_pos + r->len - log->c_durable;
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
    if (log->c_unsynced < flush_messages && !(at && at <= now)) {
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

static void run_appends(struct ks_task *t)
{
    struct ks_log *log = t->log;
    int rc = 0;
    if (log->c_failed || log->c_head->epoch != log->c_epoch) {
        take_run(t, false);
        set_errors(t);
        return;
    }
    /* While a sync behind is under way the turn takes only what fits (ks_task_fits), so that what the
     * clock or a new configuration say in between counts from the next one on. */
    int64_t flush_messages = log->c_syncing ? 1 : atomic_load(&log->c_flush_messages);
    bool strict = log->c_unsynced == 0 && flush_messages <= 1;
    if (!log->c_syncing && must_roll(log, log->c_pos, log->c_first_ts, log->c_head)) {
        rc = roll(log);
    }
    take_run(t, true);
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
    bool full = log->c_pos - log->c_durable + head->data.len > log->e->unconfirmed;
    return !t->later && (strict || full) && ks_task_sync_waits(log->e);
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

/* The new log start and the files below it. Records that a crash of the machine could still take must
 * not be told deleted: the start would lie beyond the end of what is left. */
static int trim(struct ks_log *log, struct ks_trim *tr, struct ks_file **ret_next)
{
    int rc = 0;
    if (tr->roll && log->c_end > tr->start) { /* appended to meanwhile: the active file stays */
        tr->start = tr->active_base;
        tr->known = --tr->n == 0;
    } else if (tr->roll) {
        rc = roll(log);
        *ret_next = rc ? NULL : ks_file_ref(log->c_file);
    }
    if (rc || tr->known) {
        return rc;
    }
    struct ks_rec r = {
        .type = KS_TRIM,
        .k = log->c_next_k,
        .epoch = log->c_epoch,
        .drop = {.start = tr->start,
                 .n_old = tr->n,
                 .old = (struct ks_file_id *)(uintptr_t)tr->files},
    };
    rc = log->c_unsynced ? ks_task_sync_file(log) : 0;
    rc = rc ? rc : ks_chain_append(&log->e->fs, &log->topic, log->partition, &r, NULL, NULL);
    rc = rc ? rc : ks_task_sync_dir(log);
    if (rc) {
        return rc == KC_E_EXISTS ? KC_E_DEPOSED : rc;
    }
    log->c_next_k++;
    return 0;
}

/* Acked records that are not synced yet: only where flush.messages is relaxed. */
static void flush(struct ks_log *log)
{
    int rc = !log->c_failed && !log->c_recovering && log->c_unsynced ? ks_task_sync_file(log) : 0;
    if (rc) {
        ks_task_log_error(log, "flush_failed", rc);
        ks_task_fail(log, KS_K_STORAGE_ERROR);
    }
}

/* COMPACT: the files that take the place of others are whole and durable by now, directory included.
 * DEPOSED: the record does not stand and never will. Any other error: it may stand (ADR 12). */
static int compact(struct ks_log *log, const struct ks_swap *sw)
{
    struct ks_new_file fresh = {
        .file = sw->file, .base = sw->start, .len = sw->len, .crc = sw->crc};
    struct ks_rec r = {
        .type = KS_COMPACT,
        .k = log->c_next_k,
        .epoch = log->c_epoch,
        .drop = {.start = sw->start,
                 .end = sw->end,
                 .clean = sw->clean,
                 .n_old = sw->n_old,
                 .n_new = 1,
                 .old = (struct ks_file_id *)(uintptr_t)sw->old,
                 .new_files = &fresh},
    };
    int rc = ks_chain_append(&log->e->fs, &log->topic, log->partition, &r, NULL, NULL);
    rc = rc ? rc : ks_task_sync_dir(log);
    log->c_next_k += rc == 0;
    return rc == KC_E_EXISTS ? KC_E_DEPOSED : rc;
}

/* TRIM and COMPACT: only the owner, while its epoch is sound. */
static void supersede(struct ks_log *log, struct ks_entry *entry)
{
    if (log->c_failed || log->c_recovering || entry->epoch != log->c_epoch) {
        entry->rc = KC_E_CANCELLED; /* nothing was tried */
        return;
    }
    entry->rc = entry->kind == KS_E_TRIM ? trim(log, entry->trim, &entry->file)
                                         : compact(log, &entry->cleaning->swap);
    if (entry->rc) {
        ks_task_log_error(log, entry->kind == KS_E_TRIM ? "trim_failed" : "compact_failed",
                          entry->rc);
        ks_task_fail(log, entry->rc == KC_E_DEPOSED ? KS_K_NOT_LEADER : KS_K_STORAGE_ERROR);
    }
}

/* The log is let go without a seal. Its file is synced, so that no journal has to stay for it until the
 * epoch is sealed, by whom ever. */
static void let_go(struct ks_log *log)
{
    if (log->c_n_framed && !log->c_lies && !atomic_load(&log->inc->fenced)) {
        ks_task_sync_file(log); /* if not: its frames stay (ks_engine_forget) */
    }
}

static void recovered(struct ks_log *log, struct ks_entry *entry)
{
    log->c_recovering = false;
    if (entry->rc == 0) {
        ks_log_install_lower(log, entry->takeover);
    } else if (entry->rc == KC_E_DEPOSED || entry->rc == KC_E_FENCED || entry->rc == KC_E_CORRUPT ||
               entry->rc == KC_E_NOT_FOUND || entry->rc == KC_E_BLOCKED || entry->rc == KC_E_GONE) {
        ks_task_fail(log, KS_K_NOT_LEADER);
    }
}

void ks_task_run(struct ks_task *t)
{
    struct ks_log *log = t->log;
    struct ks_entry *head = log->c_head;
    if (head->kind == KS_E_APPEND) {
        run_appends(t);
        return;
    }
    take(t);
    switch (head->kind) {
    case KS_E_TRIM:
    case KS_E_COMPACT:
        supersede(log, head);
        t->issued = !head->rc;
        break;
    case KS_E_FLUSH:
        flush(log);
        head->synced = log->c_synced >= log->c_pos;
        break;
    case KS_E_RECOVERED:
        recovered(log, head);
        break;
    case KS_E_CLOSE:
        let_go(log);
        break;
    case KS_E_SEAL: /* not in a turn: ks_task_seal */
    case KS_E_SEALED:
    case KS_E_RETRY:
    case KS_E_SYNCED:
    case KS_E_APPEND:
        break;
    }
}

void ks_task_settle(struct ks_task *t, bool fence_ok)
{
    struct ks_log *log = t->log;
    if (!t->issued) {
        return;
    }
    if (fence_ok) {
        log->c_acked = log->c_pos;
        log->c_end = log->c_new_end;
        log->c_crc = log->c_new_crc;
        for (struct ks_entry *e = t->taken; e; e = e->next) {
            e->synced = log->c_synced >= log->c_pos; /* in the file: frames are not enough */
        }
        return;
    }
    ks_task_fail(log, KS_K_NOT_LEADER);
    for (struct ks_entry *e = t->taken; e; e = e->next) {
        e->error = KS_K_NOT_LEADER;
    }
}
