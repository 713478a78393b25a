#include "op_bed.h"

#include <stdlib.h>

#include "base/kc_json.h"
#include "reconcile/ko_cond.h"

enum { TURN_MS = 2 };

static const struct ko_rec_opts opts = {
    .ns = "ns",
    .build = {.image = "kaas:test", .heartbeat_host = "op.svc", .heartbeat_port = 7070},
    .component = "kaas-operator",
};

static void on_turn(uv_timer_t *t)
{
    (void)t;
}

void bed_start(struct bed *b)
{
    struct kc_err err;
    struct ko_rec_opts o = opts;
    memset(b, 0, sizeof(*b));
    op_played_reset();
    KT_REQUIRE(rt_loop_init(&b->loop, "test") == 0);
    b->loop.thread = pthread_self();
    uv_timer_init(&b->loop.uv, &b->turn);
    uv_timer_start(&b->turn, on_turn, TURN_MS, TURN_MS);
    KT_REQUIRE(ko_store_local_open(&b->loop, NULL, &b->store, &err) == 0);
    op_counting_init(&b->counting, b->store);
    o.store = &b->counting.port;
    b->rec = ko_rec_new(&o);
    b->cb = ko_rec_callbacks(b->rec);
    ko_rec_start(b->rec, NULL);
    BED_WAIT(b, ko_rec_synced(b->rec));
    b->cb.leader(b->cb.ctx, true);
}

void bed_start_cluster(struct bed *b, const char *extra)
{
    bed_start(b);
    bed_create_doc(b, KO_KAASCLUSTER, op_cluster_doc(extra));
    bed_settle(b);
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
    /* Each turn runs timers first and then waits for events; the bed's own timer bounds that wait.
     * Idle for several turns: the store delivers what was written, which may bring more to do. */
    for (int idle = 0; idle < 5; idle = ko_rec_idle(b->rec) ? idle + 1 : 0) {
        uv_run(&b->loop.uv, ko_rec_idle(b->rec) ? UV_RUN_NOWAIT : UV_RUN_ONCE);
    }
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

int bed_list(struct bed *b, enum ko_kind k)
{
    b->code = -1;
    b->store->ops->list(b->store, k, "ns", NULL, on_done, b);
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
    return ko_cond_status(b->doc, type);
}

/* ---- what other controllers make ---- */

void bed_create_pod(struct bed *b, const char *name, const char *owner)
{
    char yaml[400];
    snprintf(yaml, sizeof(yaml),
             "metadata: {name: \"%s\", namespace: ns, labels: {kaas.dev/cluster: demo}, "
             "ownerReferences: [{uid: \"%s\"}]}\n",
             name, owner);
    bed_create(b, KO_POD, yaml);
}

void bed_add_endpoint(struct bed *b, json_t *endpoints, const char *hostname, const char *pod,
                      bool serving)
{
    char uid[40] = "nobody";
    if (bed_get(b, KO_POD, pod) == 200) {
        snprintf(uid, sizeof(uid), "%s", ko_uid(b->doc));
    }
    json_array_append_new(endpoints,
                          json_pack("{s:s, s:{s:b, s:b}, s:{s:s, s:s, s:s}}", "hostname", hostname,
                                    "conditions", "ready", 1, "serving", (int)serving, "targetRef",
                                    "kind", "Pod", "name", pod, "uid", uid));
}

void bed_put_slice(struct bed *b, const char *name, const char *service, json_t *endpoints)
{
    json_t *doc = ko_doc_new(KO_ENDPOINTSLICE, "ns", name);
    kc_json_set(
        doc, "metadata.labels",
        json_pack("{s:s, s:s}", "kaas.dev/cluster", "demo", "kubernetes.io/service-name", service));
    json_object_set_new(doc, "endpoints", endpoints);
    b->store->ops->apply(b->store, KO_ENDPOINTSLICE, doc, "test", NULL, NULL);
    json_decref(doc);
    bed_settle(b);
}
