/* The image from the API server: the root ConfigMap watched by name, changed shards fetched.
 *
 * While the API server has not answered yet, the projected mount of the same ConfigMaps is told
 * once, as a copy: it lets a broker serve reads of what it had, but confirms nothing. */
#include "cluster/kl_source.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/kc_json.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "k8s/k8s_client.h"
#include "k8s/k8s_watch.h"

enum { RETRY_MS = 200, FETCHES_MAX = 4 };

static const struct k8s_resource configmaps = {"v1", "configmaps"};

struct k8s_source;

struct fetch {
    struct k8s_source *source;
    struct k8s_call *call; /* NULL = idle */
    int32_t shard;
};

struct k8s_source {
    struct kl_source base;
    struct k8s_client *client;
    struct k8s_watch *watch;
    char ns[256], name[256];
    json_t *root; /* newest seen, waiting to be assembled */
    struct kl_assembly now; /* of an older or the same root */
    bool assembling;
    uint32_t asked; /* shards being fetched for now */
    struct fetch fetches[FETCHES_MAX];
    struct ki_image *last;
    uv_timer_t retry;
    bool closed, reading_mount, retry_open;
};

/* ---- the mounted copy ---- */

struct mount_read {
    struct rt_work work;
    struct rt_msg msg;
    struct k8s_source *source;
    struct rt_loop *loop;
    char dir[PATH_MAX], name[256];
    struct ki_image *found;
    struct kc_err err;
};

static void maybe_free(struct k8s_source *s)
{
    if (s->closed && !s->reading_mount && !s->retry_open) {
        kc_free(s);
    }
}

static void run_mount(struct rt_work *w)
{
    struct mount_read *m = KC_CONTAINER_OF(w, struct mount_read, work);
    if (kl_read_files(m->dir, m->name, true, NULL, &m->found, &m->err)) {
        m->found = NULL;
    }
    rt_post(m->loop, &m->msg);
}

static void on_mount(struct rt_msg *msg)
{
    struct mount_read *m = KC_CONTAINER_OF(msg, struct mount_read, msg);
    struct k8s_source *s = m->source;
    s->reading_mount = false;
    if (!m->found) {
        struct kc_log_buf lb;
        kc_log(KC_INFO, "image", "event=no_mounted_image reason=%s",
               kc_log_str(kc_str_of(m->err.msg), &lb));
    } else if (s->closed || s->last) {
        ki_image_unref(m->found); /* the API server was faster */
    } else {
        s->base.fn(s->base.ctx, m->found, false);
    }
    kc_free(m);
    maybe_free(s);
}

static void read_mount(struct k8s_source *s, struct rt_pool *io, const char *mount)
{
    struct mount_read *m = kc_zalloc(sizeof(*m));
    *m = (struct mount_read){
        .work.fn = run_mount, .msg.fn = on_mount, .source = s, .loop = s->base.loop};
    snprintf(m->dir, sizeof(m->dir), "%s", mount);
    snprintf(m->name, sizeof(m->name), "%s", s->name);
    s->reading_mount = true;
    rt_pool_post(io, &m->work);
}

/* ---- assembling ---- */

static void step(struct k8s_source *s);

static void fail(struct k8s_source *s, const char *what, const char *why)
{
    struct kc_log_buf lb;
    kc_log(KC_DEBUG, "image", "event=image_incomplete what=%s error=%s", what,
           kc_log_str(kc_str_of(why), &lb));
    if (!uv_is_active((uv_handle_t *)&s->retry)) {
        uv_timer_start(&s->retry, s->retry.timer_cb, RETRY_MS, 0);
    }
}

static void on_shard(void *ctx, const struct k8s_result *r)
{
    struct fetch *f = ctx;
    struct k8s_source *s = f->source;
    f->call = NULL;
    s->asked &= ~(1u << f->shard);
    struct kc_err err = {0};
    if (!k8s_ok(r)) {
        fail(s, "shard", r->message);
        return;
    }
    if (!s->assembling || !(s->now.missing & 1u << f->shard)) {
        step(s);
        return;
    }
    int rc = kl_assembly_shard(&s->now, f->shard, r->doc, &err);
    if (rc) { /* NOT_FOUND: a newer root is on its way; anything else may heal */
        fail(s, "shard", err.msg);
        return;
    }
    step(s);
}

static void fetch_missing(struct k8s_source *s)
{
    for (int i = 0; i < FETCHES_MAX; i++) {
        struct fetch *f = &s->fetches[i];
        uint32_t want = s->now.missing & ~s->asked;
        if (f->call || !want) {
            continue;
        }
        f->shard = __builtin_ctz(want);
        char name[300];
        snprintf(name, sizeof(name), "%s-%d", s->name, f->shard);
        s->asked |= 1u << f->shard;
        f->call = k8s_get(s->client, configmaps, s->ns, name, on_shard, f);
    }
}

/* The newest root wins: shards fetched for an older one are kept if the newer names them, too. */
static void begin(struct k8s_source *s)
{
    struct kl_assembly next;
    struct kc_err err;
    int rc = kl_assembly_begin(&next, s->root, s->last, &err);
    if (rc == 0 && s->assembling) {
        for (int32_t i = 0; i < KP_SHARDS; i++) {
            if (next.missing & 1u << i && s->now.shards[i] &&
                strcmp(s->now.shards[i]->hash, next.root->hashes[i]) == 0) {
                next.shards[i] = ki_shard_ref(s->now.shards[i]);
                next.missing &= ~(1u << i);
            }
        }
    }
    json_decref(s->root);
    s->root = NULL;
    if (rc) {
        struct kc_log_buf lb;
        kc_log(KC_WARN, "image", "event=image_unreadable error=%s",
               kc_log_str(kc_str_of(err.msg), &lb));
        return;
    }
    kl_assembly_fini(&s->now);
    s->now = next;
    s->assembling = true;
}

static void step(struct k8s_source *s)
{
    if (s->closed) {
        return;
    }
    if (s->root) {
        begin(s);
    }
    if (!s->assembling) {
        return;
    }
    if (s->now.missing) {
        fetch_missing(s);
        return;
    }
    s->assembling = false;
    struct ki_image *im = kl_assembly_finish(&s->now);
    if (im) {
        ki_image_unref(s->last);
        s->last = ki_image_ref(im);
        s->base.fn(s->base.ctx, im, true);
    }
}

static void on_retry(uv_timer_t *h)
{
    step(h->data);
}

static void on_root(void *ctx, enum k8s_event ev, json_t *doc)
{
    struct k8s_source *s = ctx;
    if (ev != K8S_ADDED && ev != K8S_MODIFIED) {
        return; /* a deleted root ends nothing: everything runs on with the last image */
    }
    json_decref(s->root);
    s->root = json_incref(doc);
    step(s);
}

/* ---- life ---- */

static void on_retry_closed(uv_handle_t *h)
{
    struct k8s_source *s = h->data;
    s->retry_open = false;
    maybe_free(s);
}

static void k8s_free(struct kl_source *base)
{
    struct k8s_source *s = KC_CONTAINER_OF(base, struct k8s_source, base);
    s->closed = true;
    k8s_watch_stop(s->watch);
    k8s_client_free(s->client); /* cancels fetches */
    json_decref(s->root);
    kl_assembly_fini(&s->now);
    ki_image_unref(s->last);
    s->last = NULL;
    uv_close((uv_handle_t *)&s->retry, on_retry_closed);
}

struct kl_source *kl_source_kubernetes(struct rt_loop *loop, struct rt_pool *io, const char *ns,
                                       const char *name, const char *mount, kl_source_fn fn,
                                       void *ctx, struct kc_err *err)
{
    static const struct kl_source_ops ops = {.free = k8s_free};
    struct k8s_config cfg;
    if (k8s_config_load(&cfg, err)) {
        return NULL;
    }
    struct k8s_source *s = kc_zalloc(sizeof(*s));
    s->base = (struct kl_source){.ops = &ops, .loop = loop, .fn = fn, .ctx = ctx};
    snprintf(s->ns, sizeof(s->ns), "%s", ns);
    snprintf(s->name, sizeof(s->name), "%s", name);
    for (int i = 0; i < FETCHES_MAX; i++) {
        s->fetches[i].source = s;
    }
    s->client = k8s_client_new(loop, &cfg, err);
    k8s_config_fini(&cfg);
    if (!s->client) {
        kc_free(s);
        return NULL;
    }
    uv_timer_init(&loop->uv, &s->retry);
    s->retry.data = s;
    s->retry.timer_cb = on_retry;
    s->retry_open = true;
    if (mount) {
        read_mount(s, io, mount);
    }
    struct k8s_watch_opts o = {.resource = configmaps, .ns = s->ns, .name = s->name};
    s->watch = k8s_watch_start(s->client, &o, on_root, s);
    return &s->base;
}
