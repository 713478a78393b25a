/* kp_lease.h - who of the operators is active: leader election over a Lease object, as pure steps.
 *
 * Nobody's clock is compared with anybody else's: a holder has expired when this candidate has seen
 * no change of the Lease for as long as the holder said it lasts. A leader stops being one by its
 * own clock, renew_deadline after the start of its last successful write, which is before anyone
 * else can think so (design.md, 3). */
#ifndef KP_LEASE_H
#define KP_LEASE_H

#include "base/kc_base.h"

enum { KP_HOLDER_MAX = 253, KP_STAMP_MAX = 63 };

struct kp_lease_opts {
    int64_t lease_ms; /* 4 s */
    int64_t renew_deadline_ms; /* 3 s; must be below lease_ms */
    int64_t retry_ms; /* 0.5 s */
};

/* What the Lease object says. renewed is opaque: only its change matters. */
struct kp_lease_doc {
    char holder[KP_HOLDER_MAX + 1]; /* "" = released */
    char renewed[KP_STAMP_MAX + 1]; /* spec.renewTime */
    int64_t duration_ms; /* spec.leaseDurationSeconds; <= 0 reads as ours */
    int64_t transitions;
};

struct kp_lease {
    struct kp_lease_opts o;
    char me[KP_HOLDER_MAX + 1];
    bool leader;
    bool busy; /* a request is under way */
    bool stale; /* what was seen may be old: read before writing */
    bool exists, seen; /* of the object, as read last */
    struct kp_lease_doc doc;
    int64_t changed_ms; /* local time of the last observed change */
    int64_t renewed_ms; /* local time at which the last successful write began */
    int64_t next_ms;
};

enum kp_lease_do {
    KP_LEASE_WAIT,
    KP_LEASE_READ, /* get the object, then kp_lease_seen or kp_lease_failed */
    KP_LEASE_CREATE, /* create it with us as holder, then kp_lease_wrote or kp_lease_failed */
    KP_LEASE_UPDATE /* compare-and-swap with us as holder, likewise */
};

void kp_lease_init(struct kp_lease *l, const struct kp_lease_opts *o, const char *me);
/* What to do now; anything but WAIT marks a request as under way. *ret_next_ms: step again then. */
enum kp_lease_do kp_lease_step(struct kp_lease *l, int64_t now_ms, int64_t *ret_next_ms);
/* The next write's spec.leaseTransitions: one more when the holder changes. */
int64_t kp_lease_transitions(const struct kp_lease *l);
/* The object as read; NULL: there is none. */
void kp_lease_seen(struct kp_lease *l, const struct kp_lease_doc *doc, int64_t now_ms);
/* Our write, begun at started_ms, stands as doc. */
void kp_lease_wrote(struct kp_lease *l, const struct kp_lease_doc *doc, int64_t started_ms,
                    int64_t now_ms);
/* No answer, an error or a conflict: nothing is known of the outcome. */
void kp_lease_failed(struct kp_lease *l, int64_t now_ms);
/* True while this candidate may act. Ask before every publication: time alone ends it. */
bool kp_lease_held(const struct kp_lease *l, int64_t now_ms);
/* Renew at once: a caller that must be sure waits for renewed_ms to pass the time of this call. */
void kp_lease_hurry(struct kp_lease *l, int64_t now_ms);

#endif
