/* kp_ready.h - the terms of a broker's readiness (R37-R45), as a pure function of facts.
 *
 * ready = listeners bound and main alive and not storage stalled and (clustered ? serving : true).
 * serving latches: after the first full takeover of an incarnation a newly assigned partition counts
 * against it only when it has been unopened for more than 10 s (R45). */
#ifndef KP_READY_H
#define KP_READY_H

#include "base/kc_base.h"

enum { KP_UNOPENED_MS = 10000 }; /* R45 */

/* Of the takeover of one incarnation. */
struct kp_serving_facts {
    bool image_lists_self; /* a confirmed image names this incarnation as alive (R38) */
    bool latched; /* it has served before */
    int32_t boot_left; /* of the boot set: neither open, prepared, offline nor given to others */
    /* Since when the oldest partition assigned to it is wanted and unopened; -1 = none. Offline ones
     * do not count (R45). */
    int64_t unopened_ms;
};

struct kp_ready_facts {
    bool listeners_bound;
    bool main_alive; /* every data loop ticked or completed a request within 5 s (R40) */
    bool storage_stalled;
    bool clustered; /* false: self-led, serving is not asked for (R43) */
    bool serving;
};

/* Why not; a bit per term. */
enum kp_unready {
    KP_UNREADY_LISTENERS = 1 << 0,
    KP_UNREADY_MAIN = 1 << 1,
    KP_UNREADY_STORAGE = 1 << 2,
    KP_UNREADY_SERVING = 1 << 3,
    KP_UNREADY_IMAGE = 1 << 4, /* no image lists this incarnation as alive yet */
    KP_UNREADY_TAKEOVER = 1 << 5, /* the boot set is not open yet */
    KP_UNREADY_UNOPENED = 1 << 6 /* a partition is unopened for more than 10 s */
};

/* 0 = serving; else one of the last three. The word that goes on the heartbeat, too. */
uint32_t kp_serving_terms(const struct kp_serving_facts *f, int64_t now_ms);
/* 0 = ready; else the first four, as they apply. */
uint32_t kp_ready_terms(const struct kp_ready_facts *f);

#endif
