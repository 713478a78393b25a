/* The lower half of a log: writes, syncs, rolls, seals. Runs on the commit thread or, when several
 * logs have work, on the sync pool; never two tasks of one log at once.
 *
 * Order of an ack (storage.md): pwrite, fdatasync, then (commit thread, once for all) the forced
 * check of the claim file, then ks_task_settle moves the acked length. An error on a file is final
 * for its epoch: nothing is written under it any more, and a recovery claims a new one. */
#include "storage/ks_clean.h"

#include <errno.h>
#include <inttypes.h>

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_rng.h"

enum { TURN_ENTRIES = 1024, SEAL_RACES = 16 };

static void log_error(const struct ks_log *log, const char *what, int rc)
{
    char path[KS_PATH_MAX];
    ks_path_part(path, &log->topic, log->partition, NULL);
    kc_log(KC_ERROR, "storage", "event=%s partition=%s epoch=%d error=%d text=\"%s\"", what, path,
           log->c_epoch, rc, kc_strerror(rc));
    atomic_fetch_add(&log->e->m_errors, 1);
}

/* No more writes under this epoch; appends get `error` until a recovery has opened a new one. */
static void fail(struct ks_log *log, int16_t error)
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

static int sync_file(struct ks_log *log)
{
    int rc = ks_fs_datasync(&log->e->fs, ks_file_fd(log->c_file));
    atomic_fetch_add(&log->e->m_fsyncs, 1);
    if (!rc) {
        log->c_unsynced = 0;
        atomic_store(&log->c_flush_at_ms, 0);
        log->c_synced = log->c_pos;
    }
    return rc;
}

static int sync_partition(struct ks_log *log)
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
    int rc = log->c_unsynced ? sync_file(log) : 0;
    rc = rc ? rc : ks_data_file_new(log, &next);
    rc = rc || ks_fs_ordered(&log->e->fs) ? rc : sync_partition(log);
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
    rc = rc ? rc : sync_partition(log);
    if (rc) {
        ks_file_unref(next); /* the record may stand there, or come to (ADR 12) */
        return rc;
    }
    ks_file_release(log->c_file); /* readers only, from now on */
    ks_file_unref(log->c_file);
    log->c_file = next;
    log->c_next_k++;
    log->c_pos = log->c_acked = log->c_synced = 0;
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
        if (write && bytes > 0 &&
            (bytes + e->data.len > log->e->unconfirmed ||
             must_roll(log, log->c_pos + bytes, first_ts, e))) {
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
    log->c_pos += r->len;
    r->n = 0;
    r->len = 0;
    return rc;
}

/* One more batch. What no sync has confirmed stays below the bound that claimants count on (ADR 10),
 * or is this batch alone. Neighbours in memory go as one piece. */
static int put(struct ks_log *log, struct run *r, uint8_t *p, const struct ks_batch *b)
{
    size_t len = b->size;
    uint64_t open = log->c_pos + r->len - log->c_synced;
    int rc = 0;
    if (open > 0 && open + len > log->e->unconfirmed) {
        rc = write_out(log, r);
        rc = rc ? rc : sync_file(log);
    }
    if (r->n > 0 && (uint8_t *)r->iov[r->n - 1].iov_base + r->iov[r->n - 1].iov_len == p) {
        r->iov[r->n - 1].iov_len += len;
    } else {
        r->iov[r->n++] = (struct iovec){.iov_base = p, .iov_len = len};
    }
    r->len += len;
    log->c_unsynced += b->last_delta + 1LL;
    return rc;
}

/* After a write: Kafka's flush.messages and flush.ms. */
static int maybe_sync(struct ks_log *log)
{
    int64_t wait_ms = atomic_load(&log->c_flush_ms);
    int64_t now = kc_mono_ms();
    int64_t at = atomic_load(&log->c_flush_at_ms);
    if (!at && wait_ms > 0 && wait_ms < INT64_MAX - now) {
        at = now + wait_ms;
        atomic_store(&log->c_flush_at_ms, at); /* the watch thread sees to it if nobody else does */
    }
    return log->c_unsynced >= atomic_load(&log->c_flush_messages) || (at && at <= now)
               ? sync_file(log)
               : 0;
}

/* Writes the taken appends at c_pos. */
static int write_run(struct ks_task *t)
{
    struct ks_log *log = t->log;
    struct run r = {.n = 0};
    struct ks_batch b = {0};
    int rc = 0;
    bool any = false;
    for (struct ks_entry *e = t->taken; e && !rc; e = e->next) {
        if (e->data.len == 0) {
            continue;
        }
        uint8_t *p = (uint8_t *)(uintptr_t)e->data.ptr;
        e->pos = log->c_pos + r.len;
        e->file = ks_file_ref(log->c_file);
        for (size_t at = 0; at < e->data.len && ks_batch_parse(p + at, &b) && !rc; at += b.size) {
            rc = put(log, &r, p + at, &b);
        }
        log->c_new_end = e->end;
        log->c_new_crc = b.crc;
        any = true;
    }
    rc = rc ? rc : write_out(log, &r);
    return !rc && any && log->c_unsynced ? maybe_sync(log) : rc;
}

static void run_appends(struct ks_task *t)
{
    struct ks_log *log = t->log;
    int rc = 0;
    if (!log->c_failed && log->c_head->epoch == log->c_epoch) {
        if (must_roll(log, log->c_pos, log->c_first_ts, log->c_head)) {
            rc = roll(log);
        }
        take_run(t, true);
        rc = rc ? rc : write_run(t);
        if (rc) {
            log_error(log, "append_failed", rc);
            fail(log, rc == KC_E_DEPOSED ? KS_K_NOT_LEADER : KS_K_STORAGE_ERROR);
        }
        t->issued = !log->c_failed;
    } else {
        take_run(t, false);
    }
    for (struct ks_entry *e = t->taken; e; e = e->next) {
        e->synced = !log->c_unsynced;
        e->error = log->c_failed              ? log->c_error
                   : e->epoch != log->c_epoch ? KS_K_STORAGE_ERROR
                                              : KS_K_NONE;
    }
}

static struct ks_rec acked_seal(const struct ks_log *log)
{
    return (struct ks_rec){
        .type = KS_SEAL,
        .k = log->c_next_k,
        .epoch = log->c_epoch,
        .seal = {.end = log->c_end,
                 .file = log->c_file->id,
                 .len = log->c_acked,
                 .crc = log->c_crc},
    };
}

/* A newer claim stands in the chain and we are alive, with no ack to come: our epoch may be sealed by
 * nobody else, who would have to fence us first. At the acked length, wherever the chain ends; the
 * first seal wins. What goes wrong here is the claimant's to do. */
static void seal_deposed(struct ks_log *log)
{
    struct ks_fs *fs = &log->e->fs;
    struct ks_rec r = acked_seal(log);
    struct ks_chain c;
    int rc =
        log->c_synced < log->c_acked || atomic_load(&log->inc->fenced) ? KC_E_FENCED : KC_E_EXISTS;
    ks_chain_init(&c);
    for (int race = 0; rc == KC_E_EXISTS && race < SEAL_RACES; race++) {
        rc = ks_chain_load(fs, &log->topic, log->partition, r.k + 1, &c, NULL);
        const struct ks_epoch *e = rc ? NULL : ks_chain_epoch(&c, log->c_epoch);
        if (!e || e->sealed) {
            break;
        }
        r.k = c.next_k;
        rc = ks_chain_append(fs, &log->topic, log->partition, &r, NULL, NULL);
    }
    ks_chain_fini(&c);
    if (!rc && !sync_partition(log)) {
        kc_log(KC_INFO, "storage", "event=deposed_owner_sealed epoch=%d end=%lld", log->c_epoch,
               (long long)log->c_end);
    }
}

/* Our own seal: the orderly end of an epoch. */
static int seal(struct ks_log *log, struct ks_entry *entry)
{
    entry->epoch = log->c_epoch; /* a recovery may have come between */
    entry->end = log->c_end;
    if (log->c_failed && log->c_error == KS_K_NOT_LEADER) {
        seal_deposed(log);
        return KC_E_DEPOSED;
    }
    if (atomic_load(&log->inc->fenced)) {
        return KC_E_FENCED;
    }
    entry->record = kc_try_alloc(KS_REC_MAX);
    int rc = entry->record ? 0 : -ENOMEM;
    if (!rc && log->c_unsynced && !log->c_failed) {
        rc = sync_file(log); /* after an error on the file a second sync would lie */
    }
    if (!rc && log->c_synced < log->c_acked) {
        rc = -EIO; /* acked without a sync (flush.messages): the next claim copies them first */
    }
    struct ks_rec r = acked_seal(log);
    rc = rc ? rc
            : ks_chain_append(&log->e->fs, &log->topic, log->partition, &r, entry->record,
                              &entry->record_len);
    rc = rc ? rc : sync_partition(log);
    if (rc) {
        log_error(log, "seal_failed", rc);
    }
    if (rc == KC_E_EXISTS) {
        seal_deposed(log);
        return KC_E_DEPOSED;
    }
    return rc;
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
    rc = log->c_unsynced ? sync_file(log) : 0;
    rc = rc ? rc : ks_chain_append(&log->e->fs, &log->topic, log->partition, &r, NULL, NULL);
    rc = rc ? rc : sync_partition(log);
    if (rc) {
        return rc == KC_E_EXISTS ? KC_E_DEPOSED : rc;
    }
    log->c_next_k++;
    return 0;
}

/* Acked records that are not synced yet: only where flush.messages is relaxed. */
static void flush(struct ks_log *log)
{
    int rc = !log->c_failed && !log->c_recovering && log->c_unsynced ? sync_file(log) : 0;
    if (rc) {
        log_error(log, "flush_failed", rc);
        fail(log, KS_K_STORAGE_ERROR);
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
    rc = rc ? rc : sync_partition(log);
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
        log_error(log, entry->kind == KS_E_TRIM ? "trim_failed" : "compact_failed", entry->rc);
        fail(log, entry->rc == KC_E_DEPOSED ? KS_K_NOT_LEADER : KS_K_STORAGE_ERROR);
    }
}

static void recovered(struct ks_log *log, struct ks_entry *entry)
{
    log->c_recovering = false;
    if (entry->rc == 0) {
        ks_log_install_lower(log, entry->takeover);
    } else if (entry->rc == KC_E_DEPOSED || entry->rc == KC_E_FENCED || entry->rc == KC_E_CORRUPT ||
               entry->rc == KC_E_NOT_FOUND || entry->rc == KC_E_BLOCKED || entry->rc == KC_E_GONE) {
        fail(log, KS_K_NOT_LEADER);
    }
}

void ks_task_seal(struct ks_log *log, struct ks_entry *entry)
{
    entry->rc = seal(log, entry);
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
        head->synced = !log->c_unsynced;
        break;
    case KS_E_RECOVERED:
        recovered(log, head);
        break;
    case KS_E_SEAL: /* not in a turn: ks_task_seal */
    case KS_E_SEALED:
    case KS_E_CLOSE:
    case KS_E_RETRY:
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
        return;
    }
    fail(log, KS_K_NOT_LEADER);
    for (struct ks_entry *e = t->taken; e; e = e->next) {
        e->error = KS_K_NOT_LEADER;
    }
}
