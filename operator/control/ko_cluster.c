/* ko_cluster.c - one KaasCluster on the control loop: from idle over loading to deciding. */
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "control/ko_pub.h"

enum { STEP_MAX_MS = 1000 };

struct ko_cc *ko_cc_find(struct ko_control *c, const char *key)
{
    return kc_map_get(&c->clusters, key, strlen(key));
}

struct ko_cc *ko_cc_get(struct ko_control *c, const char *key)
{
    struct ko_cc *cc = ko_cc_find(c, key);
    if (cc) {
        return cc;
    }
    size_t n = strlen(key);
    KC_ASSERT(n < KO_CLUSTER_KEY_MAX);
    cc = kc_zalloc(sizeof(*cc));
    cc->c = c;
    memcpy(cc->key, key, n + 1);
    kc_arena_init(&cc->spec_arena, 4096, 0);
    kc_map_init(&cc->slices);
    kc_map_init(&cc->unwanted);
    kc_map_init(&cc->graves);
    kc_map_init(&cc->seals);
    ko_cts_init(&cc->wanted);
    ko_cts_init(&cc->topics);
    kc_list_init(&cc->processes);
    cc->confirm_ms = -1;
    kc_map_put(&c->clusters, key, n, cc);
    return cc;
}

void ko_cc_free(void *p)
{
    struct ko_cc *cc = p;
    if (!cc) {
        return;
    }
    ko_admin_drop(cc);
    kp_ctl_free(cc->ctl);
    kc_map_fini(&cc->slices, kc_free);
    kc_map_fini(&cc->unwanted, kc_free);
    kc_map_fini(&cc->graves, kc_free);
    kc_map_fini(&cc->seals, kc_free);
    ko_cts_fini(&cc->wanted);
    ko_cts_fini(&cc->topics);
    kc_arena_fini(&cc->spec_arena);
    kc_free(cc);
}

static void load(struct ko_cc *cc)
{
    struct ko_load *l = kc_zalloc(sizeof(*l));
    memcpy(l->key, cc->key, sizeof(l->key));
    l->uid = kc_strdup(cc->spec.uid);
    l->ticket = cc->load_ticket = ++cc->c->next_ticket;
    cc->phase = KO_LOADING;
    ko_to_api(cc->c, ko_pub_load, l, ko_load_free);
}

void ko_cc_lead(struct ko_cc *cc)
{
    if (cc->phase == KO_IDLE && cc->spec.cluster) {
        load(cc);
    }
}

/* Forgets everything that only the active operator may say. Streams stay open. */
static void reset(struct ko_cc *cc)
{
    KC_LIST_EACH(it, nx, &cc->c->streams)
    {
        struct ko_stream *s = KC_LIST_ENTRY(it, struct ko_stream, link);
        if (strcmp(s->cluster, cc->key) == 0) {
            s->admitted = false;
            s->told_version = s->told_generation = s->told_orders = s->told_leads = 0;
        }
    }
    ko_admin_drop(cc);
    kp_ctl_free(cc->ctl);
    cc->ctl = NULL;
    ko_cts_fini(&cc->topics);
    kc_map_fini(&cc->graves, kc_free);
    kc_map_fini(&cc->seals, kc_free);
    kc_map_init(&cc->graves);
    kc_map_init(&cc->seals);
    cc->phase = KO_IDLE;
    cc->load_ticket = 0;
    cc->publishing = false;
    cc->inventory_due = cc->inventory_merged = false;
    cc->dirty_shards = 0;
    cc->dirty_root = false;
    cc->confirm_ms = -1;
    cc->version = 0;
    memset(cc->row_there, 0, sizeof(cc->row_there));
    memset(cc->row_version, 0, sizeof(cc->row_version));
    memset(cc->trouble, 0, sizeof(cc->trouble));
    cc->measured = 0;
}

void ko_cc_unlead(struct ko_cc *cc)
{
    if (cc->phase != KO_IDLE) {
        ko_to_api(cc->c, ko_pub_drop, kc_strdup(cc->key), NULL);
    }
    reset(cc);
}

/* ---- restoring ---- */

static void restore_topic(struct ko_cc *cc, const struct ki_topic *t)
{
    int rc = kp_ctl_topic(cc->ctl, &t->id, t->internal, ko_topic_kind(t), t->n_parts, t->fresh);
    if (rc) {
        kc_log(KC_ERROR, "control", "event=topic_not_restored cluster=%s topic=%s error=\"%s\"",
               cc->key, t->name, kc_strerror(rc));
        return;
    }
    ko_cts_add(&cc->topics, t);
    if (t->deleted) {
        kp_ctl_topic_delete(cc->ctl, &t->id);
    }
    for (int32_t i = 0; i < t->n_parts; i++) {
        kp_ctl_restore_part(cc->ctl, &t->id, i, &t->parts[i]);
    }
}

static void restore(struct ko_cc *cc, const struct ki_image *im)
{
    int32_t parts = 0;
    for (int32_t s = 0; s < KP_SHARDS; s++) {
        for (int32_t i = 0; i < im->shards[s]->n_topics; i++) {
            parts += im->shards[s]->topics[i].n_parts;
        }
    }
    /* What exists is kept whatever the limits say today. */
    struct kp_ctl_opts o = {.max_brokers = KP_BROKERS_MAX,
                            .max_topics = KC_MAX(cc->spec.max_topics, im->n_topics),
                            .max_partitions = KC_MAX(cc->spec.max_partitions, parts),
                            .interval_ms = cc->spec.interval_ms,
                            .timeout_ms = cc->spec.timeout_ms,
                            .self_id = KP_NO_BROKER};
    cc->ctl = kp_ctl_new(&o);
    KC_ASSERT(cc->ctl); /* crash-only: without it there is no controller */
    for (int32_t i = 0; i < im->n_rows; i++) {
        kp_ctl_restore_row(cc->ctl, &im->rows[i]);
    }
    kp_ctl_restore_homes(cc->ctl, KP_GROUP_SLOTS, im->group_homes);
    kp_ctl_restore_homes(cc->ctl, KP_TXN_SLOTS, im->txn_homes);
    for (int32_t s = 0; s < KP_SHARDS; s++) {
        for (int32_t i = 0; i < im->shards[s]->n_topics; i++) {
            restore_topic(cc, &im->shards[s]->topics[i]);
        }
    }
    kp_ctl_published(cc->ctl, im->order.generation);
    if (kp_ctl_set_limits(cc->ctl, cc->spec.max_topics, cc->spec.max_partitions)) {
        kc_log(KC_WARN, "control", "event=limits_not_applied cluster=%s", cc->key);
    }
}

static void feed_slices(struct ko_cc *cc)
{
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&cc->slices, &it));) {
        struct ko_slice *s = e->value;
        kp_ctl_slice(cc->ctl, e->key, s->eps, s->n, ko_now(cc->c));
    }
}

void ko_cc_tell_desired(struct ko_cc *cc)
{
    if (ko_cc_held(cc) && cc->synced) {
        kp_ctl_set_desired(cc->ctl, cc->spec.desired);
    }
}

void ko_cc_measure(struct ko_cc *cc)
{
    if (ko_cc_held(cc) && cc->rollout != cc->measured) {
        cc->measured = cc->rollout;
        cc->measured_wall_ms = kc_wall_ms();
        kp_ctl_measure(cc->ctl, cc->rollout != 0, ko_now(cc->c));
        cc->view_due = true;
    }
}

/* Brokers dial anew: a new stream carries the whole report that phases are rebuilt from. */
static void redial(struct ko_cc *cc)
{
    KC_LIST_EACH(it, nx, &cc->c->streams)
    {
        struct ko_stream *s = KC_LIST_ENTRY(it, struct ko_stream, link);
        if (s->state == KO_ST_UP && strcmp(s->cluster, cc->key) == 0) {
            ko_stream_close(s, "this operator is active now; say hello again");
        }
    }
}

void ko_cc_loaded(struct ko_control *c, void *arg)
{
    struct ko_loaded *l = arg;
    struct ko_cc *cc = ko_cc_find(c, l->key);
    if (cc && cc->phase == KO_LOADING && cc->load_ticket == l->ticket) {
        cc->order = l->image->order;
        cc->started = cc->order.generation;
        memcpy(cc->cluster_id, l->image->cluster_id, sizeof(cc->cluster_id));
        restore(cc, l->image);
        feed_slices(cc);
        /* A whole image with topics was published after an inventory had been merged. */
        cc->inventory_due = l->image->n_topics == 0 || l->lost;
        cc->dirty_shards |= l->unwritten;
        cc->phase = KO_HELD;
        ko_cc_tell_desired(cc);
        ko_cc_measure(cc);
        ko_rows_changed(cc);
        cc->view_due = true;
        redial(cc);
        kc_log(KC_INFO, "control", "event=cluster_held cluster=%s term=%llu generation=%llu",
               cc->key, (unsigned long long)cc->order.term,
               (unsigned long long)cc->order.generation);
        ko_cc_try_activate(cc);
    }
    ki_image_unref(l->image);
    kc_free(l);
}

/* A KaasTopic whose id the image lacks is new, or its topic was deleted and we have not heard of the
 * end yet: only the volume's tombstones tell. */
static bool stranger_wanted(const struct ko_cc *cc)
{
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&cc->wanted.by_id, &it));) {
        const struct ko_ct *t = e->value;
        if (!ko_cts_id(&cc->topics, &t->id)) {
            return true;
        }
    }
    return false;
}

void ko_cc_try_activate(struct ko_cc *cc)
{
    if (cc->phase != KO_HELD || !cc->synced) {
        return;
    }
    if (!cc->inventory_due && !cc->inventory_merged && stranger_wanted(cc)) {
        cc->inventory_due = true;
        redial(cc);
    }
    if (cc->inventory_due) {
        return;
    }
    ko_merge_wanted(cc);
    ko_merge_internal(cc);
    ko_merge_adopt(cc);
    cc->phase = KO_ACTIVE;
    kp_ctl_activate(cc->ctl, ko_now(cc->c));
    kc_log(KC_INFO, "control", "event=cluster_active cluster=%s", cc->key);
    cc->next_ms = 0;
    ko_step_soon(cc->c);
}

/* ---- deciding ---- */

void ko_cc_step(struct ko_cc *cc, int64_t now_ms)
{
    struct kp_changes ch;
    if (cc->room) {
        cc->room = false;
        ko_merge_refused(cc);
    }
    kp_ctl_step(cc->ctl, now_ms, cc->started + 1, &ch);
    cc->stepped_ms = now_ms;
    cc->next_ms = KC_MIN(ch.next_ms, now_ms + STEP_MAX_MS);
    if (ch.confirm_lease) {
        cc->confirm_ms = now_ms;
        kp_lease_hurry(&cc->c->keeper.lease, now_ms);
    }
    if (ch.rows) {
        ko_rows_changed(cc);
        cc->dirty_root = true;
    }
    cc->dirty_shards |= ch.shards;
    if (ch.told || (ch.active && (ch.rows || ch.shards))) {
        cc->view_due = true;
    }
    if (ch.n_events) {
        ko_events_send(cc, &ch);
    }
    ko_publish_soon(cc, now_ms);
    ko_answer_all(cc);
    ko_step_by(cc->c, cc->next_ms);
}

void ko_cc_step_paced(struct ko_cc *cc, int64_t now_ms)
{
    int64_t at = cc->stepped_ms + KO_STEP_MS;
    if (now_ms >= at) {
        ko_cc_step(cc, now_ms);
        return;
    }
    cc->next_ms = KC_MIN(cc->next_ms, at);
    ko_step_by(cc->c, at);
}
