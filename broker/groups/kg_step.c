/* kg_step.c - the rebalance: how it starts, how it ends, and everything that time does to a group. */
#include "groups/kg_step.h"

#include <string.h>

#include "base/kc_mem.h"
#include "groups/kg_step_int.h"

void kg_step_init(struct kg_step *s, const struct kg_config *cfg)
{
    *s = (struct kg_step){.cfg = cfg};
    kc_arena_init(&s->arena, 4096, 0);
}

void kg_step_fini(struct kg_step *s)
{
    kc_arena_fini(&s->arena);
    kc_free(s->actions);
    *s = (struct kg_step){0};
}

/* ---- actions ---- */

struct kg_action *kgi_action(struct kg_step *s, enum kg_action_kind kind, void *req)
{
    if (s->n_actions == s->room_actions) {
        s->room_actions = s->room_actions ? s->room_actions * 2 : 8;
        s->actions = kc_realloc(s->actions, (size_t)s->room_actions * sizeof(struct kg_action));
    }
    struct kg_action *a = &s->actions[s->n_actions++];
    *a = (struct kg_action){.kind = kind, .req = req};
    return a;
}

/* Answers outlive what they tell about: a member may leave in the step that answers it. NULL (no
 * memory) becomes the null string, which every answer may carry. */
struct kc_str kgi_copy(struct kg_step *s, struct kc_str v)
{
    if (!v.ptr) {
        return KC_STR_NULL;
    }
    const char *copy = kc_arena_strndup(&s->arena, v.ptr, (size_t)v.len);
    return (struct kc_str){copy, copy ? v.len : 0};
}

static struct kc_bytes copy_bytes(struct kg_step *s, struct kc_bytes v)
{
    uint8_t *copy = kc_arena_alloc(&s->arena, (size_t)v.len + 1);
    if (!copy) {
        return KC_BYTES_NULL;
    }
    if (v.len) {
        memcpy(copy, v.ptr, (size_t)v.len);
    }
    return (struct kc_bytes){copy, v.len};
}

void kgi_join_error(struct kg_step *s, void *req, struct kc_str member_id, int16_t error)
{
    struct kg_join_out *out = &kgi_action(s, KG_DO_JOIN_REPLY, req)->join;
    out->error = error;
    out->generation = -1;
    out->member_id = kgi_copy(s, member_id);
}

static void add_members(struct kg_group *g, struct kg_step *s, struct kg_join_out *out)
{
    out->members = kc_arena_zalloc(&s->arena, (size_t)g->n_members, sizeof(*out->members));
    for (int32_t i = 0; out->members && i < g->n_members; i++) {
        const struct kg_member *m = g->members[i];
        out->members[i] = (struct kg_join_member){kgi_copy(s, m->id), kgi_copy(s, m->instance_id),
                                                  copy_bytes(s, kg_member_metadata(g, m))};
        out->n_members++;
    }
}

void kgi_join_ok(struct kg_group *g, struct kg_step *s, void *req, const struct kg_member *m,
                 bool with_members)
{
    struct kg_join_out *out = &kgi_action(s, KG_DO_JOIN_REPLY, req)->join;
    out->generation = g->generation;
    out->protocol_type = kgi_copy(s, g->protocol_type);
    out->protocol_name = kgi_copy(s, g->protocol_name);
    out->leader = kgi_copy(s, g->leader);
    out->member_id = kgi_copy(s, m->id);
    if (with_members && kg_group_is_leader(g, m->id)) {
        add_members(g, s, out);
    }
}

void kgi_sync_error(struct kg_step *s, void *req, int16_t error)
{
    struct kg_sync_out *out = &kgi_action(s, KG_DO_SYNC_REPLY, req)->sync;
    out->error = error;
    out->assignment = (struct kc_bytes){(const uint8_t *)"", 0};
}

void kgi_sync_ok(struct kg_group *g, struct kg_step *s, void *req, const struct kg_member *m)
{
    struct kg_sync_out *out = &kgi_action(s, KG_DO_SYNC_REPLY, req)->sync;
    out->protocol_type = kgi_copy(s, g->protocol_type);
    out->protocol_name = kgi_copy(s, g->protocol_name);
    out->assignment = copy_bytes(s, m->assignment);
}

/* ---- deadlines and states ---- */

void kgi_arm(struct kg_group *g, int64_t at_ms)
{
    g->wake_ms = KC_MIN(g->wake_ms, at_ms);
}

void kgi_alive(struct kg_group *g, struct kg_step *s, struct kg_member *m)
{
    m->deadline_ms = s->now_ms + m->session_timeout_ms;
    kgi_arm(g, m->deadline_ms);
}

void kgi_set_state(struct kg_group *g, struct kg_step *s, enum kg_state state)
{
    g->state = state;
    g->state_wall_ms = s->wall_ms;
}

int16_t kgi_validate(const struct kg_group *g, const struct kg_who *who)
{
    if (who->instance_id.ptr) {
        const struct kg_member *m = kg_member_by_instance(g, who->instance_id);
        if (!m) {
            return KAFKA_UNKNOWN_MEMBER_ID;
        }
        if (m != kg_member_find(g, who->member_id)) {
            return KAFKA_FENCED_INSTANCE_ID; /* a newer process took its place (KIP-345) */
        }
    }
    return kg_member_find(g, who->member_id) ? 0 : KAFKA_UNKNOWN_MEMBER_ID;
}

/* ---- the rebalance ---- */

void kgi_fail_syncs(struct kg_group *g, struct kg_step *s, int16_t error)
{
    for (int32_t i = 0; i < g->n_members; i++) {
        struct kg_member *m = g->members[i];
        if (m->sync_req) {
            kgi_sync_error(s, m->sync_req, error);
            m->sync_req = NULL;
            kgi_alive(g, s, m);
        }
    }
}

void kgi_rebalance(struct kg_group *g, struct kg_step *s, const char *why)
{
    if (g->state != KG_EMPTY && g->state != KG_COMPLETING && g->state != KG_STABLE) {
        return;
    }
    s->why = why;
    kgi_fail_syncs(g, s, KAFKA_REBALANCE_IN_PROGRESS);
    g->sync_deadline_ms = INT64_MAX;
    int32_t timeout = kg_group_rebalance_timeout_ms(g);
    if (g->state == KG_EMPTY) {
        /* Kafka's InitialDelayedJoin: give a fleet that starts together time to arrive. */
        int32_t delay = s->cfg->initial_delay_ms;
        g->initial_join = true;
        g->new_member_added = false;
        g->initial_left_ms = KC_MAX(timeout - delay, 0);
        g->join_deadline_ms = s->now_ms + delay;
    } else {
        g->initial_join = false;
        g->join_deadline_ms = s->now_ms + timeout;
    }
    kgi_arm(g, g->join_deadline_ms);
    kgi_set_state(g, s, KG_PREPARING);
}

static void drop_unjoined(struct kg_group *g)
{
    for (int32_t i = g->n_members - 1; i >= 0; i--) {
        struct kg_member *m = g->members[i];
        if (!m->join_req && !m->instance_id.ptr) {
            kg_member_remove(g, m);
        }
    }
}

/* The leader must be somebody who is here to lead. False: nobody is. */
static bool elect_joined(struct kg_group *g)
{
    const struct kg_member *leader = kg_member_find(g, g->leader);
    if (leader && leader->join_req) {
        return true;
    }
    for (int32_t i = 0; i < g->n_members; i++) {
        if (g->members[i]->join_req) {
            return kg_str_set(&g->leader, g->members[i]->id);
        }
    }
    return false;
}

static void answer_joined(struct kg_group *g, struct kg_step *s)
{
    for (int32_t i = 0; i < g->n_members; i++) {
        struct kg_member *m = g->members[i];
        if (m->join_req) {
            kgi_join_ok(g, s, m->join_req, m, true);
            m->join_req = NULL;
        }
        kgi_alive(g, s, m);
        m->is_new = false;
        m->pending_sync = true;
    }
    g->sync_deadline_ms = s->now_ms + kg_group_rebalance_timeout_ms(g);
    kgi_arm(g, g->sync_deadline_ms);
}

/* The join phase is over (Kafka's onCompleteJoin). */
static void complete_join(struct kg_group *g, struct kg_step *s)
{
    g->initial_join = false;
    drop_unjoined(g);
    if (g->n_members > 0 && !elect_joined(g)) {
        /* Only static members are left and none is back: wait until they are, or expire. */
        g->join_deadline_ms = s->now_ms + kg_group_rebalance_timeout_ms(g);
        kgi_arm(g, g->join_deadline_ms);
        return;
    }
    g->join_deadline_ms = INT64_MAX;
    g->generation = g->generation == INT32_MAX ? 0 : g->generation + 1;
    if (g->n_members == 0) {
        kg_str_clear(&g->protocol_name);
        kgi_set_state(g, s, KG_EMPTY);
        kgi_action(s, KG_DO_PERSIST, NULL)->persist.what = KG_PERSIST_EMPTY;
        s->actions[s->n_actions - 1].persist.generation = g->generation;
        return;
    }
    struct kc_str vote = kg_group_vote(g);
    KC_ASSERT(vote.ptr); /* kg_group_supports let nobody in who shares no protocol */
    char *name = kc_strndup(vote.ptr, (size_t)vote.len);
    kg_str_clear(&g->protocol_name);
    g->protocol_name = (struct kc_str){name, vote.len};
    kgi_set_state(g, s, KG_COMPLETING);
    answer_joined(g, s);
}

void kgi_try_complete(struct kg_group *g, struct kg_step *s)
{
    if (g->state == KG_PREPARING && !g->initial_join && kg_group_all_joined(g)) {
        complete_join(g, s);
    }
}

static void answer_and_remove(struct kg_group *g, struct kg_step *s, struct kg_member *m)
{
    if (m->join_req) {
        kgi_join_error(s, m->join_req, (struct kc_str){"", 0}, KAFKA_UNKNOWN_MEMBER_ID);
        m->join_req = NULL;
    }
    if (m->sync_req) {
        kgi_sync_error(s, m->sync_req, KAFKA_UNKNOWN_MEMBER_ID);
        m->sync_req = NULL;
    }
    kg_member_remove(g, m);
}

void kgi_drop(struct kg_group *g, struct kg_step *s, struct kg_member *m, const char *why)
{
    answer_and_remove(g, s, m);
    kgi_rebalance(g, s, why);
    kgi_try_complete(g, s);
}

/* ---- time ---- */

static void on_join_deadline(struct kg_group *g, struct kg_step *s)
{
    if (g->initial_join && g->new_member_added && g->initial_left_ms > 0) {
        int64_t delay = KC_MIN((int64_t)s->cfg->initial_delay_ms, g->initial_left_ms);
        g->new_member_added = false;
        g->initial_left_ms -= delay;
        g->join_deadline_ms = s->now_ms + delay;
        if (delay > 0) {
            return;
        }
    }
    complete_join(g, s);
}

/* Members that took their join answer and never sent SyncGroup (Kafka's DelayedSync). */
static void on_sync_deadline(struct kg_group *g, struct kg_step *s)
{
    bool dropped = false;
    g->sync_deadline_ms = INT64_MAX;
    for (int32_t i = g->n_members - 1; i >= 0; i--) {
        if (g->members[i]->pending_sync) {
            answer_and_remove(g, s, g->members[i]);
            dropped = true;
        }
    }
    if (dropped) {
        kgi_rebalance(g, s, "a member did not send SyncGroup in time");
        kgi_try_complete(g, s);
    }
}

/* A parked request keeps a member alive, but a first JoinGroup only for KG_NEW_MEMBER_TIMEOUT_MS:
 * its sender has no id to come back with, so a dead one would stay for ever. */
static void expire_members(struct kg_group *g, struct kg_step *s)
{
    for (int32_t i = g->n_members - 1; i >= 0; i--) {
        if (i >= g->n_members) {
            continue; /* the end of a join phase removed several */
        }
        struct kg_member *m = g->members[i];
        if (m->deadline_ms > s->now_ms) {
            continue;
        }
        if (!m->is_new && (m->join_req || m->sync_req)) {
            m->deadline_ms = INT64_MAX; /* the answer starts a new session */
            continue;
        }
        kgi_drop(g, s, m,
                 m->is_new ? "a new member never came back" : "a member's session expired");
    }
}

static void expire_pending(struct kg_group *g, struct kg_step *s)
{
    for (int32_t i = g->n_pending - 1; i >= 0; i--) {
        if (g->pending[i].deadline_ms <= s->now_ms) {
            kg_pending_remove(g, g->pending[i].id);
        }
    }
}

static void rearm(struct kg_group *g)
{
    g->wake_ms = KC_MIN(g->join_deadline_ms, g->sync_deadline_ms);
    for (int32_t i = 0; i < g->n_members; i++) {
        kgi_arm(g, g->members[i]->deadline_ms);
    }
    for (int32_t i = 0; i < g->n_pending; i++) {
        kgi_arm(g, g->pending[i].deadline_ms);
    }
}

void kg_tick(struct kg_group *g, struct kg_step *s)
{
    expire_pending(g, s);
    expire_members(g, s);
    kgi_try_complete(g, s);
    if (g->state == KG_PREPARING && g->join_deadline_ms <= s->now_ms) {
        on_join_deadline(g, s);
    }
    if (g->sync_deadline_ms <= s->now_ms) {
        on_sync_deadline(g, s);
    }
    rearm(g);
}

void kg_group_resume(struct kg_group *g, struct kg_step *s)
{
    for (int32_t i = 0; i < g->n_members; i++) {
        kgi_alive(g, s, g->members[i]);
    }
}

void kg_group_abandon(struct kg_group *g, struct kg_step *s, int16_t error)
{
    for (int32_t i = 0; i < g->n_members; i++) {
        struct kg_member *m = g->members[i];
        if (m->join_req) {
            kgi_join_error(s, m->join_req, m->id, error);
            m->join_req = NULL;
        }
        if (m->sync_req) {
            kgi_sync_error(s, m->sync_req, error);
            m->sync_req = NULL;
        }
    }
    g->join_deadline_ms = g->sync_deadline_ms = g->wake_ms = INT64_MAX;
    kgi_set_state(g, s, KG_DEAD);
}
