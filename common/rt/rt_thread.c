#include "rt/rt_thread.h"

#include <signal.h>

#include "base/kc_clock.h"

void rt_thread_enter(const char *name)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    pthread_setname_np(pthread_self(), name);
}

void rt_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

struct timespec rt_in_ms(int64_t ms)
{
    int64_t at_us = kc_mono_us() + ms * 1000;
    return (struct timespec){.tv_sec = at_us / 1000000, .tv_nsec = at_us % 1000000 * 1000};
}
