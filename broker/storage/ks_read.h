/* ks_read.h - work on the read pool for one log: reads of batches, lookups by timestamp.
 *
 * A request starts and ends on the owner's loop; between, it belongs to a pool thread. It carries
 * copies of what it needs of the log's state, so the log may go on, or be closed, meanwhile. */
#ifndef KS_READ_H
#define KS_READ_H

#include "storage/ks_int.h"
#include "storage/ks_scan.h"

/* Most bytes of one read, or of one batch if that is larger. */
enum { KS_READ_MAX = 16 * 1024 * 1024 };

struct ks_read_req {
    struct rt_work work;
    struct rt_msg msg;
    struct kc_list in_log;
    struct ks_log *log;
    struct ks_file *file;
    struct ks_mark from; /* where to start walking */
    int64_t seg_end; /* readable part of the file */
    uint64_t seg_len;
    int32_t epoch, first_epoch; /* of the file's batches, see struct ks_seg */
    bool compacted;
    bool want_index; /* the segment has none: load it first */
    bool rebuilt; /* no index was on the volume: it was made */
    bool missing; /* the file is not there any more */
    bool again; /* this is the second try */
    struct ks_seg index; /* what is known of the segment; filled by the pool if want_index */
    bool cancelled; /* owner: answered already */
    void (*run)(struct ks_read_req *r); /* pool */
    void (*finish)(struct ks_read_req *r); /* owner */
    void (*fail)(struct ks_read_req *r, int16_t error); /* owner; instead of finish */
    void *ctx;
    /* reads */
    struct ks_read_args args;
    ks_read_done done;
    struct ks_read_result result;
    uint64_t next_pos; /* behind what was read; 0 = nothing */
    bool sequential; /* it goes on where one before it ended */
    uint64_t ahead; /* how far the file was asked for beforehand */
    uint64_t verified; /* bytes before it whose checksums are right */
    /* lookups */
    ks_lookup_done lookup_done;
    int64_t ts; /* the asked timestamp, or KS_TS_MAX */
    int64_t max_ts; /* of the segment */
    int64_t asked_from; /* where the search began in this round */
    int64_t floor; /* log start offset */
    int16_t error;
    int64_t found_offset, found_ts;
    int32_t found_epoch;
};

/* The nearest known place at or before an offset of the segment. Owner. */
struct ks_mark ks_read_nearest(const struct ks_log *log, const struct ks_seg *seg, int64_t offset);
/* Joins the log's list; NULL: no memory. */
struct ks_read_req *ks_read_new(struct ks_log *log, struct ks_seg *seg, struct ks_mark from);
void ks_read_post(struct ks_read_req *r);
/* Pool: pins the file, with its index. The descriptor or -errno; r->missing if it is gone. */
int ks_read_pin(struct ks_read_req *r);
/* A walk of the request's file from its starting point on. */
struct ks_scan ks_read_scan(const struct ks_read_req *r);
/* The file was replaced by a compaction meanwhile: what failed may be asked for again. Owner. */
bool ks_read_replaced(const struct ks_read_req *r);
/* Pool, file pinned: the first batch from r->from on whose last offset is >= offset. 0, KC_E_CORRUPT, -errno. */
int ks_read_find(struct ks_read_req *r, int64_t offset, struct ks_batch *ret, uint64_t *ret_pos);
void ks_read_corrupt(const struct ks_read_req *r, int64_t offset);

/* ks_direct.c; owner loop, nothing of it waits */
/* A reader left off there; returns where it is noted, or NULL. */
struct ks_cursor *ks_cursor_note(struct ks_log *log, struct ks_file_id file, int64_t offset,
                                 uint64_t pos);
/* Where a reader left off that goes on with that offset, or NULL. */
const struct ks_cursor *ks_cursor_at(const struct ks_log *log, struct ks_file_id file,
                                     int64_t offset);
/* The answer as a range of the segment's file, which the kernel can send without waiting; or as
 * nothing, where no whole batch fits. False: it is to be read otherwise, *ret is as it was. */
bool ks_direct_read(struct ks_log *log, const struct ks_seg *seg, const struct ks_read_args *args,
                    struct ks_read_result *ret);

/* ks_index.c */
/* Pool, file pinned: loads the segment's index, or makes it by reading the file, and sets r->from by
 * it. 0 or -errno (then r->from is as it was). */
int ks_index_load(struct ks_read_req *r);
/* Owner: what was loaded joins the log's state. */
void ks_index_install(struct ks_read_req *r);

#endif
