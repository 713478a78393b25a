/* ks_prod.h - what a log remembers of its producers: the last five batches of each (idempotence)
 * and the first offset of an open transaction.
 *
 * One owner thread. Rules after Kafka's ProducerStateManager and ProducerAppendInfo, answers as
 * measured (research/kafka-api.md, 3.1): a repeat of one of the last five batches succeeds with its
 * original offset, anything else out of sequence is 45, an older epoch is 47. State is derived from
 * the log and is rebuilt by reading it. */
#ifndef KS_PROD_H
#define KS_PROD_H

#include "storage/ks_batch.h"

enum {
    KS_PROD_WINDOW = 5,
    KS_PROD_SLOTS = 1 << 17, /* largest table */
    KS_PROD_MAX = KS_PROD_SLOTS - KS_PROD_SLOTS / 4 /* most producer ids a log remembers */
};
/* producer.id.expiration.ms of Kafka. */
#define KS_PROD_EXPIRE_MS (86400000LL)

struct ks_prod_batch {
    int32_t first_seq, last_seq;
    int64_t last_offset;
};
struct ks_prod_entry {
    int64_t producer_id; /* -1 = free place */
    int64_t last_ts;
    int64_t txn_first; /* -1 = no open transaction */
    int16_t epoch;
    uint8_t n; /* batches remembered */
    struct ks_prod_batch batches[KS_PROD_WINDOW]; /* oldest first */
};

struct ks_prods {
    struct ks_prod_entry *slots; /* open addressing; NULL before the first */
    uint32_t n_slots, len, open_txns;
};

void ks_prods_init(struct ks_prods *t);
void ks_prods_fini(struct ks_prods *t);

/* Kafka's answer to a batch that would be appended next. 0 with *ret_duplicate_last >= 0: a repeat;
 * that is the last offset of the original. */
int16_t ks_prods_check(const struct ks_prods *t, const struct ks_batch *b,
                       int64_t *ret_duplicate_last);
/* Takes an appended (placed) batch into account; b without producer id: nothing. -ENOMEM. */
int ks_prods_apply(struct ks_prods *t, const struct ks_batch *b, int64_t now_wall_ms) KC_MUST_CHECK;
/* Room for n more producer ids, so that the next n applies cannot fail. -ENOMEM. */
int ks_prods_reserve(struct ks_prods *t, uint32_t n, int64_t now_wall_ms) KC_MUST_CHECK;
/* The smallest first offset of an open transaction, or INT64_MAX. */
int64_t ks_prods_first_open(const struct ks_prods *t);

#endif
