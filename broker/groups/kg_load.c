/* kg_load.c - a slot is read from its log: chunk by chunk, a turn of the loop (some 2 ms) each.
 *
 * Failure modes: a chunk that cannot be read or kept is tried again from the start after a second; the
 * slot answers 14 meanwhile. Records that do not decode are counted, logged and left out. */
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "groups/kg_int.h"

enum { CHUNK_BYTES = 256 * 1024, RETRY_MS = 1000 };

struct kg_load {
    struct rt_msg next_turn;
    struct kg_slot *slot; /* NULL: stopped; freed by whoever still holds it */
    int64_t next, limit; /* offsets */
    int64_t started_ms;
    struct kg_read_stats stats;
};

static void read_chunk(struct kg_load *l);

/* ---- replaying ---- */

static bool replay_offset(void *ctx, struct kc_str group, struct kc_str topic, int32_t partition,
                          const struct kg_offset_value *value)
{
    struct kg_slot *slot = ctx;
    struct kg_entry *e = value ? kgi_obtain(slot, group) : kgi_find(slot, group);
    if (value) {
        return e && kg_offset_set(&e->offsets, topic, partition, value);
    }
    if (e) {
        kg_offset_clear(&e->offsets, topic, partition);
    }
    return true;
}

/* Each record of a group replaces what earlier ones said. */
static bool replay_group(void *ctx, struct kc_str group,
                         const struct kw_group_metadata_value *value)
{
    struct kg_slot *slot = ctx;
    struct kg_entry *e = value ? kgi_obtain(slot, group) : kgi_find(slot, group);
    if (!e) {
        return !value;
    }
    struct kg_group fresh;
    kg_group_init(&fresh, group, kgi_wall(slot->k));
    bool ok = !value || kg_group_restore(&fresh, value);
    struct kg_group old = e->group;
    e->group = fresh;
    kg_group_fini(&old);
    return ok;
}

/* ---- the end ---- */

static void finish(struct kg_load *l)
{
    struct kg_slot *slot = l->slot;
    struct kg_counters *n = &slot->shard->n;
    slot->load = NULL;
    slot->phase = KG_SLOT_ACTIVE;
    int64_t took_ms = kgi_mono(slot->k) - l->started_ms;
    kgi_add(&n->slots_loading, -1);
    kgi_inc(&n->loads, 1);
    kgi_inc(&n->load_ms, (uint64_t)took_ms);
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *m; (m = kc_map_next(&slot->entries, &it));) {
        struct kg_entry *e = m->value;
        struct kg_step s;
        kgi_step_begin(slot->k, &s);
        kg_group_resume(&e->group, &s);
        kgi_perform(e, &s); /* lets go of it if the log ended up saying nothing of it */
    }
    bool odd = l->stats.unreadable || l->stats.batches_skipped;
    kc_log(odd                ? KC_WARN
           : l->stats.records ? KC_INFO
                              : KC_DEBUG,
           "groups",
           "event=slot_loaded slot=%d groups=%zu records=%lld unreadable=%lld batches_skipped=%lld "
           "ms=%lld",
           slot->index, slot->entries.len, (long long)l->stats.records,
           (long long)l->stats.unreadable, (long long)l->stats.batches_skipped, (long long)took_ms);
    kc_free(l);
}

static void fail(struct kg_load *l, const char *why, int error)
{
    struct kg_slot *slot = l->slot;
    kc_log(KC_WARN, "groups", "event=slot_load_failed slot=%d why=\"%s\" error=%d retry_ms=%d",
           slot->index, why, error, RETRY_MS);
    slot->load = NULL;
    kgi_slot_clear(slot, KAFKA_NOT_COORDINATOR);
    slot->retry_ms = kgi_mono(slot->k) + RETRY_MS;
    slot->shard->retry_ms = KC_MIN(slot->shard->retry_ms, slot->retry_ms);
    kgi_shard_ask(slot->shard);
    kc_free(l);
}

/* ---- chunks ---- */

static void on_turn(struct rt_msg *msg)
{
    struct kg_load *l = KC_CONTAINER_OF(msg, struct kg_load, next_turn);
    if (!l->slot) {
        kc_free(l);
        return;
    }
    read_chunk(l);
}

static int replay(struct kg_load *l, const struct ks_read_result *r)
{
    struct kg_reader reader = {l->slot, replay_offset, replay_group};
    int rc = 0;
    for (int32_t i = 0; i < r->n_slices && rc == 0; i++) {
        rc = kg_records_read(r->slices[i].ptr, r->slices[i].len, &reader, &l->stats);
    }
    return rc;
}

static void on_read(void *ctx, const struct ks_read_result *r)
{
    struct kg_load *l = ctx;
    int rc = l->slot && !r->error ? replay(l, r) : 0;
    for (int32_t i = 0; i < r->n_slices; i++) {
        kc_buf_unref(r->slices[i].buf);
    }
    if (!l->slot) {
        kc_free(l);
        return;
    }
    if (r->error || rc) {
        fail(l, r->error ? "read" : "memory", r->error ? r->error : rc);
        return;
    }
    if (r->next_offset <= l->next) {
        fail(l, "no progress", 0);
        return;
    }
    l->next = r->next_offset;
    struct kg_port *port = &l->slot->k->port;
    l->next_turn = (struct rt_msg){.fn = on_turn};
    port->later(port->ctx, l->slot->shard->index, &l->next_turn);
}

static void read_chunk(struct kg_load *l)
{
    struct kg_port *port = &l->slot->k->port;
    if (l->next >= l->limit) {
        finish(l);
        return;
    }
    struct ks_read_args args = {.offset = l->next,
                                .limit_offset = l->limit,
                                .max_bytes = CHUNK_BYTES,
                                .at_least_one = true};
    port->read(port->ctx, l->slot->index, &args, on_read, l);
}

void kgi_load_start(struct kg_slot *slot)
{
    struct kg_port *port = &slot->k->port;
    struct kg_load *l = kc_zalloc(sizeof(*l));
    struct ks_offsets offsets = port->offsets(port->ctx, slot->index);
    l->slot = slot;
    l->next = offsets.start;
    l->limit = offsets.high_watermark;
    l->started_ms = kgi_mono(slot->k);
    slot->load = l;
    read_chunk(l);
}

void kgi_load_stop(struct kg_slot *slot)
{
    if (slot->load) {
        slot->load->slot = NULL;
        slot->load = NULL;
    }
}

void kgi_slot_clear(struct kg_slot *slot, int16_t error)
{
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *m; (m = kc_map_next(&slot->entries, &it));) {
        struct kg_entry *e = m->value;
        struct kg_step s;
        kgi_pin(e);
        kgi_step_begin(slot->k, &s);
        kg_group_abandon(&e->group, &s, error);
        kgi_unlist(e);
        kgi_perform(e, &s);
        kgi_unpin(e);
    }
}
