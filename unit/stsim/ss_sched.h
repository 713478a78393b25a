/* ss_sched.h - one thread at a time: the schedule of a simulation, its clock and its randomness.
 *
 * The linker (--wrap, CMakeLists.txt) leads the production objects' calls of pthread_create, _join,
 * _mutex_lock, _cond_*, clock_gettime and getrandom here. While a simulation runs, all threads pass
 * one baton: a thread keeps it until it waits, sleeps (virtual time), locks a mutex or calls the file
 * system, and the seed picks who has it next. When nobody can run, the clock jumps to the next
 * deadline; when there is none either, the run is stuck, which is an error of the code under test.
 *
 * Outside a simulation every call goes to libc. */
#ifndef SS_SCHED_H
#define SS_SCHED_H

#include "base/kc_base.h"

enum { SS_NODES = 8 };

/* The caller becomes the first thread and has the baton. */
void ss_sched_begin(uint64_t seed);
/* All other threads were joined. */
void ss_sched_end(void);

uint64_t ss_below(uint64_t bound); /* of the seed; bound > 0 */
bool ss_chance(uint32_t per_mille);
int64_t ss_now_us(void);

void ss_yield(void); /* lets somebody else have a turn, maybe */
void ss_sleep_us(int64_t us); /* others run meanwhile */

/* Threads belong to the node that the thread which made them was on. */
int ss_node(void);
void ss_set_node(int node);
/* None of the node's threads runs until it thaws. Not for the caller's own node. */
void ss_freeze(int node, bool frozen);

/* Hash of every choice so far: equal for equal seeds, or the run is not deterministic. */
uint64_t ss_trace(void);
void ss_trace_add(uint64_t v);
uint64_t ss_switches(void);

#endif
