#include "storage/ks_txn.h"

#include <errno.h>
#include <string.h>

#include "base/kc_mem.h"

void ks_aborts_fini(struct ks_aborts *a)
{
    kc_free(a->v);
    *a = (struct ks_aborts){0};
}

int ks_aborts_reserve(struct ks_aborts *a, uint32_t n)
{
    if (a->room - a->n >= n) {
        return 0;
    }
    size_t room = (size_t)a->n + KC_MAX(n, a->room / 2 + 4u);
    struct ks_abort *v = room <= UINT32_MAX ? kc_try_realloc(a->v, room * sizeof(*v)) : NULL;
    if (!v) {
        return -ENOMEM;
    }
    a->v = v;
    a->room = (uint32_t)room;
    return 0;
}

void ks_aborts_add(struct ks_aborts *a, const struct ks_abort *b)
{
    KC_ASSERT(a->n < a->room && (a->n == 0 || a->v[a->n - 1].last < b->last));
    a->v[a->n++] = *b;
}

/* The first entry whose marker is at or behind an offset. */
static uint32_t lower(const struct ks_aborts *a, int64_t offset)
{
    uint32_t lo = 0, hi = a->n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (a->v[mid].last >= offset) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return lo;
}

void ks_aborts_trim(struct ks_aborts *a, int64_t start)
{
    uint32_t gone = lower(a, start);
    if (gone) {
        a->n -= gone;
        memmove(a->v, a->v + gone, a->n * sizeof(*a->v));
    }
}

uint32_t ks_aborts_find(const struct ks_aborts *a, int64_t from, int64_t to, struct ks_abort *ret,
                        uint32_t cap)
{
    uint32_t n = 0;
    for (uint32_t i = lower(a, from); i < a->n; i++) {
        if (a->v[i].first < to) {
            if (n < cap) {
                ret[n] = a->v[i];
            }
            n++;
        }
        if (a->v[i].stable >= to) {
            break; /* nothing that was still open then starts before `to` */
        }
    }
    return n;
}
