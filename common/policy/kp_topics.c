/* kp_topics.c - the topics a controller decides over, found by id. */
#include "policy/kp_internal.h"

#include <errno.h>
#include <string.h>

#include "base/kc_mem.h"

enum { TABLE_MIN = 64 };

static int32_t slot_of(const struct kp_ctl *c, const struct kc_uuid *id)
{
    int32_t mask = c->table_cap - 1;
    int32_t i = (int32_t)(kc_uuid_hash(id) & (uint64_t)mask);
    while (c->table[i] && !kc_uuid_eq(&c->table[i]->id, id)) {
        i = (i + 1) & mask;
    }
    return i;
}

struct kp_topic *kp_topic_find(const struct kp_ctl *c, const struct kc_uuid *id)
{
    return c->table_cap ? c->table[slot_of(c, id)] : NULL;
}

struct kp_part *kp_part_find(struct kp_ctl *c, const struct kp_pid *p, struct kp_topic **ret_t)
{
    struct kp_topic *t = kp_topic_find(c, &p->topic_id);
    if (!t || p->partition < 0 || p->partition >= t->n_parts) {
        return NULL;
    }
    *ret_t = t;
    return &t->parts[p->partition];
}

static void table_fill(struct kp_ctl *c)
{
    memset(c->table, 0, (size_t)c->table_cap * sizeof(*c->table));
    for (int32_t i = 0; i < c->n_topics; i++) {
        c->table[slot_of(c, &c->topics[i]->id)] = c->topics[i];
    }
}

/* Room for one more topic; the table stays at most half full. */
static int reserve(struct kp_ctl *c)
{
    if (c->n_topics < c->topics_cap) {
        return 0;
    }
    int32_t cap = c->topics_cap ? c->topics_cap * 2 : TABLE_MIN / 2;
    struct kp_topic **topics = kc_try_realloc(c->topics, (size_t)cap * sizeof(*topics));
    if (!topics) {
        return -ENOMEM;
    }
    c->topics = topics;
    struct kp_topic **table = kc_try_zalloc((size_t)cap * 2, sizeof(*table));
    if (!table) {
        return -ENOMEM;
    }
    kc_free(c->table);
    c->table = table;
    c->table_cap = cap * 2;
    c->topics_cap = cap;
    table_fill(c);
    return 0;
}

static int grow(struct kp_topic *t, int32_t n)
{
    struct kp_part *parts = kc_try_realloc(t->parts, (size_t)n * sizeof(*parts));
    if (!parts) {
        return -ENOMEM;
    }
    t->parts = parts;
    struct kp_aux *aux = kc_try_realloc(t->aux, (size_t)n * sizeof(*aux));
    if (!aux) {
        return -ENOMEM;
    }
    t->aux = aux;
    for (int32_t i = t->n_parts; i < n; i++) {
        t->parts[i] = (struct kp_part){.home = KP_NO_BROKER,
                                       .assigned = KP_NO_BROKER,
                                       .led = KP_NO_BROKER,
                                       .led_epoch = -1,
                                       .move = {.from = KP_NO_BROKER, .to = KP_NO_BROKER}};
        t->aux[i] = (struct kp_aux){
            .blocked_ms = -1, .blocked_by = KP_NO_BROKER, .release_ms = -1, .gap_ms = -1};
    }
    t->n_parts = n;
    return 0;
}

static int add(struct kp_ctl *c, const struct kc_uuid *id, int32_t n_parts, struct kp_topic **ret)
{
    int rc = reserve(c);
    if (rc) {
        return rc;
    }
    struct kp_topic *t = kc_try_zalloc(1, sizeof(*t));
    if (!t) {
        return -ENOMEM;
    }
    rc = grow(t, n_parts);
    if (rc) {
        kc_free(t->parts);
        kc_free(t);
        return rc;
    }
    t->id = *id;
    t->shard = kp_shard_of(id);
    c->topics[c->n_topics++] = t;
    c->table[slot_of(c, id)] = t;
    *ret = t;
    return 0;
}

static int change(struct kp_ctl *c, struct kp_topic *t, int32_t n_parts, bool fresh)
{
    if (t->deleted || n_parts < t->n_parts) {
        return KC_E_REFUSED;
    }
    int32_t more = n_parts - t->n_parts;
    if (more == 0) {
        return 0;
    }
    if (!t->internal && c->n_data_parts + more > c->o.max_partitions) {
        return KC_E_TOO_LARGE;
    }
    int rc = grow(t, n_parts);
    if (rc) {
        return rc;
    }
    c->n_data_parts += kp_is_slots(t) ? 0 : more;
    t->fresh = t->fresh || fresh;
    c->layout_dirty = true;
    c->assign_dirty = true;
    kp_dirty_part(c, t);
    return 0;
}

int kp_ctl_topic(struct kp_ctl *c, const struct kc_uuid *id, bool internal, int32_t slot_kind,
                 int32_t n_parts, bool fresh)
{
    if (n_parts <= 0) {
        return KC_E_REFUSED;
    }
    struct kp_topic *t = kp_topic_find(c, id);
    if (t) {
        return change(c, t, n_parts, fresh);
    }
    bool over =
        c->n_live_topics >= c->o.max_topics || n_parts > c->o.max_partitions - c->n_data_parts;
    if (!internal && over) {
        return KC_E_TOO_LARGE;
    }
    int rc = add(c, id, n_parts, &t);
    if (rc) {
        return rc;
    }
    t->internal = internal;
    t->slot_kind = slot_kind;
    t->fresh = fresh;
    c->n_live_topics += !internal;
    c->n_data_parts += kp_is_slots(t) ? 0 : n_parts;
    c->layout_dirty = true;
    c->assign_dirty = true;
    kp_dirty_part(c, t);
    return 0;
}

void kp_ctl_topic_delete(struct kp_ctl *c, const struct kc_uuid *id)
{
    struct kp_topic *t = kp_topic_find(c, id);
    if (!t || t->deleted) {
        return;
    }
    t->deleted = true;
    c->n_live_topics -= !t->internal;
    c->n_data_parts -= kp_is_slots(t) ? 0 : t->n_parts;
    for (int32_t i = 0; i < t->n_parts; i++) {
        struct kp_part *p = &t->parts[i];
        if (p->move.id) {
            p->move = (struct kp_move){.from = KP_NO_BROKER, .to = KP_NO_BROKER};
            c->n_moves--;
        }
        if (!kp_is_slots(t) && p->home >= 0) {
            c->peers[p->home].n_home--; /* tombstones weigh nothing in the layout */
        }
        p->home = KP_NO_BROKER;
        t->aux[i].blocked_ms = -1;
        t->aux[i].gap_ms = -1; /* it is not to be led any more */
    }
    c->assign_dirty = true;
    kp_dirty_part(c, t);
}

void kp_ctl_topic_forget(struct kp_ctl *c, const struct kc_uuid *id)
{
    struct kp_topic *t = kp_topic_find(c, id);
    if (!t || !t->deleted) {
        return;
    }
    for (int32_t i = 0; i < t->n_parts; i++) {
        kp_set_led(c, t, i, KP_NO_BROKER, NULL, t->parts[i].led_epoch);
        kp_set_assigned(c, t, i, KP_NO_BROKER);
    }
    for (int32_t i = 0; i < c->n_topics; i++) {
        if (c->topics[i] == t) {
            c->topics[i] = c->topics[--c->n_topics];
            break;
        }
    }
    table_fill(c);
    kp_dirty_part(c, t);
    kc_free(t->parts);
    kc_free(t->aux);
    kc_free(t);
}
