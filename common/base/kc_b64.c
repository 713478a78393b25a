#include "base/kc_b64.h"

#include <string.h>

#include "base/kc_mem.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *kc_b64_encode(const void *data, size_t len, size_t *ret_len)
{
    const uint8_t *p = data;
    size_t n = (len + 2) / 3 * 4;
    char *out = kc_try_alloc(n + 1);
    if (!out) {
        return NULL;
    }
    char *o = out;
    for (size_t i = 0; i < len; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16;
        if (i + 1 < len) {
            v |= (uint32_t)p[i + 1] << 8;
        }
        if (i + 2 < len) {
            v |= p[i + 2];
        }
        *o++ = alphabet[v >> 18];
        *o++ = alphabet[(v >> 12) & 63];
        *o++ = i + 1 < len ? alphabet[(v >> 6) & 63] : '=';
        *o++ = i + 2 < len ? alphabet[v & 63] : '=';
    }
    *o = '\0';
    *ret_len = n;
    return out;
}

uint8_t *kc_b64_decode(struct kc_str s, size_t *ret_len)
{
    if (s.len < 0 || s.len % 4 != 0) {
        return NULL;
    }
    uint8_t *out = kc_try_alloc((size_t)s.len / 4 * 3 + 1);
    if (!out) {
        return NULL;
    }
    size_t o = 0;
    for (int32_t i = 0; i < s.len; i += 4) {
        uint32_t v = 0;
        int pad = 0;
        for (int k = 0; k < 4; k++) {
            char c = s.ptr[i + k];
            const char *p = c == '=' ? NULL : memchr(alphabet, c, 64);
            if (!p && !(c == '=' && i + 4 == s.len && k >= 2)) {
                kc_free(out);
                return NULL;
            }
            if (p && pad) {
                kc_free(out);
                return NULL;
            }
            pad += p ? 0 : 1;
            v = v << 6 | (p ? (uint32_t)(p - alphabet) : 0);
        }
        out[o++] = (uint8_t)(v >> 16);
        if (pad < 2) {
            out[o++] = (uint8_t)(v >> 8);
        }
        if (pad < 1) {
            out[o++] = (uint8_t)v;
        }
    }
    *ret_len = o;
    return out;
}
