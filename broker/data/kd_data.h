/* kd_data.h - the data loops and the partitions they own.
 *
 * Every partition (slots of internal topics included) is pinned to one data loop by its id. Open
 * logs come from the control loop (kd_install) and go back to it (kd_release). */
#ifndef KD_DATA_H
#define KD_DATA_H

#include "policy/kp_types.h"
#include "rt/rt_loop.h"
#include "storage/ks_engine.h"

struct kd_data;
struct kd_part;

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

/* On the owner's loop: the partition, or NULL if it is not open here. */
struct kd_part *kd_find(struct kd_data *d, const struct kc_uuid *topic_id, int32_t partition);
struct ks_log *kd_part_log(struct kd_part *p);

/* Open internal partitions are watched by their coordinators (broker/groups): called on the owner
 * loop when one is installed (part) and before it leaves (gone; no more appends after it). */
struct kd_slot_hooks {
    void (*opened)(void *ctx, int32_t slot_kind, int32_t slot, struct kd_part *part);
    void (*closing)(void *ctx, int32_t slot_kind, int32_t slot);
    void *ctx;
};
void kd_set_slot_hooks(struct kd_data *d, const struct kd_slot_hooks *hooks); /* before start */

#endif
