/* ko_store_k8s.c - one API request an operation; watches are common/k8s's. Owner: the store's loop. */
#include "store/ko_store_k8s.h"

#include <stdio.h>
#include <string.h>

#include "base/kc_json.h"
#include "base/kc_list.h"
#include "base/kc_mem.h"
#include "k8s/k8s_watch.h"

struct kstore {
    struct ko_store base;
    struct k8s_client *client;
    int64_t timeout_ms;
    struct kc_list pending; /* struct pending.link: freed with the store */
};

static const struct {
    struct k8s_resource resource;
    const char *kind;
    bool namespaced;
} KINDS[KO_KIND_COUNT] = {
#define X(id, gv, plural, kind_, ns) [id] = {{gv, plural}, kind_, ns},
    KO_KINDS(X)
#undef X
};

static struct kstore *of(struct ko_store *s)
{
    return KC_CONTAINER_OF(s, struct kstore, base);
}

struct pending {
    struct kc_list link;
    ko_done done;
    void *ctx;
};

static void on_done(void *ctx, const struct k8s_result *r)
{
    struct pending *p = ctx, copy = *p;
    struct ko_result out = {
        .code = r->code, .reason = r->reason, .message = r->message, .doc = r->doc};
    kc_list_del(&p->link);
    kc_free(p); /* first: done may free the store */
    if (copy.done) {
        copy.done(copy.ctx, &out);
    }
}

/* Completes and sends a request; ns counts only for namespaced kinds. */
static void submit(struct ko_store *s, enum ko_kind k, struct k8s_request *req, ko_done done,
                   void *ctx)
{
    struct pending *p = kc_alloc(sizeof(*p));
    *p = (struct pending){.done = done, .ctx = ctx};
    kc_list_add_tail(&of(s)->pending, &p->link);
    req->resource = KINDS[k].resource;
    req->ns = KINDS[k].namespaced ? req->ns : NULL;
    req->timeout_ms = of(s)->timeout_ms;
    k8s_send(of(s)->client, req, on_done, p);
}

static const char *ns_of(const json_t *doc)
{
    return kc_json_str(doc, "metadata.namespace", NULL);
}

/* The name in the document; one without a name gives "", which the client refuses as a path. */
static const char *name_of(const json_t *doc)
{
    return kc_json_str(doc, "metadata.name", "");
}

static void op_get(struct ko_store *s, enum ko_kind k, const char *ns, const char *name,
                   ko_done done, void *ctx)
{
    struct k8s_request req = {.method = K8S_GET, .ns = ns, .name = name};
    submit(s, k, &req, done, ctx);
}

static void op_list(struct ko_store *s, enum ko_kind k, const char *ns, const char *selector,
                    ko_done done, void *ctx)
{
    char q[2048] = "";
    if (selector && k8s_query_add(q, sizeof(q), "labelSelector", selector)) {
        snprintf(q, sizeof(q), "labelSelector=,"); /* too long: let the server refuse it (400) */
    }
    struct k8s_request req = {
        .method = K8S_GET, .ns = ns, .query = q, .max_bytes = (size_t)64 << 20};
    submit(s, k, &req, done, ctx);
}

/* Documents may leave apiVersion and kind out: the table knows them. Returns a new reference. */
static json_t *complete(enum ko_kind k, json_t *doc)
{
    if (json_object_get(doc, "kind") && json_object_get(doc, "apiVersion")) {
        return json_incref(doc);
    }
    json_t *copy = json_copy(doc);
    json_object_set_new(copy, "kind", json_string(KINDS[k].kind));
    json_object_set_new(copy, "apiVersion", json_string(KINDS[k].resource.api));
    return copy;
}

static void send_doc(struct ko_store *s, enum ko_kind k, json_t *doc, struct k8s_request *req,
                     ko_done done, void *ctx)
{
    json_t *body = complete(k, doc);
    req->ns = ns_of(doc);
    req->body = body;
    submit(s, k, req, done, ctx);
    json_decref(body);
}

static void op_create(struct ko_store *s, enum ko_kind k, json_t *doc, ko_done done, void *ctx)
{
    struct k8s_request req = {.method = K8S_POST, .query = "fieldManager=" KO_FIELD_MANAGER};
    send_doc(s, k, doc, &req, done, ctx);
}

static void op_update(struct ko_store *s, enum ko_kind k, json_t *doc, ko_done done, void *ctx)
{
    struct k8s_request req = {
        .method = K8S_PUT, .name = name_of(doc), .query = "fieldManager=" KO_FIELD_MANAGER};
    send_doc(s, k, doc, &req, done, ctx);
}

/* An applied document must not carry managedFields; what was read from the server may be handed on. */
static json_t *without_managed_fields(json_t *doc)
{
    if (!kc_json_at(doc, "metadata.managedFields")) {
        return json_incref(doc);
    }
    json_t *copy = json_deep_copy(doc);
    json_object_del(json_object_get(copy, "metadata"), "managedFields");
    return copy;
}

static void apply(struct ko_store *s, enum ko_kind k, json_t *doc, const char *manager,
                  const char *subresource, ko_done done, void *ctx)
{
    char q[256] = "";
    json_t *clean = without_managed_fields(doc);
    if (k8s_query_add(q, sizeof(q), "fieldManager", manager ? manager : KO_FIELD_MANAGER) ||
        k8s_query_add(q, sizeof(q), "force", "true")) {
        q[0] = '\0'; /* the server demands a manager, so it says what is wrong (400) */
    }
    struct k8s_request req = {.method = K8S_PATCH,
                              .name = name_of(doc),
                              .subresource = subresource,
                              .query = q,
                              .content_type = K8S_APPLY_PATCH};
    send_doc(s, k, clean, &req, done, ctx);
    json_decref(clean);
}

static void op_apply(struct ko_store *s, enum ko_kind k, json_t *doc, const char *manager,
                     ko_done done, void *ctx)
{
    apply(s, k, doc, manager, NULL, done, ctx);
}

static void op_apply_status(struct ko_store *s, enum ko_kind k, json_t *doc, ko_done done,
                            void *ctx)
{
    apply(s, k, doc, NULL, "status", done, ctx);
}

static void op_merge(struct ko_store *s, enum ko_kind k, const char *ns, const char *name,
                     json_t *patch, ko_done done, void *ctx)
{
    struct k8s_request req = {.method = K8S_PATCH,
                              .ns = ns,
                              .name = name,
                              .query = "fieldManager=" KO_FIELD_MANAGER,
                              .content_type = K8S_MERGE_PATCH,
                              .body = patch};
    submit(s, k, &req, done, ctx);
}

static void op_remove(struct ko_store *s, enum ko_kind k, const char *ns, const char *name,
                      const char *uid, ko_done done, void *ctx)
{
    json_t *options = json_pack("{s:s,s:s,s:s}", "kind", "DeleteOptions", "apiVersion", "v1",
                                "propagationPolicy", "Background");
    if (uid) {
        kc_json_set(options, "preconditions.uid", json_string(uid));
    }
    struct k8s_request req = {.method = K8S_DELETE, .ns = ns, .name = name, .body = options};
    submit(s, k, &req, done, ctx);
    json_decref(options);
}

struct ko_watch {
    struct k8s_watch *watch;
    ko_watch_fn fn;
    void *ctx;
};

static void on_event(void *ctx, enum k8s_event ev, json_t *doc)
{
    static const enum ko_event map[] = {[K8S_ADDED] = KO_ADDED,
                                        [K8S_MODIFIED] = KO_MODIFIED,
                                        [K8S_DELETED] = KO_DELETED,
                                        [K8S_SYNCED] = KO_SYNCED};
    struct ko_watch *w = ctx;
    w->fn(w->ctx, map[ev], doc);
}

static struct ko_watch *op_watch(struct ko_store *s, enum ko_kind k, const char *ns,
                                 const char *selector, ko_watch_fn fn, void *ctx)
{
    struct ko_watch *w = kc_alloc(sizeof(*w));
    struct k8s_watch_opts o = {.resource = KINDS[k].resource,
                               .ns = KINDS[k].namespaced ? ns : NULL,
                               .label_selector = selector};
    *w = (struct ko_watch){.fn = fn, .ctx = ctx};
    w->watch = k8s_watch_start(of(s)->client, &o, on_event, w);
    return w;
}

static void op_unwatch(struct ko_watch *w)
{
    if (w) {
        k8s_watch_stop(w->watch); /* on_event is not called any more, so w may go at once */
        kc_free(w);
    }
}

static void op_free(struct ko_store *s);

static const struct ko_store_ops OPS = {.get = op_get,
                                        .list = op_list,
                                        .create = op_create,
                                        .update = op_update,
                                        .apply = op_apply,
                                        .apply_status = op_apply_status,
                                        .merge = op_merge,
                                        .remove = op_remove,
                                        .watch = op_watch,
                                        .unwatch = op_unwatch,
                                        .free = op_free};

struct ko_store *ko_store_k8s_new(struct rt_loop *loop, const struct k8s_config *cfg,
                                  int64_t timeout_ms, struct kc_err *err)
{
    struct k8s_client *client = k8s_client_new(loop, cfg, err);
    if (!client) {
        return NULL;
    }
    struct kstore *s = kc_zalloc(sizeof(*s));
    s->base = (struct ko_store){.ops = &OPS, .loop = loop};
    s->client = client;
    s->timeout_ms = timeout_ms;
    kc_list_init(&s->pending);
    return &s->base;
}

static void op_free(struct ko_store *base)
{
    struct kstore *s = of(base);
    k8s_client_free(s->client);
    KC_LIST_EACH(it, nx, &s->pending)
    {
        kc_free(KC_LIST_ENTRY(it, struct pending, link));
    }
    kc_free(s);
}
