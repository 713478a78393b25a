/* kp_roll.h - the gate of a rollout (design.md, 7): how far updateStrategy.partition may go down.
 *
 * The StatefulSet replaces pods of ordinals >= partition. Kubernetes alone would take a serving pod
 * while another one is down; so the operator opens the gate by one pod at a time, and only when
 * losing that pod leaves every other broker serving (R57, R60). Pure. */
#ifndef KP_ROLL_H
#define KP_ROLL_H

#include "base/kc_base.h"

struct kp_roll_pod {
    bool updated; /* of the newest template */
    bool serving; /* /readyz 200 */
    bool available; /* serving for minReadySeconds without a break (R59) */
    bool failing; /* its container cannot start, or keeps ending */
    int64_t down_ms; /* not serving for so long */
};

/* A pod that is waited for and has been down for so long halts the rollout: it is told as halted, with
 * the reason. It goes on by itself when the pod serves, or with a corrected template. */
enum { KP_ROLL_HALT_MS = 180000, KP_ROLL_FAILING_MS = 10000 };

struct kp_roll_in {
    int32_t replicas;
    const struct kp_roll_pod *pods; /* by ordinal; a missing pod is all false */
    int32_t partition; /* the gate as it stands */
    bool failback_done; /* every partition is at home again */
    bool force; /* annotation kaas.dev/force-rollout */
};

enum kp_roll_why {
    KP_ROLL_DONE, /* every pod is of the newest template and available */
    KP_ROLL_OPEN, /* the gate opens for `broker` */
    KP_ROLL_REPLACING, /* the StatefulSet is at work on `broker` */
    KP_ROLL_UNAVAILABLE, /* `broker` is up to date but not available (yet): the rollout halts */
    KP_ROLL_UNSERVING, /* `broker`, outdated, does not serve, and a serving one would go first */
    KP_ROLL_FAILBACK /* partitions are not all at home yet */
};

struct kp_roll_out {
    int32_t partition; /* the gate as it should be */
    enum kp_roll_why why;
    int32_t broker; /* -1 = none in particular */
    bool halted; /* waits for `broker`, which has been down for too long (R60) */
};

void kp_roll(const struct kp_roll_in *in, struct kp_roll_out *ret);
/* A sentence for the Progressing condition, without the broker's name: "waits for …". */
const char *kp_roll_text(enum kp_roll_why why);

#endif
