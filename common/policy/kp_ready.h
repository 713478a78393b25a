/* kp_ready.h - the terms of a broker's readiness (R37-R45), as a pure function of facts.
 *
 * ready = listeners bound and main alive and not storage stalled and (clustered ? serving : true).
 * serving latches: after the first full takeover of an incarnation a newly assigned partition counts
 * against it only when it has been unopened for more than 10 s (R45). */
#ifndef KP_READY_H
#define KP_READY_H

#include "base/kc_base.h"

struct kp_ready_facts {
    bool listeners_bound;
    bool main_alive; /* every data loop ticked or completed a request within 5 s (R40) */
    bool storage_stalled;
    bool clustered; /* false: self-led, serving is not asked for (R43) */
    bool image_lists_self; /* an applied image names this incarnation as alive (R38) */
    bool latched; /* kp_serving was true before in this incarnation */
    int32_t boot_left; /* of the boot set: neither open, prepared, offline nor given to others */
    /* Since when the oldest assigned partition outside the boot set is unopened; -1 = none. Offline
     * ones do not count (R45). */
    int64_t unopened_ms;
};

/* Why not; a bit per term. 0 = ready. */
enum kp_unready {
    KP_UNREADY_LISTENERS = 1 << 0,
    KP_UNREADY_MAIN = 1 << 1,
    KP_UNREADY_STORAGE = 1 << 2,
    KP_UNREADY_IMAGE = 1 << 3, /* not serving: no image lists this incarnation as alive yet */
    KP_UNREADY_TAKEOVER = 1 << 4, /* not serving: the boot set is not open yet */
    KP_UNREADY_UNOPENED = 1 << 5 /* not serving: a partition is unopened for more than 10 s */
};

/* The serving terms alone, which also go on the heartbeat. 0 = serving. */
uint32_t kp_serving_terms(const struct kp_ready_facts *f, int64_t now_ms);
uint32_t kp_ready_terms(const struct kp_ready_facts *f, int64_t now_ms);
/* The text of one bit: "listeners", "main loop", …; "" for an unknown one. */
const char *kp_unready_text(uint32_t bit);
/* Writes "ready" or "not ready: main loop, takeover", always terminated. */
void kp_ready_text(uint32_t terms, char *out, size_t size);

#endif
