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
    SLOW_SYNC_US = 50, /* about what it takes to wake a thread */
    SYNC_MEMORY = 8
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

void ks_task_take(struct ks_task *t)
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
int ks_task_roll(struct ks_log *log)
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

/* The new log start and the files below it. Records that a crash of the machine could still take must
 * not be told deleted: the start would lie beyond the end of what is left. */
static int trim(struct ks_log *log, struct ks_trim *tr, struct ks_file **ret_next)
{
    int rc = 0;
    if (tr->roll && log->c_end > tr->start) { /* appended to meanwhile: the active file stays */
        tr->start = tr->active_base;
        tr->known = --tr->n == 0;
    } else if (tr->roll) {
        rc = ks_task_roll(log);
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
        ks_run_appends(t);
        return;
    }
    ks_task_take(t);
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
