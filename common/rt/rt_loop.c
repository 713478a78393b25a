#include "rt/rt_loop.h"

#include <errno.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "rt/rt_thread.h"

enum { TICK_MS = 1000 };

void rt_loop_touch(struct rt_loop *l)
{
    atomic_store_explicit(&l->tick_ms, kc_mono_ms(), memory_order_relaxed);
}

void rt_loop_after(struct rt_loop *l, struct rt_after *a)
{
    a->next = l->after;
    l->after = a;
}

/* Once: what is asked for by those that run waits for the next time. */
static void run_after(struct rt_loop *l)
{
    struct rt_after *a = l->after;
    l->after = NULL;
    while (a) {
        struct rt_after *next = a->next;
        a->fn(a);
        a = next;
    }
}

static void on_tick(uv_timer_t *h)
{
    rt_loop_touch(h->data);
}

/* Takes all messages and runs them oldest first. */
static void drain(struct rt_loop *l)
{
    struct rt_msg *m = atomic_exchange_explicit(&l->inbox, NULL, memory_order_acquire);
    struct rt_msg *ordered = NULL;
    while (m) {
        struct rt_msg *next = m->next;
        m->next = ordered;
        ordered = m;
        m = next;
    }
    while (ordered) {
        struct rt_msg *next = ordered->next;
        ordered->fn(ordered);
        ordered = next;
    }
}

/* Never blocks: an eventfd is full after 2^64 - 1 wake-ups that nobody took. */
static void write_wake(struct rt_loop *l)
{
    uint64_t one = 1;
    while (write(l->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
}

static void on_idle(uv_idle_t *h)
{
    (void)h; /* while it is active the loop looks for work without waiting */
}

/* Before the loop waits, which it does not if messages have run: their work may be all that a caller of
 * uv_run waits for. Either a sender sees that the loop is asleep, or the loop sees the sender's
 * message: both look after they have written. */
static void on_turn(uv_prepare_t *h)
{
    struct rt_loop *l = h->data;
    atomic_fetch_add_explicit(&l->turns, 1, memory_order_relaxed);
    rt_loop_touch(l);
    bool busy = atomic_load_explicit(&l->inbox, memory_order_relaxed);
    drain(l);
    run_after(l); /* sends answers, which begins requests that waited for them, */
    run_after(l); /* and these have appended */
    busy = busy || l->after;
    if (!busy) {
        atomic_store(&l->asleep, true);
        busy = atomic_load(&l->inbox) && atomic_exchange(&l->asleep, false);
    }
    if (busy) {
        uv_idle_start(&l->busy, on_idle);
    } else {
        uv_idle_stop(&l->busy);
    }
}

static void on_wake(uv_poll_t *h, int status, int events)
{
    (void)status;
    (void)events;
    struct rt_loop *l = h->data;
    uint64_t n;
    while (read(l->wake_fd, &n, sizeof(n)) < 0 && errno == EINTR) {
    }
    rt_loop_awake(l);
    drain(l);
    run_after(l);
    if (atomic_load(&l->stopping)) {
        uv_stop(&l->uv);
    }
}

/* A loop that is ending can close the eventfd between a sender's push and its write: the end waits for
 * senders (here), senders look whether it has come. */
static void wake_up(struct rt_loop *l)
{
    if (!atomic_load(&l->closed)) {
        write_wake(l);
    }
}

static void await_senders(struct rt_loop *l)
{
    atomic_store(&l->closed, true);
    while (atomic_load(&l->senders)) {
        sched_yield();
    }
}

int rt_loop_init(struct rt_loop *l, const char *name)
{
    int rc = uv_loop_init(&l->uv);
    if (rc) {
        return rc;
    }
    l->name = name;
    l->started = false;
    l->after = NULL;
    atomic_init(&l->inbox, NULL);
    atomic_init(&l->asleep, false);
    atomic_init(&l->stopping, false);
    atomic_init(&l->closed, false);
    atomic_init(&l->senders, 0);
    atomic_init(&l->tick_ms, 0);
    atomic_init(&l->turns, 0);
    l->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    rc = l->wake_fd < 0 ? -errno : uv_poll_init(&l->uv, &l->wake, l->wake_fd);
    if (rc) {
        return rc;
    }
    uv_prepare_init(&l->uv, &l->turn);
    uv_idle_init(&l->uv, &l->busy);
    uv_timer_init(&l->uv, &l->tick_timer);
    l->wake.data = l->turn.data = l->tick_timer.data = l;
    uv_poll_start(&l->wake, UV_READABLE, on_wake);
    uv_prepare_start(&l->turn, on_turn);
    uv_timer_start(&l->tick_timer, on_tick, TICK_MS, TICK_MS);
    return 0;
}

static void close_one(uv_handle_t *h, void *arg)
{
    (void)arg;
    if (!uv_is_closing(h)) {
        uv_close(h, NULL);
    }
}

void rt_loop_run(struct rt_loop *l)
{
    l->thread = pthread_self();
    if (!atomic_load(&l->stopping)) {
        uv_run(&l->uv, UV_RUN_DEFAULT);
    }
    await_senders(l);
    drain(l); /* messages posted while stopping still own their memory */
    run_after(l);
    uv_walk(&l->uv, close_one, NULL);
    uv_run(&l->uv, UV_RUN_DEFAULT);
    drain(l);
    run_after(l);
    uv_loop_close(&l->uv);
    close(l->wake_fd);
}

static void *thread_main(void *arg)
{
    struct rt_loop *l = arg;
    rt_thread_enter(l->name);
    rt_loop_run(l);
    return NULL;
}

int rt_loop_start(struct rt_loop *l)
{
    l->started = true;
    int rc = pthread_create(&l->handle, NULL, thread_main, l);
    if (rc) {
        l->started = false;
    }
    return -rc;
}

void rt_loop_stop(struct rt_loop *l)
{
    atomic_fetch_add(&l->senders, 1);
    atomic_store(&l->stopping, true);
    wake_up(l);
    atomic_fetch_sub(&l->senders, 1);
}

void rt_loop_join(struct rt_loop *l)
{
    if (l->started) {
        pthread_join(l->handle, NULL);
        l->started = false;
    }
}

void rt_post(struct rt_loop *l, struct rt_msg *msg)
{
    atomic_fetch_add(&l->senders, 1);
    struct rt_msg *old = atomic_load_explicit(&l->inbox, memory_order_relaxed);
    do {
        msg->next = old;
    } while (!atomic_compare_exchange_weak(&l->inbox, &old, msg));
    if (atomic_load(&l->asleep) && atomic_exchange(&l->asleep, false)) {
        wake_up(l); /* others ride on the first one's */
    }
    atomic_fetch_sub(&l->senders, 1);
}

struct call_msg {
    struct rt_msg msg;
    void (*fn)(void *);
    void *arg;
};

static void run_call(struct rt_msg *msg)
{
    struct call_msg *c = KC_CONTAINER_OF(msg, struct call_msg, msg);
    c->fn(c->arg);
    kc_free(c);
}

void rt_call(struct rt_loop *l, void (*fn)(void *arg), void *arg)
{
    struct call_msg *c = kc_alloc(sizeof(*c));
    *c = (struct call_msg){.msg.fn = run_call, .fn = fn, .arg = arg};
    rt_post(l, &c->msg);
}

int64_t rt_loop_age_ms(struct rt_loop *l, int64_t now_mono_ms)
{
    int64_t t = atomic_load_explicit(&l->tick_ms, memory_order_relaxed);
    return t == 0 ? INT64_MAX : KC_MAX(now_mono_ms - t, (int64_t)0);
}
