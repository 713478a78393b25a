#include "base/kc_str.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct kc_str kc_str_of(const char *z)
{
    return z ? (struct kc_str){z, (int32_t)strlen(z)} : KC_STR_NULL;
}

bool kc_str_eq(struct kc_str a, struct kc_str b)
{
    if (!a.ptr || !b.ptr) {
        return !a.ptr && !b.ptr;
    }
    return a.len == b.len && memcmp(a.ptr, b.ptr, (size_t)a.len) == 0;
}

bool kc_str_eqz(struct kc_str a, const char *z)
{
    return kc_str_eq(a, kc_str_of(z));
}

int kc_str_cmp(struct kc_str a, struct kc_str b)
{
    int32_t n = KC_MIN(a.len, b.len);
    int r = n > 0 ? memcmp(a.ptr, b.ptr, (size_t)n) : 0;
    return r ? r : (a.len > b.len) - (a.len < b.len);
}

int kc_parse_i64(struct kc_str s, int64_t *ret)
{
    int32_t i = 0;
    bool neg = false;
    if (s.len > 0 && (s.ptr[0] == '-' || s.ptr[0] == '+')) {
        neg = s.ptr[0] == '-';
        i = 1;
    }
    if (i >= s.len) {
        return -EINVAL;
    }
    int64_t v = 0;
    for (; i < s.len; i++) {
        int d = s.ptr[i] - '0';
        if (d < 0 || d > 9) {
            return -EINVAL;
        }
        /* accumulate on the negative side, which reaches INT64_MIN */
        if (__builtin_mul_overflow(v, (int64_t)10, &v) ||
            __builtin_sub_overflow(v, (int64_t)d, &v)) {
            return -ERANGE;
        }
    }
    if (!neg) {
        if (v == INT64_MIN) {
            return -ERANGE;
        }
        v = -v;
    }
    *ret = v;
    return 0;
}

int kc_parse_i32(struct kc_str s, int32_t *ret)
{
    int64_t v;
    int rc = kc_parse_i64(s, &v);
    if (rc) {
        return rc;
    }
    if (v < INT32_MIN || v > INT32_MAX) {
        return -ERANGE;
    }
    *ret = (int32_t)v;
    return 0;
}

int kc_parse_bool(struct kc_str s, bool *ret)
{
    if (kc_str_eqz(s, "true")) {
        *ret = true;
    } else if (kc_str_eqz(s, "false")) {
        *ret = false;
    } else {
        return -EINVAL;
    }
    return 0;
}

int kc_parse_double(struct kc_str s, double *ret)
{
    char buf[64];
    if (s.len <= 0 || s.len >= (int32_t)sizeof(buf)) {
        return -EINVAL;
    }
    memcpy(buf, s.ptr, (size_t)s.len);
    buf[s.len] = '\0';
    char *end;
    double v = strtod(buf, &end);
    if (*end != '\0' || end == buf) {
        return -EINVAL;
    }
    *ret = v;
    return 0;
}

int kc_parse_duration_ms(struct kc_str s, int64_t *ret)
{
    static const struct {
        const char *unit;
        int64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
    int32_t digits = 0;
    while (digits < s.len && s.ptr[digits] >= '0' && s.ptr[digits] <= '9') {
        digits++;
    }
    int64_t v;
    int rc = kc_parse_i64((struct kc_str){s.ptr, digits}, &v);
    if (rc) {
        return rc;
    }
    struct kc_str unit = {s.ptr + digits, s.len - digits};
    if (unit.len == 0) {
        *ret = v;
        return 0;
    }
    for (size_t i = 0; i < KC_ARRAY_LEN(units); i++) {
        if (kc_str_eqz(unit, units[i].unit)) {
            return __builtin_mul_overflow(v, units[i].ms, ret) ? -ERANGE : 0;
        }
    }
    return -EINVAL;
}
