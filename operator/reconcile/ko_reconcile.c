#include "reconcile/ko_reconcile.h"

#include <stdio.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "reconcile/ko_events.h"
#include "reconcile/ko_rec.h"

enum { STATUS_RECHECK_MS = 1000, RUNS_A_TURN = 64 };

#define OWNED_SELECTOR "app.kubernetes.io/managed-by=kaas-operator,kaas.dev/cluster"

/* ---- calls under way ---- */

void *ko_op_new(struct ko_rec *r, size_t size, void (*fini)(struct ko_op *op))
{
    struct ko_op *op = kc_zalloc(size);
    op->rec = r;
    op->fini = fini;
    kc_list_add_tail(&r->ops, &op->link);
    return op;
}

void ko_op_free(void *p)
{
    struct ko_op *op = p;
    kc_list_del(&op->link);
    if (op->fini) {
        op->fini(op);
    }
    kc_free(op);
}

/* ---- the queue ---- */

void *ko_rec_find(const struct kc_map *m, const char *key)
{
    return kc_map_get(m, key, strlen(key));
}

struct ko_rc *ko_rec_cluster(struct ko_rec *r, const char *key)
{
    return ko_rec_find(&r->clusters, key);
}

static void on_timer(uv_timer_t *t);

static void schedule(struct ko_rec *r)
{
    int64_t next = ko_queue_next_ms(r->queue), now = kc_mono_ms();
    atomic_store(&r->m.queue_len, ko_queue_len(r->queue));
    if (r->started && next != INT64_MAX) {
        uv_update_time(&r->loop->uv);
        uv_timer_start(&r->timer, on_timer, (uint64_t)KC_MAX(next - now, (int64_t)0), 0);
    }
}

void ko_rec_queue(struct ko_rec *r, char type, const char *key, int64_t delay_ms)
{
    char full[KO_KEY_MAX + 2];
    snprintf(full, sizeof(full), "%c:%s", type, key);
    if (strlen(full) < KO_KEY_MAX) {
        ko_queue_add(r->queue, full, kc_mono_ms() + delay_ms);
        schedule(r);
    }
}

void ko_rec_finished(struct ko_rec *r, const char *queue_key, bool ok)
{
    if (!ok) {
        atomic_fetch_add(&r->m.failures, 1);
    }
    ko_queue_done(r->queue, queue_key, ok, kc_mono_ms());
    schedule(r);
}

static void on_timer(uv_timer_t *t)
{
    struct ko_rec *r = t->data;
    for (int i = 0; i < RUNS_A_TURN && atomic_load(&r->synced); i++) {
        const char *key = ko_queue_pop(r->queue, kc_mono_ms());
        if (!key) {
            break;
        }
        atomic_fetch_add(&r->m.reconciles, 1);
        switch (key[0]) {
        case 'c':
            ko_rec_cluster_run(r, key);
            break;
        case 't':
            ko_rec_topic_run(r, key);
            break;
        case 'n':
            ko_rec_name_run(r, key);
            break;
        default:
            ko_rec_slice_run(r, key);
            break;
        }
    }
    if (atomic_load(&r->synced)) {
        ko_rec_tell_synced(r);
        schedule(r);
    }
}

/* Runs soon after a change, and once a second for what depends on time alone. */
static void on_status_timer(uv_timer_t *t)
{
    struct ko_rec *r = t->data;
    uv_timer_start(t, on_status_timer, STATUS_RECHECK_MS, 0);
    ko_rec_status_run(r);
}

void ko_rec_status_in(struct ko_rec *r, int64_t ms)
{
    int64_t wait = KC_MAX(ms, (int64_t)0);
    if (r->started && (int64_t)uv_timer_get_due_in(&r->status_timer) > wait) {
        uv_timer_start(&r->status_timer, on_status_timer, (uint64_t)wait, 0);
    }
}

/* ---- watches ---- */

static void seen(struct ko_rec *r, enum ko_kind k, enum ko_event ev, json_t *doc)
{
    switch (k) {
    case KO_KAASCLUSTER:
        ko_rec_cluster_seen(r, ev, doc);
        break;
    case KO_KAASTOPIC:
        ko_rec_topic_seen(r, ev, doc);
        break;
    case KO_KAASBROKER:
        ko_rec_broker_seen(r, ev, doc);
        break;
    case KO_ENDPOINTSLICE:
        ko_rec_slice_seen(r, ev, doc);
        break;
    case KO_POD:
        ko_rec_pod_seen(r, ev, doc);
        break;
    default:
        if (k == KO_STATEFULSET) {
            ko_rec_sts_seen(r, ev, doc);
        }
        ko_rec_owned_seen(r, k, ev, doc);
        break;
    }
}

static void on_synced(struct ko_rec *r)
{
    if (--r->unsynced > 0) {
        return;
    }
    atomic_store(&r->synced, true);
    kc_log(KC_INFO, "reconcile", "event=synced clusters=%zu topics=%zu", r->clusters.len,
           r->topics.len);
    schedule(r);
}

static void on_event(void *ctx, enum ko_event ev, json_t *doc)
{
    struct ko_informer *i = ctx;
    if (ev == KO_SYNCED) {
        on_synced(i->rec);
    } else {
        seen(i->rec, i->kind, ev, doc);
    }
}

static const struct {
    enum ko_kind kind;
    const char *selector;
} watched[] = {
    {KO_KAASCLUSTER, NULL},
    {KO_KAASTOPIC, NULL},
    {KO_KAASBROKER, NULL},
    {KO_POD, "kaas.dev/cluster"},
    /* Slices carry the labels of their Service. */
    {KO_ENDPOINTSLICE, "kaas.dev/cluster"},
    {KO_STATEFULSET, OWNED_SELECTOR},
    {KO_SERVICE, OWNED_SELECTOR},
    {KO_SERVICEACCOUNT, OWNED_SELECTOR},
    {KO_ROLE, OWNED_SELECTOR},
    {KO_ROLEBINDING, OWNED_SELECTOR},
    {KO_PDB, OWNED_SELECTOR},
    {KO_PVC, OWNED_SELECTOR},
    /* Not the image, which is large, changes often and belongs to the control thread. */
    {KO_CONFIGMAP, "app.kubernetes.io/managed-by=kaas-operator,kaas.dev/part=config"},
};

/* ---- callbacks of the control thread ---- */

static void on_view(void *ctx, struct ko_view *v)
{
    struct ko_rec *r = ctx;
    struct ko_rc *c = ko_rec_cluster(r, v->cluster);
    if (!c) {
        ko_view_unref(v);
        return;
    }
    ko_view_unref(c->view);
    c->view = v;
    if (c->doc && r->leader) {
        ko_gauges_set(&r->m.gauges, v);
    }
    ko_rec_status_dirty(r, c);
}

static void on_topic_gone(void *ctx, const char *cluster, const struct kc_uuid *id)
{
    ko_rec_topic_gone(ctx, cluster, id);
}

static void on_topic_refused(void *ctx, const char *cluster, const struct kc_uuid *id,
                             const char *why)
{
    ko_rec_topic_refused(ctx, cluster, id, why);
}

static void on_adopt(void *ctx, const char *cluster, const struct ki_topic *topics, int32_t n)
{
    ko_rec_adopt(ctx, cluster, topics, n);
}

static void on_admin(void *ctx, const struct ko_admin *a)
{
    ko_rec_admin(ctx, a);
}

/* A new leader looks at everything once: what the old one left half done is finished. */
static void on_leader(void *ctx, bool active)
{
    struct ko_rec *r = ctx;
    struct kc_map_iter it = {0}, jt = {0}, kt = {0};
    bool became = active && !r->leader;
    r->leader = active;
    atomic_store(&r->m.leader, active);
    if (!active) {
        ko_gauges_clear(&r->m.gauges); /* the next leader knows better */
    }
    kc_log(KC_INFO, "reconcile", "event=leader active=%s", active ? "true" : "false");
    for (struct kc_map_entry *e; active && (e = kc_map_next(&r->clusters, &it));) {
        struct ko_rc *c = e->value;
        if (became && c->doc && !c->status_in_flight) {
            ko_rec_status_adopt(c);
        }
        ko_rec_queue(r, 'c', e->key, 0);
        ko_rec_status_dirty(r, c);
    }
    for (struct kc_map_entry *e; active && (e = kc_map_next(&r->topics, &jt));) {
        ko_rec_queue(r, 't', e->key, 0);
    }
    for (struct kc_map_entry *e; (e = kc_map_next(&r->names, &kt));) {
        struct ko_topic_name *n = e->value;
        if (!active) { /* from now on others may delete what seems lost here */
            json_decref(n->lost);
            n->lost = NULL;
        }
        ko_rec_queue(r, 'n', e->key, 0);
    }
}

struct ko_control_callbacks ko_rec_callbacks(struct ko_rec *r)
{
    return (struct ko_control_callbacks){.view = on_view,
                                         .event = ko_rec_control_event,
                                         .admin = on_admin,
                                         .adopt = on_adopt,
                                         .topic_gone = on_topic_gone,
                                         .topic_refused = on_topic_refused,
                                         .leader = on_leader,
                                         .ctx = r};
}

/* ---- life ---- */

struct ko_rec *ko_rec_new(const struct ko_rec_opts *o)
{
    struct ko_rec *r = kc_zalloc(sizeof(*r));
    r->o = *o;
    r->store = o->store;
    r->loop = o->store->loop;
    r->ns = o->ns ? kc_strdup(o->ns) : NULL;
    r->o.component = r->component = kc_strdup(o->component);
    r->o.build.image = r->image = kc_strdup(o->build.image ? o->build.image : "");
    r->o.build.heartbeat_host = r->heartbeat_host = kc_strdup(o->build.heartbeat_host);
    r->local_bootstrap = o->local_bootstrap ? kc_strdup(o->local_bootstrap) : NULL;
    r->queue = ko_queue_new();
    r->events = ko_events_new(r->store, r->component);
    kc_list_init(&r->ops);
    kc_map_init(&r->clusters);
    kc_map_init(&r->owned);
    kc_map_init(&r->pods);
    kc_map_init(&r->slices);
    kc_map_init(&r->topics);
    kc_map_init(&r->names);
    kc_map_init(&r->brokers);
    return r;
}

void ko_rec_start(struct ko_rec *r, struct ko_control *control)
{
    r->control = control;
    r->started = true;
    uv_timer_init(&r->loop->uv, &r->timer);
    uv_timer_init(&r->loop->uv, &r->status_timer);
    r->open_timers = 2;
    r->timer.data = r->status_timer.data = r;
    uv_timer_start(&r->status_timer, on_status_timer, STATUS_RECHECK_MS, 0);
    r->unsynced = KC_ARRAY_LEN(watched);
    for (size_t i = 0; i < KC_ARRAY_LEN(watched); i++) {
        struct ko_informer *in = &r->informers[i];
        *in = (struct ko_informer){r, watched[i].kind};
        r->watches[watched[i].kind] = r->store->ops->watch(r->store, watched[i].kind, r->ns,
                                                           watched[i].selector, on_event, in);
    }
}

bool ko_rec_synced(const struct ko_rec *r)
{
    return atomic_load(&r->synced);
}

bool ko_rec_idle(const struct ko_rec *r)
{
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&r->clusters, &it));) {
        const struct ko_rc *c = e->value;
        if (r->leader && c->doc && (c->status_dirty || c->status_in_flight)) {
            return false;
        }
    }
    return kc_list_empty(&r->ops) && ko_queue_next_ms(r->queue) > kc_mono_ms();
}

void ko_rec_metrics_read(const struct ko_rec *r, struct ko_rec_metrics *ret)
{
    ret->reconciles = atomic_load(&r->m.reconciles);
    ret->failures = atomic_load(&r->m.failures);
    ret->applies = atomic_load(&r->m.applies);
    ret->status_writes = atomic_load(&r->m.status_writes);
    ret->events = atomic_load(&r->m.events);
    ret->foreign_endpoints = atomic_load(&r->m.foreign);
    ret->queue_len = atomic_load(&r->m.queue_len);
    ret->clusters = atomic_load(&r->m.clusters);
    ret->topics = atomic_load(&r->m.topics);
    ret->leader = atomic_load(&r->m.leader);
}

const struct ko_gauges *ko_rec_gauges(const struct ko_rec *r)
{
    return &r->m.gauges;
}

static void on_closed(uv_handle_t *h)
{
    struct ko_rec *r = h->data;
    if (--r->open_timers == 0) {
        kc_free(r);
    }
}

void ko_rec_stop(struct ko_rec *r)
{
    for (int k = 0; k < KO_KIND_COUNT; k++) {
        if (r->watches[k]) {
            r->store->ops->unwatch(r->watches[k]);
        }
    }
    KC_LIST_EACH(it, nx, &r->ops)
    {
        ko_op_free(KC_LIST_ENTRY(it, struct ko_op, link));
    }
    ko_events_free(r->events);
    ko_queue_free(r->queue);
    kc_map_fini(&r->topics, ko_rec_topic_free);
    kc_map_fini(&r->names, ko_rec_name_free);
    kc_map_fini(&r->slices, ko_rec_slice_free);
    kc_map_fini(&r->pods, kc_free);
    kc_map_fini(&r->brokers, ko_rec_broker_free);
    kc_map_fini(&r->owned, kc_free);
    kc_map_fini(&r->clusters, ko_rec_cluster_free);
    kc_free(r->ns);
    kc_free(r->component);
    kc_free(r->image);
    kc_free(r->heartbeat_host);
    kc_free(r->local_bootstrap);
    if (!r->started) {
        kc_free(r);
        return;
    }
    uv_close((uv_handle_t *)&r->timer, on_closed);
    uv_close((uv_handle_t *)&r->status_timer, on_closed);
}
