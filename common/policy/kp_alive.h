/* kp_alive.h - who may lead: one pure function (R55). */
#ifndef KP_ALIVE_H
#define KP_ALIVE_H

#include "base/kc_base.h"

/* What is known of one broker at one instant. */
struct kp_liveness {
    int32_t id;
    bool connected; /* a stream is open and young enough, or was a moment ago (R51, W4) */
    bool healthy; /* its last word; false before the first */
    bool ever_healthy; /* this process has said true before (R52) */
    bool draining;
    bool condemned; /* final for this incarnation */
    bool held; /* no verdict yet (design.md, 3): a member stays one */
    uint32_t protocol_version;
};

/* The predicate of R48 and R53 for one broker: connected and healthy and not draining. From
 * protocol version 1 on healthy=false is definitive; an older image that never said true is kept
 * ("unknown, assume alive", R52, W5). */
bool kp_is_alive(const struct kp_liveness *l);

/* Decides the set. member[i] holds the last set on entry and the new one on return. self_id (or
 * KP_NO_BROKER) is pinned (R28, R48). The set is never made empty: if it would be, the last one
 * stands and true is returned (R15); if nobody of that is registered any more, whoever is well but
 * draining stands in (R29). */
bool kp_decide_alive(const struct kp_liveness *l, int32_t n, int32_t self_id, bool *member);

#endif
