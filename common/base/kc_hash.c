#include "base/kc_hash.h"

#include <string.h>

uint64_t kc_hash64_mix(uint64_t a, uint64_t b)
{
    __uint128_t m = (__uint128_t)(a ^ 0xa0761d6478bd642fu) * (b ^ 0xe7037ed1a0b428dbu);
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

uint64_t kc_hash64(const void *data, size_t len)
{
    const uint8_t *p = data;
    uint64_t h = 0x8ebc6af09c88c6e3u ^ len;
    while (len >= 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        h = kc_hash64_mix(h, v);
        p += 8;
        len -= 8;
    }
    uint64_t v = 0;
    if (len) {
        memcpy(&v, p, len);
    }
    return kc_hash64_mix(h, v ^ 0x589965cc75374cc3u);
}

/* One code point of UTF-8 at s[*i], advancing *i; U+FFFD for a malformed byte. */
static uint32_t utf8_next(struct kc_str s, int32_t *i)
{
    uint8_t c = (uint8_t)s.ptr[(*i)++];
    if (c < 0x80) {
        return c;
    }
    int more = c >= 0xf0 && c < 0xf5 ? 3 : c >= 0xe0 ? 2 : 1;
    if (c < 0xc2 || c >= 0xf5 || *i + more > s.len) {
        return 0xfffd;
    }
    uint32_t cp = c & (0x3fu >> more);
    for (int k = 0; k < more; k++) {
        uint8_t d = (uint8_t)s.ptr[*i + k];
        if ((d & 0xc0) != 0x80) {
            return 0xfffd;
        }
        cp = cp << 6 | (d & 0x3fu);
    }
    *i += more;
    return cp;
}

int32_t kc_java_hash(struct kc_str s)
{
    uint32_t h = 0;
    for (int32_t i = 0; i < s.len;) {
        uint32_t cp = utf8_next(s, &i);
        if (cp >= 0x10000) {
            cp -= 0x10000;
            h = h * 31 + (0xd800 + (cp >> 10));
            h = h * 31 + (0xdc00 + (cp & 0x3ff));
        } else {
            h = h * 31 + cp;
        }
    }
    return (int32_t)h;
}

int32_t kc_coordinator_slot(struct kc_str id, int32_t slots)
{
    int32_t h = kc_java_hash(id);
    int32_t abs = h == INT32_MIN ? 0 : h < 0 ? -h : h;
    return abs % slots;
}
