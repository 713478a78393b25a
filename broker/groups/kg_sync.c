/* kg_sync.c - SyncGroup, Heartbeat, LeaveGroup, and who may commit. */
#include "groups/kg_step.h"

#include "base/kc_str.h"
#include "groups/kg_step_int.h"

/* ---- the leader's assignment ---- */

/* Members the leader left out get an empty assignment. */
static bool stage(struct kg_group *g, const struct kg_sync_in *in)
{
    for (int32_t i = 0; i < g->n_members; i++) {
        struct kg_member *m = g->members[i];
        struct kc_bytes bytes = {(const uint8_t *)"", 0};
        if (!kg_member_set(g, &m->staged, bytes)) {
            return false;
        }
    }
    for (int32_t i = 0; i < in->n_assignments; i++) {
        struct kg_member *m = kg_member_find(g, in->assignments[i].member_id);
        if (m && !kg_member_set(g, &m->staged, in->assignments[i].bytes)) {
            return false;
        }
    }
    return g->bytes <= KG_GROUP_BYTES_MAX;
}

static void fail_assignment(struct kg_group *g, struct kg_step *s, int16_t error)
{
    kgi_fail_syncs(g, s, error);
    kgi_rebalance(g, s, "the assignment could not be stored");
    kgi_try_complete(g, s);
}

void kgi_assigned(struct kg_group *g, struct kg_step *s, int32_t generation, int16_t error)
{
    /* Somebody may have joined or gone while the append was under way: then this assignment is void
     * and the next generation brings another. */
    if (g->state != KG_COMPLETING || g->generation != generation) {
        return;
    }
    if (error) {
        fail_assignment(g, s, error);
        return;
    }
    for (int32_t i = 0; i < g->n_members; i++) {
        struct kg_member *m = g->members[i];
        kg_member_promote(g, m);
        if (m->sync_req) {
            kgi_sync_ok(g, s, m->sync_req, m);
            m->sync_req = NULL;
            kgi_alive(g, s, m);
        }
    }
    kgi_set_state(g, s, KG_STABLE);
}

static void sync_completing(struct kg_group *g, struct kg_step *s, const struct kg_sync_in *in,
                            struct kg_member *m)
{
    if (m->sync_req) {
        kgi_sync_error(s, m->sync_req, KAFKA_REBALANCE_IN_PROGRESS);
    }
    m->sync_req = in->req;
    m->pending_sync = false;
    if (!kg_group_is_leader(g, m->id)) {
        return;
    }
    if (!stage(g, in)) {
        fail_assignment(g, s, KAFKA_COORDINATOR_NOT_AVAILABLE);
        return;
    }
    struct kg_action *a = kgi_action(s, KG_DO_PERSIST, NULL);
    a->persist.what = KG_PERSIST_ASSIGNMENT;
    a->persist.generation = g->generation;
}

static int16_t sync_check(const struct kg_group *g, const struct kg_sync_in *in)
{
    int16_t error = kgi_validate(g, &in->who);
    if (error) {
        return error;
    }
    if (in->who.generation != g->generation) {
        return KAFKA_ILLEGAL_GENERATION;
    }
    if ((in->protocol_type.ptr && !kc_str_eq(in->protocol_type, g->protocol_type)) ||
        (in->protocol_name.ptr && !kc_str_eq(in->protocol_name, g->protocol_name))) {
        return KAFKA_INCONSISTENT_GROUP_PROTOCOL;
    }
    switch (g->state) {
    case KG_PREPARING:
        return KAFKA_REBALANCE_IN_PROGRESS;
    case KG_COMPLETING:
    case KG_STABLE:
        return 0;
    case KG_EMPTY:
    case KG_DEAD:
        break;
    }
    return KAFKA_UNKNOWN_MEMBER_ID;
}

void kg_sync(struct kg_group *g, struct kg_step *s, const struct kg_sync_in *in)
{
    int16_t error = sync_check(g, in);
    if (error) {
        kgi_sync_error(s, in->req, error);
        return;
    }
    struct kg_member *m = kg_member_find(g, in->who.member_id);
    if (g->state == KG_STABLE) { /* a repeat, or a follower that was late */
        m->pending_sync = false;
        kgi_sync_ok(g, s, in->req, m);
        kgi_alive(g, s, m);
        return;
    }
    sync_completing(g, s, in, m);
}

/* ---- heartbeats, leaving ---- */

int16_t kg_heartbeat(struct kg_group *g, struct kg_step *s, const struct kg_who *who)
{
    int16_t error = kgi_validate(g, who);
    if (error) {
        return error;
    }
    if (who->generation != g->generation) {
        return KAFKA_ILLEGAL_GENERATION;
    }
    switch (g->state) {
    case KG_PREPARING:
        kgi_alive(g, s, kg_member_find(g, who->member_id));
        return KAFKA_REBALANCE_IN_PROGRESS;
    case KG_COMPLETING: /* clients may start before their SyncGroup is answered */
    case KG_STABLE:
        kgi_alive(g, s, kg_member_find(g, who->member_id));
        return 0;
    case KG_EMPTY:
    case KG_DEAD:
        break;
    }
    return KAFKA_UNKNOWN_MEMBER_ID;
}

int16_t kg_leave(struct kg_group *g, struct kg_step *s, const struct kg_who *who)
{
    struct kg_member *m = NULL;
    if (who->member_id.len == 0 && who->instance_id.ptr) {
        m = kg_member_by_instance(g, who->instance_id);
        if (!m) {
            return KAFKA_UNKNOWN_MEMBER_ID;
        }
    } else if (!who->instance_id.ptr && kg_pending_remove(g, who->member_id)) {
        kgi_try_complete(g, s);
        return 0;
    } else {
        int16_t error = kgi_validate(g, who);
        if (error) {
            return error;
        }
        m = kg_member_find(g, who->member_id);
    }
    kgi_drop(g, s, m, "a member left");
    return 0;
}

/* ---- offsets ---- */

int16_t kg_may_commit(struct kg_group *g, struct kg_step *s, const struct kg_who *who)
{
    bool member = who->generation >= 0 || who->member_id.len > 0 || who->instance_id.ptr;
    if (!member || (who->generation < 0 && g->state == KG_EMPTY)) {
        /* Only members commit to a group that has some. */
        return g->state == KG_EMPTY ? 0 : KAFKA_UNKNOWN_MEMBER_ID;
    }
    int16_t error = kgi_validate(g, who);
    if (error) {
        return error;
    }
    if (who->generation != g->generation) {
        return KAFKA_ILLEGAL_GENERATION;
    }
    if (g->state == KG_COMPLETING) {
        /* It knows the new generation but has no assignment in it yet. */
        return KAFKA_REBALANCE_IN_PROGRESS;
    }
    kgi_alive(g, s, kg_member_find(g, who->member_id));
    return 0;
}
