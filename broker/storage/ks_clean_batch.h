/* ks_clean_batch.h - what of one batch survives a cleaning.
 *
 * After Kafka's Cleaner.shouldRetainRecord and MemoryRecords.filterTo: offsets, the last offset of
 * the batch, epoch, producer id and sequence never change; a record stays if it is the newest of its
 * key (or beyond what the map covers); a tombstone stays until its delete horizon, which is set
 * when it is first found clean (KIP-534: attribute bit 6, the horizon in the base timestamp); data
 * of aborted transactions goes at once, a marker once its data is gone and its horizon passed. Of each
 * live producer the last batches stay, if need be without records: Kafka keeps one of them, but here
 * the log is where the next owner learns which repeats to expect. Pure but for memory. */
#ifndef KS_CLEAN_BATCH_H
#define KS_CLEAN_BATCH_H

#include "storage/ks_codec.h"
#include "storage/ks_clean_map.h"
#include "storage/ks_clean_txn.h"
#include "storage/ks_prod.h"

/* A producer whose state lives on: where its last data batches end; none if it only has a marker. */
struct ks_clean_producer {
    int64_t producer_id;
    int16_t epoch;
    uint8_t n;
    int64_t last_offsets[KS_PROD_WINDOW];
};

struct ks_clean_stats {
    uint64_t batches_read, batches_whole; /* whole: kept as they were */
    uint64_t bytes_read, bytes_kept, records_read, records_kept;
};

struct ks_clean_filter {
    const struct ks_clean_map *map;
    struct ks_clean_txns txns;
    const struct ks_clean_producer *producers; /* borrowed, by producer id */
    uint32_t n_producers;
    int64_t now_wall_ms, delete_retention_ms;
    struct ks_clean_stats stats;
    struct ks_bytes_buf plain, kept; /* scratch: unpacked records, and what stays of them */
};

/* Whether every record of a data batch has a key: 1, 0; KC_E_CORRUPT and others: it does not open. */
int ks_clean_keyed(const uint8_t *p, const struct ks_batch *b);

/* Puts the keys of a data batch into the map, from from_offset on. 1 = no room for one of them
 * (m->latest tells how far it got), 0, KC_E_CORRUPT, -ENOMEM. */
int ks_clean_map_batch(struct ks_clean_map *m, const uint8_t *p, const struct ks_batch *b,
                       int64_t from_offset, struct ks_bytes_buf *scratch);

/* Appends to out what stays of the batch at p (verified, b->size bytes). keep: something of it must
 * stay, so that its last offset does. 0, KC_E_CORRUPT, KC_E_TOO_LARGE, -ENOMEM. */
int ks_clean_batch(struct ks_clean_filter *f, const uint8_t *p, const struct ks_batch *b, bool keep,
                   struct ks_bytes_buf *out) KC_MUST_CHECK;

void ks_clean_filter_fini(struct ks_clean_filter *f);

#endif
