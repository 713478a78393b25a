/* ks_clean_pick.h - which partition is cleaned next, and how far.
 *
 * Pure: the time comes in. Rules after Kafka's LogCleanerManager (cleanableOffsets,
 * grabFilthiestCompactedLog). */
#ifndef KS_CLEAN_PICK_H
#define KS_CLEAN_PICK_H

#include "base/kc_base.h"

/* A finished file, as the decision sees it; the active one is not among them. */
struct ks_clean_file {
    int64_t base, end;
    uint64_t bytes;
    int64_t first_ts, max_ts; /* -1 = none */
};
struct ks_clean_rules {
    double min_dirty_ratio;
    int64_t min_lag_ms, max_lag_ms;
};

/* What a partition has to clean. */
struct ks_clean_need {
    int64_t dirty_from; /* everything before is clean */
    int64_t until; /* where cleaning must stop: a file's end; <= dirty_from: nothing to do */
    uint64_t clean_bytes, dirty_bytes;
    double ratio; /* dirty / (clean + dirty) */
    bool overdue; /* max.compaction.lag.ms */
};

/* stable: nothing from this offset on may be touched (last stable offset and high watermark). */
struct ks_clean_need ks_clean_judge(const struct ks_clean_file *files, uint32_t n,
                                    int64_t dirty_from, int64_t stable,
                                    const struct ks_clean_rules *rules, int64_t now_wall_ms);
/* Worth the work by the partition's rules. */
bool ks_clean_due(const struct ks_clean_need *need, const struct ks_clean_rules *rules);
/* True if a goes before b: the dirtiest first. */
bool ks_clean_before(const struct ks_clean_need *a, const struct ks_clean_need *b);

#endif
