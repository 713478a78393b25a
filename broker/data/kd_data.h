/* kd_data.h - the data loops and the partitions they own.
 *
 * Every partition (slots of internal topics included) is pinned to one data loop by its id. Open
 * logs come from the control loop (kd_install) and go back to it (kd_release). Loops talk to each
 * other by messages only. */
#ifndef KD_DATA_H
#define KD_DATA_H

#include "base/kc_list.h"
#include "data/kd_timer.h"
#include "policy/kp_ctl.h"
#include "rt/rt_loop.h"
#include "storage/ks_engine.h"

struct kd_data;
struct kd_part;

/* ---- life ---- */

enum { KD_LOOPS_MAX = 64 };
/* n_loops 0 = one a core. Nothing runs before kd_start. */
int kd_new(int32_t n_loops, struct kd_data **ret, struct kc_err *err);
int kd_start(struct kd_data *d, struct kc_err *err);
void kd_stop(
    struct kd_data *d); /* asks the loops to end and joins them; logs were released before */
void kd_free(struct kd_data *d); /* NULL allowed */

/* The loop that owns a partition. [any] */
struct rt_loop *kd_loop_of(struct kd_data *d, const struct kc_uuid *topic_id, int32_t partition);
int32_t kd_n_loops(const struct kd_data *d);
struct rt_loop *kd_loop(struct kd_data *d, int32_t i);

/* Hands an open log to its loop: the partition answers from now on. done(ctx) on `loop`. [any] */
void kd_install(struct kd_data *d, struct ks_log *log, struct rt_loop *loop,
                void (*done)(void *ctx), void *ctx);

/* Takes a partition out: new requests answer NOT_LEADER_OR_FOLLOWER at once, with the hint
 * new_leader (KP_NO_BROKER = none; KIP-951). seal: drain acks and seal, done gets the record;
 * else: close at once (fenced). done on `loop`; rc KC_E_NOT_FOUND if it is not here. [any] */
void kd_release(struct kd_data *d, const struct kc_uuid *topic_id, int32_t partition, bool seal,
                int32_t new_leader, struct rt_loop *loop, ks_seal_done done, void *ctx);

/* Tells an open partition's log its configs (ks_log_configure); not open: nothing happens. [any] */
void kd_configure(struct kd_data *d, const struct kc_uuid *topic_id, int32_t partition,
                  const struct ks_log_config *cfg);

/* On the owner's loop: the partition, or NULL if it is not open here. */
struct kd_part *kd_find(struct kd_data *d, const struct kc_uuid *topic_id, int32_t partition);
struct ks_log *kd_part_log(struct kd_part *p);

/* ---- what every data loop knows; on any data loop ---- */

/* Where kd_release sent the leadership of a partition that is no longer here; KP_NO_BROKER if it did
 * not say. May lag by a message elsewhere than on the owner's loop. */
int32_t kd_hint(struct kd_data *d, const struct kc_uuid *topic_id, int32_t partition);

/* The leader epoch of a partition that is open on this broker, whichever loop owns it; -1 if it is
 * not. May lag an installation or release by a message. */
int32_t kd_open_epoch(struct kd_data *d, const struct kc_uuid *topic_id, int32_t partition);
/* Which of the loops the calling thread is. */
int32_t kd_here_index(struct kd_data *d);
/* Deadlines of the calling data loop. */
struct kd_timers *kd_timers_here(struct kd_data *d);
/* Open partitions, all loops. [any] */
int32_t kd_n_open(const struct kd_data *d);

/* ---- waiting for a partition to be installed here ---- */

/* fn runs once, on the owner's loop: when the partition is installed there, before anything that
 * arrives later, or at the earliest deadline of those who wait for it. First come, first served. */
struct kd_arrival {
    struct kc_list node;
    struct kd_timer timer;
    uint8_t key[20];
    void (*fn)(struct kd_arrival *a);
};
void kd_await(struct kd_data *d, const struct kc_uuid *topic_id, int32_t partition,
              struct kd_arrival *a, int64_t deadline_ms); /* owner's loop */

/* ---- what follows a refused batch ---- */

/* The idempotent producer of a batch, and the partition it is for. */
struct kd_sender {
    const struct kc_uuid *topic_id;
    int32_t partition;
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t first_seq;
};
/* A producer has several batches on their way. If one is refused and the partition is led here by the time the
 * next one comes, that one is out of sequence through no fault of the producer's; told so, librdkafka
 * begins a new epoch and sends again what the old one may have stored, to all partitions. So it is
 * refused like the one before it, and both come again in order. All on the owner's loop.
 *
 * note_refused: this batch was, with an error that its producer tries again after. note_taken: this one
 * was not. was_refused: one before this one was, and none was taken since. */
void kd_note_refused(const struct kd_sender *s, int64_t now_ms);
void kd_note_taken(const struct kd_sender *s);
bool kd_was_refused(const struct kd_sender *s);

/* ---- waiting for an open partition: long polls ---- */

/* fn runs on the owner's loop whenever the high watermark, the last stable offset or the log start
 * moved; gone: the partition has left this loop, the waiter was taken off, part is NULL. */
struct kd_waiter {
    struct kc_list node;
    struct kd_part *part;
    void (*fn)(struct kd_waiter *w, bool gone);
};
void kd_wait(struct kd_part *p, struct kd_waiter *w); /* owner's loop */
void kd_unwait(struct kd_waiter *w); /* owner's loop; not waiting: nothing happens */

/* Open internal partitions are watched by their coordinators (broker/groups): called on the owner
 * loop when one is installed (part) and before it leaves (gone; no more appends after it). */
struct kd_slot_hooks {
    void (*opened)(void *ctx, int32_t slot_kind, int32_t slot, struct kd_part *part);
    void (*closing)(void *ctx, int32_t slot_kind, int32_t slot);
    void *ctx;
};
/* Before the first partition is installed. */
void kd_set_slot_hooks(struct kd_data *d, const struct kd_slot_hooks *hooks);
/* stopped(ctx, …) runs on the owner's loop when an open log gave up by itself (fenced, failed): the
 * partition answers nobody any more and waits for kd_release. Before the first one is installed. */
void kd_set_stopped_hook(struct kd_data *d,
                         void (*stopped)(void *ctx, const struct kc_uuid *topic_id,
                                         int32_t partition),
                         void *ctx);
/* grew(ctx, …) runs on the owner's loop when an open log went on under a newer epoch: an error on a
 * file made the engine claim again (ks_log_epoch). Before the first one is installed. */
void kd_set_epoch_hook(struct kd_data *d,
                       void (*grew)(void *ctx, const struct kc_uuid *topic_id, int32_t partition,
                                    int32_t epoch),
                       void *ctx);
/* Which topic holds the slots of a kind (KP_GROUP_SLOTS, KP_TXN_SLOTS). [one thread at a time, before
 * the first of its partitions is installed] */
void kd_set_slot_topic(struct kd_data *d, int32_t slot_kind, const struct kc_uuid *topic_id);

#if !defined(NDEBUG) || defined(KAAS_TEST_HOOKS)
/* Blocks every data loop, as a wedge would, until it is called with false. [any] (R39, R41) */
void kd_test_wedge(struct kd_data *d, bool on);
#endif

#endif
