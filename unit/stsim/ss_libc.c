/* What the linker puts between the production objects and libc: threads, locks, clocks, randomness. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>

#include "ss_check.h"
#include "ss_sched.h"

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __real_pthread_join(pthread_t t, void **ret);
pthread_t __real_pthread_self(void);
int __real_pthread_setname_np(pthread_t t, const char *name);
int __real_pthread_sigmask(int how, const sigset_t *set, sigset_t *old);
int __real_setpriority(int which, id_t who, int value);
int __real_pthread_mutex_lock(pthread_mutex_t *m);
int __real_pthread_mutex_unlock(pthread_mutex_t *m);
int __real_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __real_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *at);
int __real_pthread_cond_signal(pthread_cond_t *c);
int __real_pthread_cond_broadcast(pthread_cond_t *c);
int __real_clock_gettime(clockid_t clock, struct timespec *ret);
ssize_t __real_getrandom(void *buf, size_t len, unsigned flags);

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __wrap_pthread_join(pthread_t t, void **ret);
pthread_t __wrap_pthread_self(void);
int __wrap_pthread_setname_np(pthread_t t, const char *name);
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old);
int __wrap_setpriority(int which, id_t who, int value);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *at);
int __wrap_pthread_cond_signal(pthread_cond_t *c);
int __wrap_pthread_cond_broadcast(pthread_cond_t *c);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
ssize_t __wrap_getrandom(void *buf, size_t len, unsigned flags);

/* ---- threads ---- */

int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
    if (!ss_sched_active()) {
        return __real_pthread_create(ret, a, fn, arg);
    }
    *ret = (pthread_t)ss_thread_new(fn, arg); /* failing it is a matter for the unit tests */
    return 0;
}

int __wrap_pthread_join(pthread_t t, void **ret)
{
    if (!ss_sched_active()) {
        return __real_pthread_join(t, ret);
    }
    void *value = ss_thread_join((struct ss_thread *)t);
    if (ret) {
        *ret = value;
    }
    return 0;
}

pthread_t __wrap_pthread_self(void)
{
    return ss_sched_active() ? (pthread_t)ss_self() : __real_pthread_self();
}

int __wrap_pthread_setname_np(pthread_t t, const char *name)
{
    return ss_sched_active() ? 0 : __real_pthread_setname_np(t, name);
}

int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    return ss_sched_active() ? 0 : __real_pthread_sigmask(how, set, old);
}

/* All threads are one, which nobody is to slow down. */
int __wrap_setpriority(int which, id_t who, int value)
{
    return ss_sched_active() ? 0 : __real_setpriority(which, who, value);
}

/* ---- locks and conditions: real mutexes, which tell a lock that is held or destroyed ---- */

static int contended; /* threads that wait for a lock */

static void take(pthread_mutex_t *m)
{
    for (int rc; (rc = pthread_mutex_trylock(m)) != 0;) {
        KC_ASSERT(rc == EBUSY); /* anything else: the mutex is destroyed */
        contended++;
        ss_wait(m, SS_NEVER);
        contended--;
    }
}

static void give(pthread_mutex_t *m)
{
    int rc = __real_pthread_mutex_unlock(m);
    KC_ASSERT(rc == 0);
    if (contended) {
        ss_wake(m, false);
    }
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *m)
{
    if (!ss_sched_active()) {
        return __real_pthread_mutex_lock(m);
    }
    ss_maybe_yield();
    take(m);
    return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *m)
{
    if (!ss_sched_active()) {
        return __real_pthread_mutex_unlock(m);
    }
    give(m);
    return 0;
}

static int cond_wait(pthread_cond_t *c, pthread_mutex_t *m, int64_t deadline_us)
{
    give(m);
    bool timed_out = ss_wait(c, deadline_us);
    take(m);
    return timed_out ? ETIMEDOUT : 0;
}

int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    return ss_sched_active() ? cond_wait(c, m, SS_NEVER) : __real_pthread_cond_wait(c, m);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *at)
{
    return ss_sched_active() ? cond_wait(c, m, at->tv_sec * 1000000LL + at->tv_nsec / 1000)
                             : __real_pthread_cond_timedwait(c, m, at);
}

int __wrap_pthread_cond_signal(pthread_cond_t *c)
{
    if (!ss_sched_active()) {
        return __real_pthread_cond_signal(c);
    }
    ss_wake(c, false);
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *c)
{
    if (!ss_sched_active()) {
        return __real_pthread_cond_broadcast(c);
    }
    ss_wake(c, true);
    return 0;
}

/* ---- clock and randomness ---- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    if (!ss_sched_active()) {
        return __real_clock_gettime(clock, ret);
    }
    int64_t now = ss_now_us();
    ret->tv_sec = now / 1000000 + (clock == CLOCK_REALTIME ? SS_WALL_MS / 1000 : 0);
    ret->tv_nsec = now % 1000000 * 1000;
    return 0;
}

ssize_t __wrap_getrandom(void *buf, size_t len, unsigned flags)
{
    if (!ss_sched_active()) {
        return __real_getrandom(buf, len, flags);
    }
    ss_random_bytes(buf, len);
    return (ssize_t)len;
}
