/* rt_loop.h - a libuv loop owned by one thread, and the only way to reach it from others.
 *
 * Crossing threads is a message: an intrusive struct with a function, posted to the loop's inbox
 * and run on the loop's thread in order of posting (per sender). Posting never fails, never blocks
 * and takes no lock. Every loop keeps a liveness tick (R40).
 *
 * A loop that is at work looks into its inbox before it waits, so only one that waits is woken, by an
 * eventfd: uv_async_send would write to it for every message that finds the inbox empty, and its
 * receiver spins while a sender that was preempted has not come back from the write. */
#ifndef RT_LOOP_H
#define RT_LOOP_H

#include <pthread.h>
#include <stdatomic.h>
#include <uv.h>

#include "base/kc_base.h"

struct rt_msg {
    struct rt_msg *next;
    void (*fn)(struct rt_msg *msg); /* runs on the target thread; owns msg from then on */
};

/* What is to run once before the loop waits next, however often it was asked for. */
struct rt_after {
    struct rt_after *next;
    void (*fn)(struct rt_after *a);
};

struct rt_loop {
    uv_loop_t uv;
    const char *name;
    _Atomic pthread_t thread; /* who runs it; written there, read by whoever asks rt_on_loop */
    pthread_t handle; /* of a thread of its own: for the join */
    bool started;
    uv_poll_t wake;
    int wake_fd; /* eventfd */
    uv_prepare_t turn;
    uv_idle_t busy; /* active: the next poll does not wait */
    uv_timer_t tick_timer;
    _Atomic(struct rt_msg *) inbox; /* newest first */
    struct rt_after *after; /* the loop's thread */
    _Atomic bool asleep; /* waits, or is about to: whoever posts, and turns it off, wakes it */
    _Atomic bool stopping;
    _Atomic bool closed; /* the eventfd is (being) closed: nobody may write to it any more */
    _Atomic int32_t senders; /* threads between the check of closed and the end of a wake-up */
    _Atomic int64_t tick_ms; /* kc_mono_ms of the last turn; 0 = never */
    _Atomic uint64_t turns;
};

/* Prepares the loop; name must outlive it. Returns 0 or -errno. */
int rt_loop_init(struct rt_loop *l, const char *name) KC_MUST_CHECK;
/* Runs the loop on a new thread, or on the caller's until rt_loop_stop. */
int rt_loop_start(struct rt_loop *l) KC_MUST_CHECK;
void rt_loop_run(struct rt_loop *l);
/* Asks the loop to end (any thread). Handles still open are closed without their owners' callbacks
 * being told, so owners close theirs first. */
void rt_loop_stop(struct rt_loop *l);
void rt_loop_join(struct rt_loop *l); /* after rt_loop_start; then fini is done too */

void rt_post(struct rt_loop *l, struct rt_msg *msg); /* any thread */
/* Has a->fn run on the loop's thread, which the caller is on, before the loop waits next or ends: for what
 * many callbacks of a turn would do one by one, and others need to see once. Not again before it has run. */
void rt_loop_after(struct rt_loop *l, struct rt_after *a);
/* Says that the loop is at work, for callbacks of handles other than messages: without it, the first who
 * posts while they run wakes a loop that needs no waking. On the loop's thread. */
static inline void rt_loop_awake(struct rt_loop *l)
{
    if (atomic_load_explicit(&l->asleep, memory_order_relaxed)) {
        atomic_store_explicit(&l->asleep, false, memory_order_relaxed);
    }
}
/* Convenience: posts fn(arg); allocates. */
void rt_call(struct rt_loop *l, void (*fn)(void *arg), void *arg);

/* Milliseconds since the loop last turned or completed something; INT64_MAX if it never did. */
int64_t rt_loop_age_ms(struct rt_loop *l, int64_t now_mono_ms);
/* A completed request counts as a sign of life, too (R42). On the loop's thread. */
void rt_loop_touch(struct rt_loop *l);
static inline bool rt_on_loop(const struct rt_loop *l)
{
    return pthread_equal(pthread_self(), atomic_load_explicit(&l->thread, memory_order_relaxed)) !=
           0;
}

#endif
