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
    int64_t max_ts; /* what a repeat is told as its time of append, as in Kafka */
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

/* Kafka's answer to a batch that would be appended next. 0 with *ret_original: a repeat of that one
 * (borrowed until the next change). */
int16_t ks_prods_check(const struct ks_prods *t, const struct ks_batch *b,
                       const struct ks_prod_batch **ret_original);
/* Takes an appended (placed) batch into account; b without producer id: nothing. -ENOMEM. */
int ks_prods_apply(struct ks_prods *t, const struct ks_batch *b, int64_t now_wall_ms) KC_MUST_CHECK;
/* Room for n more producer ids, so that the next n applies cannot fail. -ENOMEM. */
int ks_prods_reserve(struct ks_prods *t, uint32_t n, int64_t now_wall_ms) KC_MUST_CHECK;
/* Nothing came from it for producer.id.expiration.ms, and no transaction of it is open. */
bool ks_prod_expired(const struct ks_prod_entry *e, int64_t now_wall_ms);
/* Puts in an entry as a snapshot has it. -ENOMEM. */
int ks_prods_put(struct ks_prods *t, const struct ks_prod_entry *entry) KC_MUST_CHECK;
/* dst is empty. -ENOMEM. */
int ks_prods_copy(struct ks_prods *dst, const struct ks_prods *src) KC_MUST_CHECK;
/* First offset of a producer's open transaction, or -1. */
int64_t ks_prods_txn_first(const struct ks_prods *t, int64_t producer_id);
/* The smallest first offset of an open transaction, or INT64_MAX. */
int64_t ks_prods_first_open(const struct ks_prods *t);

#endif
