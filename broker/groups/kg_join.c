/* kg_join.c - JoinGroup: new members, known members, static members. */
#include "groups/kg_step.h"

#include "base/kc_str.h"
#include "groups/kg_step_int.h"

/* group.max.size (KIP-389). While members gather, those who are already waiting count, so that a
 * group above a lowered limit loses the last to come back. */
static bool has_room(const struct kg_group *g, const struct kg_config *cfg, struct kc_str member_id)
{
    const struct kg_member *m = kg_member_find(g, member_id);
    int32_t waiting = 0;
    switch (g->state) {
    case KG_EMPTY:
    case KG_DEAD:
        return true;
    case KG_PREPARING:
        for (int32_t i = 0; i < g->n_members; i++) {
            waiting += g->members[i]->join_req != NULL;
        }
        return (m && m->join_req) || waiting < cfg->max_size;
    case KG_COMPLETING:
    case KG_STABLE:
        return m || g->n_members < cfg->max_size;
    }
    return false;
}

static size_t spec_bytes(const struct kg_member_spec *spec)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < spec->n_protocols; i++) {
        bytes += (size_t)spec->protocols[i].name.len + (size_t)spec->protocols[i].metadata.len;
    }
    return bytes;
}

static void park(struct kg_step *s, struct kg_member *m, const struct kg_join_in *in)
{
    if (m->join_req) {
        /* The same member joins again, on a new connection most likely: the old request must end. */
        kgi_join_error(s, m->join_req, m->id, KAFKA_REBALANCE_IN_PROGRESS);
    }
    m->join_req = in->req;
    m->join_can_skip = in->can_skip;
}

static void add_and_rebalance(struct kg_group *g, struct kg_step *s, const struct kg_join_in *in,
                              struct kc_str id)
{
    struct kg_member_spec spec = in->spec;
    spec.id = id;
    /* The first member of an empty group says what kind of group it is. */
    if (g->n_members == 0 && !kg_str_set(&g->protocol_type, in->protocol_type)) {
        kgi_join_error(s, in->req, id, KAFKA_COORDINATOR_NOT_AVAILABLE);
        return;
    }
    struct kg_member *m = kg_member_add(g, &spec);
    if (!m) {
        kgi_join_error(s, in->req, id, KAFKA_COORDINATOR_NOT_AVAILABLE);
        return;
    }
    m->is_new = true;
    park(s, m, in);
    m->deadline_ms = s->now_ms + KG_NEW_MEMBER_TIMEOUT_MS;
    kgi_arm(g, m->deadline_ms);
    if (g->state == KG_PREPARING && g->initial_join && g->generation == 0) {
        g->new_member_added = true;
    }
    kgi_rebalance(g, s, "a new member joined");
    kgi_try_complete(g, s);
}

static void update_and_rebalance(struct kg_group *g, struct kg_step *s, const struct kg_join_in *in,
                                 struct kg_member *m, const char *why)
{
    if (!kg_member_update(g, m, &in->spec)) {
        kgi_join_error(s, in->req, m->id, KAFKA_COORDINATOR_NOT_AVAILABLE);
        return;
    }
    park(s, m, in);
    if (!m->is_new) {
        kgi_alive(g, s, m);
    }
    kgi_rebalance(g, s, why);
    kgi_try_complete(g, s);
}

/* ---- static members (KIP-345) ---- */

/* In a stable group whose vote stays the same the new process just takes the place of the old one:
 * no rebalance. Its id must be durable before it is told, or a takeover would know only the old. */
static void replace_in_stable(struct kg_group *g, struct kg_step *s, const struct kg_member *m)
{
    struct kc_str vote = kg_group_vote(g);
    if (!kc_str_eq(vote, g->protocol_name)) {
        kgi_rebalance(g, s, "a static member came back with other protocols");
        kgi_try_complete(g, s);
        return;
    }
    struct kg_action *a = kgi_action(s, KG_DO_PERSIST, NULL);
    a->persist.what = KG_PERSIST_STATIC;
    a->persist.generation = g->generation;
    a->persist.member = kgi_copy(s, m->id);
}

static void replace_static(struct kg_group *g, struct kg_step *s, const struct kg_join_in *in,
                           struct kg_member *m)
{
    if (m->join_req) {
        kgi_join_error(s, m->join_req, m->id, KAFKA_FENCED_INSTANCE_ID);
        m->join_req = NULL;
    }
    if (m->sync_req) {
        kgi_sync_error(s, m->sync_req, KAFKA_FENCED_INSTANCE_ID);
        m->sync_req = NULL;
    }
    if (!kg_member_update(g, m, &in->spec)) {
        kgi_join_error(s, in->req, m->id, KAFKA_COORDINATOR_NOT_AVAILABLE);
        return;
    }
    kg_member_rename(g, m, in->new_id);
    park(s, m, in);
    if (!m->is_new) {
        kgi_alive(g, s, m);
    }
    switch (g->state) {
    case KG_STABLE:
        replace_in_stable(g, s, m);
        break;
    case KG_COMPLETING:
        kgi_rebalance(g, s, "a static member came back while the group was syncing");
        kgi_try_complete(g, s);
        break;
    case KG_PREPARING:
        kgi_try_complete(g, s);
        break;
    case KG_EMPTY:
    case KG_DEAD:
        KC_ASSERT(false); /* neither has members */
    }
}

/* The new id is durable: the member hears the current generation. The leader in a stable group must
 * not assign anew. From v9 on it is told so (KIP-814); below it is not told that it leads: it gets the
 * previous id as the leader's, which its own does not equal. */
static void static_persisted(struct kg_group *g, struct kg_step *s, struct kg_member *m,
                             int16_t error)
{
    void *req = m->join_req;
    m->join_req = NULL;
    kgi_alive(g, s, m);
    if (error) {
        kgi_join_error(s, req, (struct kc_str){"", 0}, error);
        return;
    }
    bool leads = kg_group_is_leader(g, m->id);
    kgi_join_ok(g, s, req, m, m->join_can_skip);
    struct kg_join_out *out = &s->actions[s->n_actions - 1].join;
    if (m->join_can_skip) {
        out->skip_assignment = leads;
    } else if (leads) {
        out->leader = kgi_copy(s, m->prior_id);
    }
}

/* ---- the two kinds of join ---- */

static void join_new(struct kg_group *g, struct kg_step *s, const struct kg_join_in *in)
{
    struct kg_member *was = kg_member_by_instance(g, in->spec.instance_id);
    if (was) {
        replace_static(g, s, in, was);
        return;
    }
    if (in->require_known_id && !in->spec.instance_id.ptr) {
        int64_t deadline = s->now_ms + in->spec.session_timeout_ms;
        if (!kg_pending_add(g, in->new_id, deadline)) {
            kgi_join_error(s, in->req, (struct kc_str){"", 0}, KAFKA_COORDINATOR_NOT_AVAILABLE);
            return;
        }
        kgi_arm(g, deadline);
        kgi_join_error(s, in->req, in->new_id, KAFKA_MEMBER_ID_REQUIRED);
        return;
    }
    add_and_rebalance(g, s, in, in->new_id);
}

static void join_known(struct kg_group *g, struct kg_step *s, const struct kg_join_in *in)
{
    struct kc_str id = in->spec.id;
    if (!in->spec.instance_id.ptr && kg_pending_has(g, id)) {
        add_and_rebalance(g, s, in, id);
        if (kg_member_find(g, id)) {
            kg_pending_remove(g, id);
            kgi_try_complete(g, s);
        }
        return;
    }
    struct kg_who who = {.member_id = id, .instance_id = in->spec.instance_id};
    int16_t error = kgi_validate(g, &who);
    if (error) {
        kgi_join_error(s, in->req, id, error);
        return;
    }
    struct kg_member *m = kg_member_find(g, id);
    bool same = kg_member_matches(m, in->spec.protocols, in->spec.n_protocols);
    switch (g->state) {
    case KG_PREPARING:
        update_and_rebalance(g, s, in, m, NULL);
        return;
    case KG_COMPLETING:
        if (same) { /* it may have missed the answer */
            kgi_join_ok(g, s, in->req, m, true);
            kgi_alive(g, s, m);
        } else {
            update_and_rebalance(g, s, in, m, "a member joined again with other metadata");
        }
        return;
    case KG_STABLE:
        if (kg_group_is_leader(g, id)) {
            update_and_rebalance(g, s, in, m, "the leader joined again");
        } else if (!same) {
            update_and_rebalance(g, s, in, m, "a member joined again with other metadata");
        } else {
            kgi_join_ok(g, s, in->req, m, false);
            kgi_alive(g, s, m);
        }
        return;
    case KG_EMPTY:
    case KG_DEAD:
        kgi_join_error(s, in->req, id, KAFKA_UNKNOWN_MEMBER_ID);
    }
}

void kg_join(struct kg_group *g, struct kg_step *s, const struct kg_join_in *in)
{
    if (!has_room(g, s->cfg, in->spec.id) ||
        g->bytes + spec_bytes(&in->spec) > KG_GROUP_BYTES_MAX) {
        struct kg_member *m = kg_member_find(g, in->spec.id);
        if (m) {
            kgi_drop(g, s, m, "the group is larger than group.max.size");
        }
        kgi_join_error(s, in->req, (struct kc_str){"", 0}, KAFKA_GROUP_MAX_SIZE_REACHED);
        return;
    }
    if (!kg_group_supports(g, in->protocol_type, in->spec.protocols, in->spec.n_protocols)) {
        kgi_join_error(s, in->req, in->spec.id, KAFKA_INCONSISTENT_GROUP_PROTOCOL);
        return;
    }
    if (in->spec.id.len == 0) {
        join_new(g, s, in);
    } else {
        join_known(g, s, in);
    }
}

void kg_persisted(struct kg_group *g, struct kg_step *s, enum kg_persist what, int32_t generation,
                  struct kc_str member, int16_t error)
{
    if (what == KG_PERSIST_ASSIGNMENT) {
        kgi_assigned(g, s, generation, error);
        return;
    }
    struct kg_member *m = kg_member_find(g, member);
    if (what == KG_PERSIST_STATIC && g->state == KG_STABLE && g->generation == generation && m &&
        m->join_req) {
        static_persisted(g, s, m, error);
    }
}
