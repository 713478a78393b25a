/* kh_vitals.h - whether this broker works: every data loop alive, the volume answering (R40, R46).
 *
 * One judgement for all who ask: /readyz, /healthz, the heartbeat and the metrics never disagree about
 * a wedge. Busy, wedged and stalled are three things: a loop that turns or completes requests is busy
 * at worst (R42), one that did neither for 5 s is wedged, and a file operation under way for longer
 * stalls the storage. Everything here reads atomics only. [any] */
#ifndef KH_VITALS_H
#define KH_VITALS_H

#include "rt/rt_loop.h"
#include "storage/ks_engine.h"

enum {
    KH_LOOP_STALE_MS = 5000, /* R40: main_alive */
    KH_LOOP_DEAD_MS = 60 * 1000, /* liveness: /healthz */
    KH_STALL_MS = 5000 /* a file operation under way for longer is a storage stall */
};

struct kh_vitals_source {
    struct rt_loop *const *loops; /* the data loops */
    int32_t n_loops;
    void (*stall)(void *ctx, int64_t now_mono_ms, struct ks_stall *ret);
    void *ctx;
};

struct kh_vitals {
    bool main_alive; /* every data loop turned, or completed a request, within 5 s */
    bool storage_ok;
    int32_t loop; /* the least lively one */
    int64_t loop_ms; /* its age; INT64_MAX = it never turned */
    struct ks_stall stall;
};
void kh_vitals_read(const struct kh_vitals_source *src, int64_t now_mono_ms, struct kh_vitals *ret);

/* R46: the bit of the heartbeat. */
static inline bool kh_healthy(const struct kh_vitals *v)
{
    return v->main_alive && v->storage_ok;
}

/* What is wrong, named: "wedged loop 1, 7 s", "storage stalled 7 s: datasync on ks-sync"; "" if
 * nothing is. */
void kh_vitals_text(const struct kh_vitals *v, char *out, size_t cap);

#endif
