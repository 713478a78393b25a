/* rt_pool.h - a fixed set of threads that run blocking work, one pool a purpose.
 *
 * libuv's own pool is shared by the whole process, so one wedged file system call would stop
 * unrelated loops; it is not used (see docs/STYLE.md). FIFO. Work posts its results by rt_post. */
#ifndef RT_POOL_H
#define RT_POOL_H

#include "base/kc_base.h"

struct rt_work {
    struct rt_work *next;
    void (*fn)(struct rt_work *w); /* runs on a pool thread; owns w from then on */
};

struct rt_pool;

/* n_threads 1..64, started lazily up to that number. name must outlive the pool. */
struct rt_pool *rt_pool_new(const char *name, int n_threads);
/* Runs what is queued, joins the threads. */
void rt_pool_free(struct rt_pool *p);
void rt_pool_post(struct rt_pool *p, struct rt_work *w); /* any thread; never fails */

#endif
