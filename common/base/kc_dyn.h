/* kc_dyn.h - growable byte buffer with a maximum fixed at init.
 *
 * One owner thread. The first failure (cap or memory) is sticky: later writes are no-ops and
 * kc_dyn_ok says false, so that a writer checks once, at the end. */
#ifndef KC_DYN_H
#define KC_DYN_H

#include "base/kc_base.h"

struct kc_dyn {
    uint8_t *data;
    size_t len;
    size_t room;
    size_t max;
    bool failed;
    bool over; /* failed, and not for want of memory: max would have been exceeded */
};

void kc_dyn_init(struct kc_dyn *d, size_t max_bytes);
void kc_dyn_fini(struct kc_dyn *d);
void kc_dyn_reset(struct kc_dyn *d); /* keeps the memory, clears the failure */
static inline bool kc_dyn_ok(const struct kc_dyn *d)
{
    return !d->failed;
}
/* Room for n bytes at the end, which the caller fills; NULL after a failure. Adds n to len. */
uint8_t *kc_dyn_extend(struct kc_dyn *d, size_t n);
void kc_dyn_add(struct kc_dyn *d, const void *data, size_t n);
void kc_dyn_addf(struct kc_dyn *d, const char *fmt, ...) KC_PRINTF(2, 3);
/* Drops n bytes from the front. n <= len. */
void kc_dyn_consume(struct kc_dyn *d, size_t n);
/* Hands the buffer out (caller kc_frees); d is empty afterwards. NULL after a failure. */
uint8_t *kc_dyn_steal(struct kc_dyn *d, size_t *ret_len);

#endif
