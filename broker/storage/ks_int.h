/* ks_int.h - the insides of the engine, shared by its files only.
 *
 * Threads and what they own:
 *   owner loop     the upper half of ks_log: validation, offsets, state, cache, waiting callbacks
 *   commit thread  the queue; groups it by log, one task a log (with helpers from the sync pool where
 *                  several wait for the volume), the journal (ADR 13), then one fence check for all,
 *                  then one message a loop
 *   task of a log  the lower half of ks_log (fields c_*): file, lengths, chain position. A log is in
 *                  at most one task, and in none while it is being opened or recovered.
 *   behind pool    syncs of files whose bytes stand in a journal; makes and removes journals
 *   scan pool      takeovers; warm pool: what is prepared for planned moves; recover pool:
 *                  recoveries, which takeovers may have to wait for; read pool: reads that miss the
 *                  cache, lookups
 */
#ifndef KS_INT_H
#define KS_INT_H

#include <pthread.h>

#include "base/kc_list.h"
#include "base/kc_map.h"
#include "rt/rt_pool.h"
#include "storage/ks_ckpt.h"
#include "storage/ks_clean_pick.h"
#include "storage/ks_engine.h"
#include "storage/ks_frames.h"
#include "storage/ks_journal.h"
#include "storage/ks_reserve.h"
#include "storage/ks_state.h"
#include "storage/ks_tidy.h"
#include "storage/ks_vol.h"
#include "storage/ks_wire.h"

/* ---- an incarnation of this process ---- */

struct ks_inc {
    _Atomic uint32_t refs;
    struct ks_fs *fs;
    struct kc_uuid id;
    uint32_t inc8;
    int fd; /* O_PATH handle of the claim file */
    _Atomic bool fenced;
    _Atomic bool claimed; /* something: an image names it as its broker's */
    _Atomic uint32_t next_seq; /* of data file names */
    _Atomic uint32_t next_journal;
};

struct ks_inc *ks_inc_ref(struct ks_inc *inc);
void ks_inc_unref(struct ks_inc *inc);

/* ---- commit queue ---- */

enum ks_entry_kind {
    KS_E_APPEND,
    KS_E_SEAL,
    KS_E_SEALED, /* the seal's job has ended: the same entry, again */
    KS_E_CLOSE,
    KS_E_TRIM,
    KS_E_FLUSH, /* flush.ms is over */
    KS_E_COMPACT,
    KS_E_RECOVERED, /* a recovery ended: success or not */
    KS_E_RETRY, /* time for another recovery */
    KS_E_SYNCED /* a sync behind of `file` up to `pos` came back with `rc` */
};

struct ks_entry {
    struct rt_msg tick; /* of the first entry: brings the list to the owner */
    struct ks_entry *next; /* commit queue, then the log's, then the tick's */
    struct ks_entry *onext; /* the log's appends under way, in order (owner) */
    struct ks_log *log; /* referenced */
    enum ks_entry_kind kind;
    int32_t epoch; /* the log's when it was queued */
    /* KS_E_APPEND */
    struct kc_slice
        data; /* placed batches, referenced; len 0: a duplicate waits for its original */
    int64_t base, end;
    int64_t first_ts, max_ts; /* max timestamp of its first batch, and of all */
    uint32_t crc; /* CRC field of its last batch */
    int64_t append_time_ms;
    int64_t duplicate_base; /* -1 = none */
    int16_t refusal; /* what the producer's state says; told when the check is passed */
    ks_append_done done; /* NULL: answered already */
    bool abandoned; /* the owner failed it and forgot it */
    void *ctx;
    /* results, written by the task */
    int16_t error;
    uint64_t pos;
    struct ks_file *file; /* referenced */
    bool synced; /* a sync of its file covers it and all before it */
    /* KS_E_SYNCED: what was durable nowhere when it began */
    int64_t records;
    int64_t began_ms; /* monotonic */
    /* KS_E_SEAL */
    struct rt_loop *seal_loop;
    ks_seal_done seal_done;
    int rc;
    size_t record_len;
    uint8_t *record;
    /* KS_E_TRIM */
    struct ks_trim *trim;
    /* KS_E_COMPACT */
    struct ks_clean_job *cleaning; /* its swap; comes back with the entry */
    /* KS_E_RECOVERED */
    struct ks_takeover *takeover;
};

/* What a TRIM is to do: a new log start (not above what is acked) and the files wholly below it. No
 * files and no higher start: nothing is written, only the fence check is asked for. roll: the last
 * of the files is the active one, which a new one follows first; unless something was appended
 * meanwhile, then the log starts with it. */
struct ks_trim {
    int64_t start;
    bool roll;
    int64_t active_base;
    bool known; /* the start is not above what the chain says already */
    bool retained; /* asked for by a round of retention */
    uint16_t n;
    struct ks_file_id files[64];
};

/* ---- recent batches in memory ---- */

/* Chunks of all logs of one loop, oldest first; owned by that loop. */
struct ks_shard {
    _Atomic uint32_t refs;
    struct ks_shard *next;
    struct ks_engine *e;
    struct rt_loop *loop;
    struct rt_after wake; /* at the end of the loop's turn: the commit thread */
    bool waking; /* that is due, and refers to the engine */
    struct ks_entry *spare; /* for the next appends */
    uint32_t n_spare;
    uint32_t
        n_open; /* logs it has that are not let go: without one the loop may have ended; e->lock */
    struct kc_list chunks; /* struct ks_chunk.in_shard */
    struct kc_list logs; /* struct ks_log.in_shard */
    int64_t bytes;
    int64_t marks_bytes; /* indexes of finished segments */
    uint32_t retention_left; /* logs that the round of retention has not looked at */
    uint32_t retention_trims; /* under way */
};

struct ks_chunk {
    struct kc_list in_shard, in_log;
    struct ks_log *log;
    struct kc_buf *buf;
    uint8_t *start;
    size_t used, room;
    int64_t base, end;
};

void ks_shard_unref(struct ks_shard *s);
/* A loop's part of a number of bytes that all loops share. */
int64_t ks_shard_part(const struct ks_engine *e, int64_t bytes);

/* Where a sequential reader left off: saves the walk from the last mark. */
struct ks_cursor {
    int64_t offset;
    struct ks_file_id file;
    uint64_t pos;
    uint64_t ahead; /* the file was asked for up to here; 0 = no farther than it was read */
};
enum { KS_CURSORS = 32 };

/* ---- a log ---- */

enum ks_log_state { KS_OPENING, KS_OPEN, KS_SUSPENDED, KS_STOPPED };

struct ks_log {
    _Atomic uint32_t refs;
    struct ks_engine *e;
    struct kc_uuid topic;
    int32_t partition;
    struct ks_inc *inc;
    struct kp_order order; /* of the claim; a recovery claims under it again */

    /* upper half: the owner loop (before ks_log_own: the opener) */
    struct rt_loop *owner;
    struct ks_shard *shard;
    struct kc_list in_shard;
    enum ks_log_state state;
    _Atomic bool leaving; /* sealed or closed: its last entry is on the way */
    bool closed; /* ks_log_close or ks_log_seal was called: no callback may come any more */
    bool gone; /* stopped for good, the watcher knows */
    bool trimming; /* a TRIM is under way */
    bool compacting; /* a COMPACT is under way */
    struct ks_clean_job *clean_job; /* the cleaner is at this log */
    int64_t clean; /* no key has two records before this offset */
    int64_t
        clean_after_ms; /* monotonic: the cleaner stays away until then; INT64_MAX = it gave up */
    struct ks_file_id *sweep; /* files that the chain dropped and that may still be there */
    uint32_t n_sweep;
    bool in_doubt; /* the outcome of a COMPACT that names `doubt` is unknown (ADR 12) */
    struct ks_file_id doubt;
    struct ks_delete *deletes; /* of that TRIM, then */
    struct ks_delete *more_deletes; /* those that came after it had started */
    int32_t epoch;
    struct ks_log_config cfg;
    struct ks_state st; /* st.end = what is acked = high watermark */
    int64_t end; /* appended */
    struct ks_entry *pend_head, *pend_tail;
    struct kc_list chunks; /* struct ks_chunk.in_log, oldest first */
    struct kc_list reads; /* struct ks_read_req.in_log: under way */
    struct ks_ckpt ckpt;
    int64_t marks_bytes; /* of finished segments, as counted in the shard */
    struct ks_cursor *cursors; /* KS_CURSORS, made with the first; or NULL */
    uint32_t next_cursor;
    ks_watch_fn watch;
    void *watch_ctx;

    /* lower half: the task */
    struct ks_entry *c_head, *c_tail; /* commit thread: queued */
    struct ks_log *c_next; /* commit thread: logs of the tick */
    bool c_listed;
    bool c_failed; /* no more writes under c_epoch */
    bool c_recovering; /* the scan pool has the lower half */
    bool c_sealing; /* a job on the sync pool has it */
    int16_t c_error; /* when failed: what appends get */
    int32_t c_epoch;
    uint64_t c_next_k;
    struct ks_file *c_file;
    uint64_t c_pos; /* where the next byte goes */
    uint64_t c_synced; /* bytes of c_file that a sync has confirmed (ADR 10) */
    uint64_t c_acked; /* acked length of c_file */
    int64_t c_end; /* acked end offset */
    uint32_t c_crc; /* CRC field of the last acked batch of c_file, 0 if none */
    /* issued in the running tick, become the acked ones when its check is done */
    int64_t c_new_end;
    uint32_t c_new_crc;
    uint64_t c_durable; /* bytes of c_file that are durable, there or as frames of a journal */
    bool c_lies; /* an error on c_file: no later sync of it proves anything */
    bool c_syncing; /* a sync behind is under way: nothing else may sync c_file (ADR 13, J7) */
    uint32_t c_n_framed;
    struct ks_framed_in c_framed[KS_JOURNALS]; /* commit thread */
    int64_t c_unsynced; /* records that are durable nowhere (flush.messages > 1) */
    _Atomic int64_t c_flush_at_ms; /* monotonic; when to sync them, 0 = never */
    int64_t c_first_ts; /* max timestamp of the first batch of c_file; -1 = none */
    int64_t c_made_ms; /* wall clock: when c_file was made */
    uint32_t c_jitter; /* of c_file: 0 .. 2^32 - 1 stand for 0 .. segment.jitter.ms */
    _Atomic int64_t c_segment_bytes, c_segment_ms, c_jitter_ms, c_flush_messages, c_flush_ms;
    _Atomic int64_t c_retry_at_ms; /* 0 = no recovery waits */
};

struct ks_log *ks_log_ref(struct ks_log *log);
void ks_log_unref(struct ks_log *log);
struct ks_log *ks_log_new(struct ks_engine *e, struct ks_inc *inc, const struct ks_open_args *args);
/* Takes over what a finished takeover found. The lower half, then the upper one; both at once when
 * the log is new. */
void ks_log_install_lower(struct ks_log *log, struct ks_takeover *t);
int ks_log_install_upper(struct ks_log *log, struct ks_takeover *t);

/* Lets go of a log that nobody owns and that has nothing queued. Any thread. */
void ks_log_abandon(struct ks_log *log);

/* The acked content of an epoch of ours that was let go without a seal, kept until it is sealed. */
struct ks_orphan {
    struct kc_uuid incarnation;
    int32_t epoch;
    int64_t end;
    struct ks_file_id file;
    uint64_t len;
    uint32_t crc;
    bool synced; /* all of it, in its file */
    uint64_t stamp; /* of ks_framed_stamp: its frames were written before */
    uint32_t n_journals;
    struct ks_jfile *journals[KS_JOURNALS]; /* that it keeps alive */
};

/* ---- the engine ---- */

enum {
    KS_QUEUE_BYTES_MAX = 256 * 1024 * 1024,
    KS_WATCH_MS = 500, /* between forced checks: readers need one that is at most 1 s old */
    KS_IDLE_WATCH_MS = 10000, /* the same without logs */
    KS_FULL_CHECK_MS = 2000, /* between looks of retention while the volume is full */
    KS_RETRY_MS = 1000, /* between attempts to recover a log */
    KS_IDLE_FILES = 512 /* open files that nobody uses */
};

/* Topic ids that name entries of a directory, sorted. */
struct ks_ids {
    struct kc_uuid *v;
    int32_t n, room;
    int rc;
};

/* The last listing of deleted/. One serves everybody who asked before it started. */
struct ks_graves {
    pthread_mutex_t lock; /* guards all; never held over I/O */
    pthread_cond_t done;
    uint64_t started, finished; /* looks, counted */
    bool running;
    uint32_t waiting;
    int rc;
    struct ks_ids ids;
};

/* Rounds of the cleaner (ks_clean.c). */
struct ks_cleaner {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t more; /* signalled when the cleaner is to stop */
    struct ks_cleaner_config cfg;
    bool busy; /* a round, or a cleaning that it chose, is under way */
    int32_t shards_left; /* that have not said what they have */
    struct ks_log *best; /* referenced */
    struct ks_clean_need need;
    int64_t next_round_ms; /* monotonic */
    _Atomic bool stop;
};

struct ks_engine {
    _Atomic uint32_t refs; /* the opener's and one a log */
    struct ks_fs fs;
    struct ks_fds fds;
    struct rt_loop *loop;
    ks_fenced_fn on_fenced;
    void *ctx;
    int32_t broker_id;
    int64_t cache_bytes, checkpoint_bytes, index_bytes;
    struct rt_pool *scan, *warm, *read, *sync, *seal, *recover, *hint, *clean;
    int32_t sync_threads;
    struct ks_cleaner cleaner;
    struct ks_reserve reserve;
    struct ks_tidy tidy;
    int64_t tidy_ms; /* KS_TIDY_MS; tests make it small */

    pthread_mutex_t lock; /* guards inc, logs, orphans, condemned, zombies, shards */
    pthread_cond_t log_gone;
    struct ks_inc *inc;
    struct kc_map logs; /* partition key -> struct ks_log: from opening to the last commit */
    struct kc_map orphans; /* partition key -> struct ks_orphan */
    struct kc_map condemned; /* incarnations that we have fenced, for ever -> uint64_t: when, on
                                the clock of ks_framed_stamp */
    struct kc_map zombies; /* partition key -> uint64_t: late bytes that m_zombie has already */
    struct ks_shard *shards;
    _Atomic int32_t n_shards; /* grows under the lock; loops read it without */

    struct ks_graves graves;

    pthread_mutex_t p_lock; /* guards what follows */
    bool pools_gone, recover_gone, hint_gone, clean_gone;

    pthread_t commit_thread;
    _Atomic(struct ks_entry *) q_in; /* newest first */
    pthread_mutex_t q_lock; /* guards q_stop, and the commit thread's way to sleep */
    pthread_cond_t q_more;
    bool q_stop;
    uint32_t n_sealing; /* commit thread: seals that have not come back */
    struct ks_journal *journal; /* commit thread */
    struct ks_task *tasks; /* commit thread: of its turn */
    uint32_t tasks_room;
    _Atomic int64_t sync_us; /* what a sync takes, or took not long ago */

    pthread_mutex_t f_lock; /* guards framed */
    pthread_cond_t f_done;
    struct ks_framed *framed; /* frames of other incarnations, for some seconds */
    _Atomic uint64_t framed_clock;

    pthread_t watch_thread; /* once a second: fence check, retries, retention */
    pthread_mutex_t w_lock; /* guards w_stop, w_again */
    pthread_cond_t w_more;
    bool w_stop, w_again;

    uint64_t unconfirmed; /* KS_UNCONFIRMED_MAX, the same at every broker; tests make it small */
    uint32_t direct_files; /* KS_DIRECT_FILES; tests make these small, too */
    uint64_t journal_bytes; /* KS_JOURNAL_BYTES */
    _Atomic int64_t journal_ms; /* KS_JOURNAL_MS */
    _Atomic size_t queued_bytes;
    _Atomic int64_t checked_ms; /* monotonic time just before the last successful fence check */
    _Atomic int64_t n_logs; /* in the map */
    _Atomic int32_t n_retries; /* logs with c_retry_at_ms set */
    _Atomic bool relaxed; /* some log was told to ack before it syncs */
    _Atomic int64_t retention_check_ms;

    _Atomic uint64_t m_appended, m_commits, m_fsyncs, m_checks, m_zombie, m_read, m_direct, m_hits,
        m_misses, m_errors, m_frames, m_journals, m_ckpts, m_open_read, m_open_read_max;
    _Atomic uint64_t m_cleanings, m_clean_read, m_clean_written, m_clean_errors;
    _Atomic int64_t m_uncleanable; /* partitions that the cleaner gave up */
};

struct ks_key {
    uint8_t b[20];
};
struct ks_key ks_key_of(const struct kc_uuid *topic, int32_t partition);

/* Opens over a given file system (takes it); ks_engine_open does it over the real one. */
int ks_engine_open_on(const struct ks_fs *fs, const struct ks_opts *opts,
                      char cluster_id[KC_UUID_B64_LEN + 1], struct ks_engine **ret,
                      struct kc_err *err);

/* ks_engine.c */
/* Checks the claim file; latches and reports when it is fenced. True: not fenced. Blocking. */
bool ks_engine_check(struct ks_engine *e, struct ks_inc *inc);
void ks_engine_ref(struct ks_engine *e);
void ks_engine_unref(struct ks_engine *e);
/* Runs blocking leftovers on a pool; at once when the pools are gone. Any thread. */
void ks_engine_defer(struct ks_engine *e, struct rt_work *work);
/* The incarnation of new claims is still this one, and not known to be fenced. */
bool ks_engine_current(struct ks_engine *e, const struct ks_inc *inc);
/* Keeps the acked end of the log's epoch, for the seal that a later claim of ours appends. ends: the
 * log goes, and its share of the journals passes on. */
void ks_engine_remember(struct ks_engine *e, const struct ks_log *log, bool ends);
/* All epochs before this one are sealed, durably: what was kept for them may go. */
void ks_engine_sealed(struct ks_engine *e, const struct ks_log *log, int32_t epoch);
/* The log leaves the map: its partition may be opened again. */
void ks_engine_forget(struct ks_engine *e, struct ks_log *log, bool sealed);
/* Counts what a takeover read. */
void ks_engine_note_open(struct ks_engine *e, uint64_t bytes);

/* Which cluster the volume is of. -ENOENT: of none yet; KC_E_CORRUPT. Blocking. */
int ks_cluster_id_read(struct ks_fs *fs, char out[KC_UUID_B64_LEN + 1], struct kc_err *err);

/* ks_topics.c: topics/<id>/meta; configs_json is the caller's. -ENOENT, KC_E_CORRUPT. Blocking. */
int ks_topic_meta_read(struct ks_fs *fs, const struct kc_uuid *id, struct ks_topic_meta *ret);

/* ks_graves.c */
int ks_ids_list(struct ks_fs *fs, const char *dir, struct ks_ids *ret, struct kc_err *err);
void ks_ids_fini(struct ks_ids *ids);
bool ks_ids_have(const struct ks_ids *ids, const struct kc_uuid *id);
void ks_graves_init(struct ks_graves *g);
void ks_graves_fini(struct ks_graves *g);
/* Looks for a topic's tombstone, freshly: KC_E_GONE, 0 = there was none when this was called, or an
 * error. Blocking. */
int ks_graves_look(struct ks_engine *e, const struct kc_uuid *topic, struct kc_err *err);

/* ks_watch.c */
void ks_watch_init(struct ks_engine *e);
void ks_watch_fini(struct ks_engine *e);
int ks_watch_start(struct ks_engine *e);
void ks_watch_stop(struct ks_engine *e);
void ks_watch_wake(struct ks_engine *e); /* a round now. Any thread */

/* ks_retention.c */
void ks_retention_post(struct ks_engine *e);
void ks_retention_trimmed(struct ks_shard *s); /* owner loop: one of its TRIMs is through */

/* ks_trim.c: owner loop */
/* A TRIM to start; all: what is below it may include the active file. */
struct ks_trim *ks_trim_new(const struct ks_log *log, int64_t start, bool all);
void ks_trim_start(struct ks_log *log, struct ks_trim *tr); /* takes tr */
void ks_trim_done(struct ks_entry *entry); /* the commit thread is through with it */
/* One TRIM for all requests that wait, unless a record that names files is under way. */
void ks_deletes_start(struct ks_log *log);
void ks_deletes_fail(struct ks_log *log, int16_t error);

/* ks_clean.c */
void ks_cleaner_init(struct ks_engine *e);
void ks_cleaner_fini(struct ks_engine *e);
void ks_cleaner_stop(struct ks_engine *e); /* interrupts a cleaning */
void ks_cleaner_tick(struct ks_engine *e); /* watch thread: time for a round? */
/* The log was opened, or recovered, with this chain: takes its list of files to remove. */
void ks_clean_opened(struct ks_log *log, struct ks_chain *c);
/* A log that the cleaner gave up is tried again, or goes. */
void ks_clean_forgive(struct ks_log *log);
void ks_clean_cancel(struct ks_log *log); /* owner loop: what is under way is given up */
void ks_clean_after(struct ks_entry *entry); /* owner loop: the COMPACT's outcome */

/* ks_ack.c: results on the owner loops. Takes the list. */
void ks_ack_post(struct ks_entry *list);
void ks_log_stop(
    struct ks_log *log); /* for good: fails what waits, tells the watcher; owner loop */
void ks_log_post_stop(struct ks_log *log); /* any thread */
void ks_fail_appends(struct ks_log *log, int16_t error); /* owner loop */

/* ks_seal.c */
/* Appends the SEAL of the log's own epoch; fills the entry. Sync pool. */
void ks_task_seal(struct ks_log *log, struct ks_entry *entry);

/* ks_cache.c: owner loop */
/* Puts bytes that will be batches base..end - 1 into the newest chunk of the log; *ret_data is
 * writable until it is queued. The slice holds a reference; NULL buf: no memory. */
struct kc_slice ks_cache_add(struct ks_log *log, struct kc_slice in, int64_t base, int64_t end,
                             uint8_t **ret_data);
bool ks_cache_read(struct ks_log *log, const struct ks_read_args *args, struct ks_read_result *ret);
void ks_cache_drop(struct ks_log *log);
/* What lies before `end` was compacted: readers get what is in the files. */
void ks_cache_forget(struct ks_log *log, int64_t end);

/* ks_index.c: owner loop */
/* Adds the log's indexes of finished segments to the shard's account, and makes room if it is full:
 * after every change of the segments. */
void ks_index_recount(struct ks_log *log);
void ks_index_leave(struct ks_log *log); /* before it leaves the shard */
/* Has the index of segment i loaded, or made, on the read pool. */
void ks_index_want(struct ks_log *log, uint32_t i);

/* ks_read.c: fails every read and lookup under way; owner loop */
void ks_reads_cancel(struct ks_log *log, int16_t error);

/* ks_takeover.c: pool thread. Claims, seals what is older, rebuilds. */
struct ks_takeover {
    struct ks_log *log;
    bool may_create;
    bool recovery; /* we are the owner: a claim of anybody else deposes us */
    ks_condemned_fn condemned;
    void *condemned_ctx;
    const _Atomic bool *cancelled;
    uint64_t known_k; /* chain names below it exist */
    uint64_t synced_k; /* and are on the disk */
    struct ks_chain chain; /* carried from the warm-up */
    struct ks_build build;
    struct ks_file *file; /* our first data file, made before the claim */
    bool file_named; /* a record names it, or may do so */
    int32_t epoch; /* ours, once claimed */
    uint64_t scanned; /* bytes read to find where epochs end */
    int32_t blocker_broker;
    struct kc_uuid blocker;
};
void ks_takeover_init(struct ks_takeover *t, struct ks_log *log);
void ks_takeover_fini(struct ks_takeover *t);
int ks_takeover_warm(struct ks_takeover *t, struct kc_err *err);
int ks_takeover_run(struct ks_takeover *t, struct kc_err *err);
/* Makes a new, empty data file of our incarnation. Its name is not durable before the directory is
 * synced, or a later name on a file system that keeps their order (ks_fs_ordered). */
int ks_data_file_new(struct ks_log *log, struct ks_file **ret);
/* Its descriptor only, or -errno. */
int ks_data_file_create(struct ks_log *log, struct ks_file_id *ret);

/* ks_framecache.c: pool threads */
/* Now, on the clock of readings: greater than every stamp before. */
uint64_t ks_framed_stamp(struct ks_engine *e);
/* The frames of an incarnation (ks_frames_read), from a reading that began after `since`. */
int ks_framed_get(struct ks_engine *e, int32_t broker, const struct kc_uuid *incarnation,
                  uint64_t since, struct ks_frames **ret, struct kc_err *err);
/* Lets go of readings that were not used for some seconds. */
void ks_framed_expire(struct ks_engine *e, int64_t now_mono_ms);

/* ks_recover.c: after an error on a file, a new claim and a new file under the same log. */
void ks_recover_start(struct ks_log *log); /* commit or watch thread; c_recovering is set */

#include "storage/ks_turn.h"

#endif
