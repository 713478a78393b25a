/* kc_error.h - status codes and error text.
 *
 * Functions return int: 0 for success, -errno for an operating system failure, or a code of
 * kc_errors.def (below -1000). Where a function takes `struct kc_err *err` as its last parameter
 * (NULL allowed) it is filled exactly when a negative value is returned; outputs are untouched then. */
#ifndef KC_ERROR_H
#define KC_ERROR_H

#include "base/kc_base.h"

enum kc_code {
#define X(name, code, text) name = (code),
#include "base/kc_errors.def"
#undef X
};

struct kc_err {
    int code;
    char msg[248];
};

/* Fills err (if not NULL) and returns code, so that `return kc_fail(err, -EINVAL, "...")` works. */
int kc_fail(struct kc_err *err, int code, const char *fmt, ...) KC_PRINTF(3, 4);

/* Static text of a code: strerror's for -errno, kc_errors.def's otherwise. Thread-safe. */
const char *kc_strerror(int code);

#endif
