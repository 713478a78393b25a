#include "local/lo_plan.h"

static bool available(const struct lo_pod_view *p, const struct lo_wish *w, int64_t now_ms)
{
    return p->exists && !p->terminating && p->ready &&
           now_ms - p->ready_since_ms >= w->min_ready_ms;
}

void lo_plan(const struct lo_wish *w, const struct lo_pod_view *pods, int32_t n, int64_t now_ms,
             enum lo_action *ret)
{
    for (int32_t i = 0; i < n; i++) {
        const struct lo_pod_view *p = &pods[i];
        ret[i] = LO_NOTHING;
        if (i < w->replicas && !p->exists) {
            ret[i] = LO_START;
        } else if (i >= w->replicas && p->exists && !p->terminating) {
            ret[i] = LO_STOP;
        }
    }
    for (int32_t i = w->replicas - 1; i >= w->partition && i >= 0; i--) {
        const struct lo_pod_view *p = &pods[i];
        if (p->exists && !p->terminating && !p->current) {
            ret[i] = LO_STOP;
            return;
        }
        if (!available(p, w, now_ms)) {
            return;
        }
    }
}
