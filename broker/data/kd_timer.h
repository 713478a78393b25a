/* kd_timer.h - many deadlines on one loop: a heap of intrusive entries over a single uv timer.
 *
 * Long polls, produce timeouts and the like arm and disarm a deadline a request; a libuv handle
 * each would need a close callback before its memory may go. Owner: the loop's thread. */
#ifndef KD_TIMER_H
#define KD_TIMER_H

#include "rt/rt_loop.h"

struct kd_timer {
    int64_t due_ms; /* kc_mono_ms */
    size_t at; /* place in the heap + 1; 0 = not armed */
    void (*fn)(struct kd_timer *t);
};

struct kd_timers {
    struct kd_timer **heap;
    size_t len, room;
    uv_timer_t uv;
    bool open;
};

void kd_timers_init(struct kd_timers *ts,
                    struct rt_loop *loop); /* on the loop, or before it runs */
void kd_timers_fini(struct kd_timers *ts); /* after the loop ended */
/* Arms t (again, if it is armed); fn runs once, at or after due_ms. */
void kd_timer_arm(struct kd_timers *ts, struct kd_timer *t, int64_t due_ms);
void kd_timer_disarm(struct kd_timers *ts, struct kd_timer *t); /* not armed: nothing happens */

#endif
