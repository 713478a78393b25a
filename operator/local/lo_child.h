/* lo_child.h - one child process: started, signalled, reaped without blocking the loop.
 *
 * A child dies with the operator (PR_SET_PDEATHSIG), however that ends: no broker outlives the host
 * that fences it. Owner: the loop, which must be the main thread's, because the kernel ties the
 * death signal to the thread that forked. */
#ifndef LO_CHILD_H
#define LO_CHILD_H

#include <sys/types.h>

#include "base/kc_error.h"
#include "rt/rt_loop.h"

struct lo_child;

struct lo_child_opts {
    struct rt_loop *loop;
    const char *const *argv; /* argv[0] is the path; NULL-terminated */
    const char *const *env; /* NULL-terminated */
    const char *log_path; /* standard output and error are appended */
    /* status as of waitpid. The child must be freed then or later. */
    void (*exited)(void *ctx, struct lo_child *c, int status);
    void *ctx;
};
/* 0 or -errno; that the program cannot be executed shows as exit status 127. */
int lo_child_start(const struct lo_child_opts *o, struct lo_child **ret, struct kc_err *err);
pid_t lo_child_pid(const struct lo_child *c); /* 0 after it exited */
void lo_child_signal(struct lo_child *c, int sig);
/* SIGKILL; frees itself when it has ended, exited is not called any more. */
void lo_child_kill(struct lo_child *c);
/* After it exited. NULL allowed. */
void lo_child_free(struct lo_child *c);

#endif
