#include "op_bed.h"

#include <stdlib.h>

#include "base/kc_clock.h"
#include "base/kc_json.h"
#include "reconcile/ko_cond.h"

static const struct ko_rec_opts opts = {
    .ns = "ns",
    .build = {.image = "kaas:test", .heartbeat_host = "op.svc", .heartbeat_port = 7070},
    .component = "kaas-operator",
};

void bed_start(struct bed *b)
{
    struct kc_err err;
    struct ko_rec_opts o = opts;
    memset(b, 0, sizeof(*b));
    op_played_reset();
    KT_REQUIRE(rt_loop_init(&b->loop, "test") == 0);
    b->loop.thread = pthread_self();
    KT_REQUIRE(ko_store_local_open(&b->loop, NULL, &b->store, &err) == 0);
    o.store = b->store;
    b->rec = ko_rec_new(&o);
    b->cb = ko_rec_callbacks(b->rec);
    ko_rec_start(b->rec, NULL);
    BED_WAIT(b, ko_rec_synced(b->rec));
    b->cb.leader(b->cb.ctx, true);
}

void bed_stop(struct bed *b)
{
    ko_rec_stop(b->rec);
    b->store->ops->free(b->store);
    json_decref(b->doc);
    rt_loop_stop(&b->loop);
    rt_loop_run(&b->loop);
}

void bed_settle(struct bed *b)
{
    struct ko_rec_metrics m;
    /* A status tick is 200 ms: what a settled reconciler still has to write, it writes by then. */
    int64_t until = kc_mono_ms() + 500;
    do {
        uv_run(&b->loop.uv, UV_RUN_ONCE);
        ko_rec_metrics_read(b->rec, &m);
    } while (kc_mono_ms() < until);
}

static void on_done(void *ctx, const struct ko_result *r)
{
    struct bed *b = ctx;
    b->code = r->code;
    json_decref(b->doc);
    b->doc = json_incref(r->doc);
}

static int result(struct bed *b)
{
    BED_WAIT(b, b->code >= 0);
    return b->code;
}

int bed_get(struct bed *b, enum ko_kind k, const char *name)
{
    b->code = -1;
    b->store->ops->get(b->store, k, "ns", name, on_done, b);
    return result(b);
}

int bed_create_doc(struct bed *b, enum ko_kind k, json_t *doc)
{
    b->code = -1;
    b->store->ops->create(b->store, k, doc, on_done, b);
    json_decref(doc);
    return result(b);
}

int bed_create(struct bed *b, enum ko_kind k, const char *yaml)
{
    return bed_create_doc(b, k, op_yaml(yaml));
}

int bed_merge(struct bed *b, enum ko_kind k, const char *name, const char *yaml)
{
    json_t *patch = op_yaml(yaml);
    b->code = -1;
    b->store->ops->merge(b->store, k, "ns", name, patch, on_done, b);
    json_decref(patch);
    return result(b);
}

int bed_remove(struct bed *b, enum ko_kind k, const char *name)
{
    b->code = -1;
    b->store->ops->remove(b->store, k, "ns", name, NULL, on_done, b);
    return result(b);
}

const char *bed_cond(struct bed *b, const char *type)
{
    return kc_json_str(ko_cond_find(kc_json_at(b->doc, "status.conditions"), type), "status", "");
}
