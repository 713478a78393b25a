/* kb_broker.h - one broker process: its parts, their start and their end.
 *
 * Start (R57): listeners bind, data loops run and tick, the health thread answers; then the volume is
 * opened and an incarnation registered on a pool thread; then the control plane starts (of a cluster,
 * or self-led); with its first image connections are accepted. End (R23): SIGTERM begins the drain,
 * listeners close only when it has ended. A second SIGTERM ends the process at once. */
#ifndef KB_BROKER_H
#define KB_BROKER_H

#include "app/kb_cluster.h"
#include "app/kb_config.h"
#include "app/kb_self.h"
#include "handlers/kb_context.h"
#include "health/kh_health.h"
#include "rt/rt_pool.h"

#define KB_VERSION "0.1.0"

enum kb_phase { KB_STARTING, KB_TAKING_OVER, KB_RUNNING, KB_DRAINING, KB_ENDING };

struct kb_broker {
    struct kb_config *config;
    struct kb_app app;
    struct rt_loop control; /* the main thread */
    struct rt_loop *loops[KD_LOOPS_MAX];
    struct kp_listener advertised[KP_LISTENERS_MAX];
    struct kh_source source;
    struct kh_health *health;
    struct rt_pool *pool;
    struct kb_self *self; /* self-led, or */
    struct kb_cluster cluster; /* of a cluster: cluster.control is set */
    struct kb_self_boot boot;
    struct kc_err boot_err;
    int boot_rc;
    struct rt_work boot_work;
    struct rt_msg boot_msg;
    _Atomic(struct ks_engine *) engine; /* for the health thread, as is */
    _Atomic(struct kl_cluster *) control_plane; /* this: NULL before the start, and self-led */
    _Atomic bool listening, accepting;
    _Atomic int phase;
    uv_signal_t signals[3];
    uv_timer_t linger; /* waits for answers under way before the end */
    int64_t linger_until_ms;
    int64_t terminated_ms; /* when the drain was asked for; 0 = it was not */
    int exit_code;
};

/* Runs until the end; returns the exit code. Takes config. */
int kb_broker_run(struct kb_config *config);

/* ---- for /metrics; on the health thread, atomics only ---- */
void kb_write_metrics(struct kb_broker *b, struct kc_out *out);
int kb_broker_state(struct kb_broker *b);
bool kb_broker_ready(struct kb_broker *b);
void kb_stall(struct kb_broker *b, int64_t now_mono_ms, struct ks_stall *ret);

#endif
