/* The log as everyone saw it together: one value an offset, each value once, in order, none missing. */
#include "history/hist.h"

#include <inttypes.h>
#include <string.h>

#include "base/kc_mem.h"

/* ---- offset -> value ---- */

static void room_for(struct hist_part *p, int64_t offset)
{
    if (offset < p->n) {
        return;
    }
    int64_t n = KC_MAX(offset + 1, p->n * 2);
    p->values = kc_realloc(p->values, (size_t)n * sizeof(*p->values));
    p->marks = kc_realloc(p->marks, (size_t)n);
    memset(p->values + p->n, 0, (size_t)(n - p->n) * sizeof(*p->values));
    memset(p->marks + p->n, 0, (size_t)(n - p->n));
    p->n = n;
}

/* Somebody says that the value stands at the offset. */
static void observe(struct hist *h, int32_t part, struct hist_record r, uint8_t mark)
{
    struct hist_part *p = &h->parts[part];
    room_for(p, r.offset);
    uint64_t there = p->values[r.offset];
    p->marks[r.offset] |= mark;
    if (there == 0) {
        p->values[r.offset] = r.value;
    } else if (there != r.value) {
        hist_found(h, HIST_COLLISION, part, "offset %" PRId64 " has %" PRIu64 " and %" PRIu64,
                   r.offset, there, r.value);
    }
}

static void observe_acks(struct hist *h)
{
    for (uint32_t n = 1; n < HIST_PROCESSES; n++) {
        struct hist_process *p = &h->processes[n];
        for (size_t i = 0; i < p->n_sends; i++) {
            if (p->sends[i].outcome == HIST_ACKED && p->sends[i].offset >= 0) {
                uint64_t value = (uint64_t)n << HIST_SEQUENCE_BITS | i;
                observe(h, p->sends[i].part, (struct hist_record){p->sends[i].offset, value}, 0);
            }
        }
    }
}

static void check_read_value(struct hist *h, const struct hist_poll *poll, struct hist_record r)
{
    const struct hist_process *reader = &h->processes[poll->process];
    struct hist_send *s = hist_send_of(h, r.value);
    const struct hist_part *part = &h->parts[poll->part];
    if (!s || s->topic != part->topic || (s->part >= 0 && s->part != poll->part)) {
        hist_found(h, HIST_UNSENT, poll->part, "%" PRIu64 " at %" PRId64 " was not sent there",
                   r.value, r.offset);
        return;
    }
    const struct hist_process *sender = hist_sender(h, r.value);
    bool aborted =
        s->txn >= 0 && (size_t)s->txn < sender->n_txns && sender->txns[s->txn] == HIST_TXN_ABORTED;
    if (s->outcome == HIST_REFUSED || (aborted && reader->flags & HIST_COMMITTED)) {
        hist_found(h, HIST_ABORTED, poll->part, "%s read %" PRIu64 " at %" PRId64 ", which was %s",
                   reader->name, r.value, r.offset, aborted ? "aborted" : "refused");
    }
}

static void observe_reads(struct hist *h)
{
    for (size_t i = 0; i < h->n_polls; i++) {
        const struct hist_poll *poll = &h->polls[i];
        uint8_t mark = h->processes[poll->process].final ? HIST_SEEN | HIST_FINAL : HIST_SEEN;
        for (int32_t k = 0; k < poll->n; k++) {
            struct hist_record r = h->records[poll->first + (size_t)k];
            observe(h, poll->part, r, mark);
            check_read_value(h, poll, r);
        }
    }
}

/* ---- each once, in order ---- */

static void check_order(struct hist *h, int32_t part, size_t *last_plus_1)
{
    struct hist_part *p = &h->parts[part];
    memset(last_plus_1, 0, HIST_PROCESSES * sizeof(*last_plus_1));
    for (int64_t o = 0; o < p->n; o++) {
        uint64_t value = p->values[o];
        struct hist_send *s = value ? hist_send_of(h, value) : NULL;
        if (!s || (s->part >= 0 && s->part != part)) {
            continue; /* unsent, reported as such */
        }
        const struct hist_process *sender = hist_sender(h, value);
        bool idempotent = sender->flags & HIST_IDEMPOTENT;
        size_t number = value >> HIST_SEQUENCE_BITS;
        size_t sequence = (size_t)(value - ((uint64_t)number << HIST_SEQUENCE_BITS));
        s->final = s->final || p->marks[o] & HIST_FINAL;
        if (s->found >= 0) {
            h->plain_duplicates += !idempotent;
            if (idempotent) {
                hist_found(h, HIST_DUPLICATE, part, "%" PRIu64 " at %" PRId64 " and %" PRId64,
                           value, s->found, o);
            }
            continue;
        }
        s->found = o;
        if (idempotent && sequence + 1 < last_plus_1[number]) {
            hist_found(h, HIST_REORDERED, part,
                       "%s's record %zu at %" PRId64 " stands after its record %zu", sender->name,
                       sequence, o, last_plus_1[number] - 1);
        }
        last_plus_1[number] = KC_MAX(last_plus_1[number], sequence + 1);
    }
}

/* ---- none missing ---- */

/* The last offset of each key; only for compacted topics, whose keys are small numbers. */
enum { KEYS_MAX = 1 << 20 };

static int64_t *last_of_keys(const struct hist *h, const struct hist_part *p)
{
    int64_t *last = kc_alloc(KEYS_MAX * sizeof(*last));
    memset(last, 0xff, KEYS_MAX * sizeof(*last));
    for (int64_t o = 0; o < p->n; o++) {
        const struct hist_send *s = p->values[o] ? hist_send_of(h, p->values[o]) : NULL;
        if (s && s->key >= 0 && s->key < KEYS_MAX) {
            last[s->key] = o;
        }
    }
    return last;
}

/* Why an acknowledged record may be missing from the final read; NULL: it may not. */
static const char *excuse(const struct hist *h, const struct hist_send *s, const int64_t *last)
{
    const struct hist_part *p = &h->parts[s->part];
    const struct hist_topic *t = &h->topics[p->topic];
    if (t->deleting && s->offset < p->final_start) {
        return "expired";
    }
    if (t->compacted && last && s->key >= 0 && s->key < KEYS_MAX && last[s->key] > s->offset) {
        return "compacted";
    }
    return NULL;
}

static bool in_final_read(const struct hist_part *p, const struct hist_send *s, uint64_t value)
{
    if (s->offset < 0) {
        return s->final;
    }
    return s->offset < p->n && p->values[s->offset] == value && p->marks[s->offset] & HIST_FINAL;
}

static void check_lost(struct hist *h, int64_t **last)
{
    for (uint32_t n = 1; n < HIST_PROCESSES; n++) {
        struct hist_process *p = &h->processes[n];
        for (size_t i = 0; i < p->n_sends; i++) {
            struct hist_send *s = &p->sends[i];
            uint64_t value = (uint64_t)n << HIST_SEQUENCE_BITS | i;
            if (s->outcome != HIST_ACKED || in_final_read(&h->parts[s->part], s, value) ||
                excuse(h, s, last[s->part])) {
                continue;
            }
            const struct hist_part *part = &h->parts[s->part];
            hist_found(h, HIST_LOST, s->part,
                       "%s's %" PRIu64 ", acknowledged at %" PRId64 ": final read %s [%" PRId64
                       ", %" PRId64 ")",
                       p->name, value, s->offset, part->final_end < 0 ? "missing" : "without it",
                       part->final_start, part->final_end);
        }
    }
}

void hist_check_log(struct hist *h)
{
    observe_acks(h);
    observe_reads(h);
    size_t *order = kc_alloc(HIST_PROCESSES * sizeof(*order));
    int64_t **last = kc_zalloc((h->n_parts + 1) * sizeof(*last));
    for (size_t i = 0; i < h->n_parts; i++) {
        check_order(h, (int32_t)i, order);
        if (h->topics[h->parts[i].topic].compacted) {
            last[i] = last_of_keys(h, &h->parts[i]);
        }
    }
    if (!h->partial) {
        check_lost(h, last);
    }
    for (size_t i = 0; i < h->n_parts; i++) {
        kc_free(last[i]);
    }
    kc_free(last);
    kc_free(order);
}
