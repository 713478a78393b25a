#include "base/kc_out.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void kc_out_printf(struct kc_out *o, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(o->body + o->len, o->cap - o->len, fmt, ap);
    va_end(ap);
    if (n > 0 && (size_t)n < o->cap - o->len) {
        o->len += (size_t)n;
    } else {
        o->cap = o->len; /* nor does anything after it: a sample without its head says nothing */
    }
}

void kc_out_metric(struct kc_out *o, const char *kind, const char *name, const char *help)
{
    kc_out_printf(o, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

void kc_out_value(struct kc_out *o, const char *kind, const char *name, const char *help,
                  int64_t value)
{
    kc_out_metric(o, kind, name, help);
    kc_out_printf(o, "%s %" PRId64 "\n", name, value);
}
