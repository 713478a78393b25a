#include "base/kc_uuid.h"

#include <errno.h>
#include <string.h>

#include "base/kc_hash.h"
#include "base/kc_rng.h"

static const char b64url[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

struct kc_uuid kc_uuid_random(void)
{
    struct kc_uuid u;
    do {
        kc_random_bytes(u.b, sizeof(u.b));
        u.b[6] = (uint8_t)((u.b[6] & 0x0f) | 0x40);
        u.b[8] = (uint8_t)((u.b[8] & 0x3f) | 0x80);
    } while (b64url[u.b[0] >> 2] == '-'); /* tools take a leading '-' for an option */
    return u;
}

bool kc_uuid_eq(const struct kc_uuid *a, const struct kc_uuid *b)
{
    return memcmp(a->b, b->b, sizeof(a->b)) == 0;
}

bool kc_uuid_is_zero(const struct kc_uuid *u)
{
    static const struct kc_uuid zero;
    return kc_uuid_eq(u, &zero);
}

uint64_t kc_uuid_hash(const struct kc_uuid *u)
{
    return kc_hash64(u->b, sizeof(u->b));
}

void kc_uuid_to_b64(const struct kc_uuid *u, char out[KC_UUID_B64_LEN + 1])
{
    size_t o = 0;
    for (size_t i = 0; i < 16; i += 3) {
        uint32_t v = (uint32_t)u->b[i] << 16;
        if (i + 1 < 16) {
            v |= (uint32_t)u->b[i + 1] << 8;
        }
        if (i + 2 < 16) {
            v |= u->b[i + 2];
        }
        for (int s = 18; s >= 0 && o < KC_UUID_B64_LEN; s -= 6) {
            out[o++] = b64url[(v >> s) & 63];
        }
    }
    out[KC_UUID_B64_LEN] = '\0';
}

void kc_uuid_to_hex(const struct kc_uuid *u, char out[KC_UUID_HEX_LEN + 1])
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < 16; i++) {
        out[2 * i] = hex[u->b[i] >> 4];
        out[2 * i + 1] = hex[u->b[i] & 15];
    }
    out[KC_UUID_HEX_LEN] = '\0';
}

int kc_uuid_from_b64(struct kc_str s, struct kc_uuid *ret)
{
    if (s.len != KC_UUID_B64_LEN) {
        return -EINVAL;
    }
    struct kc_uuid u;
    uint32_t acc = 0;
    int bits = 0;
    size_t o = 0;
    for (int32_t i = 0; i < s.len; i++) {
        const char *p = memchr(b64url, s.ptr[i], 64);
        if (!p) {
            return -EINVAL;
        }
        acc = (acc << 6) | (uint32_t)(p - b64url);
        bits += 6;
        if (bits >= 8 && o < 16) {
            bits -= 8;
            u.b[o++] = (uint8_t)(acc >> bits);
        }
    }
    if ((acc & ((1u << bits) - 1)) != 0) {
        return -EINVAL;
    }
    *ret = u;
    return 0;
}

static int nibble(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return -1;
}

int kc_uuid_from_hex(struct kc_str s, struct kc_uuid *ret)
{
    if (s.len != KC_UUID_HEX_LEN) {
        return -EINVAL;
    }
    struct kc_uuid u;
    for (size_t i = 0; i < 16; i++) {
        int hi = nibble(s.ptr[2 * i]), lo = nibble(s.ptr[2 * i + 1]);
        if (hi < 0 || lo < 0) {
            return -EINVAL;
        }
        u.b[i] = (uint8_t)(hi << 4 | lo);
    }
    *ret = u;
    return 0;
}
