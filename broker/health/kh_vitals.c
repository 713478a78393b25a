/* kh_vitals.c - see kh_vitals.h. */
#include "health/kh_vitals.h"

#include <stdio.h>

void kh_vitals_read(const struct kh_vitals_source *src, int64_t now_mono_ms, struct kh_vitals *ret)
{
    *ret = (struct kh_vitals){.loop_ms = -1};
    for (int32_t i = 0; i < src->n_loops; i++) {
        int64_t age = rt_loop_age_ms(src->loops[i], now_mono_ms);
        if (age > ret->loop_ms) {
            ret->loop = i;
            ret->loop_ms = age;
        }
    }
    src->stall(src->ctx, now_mono_ms, &ret->stall);
    ret->main_alive = ret->loop_ms <= KH_LOOP_STALE_MS;
    ret->storage_ok = ret->stall.ms <= KH_STALL_MS;
}

void kh_vitals_text(const struct kh_vitals *v, char *out, size_t cap)
{
    if (cap) {
        out[0] = '\0';
    }
    if (v->loop_ms == INT64_MAX) {
        snprintf(out, cap, "loop %d has not started", v->loop);
    } else if (!v->main_alive) {
        snprintf(out, cap, "wedged loop %d, %lld s", v->loop, (long long)(v->loop_ms / 1000));
    } else if (!v->storage_ok) {
        snprintf(out, cap, "storage stalled %lld s: %s on %s", (long long)(v->stall.ms / 1000),
                 v->stall.operation, v->stall.thread);
    }
}
