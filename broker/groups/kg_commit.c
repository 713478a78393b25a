/* kg_commit.c - OffsetCommit and OffsetFetch. */
#include "groups/kg_int.h"

static void fail_all(struct kg_commit *c, int16_t error)
{
    for (int32_t i = 0; i < c->n; i++) {
        if (!c->parts[i].error) {
            c->parts[i].error = error;
        }
    }
    c->done(c);
}

/* Ends what was begun: error 0 makes it visible. */
static void settle(struct kg_entry *e, struct kg_commit *c, int16_t error)
{
    for (int32_t i = 0; i < c->n; i++) {
        struct kg_commit_part *p = &c->parts[i];
        if (!p->error) {
            kg_offset_end(&e->offsets, p->topic, p->partition, error ? NULL : &p->v);
            p->error = error;
        }
    }
    struct kg_counters *n = &e->slot->shard->n;
    kgi_inc(error ? &n->commit_errors : &n->commits, 1);
    kgi_count(e);
    kgi_forget_if_void(e);
}

static void on_committed(void *ctx, const struct ks_append_result *r)
{
    struct kg_commit *c = ctx;
    struct kg_entry *e = c->entry;
    settle(e, c, kg_append_error(r->error, true));
    kgi_unpin(e);
    c->done(c);
}

/* Writes the records of the parts that are welcome; returns how many. */
static int32_t write_parts(struct kg_entry *e, struct kg_commit *c, struct kg_batch *b)
{
    int32_t n = 0;
    for (int32_t i = 0; i < c->n; i++) {
        struct kg_commit_part *p = &c->parts[i];
        if (p->error) {
            continue;
        }
        if (p->v.metadata.len > e->slot->k->cfg.metadata_max) {
            p->error = KAFKA_OFFSET_METADATA_TOO_LARGE;
        } else if (!kg_offset_begin(&e->offsets, p->topic, p->partition)) {
            p->error = KAFKA_COORDINATOR_NOT_AVAILABLE;
        } else {
            p->v.commit_wall_ms = b->wall_ms;
            kg_batch_offset(b, e->group.id, p->topic, p->partition, &p->v);
            n++;
        }
    }
    return n;
}

/* An unknown group is made by a simple consumer's first commit; a member of one has lost it. */
static int16_t admit(struct kg_shard *sh, struct kc_str group, const struct kg_commit *c,
                     struct kg_entry **ret)
{
    int16_t error = kg_slot_state(sh, group);
    if (error) {
        return error;
    }
    struct kg_slot *slot = kgi_slot(sh, group);
    struct kg_entry *e = kgi_find(slot, group);
    if (!e && c->who.generation >= 0) {
        return KAFKA_ILLEGAL_GENERATION;
    }
    if (!e && !(e = kgi_obtain(slot, group))) {
        return KAFKA_COORDINATOR_NOT_AVAILABLE;
    }
    *ret = e;
    kgi_pin(e);
    struct kg_step s;
    kgi_step_begin(sh->k, &s);
    error = kg_may_commit(&e->group, &s, &c->who);
    kgi_perform(e, &s);
    return error;
}

void kg_request_commit(struct kg_shard *sh, struct kc_str group, struct kg_commit *c)
{
    struct kg_entry *e = NULL;
    int16_t error = admit(sh, group, c, &e);
    if (error) {
        if (e) {
            kgi_forget_if_void(e);
            kgi_unpin(e);
        }
        fail_all(c, error);
        return;
    }
    struct kg_batch b;
    kg_batch_init(&b, kgi_wall(sh->k));
    c->entry = e;
    if (write_parts(e, c, &b) == 0) {
        kg_batch_fini(&b);
        kgi_forget_if_void(e);
        kgi_unpin(e);
        c->done(c);
        return;
    }
    error = kgi_append(e, &b, on_committed, c);
    if (error) {
        struct ks_append_result failed = {.error = error};
        on_committed(c, &failed);
    }
}

int16_t kg_request_fetch(struct kg_shard *sh, struct kc_str group, const struct kg_offsets **ret)
{
    *ret = NULL;
    int16_t error = kg_slot_state(sh, group);
    if (error) {
        return error;
    }
    const struct kg_entry *e = kgi_find(kgi_slot(sh, group), group);
    if (e) {
        *ret = &e->offsets;
    }
    return 0;
}
