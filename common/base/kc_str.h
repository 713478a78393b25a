/* kc_str.h - helpers on string views; strict number parsing. */
#ifndef KC_STR_H
#define KC_STR_H

#include "base/kc_base.h"

struct kc_str kc_str_of(const char *z); /* borrows; NULL gives the null view */
bool kc_str_eq(struct kc_str a, struct kc_str b); /* null equals only null */
bool kc_str_eqz(struct kc_str a, const char *z);
int kc_str_cmp(struct kc_str a, struct kc_str b);

/* Whole-string decimal integers, sign allowed, range checked: 0, -EINVAL or -ERANGE. */
int kc_parse_i64(struct kc_str s, int64_t *ret) KC_MUST_CHECK;
int kc_parse_i32(struct kc_str s, int32_t *ret) KC_MUST_CHECK;
int kc_parse_bool(struct kc_str s, bool *ret) KC_MUST_CHECK; /* true|false */
int kc_parse_double(struct kc_str s, double *ret) KC_MUST_CHECK;
/* "500ms", "3s", "2m", "1h" or a bare number of milliseconds: milliseconds. */
int kc_parse_duration_ms(struct kc_str s, int64_t *ret) KC_MUST_CHECK;

#endif
