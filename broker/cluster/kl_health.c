/* main_alive and storage stalls (R40, R46), as broker/health judges them: a heartbeat and /readyz say
 * the same. [any thread]: reads atomics of loops and engine. */
#include "cluster/kl_int.h"

static void stall(void *ctx, int64_t now_mono_ms, struct ks_stall *ret)
{
    ks_stall_read(((struct kl_cluster *)ctx)->o.engine, now_mono_ms, ret);
}

void kl_health_init(struct kl_cluster *k)
{
    for (int32_t i = 0; i < kd_n_loops(k->o.data); i++) {
        k->loops[i] = kd_loop(k->o.data, i);
    }
    k->vitals = (struct kh_vitals_source){k->loops, kd_n_loops(k->o.data), stall, k};
}

bool kl_healthy(const struct kl_cluster *k, int64_t now_mono_ms, char *why, size_t cap)
{
    struct kh_vitals v;
    kh_vitals_read(&k->vitals, now_mono_ms, &v);
    kh_vitals_text(&v, why, cap);
    return kh_healthy(&v);
}
