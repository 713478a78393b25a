/* Retention by time and size, as Kafka's UnifiedLog.deleteOldSegments: whole files from the front, by a
 * TRIM record before any unlink. If even the active file is due, a new one follows it first, so that
 * all of an idle partition goes in time. Files wholly below the log start go in any case.
 *
 * Decided on the owner's loop, which knows sizes and timestamps; carried out by the log's task. Acks of
 * other logs share turns with it, so only a few TRIMs of a loop are under way at once: a thousand
 * partitions whose files come of age together must not be felt as one long pause. */
#include "storage/ks_int.h"

#include "base/kc_clock.h"
#include "base/kc_mem.h"

enum { TRIMS_AT_ONCE = 4 };

/* Kafka takes a segment without timestamps for as old as its file's last change. Here that is when it
 * was first seen to end where it ends: not before the last append, and anew after a takeover. */
static int64_t latest(struct ks_seg *s, int64_t now)
{
    if (s->max_ts < 0 && (s->seen_ms == 0 || s->seen_end != s->end)) {
        s->seen_ms = now;
        s->seen_end = s->end;
    }
    return s->max_ts < 0 ? s->seen_ms : s->max_ts;
}

/* The offset that retention asks for as log start; *ret_all: even the active file is due. */
static int64_t due(struct ks_log *log, int64_t now, bool *ret_all)
{
    const struct ks_state *st = &log->st;
    const struct ks_log_config *cfg = &log->cfg;
    int64_t start = st->start;
    uint64_t bytes = st->bytes;
    *ret_all = false;
    for (uint32_t i = 0; i < st->n_segs && !cfg->compact_only; i++) {
        struct ks_seg *s = &st->segs[i];
        if (!s->ts_known && cfg->retention_ms >= 0) {
            ks_index_want(log, i); /* its timestamps are not known yet */
            break;
        }
        bool old = cfg->retention_ms >= 0 && now - latest(s, now) > cfg->retention_ms;
        bool large = cfg->retention_bytes >= 0 && bytes - s->len >= (uint64_t)cfg->retention_bytes;
        if (s->len == 0 || (!old && !large)) {
            break;
        }
        bytes -= s->len;
        start = KC_MAX(start, s->end);
        *ret_all = i + 1 == st->n_segs;
    }
    return start;
}

static void consider(struct ks_log *log, int64_t now)
{
    if (log->state != KS_OPEN || log->trimming || log->compacting) {
        return;
    }
    bool all;
    int64_t start = due(log, now, &all);
    struct ks_trim *tr = ks_trim_new(log, start, all && start == log->end);
    if (tr->n && ks_ckpt_covers(log, start)) {
        tr->retained = true;
        log->shard->retention_trims++;
        ks_trim_start(log, tr);
    } else {
        kc_free(tr);
    }
}

/* Goes on with the round. A log that was looked at goes to the end of the list: who comes or goes
 * meanwhile is seen by this round or by the next one. */
static void look_on(struct ks_shard *s)
{
    int64_t now = kc_wall_ms();
    for (; s->retention_left && s->retention_trims < TRIMS_AT_ONCE && !kc_list_empty(&s->logs);
         s->retention_left--) {
        struct ks_log *log = KC_LIST_ENTRY(s->logs.next, struct ks_log, in_shard);
        kc_list_del(&log->in_shard);
        kc_list_add_tail(&s->logs, &log->in_shard);
        consider(log, now);
    }
}

void ks_retention_trimmed(struct ks_shard *s)
{
    s->retention_trims--;
    look_on(s);
}

struct round {
    struct rt_msg msg;
    struct ks_shard *shard;
};

static void on_round(struct rt_msg *msg)
{
    struct round *r = KC_CONTAINER_OF(msg, struct round, msg);
    uint32_t n = 0;
    KC_LIST_EACH(it, nx, &r->shard->logs)
    {
        n++;
    }
    r->shard->retention_left = n;
    look_on(r->shard);
    ks_shard_unref(r->shard);
    kc_free(r);
}

void ks_retention_post(struct ks_engine *e)
{
    pthread_mutex_lock(&e->lock);
    for (struct ks_shard *s = e->shards; s; s = s->next) {
        if (s->n_open == 0) {
            continue;
        }
        struct round *r = kc_zalloc(sizeof(*r));
        r->msg.fn = on_round;
        r->shard = s;
        atomic_fetch_add(&s->refs, 1);
        rt_post(s->loop, &r->msg);
    }
    pthread_mutex_unlock(&e->lock);
}
