#include "ol_store.h"

#include <stdlib.h>

#include "base/kc_mem.h"

void ol_start(struct ol *t, const char *dir)
{
    struct kc_err err;
    memset(t, 0, sizeof(*t));
    KT_REQUIRE(rt_loop_init(&t->loop, "test") == 0);
    t->loop.thread = pthread_self();
    int rc = ko_store_local_open(&t->loop, dir, &t->store, &err);
    if (rc) {
        fprintf(stderr, "open: %s\n", err.msg);
    }
    KT_REQUIRE(rc == 0);
}

void ol_stop(struct ol *t)
{
    t->store->ops->free(t->store);
    json_decref(t->doc);
    rt_loop_stop(&t->loop);
    rt_loop_run(&t->loop);
}

static void on_done(void *ctx, const struct ko_result *r)
{
    struct ol *t = ctx;
    t->code = r->code;
    snprintf(t->reason, sizeof(t->reason), "%s", r->reason);
    json_decref(t->doc);
    t->doc = json_incref(r->doc);
}

static int wait_result(struct ol *t)
{
    OL_WAIT(t, t->code >= 0);
    return t->code;
}

json_t *ol_json(const char *text)
{
    char *s = kc_strdup(text);
    for (char *p = s; *p; p++) {
        *p = *p == '\'' ? '"' : *p;
    }
    json_error_t e;
    json_t *doc = json_loads(s, 0, &e);
    if (!doc) {
        fprintf(stderr, "%s: %s\n", e.text, s);
    }
    KT_REQUIRE(doc != NULL);
    kc_free(s);
    return doc;
}

int ol_get(struct ol *t, enum ko_kind k, const char *name)
{
    t->code = -1;
    t->store->ops->get(t->store, k, "ns", name, on_done, t);
    return wait_result(t);
}

int ol_list(struct ol *t, enum ko_kind k, const char *selector)
{
    t->code = -1;
    t->store->ops->list(t->store, k, "ns", selector, on_done, t);
    return wait_result(t);
}

typedef void (*doc_op)(struct ko_store *s, enum ko_kind k, json_t *doc, ko_done done, void *ctx);

static int call_with(struct ol *t, doc_op op, enum ko_kind k, const char *json)
{
    json_t *doc = ol_json(json);
    t->code = -1;
    op(t->store, k, doc, on_done, t);
    json_decref(doc);
    return wait_result(t);
}

int ol_create(struct ol *t, enum ko_kind k, const char *json)
{
    return call_with(t, t->store->ops->create, k, json);
}

int ol_update(struct ol *t, enum ko_kind k, const char *json)
{
    return call_with(t, t->store->ops->update, k, json);
}

int ol_apply_status(struct ol *t, enum ko_kind k, const char *json)
{
    return call_with(t, t->store->ops->apply_status, k, json);
}

int ol_apply(struct ol *t, enum ko_kind k, const char *manager, const char *json)
{
    json_t *doc = ol_json(json);
    t->code = -1;
    t->store->ops->apply(t->store, k, doc, manager, on_done, t);
    json_decref(doc);
    return wait_result(t);
}

int ol_merge(struct ol *t, enum ko_kind k, const char *name, const char *json)
{
    json_t *doc = ol_json(json);
    t->code = -1;
    t->store->ops->merge(t->store, k, "ns", name, doc, on_done, t);
    json_decref(doc);
    return wait_result(t);
}

int ol_remove(struct ol *t, enum ko_kind k, const char *name, const char *uid)
{
    t->code = -1;
    t->store->ops->remove(t->store, k, "ns", name, uid, on_done, t);
    return wait_result(t);
}
