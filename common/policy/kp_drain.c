#include "policy/kp_drain.h"

#include "base/kc_base.h"

enum { DRAIN_MAX_MS = 25000, SEALS_MS = 5000 };

struct kp_drain kp_drain_of(int64_t grace_s)
{
    int64_t grace_ms = KC_MIN(KC_MAX(grace_s, (int64_t)0), (int64_t)INT32_MAX) * 1000;
    int64_t drain_ms = KC_MIN(KC_MAX(grace_ms - SEALS_MS, grace_ms / 2), (int64_t)DRAIN_MAX_MS);
    int64_t rest_ms = KC_MIN(grace_ms - drain_ms, (int64_t)SEALS_MS);
    return (struct kp_drain){.drain_ms = drain_ms,
                             .condemn_ms = drain_ms + rest_ms / 5,
                             .leave_ms = rest_ms * 3 / 5,
                             .exit_ms = drain_ms + rest_ms * 4 / 5};
}
