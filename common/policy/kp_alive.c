#include "policy/kp_alive.h"

#include "policy/kp_types.h"

bool kp_is_alive(const struct kp_liveness *l)
{
    bool healthy = l->healthy || (l->protocol_version == 0 && !l->ever_healthy);
    return l->connected && healthy && !l->draining && !l->condemned;
}

bool kp_decide_alive(const struct kp_liveness *l, int32_t n, int32_t self_id, bool *member)
{
    KC_ASSERT(n <= KP_BROKERS_MAX);
    bool next[KP_BROKERS_MAX];
    bool any = false;
    for (int32_t i = 0; i < n; i++) {
        next[i] = l[i].id == self_id || kp_is_alive(&l[i]) || (l[i].held && member[i]);
        any = any || next[i];
    }
    if (!any) {
        return true;
    }
    for (int32_t i = 0; i < n; i++) {
        member[i] = next[i];
    }
    return false;
}
