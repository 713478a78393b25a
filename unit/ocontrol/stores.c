#include "stores.h"

#include <pthread.h>

#include "base/kc_mem.h"

/* ---- flaky ---- */

struct lost {
    ko_done done;
    void *ctx;
};

static void swallow(void *ctx, const struct ko_result *r)
{
    struct lost *l = ctx;
    struct ko_result none = {.code = 0, .reason = "", .message = "answer lost"};
    (void)r;
    l->done(l->ctx, &none);
    kc_free(l);
}

struct refusal {
    struct rt_msg msg;
    ko_done done;
    void *ctx;
};

static void refuse(struct rt_msg *msg)
{
    struct refusal *x = KC_CONTAINER_OF(msg, struct refusal, msg);
    struct ko_result r = {.code = 500, .reason = "InternalError", .message = "ordered"};
    x->done(x->ctx, &r);
    kc_free(x);
}

static bool take(_Atomic int *n)
{
    int now = atomic_load(n);
    return now > 0 && atomic_fetch_sub(n, 1) > 0;
}

/* True: the call has been answered already. May replace who hears of it. */
static bool meddle(struct flaky *f, ko_done *done, void **ctx)
{
    atomic_fetch_add(&f->writes, 1);
    if (take(&f->refuse)) {
        struct refusal *x = kc_alloc(sizeof(*x));
        *x = (struct refusal){{NULL, refuse}, *done, *ctx};
        rt_post(f->port.loop, &x->msg);
        return true;
    }
    if (take(&f->lose)) {
        struct lost *l = kc_alloc(sizeof(*l));
        *l = (struct lost){*done, *ctx};
        *done = swallow;
        *ctx = l;
    }
    return false;
}

static struct flaky *flaky_of(struct ko_store *s)
{
    return KC_CONTAINER_OF(s, struct flaky, port);
}

static void f_get(struct ko_store *s, enum ko_kind k, const char *ns, const char *name,
                  ko_done done, void *ctx)
{
    struct ko_store *u = flaky_of(s)->under;
    u->ops->get(u, k, ns, name, done, ctx);
}

static void f_create(struct ko_store *s, enum ko_kind k, json_t *doc, ko_done done, void *ctx)
{
    struct ko_store *u = flaky_of(s)->under;
    if (!meddle(flaky_of(s), &done, &ctx)) {
        u->ops->create(u, k, doc, done, ctx);
    }
}

static void f_update(struct ko_store *s, enum ko_kind k, json_t *doc, ko_done done, void *ctx)
{
    struct ko_store *u = flaky_of(s)->under;
    if (!meddle(flaky_of(s), &done, &ctx)) {
        u->ops->update(u, k, doc, done, ctx);
    }
}

static void f_remove(struct ko_store *s, enum ko_kind k, const char *ns, const char *name,
                     const char *uid, ko_done done, void *ctx)
{
    struct ko_store *u = flaky_of(s)->under;
    u->ops->remove(u, k, ns, name, uid, done, ctx);
}

void flaky_init(struct flaky *f, struct ko_store *under)
{
    static const struct ko_store_ops ops = {
        .get = f_get, .create = f_create, .update = f_update, .remove = f_remove};
    f->port = (struct ko_store){&ops, under->loop};
    f->under = under;
    atomic_init(&f->refuse, 0);
    atomic_init(&f->lose, 0);
    atomic_init(&f->writes, 0);
}

/* ---- proxy ---- */

struct proxy {
    struct ko_store port;
    struct rt_loop *api;
    struct ko_store *under;
    _Atomic bool *cut;
    _Atomic int refs;
    pthread_mutex_t lock; /* guards freed, and that nothing is posted after it is set */
    bool freed; /* the caller's loop is about to end */
};

struct errand {
    struct rt_msg msg;
    struct proxy *p;
    enum { GET, CREATE, UPDATE } what;
    enum ko_kind kind;
    char *ns, *name;
    json_t *doc;
    ko_done done;
    void *ctx;
    int code;
};

static void proxy_unref(struct proxy *p)
{
    if (atomic_fetch_sub(&p->refs, 1) == 1) {
        pthread_mutex_destroy(&p->lock);
        kc_free(p);
    }
}

static void errand_free(struct errand *e)
{
    json_decref(e->doc);
    kc_free(e->ns);
    kc_free(e->name);
    proxy_unref(e->p);
    kc_free(e);
}

static void errand_back(struct rt_msg *msg)
{
    struct errand *e = KC_CONTAINER_OF(msg, struct errand, msg);
    struct ko_result r = {.code = e->code, .reason = "", .message = "", .doc = e->doc};
    if (!e->p->freed) { /* set on this very loop */
        e->done(e->ctx, &r);
    }
    errand_free(e);
}

/* On the loop of the store. */
static void errand_done(void *ctx, const struct ko_result *r)
{
    struct errand *e = ctx;
    struct proxy *p = e->p;
    e->code = r->code;
    json_decref(e->doc);
    e->doc = r->doc ? json_deep_copy(r->doc) : NULL;
    e->msg.fn = errand_back;
    pthread_mutex_lock(&p->lock);
    bool late = p->freed;
    if (!late) {
        rt_post(p->port.loop, &e->msg);
    }
    pthread_mutex_unlock(&p->lock);
    if (late) {
        errand_free(e);
    }
}

static void errand_run(struct rt_msg *msg)
{
    struct errand *e = KC_CONTAINER_OF(msg, struct errand, msg);
    struct ko_store *u = e->p->under;
    if (atomic_load(e->p->cut)) {
        struct ko_result none = {.code = 0, .reason = "", .message = "cut"};
        errand_done(e, &none);
    } else if (e->what == GET) {
        u->ops->get(u, e->kind, e->ns, e->name, errand_done, e);
    } else if (e->what == CREATE) {
        u->ops->create(u, e->kind, e->doc, errand_done, e);
    } else {
        u->ops->update(u, e->kind, e->doc, errand_done, e);
    }
}

static void errand_send(struct ko_store *s, struct errand proto)
{
    struct errand *e = kc_alloc(sizeof(*e));
    *e = proto;
    e->p = KC_CONTAINER_OF(s, struct proxy, port);
    e->msg.fn = errand_run;
    atomic_fetch_add(&e->p->refs, 1);
    rt_post(e->p->api, &e->msg);
}

static void p_get(struct ko_store *s, enum ko_kind k, const char *ns, const char *name,
                  ko_done done, void *ctx)
{
    errand_send(s, (struct errand){.what = GET,
                                   .kind = k,
                                   .ns = kc_strdup(ns),
                                   .name = kc_strdup(name),
                                   .done = done,
                                   .ctx = ctx});
}

static void p_create(struct ko_store *s, enum ko_kind k, json_t *doc, ko_done done, void *ctx)
{
    errand_send(
        s, (struct errand){
               .what = CREATE, .kind = k, .doc = json_deep_copy(doc), .done = done, .ctx = ctx});
}

static void p_update(struct ko_store *s, enum ko_kind k, json_t *doc, ko_done done, void *ctx)
{
    errand_send(
        s, (struct errand){
               .what = UPDATE, .kind = k, .doc = json_deep_copy(doc), .done = done, .ctx = ctx});
}

static void p_free(struct ko_store *s)
{
    struct proxy *p = KC_CONTAINER_OF(s, struct proxy, port);
    pthread_mutex_lock(&p->lock);
    p->freed = true;
    pthread_mutex_unlock(&p->lock);
    proxy_unref(p);
}

struct ko_store *proxy_new(struct rt_loop *loop, struct rt_loop *api, struct ko_store *under,
                           _Atomic bool *cut)
{
    static const struct ko_store_ops ops = {
        .get = p_get, .create = p_create, .update = p_update, .free = p_free};
    struct proxy *p = kc_zalloc(sizeof(*p));
    p->port = (struct ko_store){&ops, loop};
    p->api = api;
    p->under = under;
    p->cut = cut;
    atomic_init(&p->refs, 1);
    pthread_mutex_init(&p->lock, NULL);
    return &p->port;
}
