/* What the order of events in time says: later sends stand later, and no read is too old. */
#include "history/hist.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/kc_mem.h"

/* ---- one producer's acknowledgements ---- */

static void check_ack_order(struct hist *h)
{
    int64_t *last = kc_alloc((h->n_parts + 1) * sizeof(*last));
    for (uint32_t n = 1; n < HIST_PROCESSES; n++) {
        struct hist_process *p = &h->processes[n];
        if (!(p->flags & (HIST_IDEMPOTENT | HIST_ORDERED))) {
            continue;
        }
        for (size_t i = 0; i < h->n_parts; i++) {
            last[i] = -1;
        }
        for (size_t i = 0; i < p->n_sends; i++) {
            struct hist_send *s = &p->sends[i];
            if (s->outcome != HIST_ACKED || s->offset < 0) {
                continue;
            }
            if (s->offset <= last[s->part]) {
                hist_found(h, HIST_ACK_ORDER, s->part,
                           "%s's record %zu acknowledged at %" PRId64 ", one before it at %" PRId64,
                           p->name, i, s->offset, last[s->part]);
            }
            last[s->part] = KC_MAX(last[s->part], s->offset);
        }
    }
    kc_free(last);
}

/* ---- points in time ---- */

/* At `us` somebody learned that `offset` is in the log; or (asks) a send begins that was
 * acknowledged at `offset`, or a read begins that was told a high watermark of `offset`. */
struct point {
    int64_t us, offset;
    int32_t part;
    bool asks;
};

struct points {
    struct point *list;
    size_t n, room;
};

static void add(struct points *p, struct point x)
{
    p->list = hist_grow(p->list, p->n, &p->room, sizeof(*p->list));
    p->list[p->n++] = x;
}

/* By time; what is learned at the same microsecond comes after what is asked in it. */
static int by_time(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    return x->us != y->us ? (x->us < y->us ? -1 : 1) : (int)y->asks - (int)x->asks;
}

typedef void judge_fn(struct hist *h, const struct point *asking, int64_t known);

/* Each asking point against the highest offset known before it. */
static void sweep(struct hist *h, struct points *p, judge_fn *judge)
{
    if (p->n == 0) {
        return;
    }
    int64_t *known = kc_alloc((h->n_parts + 1) * sizeof(*known));
    for (size_t i = 0; i < h->n_parts; i++) {
        known[i] = -1;
    }
    qsort(p->list, p->n, sizeof(*p->list), by_time);
    for (size_t i = 0; i < p->n; i++) {
        struct point *x = &p->list[i];
        if (x->asks) {
            judge(h, x, known[x->part]);
        } else {
            known[x->part] = KC_MAX(known[x->part], x->offset);
        }
    }
    kc_free(known);
    kc_free(p->list);
}

static void judge_send(struct hist *h, const struct point *p, int64_t known)
{
    if (p->offset <= known) {
        hist_found(h, HIST_REAL_TIME, p->part,
                   "a send begun at %" PRId64 " us stands at %" PRId64 "; %" PRId64
                   " was acknowledged before",
                   p->us, p->offset, known);
    }
}

static void judge_read(struct hist *h, const struct point *p, int64_t known)
{
    if (p->offset <= known) {
        hist_found(h, HIST_STALE, p->part,
                   "told a high watermark of %" PRId64 "; %" PRId64 " was known more than %" PRId64
                   " ms before the question",
                   p->offset, known, h->stale_us / 1000);
    }
}

static void add_acks(const struct hist *h, struct points *p, bool sends)
{
    for (uint32_t n = 1; n < HIST_PROCESSES; n++) {
        const struct hist_process *proc = &h->processes[n];
        for (size_t i = 0; i < proc->n_sends; i++) {
            const struct hist_send *s = &proc->sends[i];
            if (s->outcome == HIST_ACKED && s->offset >= 0) {
                add(p, (struct point){s->acked_us, s->offset, s->part, false});
                if (sends) {
                    add(p, (struct point){s->invoked_us, s->offset, s->part, true});
                }
            }
        }
    }
}

static void check_real_time(struct hist *h)
{
    struct points p = {.n = 0};
    add_acks(h, &p, true);
    sweep(h, &p, judge_send);
}

static void check_stale(struct hist *h)
{
    struct points p = {.n = 0};
    add_acks(h, &p, false);
    for (size_t i = 0; i < h->n_polls; i++) {
        const struct hist_poll *poll = &h->polls[i];
        if (poll->n > 0) {
            int64_t last = h->records[poll->first + (size_t)poll->n - 1].offset;
            add(&p, (struct point){poll->end_us, last, poll->part, false});
        }
    }
    for (size_t i = 0; i < h->n_waters; i++) {
        const struct hist_water *w = &h->waters[i];
        add(&p, (struct point){w->end_us, w->high - 1, w->part, false});
        add(&p, (struct point){w->start_us - h->stale_us, w->high, w->part, true});
    }
    sweep(h, &p, judge_read);
}

void hist_check_time(struct hist *h)
{
    check_ack_order(h);
    check_real_time(h);
    check_stale(h);
}
