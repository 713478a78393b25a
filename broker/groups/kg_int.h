/* kg_int.h - shared by the coordinator's files: shards, slots, entries. */
#ifndef KG_INT_H
#define KG_INT_H

#include <stdatomic.h>

#include "groups/kg_coord.h"
#include "groups/kg_store.h"

enum kg_slot_phase { KG_SLOT_ABSENT, KG_SLOT_LOADING, KG_SLOT_ACTIVE };

/* One group with its offsets. It lives while it is in its slot's map or something is under way. */
struct kg_entry {
    struct kg_group group;
    struct kg_offsets offsets;
    struct kg_slot *slot;
    int32_t pins; /* appends and steps under way */
    bool listed; /* in the slot's map */
    size_t heap_at; /* place in the shard's heap + 1; 0 = not armed */
    int64_t due_ms; /* where armed */
    bool counted; /* in the gauges, as: */
    enum kg_state counted_state;
    int32_t counted_members, counted_offsets;
};

struct kg_load;

struct kg_slot {
    struct kg_coord *k;
    struct kg_shard *shard;
    int32_t index;
    enum kg_slot_phase phase;
    struct kc_map entries; /* group id -> entry */
    struct kg_load *load;
    int64_t retry_ms; /* of a load that failed; INT64_MAX = none */
};

struct kg_counters { /* relaxed; written by the shard's loop only */
    _Atomic int64_t groups[KG_DEAD + 1];
    _Atomic int64_t members, offsets, slots, slots_loading;
    _Atomic uint64_t loads, load_ms, rebalances, commits, commit_errors, expired_offsets;
};

struct kg_shard {
    struct kg_coord *k;
    int32_t index;
    struct kg_entry **heap; /* by due_ms */
    size_t heap_len, heap_room;
    int64_t clean_ms; /* next look for expired offsets */
    int32_t clean_slot; /* which slot that look is at */
    int64_t retry_ms; /* earliest of its slots' */
    int64_t asked_ms; /* wake-up asked of the port; INT64_MAX = none */
    struct kg_counters n;
    struct kg_slot slots[KP_SLOTS]; /* only those of its loop are ever open */
};

struct kg_coord {
    struct kg_config cfg;
    struct kg_port port;
    int32_t n_shards;
    struct kg_shard *shards;
};

/* ---- kg_slots.c ---- */

struct kg_slot *kgi_slot(struct kg_shard *sh, struct kc_str group);

/* ---- kg_entry.c ---- */

struct kg_entry *kgi_find(struct kg_slot *slot, struct kc_str group);
struct kg_entry *kgi_obtain(struct kg_slot *slot,
                            struct kc_str group); /* NULL: full or no memory */
void kgi_pin(struct kg_entry *e);
void kgi_unpin(struct kg_entry *e); /* may free it */
/* Takes it out of the slot; freed with its last pin. The caller holds one. */
void kgi_unlist(struct kg_entry *e);
/* Takes out a group that nothing in the log and nobody waiting speaks for. The caller holds a pin. */
void kgi_forget_if_void(struct kg_entry *e);
/* Updates the gauges. */
void kgi_count(struct kg_entry *e);

void kgi_step_begin(struct kg_coord *k, struct kg_step *s);
/* Performs what a step asked for, lets due deadlines fire, arms the next. Ends the step; may free e. */
void kgi_perform(struct kg_entry *e, struct kg_step *s);
/* Appends b's records for e's slot; done as of ks_log_append, possibly before this returns. Ends b.
 * Not 0: nothing was appended, done does not run, and this is the error of Produce. */
int16_t kgi_append(struct kg_entry *e, struct kg_batch *b, ks_append_done done, void *ctx);

/* ---- kg_heap.c ---- */

void kgi_heap_set(struct kg_shard *sh, struct kg_entry *e,
                  int64_t due_ms); /* INT64_MAX: take out */
void kgi_shard_ask(struct kg_shard *sh); /* asks the port for the next wake-up */

/* ---- kg_load.c ---- */

void kgi_load_start(struct kg_slot *slot);
void kgi_load_stop(struct kg_slot *slot);
/* Answers everybody who is parked with error and empties the slot. */
void kgi_slot_clear(struct kg_slot *slot, int16_t error);

/* ---- kg_clean.c ---- */

/* Looks for expired offsets, a slot a call. */
void kgi_clean(struct kg_shard *sh, int64_t now_ms);

static inline void kgi_add(_Atomic int64_t *c, int64_t n)
{
    atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}
static inline void kgi_inc(_Atomic uint64_t *c, uint64_t n)
{
    atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}
static inline int64_t kgi_mono(const struct kg_coord *k)
{
    return k->port.mono_ms(k->port.ctx);
}
static inline int64_t kgi_wall(const struct kg_coord *k)
{
    return k->port.wall_ms(k->port.ctx);
}

#endif
