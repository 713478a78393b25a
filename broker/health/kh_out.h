/* kh_out.h - text into a fixed buffer, and the lines of the Prometheus format. No allocation. */
#ifndef KH_OUT_H
#define KH_OUT_H

#include "base/kc_base.h"

struct kh_out {
    char *body;
    size_t cap, len;
};

/* What does not fit is cut at a line. */
void kh_printf(struct kh_out *o, const char *fmt, ...) KC_PRINTF(2, 3);
/* The head of a metric: # HELP and # TYPE (kind: "counter", "gauge"). */
void kh_metric(struct kh_out *o, const char *kind, const char *name, const char *help);

#endif
