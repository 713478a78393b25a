/* kc_rng.h - randomness: the kernel's for identities, a seeded generator for tests and jitter. */
#ifndef KC_RNG_H
#define KC_RNG_H

#include "base/kc_base.h"

void kc_random_bytes(void *out, size_t len); /* getrandom(2); aborts if the kernel refuses */

struct kc_rng {
    uint64_t s;
};
void kc_rng_seed(struct kc_rng *r, uint64_t seed);
uint64_t kc_rng_next(struct kc_rng *r); /* splitmix64 */
uint64_t kc_rng_below(struct kc_rng *r, uint64_t bound); /* 0..bound-1; bound > 0 */

#endif
