#include "ss_sched.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/kc_rng.h"

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __real_pthread_join(pthread_t t, void **ret);
int __real_pthread_mutex_lock(pthread_mutex_t *m);
int __real_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __real_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *at);
int __real_pthread_cond_signal(pthread_cond_t *c);
int __real_pthread_cond_broadcast(pthread_cond_t *c);
int __real_clock_gettime(clockid_t clock, struct timespec *ret);
ssize_t __real_getrandom(void *buf, size_t len, unsigned flags);

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __wrap_pthread_join(pthread_t t, void **ret);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *at);
int __wrap_pthread_cond_signal(pthread_cond_t *c);
int __wrap_pthread_cond_broadcast(pthread_cond_t *c);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
ssize_t __wrap_getrandom(void *buf, size_t len, unsigned flags);

enum { THREADS = 512, NODES = SS_NODES };
#define NEVER INT64_MAX
#define START_US 1000000000LL
#define WALL_OFFSET_S 1700000000LL

enum state { FREE, RUNNABLE, WAITING, DONE };

struct thread {
    enum state state;
    int node;
    const void *on; /* what it waits for: a condition, a thread to join; NULL = only time */
    int64_t deadline_us;
    bool timed_out;
    sem_t baton;
    pthread_t real;
    void *(*fn)(void *);
    void *arg;
};

static struct {
    bool active;
    struct kc_rng rng; /* whose turn, and what the world does */
    struct kc_rng bytes; /* getrandom */
    int64_t now_us;
    uint64_t trace, switches;
    int n; /* slots in use: 0 .. n - 1 */
    bool frozen[NODES];
    cpu_set_t cpus; /* what the process had before */
    struct thread t[THREADS];
} S;

static _Thread_local struct thread *self;

/* ---- seeded choices ---- */

void ss_trace_add(uint64_t v)
{
    S.trace = (S.trace ^ v) * 0x100000001b3u;
}

uint64_t ss_below(uint64_t bound)
{
    uint64_t v = kc_rng_below(&S.rng, bound);
    ss_trace_add(v);
    return v;
}

bool ss_chance(uint32_t per_mille)
{
    return per_mille > 0 && ss_below(1000) < per_mille;
}

int64_t ss_now_us(void)
{
    return S.now_us;
}

uint64_t ss_trace(void)
{
    return S.trace;
}

uint64_t ss_switches(void)
{
    return S.switches;
}

int ss_node(void)
{
    return self->node;
}

void ss_set_node(int node)
{
    self->node = node;
}

void ss_freeze(int node, bool frozen)
{
    S.frozen[node] = frozen;
}

/* ---- the baton ---- */

static void stuck(void)
{
    fprintf(stderr, "simulation is stuck after %llu switches; threads that wait:\n",
            (unsigned long long)S.switches);
    for (int i = 0; i < S.n; i++) {
        if (S.t[i].state == WAITING) {
            fprintf(stderr, "  %d of node %d on %p\n", i, S.t[i].node, S.t[i].on);
        }
    }
    abort();
}

static bool can_run(const struct thread *t)
{
    return !S.frozen[t->node] &&
           (t->state == RUNNABLE || (t->state == WAITING && t->deadline_us <= S.now_us));
}

static struct thread *pick(void)
{
    for (;;) {
        struct thread *ready[THREADS];
        uint64_t n = 0;
        int64_t next = NEVER;
        for (int i = 0; i < S.n; i++) {
            struct thread *t = &S.t[i];
            if (can_run(t)) {
                ready[n++] = t;
            } else if (t->state == WAITING && !S.frozen[t->node]) {
                next = KC_MIN(next, t->deadline_us);
            }
        }
        if (n) {
            struct thread *t = ready[n > 1 ? ss_below(n) : 0];
            if (t->state == WAITING) {
                t->timed_out = true;
                t->state = RUNNABLE;
            }
            return t;
        }
        if (next == NEVER) {
            stuck();
        }
        S.now_us = next;
    }
}

/* The caller's state says whether it may go on. */
static void hand_over(void)
{
    struct thread *me = self;
    S.switches++;
    S.now_us += 1 + (int64_t)kc_rng_below(&S.rng, 8);
    struct thread *next = pick();
    if (next != me) {
        sem_post(&next->baton);
        while (sem_wait(&me->baton)) {
        }
    }
}

static void wait_on(const void *on, int64_t deadline_us)
{
    self->state = WAITING;
    self->on = on;
    self->deadline_us = deadline_us;
    self->timed_out = false;
    hand_over();
}

void ss_yield(void)
{
    hand_over();
}

void ss_sleep_us(int64_t us)
{
    wait_on(NULL, S.now_us + us);
}

static void wake(struct thread *t)
{
    t->state = RUNNABLE;
    t->on = NULL;
}

void ss_sched_begin(uint64_t seed)
{
    memset(&S, 0, sizeof(S));
    kc_rng_seed(&S.rng, seed);
    kc_rng_seed(&S.bytes, seed ^ 0x5bd1e995u);
    S.trace = 0xcbf29ce484222325u;
    S.now_us = START_US;
    S.n = 1;
    self = &S.t[0];
    self->state = RUNNABLE;
    self->node = 0;
    sem_init(&self->baton, 0, 0);
    /* One thread at a time: handing over within one processor is several times faster. */
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)KC_MAX(sched_getcpu(), 0), &one);
    sched_getaffinity(0, sizeof(S.cpus), &S.cpus);
    sched_setaffinity(0, sizeof(one), &one);
    S.active = true;
}

void ss_sched_end(void)
{
    for (int i = 1; i < S.n; i++) {
        KC_ASSERT(S.t[i].state == FREE);
    }
    S.active = false;
    sched_setaffinity(0, sizeof(S.cpus), &S.cpus);
    sem_destroy(&self->baton);
    self = NULL;
}

/* ---- threads ---- */

static void *trampoline(void *arg)
{
    self = arg;
    while (sem_wait(&self->baton)) {
    }
    void *ret = self->fn(self->arg);
    self->state = DONE;
    for (int i = 0; i < S.n; i++) {
        if (S.t[i].state == WAITING && S.t[i].on == self) {
            wake(&S.t[i]);
        }
    }
    S.switches++;
    sem_post(&pick()->baton);
    return ret;
}

int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
    if (!S.active) {
        return __real_pthread_create(ret, a, fn, arg);
    }
    int i = 0;
    while (i < S.n && S.t[i].state != FREE) {
        i++;
    }
    KC_ASSERT(i < THREADS);
    S.n = KC_MAX(S.n, i + 1);
    struct thread *t = &S.t[i];
    memset(t, 0, sizeof(*t));
    t->node = self->node;
    t->fn = fn;
    t->arg = arg;
    sem_init(&t->baton, 0, 0);
    t->state = RUNNABLE;
    int rc = __real_pthread_create(ret, a, trampoline, t);
    KC_ASSERT(rc == 0); /* failing it is a matter for the unit tests */
    t->real = *ret;
    return 0;
}

int __wrap_pthread_join(pthread_t real, void **ret)
{
    struct thread *t = NULL;
    for (int i = 0; S.active && i < S.n; i++) {
        if (S.t[i].state != FREE && pthread_equal(S.t[i].real, real)) {
            t = &S.t[i];
        }
    }
    while (t && t->state != DONE) {
        wait_on(t, NEVER);
    }
    int rc = __real_pthread_join(real, ret);
    if (t) {
        sem_destroy(&t->baton);
        t->state = FREE;
    }
    return rc;
}

/* ---- locks and conditions ---- */

static void take(pthread_mutex_t *m)
{
    for (int rc; (rc = pthread_mutex_trylock(m)) != 0;) {
        KC_ASSERT(rc == EBUSY); /* anything else: the mutex is destroyed */
        hand_over();
    }
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *m)
{
    if (!S.active) {
        return __real_pthread_mutex_lock(m);
    }
    if (kc_rng_below(&S.rng, 8) == 0) {
        hand_over(); /* somebody else may come first */
    }
    take(m);
    return 0;
}

static int cond_wait(pthread_cond_t *c, pthread_mutex_t *m, int64_t deadline_us)
{
    pthread_mutex_unlock(m);
    wait_on(c, deadline_us);
    bool timed_out = self->timed_out;
    take(m);
    return timed_out ? ETIMEDOUT : 0;
}

int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    return S.active ? cond_wait(c, m, NEVER) : __real_pthread_cond_wait(c, m);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *at)
{
    return S.active ? cond_wait(c, m, at->tv_sec * 1000000LL + at->tv_nsec / 1000)
                    : __real_pthread_cond_timedwait(c, m, at);
}

static void wake_some(const void *c, bool all)
{
    struct thread *ready[THREADS];
    uint64_t n = 0;
    for (int i = 0; i < S.n; i++) {
        if (S.t[i].state == WAITING && S.t[i].on == c) {
            ready[n++] = &S.t[i];
        }
    }
    if (!all && n > 1) {
        ready[0] = ready[ss_below(n)];
    }
    for (uint64_t i = 0; i < (all ? n : KC_MIN(n, 1u)); i++) {
        wake(ready[i]);
    }
}

int __wrap_pthread_cond_signal(pthread_cond_t *c)
{
    if (!S.active) {
        return __real_pthread_cond_signal(c);
    }
    wake_some(c, false);
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *c)
{
    if (!S.active) {
        return __real_pthread_cond_broadcast(c);
    }
    wake_some(c, true);
    return 0;
}

/* ---- clock and randomness ---- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    if (!S.active || !self) {
        return __real_clock_gettime(clock, ret);
    }
    ret->tv_sec = S.now_us / 1000000 + (clock == CLOCK_REALTIME ? WALL_OFFSET_S : 0);
    ret->tv_nsec = S.now_us % 1000000 * 1000;
    return 0;
}

ssize_t __wrap_getrandom(void *buf, size_t len, unsigned flags)
{
    if (!S.active || !self) {
        return __real_getrandom(buf, len, flags);
    }
    uint8_t *p = buf;
    for (size_t i = 0; i < len; i++) {
        p[i] = (uint8_t)kc_rng_next(&S.bytes);
    }
    return (ssize_t)len;
}
