/* The control plane's turn: image in, plan stepped, actions carried out, streams told.
 *
 * Everything that happens ends in kl_wake; the turn runs once for a burst, and every 100 ms for what
 * only time changes (retries, health, deadlines). Control loop. */
#include "cluster/kl_int.h"

#include <stdio.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"

/* ---- the image ---- */

static void learn_slot_topics(struct kl_cluster *k, const struct ki_image *im)
{
    for (int32_t kind = KP_GROUP_SLOTS; kind <= KP_TXN_SLOTS; kind++) {
        const struct ki_topic *t = ki_slot_topic(im, kind);
        if (t && !kc_uuid_eq(&t->id, &k->slot_topics[kind])) {
            k->slot_topics[kind] = t->id;
            kd_set_slot_topic(k->o.data, kind, &t->id);
        }
    }
}

void kl_apply_view(struct kl_cluster *k)
{
    struct ki_image *im = k->view.merged;
    if (!im) {
        return;
    }
    bool confirmed =
        kl_view_confirmed(&k->view) && (k->plan->boot_frozen || kl_view_caught_up(&k->view));
    struct ki_image *old = k->plan->image ? ki_image_ref(k->plan->image) : NULL;
    if (im != old) {
        learn_slot_topics(k, im);
        k->o.on_image(k->o.ctx, im);
        atomic_store(&k->a_term, im->order.term);
        atomic_store(&k->a_generation, im->order.generation);
    }
    if (confirmed) {
        kl_condemned_set(&k->condemned, im);
    }
    kl_plan_image(k->plan, im, confirmed, kc_mono_ms());
    if (im != old) {
        kl_exec_image(k, old, im);
        kl_topics_image(k->topics, old, im);
    }
    ki_image_unref(old);
    kl_wake(k);
}

static void on_source(void *ctx, struct ki_image *im, bool fresh)
{
    struct kl_cluster *k = ctx;
    if (fresh) {
        k->image_fresh_ms = kc_mono_ms();
        atomic_store(&k->a_fresh_ms, k->image_fresh_ms);
    }
    if (kl_view_document(&k->view, im, fresh)) {
        kl_apply_view(k);
        kl_hb_changed(k->hb); /* the operator waits to hear what has been applied */
    }
}

/* ---- the turn ---- */

static void publish_counts(struct kl_cluster *k, bool serving)
{
    const struct kl_plan *p = k->plan;
    atomic_store(&k->a_serving, serving);
    atomic_store(&k->a_streams, kl_hb_up(k->hb));
    atomic_store(&k->a_active, kl_hb_active(k->hb) ? 1 : 0);
    atomic_store(&k->a_led, kl_plan_led(p));
    atomic_store(&k->a_pending, kl_plan_pending(p));
    atomic_store(&k->a_blocked, p->n_blocked);
    atomic_store(&k->a_failed, p->n_permanent);
    atomic_store(&k->a_takeovers, k->takeovers);
    atomic_store(&k->a_seals, k->seals);
    atomic_store(&k->a_incarnations, k->incarnations);
    atomic_store(&k->a_sent, kl_hb_sent(k->hb));
}

/* News goes out at once, not with the next interval. */
static void tell(struct kl_cluster *k, int64_t now_ms)
{
    char why[96];
    bool serving = kl_plan_serving(k->plan, now_ms);
    bool healthy = kl_healthy(k, now_ms, why, sizeof(why));
    if (serving != k->said_serving) {
        kc_log(KC_INFO, "cluster", "event=%s led=%d", serving ? "serving" : "not_serving",
               kl_plan_led(k->plan));
    }
    if (healthy != k->said_healthy) {
        kc_log(healthy ? KC_INFO : KC_ERROR, "cluster", "event=%s reason=\"%s\"",
               healthy ? "healthy" : "unhealthy", why);
    }
    if (serving != k->said_serving || healthy != k->said_healthy || k->plan->seq != k->said_seq) {
        k->said_serving = serving;
        k->said_healthy = healthy;
        k->said_seq = k->plan->seq;
        kl_hb_changed(k->hb);
    }
    publish_counts(k, serving);
}

static void turn(struct kl_cluster *k)
{
    int64_t now = kc_mono_ms();
    if (k->closed) {
        return;
    }
    kl_reg_step(k, now);
    kl_plan_tick(k->plan, now);
    struct kl_action a;
    while (kl_plan_next(k->plan, now, &a)) {
        kl_exec(k, &a);
    }
    kl_reg_step(k, now); /* the last of an old incarnation may just have gone */
    kl_topics_step(k->topics, now);
    kl_admin_step(k->admin, now);
    tell(k, now);
    kl_drain_step(k, now);
}

static void on_timer(uv_timer_t *h)
{
    turn(h->data);
}

void kl_wake(struct kl_cluster *k)
{
    if (!k->closed && !uv_is_active((uv_handle_t *)&k->soon)) {
        uv_timer_start(&k->soon, on_timer, 0, 0);
    }
}

/* ---- start and stop ---- */

static const char *keep(struct kl_cluster *k, const char *z)
{
    char *copy = kc_arena_strndup(&k->strings, z ? z : "", z ? strlen(z) : 0);
    KC_ASSERT(copy); /* no cap: only out of memory */
    return copy;
}

static void copy_opts(struct kl_cluster *k, const struct kl_opts *o)
{
    k->o = *o;
    k->o.cluster = keep(k, o->cluster);
    k->o.pod_name = keep(k, o->pod_name);
    k->o.pod_uid = keep(k, o->pod_uid);
    k->o.rack = keep(k, o->rack);
    k->o.version = keep(k, o->version);
    k->o.volume_cluster_id = keep(k, o->volume_cluster_id);
    k->o.operator_host = keep(k, o->operator_host);
    k->o.token_file = o->token_file ? keep(k, o->token_file) : NULL;
    k->o.image_ns = keep(k, o->image_ns);
    k->o.image_name = keep(k, o->image_name);
    k->o.image_dir = keep(k, o->image_dir);
    k->o.image_mount = o->image_mount ? keep(k, o->image_mount) : NULL;
    struct kp_listener *l =
        kc_arena_zalloc(&k->strings, (size_t)o->n_listeners, sizeof(*k->o.listeners));
    KC_ASSERT(l);
    for (int32_t i = 0; i < o->n_listeners; i++) {
        l[i] = o->listeners[i];
    }
    k->o.listeners = l;
}

static void begin(struct rt_msg *msg)
{
    struct kl_cluster *k = KC_CONTAINER_OF(msg, struct kl_cluster, begin);
    k->started_ms = kc_mono_ms();
    uv_timer_init(&k->loop->uv, &k->tick);
    uv_timer_init(&k->loop->uv, &k->soon);
    k->tick.data = k->soon.data = k;
    struct kl_hb_opts ho = {.host = k->o.operator_host,
                            .port = k->o.operator_port,
                            .token_file = k->o.token_file,
                            .interval_ms = k->o.interval_ms,
                            .timeout_ms = k->o.timeout_ms,
                            .cb = kl_report_callbacks(k)};
    k->hb = kl_hb_new(k->loop, k->dns, k->io, &ho);
    struct kc_err err = {0};
    if (k->o.source == KL_SOURCE_DIRECTORY) {
        k->source =
            kl_source_directory(k->loop, k->io, k->o.image_dir, k->o.image_name, on_source, k);
    } else {
        k->source = kl_source_kubernetes(k->loop, k->io, k->o.image_ns, k->o.image_name,
                                         k->o.image_mount, on_source, k, &err);
    }
    if (!k->source) {
        struct kc_log_buf lb;
        kc_log(KC_ERROR, "image", "event=no_source error=%s", kc_log_str(kc_str_of(err.msg), &lb));
    }
    uv_timer_start(&k->tick, on_timer, 0, KL_TICK_MS);
}

int kl_start(const struct kl_opts *o, struct rt_loop *loop, struct kl_cluster **ret,
             struct kc_err *err)
{
    if (!o->cluster || !o->operator_host || !o->operator_host[0] || o->operator_port == 0) {
        return kc_fail(err, KC_E_CONFIG, "a broker of a cluster needs operator.host and .port");
    }
    if (o->n_listeners < 0 || o->n_listeners > KP_LISTENERS_MAX || o->interval_ms <= 0) {
        return kc_fail(err, KC_E_CONFIG, "listeners or heartbeat.intervalMs out of range");
    }
    struct kl_cluster *k = kc_zalloc(sizeof(*k));
    k->loop = loop;
    kc_arena_init(&k->strings, 4096, 0);
    copy_opts(k, o);
    kl_health_init(k);
    k->process_id = kc_uuid_random();
    k->said_healthy = true;
    atomic_init(&k->a_fresh_ms, -1);
    kl_condemned_init(&k->condemned);
    k->dns = rt_pool_new("kl-dns", 1);
    k->io = rt_pool_new("kl-io", 1);
    k->volume = rt_pool_new("kl-volume", 2);
    k->plan = kl_plan_new(o->broker_id);
    k->topics = kl_topics_new(k);
    k->admin = kl_admin_new(k);
    *ret = k; /* callbacks may come from here on */
    k->begin.fn = begin;
    if (rt_on_loop(loop)) {
        begin(&k->begin); /* a drain may follow at once */
    } else {
        rt_post(loop, &k->begin);
    }
    return 0;
}

void kl_stop(struct kl_cluster *k)
{
    if (k->closed) {
        return;
    }
    k->closed = true;
    struct kl_admin *admin = k->admin;
    k->admin = NULL;
    kl_admin_free(admin);
    uv_close((uv_handle_t *)&k->tick, NULL);
    uv_close((uv_handle_t *)&k->soon, NULL);
    if (k->source) {
        k->source->ops->free(k->source);
    }
    kl_hb_free(k->hb);
    rt_pool_free(k->dns);
    rt_pool_free(k->io);
    rt_pool_free(k->volume);
}

void kl_free(struct kl_cluster *k)
{
    if (k) {
        kl_topics_free(k->topics);
        kl_exec_forget(k);
        kl_plan_free(k->plan);
        kl_view_fini(&k->view);
        kc_arena_fini(&k->strings);
        kc_free(k);
    }
}

/* ---- what others may know ---- */

bool kl_serving(const struct kl_cluster *k)
{
    return atomic_load(&k->a_serving);
}

void kl_fenced(struct kl_cluster *k, const char *why)
{
    kl_reg_lost(k, why);
}

struct stopped {
    struct rt_msg msg;
    struct kl_cluster *k;
    struct kc_uuid topic_id;
    int32_t partition;
};

static void on_stopped(struct rt_msg *msg)
{
    struct stopped *s = KC_CONTAINER_OF(msg, struct stopped, msg);
    kl_plan_stopped(s->k->plan, &s->topic_id, s->partition);
    kl_wake(s->k);
    kc_free(s);
}

void kl_log_stopped(struct kl_cluster *k, const struct kc_uuid *topic_id, int32_t partition)
{
    struct stopped *s = kc_alloc(sizeof(*s));
    *s = (struct stopped){
        .msg.fn = on_stopped, .k = k, .topic_id = *topic_id, .partition = partition};
    rt_post(k->loop, &s->msg);
}

struct grown {
    struct rt_msg msg;
    struct kl_cluster *k;
    struct kc_uuid topic_id;
    int32_t partition, epoch;
};

static void on_grown(struct rt_msg *msg)
{
    struct grown *g = KC_CONTAINER_OF(msg, struct grown, msg);
    kl_plan_epoch(g->k->plan, &g->topic_id, g->partition, g->epoch);
    kl_wake(g->k);
    kc_free(g);
}

void kl_log_epoch(struct kl_cluster *k, const struct kc_uuid *topic_id, int32_t partition,
                  int32_t epoch)
{
    struct grown *g = kc_alloc(sizeof(*g));
    *g = (struct grown){
        .msg.fn = on_grown, .k = k, .topic_id = *topic_id, .partition = partition, .epoch = epoch};
    rt_post(k->loop, &g->msg);
}

void kl_metrics_read(const struct kl_cluster *k, struct kl_metrics *ret)
{
    int64_t fresh = atomic_load(&k->a_fresh_ms);
    *ret = (struct kl_metrics){.term = atomic_load(&k->a_term),
                               .generation = atomic_load(&k->a_generation),
                               .image_age_ms = fresh < 0 ? -1 : kc_mono_ms() - fresh,
                               .streams = atomic_load(&k->a_streams),
                               .active_streams = atomic_load(&k->a_active),
                               .led = atomic_load(&k->a_led),
                               .pending = atomic_load(&k->a_pending),
                               .blocked = atomic_load(&k->a_blocked),
                               .failed = atomic_load(&k->a_failed),
                               .takeovers = atomic_load(&k->a_takeovers),
                               .seals = atomic_load(&k->a_seals),
                               .incarnations = atomic_load(&k->a_incarnations),
                               .status_sent = atomic_load(&k->a_sent),
                               .admin_pending = atomic_load(&k->a_admin)};
}
