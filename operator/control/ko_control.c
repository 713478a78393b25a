/* ko_control.c - start, stop and the seam to the API loop: copies in, messages out. */
#include "control/ko_control.h"

#include <errno.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "control/ko_pub.h"

/* ---- references and messages ---- */

static void options_free(struct ko_control_opts *o)
{
    const void *strings[] = {o->bind, o->identity, o->lease_ns, o->lease_name, o->advertised};
    for (size_t i = 0; i < KC_ARRAY_LEN(strings); i++) {
        kc_free((void *)(uintptr_t)strings[i]);
    }
}

void ko_control_ref(struct ko_control *c)
{
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
}

void ko_control_unref(struct ko_control *c)
{
    if (atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    kc_map_fini(&c->clusters, ko_cc_free);
    kc_map_fini(&c->tickets, kc_free);
    kc_map_fini(&c->publishers, NULL);
    kc_arena_fini(&c->arena);
    options_free(&c->o);
    kc_free(c);
}

struct crossing {
    struct rt_msg msg;
    struct ko_control *c;
    void (*fn)(struct ko_control *, void *);
    void (*drop)(void *);
    void *arg;
    bool to_api;
};

static void cross(struct rt_msg *msg)
{
    struct crossing *x = KC_CONTAINER_OF(msg, struct crossing, msg);
    if (x->to_api && x->c->stopped) {
        (x->drop ? x->drop : kc_free)(x->arg);
    } else {
        x->fn(x->c, x->arg);
    }
    ko_control_unref(x->c);
    kc_free(x);
}

static void post(struct ko_control *c, bool to_api, void (*fn)(struct ko_control *, void *),
                 void *arg, void (*drop)(void *))
{
    struct crossing *x = kc_alloc(sizeof(*x));
    *x = (struct crossing){
        .msg.fn = cross, .c = c, .fn = fn, .drop = drop, .arg = arg, .to_api = to_api};
    ko_control_ref(c);
    rt_post(to_api ? c->api : &c->loop, &x->msg);
}

void ko_to_control(struct ko_control *c, void (*fn)(struct ko_control *, void *), void *arg)
{
    post(c, false, fn, arg, NULL);
}

void ko_to_api(struct ko_control *c, void (*fn)(struct ko_control *, void *), void *arg,
               void (*drop)(void *))
{
    post(c, true, fn, arg, drop);
}

/* ---- the control loop's time ---- */

int64_t ko_now(struct ko_control *c)
{
    int64_t now = kc_mono_ms();
    if (c->turned_ms && now - c->turned_ms > KO_PAUSE_MS + KO_TICK_MS) {
        kc_log(KC_WARN, "control", "event=paused ms=%lld", (long long)(now - c->turned_ms));
        struct kc_map_iter it = {0};
        for (struct kc_map_entry *e; (e = kc_map_next(&c->clusters, &it));) {
            struct ko_cc *cc = e->value;
            if (cc->ctl) {
                kp_ctl_paused(cc->ctl, now);
            }
        }
    }
    c->turned_ms = now;
    return now;
}

static void on_step(uv_timer_t *t)
{
    struct ko_control *c = t->data;
    int64_t now = ko_now(c), next = now + 1000;
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&c->clusters, &it));) {
        struct ko_cc *cc = e->value;
        if (ko_cc_decides(cc) && now >= cc->next_ms) {
            ko_cc_step(cc, now);
        }
        if (ko_cc_decides(cc)) {
            next = KC_MIN(next, cc->next_ms);
        }
    }
    c->step_ms = KC_MAX(next, now + 1);
    uv_timer_start(&c->step, on_step, (uint64_t)(c->step_ms - now), 0);
}

void ko_step_soon(struct ko_control *c)
{
    ko_step_by(c, 0);
}

void ko_step_by(struct ko_control *c, int64_t at_ms)
{
    bool armed = uv_is_active((uv_handle_t *)&c->step) != 0;
    if (c->closing || (armed && c->step_ms <= at_ms)) {
        return;
    }
    c->step_ms = at_ms;
    uv_timer_start(&c->step, on_step, (uint64_t)KC_MAX(at_ms - c->turned_ms, 0), 0);
}

static void on_tick(uv_timer_t *t)
{
    struct ko_control *c = t->data;
    int64_t now = ko_now(c);
    ko_keeper_tick(c, now);
    ko_streams_sweep(c, now);
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&c->clusters, &it));) {
        struct ko_cc *cc = e->value;
        if (ko_cc_held(cc)) {
            ko_publish_soon(cc, now);
            ko_seals_sweep(cc, now);
        }
        if (cc->view_due && now - cc->view_ms >= KO_VIEW_MS) {
            ko_view_send(cc, now);
        }
    }
}

/* ---- start and stop ---- */

static void on_started(struct ko_control *c, void *arg)
{
    (void)arg;
    ko_keeper_init(c);
    ko_now(c);
}

static void options_copy(struct ko_control_opts *to, const struct ko_control_opts *from)
{
    *to = *from;
    to->bind = kc_strdup(from->bind ? from->bind : "");
    to->identity = kc_strdup(from->identity);
    to->lease_ns = kc_strdup(from->lease_ns);
    to->lease_name = kc_strdup(from->lease_name);
    to->advertised = kc_strdup(from->advertised ? from->advertised : "");
}

int ko_control_start(const struct ko_control_opts *o, struct rt_loop *api_loop,
                     struct ko_control **ret, struct kc_err *err)
{
    struct ko_control *c = kc_zalloc(sizeof(*c));
    options_copy(&c->o, o);
    c->api = api_loop;
    atomic_init(&c->refs, 1);
    atomic_init(&c->may_publish, false);
    kc_list_init(&c->streams);
    kc_list_init(&c->keeper.calls);
    kc_map_init(&c->clusters);
    kc_map_init(&c->tickets);
    kc_map_init(&c->publishers);
    kc_arena_init(&c->arena, 64 * 1024, HB_ARENA_CAP);
    int rc = rt_loop_init(&c->loop, "control");
    if (rc) {
        ko_control_unref(c);
        return kc_fail(err, rc, "control loop: %s", kc_strerror(rc));
    }
    uv_timer_init(&c->loop.uv, &c->tick);
    uv_timer_init(&c->loop.uv, &c->step);
    c->tick.data = c->step.data = c;
    uv_timer_start(&c->tick, on_tick, KO_TICK_MS, KO_TICK_MS);
    rc = ko_streams_listen(c, err);
    if (rc == 0) {
        ko_to_control(c, on_started, NULL);
        rc = rt_loop_start(&c->loop);
    }
    if (rc) {
        rt_loop_stop(&c->loop);
        rt_loop_run(&c->loop); /* closes the handles made so far */
        ko_control_unref(c);
        return rc;
    }
    *ret = c;
    return 0;
}

uint16_t ko_control_port(const struct ko_control *c)
{
    return c->port;
}

int64_t ko_control_age_ms(struct ko_control *c, int64_t now_ms)
{
    return rt_loop_age_ms(&c->loop, now_ms);
}

int32_t ko_control_streams(const struct ko_control *c)
{
    return atomic_load(&c->n_streams);
}

static void on_close_handle(uv_handle_t *h)
{
    (void)h;
}

static void finish_stop(uv_timer_t *t)
{
    struct ko_control *c = t->data;
    if (!c->keeper.released && kc_mono_ms() - c->keeper.started_ms < KO_RELEASE_MS) {
        return;
    }
    ko_keeper_fini(c);
    uv_close((uv_handle_t *)&c->tick, on_close_handle);
    uv_close((uv_handle_t *)&c->step, on_close_handle);
    rt_loop_stop(&c->loop);
}

static void begin_stop(struct ko_control *c, void *arg)
{
    (void)arg;
    c->closing = true;
    atomic_store(&c->may_publish, false);
    KC_LIST_EACH(it, nx, &c->streams)
    {
        ko_stream_close(KC_LIST_ENTRY(it, struct ko_stream, link), "the operator stops");
    }
    uv_close((uv_handle_t *)&c->server, on_close_handle);
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&c->clusters, &it));) {
        ko_cc_unlead(e->value);
    }
    ko_keeper_release(c);
    uv_timer_stop(&c->step);
    uv_timer_start(&c->tick, finish_stop, 0, 10);
}

void ko_control_stop(struct ko_control *c)
{
    ko_to_control(c, begin_stop, NULL);
    rt_loop_join(&c->loop);
    c->stopped = true;
    kc_map_fini(&c->publishers, ko_pub_free);
    kc_map_init(&c->publishers);
    ko_control_unref(c);
}

/* ---- what the API loop says ---- */

/* A message about one cluster; owns what it points to through its arena. */
struct told {
    struct kc_arena arena;
    char key[KO_CLUSTER_KEY_MAX];
    const char *text;
    struct ko_cluster_spec spec;
    struct ki_topic topic;
    struct kc_uuid id;
    struct kp_endpoint *eps;
    uint64_t rollout;
    int32_t n;
};

static struct told *told_new(const char *cluster)
{
    size_t n = strlen(cluster);
    KC_ASSERT(n > 0 && n < KO_CLUSTER_KEY_MAX);
    struct told *t = kc_zalloc(sizeof(*t));
    kc_arena_init(&t->arena, 4096, 0);
    memcpy(t->key, cluster, n + 1);
    return t;
}

static void told_free(struct told *t)
{
    kc_arena_fini(&t->arena);
    kc_free(t);
}

static void copy_spec(struct kc_arena *a, const struct ko_cluster_spec *from,
                      struct ko_cluster_spec *to)
{
    *to = *from;
    to->cluster = kc_arena_strndup(a, from->cluster, strlen(from->cluster));
    to->uid = kc_arena_strndup(a, from->uid ? from->uid : "", strlen(from->uid ? from->uid : ""));
    KC_ASSERT(to->cluster && to->uid);
    KC_ASSERT(ki_configs_copy(a, from->configs, from->n_configs, &to->configs));
}

static void take_spec(struct ko_control *c, void *arg)
{
    struct told *t = arg;
    bool known = ko_cc_find(c, t->key) != NULL;
    struct ko_cc *cc = ko_cc_get(c, t->key);
    kc_arena_reset(&cc->spec_arena);
    copy_spec(&cc->spec_arena, &t->spec, &cc->spec);
    if (ko_cc_held(cc)) {
        ko_cc_tell_desired(cc);
        int32_t max_parts = KC_MAX(cc->spec.max_partitions, 1);
        if (kp_ctl_set_limits(cc->ctl, cc->spec.max_topics, max_parts)) {
            kc_log(KC_WARN, "control", "event=limits_not_applied cluster=%s", cc->key);
        }
        cc->dirty_root = true; /* configs may have changed */
        cc->room = true;
        cc->next_ms = 0;
        ko_step_soon(c);
    } else if (!known && c->keeper.leader) {
        ko_cc_lead(cc);
    }
    told_free(t);
}

void ko_control_cluster(struct ko_control *c, const struct ko_cluster_spec *spec)
{
    struct told *t = told_new(spec->cluster);
    copy_spec(&t->arena, spec, &t->spec);
    ko_to_control(c, take_spec, t);
}

static void take_removed(struct ko_control *c, void *arg)
{
    struct told *t = arg;
    struct ko_cc *cc = kc_map_del(&c->clusters, t->key, strlen(t->key));
    if (cc) {
        KC_LIST_EACH(it, nx, &c->streams)
        {
            struct ko_stream *s = KC_LIST_ENTRY(it, struct ko_stream, link);
            if (strcmp(s->cluster, cc->key) == 0) {
                ko_stream_close(s, "the KaasCluster is gone");
            }
        }
        ko_cc_unlead(cc);
        ko_cc_free(cc);
    }
    told_free(t);
}

void ko_control_cluster_removed(struct ko_control *c, const char *cluster)
{
    ko_pub_drop(c, kc_strdup(cluster));
    ko_to_control(c, take_removed, told_new(cluster));
}

static void take_slice(struct ko_control *c, void *arg)
{
    struct told *t = arg;
    struct ko_cc *cc = ko_cc_get(c, t->key);
    size_t len = strlen(t->text);
    if (t->n < 0) {
        kc_free(kc_map_del(&cc->slices, t->text, len));
        if (ko_cc_held(cc)) {
            kp_ctl_slice_deleted(cc->ctl, t->text, ko_now(c));
        }
    } else {
        struct ko_slice *s = kc_zalloc(sizeof(*s) + (size_t)t->n * sizeof(s->eps[0]));
        s->n = t->n;
        if (t->n > 0) { /* an empty slice has no list */
            memcpy(s->eps, t->eps, (size_t)t->n * sizeof(s->eps[0]));
        }
        kc_free(kc_map_put(&cc->slices, t->text, len, s));
        if (ko_cc_held(cc)) {
            kp_ctl_slice(cc->ctl, t->text, s->eps, s->n, ko_now(c));
        }
    }
    cc->next_ms = 0;
    ko_step_soon(c);
    told_free(t);
}

static void tell_slice(struct ko_control *c, const char *cluster, const char *key,
                       const struct kp_endpoint *eps, int32_t n)
{
    struct told *t = told_new(cluster);
    t->text = kc_arena_strndup(&t->arena, key, strlen(key));
    t->n = n;
    if (n > 0) {
        t->eps = kc_arena_zalloc(&t->arena, (size_t)n, sizeof(*eps));
        KC_ASSERT(t->eps);
        memcpy(t->eps, eps, (size_t)n * sizeof(*eps));
    }
    KC_ASSERT(t->text);
    ko_to_control(c, take_slice, t);
}

void ko_control_slice(struct ko_control *c, const char *cluster, const char *slice_key,
                      const struct kp_endpoint *eps, int32_t n)
{
    tell_slice(c, cluster, slice_key, eps, n);
}

void ko_control_slice_deleted(struct ko_control *c, const char *cluster, const char *slice_key)
{
    tell_slice(c, cluster, slice_key, NULL, -1);
}

static void take_synced(struct ko_control *c, void *arg)
{
    struct told *t = arg;
    struct ko_cc *cc = ko_cc_get(c, t->key);
    cc->synced = true;
    ko_cc_tell_desired(cc);
    ko_cc_try_activate(cc);
    told_free(t);
}

void ko_control_synced(struct ko_control *c, const char *cluster)
{
    ko_to_control(c, take_synced, told_new(cluster));
}

static void take_rollout(struct ko_control *c, void *arg)
{
    struct told *t = arg;
    struct ko_cc *cc = ko_cc_find(c, t->key);
    if (cc) {
        cc->rollout = t->rollout;
        ko_cc_measure(cc);
    }
    told_free(t);
}

void ko_control_rollout(struct ko_control *c, const char *cluster, uint64_t rollout)
{
    struct told *t = told_new(cluster);
    t->rollout = rollout;
    ko_to_control(c, take_rollout, t);
}

static void take_topic(struct ko_control *c, void *arg)
{
    struct told *t = arg;
    struct ko_cc *cc = ko_cc_get(c, t->key);
    struct ko_ct *w = ko_cts_id(&cc->wanted, &t->topic.id);
    if (!w) {
        struct ko_ct *other = ko_cts_name(&cc->wanted, t->topic.name);
        if (other) { /* told again with another id: the newer word stands */
            ko_cts_remove(&cc->wanted, &other->id);
        }
        w = ko_cts_add(&cc->wanted, &t->topic);
    } else {
        ko_ct_set_configs(w, t->topic.configs, t->topic.n_configs);
        w->n_parts = t->topic.n_parts;
    }
    kc_free(kc_map_del(&cc->unwanted, t->topic.id.b, sizeof(t->topic.id.b)));
    if (ko_cc_decides(cc)) {
        ko_merge_topic(cc, w);
    }
    told_free(t);
}

void ko_control_topic(struct ko_control *c, const char *cluster, const struct ki_topic *t)
{
    struct told *x = told_new(cluster);
    struct ki_topic bare = *t;
    bare.parts = NULL;
    KC_ASSERT(ki_topic_copy(&x->arena, &bare, &x->topic));
    ko_to_control(c, take_topic, x);
}

static void take_topic_delete(struct ko_control *c, void *arg)
{
    struct told *t = arg;
    struct ko_cc *cc = ko_cc_get(c, t->key);
    ko_cts_remove(&cc->wanted, &t->id);
    if (ko_cc_decides(cc)) {
        ko_merge_delete(cc, &t->id);
    } else {
        kc_free(kc_map_put(&cc->unwanted, t->id.b, sizeof(t->id.b), kc_zalloc(1)));
    }
    told_free(t);
}

void ko_control_topic_delete(struct ko_control *c, const char *cluster, const struct kc_uuid *id)
{
    struct told *t = told_new(cluster);
    t->id = *id;
    ko_to_control(c, take_topic_delete, t);
}

static void take_topic_forget(struct ko_control *c, void *arg)
{
    struct told *t = arg;
    ko_cts_remove(&ko_cc_get(c, t->key)->wanted, &t->id);
    told_free(t);
}

void ko_control_topic_forget(struct ko_control *c, const char *cluster, const struct kc_uuid *id)
{
    struct told *t = told_new(cluster);
    t->id = *id;
    ko_to_control(c, take_topic_forget, t);
}

struct outcome {
    uint64_t ticket;
    int32_t error;
    char message[512];
};

static void take_outcome(struct ko_control *c, void *arg)
{
    struct outcome *o = arg;
    ko_admin_outcome(c, o->ticket, o->error, o->message);
    kc_free(o);
}

void ko_control_admin_done(struct ko_control *c, uint64_t ticket, int32_t error,
                           const char *message)
{
    struct outcome *o = kc_zalloc(sizeof(*o));
    o->ticket = ticket;
    o->error = error;
    size_t n = message ? KC_MIN(strlen(message), sizeof(o->message) - 1) : 0;
    if (n) {
        memcpy(o->message, message, n);
    }
    ko_to_control(c, take_outcome, o);
}
