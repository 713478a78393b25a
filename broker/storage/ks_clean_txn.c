#include "storage/ks_clean_txn.h"

#include <errno.h>
#include <stdlib.h>

#include "base/kc_error.h"
#include "base/kc_mem.h"

enum { ABORTED_MAX = 1 << 20 };

/* Marks in maps are small numbers, not pointers to anything. */
static void *mark(uintptr_t v)
{
    return (void *)v;
}

void ks_clean_survey_init(struct ks_clean_survey *s)
{
    *s = (struct ks_clean_survey){0};
    kc_map_init(&s->open);
}

void ks_clean_survey_fini(struct ks_clean_survey *s)
{
    kc_map_fini(&s->open, NULL);
    kc_free(s->aborted);
    *s = (struct ks_clean_survey){0};
}

int ks_clean_survey_note(struct ks_clean_survey *s, const struct ks_batch *b, enum ks_marker marker)
{
    const int64_t pid = b->producer_id;
    if (pid < 0 || !(b->attrs & KS_ATTR_TRANSACTIONAL)) {
        return 0;
    }
    uintptr_t first = (uintptr_t)kc_map_get(&s->open, &pid, sizeof(pid));
    if (!(b->attrs & KS_ATTR_CONTROL)) {
        if (!first) {
            kc_map_put(&s->open, &pid, sizeof(pid), mark((uintptr_t)b->base + 1));
        }
        return 0;
    }
    if (!first || marker == KS_MARK_NONE) {
        return 0;
    }
    kc_map_del(&s->open, &pid, sizeof(pid));
    if (marker == KS_MARK_COMMIT) {
        return 0;
    }
    if (s->n == s->room) {
        uint32_t room = KC_MAX(s->room * 2, 64u);
        struct ks_clean_aborted *a =
            s->n < ABORTED_MAX ? kc_try_realloc(s->aborted, room * sizeof(*a)) : NULL;
        if (!a) {
            return s->n < ABORTED_MAX ? -ENOMEM : KC_E_TOO_LARGE;
        }
        s->aborted = a;
        s->room = room;
    }
    s->aborted[s->n++] = (struct ks_clean_aborted){
        .producer_id = pid, .first = (int64_t)first - 1, .last = ks_batch_last(b)};
    return 0;
}

static int by_first(const void *a, const void *b)
{
    const struct ks_clean_aborted *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

void ks_clean_survey_end(struct ks_clean_survey *s)
{
    if (s->n) {
        qsort(s->aborted, s->n, sizeof(*s->aborted), by_first);
    }
}

void ks_clean_txns_init(struct ks_clean_txns *t, const struct ks_clean_survey *s)
{
    *t = (struct ks_clean_txns){.aborted = s->aborted, .n = s->n};
    kc_map_init(&t->aborting);
    kc_map_init(&t->committed);
}

void ks_clean_txns_fini(struct ks_clean_txns *t)
{
    kc_map_fini(&t->aborting, NULL);
    kc_map_fini(&t->committed, NULL);
    *t = (struct ks_clean_txns){0};
}

enum { UNREAD = 1, READ = 2 };

static void begin_up_to(struct ks_clean_txns *t, int64_t offset)
{
    for (; t->next < t->n && t->aborted[t->next].first <= offset; t->next++) {
        const int64_t pid = t->aborted[t->next].producer_id;
        if (!kc_map_get(&t->aborting, &pid, sizeof(pid))) {
            kc_map_put(&t->aborting, &pid, sizeof(pid), mark(UNREAD));
        }
    }
}

bool ks_clean_txns_read(struct ks_clean_txns *t, const struct ks_batch *b, enum ks_marker marker)
{
    const int64_t pid = b->producer_id;
    begin_up_to(t, ks_batch_last(b));
    if (b->attrs & KS_ATTR_CONTROL) {
        switch (marker) {
        case KS_MARK_ABORT:
            return kc_map_del(&t->aborting, &pid, sizeof(pid)) != mark(READ);
        case KS_MARK_COMMIT:
            return !kc_map_del(&t->committed, &pid, sizeof(pid));
        case KS_MARK_NONE:
            return false; /* not of a transaction: it stays */
        }
    }
    if (!(b->attrs & KS_ATTR_TRANSACTIONAL)) {
        return false;
    }
    if (kc_map_get(&t->aborting, &pid, sizeof(pid))) {
        kc_map_put(&t->aborting, &pid, sizeof(pid), mark(READ));
        return true;
    }
    kc_map_put(&t->committed, &pid, sizeof(pid), mark(READ));
    return false;
}
