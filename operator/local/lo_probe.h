/* lo_probe.h - the kubelet's part for one child: asks /readyz over and over, without blocking.
 *
 * Every 100 ms while not ready, every 500 ms while ready; an answer later than a second counts as
 * no. Owner: the loop. */
#ifndef LO_PROBE_H
#define LO_PROBE_H

#include "rt/rt_loop.h"

struct lo_probe;
/* fn is called when readiness changes; it starts as not ready. */
struct lo_probe *lo_probe_start(struct rt_loop *loop, uint16_t port,
                                void (*fn)(void *ctx, bool ready), void *ctx);
/* The child is gone: not ready at once (fn is not called), asked again from now on. */
void lo_probe_reset(struct lo_probe *p);
void lo_probe_stop(struct lo_probe *p); /* NULL allowed */

#endif
