/* Committed offsets: a register for each group and partition. What is told was committed, and no
 * commit that was over before the question had replaced it. */
#include "history/hist.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/kc_mem.h"

static int by_register(const void *a, const void *b)
{
    const struct hist_commit *x = a, *y = b;
    if (x->group != y->group) {
        return x->group < y->group ? -1 : 1;
    }
    if (x->part != y->part) {
        return x->part < y->part ? -1 : 1;
    }
    return x->start_us < y->start_us ? -1 : x->start_us > y->start_us;
}

static bool same_register(const struct hist_commit *a, const struct hist_commit *b)
{
    return a->group == b->group && a->part == b->part;
}

/* What was told at q may be the answer: some commit of that offset (or the beginning, if none was
 * told) can stand last before it. `list` holds one register's events by time. */
static bool legal(const struct hist_commit *list, size_t n, const struct hist_commit *q,
                  int64_t stale_us)
{
    /* The latest begin of a commit that was over before the question: who ended before that is replaced. */
    int64_t latest = INT64_MIN;
    for (size_t i = 0; i < n; i++) {
        if (!list[i].asked && !list[i].unknown && list[i].end_us < q->start_us - stale_us) {
            latest = KC_MAX(latest, list[i].start_us);
        }
    }
    if (q->offset < 0) {
        return latest == INT64_MIN;
    }
    for (size_t i = 0; i < n && list[i].start_us <= q->end_us; i++) {
        const struct hist_commit *c = &list[i];
        if (!c->asked && c->offset == q->offset && (c->unknown || c->end_us >= latest)) {
            return true;
        }
    }
    return false;
}

void hist_check_groups(struct hist *h)
{
    if (h->n_commits) {
        qsort(h->commits, h->n_commits, sizeof(*h->commits), by_register);
    }
    for (size_t from = 0, to; from < h->n_commits; from = to) {
        for (to = from; to < h->n_commits && same_register(&h->commits[from], &h->commits[to]);
             to++) {
        }
        for (size_t i = from; i < to; i++) {
            const struct hist_commit *q = &h->commits[i];
            if (q->asked && !legal(&h->commits[from], to - from, q, h->stale_us)) {
                hist_found(h, HIST_OFFSET_BACK, q->part,
                           "group %s was told %" PRId64 " at %" PRId64
                           " us, replaced before or never committed",
                           h->groups[q->group], q->offset, q->start_us);
            }
        }
    }
}
