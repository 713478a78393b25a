/* Incarnations: the first one, and another after each fence or condemnation (design.md, 4).
 *
 * A lost incarnation is final: clients that wait are told to go elsewhere, everything it held is closed
 * without a seal, its files are not touched again, and after a back-off (1-30 s) a new one is
 * registered, once every data loop is alive. */
#include "cluster/kl_int.h"

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"

struct reg_job {
    struct kl_job job;
    struct kc_uuid incarnation;
};

static int run_register(struct kl_job *job)
{
    struct reg_job *j = KC_CONTAINER_OF(job, struct reg_job, job);
    return ks_register(job->engine, &j->incarnation, &job->err);
}

static void back_off(struct kl_reg *r, int64_t now_ms)
{
    r->backoff_ms =
        r->backoff_ms ? KC_MIN(r->backoff_ms * 2, (int64_t)KL_BACKOFF_MAX_MS) : KL_BACKOFF_MIN_MS;
    r->retry_ms = now_ms + r->backoff_ms;
}

static void registered(struct kl_cluster *k, const struct kc_uuid *inc, int64_t now_ms)
{
    char id[KC_UUID_B64_LEN + 1];
    kc_uuid_to_b64(inc, id);
    kc_log(KC_INFO, "cluster", "event=registered broker=%d incarnation=%s", k->o.broker_id, id);
    k->reg.state = KL_REG_DONE;
    k->reg.incarnation = *inc;
    k->reg.since_ms = now_ms;
    k->incarnations++;
    kl_view_begin(&k->view);
    kl_plan_incarnation(k->plan, inc, now_ms);
    kl_hb_redial(k->hb);
}

static void on_registered(struct kl_job *job)
{
    struct reg_job *j = KC_CONTAINER_OF(job, struct reg_job, job);
    struct kl_cluster *k = job->k;
    int64_t now = kc_mono_ms();
    if (job->rc) {
        struct kc_log_buf lb;
        kc_log(KC_ERROR, "cluster", "event=register_failed error=%s",
               kc_log_str(kc_str_of(kl_job_why(job)), &lb));
        back_off(&k->reg, now);
        k->reg.state = KL_REG_WAITING;
    } else if (!k->closed) {
        registered(k, &j->incarnation, now);
    }
    kc_free(j);
    kl_wake(k);
}

static void begin(struct kl_cluster *k)
{
    struct reg_job *j = kc_zalloc(sizeof(*j));
    *j = (struct reg_job){.job = {.run = run_register, .done = on_registered},
                          .incarnation = kc_uuid_random()};
    k->reg.state = KL_REG_WORKING;
    kl_job_post(&j->job, k);
}

void kl_reg_lost(struct kl_cluster *k, const char *why)
{
    if (k->reg.state != KL_REG_DONE) {
        return;
    }
    int64_t now = kc_mono_ms();
    kc_log(KC_ERROR, "cluster", "event=incarnation_lost broker=%d led=%d reason=\"%s\"",
           k->o.broker_id, kl_plan_led(k->plan), why);
    if (now - k->reg.since_ms > KL_STABLE_MS) {
        k->reg.backoff_ms = 0;
    }
    back_off(&k->reg, now);
    k->reg.state = KL_REG_DROPPING;
    ks_disown(k->o.engine); /* the plan waits for seals, which hang as long as the volume does */
    kl_plan_set_mode(k->plan, KL_DROP, now);
    kl_wake(k);
}

void kl_reg_step(struct kl_cluster *k, int64_t now_ms)
{
    if (k->reg.state == KL_REG_DROPPING && kl_plan_active(k->plan) == 0) {
        k->reg.state = KL_REG_WAITING;
    }
    /* The first registration does not wait for the data loops: it writes one file, no loop's. */
    bool first = k->incarnations == 0;
    struct kh_vitals v;
    kh_vitals_read(&k->vitals, now_ms, &v);
    if (k->reg.state == KL_REG_WAITING && now_ms >= k->reg.retry_ms && !k->drain.on &&
        (first || v.main_alive)) {
        begin(k);
    }
}
