/* kg_store.h - groups and offsets as records of __consumer_offsets, in Kafka's own formats.
 *
 * Writing: a struct kg_batch collects records into uncompressed batches. Reading: kg_records_read
 * calls back for every record of the coordinator's two kinds; records of other kinds (KIP-848's) are
 * skipped. Pure but for memory; any thread, one owner. */
#ifndef KG_STORE_H
#define KG_STORE_H

#include "base/kc_arena.h"
#include "base/kc_buf.h"
#include "groups/kg_group.h"
#include "groups/kg_offsets.h"
#include "wire/kw_batch.h"

struct kw_group_metadata_value;

enum {
    KG_BATCH_BYTES = 512 * 1024, /* a batch is closed past this size */
    KG_BATCHES_BYTES_MAX = 80 * 1024 * 1024 /* of all batches of one change */
};

struct kg_batch {
    struct kw_batch_builder builder;
    bool open;
    struct kw_writer key, value;
    struct kc_dyn done; /* batches that are complete */
    int64_t wall_ms;
    int error; /* 0, or the first failure */
};

void kg_batch_init(struct kg_batch *b, int64_t wall_ms);
void kg_batch_fini(struct kg_batch *b);
/* v NULL: a tombstone. */
void kg_batch_offset(struct kg_batch *b, struct kc_str group, struct kc_str topic,
                     int32_t partition, const struct kg_offset_value *v);
/* The group as it is; staged: with the assignments that wait to become effective. */
void kg_batch_group(struct kg_batch *b, const struct kg_group *g, bool staged);
void kg_batch_group_gone(struct kg_batch *b, struct kc_str group);
/* All batches in one slab (a reference for the caller), ready to append. KC_E_TOO_LARGE, -ENOMEM,
 * KC_E_MALFORMED (no record). */
int kg_batch_take(struct kg_batch *b, struct kc_buf **ret) KC_MUST_CHECK;

struct kg_reader {
    void *ctx;
    /* value NULL: a tombstone. False stops with -ENOMEM. Everything is borrowed for the call. */
    bool (*offset)(void *ctx, struct kc_str group, struct kc_str topic, int32_t partition,
                   const struct kg_offset_value *value);
    bool (*group)(void *ctx, struct kc_str group, const struct kw_group_metadata_value *value);
};
struct kg_read_stats {
    int64_t records;
    int64_t unreadable; /* keys or values that do not decode: skipped */
    int64_t batches_skipped; /* compressed or malformed */
};
/* Reads the whole batches of data. */
int kg_records_read(const void *data, size_t len, const struct kg_reader *r,
                    struct kg_read_stats *stats);

/* A replayed group: members and their only known protocol come from the value. wall_ms stands in for
 * the state's time where an old record has none. False: no memory. */
bool kg_group_restore(struct kg_group *g, const struct kw_group_metadata_value *v);

/* What a client is told when an append failed with a code of Produce. */
int16_t kg_append_error(int16_t error, bool commit);

#endif
