/* ss_records.h - the records that clients send, how one that was read is told from another, and what
 * a COMPACT record may take away. */
#ifndef SS_RECORDS_H
#define SS_RECORDS_H

#include "base/kc_buf.h"
#include "storage/ks_batch.h"
#include "storage/ks_rec.h"

/* Every record has one of a few keys, and ends with the batch's number; some are tombstones. All of it
 * follows from number, records, pid and seq: a repeat has the same bytes. */
struct kc_slice ss_batch(uint64_t number, int32_t records, int64_t pid, int32_t seq);
/* The number in a record; UINT64_MAX: it is none of ss_batch. */
uint64_t ss_record_number(const struct ks_record *r);
/* Is it that record of the batch, whole? */
bool ss_record_is(const struct ks_record *r, uint64_t number);

struct ss_compaction {
    const struct ks_chain *chain; /* before the record */
    struct kc_uuid topic;
    int32_t partition;
    int64_t now_wall_ms;
    uint8_t *gone; /* by offset: set for each record that is taken away */
    int64_t n_gone;
    /* results */
    uint64_t removed; /* records */
    int64_t at; /* the offset where a rule is broken */
};
/* As a COMPACT is linked: reads on the server what it replaces and what takes its place. NULL, or which
 * rule it breaks (static text). */
const char *ss_compact_check(struct ss_compaction *cp, const struct ks_rec *r);

#endif
