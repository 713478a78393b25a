/* kl_condemned.h - which incarnations may be fenced, as takeovers ask from the engine's threads.
 *
 * A takeover that was cancelled may still ask, so what it asks must outlive it: one table a broker,
 * written by the control loop at each confirmed image, read without a lock (a sequence lock over
 * atomics: a reader that saw a change in the middle reads again). */
#ifndef KL_CONDEMNED_H
#define KL_CONDEMNED_H

#include <stdatomic.h>

#include "image/ki_image.h"

struct kl_condemned {
    _Atomic uint32_t seq; /* odd while being written */
    _Atomic int32_t n; /* -1: no confirmed image yet, nobody is condemned */
    struct {
        _Atomic int32_t id;
        _Atomic bool condemned;
        _Atomic uint64_t incarnation[2];
    } rows[KP_BROKERS_MAX];
};

void kl_condemned_init(struct kl_condemned *c);
/* Control loop. */
void kl_condemned_set(struct kl_condemned *c, const struct ki_image *confirmed);
/* A ks_condemned_fn; ctx is the table. [any thread] */
bool kl_condemned_ask(void *ctx, int32_t broker, const struct kc_uuid *incarnation);

#endif
