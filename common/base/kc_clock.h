/* kc_clock.h - the only place that asks the kernel for the time.
 *
 * Pure code never calls it: time is an argument there. */
#ifndef KC_CLOCK_H
#define KC_CLOCK_H

#include "base/kc_base.h"

int64_t kc_mono_ms(void); /* CLOCK_MONOTONIC, milliseconds */
int64_t kc_mono_us(void);
int64_t kc_wall_ms(void); /* Unix time, milliseconds */
/* RFC 3339 in UTC: "2026-11-30T01:02:03Z"; with micro, "…03.123456Z" (Kubernetes MicroTime). */
void kc_rfc3339(int64_t wall_ms, bool micro, char out[32]);

#endif
