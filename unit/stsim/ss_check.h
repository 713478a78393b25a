/* ss_check.h - what was acknowledged and read, and the invariants of storage.md over it. */
#ifndef SS_CHECK_H
#define SS_CHECK_H

#include "ss_fs.h"
#include "storage/ks_engine.h"

/* Partitions of a topic; topics, which are deleted one after the other; and all of their partitions,
 * which `part` counts. */
#define SS_WALL_MS 1700000000000LL /* the wall clock at the beginning of time */

enum { SS_PARTS = 2, SS_TOPICS = 3, SS_ALL_PARTS = SS_PARTS * SS_TOPICS };

struct ss_counts {
    uint64_t appends, acks, repeats, refused, out_of_order, reads, batches_read, claims, seals,
        rolls, trims, deletions, copies, frames, commits, fetches, batches_empty;
    uint64_t lost; /* records, where flush.messages allows it */
    uint64_t compacts, cleaned, claims_cleaning,
        seals_cleaning; /* records; while a cleaner works */
};

void ss_check_begin(const struct kc_uuid topics[SS_TOPICS]);
void ss_check_end(void);
struct ss_watch ss_check_watch(void);
/* The first violation; NULL = none. */
const char *ss_check_broken(void);
KC_PRINTF(1, 2) void ss_check_fail(const char *fmt, ...);
struct ss_counts *ss_check_counts(void);

/* A batch that will be sent: its number, which its records carry. */
uint64_t ss_check_new(int part);
/* One that a coordinator makes, which is known by its checksum. */
uint64_t ss_check_new_coord(int part, uint32_t crc);

/* From now on its tombstone may stand, and its files may go. */
void ss_check_deleted(int topic);
bool ss_check_is_deleted(int part);
/* flush.messages of that partition of every topic: an ack promises less. To be told first. */
void ss_check_relaxed(int partition);
/* The log's start was said to be there: it never goes back. */
void ss_check_start(int part, int64_t start);

/* epoch: of the log that says so. */
void ss_check_acked(int part, uint64_t number, int64_t base, int32_t records, int32_t epoch);
void ss_check_high_watermark(int part, int64_t hw, int32_t epoch);
/* A producer that repeats in order was told that it does not. */
void ss_check_out_of_order(int part, int32_t epoch);
/* Whole batches that a read from that offset gave. final: it is the log as the last owner sees it. */
void ss_check_read(int part, int64_t from, const struct ks_read_result *r, bool final);
/* Everything acked or read is in the final log, from start on. */
void ss_check_final(int part, int64_t start, int64_t end);
/* A cleaner begins (more: 1) or ends (-1) its work on a partition. */
void ss_check_cleaning(const struct kc_uuid *topic, int32_t partition, int more);
/* Sealed bytes are what they were. */
void ss_check_sealed(void);

#endif
