/* ss_sched.h - one thread at a time: the schedule of a simulation, its clock and its randomness.
 *
 * The linker (--wrap, CMakeLists.txt) leads the production objects' calls of pthread_*, clock_gettime
 * and getrandom to ss_libc.c, which makes their threads coroutines of the one kernel thread. A thread
 * runs until it waits, sleeps (virtual time), locks a mutex or calls the file system, and the seed
 * picks who is next. When nobody can run, the clock jumps to the next deadline; when there is none
 * either, the run is stuck, which is an error of the code under test.
 *
 * Outside a simulation every call goes to libc. */
#ifndef SS_SCHED_H
#define SS_SCHED_H

#include "base/kc_base.h"

enum { SS_NODES = 8 };
#define SS_NEVER INT64_MAX

/* The caller becomes the first thread, which no freeze stops. */
void ss_sched_begin(uint64_t seed);
/* All other threads were joined. */
void ss_sched_end(void);
bool ss_sched_active(void);

uint64_t ss_below(uint64_t bound); /* of the seed; bound > 0 */
bool ss_chance(uint32_t per_mille);
int64_t ss_now_us(void);

void ss_yield(void); /* lets somebody else have a turn, maybe */
void ss_sleep_us(int64_t us); /* others run meanwhile */

/* Threads belong to the node that the thread which made them was on. */
int ss_node(void);
void ss_set_node(int node);
/* None of the node's threads runs before that time. */
void ss_freeze(int node, int64_t until_us);
void ss_thaw(int node);
bool ss_frozen(int node);

/* What a thread is doing (ss_step.h). */
struct ss_local {
    uint32_t inside, doing; /* steps */
    const _Atomic bool *cancelled;
    bool ours; /* its allocations are the simulation's: none fails */
};
struct ss_local *ss_local(void);
/* The i-th thread's, if it is of that node (-1: any), else NULL; false: there are no more. */
bool ss_local_at(int i, int node, const struct ss_local **ret);

/* ---- for ss_libc.c ---- */

struct ss_thread;
struct ss_thread *ss_self(void);
struct ss_thread *ss_thread_new(void *(*fn)(void *), void *arg);
void *ss_thread_join(struct ss_thread *t);
/* Until somebody wakes `on` up; true: the time was over first. */
bool ss_wait(const void *on, int64_t deadline_us);
void ss_wake(const void *on, bool all);
/* A point where somebody else may come first, by chance. */
void ss_maybe_yield(void);
void ss_random_bytes(uint8_t *p, size_t len); /* of a sequence of their own */

/* Hash of every choice so far: equal for equal seeds, or the run is not deterministic. */
uint64_t ss_trace(void);
void ss_trace_add(uint64_t v);
uint64_t ss_switches(void);

#endif
