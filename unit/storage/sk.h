/* sk.h - helpers of the compaction tests: keyed batches, what a log holds record by record, and a
 * cleaner that is run to its end. */
#ifndef SK_H
#define SK_H

#include "st.h"
#include "storage/ks_clean.h"

struct sk_record {
    int32_t key; /* -1 = none */
    int32_t value; /* -1 = a tombstone */
    int64_t ts;
};
struct sk_batch {
    int32_t n;
    const struct sk_record *records;
    uint16_t attrs; /* codec among them */
    int64_t pid; /* 0 = none */
    int16_t epoch;
    int32_t seq;
    size_t padding; /* bytes behind each value */
};
struct kc_slice sk_make(const struct sk_batch *b);
/* A marker that ends a transaction. */
struct kc_slice sk_marker(int64_t pid, int16_t epoch, bool commit);
/* Appends; control batches as a coordinator. Returns the base offset or -error. */
int64_t sk_append(struct st_broker *b, struct ks_log *log, struct kc_slice batch);
int64_t sk_put(struct st_broker *b, struct ks_log *log, int32_t key, int32_t value);

struct sk_found {
    int64_t offset, ts;
    int32_t key, value, epoch;
    bool control;
};
/* Everything a consumer gets, in order, from the files (the cache is emptied first). */
struct sk_view {
    struct sk_found *v;
    size_t n, room;
    size_t batches, empty_batches, horizons;
    int64_t next; /* where the last read ended */
};
void sk_read_all(struct st_broker *b, struct ks_log *log, struct sk_view *ret);
/* The records of one batch that was read. */
void sk_view_add(struct sk_view *v, const uint8_t *p, const struct ks_batch *b);
void sk_view_free(struct sk_view *v);

/* Arguments of a compacted topic with small files that is always due. */
struct ks_open_args sk_args(struct st_broker *b, const struct kc_uuid *topic, struct st_open *o);
struct ks_log *sk_log(struct st_broker *b, const struct kc_uuid *topic,
                      const struct ks_open_args *a, struct st_open *o);
/* Cleans until nothing is due. */
void sk_clean(struct st_broker *b);

#endif
