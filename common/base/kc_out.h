/* kc_out.h - text into a fixed buffer, and the lines of the Prometheus format. No allocation. */
#ifndef KC_OUT_H
#define KC_OUT_H

#include "base/kc_base.h"

struct kc_out {
    char *body;
    size_t cap, len;
};

/* What does not fit is left out whole, and so is all that comes after it. */
void kc_out_printf(struct kc_out *o, const char *fmt, ...) KC_PRINTF(2, 3);
/* The head of a metric: # HELP and # TYPE (kind: "counter", "gauge"). */
void kc_out_metric(struct kc_out *o, const char *kind, const char *name, const char *help);
/* The head of a metric without labels, and its value. */
void kc_out_value(struct kc_out *o, const char *kind, const char *name, const char *help,
                  int64_t value);

#endif
