#include "base/kc_siphash.h"

struct sip {
    uint64_t v0, v1, v2, v3;
};

static uint64_t load64(const uint8_t *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        v |= (uint64_t)p[i] << (8 * i);
    }
    return v;
}

static void store64(uint8_t *p, uint64_t v)
{
    for (size_t i = 0; i < 8; i++) {
        p[i] = (uint8_t)(v >> (8 * i));
    }
}

static uint64_t rotl(uint64_t x, unsigned b)
{
    return x << b | x >> (64 - b);
}

static void rounds(struct sip *s, int n)
{
    for (int i = 0; i < n; i++) {
        s->v0 += s->v1;
        s->v1 = rotl(s->v1, 13) ^ s->v0;
        s->v0 = rotl(s->v0, 32);
        s->v2 += s->v3;
        s->v3 = rotl(s->v3, 16) ^ s->v2;
        s->v0 += s->v3;
        s->v3 = rotl(s->v3, 21) ^ s->v0;
        s->v2 += s->v1;
        s->v1 = rotl(s->v1, 17) ^ s->v2;
        s->v2 = rotl(s->v2, 32);
    }
}

static uint64_t take(const struct sip *s)
{
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

void kc_siphash128(const uint8_t key[16], const void *data, size_t len, uint8_t out[16])
{
    const uint8_t *p = data;
    uint64_t k0 = load64(key, 8), k1 = load64(key + 8, 8);
    struct sip s = {k0 ^ 0x736f6d6570736575U, k1 ^ 0x646f72616e646f6dU ^ 0xee,
                    k0 ^ 0x6c7967656e657261U, k1 ^ 0x7465646279746573U};
    size_t whole = len / 8 * 8;
    for (size_t i = 0; i < whole; i += 8) {
        uint64_t m = load64(p + i, 8);
        s.v3 ^= m;
        rounds(&s, 2);
        s.v0 ^= m;
    }
    uint64_t last = (len > whole ? load64(p + whole, len - whole) : 0) | (uint64_t)len << 56;
    s.v3 ^= last;
    rounds(&s, 2);
    s.v0 ^= last;
    s.v2 ^= 0xee;
    rounds(&s, 4);
    store64(out, take(&s));
    s.v1 ^= 0xdd;
    rounds(&s, 4);
    store64(out + 8, take(&s));
}
