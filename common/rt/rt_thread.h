/* rt_thread.h - what threads of our own have in common, and conditions that they wait for with a limit. */
#ifndef RT_THREAD_H
#define RT_THREAD_H

#include <pthread.h>
#include <time.h>

#include "base/kc_base.h"

/* The first thing a thread does: gives it a name (at most 15 bytes), and blocks all signals, which are
 * the main thread's. */
void rt_thread_enter(const char *name);

/* A condition whose limits are on the monotonic clock. */
void rt_cond_init(pthread_cond_t *c);
/* The limit for pthread_cond_timedwait that is so far ahead. */
struct timespec rt_in_ms(int64_t ms);

#endif
