/* ss_co.h - coroutines: the threads of a simulation, all on one kernel thread.
 *
 * Handing over is a few instructions instead of two system calls. Stacks come from a pool and end at
 * a page nobody may touch; the address sanitizer is told of every change of stacks. */
#ifndef SS_CO_H
#define SS_CO_H

#include "base/kc_base.h"

struct ss_co {
    void *sp; /* while it does not run */
    uint8_t *stack; /* NULL: the stack that the process came with */
    void *fake; /* of the address sanitizer */
};

/* The caller's own: has the stack it runs on. */
void ss_co_adopt(struct ss_co *co);
/* Runs main when it is switched to for the first time; main never returns. */
void ss_co_make(struct ss_co *co, void (*main)(void));
void ss_co_switch(struct ss_co *from, struct ss_co *to);
/* The last switch of a coroutine, from within it: the address sanitizer forgets its frames. */
KC_NORETURN void ss_co_leave(struct ss_co *from, struct ss_co *to);
void ss_co_drop(struct ss_co *co); /* it has left: its stack is for the next one */

#endif
