/* ks_engine.h - the log of partitions on shared storage, as the rest of the broker sees it.
 *
 * storage.md is the specification. Threads: one engine a process. Functions marked [any] may be
 * called from any thread and never block on the volume; callbacks run on the loop named in the
 * request. A log belongs to one data loop (its owner) from ks_log_own on: functions marked [owner]
 * run there, and never block. Blocking ones are marked [blocking] and run at start only.
 *
 * The ack order (storage.md): pwrite, fdatasync of every touched file, then one forced statx of
 * the incarnation's claim file, then the high watermark moves, then callbacks. */
#ifndef KS_ENGINE_H
#define KS_ENGINE_H

#include "base/kc_buf.h"
#include "base/kc_error.h"
#include "policy/kp_types.h"
#include "rt/rt_loop.h"

struct ks_engine;
struct ks_log;

/* ---- engine ---- */

/* This incarnation was found fenced, or its claim file cannot be checked: no ack will come any
 * more under it. Runs once an incarnation, on `loop` of the options. */
typedef void (*ks_fenced_fn)(void *ctx, const char *why);

struct ks_opts {
    const char *dir; /* root of the volume */
    int32_t broker_id;
    bool unsafe_storage; /* run on a volume that failed the conformance probe */
    int32_t commit_threads; /* 0 = default */
    int32_t read_threads; /* 0 = default */
    int32_t takeover_threads; /* takeovers at once; 0 = default */
    int64_t cache_bytes; /* recent batches kept in memory, all partitions; 0 = default */
    int64_t checkpoint_bytes; /* appended bytes between two snapshots of a log; 0 = default */
    int64_t reserve_bytes; /* lie on the volume for what must be written when it is full; -1 = as
                            * many as the open logs need; 0 = none */
    struct rt_loop *loop; /* control loop: fenced */
    ks_fenced_fn on_fenced;
    void *ctx;
};

/* [blocking] Probes the volume, joins or makes cluster.json (by link; cluster_id in: "" = adopt or
 * make a random one, out: what the volume says). KC_E_FOREIGN: another cluster's volume. */
int ks_engine_open(const struct ks_opts *opts, char cluster_id[KC_UUID_B64_LEN + 1],
                   struct ks_engine **ret, struct kc_err *err);
void ks_engine_close(struct ks_engine *e); /* [blocking] logs were closed before */

/* [blocking: call from a pool or at start] Makes inc/<broker>/<incarnation> and makes it the
 * incarnation of later claims. The previous one, if any, must hold no log any more. */
int ks_register(struct ks_engine *e, const struct kc_uuid *incarnation, struct kc_err *err);
/* The incarnation is condemned: others may take its partitions at any moment, and nobody is to wait
 * for the volume any more. All its logs stop as after a fence; what waits on them, those being sealed
 * included, is answered NOT_LEADER_OR_FOLLOWER at once, also while a thread hangs in the file system.
 * An append answered so may be on the volume: whether it is part of the log, the next owner's scan
 * decides (an idempotent producer that sends it again is told its offset). The logs are closed by their
 * owners as usual. [any] */
void ks_disown(struct ks_engine *e);

/* The oldest file operation under way; older than a limit, it is a storage stall. */
struct ks_stall {
    int64_t ms; /* its age; 0 = nothing is under way */
    const char *operation; /* "datasync"; "" = none */
    char thread[16]; /* the name of the thread that waits in it */
};
void ks_stall_read(struct ks_engine *e, int64_t now_mono_ms, struct ks_stall *ret); /* [any] */
/* Milliseconds since the last successful fence check; reads and coordinator answers need <= 1 s.
 * [any], lock-free; the engine checks by itself once a second while it holds logs. */
int64_t ks_fence_age_ms(struct ks_engine *e, int64_t now_mono_ms);

/* Whether the volume takes bytes. While it does not, appends get KAFKA_STORAGE_ERROR at once; reads,
 * DeleteRecords, retention and planned moves go on while the reserve lasts (ks_room.h), and appends
 * resume by themselves. [any], lock-free. */
enum ks_volume { KS_VOLUME_OK, KS_VOLUME_FULL, KS_VOLUME_READ_ONLY };
enum ks_volume ks_volume_state(struct ks_engine *e);

struct ks_metrics {
    uint64_t appended_bytes, commits, fsyncs, frames, journals, fence_checks, zombie_bytes,
        read_bytes, direct_bytes, cache_hits, cache_misses, open_logs, errors;
    uint64_t checkpoints; /* snapshots and indexes written */
    uint64_t open_read_bytes, open_read_max; /* read to open logs: all together; for one of them */
    int64_t volume_free; /* bytes; -1 = not known */
    uint64_t reserve_bytes, refused_writes; /* errors that say that the volume takes no bytes */
    uint64_t cleanings, clean_read_bytes, clean_written_bytes, clean_errors, uncleanable;
};
void ks_metrics_read(struct ks_engine *e, struct ks_metrics *ret); /* [any] */

/* ---- log compaction ---- */

struct ks_cleaner_config { /* log.cleaner.* of Kafka */
    bool enabled;
    int64_t backoff_ms; /* between looks while there is nothing to clean */
    int64_t dedupe_bytes; /* of memory for the newest offsets of keys; 0 = default */
    int64_t io_bytes_per_s; /* read and written; 0 = no bound */
};
/* In force from the next round on; before it is called: the defaults. [any] */
void ks_engine_cleaner(struct ks_engine *e, const struct ks_cleaner_config *cfg);
/* Looks now for a log to clean, as it else does by itself after backoff_ms: topics with
 * cleanup.policy=compact whose dirty part is large or old enough (ks_clean_pick.h). The cleaning
 * itself runs on a thread of its own, one log at a time, until nothing is due. False: at it
 * already, or no log is open.
 * For tests and the simulation. [any] */
bool ks_clean_now(struct ks_engine *e);
/* Neither a round nor a cleaning is under way. [any] */
bool ks_clean_idle(struct ks_engine *e);

/* ---- topics on the volume ---- */

struct ks_topic_meta {
    struct kc_uuid id;
    char name[KP_NAME_MAX + 1];
    int32_t partitions;
    bool internal;
    char *configs_json; /* owned by the list; "{}" if none */
};
struct ks_inventory {
    uint64_t revision;
    int32_t n;
    struct ks_topic_meta *topics;
    int32_t n_deleted;
    struct kc_uuid *deleted;
};
/* [blocking: pool] Lists topics/<id>/meta and deleted/. Returns owned (ks_inventory_free). */
int ks_inventory_read(struct ks_engine *e, struct ks_inventory **ret, struct kc_err *err);
void ks_inventory_free(struct ks_inventory *inv);
/* [blocking: pool] Creates or updates topics/<id>/meta (partition count grows, configs change);
 * refused (KC_E_GONE) if deleted/<id> exists. */
int ks_topic_write(struct ks_engine *e, const struct ks_topic_meta *meta, struct kc_err *err);
/* [blocking: pool] Leaves deleted/<id>, then removes the directory. Idempotent. */
int ks_topic_remove(struct ks_engine *e, const struct kc_uuid *id, struct kc_err *err);

/* ---- opening: takeover ---- */

struct ks_open;
/* true if this incarnation may be fenced now; called on a pool thread with ctx of the request. */
typedef bool (*ks_condemned_fn)(void *ctx, int32_t broker, const struct kc_uuid *incarnation);
/* rc 0: log is open (claim linked, older epochs sealed, producer state rebuilt), to be handed to
 * its owner by ks_log_own. KC_E_BLOCKED: blocker_* name the live incarnation. KC_E_DEPOSED: a
 * newer claim. KC_E_FENCED: we are. KC_E_NOT_FOUND: no directory and may_create is false.
 * KC_E_CORRUPT: permanent. Else retry later. */
typedef void (*ks_open_done)(void *ctx, int rc, struct ks_log *log, const struct kc_err *err,
                             int32_t blocker_broker, const struct kc_uuid *blocker_incarnation);

struct ks_log_config { /* topic configs that touch the log; see ks_log_configure */
    int64_t segment_bytes, retention_ms, retention_bytes, segment_ms;
    int32_t max_message_bytes;
    bool log_append_time;
    bool compact;
    bool compact_only; /* cleanup.policy has no "delete": no retention, no DeleteRecords */
    double min_dirty_ratio; /* min.cleanable.dirty.ratio */
    int64_t min_compaction_lag_ms, max_compaction_lag_ms, delete_retention_ms;
    int64_t timestamp_before_max_ms, timestamp_after_max_ms;
    int64_t flush_messages; /* records; 1 = sync before ack (default) */
    int64_t flush_ms; /* where flush_messages is more: longest time without a sync; 0 = no limit */
    int64_t segment_jitter_ms; /* up to this much is taken off segment_ms, anew for each file */
    int64_t retention_check_ms; /* of the whole broker: between two looks; 0 = 10 s */
};
struct ks_open_args {
    struct kc_uuid topic_id;
    int32_t partition;
    bool may_create;
    struct kp_order order;
    struct ks_log_config config;
    ks_condemned_fn condemned;
    void *condemned_ctx;
    struct rt_loop *loop; /* done runs here */
    ks_open_done done;
    void *ctx;
};
struct ks_open *ks_log_open(struct ks_engine *e, const struct ks_open_args *args); /* [any] */
/* Warms the sealed part for a coming move and reports through done with log = NULL, rc 0 when
 * warm; the handle then takes ks_open_go (claim, open, done again with the log) or ks_open_cancel.
 * A handle ends when done gets a log or an error, or when it is cancelled: not to be used after. */
struct ks_open *ks_log_prepare(struct ks_engine *e, const struct ks_open_args *args); /* [any] */
/* seal: the chain record handed over by the old owner, or null bytes. Copies it. [any] */
void ks_open_go(struct ks_open *o, struct kc_bytes seal);
/* done does not run after this returns when called on args.loop. [any] */
void ks_open_cancel(struct ks_open *o);

/* ---- an open log ---- */

/* Hands the log to its data loop; from here on [owner] functions run there. [any, once] */
void ks_log_own(struct ks_log *log, struct rt_loop *owner);
const struct kc_uuid *ks_log_topic(const struct ks_log *log);
int32_t ks_log_partition(const struct ks_log *log);
/* Of our claim = leader epoch clients see. Grows under an open log when an error on a file made the
 * engine claim again; the watcher is called then. */
int32_t ks_log_epoch(const struct ks_log *log);
/* Of the record at the log start, as far as epochs are remembered; -1 = none. [owner] */
int32_t ks_log_start_epoch(const struct ks_log *log);
void ks_log_configure(struct ks_log *log, const struct ks_log_config *cfg); /* [owner] */

struct ks_offsets {
    int64_t start; /* log start offset */
    int64_t high_watermark; /* acked: what Fetch may return */
    int64_t last_stable; /* min(HW, first open transaction) */
    int64_t end; /* appended, maybe not yet acked */
};
struct ks_offsets ks_log_offsets(const struct ks_log *log); /* [owner] */
uint64_t ks_log_size_bytes(const struct ks_log *log); /* [owner] */

enum ks_origin { KS_FROM_CLIENT, KS_FROM_COORDINATOR }; /* who may write control batches */
/* Kafka error code, as an int16 of the protocol; 0 = appended and acked. */
struct ks_append_result {
    int16_t error;
    int64_t base_offset; /* also for a duplicate: the original one */
    int64_t append_time_ms; /* LogAppendTime, else -1 */
    int64_t log_start; /* -1 with errors that Kafka does not tell it with */
    const char *message; /* static text for record errors, or NULL */
};
typedef void (*ks_append_done)(void *ctx, const struct ks_append_result *r);
struct ks_append_args {
    struct kc_slice
        batches; /* one batch v2 (produce) or several (coordinators); a reference is taken.
                                The engine writes base offset and leader epoch into a header of its
                                own; the slab is not modified unless the caller is its only holder */
    enum ks_origin origin;
    int64_t now_wall_ms;
    int16_t acks; /* 0, 1, -1 */
    ks_append_done done; /* on the owner loop; may run before ks_log_append returns */
    void *ctx;
};
/* [owner] Validates (length, magic, CRC, counts, sequence window of 5 batches: the answers of
 * research/kafka-api.md 3.1), assigns offsets, queues for the next group commit. */
void ks_log_append(struct ks_log *log, const struct ks_append_args *args);

struct ks_read_args {
    int64_t offset;
    int64_t limit_offset; /* exclusive: HW or LSO as the caller wants */
    int32_t max_bytes; /* soft: at least one whole batch is returned if at_least_one */
    bool at_least_one;
    bool ranges; /* what comes is only sent: slices may be ranges of files (kc_range.h) */
};
struct ks_read_result {
    int16_t error; /* 1 OFFSET_OUT_OF_RANGE, 56 KAFKA_STORAGE_ERROR, … */
    int32_t n_slices; /* whole batches, in order; references belong to the receiver */
    struct kc_slice slices[16];
    int64_t next_offset;
};
typedef void (*ks_read_done)(void *ctx, const struct ks_read_result *r);
/* [owner] What is in memory, or in the page cache where ranges are allowed, answers at once (done runs
 * before the call returns, true); the rest is read on the read pool and done runs later on the owner
 * loop (false). */
bool ks_log_read(struct ks_log *log, const struct ks_read_args *args, ks_read_done done, void *ctx);

/* Called on the owner loop whenever the high watermark (or start, or LSO) moved, and once with
 * gone = true when the log stops (fenced, sealed, failed). One watcher a log. [owner] */
typedef void (*ks_watch_fn)(void *ctx, struct ks_log *log, bool gone);
void ks_log_watch(struct ks_log *log, ks_watch_fn fn, void *ctx);

/* First offset whose timestamp >= ts (and that timestamp), -1/-1 if none. Special values are the
 * caller's business, except KS_TS_MAX: the record with the largest timestamp (ListOffsets -3). */
enum { KS_TS_MAX = -3 };
typedef void (*ks_lookup_done)(void *ctx, int16_t error, int64_t offset, int64_t timestamp_ms,
                               int32_t leader_epoch);
void ks_log_lookup(struct ks_log *log, int64_t timestamp_ms, ks_lookup_done done,
                   void *ctx); /* [owner] */
/* End offset of `epoch` (KIP-320): sets epoch found and end offset, or -1, -1. [owner] */
void ks_log_epoch_end(struct ks_log *log, int32_t epoch, int32_t *ret_epoch, int64_t *ret_end);

/* DeleteRecords: everything below offset goes; -1 = below the high watermark. The new start is in the
 * chain, synced, and the fence check passed before done runs, once, on the owner loop (maybe before
 * the call returns). Requests that come while another is on its way share one chain record. An
 * offset below the start succeeds and changes nothing. d is the caller's until done. [owner] */
struct ks_delete {
    struct ks_delete *next;
    int64_t offset;
    void (*done)(struct ks_delete *d, int16_t error, int64_t log_start);
};
void ks_log_delete_records(struct ks_log *log, struct ks_delete *d);

/* Aborted transactions that overlap [from, to), in the order of their markers: what a read_committed
 * consumer leaves out. Copies up to cap, returns how many there are, or -1 without memory. [owner] */
struct ks_aborted {
    int64_t producer_id, first_offset;
};
int32_t ks_log_aborted(const struct ks_log *log, int64_t from, int64_t to, struct ks_aborted *ret,
                       int32_t cap);

struct ks_producer {
    int64_t producer_id;
    int16_t epoch;
    int32_t last_sequence;
    int64_t last_timestamp_ms;
    int64_t txn_first_offset; /* -1 = none */
};
/* [owner] Copies up to cap entries, returns how many there are. */
int32_t ks_log_producers(struct ks_log *log, struct ks_producer *ret, int32_t cap);

/* [owner] Stops appends, waits for queued ones to be acked, appends our own SEAL; done on `loop`
 * with the seal's chain record (borrowed). The log is freed after done. KC_E_DEPOSED, KC_E_FENCED
 * and errors free it, too. */
typedef void (*ks_seal_done)(void *ctx, int rc, struct kc_bytes seal_record, int64_t end_offset,
                             int32_t epoch);
void ks_log_seal(struct ks_log *log, struct rt_loop *loop, ks_seal_done done, void *ctx);
/* [owner] Lets go without a seal (fenced, shutting down hard): queued appends fail with 6. */
void ks_log_close(struct ks_log *log);

/* ---- producer ids ---- */
/* [blocking: pool] A block of producer ids nobody else will ever get, by a create-once link under
 * pids/ on the volume: *ret_first .. *ret_first + count - 1. */
int ks_pid_block(struct ks_engine *e, int64_t *ret_first, int32_t *ret_count, struct kc_err *err);

#endif
