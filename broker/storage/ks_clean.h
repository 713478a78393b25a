/* ks_clean.h - a cleaning of one log, from the choice to the last file (ks_clean.c, ks_clean_run.c).
 *
 * It wanders between two threads: the owner's loop, which knows what is stable and swaps segments,
 * and the cleaner's own, low-priority thread, which reads and writes. Whoever has it is its only
 * user, but for `cancelled`. Files are cleaned in groups of neighbours; each group becomes one file,
 * and one COMPACT record makes the swap. The old ones are unlinked only behind that record (M8). */
#ifndef KS_CLEAN_H
#define KS_CLEAN_H

#include "storage/ks_clean_batch.h"
#include "storage/ks_int.h"

/* A file as it was when the cleaning began. */
struct ks_clean_seg {
    struct ks_file *file; /* referenced */
    int64_t base, end;
    uint64_t len;
    int32_t epoch, first_epoch;
    bool compacted;
};

/* What one COMPACT record swaps. */
struct ks_swap {
    int64_t start, end, clean;
    uint16_t n_old;
    struct ks_file_id old[KS_REC_FILES_MAX];
    struct ks_file_id file; /* what takes their place */
    uint64_t len;
    uint32_t crc;
};

struct ks_clean_job {
    struct rt_work work;
    struct rt_msg msg;
    struct ks_log *log; /* referenced */
    _Atomic bool cancelled;
    int rc; /* why it ended early */
    bool mapped; /* the keys are known */
    bool finished; /* nothing more to clean */
    bool swapped; /* the last COMPACT stands, and its old files may go */
    /* what the owner knew */
    int32_t epoch;
    int64_t now_wall_ms;
    int64_t dirty_from, until, clean;
    uint64_t group_bytes; /* segment.bytes */
    struct ks_cleaner_config cfg;
    struct ks_clean_seg *segs; /* of the whole log; n of them may be cleaned */
    uint32_t n, n_segs;
    struct ks_clean_producer *producers;
    /* the work */
    struct ks_clean_survey survey;
    struct ks_clean_map map;
    struct ks_clean_filter filter;
    struct ks_bytes_buf in, out;
    uint32_t next; /* first file of the next group */
    int64_t paced_from_ms; /* for the bound on bytes a second */
    uint64_t moved_bytes;
    /* the group at hand */
    uint32_t first, n_group;
    struct ks_state fresh; /* one segment: the replacement */
    struct ks_swap swap;
};

/* ks_clean_run.c, cleaner thread: goes on until a group waits for its swap (job->fresh has a
 * segment), or it is over (finished, or rc). */
void ks_clean_work(struct ks_clean_job *job);
/* Removes the replacement that no record names. */
void ks_clean_discard(struct ks_clean_job *job);
void ks_clean_free(struct ks_clean_job *job);

#endif
