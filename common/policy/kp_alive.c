#include "policy/kp_alive.h"

#include "policy/kp_types.h"

/* Fit to lead but for its draining. */
static bool well(const struct kp_liveness *l)
{
    bool healthy = l->healthy || (l->protocol_version == 0 && !l->ever_healthy);
    return l->connected && healthy && !l->condemned;
}

bool kp_is_alive(const struct kp_liveness *l)
{
    return well(l) && !l->draining;
}

bool kp_decide_alive(const struct kp_liveness *l, int32_t n, int32_t self_id, bool *member)
{
    KC_ASSERT(n <= KP_BROKERS_MAX);
    bool next[KP_BROKERS_MAX];
    bool any = false, stands = false;
    for (int32_t i = 0; i < n; i++) {
        next[i] = l[i].id == self_id || kp_is_alive(&l[i]) || (l[i].held && member[i]);
        any = any || next[i];
        stands = stands || member[i];
    }
    for (int32_t i = 0; i < n && !any && !stands; i++) {
        member[i] = well(&l[i]);
    }
    if (!any) {
        return true;
    }
    for (int32_t i = 0; i < n; i++) {
        member[i] = next[i];
    }
    return false;
}
