#include "rig.h"

#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_json.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "kt.h"
#include "store/ko_store_local.h"

enum { PATIENCE_MS = 10000 };

/* ---- things done on the API loop, waited for ---- */

struct errand {
    void (*fn)(void *);
    void *arg;
    _Atomic bool done;
};

static void run_errand(void *arg)
{
    struct errand *e = arg;
    e->fn(e->arg);
    atomic_store(&e->done, true);
}

static void nap(void)
{
    struct timespec t = {.tv_nsec = 1000000}; /* between looks at a condition */
    nanosleep(&t, NULL);
}

static void on_loop(struct rt_loop *loop, void (*fn)(void *), void *arg)
{
    struct errand e = {.fn = fn, .arg = arg};
    atomic_init(&e.done, false);
    rt_call(loop, run_errand, &e);
    while (!atomic_load(&e.done)) {
        nap();
    }
}

static void on_api(struct rig *r, void (*fn)(void *), void *arg)
{
    on_loop(r->api, fn, arg);
}

/* ---- callbacks ---- */

static void cb_view(void *ctx, struct ko_view *v)
{
    struct rig *r = ctx;
    pthread_mutex_lock(&r->lock);
    ko_view_unref(r->view);
    r->view = v;
    r->views++;
    pthread_mutex_unlock(&r->lock);
}

static void cb_event(void *ctx, const char *cluster, const struct kp_event *ev)
{
    struct rig *r = ctx;
    (void)cluster;
    pthread_mutex_lock(&r->lock);
    r->events[ev->kind]++;
    pthread_mutex_unlock(&r->lock);
}

static void cb_admin(void *ctx, const struct ko_admin *a)
{
    struct rig *r = ctx;
    pthread_mutex_lock(&r->lock);
    struct rig_admin *x = &r->admins[r->n_admins++ % 64];
    *x = (struct rig_admin){.ticket = a->ticket,
                            .kind = a->kind,
                            .topic_id = a->topic_id,
                            .partitions = a->partitions,
                            .n_configs = a->n_configs};
    snprintf(x->topic, sizeof(x->topic), "%s", a->topic);
    bool hold = r->hold_admin;
    int32_t error = r->admin_error;
    pthread_mutex_unlock(&r->lock);
    if (!hold) {
        ko_control_admin_done(r->c, a->ticket, error, error ? "said so" : NULL);
    }
}

static void cb_adopt(void *ctx, const char *cluster, const struct ki_topic *topics, int32_t n)
{
    struct rig *r = ctx;
    (void)cluster;
    pthread_mutex_lock(&r->lock);
    r->adopted += n;
    snprintf(r->adopted_name, sizeof(r->adopted_name), "%s", topics[0].name);
    r->adopted_id = topics[0].id;
    pthread_mutex_unlock(&r->lock);
}

static void cb_gone(void *ctx, const char *cluster, const struct kc_uuid *id)
{
    struct rig *r = ctx;
    (void)cluster;
    pthread_mutex_lock(&r->lock);
    r->gone++;
    r->gone_id = *id;
    pthread_mutex_unlock(&r->lock);
}

static void cb_refused(void *ctx, const char *cluster, const struct kc_uuid *id, const char *why)
{
    struct rig *r = ctx;
    (void)cluster;
    pthread_mutex_lock(&r->lock);
    r->refused_id = *id;
    snprintf(r->refused, sizeof(r->refused), "%s", why);
    r->refusals++;
    pthread_mutex_unlock(&r->lock);
}

static void cb_leader(void *ctx, bool active)
{
    struct rig *r = ctx;
    pthread_mutex_lock(&r->lock);
    r->leader = active;
    pthread_mutex_unlock(&r->lock);
}

static void auth(void *ctx, const char *cluster, const char *token, const char *pod_name,
                 const char *pod_uid, ko_auth_verdict verdict, void *vctx)
{
    struct rig *r = ctx;
    (void)cluster;
    (void)pod_name;
    (void)pod_uid;
    bool ok = strcmp(token, r->token) == 0;
    verdict(vctx, ok, ok ? "" : "wrong token");
}

static struct ko_store *lease_store(void *ctx, struct rt_loop *loop)
{
    struct rig *r = ctx;
    return proxy_new(loop, r->lease_loop, r->lease_store, &r->cut);
}

/* ---- life ---- */

static void open_all(void *arg)
{
    struct rig *r = arg;
    struct kc_err err;
    struct ko_control_opts o = {
        .bind = "127.0.0.1",
        .identity = r->identity,
        .lease_ns = "ns",
        .lease_name = "kaas-operator",
        .advertised = r->advertised,
        .lease_store = lease_store,
        .lease_store_ctx = r,
        .auth = auth,
        .auth_ctx = r,
        .lease_ms = 4000,
        .renew_deadline_ms = RIG_RENEW_DEADLINE_MS,
        .retry_ms = 500,
        .check_ms = r->check_ms,
        .cb = {cb_view, cb_event, cb_admin, cb_adopt, cb_gone, cb_refused, cb_leader, r},
    };
    if (!r->store) {
        KT_EQ(ko_store_local_open(r->api, NULL, &r->store, &err), 0);
    }
    flaky_init(&r->flaky, r->store);
    o.store = &r->flaky.port;
    KT_EQ(ko_control_start(&o, r->api, &r->c, &err), 0);
    r->port = ko_control_port(r->c);
}

static void open_lease(void *arg)
{
    struct rig *r = arg;
    KT_EQ(ko_store_local_open(r->lease_loop, NULL, &r->lease_store, NULL), 0);
}

static void close_lease(void *arg)
{
    struct rig *r = arg;
    r->lease_store->ops->free(r->lease_store);
}

static void init(struct rig *r, const char *identity, const char *advertised)
{
    memset(r, 0, sizeof(*r));
    snprintf(r->token, sizeof(r->token), "secret");
    pthread_mutex_init(&r->lock, NULL);
    atomic_init(&r->cut, false);
    r->identity = identity;
    r->advertised = advertised;
}

void rig_start(struct rig *r)
{
    init(r, "operator-a", "10.0.0.1:7070");
    r->api = &r->own_api;
    KT_EQ(rt_loop_init(r->api, "api"), 0);
    KT_EQ(rt_loop_start(r->api), 0);
    r->lease_loop = &r->own_lease_loop;
    KT_EQ(rt_loop_init(r->lease_loop, "lease"), 0);
    KT_EQ(rt_loop_start(r->lease_loop), 0);
    on_loop(r->lease_loop, open_lease, r);
    on_api(r, open_all, r);
}

void rig_start_second(struct rig *r, struct rig *first)
{
    init(r, "operator-b", "10.0.0.2:7070");
    r->api = first->api;
    r->store = first->store;
    r->lease_loop = first->lease_loop;
    r->lease_store = first->lease_store;
    on_api(r, open_all, r);
}

static void stop_control(void *arg)
{
    struct rig *r = arg;
    if (r->c) {
        ko_control_stop(r->c);
    }
    r->c = NULL;
}

static void close_store(void *arg)
{
    struct rig *r = arg;
    r->store->ops->free(r->store);
}

static void nothing(void *arg)
{
    (void)arg;
}

void rig_halt(struct rig *r)
{
    on_api(r, stop_control, r);
}

void rig_restart(struct rig *r)
{
    rig_halt(r);
    pthread_mutex_lock(&r->lock);
    ko_view_unref(r->view);
    r->view = NULL;
    pthread_mutex_unlock(&r->lock);
    on_api(r, open_all, r);
}

void rig_stop(struct rig *r)
{
    on_api(r, stop_control, r);
    for (int i = 0; i < 5; i++) {
        on_api(r, nothing, NULL); /* late messages and answers run out */
    }
    if (r->api == &r->own_api) {
        on_api(r, close_store, r);
        on_api(r, nothing, NULL);
        rt_loop_stop(r->api);
        rt_loop_join(r->api);
        on_loop(r->lease_loop, close_lease, r);
        on_loop(r->lease_loop, nothing, NULL);
        rt_loop_stop(r->lease_loop);
        rt_loop_join(r->lease_loop);
    }
    ko_view_unref(r->view);
    pthread_mutex_destroy(&r->lock);
}

struct slice {
    struct rig *r;
    int32_t n;
    bool ready;
};

static void tell_slice(void *arg)
{
    struct slice *s = arg;
    struct kp_endpoint eps[16];
    memset(eps, 0, sizeof(eps));
    for (int32_t i = 0; i < s->n; i++) {
        eps[i].ordinal = i;
        eps[i].ready = s->ready;
        eps[i].created_ms = 1;
        snprintf(eps[i].pod_uid, sizeof(eps[i].pod_uid), "pod-%d", (int)i);
        snprintf(eps[i].host, sizeof(eps[i].host), "demo-%d", (int)i);
    }
    ko_control_slice(s->r->c, RIG_CLUSTER, "ns/demo-1", eps, s->n);
}

void rig_slice(struct rig *r, int32_t n, bool ready)
{
    struct slice s = {r, n, ready};
    on_api(r, tell_slice, &s);
}

static void tell_spec(void *arg)
{
    struct slice *s = arg;
    struct ko_cluster_spec spec = {.cluster = RIG_CLUSTER,
                                   .uid = "",
                                   .desired = s->n,
                                   .interval_ms = 1000,
                                   .timeout_ms = 3000,
                                   .max_topics = 20,
                                   .max_partitions = 100};
    ko_control_cluster(s->r->c, &spec);
}

static void tell_synced(void *arg)
{
    struct rig *r = arg;
    ko_control_synced(r->c, RIG_CLUSTER);
}

void rig_spec(struct rig *r, int32_t desired)
{
    struct slice s = {r, desired, true};
    on_api(r, tell_spec, &s);
}

void rig_synced(struct rig *r)
{
    on_api(r, tell_synced, r);
}

void rig_cluster(struct rig *r, int32_t n)
{
    rig_spec(r, n);
    rig_slice(r, n, true);
    rig_synced(r);
}

bool rig_await(struct rig *r, bool (*cond)(struct rig *r, void *arg), void *arg)
{
    for (int64_t end = kc_mono_ms() + PATIENCE_MS; kc_mono_ms() < end; nap()) {
        pthread_mutex_lock(&r->lock);
        bool ok = cond(r, arg);
        pthread_mutex_unlock(&r->lock);
        if (ok) {
            return true;
        }
    }
    return false;
}

bool rig_is_leader(struct rig *r, void *arg)
{
    (void)arg;
    return r->leader;
}

bool rig_is_held(struct rig *r, void *arg)
{
    (void)arg;
    return r->view && r->view->order.uid[0];
}

void rig_begin(struct rig *r, int32_t n)
{
    rig_start(r);
    KT_REQUIRE(rig_await(r, rig_is_leader, NULL));
    rig_cluster(r, n);
    KT_REQUIRE(rig_await(r, rig_is_held, NULL));
}

/* ---- the image as stored ---- */

struct fetch {
    struct rig *r;
    const char *name;
    json_t *doc, *data;
    _Atomic bool done;
};

static void on_fetched(void *ctx, const struct ko_result *res)
{
    struct fetch *f = ctx;
    f->doc = res->code == 200 ? json_deep_copy(res->doc) : NULL;
    atomic_store(&f->done, true);
}

static void fetch(void *arg)
{
    struct fetch *f = arg;
    f->r->store->ops->get(f->r->store, KO_CONFIGMAP, "ns", f->name, on_fetched, f);
}

json_t *rig_configmap(struct rig *r, const char *name)
{
    struct fetch f = {.r = r, .name = name};
    atomic_init(&f.done, false);
    on_api(r, fetch, &f);
    while (!atomic_load(&f.done)) {
        nap();
    }
    return f.doc;
}

static void change(void *arg)
{
    struct fetch *f = arg;
    struct ko_store *s = f->r->store;
    if (f->data) {
        json_t *doc = json_deep_copy(f->doc);
        json_object_set(doc, "data", f->data);
        s->ops->update(s, KO_CONFIGMAP, doc, on_fetched, f);
        json_decref(doc);
    } else {
        s->ops->remove(s, KO_CONFIGMAP, "ns", f->name, NULL, on_fetched, f);
    }
}

void rig_set_configmap(struct rig *r, const char *name, json_t *data)
{
    json_t *old = rig_configmap(r, name);
    struct fetch f = {.r = r, .name = name, .doc = old, .data = data};
    atomic_init(&f.done, false);
    on_api(r, change, &f);
    while (!atomic_load(&f.done)) {
        nap();
    }
    json_decref(f.doc);
    json_decref(old);
}

void rig_remove_configmap(struct rig *r, const char *name)
{
    rig_set_configmap(r, name, NULL);
}

static struct ki_shard *read_shard(struct rig *r, int32_t s, const char *hash)
{
    char name[64];
    snprintf(name, sizeof(name), "demo-image-%d", (int)s);
    json_t *doc = rig_configmap(r, name), *payload = NULL;
    struct ki_shard *shard = NULL;
    if (doc && ki_configmap_parse(doc, &payload, NULL) == 0 &&
        ki_shard_decode(payload, hash, &shard, NULL)) {
        shard = NULL;
    }
    json_decref(payload);
    json_decref(doc);
    return shard;
}

struct ki_image *rig_image(struct rig *r)
{
    json_t *doc = rig_configmap(r, "demo-image"), *payload = NULL;
    struct ki_image *root = NULL, *whole = NULL;
    struct ki_shard *shards[KP_SHARDS] = {NULL};
    bool ok = doc && ki_configmap_parse(doc, &payload, NULL) == 0 &&
              ki_root_decode(payload, &root, NULL) == 0;
    for (int32_t s = 0; s < KP_SHARDS && ok; s++) {
        shards[s] = read_shard(r, s, root->hashes[s]);
        ok = shards[s] != NULL;
    }
    if (ok) {
        whole = ki_image_build(root, shards);
    } else {
        for (int32_t s = 0; s < KP_SHARDS; s++) {
            ki_shard_unref(shards[s]);
        }
    }
    ki_image_unref(root);
    json_decref(payload);
    json_decref(doc);
    return whole;
}

bool rig_await_image(struct rig *r, bool (*cond)(const struct ki_image *im, void *arg), void *arg)
{
    for (int64_t end = kc_mono_ms() + PATIENCE_MS; kc_mono_ms() < end; nap()) {
        struct ki_image *im = rig_image(r);
        bool ok = im && cond(im, arg);
        ki_image_unref(im);
        if (ok) {
            return true;
        }
    }
    return false;
}

bool rig_image_names(const struct ki_image *im, void *name)
{
    return ki_topic_by_name(im, kc_str_of(name)) != NULL;
}
