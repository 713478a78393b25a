/* kg_pids.h - producer ids for InitProducerId, without ever blocking a loop.
 *
 * Ids come from the volume in blocks (ks_pid_block), fetched on a thread of their own, ahead of need:
 * each data loop holds a block and asks for the next one when half of it is used. Ids of a process
 * that ends are not given out again. */
#ifndef KG_PIDS_H
#define KG_PIDS_H

#include "base/kc_error.h"
#include "base/kc_list.h"
#include "rt/rt_loop.h"

struct kg_pids;

/* [blocking] As ks_pid_block. */
typedef int (*kg_pid_source)(void *ctx, int64_t *ret_first, int32_t *ret_count, struct kc_err *err);

struct kg_pids *kg_pids_new(kg_pid_source source, void *ctx, struct rt_loop *const *loops,
                            int32_t n_loops);
/* After the loops ended. */
void kg_pids_free(struct kg_pids *p);

/* Embedded in the caller's request. fn runs once, on the loop of kg_pid_next, possibly at once: with
 * an id, or -1 if none can be had now (try again). */
struct kg_pid_waiter {
    struct kc_list node;
    void (*fn)(struct kg_pid_waiter *w, int64_t producer_id);
};
/* On the loop with this index. */
void kg_pid_next(struct kg_pids *p, int32_t loop, struct kg_pid_waiter *w);

#endif
