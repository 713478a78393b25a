#include "base/kc_rng.h"

#include <errno.h>
#include <sys/random.h>

void kc_random_bytes(void *out, size_t len)
{
    uint8_t *p = out;
    while (len) {
        ssize_t n = getrandom(p, len, 0);
        if (n < 0) {
            KC_ASSERT(errno == EINTR);
            continue;
        }
        p += n;
        len -= (size_t)n;
    }
}

void kc_rng_seed(struct kc_rng *r, uint64_t seed)
{
    r->s = seed;
}

uint64_t kc_rng_next(struct kc_rng *r)
{
    uint64_t z = (r->s += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t kc_rng_below(struct kc_rng *r, uint64_t bound)
{
    return (uint64_t)(((__uint128_t)kc_rng_next(r) * bound) >> 64);
}
