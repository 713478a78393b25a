/* kg_clean.c - offsets that go: DeleteGroups, OffsetDelete, expiry (KIP-211), deleted topics.
 *
 * All leave tombstones; memory changes when these are acked. */
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "groups/kg_int.h"

/* ---- tombstones of some offsets of a group ---- */

struct drop {
    struct kg_entry *entry; /* a pin */
    struct kg_admin *admin; /* who waits, or NULL */
    int32_t n, room;
    struct drop_key {
        struct kc_str topic; /* owned */
        int32_t partition;
    } * keys;
};

static bool drop_add(struct drop *d, struct kc_str topic, int32_t partition)
{
    if (d->n == d->room) {
        int32_t room = d->room ? d->room * 2 : 16;
        struct drop_key *more = kc_try_realloc(d->keys, (size_t)room * sizeof(*more));
        if (!more) {
            return false;
        }
        d->keys = more;
        d->room = room;
    }
    d->keys[d->n] = (struct drop_key){.partition = partition};
    if (!kg_str_set(&d->keys[d->n].topic, topic)) {
        return false;
    }
    d->n++;
    return true;
}

static void drop_end(struct drop *d, int16_t error)
{
    struct kg_entry *e = d->entry;
    for (int32_t i = 0; i < d->n; i++) {
        if (!error) {
            kg_offset_clear(&e->offsets, d->keys[i].topic, d->keys[i].partition);
        }
        kg_str_clear(&d->keys[i].topic);
    }
    kgi_count(e);
    kgi_forget_if_void(e);
    kgi_unpin(e);
    if (d->admin) {
        d->admin->error = error;
        d->admin->done(d->admin);
    }
    kc_free(d->keys);
    kc_free(d);
}

static void on_dropped(void *ctx, const struct ks_append_result *r)
{
    drop_end(ctx, kg_append_error(r->error, false));
}

static struct drop *drop_new(struct kg_entry *e, struct kg_admin *admin)
{
    struct drop *d = kc_zalloc(sizeof(*d));
    d->entry = e;
    d->admin = admin;
    kgi_pin(e);
    return d;
}

/* Appends the tombstones; whole: the group's own, too. Ends d. */
static void drop_run(struct drop *d, bool whole)
{
    struct kg_entry *e = d->entry;
    whole = whole && e->group.generation > 0; /* else no record of it was ever written */
    if (d->n == 0 && !whole) {
        drop_end(d, 0);
        return;
    }
    struct kg_batch b;
    kg_batch_init(&b, kgi_wall(e->slot->k));
    for (int32_t i = 0; i < d->n; i++) {
        kg_batch_offset(&b, e->group.id, d->keys[i].topic, d->keys[i].partition, NULL);
    }
    if (whole) {
        kg_batch_group_gone(&b, e->group.id);
    }
    int16_t error = kgi_append(e, &b, on_dropped, d);
    if (error) {
        drop_end(d, kg_append_error(error, false));
    }
}

/* The whole group: out of sight at once. A commit that comes while the tombstones are under way
 * starts a new one, and its records stand behind them. */
static void drop_group(struct kg_entry *e, struct kg_admin *admin)
{
    struct drop *d = drop_new(e, admin);
    struct kg_offset_iter it = {0};
    for (struct kg_offset *p; (p = kg_offset_next(&e->offsets, &it));) {
        if (!drop_add(d, it.topic->name, p->partition)) {
            drop_end(d, KAFKA_COORDINATOR_NOT_AVAILABLE);
            return;
        }
    }
    struct kg_step s;
    kgi_step_begin(e->slot->k, &s);
    kg_group_abandon(&e->group, &s, KAFKA_UNKNOWN_MEMBER_ID);
    kgi_unlist(e);
    kgi_perform(e, &s);
    drop_run(d, true);
}

/* ---- DeleteGroups, OffsetDelete ---- */

static struct kg_entry *admin_entry(struct kg_shard *sh, struct kc_str group, struct kg_admin *a)
{
    a->error = kg_slot_state(sh, group);
    if (a->error) {
        return NULL;
    }
    struct kg_entry *e = kgi_find(kgi_slot(sh, group), group);
    if (!e) {
        a->error = KAFKA_GROUP_ID_NOT_FOUND;
    }
    return e;
}

void kg_request_delete(struct kg_shard *sh, struct kc_str group, struct kg_admin *a)
{
    struct kg_entry *e = admin_entry(sh, group, a);
    if (e && e->group.state != KG_EMPTY) {
        a->error = KAFKA_NON_EMPTY_GROUP;
    }
    if (a->error) {
        a->done(a);
        return;
    }
    struct kc_log_buf id;
    kc_log(KC_INFO, "groups", "event=group_deleted group=%s", kc_log_str(group, &id));
    drop_group(e, a);
}

static bool is_consumer(const struct kg_group *g)
{
    return kc_str_eqz(g->protocol_type, "consumer");
}

void kg_request_offset_delete(struct kg_shard *sh, struct kc_str group, struct kg_admin *a)
{
    struct kg_entry *e = admin_entry(sh, group, a);
    bool active = e && e->group.state != KG_EMPTY;
    if (active && !is_consumer(&e->group)) {
        a->error = KAFKA_NON_EMPTY_GROUP;
    }
    if (a->error) {
        a->done(a);
        return;
    }
    struct drop *d = drop_new(e, a);
    struct kc_str asked =
        KC_STR_NULL; /* the topic last looked for, and what was found: partitions of
                                          a topic stand together, subscriptions may be long */
    bool subscribed = false;
    for (int32_t i = 0; i < a->n; i++) {
        struct kg_commit_part *p = &a->parts[i];
        if (p->error) {
            continue;
        }
        if (active && (!asked.ptr || !kc_str_eq(asked, p->topic))) {
            asked = p->topic;
            subscribed = kg_group_subscribed(&e->group, asked);
        }
        if (subscribed) {
            p->error = KAFKA_GROUP_SUBSCRIBED_TO_TOPIC;
        } else if (kg_offset_find(&e->offsets, p->topic, p->partition) &&
                   !drop_add(d, p->topic, p->partition)) {
            p->error = KAFKA_COORDINATOR_NOT_AVAILABLE;
        }
    }
    drop_run(d, false);
}

/* ---- deleted topics ---- */

static void forget_topic(struct kg_entry *e, struct kc_str topic)
{
    const struct kg_topic *t = kg_offsets_topic(&e->offsets, topic);
    if (!t) {
        return;
    }
    struct drop *d = drop_new(e, NULL);
    for (int32_t i = 0; i < t->n; i++) {
        if (!drop_add(d, t->name, t->parts[i].partition)) {
            break; /* what is left expires in time */
        }
    }
    drop_run(d, false);
}

void kg_topic_deleted(struct kg_shard *sh, struct kc_str topic)
{
    for (int32_t i = 0; i < KP_SLOTS; i++) {
        struct kg_slot *slot = &sh->slots[i];
        if (slot->phase != KG_SLOT_ACTIVE) {
            continue;
        }
        struct kc_map_iter it = {0};
        for (struct kc_map_entry *m; (m = kc_map_next(&slot->entries, &it));) {
            forget_topic(m->value, topic);
        }
    }
}

/* ---- expiry (KIP-211) ---- */

static bool expired(const struct kg_entry *e, struct kc_str topic, const struct kg_offset *p,
                    int64_t wall_ms)
{
    const struct kg_group *g = &e->group;
    if (!p->visible || p->under_way) {
        return false;
    }
    if (p->v.expire_wall_ms >= 0) {
        return p->v.expire_wall_ms <= wall_ms; /* what OffsetCommit 2-4 asked for */
    }
    int64_t retention_ms = e->slot->k->cfg.retention_ms;
    if (wall_ms - p->v.commit_wall_ms < retention_ms) {
        return false; /* young, whatever the group does: subscriptions are not looked through */
    }
    if (g->protocol_type.ptr && g->state == KG_EMPTY) {
        return wall_ms - g->state_wall_ms >=
               retention_ms; /* while there were members, none expired */
    }
    return !g->protocol_type.ptr ||
           (g->state == KG_STABLE && is_consumer(g) && !kg_group_subscribed(g, topic));
}

static void clean_entry(struct kg_entry *e)
{
    int64_t wall_ms = kgi_wall(e->slot->k);
    struct drop *d = drop_new(e, NULL);
    struct kg_offset_iter it = {0};
    for (struct kg_offset *p; (p = kg_offset_next(&e->offsets, &it));) {
        if (expired(e, it.topic->name, p, wall_ms) && !drop_add(d, it.topic->name, p->partition)) {
            break;
        }
    }
    kgi_inc(&e->slot->shard->n.expired_offsets, (uint64_t)d->n);
    const struct kg_group *g = &e->group;
    if (g->state == KG_EMPTY && g->n_pending == 0 && d->n == e->offsets.n) {
        struct kc_log_buf id;
        kc_log(KC_INFO, "groups", "event=group_expired group=%s offsets=%d", kc_log_str(g->id, &id),
               d->n);
        kgi_unlist(e);
        e->group.state = KG_DEAD;
        drop_run(d, true);
        return;
    }
    drop_run(d, false);
}

static void clean_slot(struct kg_slot *slot)
{
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *m; (m = kc_map_next(&slot->entries, &it));) {
        clean_entry(m->value);
    }
}

void kgi_clean(struct kg_shard *sh, int64_t now_ms)
{
    struct kg_slot *slot = &sh->slots[sh->clean_slot];
    if (slot->phase == KG_SLOT_ACTIVE) {
        clean_slot(slot);
    }
    sh->clean_slot = (sh->clean_slot + 1) % KP_SLOTS;
    sh->clean_ms = now_ms + (sh->clean_slot ? 1 : sh->k->cfg.retention_check_ms);
}
