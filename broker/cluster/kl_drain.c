/* SIGTERM: tell, hand over, seal, tell again (R23-R29). Control loop. */
#include "cluster/kl_int.h"

#include "base/kc_clock.h"
#include "base/kc_log.h"

enum { FLUSH_MS = 300 }; /* for the last status to leave the socket */

void kl_drain(struct kl_cluster *k)
{
    if (k->drain.on) {
        return;
    }
    int64_t now = kc_mono_ms();
    k->drain.on = true;
    k->drain.deadline_ms = now + k->o.drain_ms;
    kc_log(KC_INFO, "cluster", "event=draining led=%d deadline_ms=%lld", kl_plan_led(k->plan),
           (long long)k->o.drain_ms);
    kl_plan_set_mode(k->plan, KL_DRAIN, now);
    kl_hb_changed(k->hb); /* before anything else is torn down */
    kl_wake(k);
}

static bool others_alive(const struct kl_cluster *k)
{
    const struct ki_image *im = k->view.merged;
    for (int32_t i = 0; im && i < im->n_rows; i++) {
        if (im->rows[i].id != k->o.broker_id && im->rows[i].health == KP_ALIVE) {
            return true;
        }
    }
    return false;
}

static void leave(struct kl_cluster *k, int64_t now_ms, const char *why)
{
    kc_log(KC_INFO, "cluster", "event=leaving led=%d reason=\"%s\"", kl_plan_led(k->plan), why);
    k->drain.leaving = true;
    k->drain.leave_deadline_ms = now_ms + k->o.leave_ms;
    kl_plan_set_mode(k->plan, KL_LEAVE, now_ms);
    kl_wake(k);
}

void kl_drain_step(struct kl_cluster *k, int64_t now_ms)
{
    struct kl_drain *d = &k->drain;
    if (!d->on || d->done) {
        return;
    }
    int32_t held = kl_plan_active(k->plan);
    if (held && !d->leaving) {
        if (!others_alive(k)) {
            leave(k, now_ms, "no other broker is alive"); /* R29 */
        } else if (now_ms >= d->deadline_ms) {
            leave(k, now_ms, "drain deadline");
        }
        return;
    }
    if (held && now_ms < d->leave_deadline_ms) {
        return;
    }
    if (d->told_ms == 0) { /* nothing is led any more: say so, then go */
        d->told_ms = now_ms;
        kl_hb_changed(k->hb);
        return;
    }
    if (now_ms - d->told_ms < 2 * KL_TICK_MS ||
        (!kl_hb_flushed(k->hb) && now_ms - d->told_ms < FLUSH_MS)) {
        return;
    }
    d->done = true;
    kc_log(KC_INFO, "cluster", "event=drained left_open=%d", held);
    k->o.on_drained(k->o.ctx);
}
