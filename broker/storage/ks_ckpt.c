#include "storage/ks_int.h"

#include <errno.h>

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"

struct job {
    struct rt_work work;
    struct ks_log *log; /* referenced */
    bool snap;
    struct ks_snap_name name; /* idx: only the file */
    uint8_t *data;
    size_t len;
};

static uint64_t interval(const struct ks_log *log)
{
    return (uint64_t)log->e->checkpoint_bytes;
}

/* What is less than this is rather read again. */
static uint64_t share(const struct ks_log *log, uint64_t part)
{
    return KC_MAX(interval(log) / part, (uint64_t)1);
}

void ks_ckpt_fini(struct ks_ckpt *c)
{
    ks_prods_fini(&c->producers);
    kc_free(c->data);
    c->data = NULL;
    c->copied = false;
}

/* ---- writing, on the pool ---- */

static void report(const struct job *j, const char *name, int rc)
{
    char path[KS_PATH_MAX];
    ks_path_part(path, &j->log->topic, j->log->partition, name);
    kc_log(KC_WARN, "storage", "event=checkpoint_failed file=%s error=%d text=\"%s\"", path, rc,
           kc_strerror(rc));
}

/* The newest two stay: should the newest be bad, the other one is not far behind. A hint of another
 * incarnation may go, too: nothing is lost with it (ADR 14). */
static void drop_old(struct ks_log *log, const struct ks_snap_name *newest)
{
    enum { KEEP = 2 };
    struct ks_snaps *k = &log->ckpt.known;
    ks_snaps_add(k, newest);
    for (; k->n > KEEP; k->n--) {
        char name[KS_HINT_NAME], path[KS_PATH_MAX];
        ks_snap_name(&k->v[k->n - 1], name);
        ks_path_part(path, &log->topic, log->partition, name);
        ks_fs_unlink(&log->e->fs, path);
    }
}

static void job_free(struct job *j)
{
    ks_log_unref(j->log);
    kc_free(j->data);
    kc_free(j);
}

static void run(struct rt_work *w)
{
    struct job *j = KC_CONTAINER_OF(w, struct job, work);
    struct ks_log *log = j->log;
    char dir[KS_PATH_MAX], name[KS_HINT_NAME];
    ks_path_part(dir, &log->topic, log->partition, NULL);
    if (j->snap) {
        ks_snap_name(&j->name, name);
    } else {
        ks_idx_name(j->name.file, name);
    }
    /* Without a sync of the directory: a hint that a crash takes away is only missed. */
    int rc = ks_vol_publish(&log->e->fs, dir, name, j->data, j->len);
    atomic_fetch_add_explicit(&log->e->m_ckpts, rc == 0, memory_order_relaxed);
    bool there = rc == 0 || rc == KC_E_EXISTS;
    if (j->snap) {
        if (there) {
            atomic_store(&log->ckpt.covered, j->name.offset);
            drop_old(log, &j->name);
        }
        /* Said once until one succeeds again; a topic that was deleted meanwhile is no failure. */
        if (!atomic_exchange(&log->ckpt.failed, !there) && !there && rc != -ENOENT) {
            report(j, name, rc);
        }
        atomic_store(&log->ckpt.busy, false);
    }
    job_free(j);
}

/* Takes data. */
static void post(struct ks_log *log, bool snap, struct ks_snap_name name, uint8_t *data, size_t len)
{
    struct ks_engine *e = log->e;
    struct job *j = kc_try_zalloc(1, sizeof(*j));
    if (!j) {
        kc_free(data);
        return;
    }
    *j = (struct job){.work.fn = run, .log = ks_log_ref(log), .snap = snap, .name = name};
    j->data = data;
    j->len = len;
    pthread_mutex_lock(&e->p_lock);
    bool gone = e->hint_gone || atomic_load(&log->inc->fenced);
    if (!gone) {
        atomic_store(&log->ckpt.busy, snap || atomic_load(&log->ckpt.busy));
        rt_pool_post(e->hint, &j->work);
    }
    pthread_mutex_unlock(&e->p_lock);
    if (gone) {
        job_free(j);
    }
}

/* ---- indexes ---- */

void ks_ckpt_index(struct ks_log *log, const struct ks_seg *seg)
{
    uint8_t *data;
    size_t len;
    if (!seg->indexed || seg->len < share(log, KS_CKPT_IDX_SHARE) ||
        seg->damaged_from != INT64_MAX) {
        return;
    }
    struct ks_hint_args a = {
        .topic = log->topic, .partition = log->partition, .writer = log->inc->id, .seg = seg};
    if (ks_hint_encode(&a, &data, &len) == 0) {
        post(log, false, (struct ks_snap_name){.file = seg->file->id}, data, len);
    }
}

void ks_ckpt_finished(struct ks_log *log)
{
    ks_ckpt_index(log, &log->st.segs[log->st.n_segs - 1]);
}

/* ---- snapshots ---- */

/* Encodes the state as it is now, with these producers. */
static bool encode(struct ks_log *log, const struct ks_prods *producers)
{
    struct ks_ckpt *c = &log->ckpt;
    const struct ks_seg *seg = &log->st.segs[log->st.n_segs - 1];
    struct ks_hint_args a = {
        .topic = log->topic,
        .partition = log->partition,
        .writer = log->inc->id,
        .seg = seg,
        .st = &log->st,
        .prods = producers,
        .now_wall_ms = kc_wall_ms(),
    };
    kc_free(c->data);
    c->data = NULL;
    c->name = (struct ks_snap_name){.file = seg->file->id, .offset = log->st.end};
    c->pos = seg->len;
    return ks_hint_encode(&a, &c->data, &c->len) == 0;
}

static void write_now(struct ks_log *log)
{
    uint8_t *data = log->ckpt.data;
    log->ckpt.data = NULL;
    post(log, true, log->ckpt.name, data, log->ckpt.len);
}

void ks_ckpt_appended(struct ks_log *log, uint64_t bytes)
{
    struct ks_ckpt *c = &log->ckpt;
    c->since += bytes;
    if ((c->since < interval(log) && !c->wanted) || c->copied || c->data || c->stale ||
        atomic_load(&c->busy)) {
        return;
    }
    if (ks_prods_copy(&c->producers, &log->st.prods) == 0) {
        c->copied = true;
        c->wanted = false;
        c->offset = log->end;
        c->since = 0;
    }
}

void ks_ckpt_noted(struct ks_log *log, const struct ks_entry *entry)
{
    struct ks_ckpt *c = &log->ckpt;
    c->unsynced = !entry->synced;
    if (c->copied && log->st.end >= c->offset) {
        bool exact = log->st.end == c->offset && encode(log, &c->producers);
        ks_prods_fini(&c->producers);
        c->copied = false;
        KC_ASSERT(exact || !c->data);
    }
    if (c->data && entry->synced) {
        write_now(log);
    }
}

void ks_ckpt_synced(struct ks_log *log, const struct ks_file *file, uint64_t pos)
{
    struct ks_ckpt *c = &log->ckpt;
    const struct ks_seg *seg = log->st.n_segs ? &log->st.segs[log->st.n_segs - 1] : NULL;
    if (seg && seg->file == file && seg->len <= pos) {
        c->unsynced = false;
    }
    /* A file before the last one was synced when the last one followed it. */
    bool covered = ks_file_eq(c->name.file, file->id) ? c->pos <= pos : seg && seg->file == file;
    if (c->data && covered) {
        write_now(log);
    }
}

void ks_ckpt_forget(struct ks_log *log)
{
    ks_ckpt_fini(&log->ckpt);
    log->ckpt.stale = true;
}

/* Nothing is on its way: producers, index and position are those of the acked end. */
static bool quiet(const struct ks_log *log)
{
    return !log->ckpt.stale && log->end == log->st.end && !log->pend_head;
}

void ks_ckpt_sealed(struct ks_log *log)
{
    struct ks_ckpt *c = &log->ckpt;
    if (log->closed || !quiet(log)) {
        return;
    }
    ks_ckpt_finished(log);
    if (c->since >= share(log, KS_CKPT_SNAP_SHARE) && !atomic_load(&c->busy)) {
        ks_ckpt_fini(c);
        if (encode(log, &log->st.prods)) {
            write_now(log);
        }
    }
}

bool ks_ckpt_covers(struct ks_log *log, int64_t start)
{
    struct ks_ckpt *c = &log->ckpt;
    if (log->st.prods.len == 0 || atomic_load(&c->covered) >= start) {
        return true;
    }
    if (atomic_load(&c->busy) || c->copied || c->data) {
        return false;
    }
    if (atomic_load(&c->failed)) {
        c->wanted = true;
        return true; /* a full disk must not keep files from being dropped */
    }
    if (quiet(log) && !c->unsynced) {
        if (encode(log, &log->st.prods)) {
            c->since = 0;
            write_now(log);
        }
    } else {
        c->wanted = true;
    }
    return false;
}

void ks_ckpt_opened(struct ks_log *log, const struct ks_build *b)
{
    struct ks_ckpt *c = &log->ckpt;
    ks_ckpt_fini(c);
    c->since = b->since_hint;
    c->unsynced = c->stale = false;
    if (!atomic_load(&c->busy)) {
        c->known = b->snaps ? *b->snaps : (struct ks_snaps){0};
        atomic_store(&c->covered, b->hint_end);
    }
    if (c->since < interval(log) || atomic_load(&c->busy)) {
        return;
    }
    for (uint32_t i = 0; i + 1 < log->st.n_segs; i++) {
        ks_ckpt_index(log,
                      &log->st.segs[i]); /* those that were read; it is lost if nobody keeps it */
    }
    if (encode(log, &log->st.prods)) {
        c->since = 0;
        write_now(log); /* the next opening must not read it all again */
    }
}
