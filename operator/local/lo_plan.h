/* lo_plan.h - what a StatefulSet controller does next: start, stop, replace. Pure.
 *
 * podManagementPolicy Parallel, updateStrategy RollingUpdate with partition, as Kubernetes does it:
 * missing ordinals start at once, surplus ones stop at once, and outdated ones are replaced from the
 * highest down, the next only when every newer one above has been ready for minReadySeconds. */
#ifndef LO_PLAN_H
#define LO_PLAN_H

#include "base/kc_base.h"

struct lo_pod_view {
    bool exists, terminating, ready;
    bool current; /* made from the newest template */
    int64_t ready_since_ms;
};

enum lo_action { LO_NOTHING, LO_START, LO_STOP };

struct lo_wish {
    int32_t replicas, partition;
    int64_t min_ready_ms;
};

/* n views, n actions; n covers both the replicas wanted and the pods there are. */
void lo_plan(const struct lo_wish *w, const struct lo_pod_view *pods, int32_t n, int64_t now_ms,
             enum lo_action *ret);

#endif
