/* kl_int.h - the inside of kl_cluster, shared by the files of broker/cluster. */
#ifndef KL_INT_H
#define KL_INT_H

#include "base/kc_arena.h"
#include "cluster/kl_cluster.h"
#include "cluster/kl_condemned.h"
#include "cluster/kl_hb.h"
#include "cluster/kl_plan.h"
#include "cluster/kl_source.h"
#include "cluster/kl_view.h"
#include "health/kh_vitals.h"
#include "rt/rt_pool.h"

enum {
    KL_TICK_MS = 100,
    KL_FIRST_STATUS_MS = 5000, /* W6 */
    KL_BACKOFF_MIN_MS = 1000, /* between incarnations: 1-30 s */
    KL_BACKOFF_MAX_MS = 30000,
    KL_STABLE_MS = 60000 /* an incarnation that lived so long forgives the ones before */
};

enum kl_reg_state {
    KL_REG_WAITING, /* for retry_ms, and for every data loop to be alive */
    KL_REG_WORKING, /* ks_register on the pool */
    KL_REG_DONE,
    KL_REG_DROPPING /* fenced or condemned: letting go of what the old incarnation held */
};

struct kl_reg {
    enum kl_reg_state state;
    struct kc_uuid incarnation; /* of KL_REG_DONE */
    int64_t retry_ms, backoff_ms, since_ms;
};

struct kl_drain {
    bool on;
    int64_t deadline_ms, leave_deadline_ms, told_ms;
    bool leaving, done;
};

struct kl_topics; /* kl_topics.c */
struct kl_admin; /* kl_admin.c */

struct kl_cluster {
    struct rt_loop *loop;
    struct kl_opts o; /* strings live in the arena */
    struct kc_arena strings;
    struct kc_uuid process_id;
    int64_t started_ms;
    struct rt_pool *dns, *io, *volume;
    struct rt_loop *loops[KD_LOOPS_MAX];
    struct kh_vitals_source vitals;
    struct kl_plan *plan;
    struct kl_view view;
    struct kl_hb *hb;
    struct kl_source *source;
    struct kl_topics *topics;
    struct kl_admin *admin;
    struct kl_reg reg;
    struct kl_drain drain;
    uv_timer_t tick, soon;
    bool closed;
    struct rt_msg begin;
    struct kl_condemned condemned;
    /* What the last status said. */
    bool said_serving, said_healthy;
    uint64_t said_seq;
    uint64_t takeovers, seals, incarnations;
    struct kc_uuid slot_topics[KP_TXN_SLOTS + 1];
    uint64_t inventory_revision;
    int64_t image_fresh_ms;
    /* For other threads. */
    _Atomic bool a_serving;
    _Atomic int32_t a_streams, a_active, a_led, a_pending, a_blocked, a_failed;
    _Atomic uint64_t a_term, a_generation, a_takeovers, a_seals, a_incarnations, a_sent, a_admin;
    _Atomic int64_t a_fresh_ms;
};

/* kl_control.c */
void kl_wake(struct kl_cluster *k); /* look at everything again, soon */
void kl_apply_view(struct kl_cluster *k); /* the merged image or its standing changed */

/* kl_exec.c: actions of the plan. */
void kl_exec(struct kl_cluster *k, const struct kl_action *a);
/* What is still open when the process ends: only our memory. */
void kl_exec_forget(struct kl_cluster *k);
/* Config changes reach open logs; old may be NULL. */
void kl_exec_image(struct kl_cluster *k, const struct ki_image *old, const struct ki_image *im);

/* kl_job.c: work on the volume. Part of a struct with what the work is about. */
struct kl_job {
    int (*run)(struct kl_job *j); /* on the volume's pool; may fill err */
    void (*done)(struct kl_job *j); /* on the control loop, also when k is closed; frees it */
    struct kl_cluster *k; /* the control loop's */
    struct ks_engine *engine;
    int rc; /* of run */
    struct kc_err err;
    struct rt_loop *loop;
    struct rt_work work;
    struct rt_msg msg;
};
/* run and done are set; takes j. */
void kl_job_post(struct kl_job *j, struct kl_cluster *k);
/* What made it fail, in words. */
const char *kl_job_why(const struct kl_job *j);

/* kl_register.c: incarnations. */
void kl_reg_step(struct kl_cluster *k, int64_t now_ms);
void kl_reg_lost(struct kl_cluster *k, const char *why); /* fenced or condemned */

/* kl_drain.c */
void kl_drain_step(struct kl_cluster *k, int64_t now_ms);

/* kl_report.c: callbacks of the streams. */
struct kl_hb_callbacks kl_report_callbacks(struct kl_cluster *k);

/* kl_topics.c: topics/<id>/meta, tombstones, the inventory. */
struct kl_topics *kl_topics_new(struct kl_cluster *k);
void kl_topics_free(struct kl_topics *t);
void kl_topics_image(struct kl_topics *t, const struct ki_image *old, const struct ki_image *im);
void kl_topics_step(struct kl_topics *t, int64_t now_ms);
void kl_topics_inventory(struct kl_topics *t, uint64_t stream);
/* Topics removed and still tombstones in the image: fills up to cap ids, returns how many. */
int32_t kl_topics_removed(const struct kl_topics *t, struct kc_uuid *ret, int32_t cap);

/* kl_admin.c */
struct kl_admin *kl_admin_new(struct kl_cluster *k);
void kl_admin_free(struct kl_admin *a); /* settles what is left */
void kl_admin_active(struct kl_admin *a, uint64_t stream);
void kl_admin_result(struct kl_admin *a, const Kaas__Heartbeat__AdminResult *r);
void kl_admin_step(struct kl_admin *a, int64_t now_ms);

/* kl_health.c */
void kl_health_init(struct kl_cluster *k);

#endif
