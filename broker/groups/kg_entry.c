/* kg_entry.c - a group's life in its slot, and how the actions of a step are performed. */
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "groups/kg_int.h"

/* ---- finding, making, letting go ---- */

struct kg_entry *kgi_find(struct kg_slot *slot, struct kc_str group)
{
    return kc_map_get(&slot->entries, group.ptr ? group.ptr : "", (size_t)group.len);
}

struct kg_entry *kgi_obtain(struct kg_slot *slot, struct kc_str group)
{
    struct kg_entry *e = kgi_find(slot, group);
    if (e) {
        return e;
    }
    if (slot->entries.len >= KG_SLOT_GROUPS_MAX || !(e = kc_try_zalloc(1, sizeof(*e)))) {
        return NULL;
    }
    kg_group_init(&e->group, group, kgi_wall(slot->k));
    kg_offsets_init(&e->offsets);
    e->slot = slot;
    e->listed = true;
    kc_map_put(&slot->entries, e->group.id.ptr, (size_t)e->group.id.len, e);
    return e;
}

void kgi_pin(struct kg_entry *e)
{
    e->pins++;
}

void kgi_unpin(struct kg_entry *e)
{
    KC_ASSERT(e->pins > 0);
    if (--e->pins > 0 || e->listed) {
        return;
    }
    kg_group_fini(&e->group);
    kg_offsets_fini(&e->offsets);
    kc_free(e);
}

static void uncount(struct kg_entry *e)
{
    if (e->counted) {
        struct kg_counters *n = &e->slot->shard->n;
        kgi_add(&n->groups[e->counted_state], -1);
        kgi_add(&n->members, -e->counted_members);
        kgi_add(&n->offsets, -e->counted_offsets);
        e->counted = false;
    }
}

void kgi_count(struct kg_entry *e)
{
    if (!e->listed) {
        return;
    }
    struct kc_log_buf id;
    if (e->group.state == KG_STABLE && e->counted && e->counted_state != KG_STABLE) {
        kc_log(KC_INFO, "groups", "event=group_stable group=%s generation=%d members=%d",
               kc_log_str(e->group.id, &id), e->group.generation, e->group.n_members);
    }
    uncount(e);
    struct kg_counters *n = &e->slot->shard->n;
    e->counted = true;
    e->counted_state = e->group.state;
    e->counted_members = e->group.n_members;
    e->counted_offsets = e->offsets.n;
    kgi_add(&n->groups[e->counted_state], 1);
    kgi_add(&n->members, e->counted_members);
    kgi_add(&n->offsets, e->counted_offsets);
}

void kgi_unlist(struct kg_entry *e)
{
    KC_ASSERT(e->listed && e->pins > 0);
    uncount(e);
    kgi_heap_set(e->slot->shard, e, INT64_MAX);
    kc_map_del(&e->slot->entries, e->group.id.ptr, (size_t)e->group.id.len);
    e->listed = false;
}

void kgi_forget_if_void(struct kg_entry *e)
{
    const struct kg_group *g = &e->group;
    if (e->listed && e->pins == 1 && g->state == KG_EMPTY && g->generation == 0 &&
        g->n_pending == 0 && e->offsets.n == 0) {
        kgi_unlist(e);
    }
}

/* ---- appending ---- */

int16_t kgi_append(struct kg_entry *e, struct kg_batch *b, ks_append_done done, void *ctx)
{
    struct kg_coord *k = e->slot->k;
    struct kc_buf *buf = NULL;
    int rc = kg_batch_take(b, &buf);
    kg_batch_fini(b);
    if (rc != 0) {
        return rc == KC_E_TOO_LARGE ? KAFKA_RECORD_LIST_TOO_LARGE : KAFKA_UNKNOWN_SERVER_ERROR;
    }
    k->port.append(k->port.ctx, e->slot->index, buf, done, ctx);
    kc_buf_unref(buf);
    return 0;
}

struct persist {
    struct kg_entry *entry; /* a pin */
    enum kg_persist what;
    int32_t generation;
    struct kc_str member; /* owned */
};

static void persist_end(struct persist *p, int16_t error)
{
    struct kg_entry *e = p->entry;
    struct kc_log_buf id;
    if (error) {
        kc_log(KC_WARN, "groups", "event=group_not_stored group=%s generation=%d error=%d",
               kc_log_str(e->group.id, &id), p->generation, error);
    }
    struct kg_step s;
    kgi_step_begin(e->slot->k, &s);
    kg_persisted(&e->group, &s, p->what, p->generation, p->member, kg_append_error(error, false));
    kgi_perform(e, &s);
    kg_str_clear(&p->member);
    kc_free(p);
    kgi_unpin(e);
}

static void on_persisted(void *ctx, const struct ks_append_result *r)
{
    persist_end(ctx, r->error);
}

static void persist(struct kg_entry *e, const struct kg_action *a)
{
    struct persist *p = kc_zalloc(sizeof(*p));
    p->entry = e;
    p->what = a->persist.what;
    p->generation = a->persist.generation;
    kgi_pin(e);
    struct kg_batch b;
    kg_batch_init(&b, kgi_wall(e->slot->k));
    kg_batch_group(&b, &e->group, p->what == KG_PERSIST_ASSIGNMENT);
    int16_t error = kg_str_set(&p->member, a->persist.member) ? 0 : KAFKA_UNKNOWN_SERVER_ERROR;
    if (error) {
        kg_batch_fini(&b);
    } else {
        error = kgi_append(e, &b, on_persisted, p);
    }
    if (error) {
        persist_end(p, error);
    }
}

/* ---- performing ---- */

void kgi_step_begin(struct kg_coord *k, struct kg_step *s)
{
    kg_step_init(s, &k->cfg);
    s->now_ms = kgi_mono(k);
    s->wall_ms = kgi_wall(k);
}

static void log_rebalance(const struct kg_entry *e, const struct kg_step *s)
{
    struct kc_log_buf id, reason;
    kc_log(KC_INFO, "groups",
           "event=group_rebalance group=%s generation=%d members=%d why=\"%s\" reason=%s",
           kc_log_str(e->group.id, &id), e->group.generation, e->group.n_members, s->why,
           kc_log_str(s->reason.ptr ? s->reason : (struct kc_str){"", 0}, &reason));
    kgi_inc(&e->slot->shard->n.rebalances, 1);
}

/* What is persisted is the state right after the step: before any answer, which may bring the next
 * request along. */
static void act(struct kg_entry *e, struct kg_step *s)
{
    if (s->why && e->listed) {
        log_rebalance(e, s);
    }
    for (int32_t i = 0; i < s->n_actions; i++) {
        if (s->actions[i].kind == KG_DO_PERSIST) {
            persist(e, &s->actions[i]);
        }
    }
    for (int32_t i = 0; i < s->n_actions; i++) {
        const struct kg_action *a = &s->actions[i];
        struct kg_waiter *w = a->req;
        if (a->kind == KG_DO_JOIN_REPLY) {
            w->joined(w, &a->join);
        } else if (a->kind == KG_DO_SYNC_REPLY) {
            w->synced(w, &a->sync);
        }
    }
}

void kgi_perform(struct kg_entry *e, struct kg_step *s)
{
    struct kg_coord *k = e->slot->k;
    int64_t now_ms = s->now_ms;
    kgi_pin(e);
    act(e, s);
    kg_step_fini(s);
    if (e->listed && e->group.wake_ms <= now_ms) {
        kgi_step_begin(k, s);
        kg_tick(&e->group, s);
        act(e, s);
        kg_step_fini(s);
    }
    if (e->listed) {
        /* Never in this turn again, however short a client's timeouts are. */
        kgi_heap_set(e->slot->shard, e, KC_MAX(e->group.wake_ms, now_ms + 1));
        kgi_count(e);
        kgi_forget_if_void(e);
    }
    kgi_unpin(e);
}
