/* main_alive and storage stalls (R40, R46). [any thread]: reads atomics of loops and engine. */
#include "cluster/kl_int.h"

#include <stdio.h>

bool kl_loops_ticked(const struct kl_cluster *k)
{
    for (int32_t i = 0; i < kd_n_loops(k->o.data); i++) {
        if (rt_loop_age_ms(kd_loop(k->o.data, i), INT64_MAX / 2) == INT64_MAX) {
            return false;
        }
    }
    return true;
}

/* Every data loop turned, or completed a request, within 5 s; one that never did is not alive. */
bool kl_main_alive(const struct kl_cluster *k, int64_t now_ms, char *why, size_t cap)
{
    for (int32_t i = 0; i < kd_n_loops(k->o.data); i++) {
        int64_t age = rt_loop_age_ms(kd_loop(k->o.data, i), now_ms);
        if (age > KL_MAIN_STALE_MS) {
            if (age == INT64_MAX) {
                snprintf(why, cap, "loop %d has not started", i);
            } else {
                snprintf(why, cap, "wedged loop %d, %lld s", i, (long long)(age / 1000));
            }
            return false;
        }
    }
    return true;
}

bool kl_healthy(const struct kl_cluster *k, int64_t now_mono_ms, char *why, size_t cap)
{
    if (cap) {
        why[0] = '\0';
    }
    if (!kl_main_alive(k, now_mono_ms, why, cap)) {
        return false;
    }
    int64_t stalled = ks_stalled_ms(k->o.engine, now_mono_ms);
    if (stalled > KL_STALL_MS) {
        snprintf(why, cap, "storage stalled %lld s", (long long)(stalled / 1000));
        return false;
    }
    return true;
}
