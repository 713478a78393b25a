/* ks_txn.h - aborted transactions of a log: what a read_committed consumer has to leave out.
 *
 * Kafka's TransactionIndex, in memory and in snapshots: one entry an abort marker, in the order of
 * the markers. One owner thread, as the producers' state. */
#ifndef KS_TXN_H
#define KS_TXN_H

#include "base/kc_base.h"
#include "base/kc_error.h"

struct ks_abort {
    int64_t producer_id;
    int64_t first; /* first offset of the transaction */
    int64_t last; /* its marker */
    int64_t
        stable; /* last stable offset once the marker stood: later entries start there or behind */
};

struct ks_aborts {
    struct ks_abort *v;
    uint32_t n, room;
};

void ks_aborts_fini(struct ks_aborts *a);
/* Room for n more. -ENOMEM. */
int ks_aborts_reserve(struct ks_aborts *a, uint32_t n) KC_MUST_CHECK;
/* Markers come in order; there is room. */
void ks_aborts_add(struct ks_aborts *a, const struct ks_abort *b);
/* Forgets those whose marker is before start: retention took them. */
void ks_aborts_trim(struct ks_aborts *a, int64_t start);
/* Copies up to cap of those that overlap [from, to), in order; returns how many there are. */
uint32_t ks_aborts_find(const struct ks_aborts *a, int64_t from, int64_t to, struct ks_abort *ret,
                        uint32_t cap);

#endif
