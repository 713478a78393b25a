#include "base/kc_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kc_assert_fail(const char *expr, const char *file, int line)
{
    fprintf(stderr, "assertion failed: %s at %s:%d\n", expr, file, line);
    abort();
}

int kc_fail(struct kc_err *err, int code, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        err->code = code;
        vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
        va_end(ap);
    }
    return code;
}

const char *kc_strerror(int code)
{
    switch (code) {
    case 0:
        return "ok";
#define X(name, value, text)                                                                       \
    case value:                                                                                    \
        return text;
#include "base/kc_errors.def"
#undef X
    default: {
        const char *s = strerrordesc_np(-code);
        return s ? s : "unknown error";
    }
    }
}
