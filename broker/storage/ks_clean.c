/* Rounds of the cleaner: every loop says which of its logs needs it most, the dirtiest of all is
 * cleaned (ks_clean_run.c), and so on until none is due; then the cleaner rests. Chosen and swapped on
 * the owner's loop, read and written on a thread of its own with low priority. */
#include "storage/ks_clean.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "rt/rt_thread.h"

enum { NICE = 10, RETRY_MS = 60000 };
/* Kafka gives 128 MiB and no bound on bytes a second. */
static const struct ks_cleaner_config DEFAULTS = {.enabled = true,
                                                  .backoff_ms = 15000,
                                                  .dedupe_bytes = 32LL * 1024 * 1024,
                                                  .io_bytes_per_s = 32LL * 1024 * 1024};

void ks_cleaner_init(struct ks_engine *e)
{
    pthread_mutex_init(&e->cleaner.lock, NULL);
    rt_cond_init(&e->cleaner.more);
    e->cleaner.cfg = DEFAULTS;
    e->cleaner.next_round_ms = kc_mono_ms() + DEFAULTS.backoff_ms;
}

void ks_cleaner_fini(struct ks_engine *e)
{
    pthread_cond_destroy(&e->cleaner.more);
    pthread_mutex_destroy(&e->cleaner.lock);
}

void ks_cleaner_stop(struct ks_engine *e)
{
    pthread_mutex_lock(&e->cleaner.lock);
    atomic_store(&e->cleaner.stop, true);
    pthread_cond_broadcast(&e->cleaner.more);
    pthread_mutex_unlock(&e->cleaner.lock);
}

void ks_engine_cleaner(struct ks_engine *e, const struct ks_cleaner_config *cfg)
{
    struct ks_cleaner *c = &e->cleaner;
    pthread_mutex_lock(&c->lock);
    c->cfg = *cfg;
    c->cfg.dedupe_bytes = cfg->dedupe_bytes > 0 ? cfg->dedupe_bytes : DEFAULTS.dedupe_bytes;
    c->next_round_ms = KC_MIN(c->next_round_ms, kc_mono_ms() + cfg->backoff_ms);
    pthread_mutex_unlock(&c->lock);
}

bool ks_clean_idle(struct ks_engine *e)
{
    pthread_mutex_lock(&e->cleaner.lock);
    bool idle = !e->cleaner.busy;
    pthread_mutex_unlock(&e->cleaner.lock);
    return idle;
}

/* ---- the cleaner's thread ---- */

static void on_ready(struct rt_msg *msg);

static void to_owner(struct ks_clean_job *job)
{
    job->msg.fn = on_ready;
    rt_post(job->log->owner, &job->msg);
}

static void on_thread(struct rt_work *w)
{
    struct ks_clean_job *job = KC_CONTAINER_OF(w, struct ks_clean_job, work);
    setpriority(PRIO_PROCESS, (id_t)gettid(), NICE); /* Linux: this thread's; a refusal is fine */
    ks_clean_work(job);
    to_owner(job);
}

/* Blocking work for the cleaner's thread; done at once when the engine is being closed. */
static void to_thread(struct ks_engine *e, struct rt_work *work)
{
    pthread_mutex_lock(&e->p_lock);
    bool gone = e->clean_gone;
    if (!gone) {
        rt_pool_post(e->clean, work);
    }
    pthread_mutex_unlock(&e->p_lock);
    if (gone) {
        work->fn(work);
    }
}

/* ---- files that earlier records superseded, and whose removal was interrupted ---- */

struct sweep {
    struct rt_work work;
    struct ks_log *log;
    struct ks_file_id *ids; /* sorted */
    uint32_t n;
    uint32_t removed;
};

static int by_id(const void *a, const void *b)
{
    const struct ks_file_id *x = a, *y = b;
    return x->inc8 != y->inc8 ? (x->inc8 < y->inc8 ? -1 : 1)
                              : (x->seq < y->seq ? -1 : x->seq > y->seq);
}

static bool sweep_one(void *arg, const char *name)
{
    struct sweep *s = arg;
    struct ks_file_id id;
    if (ks_file_parse(name, &id) && bsearch(&id, s->ids, s->n, sizeof(id), by_id)) {
        char path[KS_PATH_MAX];
        ks_path_file(path, &s->log->topic, s->log->partition, id);
        s->removed += ks_fs_unlink(&s->log->e->fs, path) == 0;
        ks_idx_remove(&s->log->e->fs, &s->log->topic, s->log->partition, id);
    }
    return !atomic_load(&s->log->e->cleaner.stop);
}

static void on_sweep(struct rt_work *w)
{
    struct sweep *s = KC_CONTAINER_OF(w, struct sweep, work);
    char dir[KS_PATH_MAX];
    ks_path_part(dir, &s->log->topic, s->log->partition, NULL);
    qsort(s->ids, s->n, sizeof(*s->ids), by_id);
    ks_fs_list(&s->log->e->fs, dir, sweep_one, s);
    if (s->removed) {
        kc_log(KC_INFO, "storage", "event=swept partition=%s files=%u", dir, s->removed);
    }
    ks_log_unref(s->log);
    kc_free(s->ids);
    kc_free(s);
}

static bool named(const struct ks_chain *c, struct ks_file_id id)
{
    for (uint32_t i = 0; i < c->n_files; i++) {
        if (ks_file_eq(c->files[i].id, id)) {
            return true;
        }
    }
    return false;
}

void ks_clean_forgive(struct ks_log *log)
{
    if (log->clean_after_ms == INT64_MAX) {
        atomic_fetch_sub(&log->e->m_uncleanable, 1);
    }
    log->clean_after_ms = 0;
}

/* A cleaning goes through a log from its first file on, so with a compacted file that ends at `end` all
 * data of transactions that were aborted before is gone, and later their markers. They must not be
 * told any more: without the marker a consumer would go on leaving out what that producer writes. */
static void void_aborts(struct ks_log *log, int64_t end)
{
    ks_aborts_trim(&log->st.aborts, end);
}

void ks_clean_opened(struct ks_log *log, struct ks_chain *c)
{
    /* Our claim stands behind the name of the record in doubt, so that name is taken: by it, or by
     * another, and then nobody will ever name its file. */
    if (log->in_doubt && !named(c, log->doubt) && ks_chain_gone(c, log->doubt)) {
        kc_log(KC_WARN, "storage", "event=file_left inc8=%08x seq=%u", log->doubt.inc8,
               log->doubt.seq);
    }
    log->in_doubt = false;
    log->clean = c->clean;
    for (uint32_t i = 0; i < log->st.n_segs; i++) {
        if (log->st.segs[i].compacted) {
            void_aborts(log, log->st.segs[i].end); /* a snapshot may be of before the cleaning */
        }
    }
    kc_free(log->sweep);
    log->sweep = c->gone;
    log->n_sweep = c->n_gone;
    c->gone = NULL;
    c->n_gone = c->gone_room = 0;
}

static void sweep(struct ks_log *log)
{
    if (log->n_sweep == 0 || log->state != KS_OPEN) {
        return;
    }
    struct sweep *s = kc_zalloc(sizeof(*s));
    s->work.fn = on_sweep;
    s->log = ks_log_ref(log);
    s->ids = log->sweep;
    s->n = log->n_sweep;
    log->sweep = NULL;
    log->n_sweep = 0;
    to_thread(log->e, &s->work);
}

/* ---- the choice ---- */

static bool need_of(struct ks_log *log, int64_t now_wall_ms, struct ks_clean_need *ret)
{
    const struct ks_state *st = &log->st;
    struct ks_clean_rules rules = {.min_dirty_ratio = log->cfg.min_dirty_ratio,
                                   .min_lag_ms = log->cfg.min_compaction_lag_ms,
                                   .max_lag_ms = log->cfg.max_compaction_lag_ms};
    if (!log->cfg.compact || log->state != KS_OPEN || log->trimming || log->clean_job ||
        st->n_segs < 2 || kc_mono_ms() < log->clean_after_ms) {
        return false;
    }
    uint32_t n = st->n_segs - 1; /* the last one is active */
    struct ks_clean_file *files = kc_try_zalloc(n, sizeof(*files));
    if (!files) {
        return false;
    }
    bool by_time = rules.min_lag_ms > 0 || rules.max_lag_ms < INT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const struct ks_seg *s = &st->segs[i];
        if (by_time && !s->ts_known && s->end > log->clean) {
            ks_index_want(log, i); /* its timestamps are not known yet: next time */
            n = i;
            break;
        }
        files[i] = (struct ks_clean_file){.base = s->base,
                                          .end = s->end,
                                          .bytes = s->len,
                                          .first_ts = s->first_ts > 0 ? s->first_ts : s->max_ts,
                                          .max_ts = s->max_ts};
    }
    int64_t stable = KC_MIN(st->end, ks_prods_first_open(&st->prods));
    *ret = ks_clean_judge(files, n, KC_MAX(log->clean, st->start), stable, &rules, now_wall_ms);
    kc_free(files);
    return ks_clean_due(ret, &rules);
}

/* What lives on of each producer: the newest batches that are acked, which it may repeat. */
static int copy_producers(struct ks_clean_job *job)
{
    const struct ks_prods *t = &job->log->st.prods;
    job->producers = kc_try_zalloc(t->len + 1u, sizeof(*job->producers));
    if (!job->producers) {
        return -ENOMEM;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_slots && n < t->len; i++) {
        const struct ks_prod_entry *p = &t->slots[i];
        if (p->producer_id < 0 ||
            (p->txn_first < 0 && job->now_wall_ms - p->last_ts > KS_PROD_EXPIRE_MS)) {
            continue;
        }
        struct ks_clean_producer *to = &job->producers[n++];
        *to = (struct ks_clean_producer){.producer_id = p->producer_id, .epoch = p->epoch};
        for (uint8_t k = 0; k < p->n && p->batches[k].last_offset < job->log->st.end; k++) {
            to->last_offsets[to->n++] = p->batches[k].last_offset;
        }
    }
    job->filter.producers = job->producers;
    job->filter.n_producers = n;
    return 0;
}

static int by_producer(const void *a, const void *b)
{
    const struct ks_clean_producer *x = a, *y = b;
    return x->producer_id < y->producer_id ? -1 : x->producer_id > y->producer_id;
}

/* NULL: no memory. */
static struct ks_clean_job *job_new(struct ks_log *log, const struct ks_clean_need *need)
{
    const struct ks_state *st = &log->st;
    struct ks_clean_job *job = kc_zalloc(sizeof(*job));
    job->log = ks_log_ref(log);
    job->epoch = log->epoch;
    job->now_wall_ms = job->filter.now_wall_ms = kc_wall_ms();
    job->filter.delete_retention_ms = log->cfg.delete_retention_ms;
    job->dirty_from = need->dirty_from;
    job->until = need->until;
    job->clean = log->clean;
    job->group_bytes = (uint64_t)KC_MAX(log->cfg.segment_bytes, (int64_t)0);
    job->paced_from_ms = kc_mono_ms();
    ks_clean_survey_init(&job->survey);
    pthread_mutex_lock(&log->e->cleaner.lock);
    job->cfg = log->e->cleaner.cfg;
    pthread_mutex_unlock(&log->e->cleaner.lock);
    job->segs = kc_try_zalloc(st->n_segs, sizeof(*job->segs));
    if (!job->segs || copy_producers(job)) {
        ks_clean_free(job);
        return NULL;
    }
    qsort(job->producers, job->filter.n_producers, sizeof(*job->producers), by_producer);
    for (uint32_t i = 0; i < st->n_segs; i++) {
        const struct ks_seg *s = &st->segs[i];
        job->segs[i] = (struct ks_clean_seg){.file = ks_file_ref(s->file),
                                             .base = s->base,
                                             .end = s->end,
                                             .len = s->len,
                                             .epoch = s->epoch,
                                             .first_epoch = s->first_epoch,
                                             .compacted = s->compacted};
        job->n += s->end <= need->until && i + 1 < st->n_segs;
    }
    job->n_segs = st->n_segs;
    return job;
}

/* ---- rounds ---- */

/* The cleaner rests, or looks for the next log at once. */
static void leave(struct ks_engine *e, bool again)
{
    struct ks_cleaner *c = &e->cleaner;
    pthread_mutex_lock(&c->lock);
    c->busy = false;
    c->next_round_ms = again ? 0 : kc_mono_ms() + c->cfg.backoff_ms;
    pthread_mutex_unlock(&c->lock);
    if (again) {
        ks_clean_now(e);
    }
}

/* On the owner's loop of the log that was chosen. */
static void begin(struct ks_log *log)
{
    struct ks_clean_need need;
    bool due = !log->closed && need_of(log, kc_wall_ms(), &need);
    struct ks_clean_job *job = due ? job_new(log, &need) : NULL;
    if (!job) {
        leave(log->e, false);
        return;
    }
    log->clean_job = job;
    job->work.fn = on_thread;
    to_thread(log->e, &job->work);
}

struct round {
    struct rt_msg msg;
    struct ks_engine *e; /* referenced */
    struct ks_shard *shard; /* referenced, or NULL: */
    struct ks_log *log; /* the chosen one, referenced */
};

static void on_chosen(struct rt_msg *msg)
{
    struct round *r = KC_CONTAINER_OF(msg, struct round, msg);
    begin(r->log);
    ks_log_unref(r->log);
    kc_free(r);
}

static void choose(struct ks_engine *e, struct ks_log *log)
{
    if (!log) {
        leave(e, false);
        return;
    }
    struct round *r = kc_zalloc(sizeof(*r));
    r->msg.fn = on_chosen;
    r->log = log;
    rt_post(log->owner, &r->msg);
}

/* On each loop: the log that needs it most; the last loop to answer makes the choice. */
static void on_round(struct rt_msg *msg)
{
    struct round *r = KC_CONTAINER_OF(msg, struct round, msg);
    struct ks_cleaner *c = &r->e->cleaner;
    struct ks_clean_need need, best_need = {0};
    struct ks_log *best = NULL;
    int64_t now = kc_wall_ms();
    KC_LIST_EACH(it, nx, &r->shard->logs)
    {
        struct ks_log *log = KC_LIST_ENTRY(it, struct ks_log, in_shard);
        sweep(log);
        if (need_of(log, now, &need) && (!best || ks_clean_before(&need, &best_need))) {
            best = log;
            best_need = need;
        }
    }
    pthread_mutex_lock(&c->lock);
    if (best && (!c->best || ks_clean_before(&best_need, &c->need))) {
        ks_log_unref(c->best);
        c->best = ks_log_ref(best);
        c->need = best_need;
    }
    bool all = --c->shards_left == 0;
    best = all ? c->best : NULL;
    c->best = all ? NULL : c->best;
    pthread_mutex_unlock(&c->lock);
    if (all) {
        choose(r->e, best);
    }
    ks_shard_unref(r->shard);
    ks_engine_unref(r->e);
    kc_free(r);
}

bool ks_clean_now(struct ks_engine *e)
{
    struct ks_cleaner *c = &e->cleaner;
    int32_t shards = 0;
    pthread_mutex_lock(&e->lock);
    for (struct ks_shard *s = e->shards; s; s = s->next) {
        shards += s->n_open > 0;
    }
    pthread_mutex_lock(&c->lock);
    bool go = !c->busy && c->cfg.enabled && !atomic_load(&c->stop) && shards > 0;
    if (go) {
        c->busy = true;
        c->shards_left = shards;
    }
    pthread_mutex_unlock(&c->lock);
    for (struct ks_shard *s = go ? e->shards : NULL; s; s = s->next) {
        if (s->n_open == 0) {
            continue;
        }
        struct round *r = kc_zalloc(sizeof(*r));
        r->msg.fn = on_round;
        r->e = e;
        atomic_fetch_add(&e->refs, 1);
        r->shard = s;
        atomic_fetch_add(&s->refs, 1);
        rt_post(s->loop, &r->msg);
    }
    pthread_mutex_unlock(&e->lock);
    return go;
}

void ks_cleaner_tick(struct ks_engine *e)
{
    struct ks_cleaner *c = &e->cleaner;
    pthread_mutex_lock(&c->lock);
    bool due = !c->busy && kc_mono_ms() >= c->next_round_ms;
    pthread_mutex_unlock(&c->lock);
    if (due) {
        ks_clean_now(e);
    }
}

/* ---- a cleaning, on the owner's loop ---- */

void ks_clean_cancel(struct ks_log *log)
{
    if (log->clean_job) {
        struct ks_cleaner *c = &log->e->cleaner;
        atomic_store(&log->clean_job->cancelled, true);
        pthread_mutex_lock(&c->lock);
        pthread_cond_broadcast(&c->more);
        pthread_mutex_unlock(&c->lock);
    }
}

/* Index of the group's first segment if all of it still stands in the log; -1 = not. */
static int64_t find_group(const struct ks_log *log, const struct ks_clean_job *job)
{
    const struct ks_state *st = &log->st;
    uint32_t i = 0;
    while (i < st->n_segs && st->segs[i].file != job->segs[job->first].file) {
        i++;
    }
    if (i + job->n_group >= st->n_segs) { /* the active one is never part of it */
        return -1;
    }
    for (uint32_t k = 0; k < job->n_group; k++) {
        if (st->segs[i + k].file != job->segs[job->first + k].file) {
            return -1;
        }
    }
    return i;
}

static void over(struct ks_clean_job *job)
{
    struct ks_log *log = job->log;
    struct ks_engine *e = log->e;
    const struct ks_clean_stats *st = &job->filter.stats;
    char path[KS_PATH_MAX];
    ks_path_part(path, &log->topic, log->partition, NULL);
    log->clean_job = NULL;
    log->clean = job->rc ? log->clean : KC_MAX(log->clean, job->clean);
    if (!job->rc) {
        atomic_fetch_add(&e->m_cleanings, 1);
        kc_log(KC_INFO, "storage",
               "event=cleaned partition=%s from=%lld to=%lld records_read=%llu records_kept=%llu "
               "bytes_read=%llu bytes_kept=%llu ms=%lld",
               path, (long long)job->dirty_from, (long long)job->clean,
               (unsigned long long)st->records_read, (unsigned long long)st->records_kept,
               (unsigned long long)st->bytes_read, (unsigned long long)st->bytes_kept,
               (long long)(kc_mono_ms() - job->paced_from_ms));
    } else if (job->rc != KC_E_CANCELLED && job->rc != KC_E_DEPOSED) {
        bool for_good = job->rc == KC_E_CORRUPT || job->rc == KC_E_TOO_LARGE;
        log->clean_after_ms = for_good ? INT64_MAX : kc_mono_ms() + RETRY_MS;
        atomic_fetch_add(&e->m_uncleanable, for_good);
        atomic_fetch_add(&e->m_clean_errors, 1);
        kc_log(KC_WARN, "storage", "event=cleaning_failed partition=%s error=%d text=\"%s\"", path,
               job->rc, kc_strerror(job->rc));
    }
    bool again = job->rc != KC_E_CANCELLED;
    atomic_fetch_add(&e->refs, 1);
    ks_clean_free(job); /* may let go of the log, and it of the engine */
    leave(e, again);
    ks_engine_unref(e);
}

/* A group waits for its swap, or the cleaning is over. */
static void on_ready(struct rt_msg *msg)
{
    struct ks_clean_job *job = KC_CONTAINER_OF(msg, struct ks_clean_job, msg);
    struct ks_log *log = job->log;
    if (job->finished) {
        over(job);
        return;
    }
    bool fits = !log->closed && log->state == KS_OPEN && log->epoch == job->epoch &&
                !log->trimming && !atomic_load(&job->cancelled) && find_group(log, job) >= 0;
    if (!fits) {
        job->rc = KC_E_CANCELLED;
        to_thread(log->e, &job->work); /* to remove what it wrote */
        return;
    }
    struct ks_entry *entry = ks_entry_new(log, KS_E_COMPACT);
    entry->cleaning = job;
    log->compacting = true;
    ks_commit_push(log->e, entry);
}

/* The replacement takes the place of the group's segments. */
static void swap_segs(struct ks_log *log, struct ks_clean_job *job)
{
    struct ks_state *st = &log->st;
    int64_t at = find_group(log, job);
    KC_ASSERT(at >= 0); /* nothing but a COMPACT or a TRIM moves them, and neither was let in */
    struct ks_seg *first = &st->segs[at];
    for (uint32_t k = 0; k < job->n_group; k++) {
        st->bytes -= first[k].len;
        ks_file_unref(first[k].file);
        kc_free(first[k].marks);
    }
    *first = job->fresh.segs[0];
    st->bytes += first->len;
    uint32_t rest = st->n_segs - (uint32_t)at - job->n_group;
    memmove(first + 1, first + job->n_group, rest * sizeof(*first));
    st->n_segs -= job->n_group - 1;
    job->fresh.n_segs = 0;
    void_aborts(log, job->swap.end);
    ks_cache_forget(log, job->swap.end);
    ks_index_recount(log);
    ks_ckpt_index(log, first);
}

void ks_clean_after(struct ks_entry *entry)
{
    struct ks_log *log = entry->log;
    struct ks_clean_job *job = entry->cleaning;
    log->compacting = false;
    job->rc = entry->rc;
    if (entry->rc == 0) {
        job->swapped =
            !entry->error; /* the old files may go; a fenced incarnation touches nothing */
        job->clean = KC_MAX(job->clean, job->swap.clean);
        if (log->closed || log->gone) {
            ks_state_fini(&job->fresh); /* the next owner finds it in the chain */
            job->rc = KC_E_CANCELLED;
        } else {
            swap_segs(log, job);
            log->clean = job->swap.clean;
        }
    } else if (entry->rc != KC_E_DEPOSED && entry->rc != KC_E_CANCELLED) {
        log->in_doubt = true;
        log->doubt = job->swap.file;
        ks_state_fini(&job->fresh); /* the record may stand: both stay where they are (ADR 12) */
    }
    ks_deletes_start(log); /* they had to wait */
    to_thread(log->e, &job->work);
}
