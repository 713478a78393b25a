/* kp_drain.h - how long a broker may take to leave: one rule for the broker that drains and for the
 * operator that waits for it. Pure; any thread. */
#ifndef KP_DRAIN_H
#define KP_DRAIN_H

#include <stdint.h>

enum { KP_GRACE_DEFAULT_S = 30 }; /* Kubernetes', where nothing else is said */

/* The parts of a pod's terminationGracePeriodSeconds, after which the kubelet kills it. */
struct kp_drain {
    int64_t drain_ms; /* R29: to hand over by moves, from SIGTERM on: min(grace - 5 s, 25 s) */
    int64_t condemn_ms; /* the operator's patience, from the first word of the drain on: a little
                         * longer, so that a broker at its deadline seals before it is fenced */
    int64_t leave_ms; /* then, to seal what is left */
    int64_t exit_ms; /* after SIGTERM nothing is waited for any more: the rest is for the exit */
};

/* Of a grace too short for R29's five seconds, half is for the drain. Negative counts as none. */
struct kp_drain kp_drain_of(int64_t grace_s);

#endif
