/* st.h - helpers of the storage tests: a volume in a directory of its own, engines on it, batches,
 * and calls that wait for their callback (the test's thread runs the loop itself). */
#ifndef ST_H
#define ST_H

#include "kt.h"
#include "kt_dir.h"
#include "storage/ks_batch.h"
#include "storage/ks_fsck.h"
#include "storage/ks_int.h"

/* ---- a volume ---- */

struct st_vol {
    char dir[KT_DIR_MAX];
};
void st_vol_make(struct st_vol *v);
void st_vol_remove(struct st_vol *v);
/* fsck, and its report, whole, in *ret_text (free). fs: on that, borrowed; NULL: on the directory. */
int st_fsck(const struct st_vol *v, const struct ks_fs *fs, struct ks_fsck_result *ret,
            char **ret_text);
/* fsck finds no error in it (else the test fails, and its report is printed). */
void st_vol_check(const struct st_vol *v, struct ks_fsck_result *ret);

/* ---- a broker: a loop that the test turns, and an engine ---- */

struct st_broker {
    struct rt_loop loop;
    struct ks_engine *e;
    struct kc_uuid inc;
    int32_t id;
    int n_fenced; /* calls of on_fenced */
    volatile bool fenced;
};
void st_broker_start(struct st_broker *b, const struct st_vol *v, int32_t id);
/* Over a file system of the test's; takes fs. */
void st_broker_start_on(struct st_broker *b, const struct ks_fs *fs, int32_t id);
/* With a reserve (ks_opts.reserve_bytes). */
void st_broker_start_reserve(struct st_broker *b, const struct ks_fs *fs, int32_t id,
                             int64_t reserve_bytes);
/* With options of the test's; b->inc is made, and not registered. Returns the error of an engine that
 * does not open: there is nothing to stop then. */
int st_broker_open(struct st_broker *b, const struct ks_fs *fs, struct ks_opts opts,
                   struct kc_err *err);
struct st_hooks;
/* Through hooks of the test's (see below). */
void st_broker_start_hooked(struct st_broker *b, const struct st_vol *v, int32_t id,
                            const struct st_hooks *hooks);
void st_broker_stop(struct st_broker *b); /* logs are closed before */
/* The usual: a volume, broker `id` on it (through hooks, unless NULL), and a topic. */
void st_begin(struct st_vol *v, struct st_broker *b, int32_t id, const struct st_hooks *hooks,
              struct kc_uuid *topic);
/* Stops what was started on the volume, and removes it. */
void st_end(struct st_vol *v, struct st_broker *b);
void st_end_checked(struct st_vol *v, struct st_broker *b); /* fsck finds no error in it */
void st_end_pair(struct st_vol *v, struct st_broker *a, struct st_broker *b);
/* Turns the loop until *flag; fails the test after 30 s. */
void st_until(struct st_broker *b, const volatile bool *flag);
void st_turn(struct st_broker *b); /* runs what is there, without waiting */

/* ---- opening ---- */

struct st_open {
    bool done;
    int rc;
    struct ks_log *log;
    struct kc_err err;
    int32_t blocker;
    struct kc_uuid blocker_inc;
    struct ks_open *handle;
};
struct ks_open_args st_args(struct st_broker *b, const struct kc_uuid *topic, int32_t partition,
                            struct st_open *o);
bool st_condemn_all(void *ctx, int32_t broker, const struct kc_uuid *inc);
bool st_condemn_none(void *ctx, int32_t broker, const struct kc_uuid *inc);
/* Opens (everybody else condemned, may create) and owns it on the broker's loop. */
struct ks_log *st_log(struct st_broker *b, const struct kc_uuid *topic, int32_t partition);
/* The same with files of that size. */
struct ks_log *st_log_small(struct st_broker *b, const struct kc_uuid *topic,
                            int64_t segment_bytes);
int st_open_rc(struct st_broker *b, const struct ks_open_args *args, struct st_open *o);
void st_close(struct st_broker *b, struct ks_log *log); /* and waits until it left the map */

/* ---- batches ---- */

struct st_batch {
    int32_t count; /* records; 0 = 1 */
    int64_t pid; /* 0 = none */
    int16_t epoch;
    int32_t seq;
    int64_t ts; /* of the first record; others follow by 1 ms */
    uint16_t attrs;
    size_t value_len; /* 0 = 10 */
};
/* A batch v2 as a client sends it, in a slab with one reference. */
struct kc_slice st_make(const struct st_batch *s);
void st_fix_crc(struct kc_slice b); /* after a test changed something */

struct st_append {
    bool done;
    struct ks_append_result r;
};
/* Queues; done is set when the answer comes. Frees the slice. */
void st_append_start(struct ks_log *log, struct kc_slice b, enum ks_origin origin,
                     struct st_append *a);
struct ks_append_result st_append(struct st_broker *b, struct ks_log *log, struct kc_slice batch);
/* Appends a batch of n records; returns its base offset, or -error. */
int64_t st_put(struct st_broker *b, struct ks_log *log, int32_t n);

struct st_read {
    bool done;
    struct ks_read_result r;
    size_t bytes;
    int64_t first, last; /* offsets in what came; -1 = nothing */
    int32_t batches;
};
/* Reads and checks that batches are whole and contiguous. References are dropped. */
struct st_read st_read(struct st_broker *b, struct ks_log *log, int64_t offset, int64_t limit,
                       int32_t max);
/* Reads the whole log up to its high watermark from the start; returns the number of records. */
int64_t st_count(struct st_broker *b, struct ks_log *log);

struct st_lookup {
    bool done;
    int16_t error;
    int64_t offset, ts;
    int32_t epoch;
};
struct st_lookup st_lookup(struct st_broker *b, struct ks_log *log, int64_t ts);

struct st_seal {
    bool done;
    int rc;
    uint8_t record[KS_REC_MAX];
    struct kc_bytes bytes;
    int64_t end;
    int32_t epoch;
};
void st_seal(struct st_broker *b, struct ks_log *log, struct st_seal *s);

/* ---- faults ---- */

enum st_op {
    ST_OPEN,
    ST_PWRITE,
    ST_PREAD,
    ST_DATASYNC,
    ST_SYNCDIR,
    ST_LINK,
    ST_UNLINK,
    ST_RMDIR,
    ST_RENAME,
    ST_MKDIR,
    ST_EXTEND,
    ST_STAT,
    ST_LIST,
    ST_CREATE, /* ST_OPEN of a new file */
    ST_CLOSE, /* after only: the descriptor is gone in any case */
    ST_OPS
};
enum { ST_SHORT = 1 };
/* before: 0 = let it happen, else the error to return instead; ST_SHORT lets half of a read, a write
 * or a listing happen (which then fails with EIO). after: the result to return. Called from any
 * thread; path is the second one of a link. */
struct st_hooks {
    int (*before)(void *ctx, enum st_op op, const char *path);
    int (*after)(void *ctx, enum st_op op, const char *path, int rc);
    void *ctx;
    bool network; /* takes itself for a network file system */
    bool unordered; /* for one that keeps no order of names */
};
/* A file system over the volume that asks the hooks (which may be changed while it is quiet). */
void st_fault_fs(struct ks_fs *fs, const struct st_vol *v, const struct st_hooks *hooks);
/* The same over any file system, which it takes. */
void st_fault_over(struct ks_fs *fs, const struct ks_fs *base, const struct st_hooks *hooks);
bool st_ends_with(const char *s, const char *end);

/* ---- the volume's files ---- */

/* Path of the newest data file of a partition by the chain, absolute. */
void st_data_path(const struct st_vol *v, struct ks_log *log, char out[256]);
void st_file_append(const char *path, const void *data, size_t len);

#endif
