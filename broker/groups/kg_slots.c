/* kg_slots.c - slots that come and go, and the requests of members. */
#include <stdio.h>
#include <string.h>

#include "base/kc_hash.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "groups/kg_int.h"

enum { TICKS_A_TURN = 256 };

/* ---- life ---- */

struct kg_coord *kg_coord_new(const struct kg_config *cfg, const struct kg_port *port,
                              int32_t n_shards)
{
    struct kg_coord *k = kc_zalloc(sizeof(*k));
    k->cfg = *cfg;
    k->port = *port;
    k->n_shards = n_shards;
    k->shards = kc_zalloc((size_t)n_shards * sizeof(*k->shards));
    for (int32_t i = 0; i < n_shards; i++) {
        struct kg_shard *sh = &k->shards[i];
        sh->k = k;
        sh->index = i;
        sh->clean_ms = kgi_mono(k) + cfg->retention_check_ms;
        sh->retry_ms = INT64_MAX;
        sh->asked_ms = INT64_MAX;
        for (int32_t j = 0; j < KP_SLOTS; j++) {
            sh->slots[j] = (struct kg_slot){.k = k, .shard = sh, .index = j, .retry_ms = INT64_MAX};
            kc_map_init(&sh->slots[j].entries);
        }
    }
    return k;
}

static void let_go(void *p)
{
    struct kg_entry *e = p;
    for (int32_t i = 0; i < e->group.n_members; i++) {
        e->group.members[i]->join_req = NULL;
        e->group.members[i]->sync_req = NULL;
    }
    kg_group_fini(&e->group);
    kg_offsets_fini(&e->offsets);
    kc_free(e);
}

void kg_coord_free(struct kg_coord *k)
{
    if (!k) {
        return;
    }
    for (int32_t i = 0; i < k->n_shards; i++) {
        struct kg_shard *sh = &k->shards[i];
        for (int32_t j = 0; j < KP_SLOTS; j++) {
            kgi_load_stop(&sh->slots[j]);
            kc_map_fini(&sh->slots[j].entries, let_go);
        }
        kc_free(sh->heap);
    }
    kc_free(k->shards);
    kc_free(k);
}

struct kg_shard *kg_shard_at(struct kg_coord *k, int32_t i)
{
    KC_ASSERT(i >= 0 && i < k->n_shards);
    return &k->shards[i];
}

void kg_slot_opened(struct kg_shard *sh, int32_t slot)
{
    KC_ASSERT(slot >= 0 && slot < KP_SLOTS);
    struct kg_slot *s = &sh->slots[slot];
    KC_ASSERT(s->phase == KG_SLOT_ABSENT);
    s->phase = KG_SLOT_LOADING;
    kgi_add(&s->shard->n.slots, 1);
    kgi_add(&s->shard->n.slots_loading, 1);
    kgi_load_start(s);
    kgi_shard_ask(sh);
}

void kg_slot_closing(struct kg_shard *sh, int32_t slot)
{
    struct kg_slot *s = &sh->slots[slot];
    if (s->phase == KG_SLOT_ABSENT) {
        return;
    }
    kgi_add(&s->shard->n.slots, -1);
    if (s->phase == KG_SLOT_LOADING) {
        kgi_add(&s->shard->n.slots_loading, -1);
    }
    kgi_load_stop(s);
    s->phase = KG_SLOT_ABSENT; /* first: whoever is answered now and comes back hears 16 */
    s->retry_ms = INT64_MAX;
    size_t groups = s->entries.len;
    kgi_slot_clear(s, KAFKA_NOT_COORDINATOR);
    kc_log(groups ? KC_INFO : KC_DEBUG, "groups", "event=slot_closed slot=%d groups=%zu", slot,
           groups);
}

static void retry_loads(struct kg_shard *sh, int64_t now_ms)
{
    sh->retry_ms = INT64_MAX;
    for (int32_t i = 0; i < KP_SLOTS; i++) {
        struct kg_slot *s = &sh->slots[i];
        if (s->retry_ms <= now_ms) {
            s->retry_ms = INT64_MAX;
            kgi_load_start(s);
        }
        sh->retry_ms = KC_MIN(sh->retry_ms, s->retry_ms);
    }
}

void kg_shard_tick(struct kg_shard *sh)
{
    struct kg_coord *k = sh->k;
    int64_t now_ms = kgi_mono(k);
    sh->asked_ms = INT64_MAX;
    for (int i = 0; i < TICKS_A_TURN && sh->heap_len && sh->heap[0]->due_ms <= now_ms; i++) {
        struct kg_entry *e = sh->heap[0];
        struct kg_step s;
        kgi_step_begin(k, &s);
        kg_tick(&e->group, &s);
        kgi_perform(e, &s);
    }
    if (sh->retry_ms <= now_ms) {
        retry_loads(sh, now_ms);
    }
    if (sh->clean_ms <= now_ms) {
        kgi_clean(sh, now_ms);
    }
    kgi_shard_ask(sh);
}

/* ---- which slot ---- */

struct kg_slot *kgi_slot(struct kg_shard *sh, struct kc_str group)
{
    return &sh->slots[kc_coordinator_slot(group, KP_SLOTS)];
}

int16_t kg_slot_state(struct kg_shard *sh, struct kc_str group)
{
    switch (kgi_slot(sh, group)->phase) {
    case KG_SLOT_ABSENT:
        return KAFKA_NOT_COORDINATOR;
    case KG_SLOT_LOADING:
        return KAFKA_COORDINATOR_LOAD_IN_PROGRESS;
    case KG_SLOT_ACTIVE:
        break;
    }
    /* Somebody may have taken over meanwhile: then our memory is history. */
    const struct kg_port *port = &sh->k->port;
    return port->fence_age_ms(port->ctx) > KG_FENCE_AGE_MAX_MS ? KAFKA_NOT_COORDINATOR : 0;
}

static int16_t member_request_state(struct kg_shard *sh, struct kc_str group)
{
    return group.len == 0 ? KAFKA_INVALID_GROUP_ID : kg_slot_state(sh, group);
}

/* ---- JoinGroup ---- */

static void refuse_join(const struct kg_join_in *in, int16_t error)
{
    struct kg_waiter *w = in->req;
    struct kg_join_out out = {.error = error, .generation = -1, .member_id = in->spec.id};
    w->joined(w, &out);
}

static int16_t join_check(struct kg_shard *sh, struct kc_str group, const struct kg_join_in *in)
{
    int16_t error = member_request_state(sh, group);
    if (error) {
        return error;
    }
    if (in->spec.session_timeout_ms < sh->k->cfg.min_session_ms ||
        in->spec.session_timeout_ms > sh->k->cfg.max_session_ms) {
        return KAFKA_INVALID_SESSION_TIMEOUT;
    }
    if (in->spec.n_protocols > KG_PROTOCOLS_MAX) {
        return KAFKA_INCONSISTENT_GROUP_PROTOCOL;
    }
    if (in->spec.id.len > 0 && !kgi_find(kgi_slot(sh, group), group)) {
        return KAFKA_UNKNOWN_MEMBER_ID;
    }
    return 0;
}

/* "<client or instance id>-<uuid>", as Kafka names members. False: no memory. */
static bool name_member(struct kg_step *s, struct kg_join_in *in)
{
    struct kc_str prefix = in->spec.instance_id.ptr ? in->spec.instance_id : in->spec.client_id;
    struct kc_uuid u = kc_uuid_random();
    char hex[KC_UUID_HEX_LEN + 1];
    kc_uuid_to_hex(&u, hex);
    const char *id =
        kc_arena_printf(&s->arena, "%.*s-%.8s-%.4s-%.4s-%.4s-%.12s", KC_STR_ARG(prefix), hex,
                        hex + 8, hex + 12, hex + 16, hex + 20);
    in->new_id = (struct kc_str){id, id ? (int32_t)strlen(id) : 0};
    /* A NUL inside a client id would have ended the text: ids stay unique by their uuid alone. */
    return id != NULL;
}

void kg_request_join(struct kg_shard *sh, struct kc_str group, struct kg_join_in *in,
                     struct kc_str reason)
{
    int16_t error = join_check(sh, group, in);
    if (error) {
        refuse_join(in, error);
        return;
    }
    struct kg_entry *e = kgi_obtain(kgi_slot(sh, group), group);
    if (!e) {
        refuse_join(in, KAFKA_COORDINATOR_NOT_AVAILABLE);
        return;
    }
    in->spec.rebalance_timeout_ms = KC_MAX(in->spec.rebalance_timeout_ms, 0);
    struct kg_step s;
    kgi_step_begin(sh->k, &s);
    s.reason = reason;
    if (in->spec.id.len == 0 && !name_member(&s, in)) {
        refuse_join(in, KAFKA_COORDINATOR_NOT_AVAILABLE);
    } else {
        kg_join(&e->group, &s, in);
    }
    kgi_perform(e, &s);
}

/* ---- SyncGroup, Heartbeat, LeaveGroup ---- */

void kg_request_sync(struct kg_shard *sh, struct kc_str group, const struct kg_sync_in *in)
{
    struct kg_waiter *w = in->req;
    struct kg_sync_out out = {.assignment = {(const uint8_t *)"", 0}};
    out.error = member_request_state(sh, group);
    if (out.error == KAFKA_COORDINATOR_LOAD_IN_PROGRESS) {
        /* The rebalance under way died with the previous coordinator. 27 sends the member back to
         * JoinGroup; old clients do not expect 14 here (Kafka's GroupCoordinator does the same). */
        out.error = KAFKA_REBALANCE_IN_PROGRESS;
    }
    struct kg_entry *e = out.error ? NULL : kgi_find(kgi_slot(sh, group), group);
    if (!e) {
        out.error = out.error ? out.error : KAFKA_UNKNOWN_MEMBER_ID;
        w->synced(w, &out);
        return;
    }
    struct kg_step s;
    kgi_step_begin(sh->k, &s);
    kg_sync(&e->group, &s, in);
    kgi_perform(e, &s);
}

int16_t kg_request_heartbeat(struct kg_shard *sh, struct kc_str group, const struct kg_who *who)
{
    int16_t error = member_request_state(sh, group);
    if (error) {
        /* While loading, no member can be judged: all is well until it is known better. */
        return error == KAFKA_COORDINATOR_LOAD_IN_PROGRESS ? 0 : error;
    }
    struct kg_entry *e = kgi_find(kgi_slot(sh, group), group);
    if (!e) {
        return KAFKA_UNKNOWN_MEMBER_ID;
    }
    struct kg_step s;
    kgi_step_begin(sh->k, &s);
    error = kg_heartbeat(&e->group, &s, who);
    kgi_perform(e, &s);
    return error;
}

int16_t kg_request_leave(struct kg_shard *sh, struct kc_str group, const struct kg_who *who,
                         const struct kc_str *reasons, int32_t n, int16_t *errors)
{
    int16_t error = member_request_state(sh, group);
    if (error) {
        return error;
    }
    struct kg_entry *e = kgi_find(kgi_slot(sh, group), group);
    if (!e) {
        for (int32_t i = 0; i < n; i++) {
            errors[i] = KAFKA_UNKNOWN_MEMBER_ID;
        }
        return 0;
    }
    kgi_pin(e);
    for (int32_t i = 0; i < n; i++) {
        struct kg_step s;
        kgi_step_begin(sh->k, &s);
        s.reason = reasons ? reasons[i] : KC_STR_NULL;
        errors[i] = kg_leave(&e->group, &s, &who[i]);
        kgi_perform(e, &s);
    }
    kgi_unpin(e);
    return 0;
}

/* ---- describing ---- */

const struct kg_group *kg_request_describe(struct kg_shard *sh, struct kc_str group,
                                           int16_t *ret_error)
{
    *ret_error = kg_slot_state(sh, group);
    struct kg_entry *e = *ret_error ? NULL : kgi_find(kgi_slot(sh, group), group);
    return e ? &e->group : NULL;
}

bool kg_shard_list(struct kg_shard *sh, void (*fn)(void *ctx, const struct kg_group *g), void *ctx)
{
    bool complete = true;
    for (int32_t i = 0; i < KP_SLOTS; i++) {
        struct kg_slot *s = &sh->slots[i];
        if (s->phase == KG_SLOT_LOADING) {
            complete = false;
            continue;
        }
        struct kc_map_iter it = {0};
        for (struct kc_map_entry *m; (m = kc_map_next(&s->entries, &it));) {
            fn(ctx, &((struct kg_entry *)m->value)->group);
        }
    }
    return complete;
}

void kg_metrics_read(const struct kg_coord *k, struct kg_metrics *ret)
{
    *ret = (struct kg_metrics){0};
    for (int32_t i = 0; i < k->n_shards; i++) {
        struct kg_counters *n = &k->shards[i].n;
        for (int state = 0; state <= KG_DEAD; state++) {
            ret->groups[state] += atomic_load_explicit(&n->groups[state], memory_order_relaxed);
        }
        ret->members += atomic_load_explicit(&n->members, memory_order_relaxed);
        ret->offsets += atomic_load_explicit(&n->offsets, memory_order_relaxed);
        ret->slots += atomic_load_explicit(&n->slots, memory_order_relaxed);
        ret->slots_loading += atomic_load_explicit(&n->slots_loading, memory_order_relaxed);
        ret->loads += atomic_load_explicit(&n->loads, memory_order_relaxed);
        ret->load_ms += atomic_load_explicit(&n->load_ms, memory_order_relaxed);
        ret->rebalances += atomic_load_explicit(&n->rebalances, memory_order_relaxed);
        ret->commits += atomic_load_explicit(&n->commits, memory_order_relaxed);
        ret->commit_errors += atomic_load_explicit(&n->commit_errors, memory_order_relaxed);
        ret->expired_offsets += atomic_load_explicit(&n->expired_offsets, memory_order_relaxed);
    }
}
