#include "storage/ks_journal.h"

#include <errno.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_crc32c.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "storage/ks_frames.h"
#include "storage/ks_int.h"

enum { BEHIND_THREADS = 4, BEHIND_BATCH = 64, IOVS = 1024, HEADERS = 256, AGAIN_MS = 1000 };

struct ks_jfile {
    struct ks_jfile *next;
    struct ks_engine *e;
    struct ks_inc *inc;
    uint32_t n; /* in its name */
    int fd;
    uint64_t len;
    int64_t first_ms; /* when the first frame came; 0 = none yet */
    bool failed; /* an error: the bytes from len on are unknown, no more frames */
    bool retired; /* no more frames, and the files it covers are being synced */
    bool lost; /* its incarnation is fenced: not ours to remove any more */
    _Atomic uint32_t pending; /* logs and orphans with frames here that no sync has confirmed */
    uint32_t n_logs, logs_room;
    struct ks_log **logs; /* referenced: those of them that are open */
};

struct ks_journal {
    struct ks_jfile *files, *current; /* all that are alive; the one that takes frames */
    struct ks_jfile *lost; /* of fenced incarnations: orphans may point to them */
    uint32_t n_files;
    _Atomic uint32_t stuck; /* could not be removed: they count as alive */
    uint32_t syncing; /* syncs behind under way */
    bool making;
    int64_t not_before_ms; /* after a failure to make one */
    int64_t chased_ms; /* when it was looked last for files that nobody syncs */
    _Atomic(struct ks_jfile *) made; /* by the pool; &failed_mark = it could not */
    struct rt_pool *behind;
};

static struct ks_jfile failed_mark;

/* ---- making and removing journals: on the pool ---- */

static void free_jfile(struct ks_jfile *j)
{
    for (uint32_t i = 0; i < j->n_logs; i++) {
        ks_log_unref(j->logs[i]);
    }
    ks_fs_close_later(&j->e->fs, j->fd);
    ks_inc_unref(j->inc);
    kc_free(j->logs);
    kc_free(j);
}

struct job {
    struct rt_work work;
    struct ks_jfile *j;
};

static int make(struct ks_jfile *j)
{
    char path[KS_PATH_MAX], dir[KS_PATH_MAX];
    ks_path_journal(path, j->e->broker_id, &j->inc->id, j->n);
    ks_path_inc_dir(dir, j->e->broker_id);
    j->fd = ks_fs_open(&j->e->fs, path, KS_CREATE);
    if (j->fd < 0) {
        return j->fd;
    }
    int rc = ks_fs_datasync(&j->e->fs, j->fd);
    rc = rc ? rc : ks_fs_syncdir(&j->e->fs, dir);
    if (rc) {
        ks_fs_close(&j->e->fs, j->fd);
        ks_fs_unlink(&j->e->fs, path); /* no frame was ever written to it */
    }
    return rc;
}

static void run_make(struct rt_work *w)
{
    struct job *job = KC_CONTAINER_OF(w, struct job, work);
    struct ks_jfile *j = job->j;
    struct ks_engine *e = j->e;
    int rc = make(j);
    kc_free(job);
    if (rc) {
        kc_log(KC_WARN, "storage", "event=journal_not_made error=%d text=\"%s\"", rc,
               kc_strerror(rc));
        ks_inc_unref(j->inc);
        kc_free(j);
        j = &failed_mark;
    }
    atomic_store(&e->journal->made, j);
    atomic_fetch_add(&e->m_journals, rc == 0);
    ks_commit_wake(e);
}

static void run_remove(struct rt_work *w)
{
    struct job *job = KC_CONTAINER_OF(w, struct job, work);
    char path[KS_PATH_MAX];
    struct ks_engine *e = job->j->e;
    ks_path_journal(path, e->broker_id, &job->j->inc->id, job->j->n);
    int rc = ks_fs_unlink(&e->fs, path); /* what stays behind only costs room */
    if (rc && rc != -ENOENT) {
        atomic_fetch_add(&e->journal->stuck, 1);
        kc_log(KC_WARN, "storage", "event=journal_not_removed file=%s error=%d text=\"%s\"", path,
               rc, kc_strerror(rc));
    }
    free_jfile(job->j);
    kc_free(job);
}

static void post(struct ks_journal *jn, struct ks_jfile *j, void (*fn)(struct rt_work *))
{
    struct job *job = kc_zalloc(sizeof(*job));
    job->work.fn = fn;
    job->j = j;
    rt_pool_post(jn->behind, &job->work);
}

/* False: none can be had now. */
static bool want_one(struct ks_engine *e, struct ks_inc *inc)
{
    struct ks_journal *jn = e->journal;
    if (jn->making) {
        return true;
    }
    if (jn->n_files + atomic_load(&jn->stuck) >= KS_JOURNALS || kc_mono_ms() < jn->not_before_ms ||
        atomic_load(&inc->fenced)) {
        return false;
    }
    struct ks_jfile *j = kc_zalloc(sizeof(*j));
    j->e = e;
    j->inc = ks_inc_ref(inc);
    j->n = atomic_fetch_add(&inc->next_journal, 1);
    j->fd = -1;
    jn->making = true;
    post(jn, j, run_make);
    return true;
}

/* Takes in what the pool has made. */
static void adopt(struct ks_journal *jn)
{
    struct ks_jfile *j = atomic_exchange(&jn->made, NULL);
    if (!j) {
        return;
    }
    jn->making = false;
    if (j == &failed_mark) {
        jn->not_before_ms = kc_mono_ms() + AGAIN_MS;
        return;
    }
    j->next = jn->files;
    jn->files = j;
    jn->n_files++;
}

/* ---- logs and their journals ---- */

void ks_journal_unpend(struct ks_jfile *j)
{
    atomic_fetch_sub(&j->pending, 1);
}

static void drop_log(struct ks_jfile *j, struct ks_log *log)
{
    for (uint32_t i = 0; i < j->n_logs; i++) {
        if (j->logs[i] == log) {
            j->logs[i] = j->logs[--j->n_logs];
            ks_log_unref(log);
            return;
        }
    }
}

static void forget(struct ks_log *log, uint32_t i)
{
    struct ks_jfile *j = log->c_framed[i].journal;
    log->c_framed[i] = log->c_framed[--log->c_n_framed];
    ks_journal_unpend(j);
    drop_log(j, log);
}

void ks_journal_confirm(struct ks_log *log)
{
    for (uint32_t i = log->c_n_framed; i-- > 0;) {
        const struct ks_framed_in *in = &log->c_framed[i];
        struct ks_file_id file = {.inc8 = in->inc8, .seq = in->seq};
        if (!ks_file_eq(file, log->c_file->id) || in->end <= log->c_synced) {
            forget(log, i);
        }
    }
}

void ks_journal_leave(struct ks_log *log, bool sealed)
{
    while (log->c_n_framed > 0) {
        struct ks_jfile *j = log->c_framed[log->c_n_framed - 1].journal;
        if (sealed) {
            forget(log, log->c_n_framed - 1);
        } else { /* its share of pending stays */
            log->c_n_framed--;
            drop_log(j, log);
        }
    }
}

/* Room for one more log in the journal, so that noting it cannot fail. */
static int reserve(struct ks_jfile *j, uint32_t more)
{
    if (j->n_logs + more <= j->logs_room) {
        return 0;
    }
    uint32_t room = KC_MAX(j->logs_room * 2, j->n_logs + more);
    void *p = kc_try_realloc(j->logs, (size_t)room * sizeof(struct ks_log *));
    if (!p) {
        return -ENOMEM;
    }
    j->logs = p;
    j->logs_room = room;
    return 0;
}

static void note(struct ks_jfile *j, struct ks_log *log)
{
    struct ks_framed_in *in = NULL;
    for (uint32_t i = 0; i < log->c_n_framed; i++) {
        in = log->c_framed[i].journal == j ? &log->c_framed[i] : in;
    }
    if (!in) {
        KC_ASSERT(log->c_n_framed < KS_JOURNALS);
        in = &log->c_framed[log->c_n_framed++];
        in->journal = j;
        atomic_fetch_add(&j->pending, 1);
        j->logs[j->n_logs++] = ks_log_ref(log);
    }
    in->end = log->c_pos;
    in->inc8 = log->c_file->id.inc8;
    in->seq = log->c_file->id.seq;
}

/* ---- frames ---- */

struct out {
    struct ks_jfile *j;
    struct iovec iov[IOVS];
    int n;
    uint8_t headers[HEADERS][KS_FRAME_HEADER];
    int n_headers;
    size_t len;
};

static int flush(struct out *o)
{
    int rc = o->n ? ks_fs_pwritev(&o->j->e->fs, o->j->fd, o->iov, o->n, o->j->len) : 0;
    o->j->len += o->len;
    o->n = o->n_headers = 0;
    o->len = 0;
    return rc;
}

static int add_iov(struct out *o, void *p, size_t len)
{
    int rc = o->n == IOVS ? flush(o) : 0;
    o->iov[o->n++] = (struct iovec){.iov_base = p, .iov_len = len};
    o->len += len;
    return rc;
}

static int add_frame(struct out *o, const struct ks_task *t)
{
    struct ks_log *log = t->log;
    struct ks_frame f = {.topic = log->topic,
                         .partition = log->partition,
                         .file = log->c_file->id,
                         .pos = log->c_pos - t->written,
                         .len = (uint32_t)t->written};
    int rc = o->n_headers == HEADERS || o->n == IOVS ? flush(o) : 0;
    uint8_t *header = o->headers[o->n_headers++];
    for (const struct ks_entry *e = t->taken; e; e = e->next) {
        f.crc = kc_crc32c(f.crc, e->data.ptr, e->data.len);
    }
    ks_frame_encode(&f, header);
    rc = rc ? rc : add_iov(o, header, KS_FRAME_HEADER);
    for (const struct ks_entry *e = t->taken; e && !rc; e = e->next) {
        if (e->data.len) {
            rc = add_iov(o, (void *)(uintptr_t)e->data.ptr, e->data.len);
        }
    }
    return rc;
}

/* A journal of inc but `not` that takes frames. */
static struct ks_jfile *other(const struct ks_journal *jn, const struct ks_jfile * not,
                              const struct ks_inc *inc)
{
    for (struct ks_jfile *j = jn->files; j; j = j->next) {
        if (j != not &&j->inc == inc && !j->retired && !j->failed) {
            return j;
        }
    }
    return NULL;
}

bool ks_journal_ready(struct ks_engine *e, struct ks_inc *inc, bool wanted)
{
    struct ks_journal *jn = e->journal;
    adopt(jn);
    if (jn->current && jn->current->inc != inc) {
        jn->current = NULL;
    }
    jn->current = jn->current ? jn->current : other(jn, NULL, inc);
    bool half = jn->current && jn->current->len > e->journal_bytes / 2;
    if (wanted && (!jn->current || (half && !other(jn, jn->current, inc)))) {
        want_one(e, inc);
    }
    return jn->current != NULL;
}

int ks_journal_write(struct ks_engine *e, struct ks_task *tasks, uint32_t n)
{
    struct ks_jfile *j = e->journal->current;
    struct out *o = kc_try_alloc(sizeof(*o));
    int rc = o ? reserve(j, n) : -ENOMEM;
    if (rc) {
        kc_free(o);
        return rc; /* nothing was written: the journal is sound, the turn is not durable */
    }
    o->j = j;
    o->n = o->n_headers = 0;
    o->len = 0;
    for (uint32_t i = 0; i < n && !rc; i++) {
        rc = tasks[i].frame ? add_frame(o, &tasks[i]) : 0;
    }
    rc = rc ? rc : flush(o);
    rc = rc ? rc : ks_fs_datasync(&e->fs, j->fd);
    atomic_fetch_add(&e->m_fsyncs, 1);
    kc_free(o);
    j->first_ms = j->first_ms ? j->first_ms : kc_mono_ms();
    if (rc) {
        kc_log(KC_ERROR, "storage",
               "event=journal_failed inc8=%08x journal=%u error=%d text=\"%s\"", j->inc->inc8, j->n,
               rc, kc_strerror(rc));
        atomic_fetch_add(&e->m_errors, 1);
        j->failed = true;
        e->journal->current = NULL;
        return rc;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (tasks[i].frame) {
            note(j, tasks[i].log);
            atomic_fetch_add_explicit(&e->m_frames, 1, memory_order_relaxed);
            tasks[i].unsynced = false;
            tasks[i].log->c_durable = tasks[i].log->c_pos;
            tasks[i].log->c_unsynced = 0;
            atomic_store(&tasks[i].log->c_flush_at_ms, 0);
        }
    }
    return 0;
}

/* ---- syncs behind ---- */

struct behind {
    struct rt_work work;
    struct ks_engine *e;
    uint32_t n;
    struct ks_entry *entries[BEHIND_BATCH];
};

static void run_behind(struct rt_work *w)
{
    struct behind *b = KC_CONTAINER_OF(w, struct behind, work);
    for (uint32_t i = 0; i < b->n; i++) {
        struct ks_entry *entry = b->entries[i];
        entry->rc = ks_file_sync_release(entry->file);
        atomic_fetch_add(&b->e->m_fsyncs, 1);
        ks_commit_push(b->e, entry);
    }
    kc_free(b);
}

/* The log's file has frames in a journal that waits for it, or is far ahead of what is durable (with a relaxed
 * flush.messages); a sync would prove something, and nothing is under way. */
static bool owes(const struct ks_log *log)
{
    bool owed = ks_task_far_ahead(log);
    for (uint32_t i = 0; i < log->c_n_framed; i++) {
        owed = owed || log->c_framed[i].journal->retired;
    }
    return owed && !log->c_lies && !log->c_syncing && !log->c_sealing && !log->c_failed &&
           !log->c_recovering;
}

static void send_behind(struct ks_journal *jn, struct behind *b)
{
    b->work.fn = run_behind;
    rt_pool_post(jn->behind, &b->work);
}

static struct behind *sync_behind(struct ks_engine *e, struct behind *b, struct ks_log *log)
{
    if (!b) {
        b = kc_zalloc(sizeof(*b));
        b->e = e;
    }
    struct ks_entry *entry = ks_entry_new(log, KS_E_SYNCED);
    entry->file = ks_file_ref(log->c_file);
    entry->pos = log->c_pos;
    entry->records = log->c_unsynced;
    entry->began_ms = kc_mono_ms();
    int fd = ks_file_acquire(log->c_file); /* pinned already: cannot fail */
    KC_ASSERT(fd >= 0);
    log->c_syncing = true;
    e->journal->syncing++;
    b->entries[b->n++] = entry;
    if (b->n == BEHIND_BATCH) {
        send_behind(e->journal, b);
        b = NULL;
    }
    return b;
}

void ks_journal_behind(struct ks_log *log)
{
    if (owes(log)) {
        send_behind(log->e->journal, sync_behind(log->e, NULL, log));
    }
}

/* The file is synced up to where the sync behind began; what was written beside it is not. */
static void confirmed(struct ks_log *log, const struct ks_entry *entry)
{
    int64_t at = atomic_load(&log->c_flush_at_ms);
    log->c_synced = KC_MAX(log->c_synced, entry->pos);
    log->c_durable = KC_MAX(log->c_durable, entry->pos);
    log->c_unsynced -= KC_MIN(log->c_unsynced, entry->records);
    if (log->c_unsynced == 0) {
        atomic_store(&log->c_flush_at_ms, 0);
    } else if (
        at) { /* none of the rest is older than the sync; the watch thread may just have asked */
        int64_t next = entry->began_ms + KC_MIN(atomic_load(&log->c_flush_ms), INT64_MAX / 2);
        atomic_compare_exchange_strong(&log->c_flush_at_ms, &at, KC_MAX(at, next));
    }
    ks_journal_confirm(log);
}

void ks_journal_synced(struct ks_engine *e, struct ks_entry *entry)
{
    struct ks_log *log = entry->log;
    bool same = log->c_file == entry->file; /* else: a recovery has come between */
    /* After an error on the file, told to whoever was there first, a sync of it answers 0 (J7). */
    entry->synced = same && !entry->rc && !log->c_lies;
    log->c_syncing = false;
    e->journal->syncing--;
    if (same && entry->rc) { /* what was acked stands in the journal (J5) */
        log->c_lies = true;
        ks_task_log_error(log, "sync_behind_failed", entry->rc);
        if (!log->c_failed) {
            ks_task_fail(log, KS_K_STORAGE_ERROR);
        }
    } else if (entry->synced) {
        confirmed(log, entry);
    }
    ks_journal_behind(log); /* a journal was retired meanwhile, or much was written */
}

/* Starts the syncs that a retired journal waits for. */
static void chase(struct ks_engine *e, struct ks_jfile *j)
{
    struct behind *b = NULL;
    for (uint32_t i = 0; i < j->n_logs; i++) {
        if (owes(j->logs[i])) {
            b = sync_behind(e, b, j->logs[i]);
        }
    }
    if (b) {
        send_behind(e->journal, b);
    }
}

static void retire(struct ks_engine *e, struct ks_jfile *j)
{
    j->retired = true;
    if (e->journal->current == j) {
        e->journal->current = NULL;
    }
    chase(e, j);
}

/* A fenced incarnation's journals are the claimants' business. */
static void lose(struct ks_jfile *j)
{
    j->retired = j->lost = true;
    for (uint32_t i = 0; i < j->n_logs; i++) {
        struct ks_log *log = j->logs[i];
        for (uint32_t k = log->c_n_framed; k-- > 0;) {
            if (log->c_framed[k].journal == j) {
                log->c_framed[k] = log->c_framed[--log->c_n_framed];
            }
        }
        ks_log_unref(log);
    }
    j->n_logs = 0;
}

/* Time to retire it: not before the next one is there, if one can be had, for what comes while its
 * files are synced behind has to go somewhere. */
static bool due(struct ks_engine *e, struct ks_jfile *j, int64_t now)
{
    bool old = j->first_ms && now - j->first_ms >= atomic_load(&e->journal_ms);
    if (j->retired || !(j->failed || j->len >= e->journal_bytes || old)) {
        return false;
    }
    return j->failed || j->len >= 2 * e->journal_bytes || other(e->journal, j, j->inc) ||
           !want_one(e, j->inc);
}

int64_t ks_journal_tend(struct ks_engine *e)
{
    struct ks_journal *jn = e->journal;
    int64_t now = kc_mono_ms(), wait = -1;
    bool look = now - jn->chased_ms >= AGAIN_MS; /* what could not be synced when it was retired */
    jn->chased_ms = look ? now : jn->chased_ms;
    adopt(jn);
    for (struct ks_jfile **p = &jn->files; *p;) {
        struct ks_jfile *j = *p;
        if (!j->lost && atomic_load(&j->inc->fenced)) {
            lose(j);
            jn->current = jn->current == j ? NULL : jn->current;
        } else if (due(e, j, now)) {
            retire(e, j);
        } else if (look && j->retired && !j->lost) {
            chase(e, j);
        }
        bool done = j->retired && !j->lost && atomic_load(&j->pending) == 0;
        if (done || j->lost) {
            *p = j->next;
            jn->n_files--;
            if (done) {
                post(jn, j, run_remove);
            } else {
                j->next = jn->lost;
                jn->lost = j;
            }
            continue;
        }
        wait = j->first_ms ? AGAIN_MS : wait;
        p = &j->next;
    }
    return jn->making ? AGAIN_MS : wait;
}

void ks_journal_start(struct ks_engine *e)
{
    e->journal = kc_zalloc(sizeof(*e->journal));
    e->journal->behind = rt_pool_new("ks-behind", BEHIND_THREADS);
}

/* Leaves what somebody may still need where it is. */
static void end_all(struct ks_jfile *list)
{
    while (list) {
        struct ks_jfile *j = list;
        char path[KS_PATH_MAX];
        list = j->next;
        ks_path_journal(path, j->e->broker_id, &j->inc->id, j->n);
        if (!j->lost && atomic_load(&j->pending) == 0) {
            ks_fs_unlink(&j->e->fs, path);
        }
        free_jfile(j);
    }
}

bool ks_journal_made(const struct ks_engine *e)
{
    return atomic_load(&e->journal->made) != NULL;
}

bool ks_journal_idle(const struct ks_engine *e)
{
    return e->journal->syncing == 0;
}

void ks_journal_stop(struct ks_engine *e)
{
    struct ks_journal *jn = e->journal;
    rt_pool_free(jn->behind);
    adopt(jn);
    end_all(jn->files);
    end_all(jn->lost);
    kc_free(jn);
    e->journal = NULL;
}
