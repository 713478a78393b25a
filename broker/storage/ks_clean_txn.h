/* ks_clean_txn.h - what the cleaner knows of transactions while it reads a log in order.
 *
 * After Kafka's CleanedTransactionMetadata. kaas keeps no transaction index, so a first reading finds
 * the aborted transactions (struct ks_clean_survey); the later ones are told by them which data is
 * void and which markers have no data left. One owner thread. */
#ifndef KS_CLEAN_TXN_H
#define KS_CLEAN_TXN_H

#include "base/kc_map.h"
#include "storage/ks_batch.h"

struct ks_clean_aborted {
    int64_t producer_id;
    int64_t first, last; /* offsets of its first batch and of its marker */
};

/* ---- the first reading ---- */

struct ks_clean_survey {
    struct kc_map open; /* producer id -> first offset + 1 */
    struct ks_clean_aborted *aborted; /* in order of their markers, until _end */
    uint32_t n, room;
};
void ks_clean_survey_init(struct ks_clean_survey *s);
void ks_clean_survey_fini(struct ks_clean_survey *s);
/* Batches in order. marker: of a control batch. -ENOMEM, KC_E_TOO_LARGE (too many). */
int ks_clean_survey_note(struct ks_clean_survey *s, const struct ks_batch *b,
                         enum ks_marker marker);
/* Transactions without an end so far. */
static inline size_t ks_clean_survey_open(const struct ks_clean_survey *s)
{
    return s->open.len;
}
/* Sorts by first offset, as ks_clean_txns wants it. */
void ks_clean_survey_end(struct ks_clean_survey *s);

/* ---- the later ones ---- */

struct ks_clean_txns {
    const struct ks_clean_aborted *aborted; /* borrowed, by first offset */
    uint32_t n, next;
    struct kc_map aborting; /* producer id -> was a batch of it read? */
    struct kc_map committed; /* producer ids whose transaction had a batch */
};
void ks_clean_txns_init(struct ks_clean_txns *t, const struct ks_clean_survey *s);
void ks_clean_txns_fini(struct ks_clean_txns *t);
/* Every batch, in order: true if its content is void: data of an aborted transaction, or a marker of
 * a transaction that has no batch any more. */
bool ks_clean_txns_read(struct ks_clean_txns *t, const struct ks_batch *b, enum ks_marker marker);

#endif
