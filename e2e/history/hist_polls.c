/* A reader sees a partition's records in order and leaves none out that others saw. */
#include "history/hist.h"

#include <inttypes.h>

#include "base/kc_mem.h"

struct cursor {
    int64_t next; /* -1: it may begin anywhere */
};

/* May a reader of this process pass the offset without being given its record? */
static bool passes(const struct hist *h, const struct hist_process *reader,
                   const struct hist_part *p, int64_t offset)
{
    const struct hist_topic *t = &h->topics[p->topic];
    const struct hist_send *s = p->values[offset] ? hist_send_of(h, p->values[offset]) : NULL;
    if (!s || t->compacted) {
        return true; /* nobody saw a record there, or it may have been replaced by a later one */
    }
    if (t->deleting && offset < p->final_start) {
        return true;
    }
    /* A reader of committed records passes those of a transaction that did not commit. */
    const struct hist_process *sender = hist_sender(h, p->values[offset]);
    return reader->flags & HIST_COMMITTED && s->txn >= 0 &&
           ((size_t)s->txn >= sender->n_txns || sender->txns[s->txn] != HIST_TXN_COMMITTED);
}

static void check_gap(struct hist *h, const struct hist_poll *poll, int64_t from, int64_t to)
{
    const struct hist_process *reader = &h->processes[poll->process];
    const struct hist_part *p = &h->parts[poll->part];
    for (int64_t o = from; o < KC_MIN(to, p->n); o++) {
        if (!passes(h, reader, p, o)) {
            hist_found(h, HIST_POLL_SKIP, poll->part,
                       "%s went from %" PRId64 " to %" PRId64 ", past %" PRIu64 " at %" PRId64,
                       reader->name, from - 1, to, p->values[o], o);
            return;
        }
    }
}

static void check_poll(struct hist *h, const struct hist_poll *poll, struct cursor *c)
{
    for (int32_t k = 0; k < poll->n; k++) {
        int64_t offset = h->records[poll->first + (size_t)k].offset;
        if (c->next >= 0 && offset < c->next) {
            hist_found(h, HIST_POLL_ORDER, poll->part, "%s read %" PRId64 " after %" PRId64,
                       h->processes[poll->process].name, offset, c->next - 1);
        } else if (c->next >= 0 && offset > c->next) {
            check_gap(h, poll, c->next, offset);
        }
        c->next = offset + 1;
    }
}

void hist_check_polls(struct hist *h)
{
    struct cursor *cursors = kc_alloc((h->n_parts + 1) * sizeof(*cursors));
    uint16_t process = 0;
    for (size_t i = 0; i < h->n_polls; i++) { /* a file's polls stand together, in its order */
        const struct hist_poll *poll = &h->polls[i];
        if (poll->process != process) {
            process = poll->process;
            for (size_t k = 0; k < h->n_parts; k++) {
                cursors[k].next = -1;
            }
        }
        if (poll->n < 0) {
            cursors[poll->part].next = poll->start;
        } else {
            check_poll(h, poll, &cursors[poll->part]);
        }
    }
    kc_free(cursors);
}
