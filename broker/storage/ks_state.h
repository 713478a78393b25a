/* ks_state.h - what a log knows about its sealed content: segments with sparse indexes, producers,
 * epoch starts. Built by reading the chain and its files (ks_build_run), then carried on by the
 * owner with every acked batch (ks_state_note).
 *
 * One owner at a time: the opening job, then the data loop. Files are shared with readers and
 * reference-counted. */
#ifndef KS_STATE_H
#define KS_STATE_H

#include "storage/ks_file.h"
#include "storage/ks_prod.h"
#include "storage/ks_sound.h"
#include "storage/ks_txn.h"

/* "Batches from offset on start at pos; everything before has timestamps <= max_ts." */
struct ks_mark {
    int64_t offset;
    uint64_t pos;
    int64_t max_ts;
};
enum { KS_MARKS_MAX = 1024, KS_MARK_GAP = 16384 };

struct ks_seg {
    struct ks_file *file;
    int64_t base, end;
    uint64_t len;
    int32_t epoch; /* of a compacted one: the last of them */
    int32_t first_epoch;
    bool compacted; /* with gaps, and batches of first_epoch..epoch */
    uint32_t n_marks, marks_room;
    struct ks_mark *marks;
    uint64_t gap; /* bytes between marks; doubles when they run out */
    int64_t first_ts; /* of its first batch, -1 = none */
    int64_t max_ts; /* -1 = none */
    int64_t max_ts_base; /* base offset of the first batch that has it */
    int64_t seen_ms, seen_end; /* retention: when it found the segment to end there */
    int64_t damaged_from; /* first offset that cannot be read any more; INT64_MAX = sound */
    uint64_t last_pos; /* of the last batch, with its CRC field; 0 if there is none */
    uint32_t last_crc;
    bool ts_known; /* max_ts is that of the whole file; else only the chain was read */
    bool indexed; /* the marks are there; else a reader loads or makes them (ks_index.c) */
    bool loading; /* a reader is at it */
    struct ks_sound sound; /* bytes that were seen to be right */
};

struct ks_epoch_start {
    int32_t epoch;
    int64_t start;
};

struct ks_state {
    struct ks_seg *segs;
    uint32_t n_segs, segs_room;
    struct ks_epoch_start *epochs; /* only epochs with content, and the open one */
    uint32_t n_epochs, epochs_room;
    struct ks_prods prods;
    struct ks_aborts aborts; /* like prods: of what is appended, not only of what is acked */
    int64_t start, end;
    uint64_t bytes;
};

void ks_state_init(struct ks_state *st);
void ks_state_fini(struct ks_state *st);
/* A new last segment; takes the file reference. -ENOMEM (the reference stays the caller's). */
int ks_state_add_seg(struct ks_state *st, struct ks_file *file, int64_t base, int32_t epoch);
void ks_state_pop_seg(struct ks_state *st); /* the last one, which is empty */
int ks_state_add_epoch(struct ks_state *st, int32_t epoch, int64_t start);
/* A batch at pos of the last segment. Index memory may fail silently: it is a cache. */
void ks_state_note(struct ks_state *st, const struct ks_batch *b, uint64_t pos);
/* The log starts at start, which is not beyond its end; the first n segments, none of them the last,
 * are gone. */
void ks_state_trim(struct ks_state *st, int64_t start, uint32_t n);
/* The same for a segment alone: marks, timestamps, where it ends. */
void ks_seg_note(struct ks_seg *s, const struct ks_batch *b, uint64_t pos);
/* A finished file of which only the chain was read. */
void ks_state_skip(struct ks_state *st, int64_t end, uint64_t len);
/* An appended batch joins its producer's state, and ends a transaction if it is a marker. There is
 * room if ks_prods_reserve and ks_aborts_reserve succeeded for it; else -ENOMEM. */
int ks_state_produced(struct ks_state *st, const struct ks_batch *b, enum ks_marker marker,
                      int64_t now_wall_ms) KC_MUST_CHECK;
/* Segment that holds offset, or the next one after it; NULL beyond the end. */
struct ks_seg *ks_state_seg(const struct ks_state *st, int64_t offset);
/* Where to start looking for offset in a segment. */
struct ks_mark ks_seg_find(const struct ks_seg *s, int64_t offset);
/* Where a search for the first timestamp >= ts may start. */
struct ks_mark ks_seg_find_ts(const struct ks_seg *s, int64_t ts);

/* ---- building ---- */

struct ks_hint;
struct ks_snaps;

struct ks_build {
    struct ks_fs *fs;
    struct ks_fds *fds;
    struct kc_uuid topic;
    int32_t partition;
    int64_t now_wall_ms;
    struct ks_state st;
    uint32_t file; /* next file of the chain to read */
    uint32_t compactions; /* of the chain, when it was read */
    int64_t last_end; /* end of the one before it, when it was read */
    uint64_t peek_pos; /* of that file: read so far, while it was still open; 0 = nothing */
    int64_t peek_next;
    int32_t own_epoch; /* the one we open: its file is empty; -1 = none yet */
    uint64_t hint_worth; /* bytes of a log from which on a snapshot is looked for */
    bool hints_read; /* a usable snapshot was looked for */
    bool no_hints; /* one misled us: read everything */
    struct ks_hint *hint; /* the snapshot this state started from, or NULL */
    int64_t hint_end; /* its offset: what is before it was not read; 0 = none */
    struct ks_snaps *snaps; /* what a listing found, or NULL */
    uint64_t read_bytes; /* of files and hints, this build's whole life */
    uint64_t since_hint; /* of batches that came after the snapshot */
    int walk_fd;
    uint64_t zombie_bytes; /* found beyond seals */
    uint32_t damaged; /* files under a seal that do not verify */
    const _Atomic bool *cancelled;
};

void ks_build_init(struct ks_build *b, struct ks_fs *fs, struct ks_fds *fds,
                   const struct kc_uuid *topic, int32_t partition);
void ks_build_fini(struct ks_build *b);
/* Reads the files whose end the chain tells (rolled or sealed), from where it stopped before; of
 * those that a snapshot covers only the chain. 0, -errno, KC_E_CANCELLED; KC_E_CORRUPT: a file is
 * absent that the chain names and did not drop. */
int ks_build_run(struct ks_build *b, const struct ks_chain *c, struct kc_err *err);
/* After a run: reads ahead in the open file of a live owner, so that little is left to read once its
 * seal is known. Only a head start: the run after it takes nothing for granted beyond the seal. */
void ks_build_peek(struct ks_build *b, const struct ks_chain *c);

#endif
