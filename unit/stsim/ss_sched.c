#include "ss_sched.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_rng.h"
#include "ss_co.h"

enum { THREADS = 512, NODES = SS_NODES };
#define START_US 1000000000LL

enum state { FREE, RUNNABLE, WAITING, DONE };

struct ss_thread {
    struct ss_co co;
    enum state state;
    int node;
    int run_at; /* place among those that can run now; -1 = not there, for its node is frozen */
    int heap_at; /* place among the deadlines; -1 = has none, or its node was frozen when it came */
    const void *on; /* what it waits for: a condition, a lock, a thread to join; NULL = only time */
    int64_t deadline_us;
    bool timed_out;
    void *(*fn)(void *);
    void *arg, *ret;
    struct ss_local local;
};

static struct {
    bool active;
    struct kc_rng rng; /* whose turn, and what the world does */
    struct kc_rng bytes; /* getrandom */
    int64_t now_us;
    uint64_t trace, switches;
    struct ss_thread *self;
    int n; /* slots in use: 0 .. n - 1 */
    int n_run, n_heap;
    struct ss_thread *run[THREADS];
    struct ss_thread *heap[THREADS]; /* by deadline, the next one first */
    int64_t frozen_until_us[NODES]; /* 0 = not frozen */
    struct ss_thread t[THREADS];
} S;

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

void ss_random_bytes(uint8_t *p, size_t len)
{
    for (size_t n = 0; len > 0; p += n, len -= n) {
        uint64_t v = kc_rng_next(&S.bytes);
        n = KC_MIN(len, sizeof(v));
        memcpy(p, &v, n);
    }
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

bool ss_sched_active(void)
{
    return S.active;
}

struct ss_thread *ss_self(void)
{
    return S.self;
}

int ss_node(void)
{
    return S.self->node;
}

void ss_set_node(int node)
{
    S.self->node = node;
}

struct ss_local *ss_local(void)
{
    return &S.self->local;
}

bool ss_local_at(int i, int node, const struct ss_local **ret)
{
    bool there = i < S.n;
    const struct ss_thread *t = there ? &S.t[i] : NULL;
    bool live = t && (t->state == RUNNABLE || t->state == WAITING);
    *ret = live && (node < 0 || t->node == node) ? &t->local : NULL;
    return there;
}

/* ---- who can run, and who will by itself ---- */

/* The first thread is the world itself: it goes on while it is on a frozen node's business. */
static bool is_frozen(const struct ss_thread *t)
{
    return S.frozen_until_us[t->node] && t != &S.t[0];
}

static void run_add(struct ss_thread *t)
{
    t->state = RUNNABLE;
    if (t->run_at < 0 && !is_frozen(t)) {
        t->run_at = S.n_run;
        S.run[S.n_run++] = t;
    }
}

static void run_del(struct ss_thread *t)
{
    if (t->run_at >= 0) {
        struct ss_thread *last = S.run[--S.n_run];
        S.run[t->run_at] = last;
        last->run_at = t->run_at;
        t->run_at = -1;
    }
}

static void heap_put(int at, struct ss_thread *t)
{
    S.heap[at] = t;
    t->heap_at = at;
}

static void heap_up(int at, struct ss_thread *t)
{
    for (int up; at > 0 && S.heap[up = (at - 1) / 2]->deadline_us > t->deadline_us; at = up) {
        heap_put(at, S.heap[up]);
    }
    heap_put(at, t);
}

static void heap_add(struct ss_thread *t)
{
    heap_up(S.n_heap++, t);
}

static void heap_del(struct ss_thread *t)
{
    int at = t->heap_at;
    if (at < 0) {
        return;
    }
    t->heap_at = -1;
    struct ss_thread *last = S.heap[--S.n_heap];
    if (last == t) {
        return;
    }
    for (int down; (down = 2 * at + 1) < S.n_heap; at = down) {
        if (down + 1 < S.n_heap && S.heap[down + 1]->deadline_us < S.heap[down]->deadline_us) {
            down++;
        }
        if (S.heap[down]->deadline_us >= last->deadline_us) {
            break;
        }
        heap_put(at, S.heap[down]);
    }
    heap_up(at, last);
}

/* ---- freezing ---- */

static void hand_over(void);

bool ss_frozen(int node)
{
    return S.frozen_until_us[node] != 0;
}

void ss_freeze(int node, int64_t until_us)
{
    S.frozen_until_us[node] = until_us;
    for (int i = 0; i < S.n; i++) {
        if (S.t[i].node == node && i != 0) {
            run_del(&S.t[i]);
        }
    }
    if (is_frozen(S.self)) {
        hand_over();
    }
}

void ss_thaw(int node)
{
    S.frozen_until_us[node] = 0;
    for (int i = 1; i < S.n; i++) {
        struct ss_thread *t = &S.t[i];
        if (t->node != node) {
            continue;
        }
        if (t->state == RUNNABLE) {
            run_add(t);
        } else if (t->state == WAITING && t->heap_at < 0 && t->deadline_us != SS_NEVER) {
            heap_add(t);
        }
    }
}

/* ---- whose turn it is ---- */

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

/* Whoever's deadline has come can run; those of frozen nodes wait for the thaw. */
static void expire(void)
{
    for (int i = 0; i < NODES; i++) {
        if (S.frozen_until_us[i] && S.frozen_until_us[i] <= S.now_us) {
            ss_thaw(i);
        }
    }
    while (S.n_heap && (S.heap[0]->deadline_us <= S.now_us || is_frozen(S.heap[0]))) {
        struct ss_thread *t = S.heap[0];
        heap_del(t);
        if (!is_frozen(t)) {
            t->timed_out = true;
            t->on = NULL;
            run_add(t);
        }
    }
}

static struct ss_thread *pick(void)
{
    for (;;) {
        expire();
        if (S.n_run) {
            return S.run[S.n_run > 1 ? ss_below((uint64_t)S.n_run) : 0];
        }
        int64_t next = S.n_heap ? S.heap[0]->deadline_us : SS_NEVER;
        for (int i = 0; i < NODES; i++) {
            if (S.frozen_until_us[i]) {
                next = KC_MIN(next, S.frozen_until_us[i]);
            }
        }
        if (next == SS_NEVER) {
            stuck();
        }
        S.now_us = next;
    }
}

/* The caller's state says whether it may go on. */
static void hand_over(void)
{
    struct ss_thread *me = S.self;
    S.switches++;
    S.now_us += 1 + (int64_t)kc_rng_below(&S.rng, 8);
    struct ss_thread *next = pick();
    if (next != me) {
        S.self = next;
        ss_co_switch(&me->co, &next->co);
    }
}

void ss_yield(void)
{
    hand_over();
}

void ss_maybe_yield(void)
{
    if (kc_rng_below(&S.rng, 8) == 0) {
        hand_over();
    }
}

bool ss_wait(const void *on, int64_t deadline_us)
{
    struct ss_thread *me = S.self;
    run_del(me);
    me->state = WAITING;
    me->on = on;
    me->deadline_us = deadline_us;
    me->timed_out = false;
    if (deadline_us != SS_NEVER) {
        heap_add(me);
    }
    hand_over();
    return me->timed_out;
}

void ss_sleep_us(int64_t us)
{
    ss_wait(NULL, S.now_us + us);
}

static void wake(struct ss_thread *t)
{
    heap_del(t);
    t->on = NULL;
    run_add(t);
}

void ss_wake(const void *on, bool all)
{
    struct ss_thread *ready[THREADS];
    uint64_t n = 0;
    for (int i = 0; i < S.n; i++) {
        if (S.t[i].state == WAITING && S.t[i].on == on) {
            ready[n++] = &S.t[i];
        }
    }
    if (!all && n > 1) {
        ready[0] = ready[ss_below(n)];
        n = 1;
    }
    for (uint64_t i = 0; i < n; i++) {
        wake(ready[i]);
    }
}

/* ---- threads ---- */

static void thread_main(void)
{
    struct ss_thread *me = S.self;
    me->ret = me->fn(me->arg);
    run_del(me);
    me->state = DONE;
    ss_wake(me, true);
    S.switches++;
    S.self = pick();
    ss_co_leave(&me->co, &S.self->co);
}

struct ss_thread *ss_thread_new(void *(*fn)(void *), void *arg)
{
    int i = 0;
    while (i < S.n && S.t[i].state != FREE) {
        i++;
    }
    KC_ASSERT(i < THREADS);
    S.n = KC_MAX(S.n, i + 1);
    struct ss_thread *t = &S.t[i];
    *t =
        (struct ss_thread){.node = S.self->node, .fn = fn, .arg = arg, .run_at = -1, .heap_at = -1};
    ss_co_make(&t->co, thread_main);
    run_add(t);
    return t;
}

void *ss_thread_join(struct ss_thread *t)
{
    while (t->state != DONE) {
        ss_wait(t, SS_NEVER);
    }
    ss_co_drop(&t->co);
    t->state = FREE;
    return t->ret;
}

void ss_sched_begin(uint64_t seed)
{
    memset(&S, 0, sizeof(S));
    kc_rng_seed(&S.rng, seed);
    kc_rng_seed(&S.bytes, seed ^ 0x5bd1e995u);
    S.trace = 0xcbf29ce484222325u;
    S.now_us = START_US;
    S.n = 1;
    S.self = &S.t[0];
    *S.self = (struct ss_thread){.run_at = -1, .heap_at = -1};
    ss_co_adopt(&S.self->co);
    run_add(S.self);
    S.active = true;
}

void ss_sched_end(void)
{
    for (int i = 1; i < S.n; i++) {
        KC_ASSERT(S.t[i].state == FREE);
    }
    S.active = false;
}
