/* kh_health.h - readiness, liveness and metrics, answered on a thread of their own (R37 to R42).
 *
 * The health thread reads atomics and calls the functions below; it takes no lock and no allocator
 * path that a data loop can hold, so that it answers while every data loop is blocked (R39).
 *
 * /readyz  200 or 503: listeners bound, every data loop alive, storage not stalled, and in a cluster
 *          serving. The body is "ready" or "not ready" and a line a term.
 * /healthz 200, unless a data loop has been dead for more than a minute: a storage stall never
 *          restarts the pod, nor does being busy.
 * /metrics Prometheus text. */
#ifndef KH_HEALTH_H
#define KH_HEALTH_H

#include "base/kc_error.h"
#include "base/kc_out.h"
#include "health/kh_vitals.h"
#include "policy/kp_ready.h"

/* The terms of readiness (R37), and why one is false. */
struct kh_terms {
    bool listening;
    struct kh_vitals vitals;
    bool cluster; /* serving is asked for (R43) */
    bool serving;
};
static inline bool kh_ready(const struct kh_terms *t)
{
    struct kp_ready_facts f = {.listeners_bound = t->listening,
                               .main_alive = t->vitals.main_alive,
                               .storage_stalled = !t->vitals.storage_ok,
                               .clustered = t->cluster,
                               .serving = t->serving};
    return kp_ready_terms(&f) == 0;
}

/* Everything is called on the health thread and must only read atomics. */
struct kh_source {
    struct kh_vitals_source vitals;
    bool (*listening)(void *ctx);
    /* Why the volume takes no bytes; NULL: it does. Says so in the body and is no term: reads are
     * served. */
    const char *(*volume)(void *ctx);
    bool cluster;
    bool (*serving)(void *ctx);
    void (*metrics)(void *ctx, struct kc_out *out);
    void *ctx;
};

struct kh_health;

/* Copies src. port 0 picks one. */
int kh_start(const char *bind, uint16_t port, const struct kh_source *src, struct kh_health **ret,
             struct kc_err *err);
uint16_t kh_port(const struct kh_health *h);
void kh_stop(struct kh_health *h); /* NULL allowed */

/* The terms now. [any] */
void kh_terms(const struct kh_source *src, int64_t now_mono_ms, struct kh_terms *ret);

#endif
