/* ko_merge.c - what topics there are: the image's, the volume's inventory, what KaasTopics say, and
 * the two internal ones (design.md, 2). Nothing is deleted because it is unknown. */
#include <string.h>

#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "control/ko_int.h"
#include "hb/hb_convert.h"

enum { ADOPT_MAX = 200000 }; /* partitions that a volume may bring along */

int32_t ko_topic_kind(const struct ki_topic *t)
{
    return t->internal ? ki_slot_kind(kc_str_of(t->name)) : KP_NOT_SLOTS;
}

void ko_dirty_topic(struct ko_cc *cc, const struct kc_uuid *id)
{
    cc->dirty_shards |= 1u << kp_shard_of(id);
    cc->next_ms = 0;
    ko_step_soon(cc->c);
}

int ko_topic_add(struct ko_cc *cc, const struct ki_topic *t, struct ko_ct **ret)
{
    if (ko_cts_id(&cc->topics, &t->id) || ko_cts_name(&cc->topics, t->name)) {
        return KC_E_EXISTS;
    }
    int rc = kp_ctl_topic(cc->ctl, &t->id, t->internal, ko_topic_kind(t), t->n_parts, t->fresh);
    if (rc) {
        return rc;
    }
    *ret = ko_cts_add(&cc->topics, t);
    (*ret)->since = cc->started + 1;
    ko_dirty_topic(cc, &t->id);
    return 0;
}

void ko_topic_delete(struct ko_cc *cc, struct ko_ct *t)
{
    ko_cts_bury(&cc->topics, t);
    kp_ctl_topic_delete(cc->ctl, &t->id);
    ko_dirty_topic(cc, &t->id);
    cc->room = true;
}

/* ---- callbacks on the API loop ---- */

struct gone {
    char key[KO_CLUSTER_KEY_MAX];
    struct kc_uuid id;
};

static void tell_gone(struct ko_control *c, void *arg)
{
    struct gone *g = arg;
    if (c->o.cb.topic_gone) {
        c->o.cb.topic_gone(c->o.cb.ctx, g->key, &g->id);
    }
    kc_free(g);
}

static void send_gone(struct ko_cc *cc, const struct kc_uuid *id)
{
    struct gone *g = kc_zalloc(sizeof(*g));
    memcpy(g->key, cc->key, sizeof(g->key));
    g->id = *id;
    ko_to_api(cc->c, tell_gone, g, NULL);
}

void ko_topic_removed(struct ko_cc *cc, const struct kc_uuid *id)
{
    struct ko_ct *t = ko_cts_id(&cc->topics, id);
    if (!t || !t->deleted) {
        return;
    }
    kc_log(KC_INFO, "control", "event=topic_removed cluster=%s topic=%s", cc->key, t->name);
    kp_ctl_topic_forget(cc->ctl, id);
    kc_free(kc_map_put(&cc->graves, id->b, sizeof(id->b), kc_zalloc(1)));
    ko_cts_remove(&cc->topics, id);
    ko_dirty_topic(cc, id);
    send_gone(cc, id);
}

struct adoption {
    struct kc_arena arena;
    char key[KO_CLUSTER_KEY_MAX];
    struct ki_topic *topics;
    int32_t n;
};

static void adoption_free(void *p)
{
    struct adoption *a = p;
    kc_arena_fini(&a->arena);
    kc_free(a);
}

static void tell_adopt(struct ko_control *c, void *arg)
{
    struct adoption *a = arg;
    if (c->o.cb.adopt) {
        c->o.cb.adopt(c->o.cb.ctx, a->key, a->topics, a->n);
    }
    adoption_free(a);
}

void ko_merge_adopt(struct ko_cc *cc)
{
    struct adoption *a = kc_zalloc(sizeof(*a));
    kc_arena_init(&a->arena, 4096, 0);
    memcpy(a->key, cc->key, sizeof(a->key));
    a->topics = kc_arena_zalloc(&a->arena, cc->topics.by_id.len + 1, sizeof(*a->topics));
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; a->topics && (e = kc_map_next(&cc->topics.by_id, &it));) {
        const struct ko_ct *t = e->value;
        if (t->internal || t->deleted || t->told) {
            continue;
        }
        struct ki_topic view = ko_ct_view(t);
        a->n += ki_topic_copy(&a->arena, &view, &a->topics[a->n]);
    }
    if (a->n == 0) {
        adoption_free(a);
        return;
    }
    ko_to_api(cc->c, tell_adopt, a, adoption_free);
}

/* ---- what KaasTopics say ---- */

enum { NO_VERDICT = 1 };

struct refusal {
    char key[KO_CLUSTER_KEY_MAX];
    struct kc_uuid id;
    char why[200];
};

static void tell_refusal(struct ko_control *c, void *arg)
{
    struct refusal *f = arg;
    if (c->o.cb.topic_refused) {
        c->o.cb.topic_refused(c->o.cb.ctx, f->key, &f->id, f->why);
    }
    kc_free(f);
}

/* rc 0: what was told is in force. */
static void verdict(struct ko_cc *cc, struct ko_ct *told, int rc)
{
    struct refusal *f = kc_zalloc(sizeof(*f));
    memcpy(f->key, cc->key, sizeof(f->key));
    f->id = told->id;
    if (rc) {
        const struct ko_ct *t = ko_cts_id(&cc->topics, &told->id);
        if (!ko_over_limits(cc, !t, told->n_parts - (t ? t->n_parts : 0), f->why, sizeof(f->why))) {
            snprintf(f->why, sizeof(f->why), "%s", kc_strerror(rc));
        }
        kc_log(KC_WARN, "control",
               "event=topic_refused cluster=%s topic=%s partitions=%d why=\"%s\"", cc->key,
               told->name, told->n_parts, f->why);
    }
    told->refused = rc != 0;
    ko_to_api(cc->c, tell_refusal, f, NULL);
}

static int update(struct ko_cc *cc, struct ko_ct *t, const struct ko_ct *told)
{
    int rc = 0;
    t->told = true;
    if (t->deleted) {
        return 0; /* its end has begun; the KaasTopic's finalizer goes with it */
    }
    if (ko_ct_set_configs(t, told->configs, told->n_configs)) {
        ko_dirty_topic(cc, &t->id);
    }
    if (told->n_parts > t->n_parts) {
        rc = kp_ctl_topic(cc->ctl, &t->id, t->internal, KP_NOT_SLOTS, told->n_parts, true);
        if (rc == 0) {
            t->n_parts = told->n_parts;
            ko_dirty_topic(cc, &t->id);
        }
    }
    return rc;
}

/* NO_VERDICT: there is another word about it. */
static int merge(struct ko_cc *cc, struct ko_ct *told)
{
    struct ko_ct *t = ko_cts_id(&cc->topics, &told->id);
    if (t) {
        return update(cc, t, told);
    }
    if (kc_map_get(&cc->graves, told->id.b, sizeof(told->id.b))) {
        send_gone(cc, &told->id); /* the volume bars its return */
        return NO_VERDICT;
    }
    if (ko_cts_name(&cc->topics, told->name)) {
        kc_log(KC_WARN, "control", "event=topic_name_taken cluster=%s topic=%s", cc->key,
               told->name);
        ko_merge_adopt(cc); /* what is there keeps its id: the KaasTopic is told */
        return NO_VERDICT;
    }
    struct ki_topic view = ko_ct_view(told);
    view.fresh = true;
    int rc = ko_topic_add(cc, &view, &t);
    if (rc == 0) {
        t->told = true;
    }
    return rc;
}

void ko_merge_topic(struct ko_cc *cc, struct ko_ct *told)
{
    int rc = merge(cc, told);
    if (rc != NO_VERDICT && (rc || told->refused)) {
        verdict(cc, told, rc);
    }
}

void ko_merge_refused(struct ko_cc *cc)
{
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&cc->wanted.by_id, &it));) {
        struct ko_ct *told = e->value;
        if (told->refused && merge(cc, told) == 0) {
            verdict(cc, told, 0);
        }
    }
}

void ko_merge_delete(struct ko_cc *cc, const struct kc_uuid *id)
{
    struct ko_ct *t = ko_cts_id(&cc->topics, id);
    if (!t) {
        send_gone(cc, id);
    } else if (!t->deleted) {
        ko_topic_delete(cc, t);
    }
}

void ko_merge_wanted(struct ko_cc *cc)
{
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&cc->unwanted, &it));) {
        struct kc_uuid id;
        memcpy(id.b, e->key, sizeof(id.b));
        ko_merge_delete(cc, &id);
    }
    kc_map_fini(&cc->unwanted, kc_free);
    kc_map_init(&cc->unwanted);
    it = (struct kc_map_iter){0};
    for (struct kc_map_entry *e; (e = kc_map_next(&cc->wanted.by_id, &it));) {
        ko_merge_topic(cc, e->value);
    }
}

/* ---- what the volume has ---- */

static void adopt_topic(struct ko_cc *cc, const Kaas__Heartbeat__InventoryTopic *v)
{
    struct ki_config configs[256];
    struct ki_topic t = {.id = hb_uuid(v->topic_id),
                         .name = v->name,
                         .internal = v->internal,
                         .n_parts = v->partitions,
                         .replication_factor = 1,
                         .configs = configs};
    for (size_t i = 0; i < v->n_configs && i < KC_ARRAY_LEN(configs); i++) {
        configs[t.n_configs++] = (struct ki_config){v->configs[i]->name, v->configs[i]->value};
    }
    struct kc_log_buf name;
    if (kc_uuid_is_zero(&t.id) || !ki_topic_name_valid(kc_str_of(v->name)) || t.n_parts <= 0) {
        kc_log(KC_ERROR, "control", "event=inventory_entry cluster=%s topic=%s error=invalid",
               cc->key, kc_log_str(kc_str_of(v->name), &name));
        return;
    }
    if (ko_cts_id(&cc->topics, &t.id)) {
        return; /* known */
    }
    struct ko_ct *wanted = ko_cts_name(&cc->wanted, t.name);
    if (wanted && !kc_uuid_eq(&wanted->id, &t.id)) {
        ko_cts_remove(&cc->wanted, &wanted->id); /* never published: the volume's id wins */
    }
    struct ko_ct *ct = NULL;
    int rc = ko_topic_add(cc, &t, &ct);
    if (rc == KC_E_TOO_LARGE && kp_ctl_set_limits(cc->ctl, INT32_MAX, ADOPT_MAX) == 0) {
        rc = ko_topic_add(cc, &t, &ct); /* limits are for what is new, not for what is there */
        if (kp_ctl_set_limits(cc->ctl, cc->spec.max_topics, cc->spec.max_partitions)) {
            kc_log(KC_WARN, "control", "event=limits_not_applied cluster=%s", cc->key);
        }
    }
    kc_log(rc ? KC_ERROR : KC_INFO, "control",
           "event=topic_adopted cluster=%s topic=%s result=\"%s\"", cc->key, t.name,
           kc_strerror(rc));
}

void ko_merge_inventory(struct ko_cc *cc, const Kaas__Heartbeat__Inventory *inv)
{
    if (!cc->inventory_due) {
        return; /* one is enough: the volume is one */
    }
    for (size_t i = 0; i < inv->n_deleted; i++) {
        struct kc_uuid id = hb_uuid(inv->deleted[i]);
        kc_free(kc_map_put(&cc->graves, id.b, sizeof(id.b), kc_zalloc(1)));
    }
    for (size_t i = 0; i < inv->n_topics; i++) {
        struct kc_uuid id = hb_uuid(inv->topics[i]->topic_id);
        if (!kc_map_get(&cc->graves, id.b, sizeof(id.b))) {
            adopt_topic(cc, inv->topics[i]);
        }
    }
    cc->inventory_due = false;
    cc->inventory_merged = true;
    kc_log(KC_INFO, "control", "event=inventory_merged cluster=%s topics=%zu", cc->key,
           inv->n_topics);
    ko_cc_try_activate(cc);
}

void ko_merge_internal(struct ko_cc *cc)
{
    static const struct ki_config compact = {"cleanup.policy", "compact"};
    for (int32_t kind = KP_GROUP_SLOTS; kind <= KP_TXN_SLOTS; kind++) {
        const char *name = ki_slot_topic_name(kind);
        if (ko_cts_name(&cc->topics, name)) {
            continue;
        }
        struct ki_topic t = {.id = kc_uuid_random(),
                             .name = name,
                             .internal = true,
                             .fresh = true,
                             .n_configs = 1,
                             .configs = &compact,
                             .n_parts = KP_SLOTS,
                             .replication_factor = 1};
        struct ko_ct *ct;
        int rc = ko_topic_add(cc, &t, &ct);
        if (rc) {
            kc_log(KC_ERROR, "control", "event=internal_topic cluster=%s topic=%s error=\"%s\"",
                   cc->key, t.name, kc_strerror(rc));
        }
    }
}
