/* kd_timer.c - see kd_timer.h. */
#include "data/kd_timer.h"

#include "base/kc_clock.h"
#include "base/kc_mem.h"

static void place(struct kd_timers *ts, size_t i, struct kd_timer *t)
{
    ts->heap[i] = t;
    t->at = i + 1;
}

static void sift_up(struct kd_timers *ts, size_t i)
{
    struct kd_timer *t = ts->heap[i];
    while (i > 0 && ts->heap[(i - 1) / 2]->due_ms > t->due_ms) {
        place(ts, i, ts->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    place(ts, i, t);
}

static void sift_down(struct kd_timers *ts, size_t i)
{
    struct kd_timer *t = ts->heap[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= ts->len) {
            break;
        }
        if (child + 1 < ts->len && ts->heap[child + 1]->due_ms < ts->heap[child]->due_ms) {
            child++;
        }
        if (ts->heap[child]->due_ms >= t->due_ms) {
            break;
        }
        place(ts, i, ts->heap[child]);
        i = child;
    }
    place(ts, i, t);
}

static void on_due(uv_timer_t *h);

static void rearm(struct kd_timers *ts)
{
    if (!ts->open) {
        return;
    }
    if (ts->len == 0) {
        uv_timer_stop(&ts->uv);
        return;
    }
    int64_t wait = KC_MAX(ts->heap[0]->due_ms - kc_mono_ms(), (int64_t)0);
    uv_update_time(ts->uv.loop);
    uv_timer_start(&ts->uv, on_due, (uint64_t)wait, 0);
}

static void remove_at(struct kd_timers *ts, size_t i)
{
    ts->heap[i]->at = 0;
    struct kd_timer *last = ts->heap[--ts->len];
    if (i == ts->len) {
        return;
    }
    place(ts, i, last);
    sift_down(ts, i);
    sift_up(ts, last->at - 1);
}

static void on_due(uv_timer_t *h)
{
    struct kd_timers *ts = h->data;
    int64_t now = kc_mono_ms();
    while (ts->len > 0 && ts->heap[0]->due_ms <= now) {
        struct kd_timer *t = ts->heap[0];
        remove_at(ts, 0);
        t->fn(t); /* may arm and disarm others */
    }
    rearm(ts);
}

void kd_timers_init(struct kd_timers *ts, struct rt_loop *loop)
{
    *ts = (struct kd_timers){.open = true};
    uv_timer_init(&loop->uv, &ts->uv);
    ts->uv.data = ts;
}

void kd_timers_fini(struct kd_timers *ts)
{
    kc_free(ts->heap);
    *ts = (struct kd_timers){0};
}

void kd_timer_arm(struct kd_timers *ts, struct kd_timer *t, int64_t due_ms)
{
    if (t->at) {
        remove_at(ts, t->at - 1);
    }
    if (ts->len == ts->room) {
        ts->room = ts->room ? ts->room * 2 : 16;
        ts->heap = kc_realloc(ts->heap, ts->room * sizeof(*ts->heap));
    }
    t->due_ms = due_ms;
    place(ts, ts->len, t);
    sift_up(ts, ts->len++);
    if (t->at == 1) {
        rearm(ts);
    }
}

void kd_timer_disarm(struct kd_timers *ts, struct kd_timer *t)
{
    if (t->at) {
        remove_at(ts, t->at - 1); /* the uv timer may fire for nothing once */
    }
}
