/* Once a second while logs are open: the fence check that keeps reads honest, recoveries that wait
 * for room or for a healthy file, syncs that flush.ms asks for, and retention. Else now and then. */
#include "storage/ks_int.h"

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "rt/rt_thread.h"

static void check_fence(struct ks_engine *e)
{
    pthread_mutex_lock(&e->lock);
    struct ks_inc *inc = e->inc ? ks_inc_ref(e->inc) : NULL;
    pthread_mutex_unlock(&e->lock);
    if (inc && !atomic_load(&inc->fenced) &&
        kc_mono_ms() - atomic_load(&e->checked_ms) >= KS_WATCH_MS / 2) {
        ks_engine_check(e, inc);
    }
    ks_inc_unref(inc);
}

/* Logs whose recovery failed: the commit thread starts the next attempt, which owns the flag. */
static void retry(struct ks_engine *e)
{
    int64_t now = kc_mono_ms();
    struct kc_map_iter it = {0};
    pthread_mutex_lock(&e->lock);
    for (struct kc_map_entry *m; (m = kc_map_next(&e->logs, &it));) {
        struct ks_log *log = m->value;
        int64_t at = atomic_load(&log->c_retry_at_ms);
        if (at && at <= now) {
            if (atomic_exchange(&log->c_retry_at_ms, 0)) {
                atomic_fetch_sub(&e->n_retries, 1);
            }
            ks_commit_push(e, ks_entry_new(log, KS_E_RETRY));
        }
    }
    pthread_mutex_unlock(&e->lock);
}

/* Logs whose acked records have waited for a sync long enough. */
static void flush(struct ks_engine *e)
{
    int64_t now = kc_mono_ms();
    struct kc_map_iter it = {0};
    pthread_mutex_lock(&e->lock);
    for (struct kc_map_entry *m; (m = kc_map_next(&e->logs, &it));) {
        struct ks_log *log = m->value;
        int64_t at = atomic_load(&log->c_flush_at_ms);
        if (at && at <= now && !atomic_load(&log->leaving)) {
            atomic_store(&log->c_flush_at_ms, 0); /* asked for once */
            ks_commit_push(e, ks_entry_new(log, KS_E_FLUSH));
        }
    }
    pthread_mutex_unlock(&e->lock);
}

/* Sleeps until the next round; true: stop. */
static bool rest(struct ks_engine *e)
{
    pthread_mutex_lock(&e->w_lock);
    /* Without logs there is only the volume itself to look at. */
    int64_t pause = atomic_load(&e->n_logs) == 0 ? KS_IDLE_WATCH_MS : KS_WATCH_MS;
    struct timespec until = rt_in_ms(pause);
    if (!e->w_stop && !e->w_again) {
        pthread_cond_timedwait(&e->w_more, &e->w_lock, &until);
    }
    e->w_again = false;
    bool stop = e->w_stop;
    pthread_mutex_unlock(&e->w_lock);
    return stop;
}

static void *watch_main(void *arg)
{
    struct ks_engine *e = arg;
    rt_thread_enter("ks-watch");
    for (int64_t looked_ms = INT64_MIN / 2;;) {
        check_fence(e);
        ks_framed_expire(e, kc_mono_ms());
        bool full = ks_reserve_tick(e);
        if (atomic_load(&e->n_retries) > 0 && ks_reserve_may_retry(e)) {
            retry(e);
        }
        if (atomic_load(&e->relaxed)) {
            flush(e);
        }
        /* A wait for the next look ends at a round; half a round early is nearer than half a late one. */
        int64_t now = kc_mono_ms();
        int64_t pause = atomic_load(&e->retention_check_ms);
        pause = full ? KC_MIN(pause, (int64_t)KS_FULL_CHECK_MS) : pause; /* room is wanted now */
        if (now - looked_ms + KS_WATCH_MS / 2 >= pause) {
            looked_ms = now;
            ks_retention_post(e);
        }
        ks_cleaner_tick(e);
        ks_tidy_tick(e);
        if (rest(e)) {
            return NULL;
        }
    }
}

void ks_watch_wake(struct ks_engine *e)
{
    pthread_mutex_lock(&e->w_lock);
    e->w_again = true;
    pthread_cond_signal(&e->w_more);
    pthread_mutex_unlock(&e->w_lock);
}

void ks_watch_init(struct ks_engine *e)
{
    pthread_mutex_init(&e->w_lock, NULL);
    rt_cond_init(&e->w_more);
}

void ks_watch_fini(struct ks_engine *e)
{
    pthread_cond_destroy(&e->w_more);
    pthread_mutex_destroy(&e->w_lock);
}

int ks_watch_start(struct ks_engine *e)
{
    return -pthread_create(&e->watch_thread, NULL, watch_main, e);
}

void ks_watch_stop(struct ks_engine *e)
{
    pthread_mutex_lock(&e->w_lock);
    e->w_stop = true;
    pthread_cond_signal(&e->w_more);
    pthread_mutex_unlock(&e->w_lock);
    pthread_join(e->watch_thread, NULL);
}
