/* Retention by time and size: whole files from the front, by a TRIM record before any unlink.
 *
 * Decided on the owner's loop, which knows sizes and timestamps; carried out by the log's task. The
 * active file never goes. */
#include "storage/ks_int.h"

#include "base/kc_clock.h"
#include "base/kc_mem.h"

static void consider(struct ks_log *log, int64_t now)
{
    const struct ks_state *st = &log->st;
    const struct ks_log_config *cfg = &log->cfg;
    if (log->state != KS_OPEN || log->trimming || log->compacting) {
        return;
    }
    int64_t start = st->start;
    uint64_t bytes = st->bytes;
    for (uint32_t i = 0; i + 1 < st->n_segs && !cfg->compact_only; i++) {
        const struct ks_seg *s = &st->segs[i];
        bool old = cfg->retention_ms >= 0 && s->max_ts >= 0 && now - s->max_ts > cfg->retention_ms;
        bool large = cfg->retention_bytes >= 0 && bytes - s->len >= (uint64_t)cfg->retention_bytes;
        if (!old && !large) {
            break;
        }
        bytes -= s->len;
        start = KC_MAX(start, s->end);
    }
    struct ks_trim *tr = ks_trim_new(log, start);
    if (tr->n) {
        ks_trim_start(log, tr);
    } else {
        kc_free(tr);
    }
}

struct round {
    struct rt_msg msg;
    struct ks_shard *shard;
};

static void on_round(struct rt_msg *msg)
{
    struct round *r = KC_CONTAINER_OF(msg, struct round, msg);
    int64_t now = kc_wall_ms();
    KC_LIST_EACH(it, nx, &r->shard->logs)
    {
        consider(KC_LIST_ENTRY(it, struct ks_log, in_shard), now);
    }
    ks_shard_unref(r->shard);
    kc_free(r);
}

void ks_retention_post(struct ks_engine *e)
{
    pthread_mutex_lock(&e->lock);
    for (struct ks_shard *s = e->shards; s; s = s->next) {
        struct round *r = kc_zalloc(sizeof(*r));
        r->msg.fn = on_round;
        r->shard = s;
        atomic_fetch_add(&s->refs, 1);
        rt_post(s->loop, &r->msg);
    }
    pthread_mutex_unlock(&e->lock);
}
