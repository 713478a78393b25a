/* kg_coord.h - the group coordinator of a broker: all slots of __consumer_offsets it leads.
 *
 * Slot = partition of __consumer_offsets = kc_coordinator_slot(group id). A slot lives on the data
 * loop that owns its partition; the loop's part of the coordinator is a shard. State
 * is what the log says: a slot is read from it when its partition opens (14 meanwhile) and forgotten
 * when it leaves (16). What changes a group or an offset is answered after its append was acked.
 *
 * The world is behind struct kg_port, so that all of this runs in a unit test on a fake log. */
#ifndef KG_COORD_H
#define KG_COORD_H

#include "base/kc_buf.h"
#include "data/kd_data.h"
#include "groups/kg_offsets.h"
#include "groups/kg_step.h"

struct kg_coord;
struct kg_shard;

/* ---- the world ---- */

struct kg_port {
    void *ctx;
    int64_t (*mono_ms)(void *ctx);
    int64_t (*wall_ms)(void *ctx);
    /* Milliseconds since this incarnation was last known not to be fenced. */
    int64_t (*fence_age_ms)(void *ctx);
    /* As ks_log_append, ks_log_read and ks_log_offsets of the slot's open log, on its loop. */
    void (*append)(void *ctx, int32_t slot, struct kc_buf *batches, ks_append_done done,
                   void *done_ctx);
    void (*read)(void *ctx, int32_t slot, const struct ks_read_args *args, ks_read_done done,
                 void *done_ctx);
    struct ks_offsets (*offsets)(void *ctx, int32_t slot);
    /* Runs msg->fn(msg) on the loop of a shard, in a later turn. */
    void (*later)(void *ctx, int32_t shard, struct rt_msg *msg);
    /* Sees to it that kg_shard_tick runs on the shard's loop at at_ms; replaces what was asked before. */
    void (*wake)(void *ctx, int32_t shard, int64_t at_ms);
};

/* Answers need a recent fence check (storage.md). The engine makes one a second when nothing else
 * does; the rest is for a check that takes its time. */
enum { KG_FENCE_AGE_MAX_MS = 1500 };

struct kg_coord *kg_coord_new(const struct kg_config *cfg, const struct kg_port *port,
                              int32_t n_shards);
/* After the loops ended. Requests that are still parked are let go without an answer. */
void kg_coord_free(struct kg_coord *k);

/* The part of one data loop; everything below that takes a shard runs on its loop. [any] */
struct kg_shard *kg_shard_at(struct kg_coord *k, int32_t i);

/* The slot's partition is open here and owned by this loop / leaves it. */
void kg_slot_opened(struct kg_shard *sh, int32_t slot);
void kg_slot_closing(struct kg_shard *sh, int32_t slot);
/* Deadlines have passed. */
void kg_shard_tick(struct kg_shard *sh);

/* A topic was deleted: its offsets go, with tombstones. */
void kg_topic_deleted(struct kg_shard *sh, struct kc_str topic);

/* ---- requests of members ---- */

/* 0; NOT_COORDINATOR; COORDINATOR_LOAD_IN_PROGRESS; COORDINATOR_NOT_AVAILABLE. */
int16_t kg_slot_state(struct kg_shard *sh, struct kc_str group);

/* What a JoinGroup or SyncGroup waits with; embedded in the caller's request. `req` of the inputs
 * points to it. Exactly one of the two is called, once, possibly before the call returns. */
struct kg_waiter {
    void (*joined)(struct kg_waiter *w, const struct kg_join_out *out);
    void (*synced)(struct kg_waiter *w, const struct kg_sync_out *out);
};
/* in->new_id is made here from the client or instance id and a random uuid. reason: the client's
 * own words (KIP-800), logged. */
void kg_request_join(struct kg_shard *sh, struct kc_str group, struct kg_join_in *in,
                     struct kc_str reason);
void kg_request_sync(struct kg_shard *sh, struct kc_str group, const struct kg_sync_in *in);
int16_t kg_request_heartbeat(struct kg_shard *sh, struct kc_str group, const struct kg_who *who);
/* errors[i] for who[i]; returns the request's error. */
int16_t kg_request_leave(struct kg_shard *sh, struct kc_str group, const struct kg_who *who,
                         const struct kc_str *reasons, int32_t n, int16_t *errors);

/* ---- offsets ---- */

struct kg_commit_part {
    struct kc_str topic;
    int32_t partition;
    struct kg_offset_value v; /* borrowed until done */
    int16_t error; /* in: set = skip this one; out: its answer */
};
/* Lives until done; which may run before kg_request_commit returns. */
struct kg_commit {
    struct kg_who who;
    int32_t n;
    struct kg_commit_part *parts;
    void (*done)(struct kg_commit *c);
    void *entry; /* the coordinator's own */
};
void kg_request_commit(struct kg_shard *sh, struct kc_str group, struct kg_commit *c);

/* The group's offsets (NULL: none) for OffsetFetch: 0 or an error. Borrowed, for this turn. Whose
 * member asks does not matter for a classic group. */
int16_t kg_request_fetch(struct kg_shard *sh, struct kc_str group, const struct kg_offsets **ret);

/* ---- administration ---- */

struct kg_admin {
    int16_t error; /* of the whole */
    int32_t n; /* of OffsetDelete */
    struct kg_commit_part *parts; /* topic, partition, error */
    void (*done)(struct kg_admin *a);
    void *entry;
};
void kg_request_delete(struct kg_shard *sh, struct kc_str group, struct kg_admin *a);
void kg_request_offset_delete(struct kg_shard *sh, struct kc_str group, struct kg_admin *a);

/* NULL with error 0: there is no such group. Borrowed, for this turn. */
const struct kg_group *kg_request_describe(struct kg_shard *sh, struct kc_str group,
                                           int16_t *ret_error);
/* All groups of a shard's slots. Returns false if one of the slots is still loading. */
bool kg_shard_list(struct kg_shard *sh, void (*fn)(void *ctx, const struct kg_group *g), void *ctx);

/* ---- metrics; [any] ---- */

struct kg_metrics {
    int64_t groups[KG_DEAD + 1]; /* by state */
    int64_t members;
    int64_t offsets;
    int64_t slots, slots_loading;
    uint64_t loads, load_ms, rebalances, commits, commit_errors, expired_offsets;
};
void kg_metrics_read(const struct kg_coord *k, struct kg_metrics *ret);

#endif
