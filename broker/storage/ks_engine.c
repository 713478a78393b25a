/* The engine: opening the volume, incarnations, and what is asked from any thread. */
#include "storage/ks_int.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_json.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "storage/ks_bytes.h"
#include "storage/ks_probe.h"
#include "storage/ks_scan.h"

/* Takeovers mostly wait for the disk, and syncs that wait together share one commit of its journal. */
enum {
    SCAN_THREADS = 64,
    WARM_THREADS = 2,
    READ_THREADS = 4,
    SYNC_THREADS = 16,
    SEAL_THREADS = 16,
    RECOVER_THREADS = 4,
    HINT_THREADS = 2
};
#define CACHE_BYTES                                                                                \
    (32LL * 1024 * 1024) /* most of a busy broker's memory; what is older is in the page cache */
#define INDEX_BYTES (64LL * 1024 * 1024)

/* ---- incarnations ---- */

struct ks_inc *ks_inc_ref(struct ks_inc *inc)
{
    atomic_fetch_add_explicit(&inc->refs, 1, memory_order_relaxed);
    return inc;
}

void ks_inc_unref(struct ks_inc *inc)
{
    if (inc && atomic_fetch_sub_explicit(&inc->refs, 1, memory_order_acq_rel) == 1) {
        ks_fs_close(inc->fs, inc->fd);
        kc_free(inc);
    }
}

int ks_register(struct ks_engine *e, const struct kc_uuid *incarnation, struct kc_err *err)
{
    ks_tidy_before(e, incarnation);
    int64_t before = kc_mono_ms();
    int fd = ks_inc_publish(&e->fs, e->broker_id, incarnation, err);
    if (fd < 0) {
        return fd;
    }
    struct ks_inc *inc = kc_zalloc(sizeof(*inc));
    atomic_init(&inc->refs, 1);
    inc->fs = &e->fs;
    inc->id = *incarnation;
    inc->inc8 = ks_get32(incarnation->b);
    inc->fd = fd;
    pthread_mutex_lock(&e->lock);
    struct ks_inc *old = e->inc;
    e->inc = inc;
    pthread_mutex_unlock(&e->lock);
    ks_inc_unref(old);
    atomic_store(&e->checked_ms, before);
    kc_log(KC_INFO, "storage", "event=registered broker=%d inc8=%08x", e->broker_id, inc->inc8);
    return 0;
}

struct fenced_msg {
    struct rt_msg msg;
    struct ks_engine *e;
    const char *why;
};

static void on_fenced(struct rt_msg *msg)
{
    struct fenced_msg *m = KC_CONTAINER_OF(msg, struct fenced_msg, msg);
    m->e->on_fenced(m->e->ctx, m->why);
    ks_engine_unref(m->e);
    kc_free(m);
}

/* Tells the owners of all logs of an incarnation; e->lock is held. */
static void stop_logs(struct ks_engine *e, const struct ks_inc *inc)
{
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *m; (m = kc_map_next(&e->logs, &it));) {
        struct ks_log *log = m->value;
        if (log->inc == inc) {
            ks_log_post_stop(log);
        }
    }
}

void ks_disown(struct ks_engine *e)
{
    pthread_mutex_lock(&e->lock);
    stop_logs(e, e->inc);
    pthread_mutex_unlock(&e->lock);
}

/* Runs once an incarnation: tells the control loop and every owner. */
static void fenced(struct ks_engine *e, struct ks_inc *inc, const char *why)
{
    kc_log(KC_ERROR, "storage", "event=fenced inc8=%08x reason=\"%s\"", inc->inc8, why);
    pthread_mutex_lock(&e->lock);
    stop_logs(e, inc);
    pthread_mutex_unlock(&e->lock);
    if (e->on_fenced && e->loop) {
        struct fenced_msg *m = kc_zalloc(sizeof(*m));
        m->msg.fn = on_fenced;
        m->e = e;
        atomic_fetch_add(&e->refs, 1);
        m->why = why;
        rt_post(e->loop, &m->msg);
    }
}

bool ks_engine_current(struct ks_engine *e, const struct ks_inc *inc)
{
    pthread_mutex_lock(&e->lock);
    bool current = e->inc == inc;
    pthread_mutex_unlock(&e->lock);
    return current && !atomic_load(&inc->fenced);
}

bool ks_engine_check(struct ks_engine *e, struct ks_inc *inc)
{
    const char *why = NULL;
    int64_t before = kc_mono_ms();
    if (atomic_load(&inc->fenced)) {
        return false;
    }
    atomic_fetch_add_explicit(&e->m_checks, 1, memory_order_relaxed);
    if (ks_inc_check(&e->fs, inc->fd, &why) == 0) {
        atomic_store(&e->checked_ms, before);
        return true;
    }
    if (!atomic_exchange(&inc->fenced, true)) {
        fenced(e, inc, why);
    }
    return false;
}

/* ---- work for later ---- */

void ks_engine_defer(struct ks_engine *e, struct rt_work *work)
{
    pthread_mutex_lock(&e->p_lock);
    bool gone = e->pools_gone;
    if (!gone) {
        rt_pool_post(e->read, work);
    }
    pthread_mutex_unlock(&e->p_lock);
    if (gone) {
        work->fn(work); /* only after ks_engine_close: nobody is served any more */
    }
}

struct burial {
    struct rt_work work;
    struct ks_fs *fs;
    int fd;
};

static void close_fd(struct rt_work *w)
{
    struct burial *b = KC_CONTAINER_OF(w, struct burial, work);
    ks_fs_close(b->fs, b->fd);
    kc_free(b);
}

static void bury(void *ctx, int fd)
{
    struct ks_engine *e = ctx;
    struct burial *b = kc_alloc(sizeof(*b));
    *b = (struct burial){.work.fn = close_fd, .fs = &e->fs, .fd = fd};
    ks_engine_defer(e, &b->work);
}

/* ---- logs by partition ---- */

struct ks_key ks_key_of(const struct kc_uuid *topic, int32_t partition)
{
    struct ks_key k;
    memcpy(k.b, topic->b, sizeof(topic->b));
    ks_put32(k.b + 16, (uint32_t)partition);
    return k;
}

/* Its epoch is sealed, or nobody asks for it any more. */
static void orphan_free(struct ks_orphan *o)
{
    for (uint32_t i = 0; o && i < o->n_journals; i++) {
        ks_journal_unpend(o->journals[i]);
    }
    kc_free(o);
}

void ks_engine_remember(struct ks_engine *e, const struct ks_log *log, bool ends)
{
    struct ks_key key = ks_key_of(&log->topic, log->partition);
    struct ks_orphan *o = kc_alloc(sizeof(*o));
    *o = (struct ks_orphan){
        .incarnation = log->inc->id,
        .epoch = log->c_epoch,
        .end = log->c_end,
        .file = log->c_file->id,
        .len = log->c_acked,
        .crc = log->c_crc,
        .synced = log->c_synced >= log->c_acked,
        .stamp = ks_framed_stamp(e),
        .n_journals = ends ? log->c_n_framed : 0,
    };
    for (uint32_t i = 0; i < o->n_journals; i++) {
        o->journals[i] = log->c_framed[i].journal;
    }
    pthread_mutex_lock(&e->lock);
    orphan_free(kc_map_put(&e->orphans, &key, sizeof(key), o));
    pthread_mutex_unlock(&e->lock);
}

void ks_engine_sealed(struct ks_engine *e, const struct ks_log *log, int32_t epoch)
{
    struct ks_key key = ks_key_of(&log->topic, log->partition);
    pthread_mutex_lock(&e->lock);
    struct ks_orphan *o = kc_map_get(&e->orphans, &key, sizeof(key));
    if (o && o->epoch < epoch) {
        orphan_free(kc_map_del(&e->orphans, &key, sizeof(key)));
    }
    pthread_mutex_unlock(&e->lock);
}

/* The journals go with the commit thread. */
static void let_go_of_journals(struct ks_engine *e)
{
    struct kc_map_iter it = {0};
    pthread_mutex_lock(&e->lock);
    for (struct kc_map_entry *m; (m = kc_map_next(&e->orphans, &it));) {
        struct ks_orphan *o = m->value;
        o->n_journals = 0;
    }
    pthread_mutex_unlock(&e->lock);
}

void ks_engine_forget(struct ks_engine *e, struct ks_log *log, bool sealed)
{
    struct ks_key key = ks_key_of(&log->topic, log->partition);
    if (!sealed && log->c_file && !atomic_load(&log->inc->fenced)) {
        ks_engine_remember(e, log, true);
    }
    ks_journal_leave(log, sealed);
    pthread_mutex_lock(&e->lock);
    if (sealed) {
        orphan_free(kc_map_del(&e->orphans, &key, sizeof(key)));
    }
    kc_map_del(&e->logs, &key, sizeof(key));
    atomic_fetch_sub(&e->n_logs, 1);
    if (log->shard) {
        log->shard->n_open--;
    }
    if (atomic_exchange(&log->c_retry_at_ms, 0)) {
        atomic_fetch_sub(&e->n_retries, 1);
    }
    pthread_cond_broadcast(&e->log_gone);
    pthread_mutex_unlock(&e->lock);
    ks_log_unref(log);
}

/* ---- open and close ---- */

int ks_cluster_id_read(struct ks_fs *fs, char out[KC_UUID_B64_LEN + 1], struct kc_err *err)
{
    char text[1024];
    ssize_t n = ks_vol_read(fs, "cluster.json", text, sizeof(text));
    if (n < 0) {
        return kc_fail(err, (int)n, "cluster.json: %s", kc_strerror((int)n));
    }
    json_t *doc = json_loadb(text, (size_t)n, 0, NULL);
    const char *id = kc_json_str(doc, "clusterId", "");
    bool ok = strlen(id) > 0 && strlen(id) <= KC_UUID_B64_LEN && kc_json_int(doc, "format", 0) == 1;
    if (ok) {
        memcpy(out, id, strlen(id) + 1);
    }
    json_decref(doc);
    return ok ? 0 : kc_fail(err, KC_E_CORRUPT, "cluster.json is not of this format");
}

static int join_cluster(struct ks_fs *fs, char id[KC_UUID_B64_LEN + 1], struct kc_err *err)
{
    char mine[KC_UUID_B64_LEN + 1], there[KC_UUID_B64_LEN + 1], text[160];
    int rc = ks_cluster_id_read(fs, there, err);
    if (rc == -ENOENT) {
        struct kc_uuid random = kc_uuid_random();
        kc_uuid_to_b64(&random, mine);
        int len =
            snprintf(text, sizeof(text), "{\"clusterId\":\"%s\",\"format\":1}\n", *id ? id : mine);
        rc = ks_vol_publish(fs, "", "cluster.json", text, (size_t)len);
        if (rc && rc != KC_E_EXISTS) {
            return kc_fail(err, rc, "cluster.json: %s", kc_strerror(rc));
        }
        rc = ks_fs_syncdir(fs, ".");
        rc = rc ? kc_fail(err, rc, "volume: %s", kc_strerror(rc))
                : ks_cluster_id_read(fs, there, err);
    }
    if (!rc && *id && strcmp(id, there) != 0) {
        rc = kc_fail(err, KC_E_FOREIGN, "the volume belongs to cluster %s, not to %s", there, id);
    }
    if (!rc) {
        memcpy(id, there, sizeof(there));
    }
    return rc;
}

static int make_dirs(struct ks_fs *fs, struct kc_err *err)
{
    static const char *const dirs[] = {"inc", "topics", "deleted", "pids"};
    for (size_t i = 0; i < KC_ARRAY_LEN(dirs); i++) {
        int rc = ks_fs_mkdir(fs, dirs[i]);
        if (rc < 0) {
            return kc_fail(err, rc, "%s: %s", dirs[i], kc_strerror(rc));
        }
    }
    int rc = ks_fs_syncdir(fs, "."); /* also if they were there: their maker may have ended */
    return rc ? kc_fail(err, rc, "volume: %s", kc_strerror(rc)) : 0;
}

static int probe(struct ks_fs *fs, bool unsafe, struct kc_err *err)
{
    struct ks_probe p;
    int rc;
    do {
        rc = ks_probe_run(fs, &p, err);
    } while (rc && ks_fs_make_room(fs, rc));
    if (rc == 0) {
        kc_log(KC_INFO, "storage", "event=volume_conforms sync_us=%lld", (long long)p.sync_us);
    } else if (unsafe) {
        kc_log(KC_ERROR, "storage", "event=volume_unsafe text=\"%s\"", err ? err->msg : "");
        rc = 0;
    }
    return rc;
}

/* Threads; on failure those that run are stopped by the caller's unref path. */
static int start_threads(struct ks_engine *e, const struct ks_opts *opts)
{
    e->warm = rt_pool_new("ks-warm", WARM_THREADS);
    e->scan =
        rt_pool_new("ks-scan", opts->takeover_threads > 0 ? opts->takeover_threads : SCAN_THREADS);
    e->read = rt_pool_new("ks-read", opts->read_threads > 0 ? opts->read_threads : READ_THREADS);
    e->sync_threads = opts->commit_threads > 0 ? opts->commit_threads : SYNC_THREADS;
    e->sync = rt_pool_new("ks-sync", e->sync_threads);
    e->seal = rt_pool_new("ks-seal", SEAL_THREADS);
    e->recover = rt_pool_new("ks-recover", RECOVER_THREADS);
    e->hint = rt_pool_new("ks-hint", HINT_THREADS);
    e->clean = rt_pool_new("ks-clean", 1);
    int rc = ks_commit_start(e);
    if (rc) {
        return rc;
    }
    rc = ks_watch_start(e);
    if (rc) {
        ks_commit_stop(e);
    }
    e->pools_gone = rc != 0;
    return rc;
}

int ks_engine_open_on(const struct ks_fs *fs, const struct ks_opts *opts,
                      char cluster_id[KC_UUID_B64_LEN + 1], struct ks_engine **ret,
                      struct kc_err *err)
{
    struct ks_engine *e = kc_zalloc(sizeof(*e));
    struct kc_err why = {0};
    atomic_init(&e->refs, 1);
    ks_fs_init(&e->fs, fs->ops, fs->ctx);
    e->fs.bury = bury;
    e->fs.bury_ctx = e;
    e->loop = opts->loop;
    e->on_fenced = opts->on_fenced;
    e->ctx = opts->ctx;
    e->broker_id = opts->broker_id;
    e->unconfirmed = KS_UNCONFIRMED_MAX;
    e->direct_files = KS_DIRECT_FILES;
    e->journal_bytes = KS_JOURNAL_BYTES;
    atomic_init(&e->journal_ms, KS_JOURNAL_MS);
    atomic_init(&e->retention_check_ms, 10000);
    e->cache_bytes = opts->cache_bytes > 0 ? opts->cache_bytes : CACHE_BYTES;
    e->checkpoint_bytes = opts->checkpoint_bytes > 0 ? opts->checkpoint_bytes : KS_CKPT_BYTES;
    e->index_bytes = INDEX_BYTES;
    ks_fds_init(&e->fds, KS_IDLE_FILES);
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->p_lock, NULL);
    e->pools_gone = true; /* until they are there */
    pthread_cond_init(&e->log_gone, NULL);
    ks_graves_init(&e->graves);
    pthread_mutex_init(&e->f_lock, NULL);
    pthread_cond_init(&e->f_done, NULL);
    kc_map_init(&e->logs);
    kc_map_init(&e->orphans);
    kc_map_init(&e->condemned);
    kc_map_init(&e->zombies);
    ks_cleaner_init(e);
    ks_commit_init(e);
    ks_watch_init(e);
    ks_tidy_init(e);
    ks_reserve_init(e, opts->reserve_bytes);
    int rc = make_dirs(&e->fs, &why);
    ks_reserve_find(e);
    rc = rc ? rc : probe(&e->fs, opts->unsafe_storage, &why);
    rc = rc ? rc : join_cluster(&e->fs, cluster_id, &why);
    if (!rc && (rc = start_threads(e, opts))) {
        kc_fail(&why, rc, "threads: %s", kc_strerror(rc));
        rt_pool_free(e->scan);
        rt_pool_free(e->warm);
        rt_pool_free(e->read);
        rt_pool_free(e->sync);
        rt_pool_free(e->seal);
        rt_pool_free(e->recover);
        rt_pool_free(e->hint);
        rt_pool_free(e->clean);
    }
    if (rc) {
        ks_engine_unref(e);
        return kc_fail(err, rc, "%s", why.msg);
    }
    *ret = e;
    return 0;
}

int ks_engine_open(const struct ks_opts *opts, char cluster_id[KC_UUID_B64_LEN + 1],
                   struct ks_engine **ret, struct kc_err *err)
{
    struct ks_fs fs;
    int rc = ks_fs_posix(&fs, opts->dir, err);
    return rc ? rc : ks_engine_open_on(&fs, opts, cluster_id, ret, err);
}

void ks_engine_ref(struct ks_engine *e)
{
    atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
}

void ks_engine_unref(struct ks_engine *e)
{
    if (atomic_fetch_sub(&e->refs, 1) != 1) {
        return;
    }
    while (e->shards) {
        struct ks_shard *s = e->shards;
        e->shards = s->next;
        ks_shard_unref(s);
    }
    kc_map_fini(&e->logs, NULL);
    kc_map_fini(&e->orphans, kc_free);
    kc_map_fini(&e->condemned, kc_free);
    kc_map_fini(&e->zombies, kc_free);
    ks_inc_unref(e->inc);
    ks_cleaner_fini(e);
    ks_commit_fini(e);
    ks_reserve_fini(e);
    ks_tidy_fini(e);
    ks_watch_fini(e);
    ks_fds_fini(&e->fds);
    ks_graves_fini(&e->graves);
    ks_framed_expire(e, INT64_MAX);
    pthread_mutex_destroy(&e->f_lock);
    pthread_cond_destroy(&e->f_done);
    pthread_cond_destroy(&e->log_gone);
    pthread_mutex_destroy(&e->lock);
    pthread_mutex_destroy(&e->p_lock);
    ks_fs_fini(&e->fs);
    kc_free(e);
}

void ks_engine_close(struct ks_engine *e)
{
    if (!e) {
        return;
    }
    rt_pool_free(e->warm);
    rt_pool_free(e->scan); /* its jobs wake the watch thread */
    ks_watch_stop(e);
    ks_cleaner_stop(e);
    pthread_mutex_lock(&e->p_lock);
    e->recover_gone = e->clean_gone = true;
    pthread_mutex_unlock(&e->p_lock);
    rt_pool_free(e->clean);
    rt_pool_free(e->recover); /* ends; what it pushes is still dealt with */
    ks_commit_stop(e);
    let_go_of_journals(e);
    rt_pool_free(e->sync);
    rt_pool_free(e->seal);
    pthread_mutex_lock(&e->p_lock);
    e->hint_gone = true;
    pthread_mutex_unlock(&e->p_lock);
    rt_pool_free(e->hint); /* ends what was queued: the snapshots of a planned stop */
    pthread_mutex_lock(&e->p_lock);
    e->pools_gone = true;
    pthread_mutex_unlock(&e->p_lock);
    rt_pool_free(e->read);
    ks_engine_unref(e);
}

/* ---- numbers ---- */

void ks_engine_note_open(struct ks_engine *e, uint64_t bytes)
{
    uint64_t max = atomic_load(&e->m_open_read_max);
    atomic_fetch_add(&e->m_open_read, bytes);
    while (bytes > max && !atomic_compare_exchange_weak(&e->m_open_read_max, &max, bytes)) {
    }
}

void ks_stall_read(struct ks_engine *e, int64_t now_mono_ms, struct ks_stall *ret)
{
    ks_fs_oldest(&e->fs, now_mono_ms, ret);
}

int64_t ks_fence_age_ms(struct ks_engine *e, int64_t now_mono_ms)
{
    int64_t at = atomic_load_explicit(&e->checked_ms, memory_order_relaxed);
    return at ? KC_MAX(now_mono_ms - at, (int64_t)0) : INT64_MAX;
}

void ks_metrics_read(struct ks_engine *e, struct ks_metrics *ret)
{
    *ret = (struct ks_metrics){
        .appended_bytes = atomic_load(&e->m_appended),
        .commits = atomic_load(&e->m_commits),
        .fsyncs = atomic_load(&e->m_fsyncs),
        .frames = atomic_load(&e->m_frames),
        .journals = atomic_load(&e->m_journals),
        .fence_checks = atomic_load(&e->m_checks),
        .zombie_bytes = atomic_load(&e->m_zombie),
        .read_bytes = atomic_load(&e->m_read),
        .direct_bytes = atomic_load(&e->m_direct),
        .cache_hits = atomic_load(&e->m_hits),
        .cache_misses = atomic_load(&e->m_misses),
        .open_logs = (uint64_t)KC_MAX(atomic_load(&e->n_logs), (int64_t)0),
        .errors = atomic_load(&e->m_errors),
        .checkpoints = atomic_load(&e->m_ckpts),
        .open_read_bytes = atomic_load(&e->m_open_read),
        .open_read_max = atomic_load(&e->m_open_read_max),
        .volume_free = atomic_load(&e->reserve.free_bytes),
        .reserve_bytes = ks_reserve_bytes(e),
        .refused_writes = atomic_load(&e->reserve.refused),
        .cleanings = atomic_load(&e->m_cleanings),
        .clean_read_bytes = atomic_load(&e->m_clean_read),
        .clean_written_bytes = atomic_load(&e->m_clean_written),
        .clean_errors = atomic_load(&e->m_clean_errors),
        .uncleanable = (uint64_t)KC_MAX(atomic_load(&e->m_uncleanable), (int64_t)0),
    };
}
