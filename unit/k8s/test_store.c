/* The operator's store on the API server: what each operation sends, and what comes back of it. */
#include <stdio.h>

#include "base/kc_json.h"
#include "fake_api.h"
#include "kt.h"
#include "store/ko_store_k8s.h"

struct rig {
    struct fake_api api;
    struct ko_store *store;
    int done, code;
    char reason[64], line[512], type[64];
    json_t *body;
    int answer_code;
    const char *answer_reason;
    char events[256];
    int told;
};

static void handle(void *ctx, const struct fake_request *r)
{
    struct rig *g = ctx;
    snprintf(g->line, sizeof(g->line), "%s %.500s", r->method, r->target);
    snprintf(g->type, sizeof(g->type), "%.63s", r->type);
    json_decref(g->body);
    g->body = json_incref(r->body);
    if (strstr(r->target, "watch=1")) {
        fake_stream(r->conn);
        fake_event(r->conn, "DELETED", fake_object("a", "ua", "2"));
    } else if (strstr(r->target, "limit=")) {
        json_t *list = fake_list("1");
        json_array_append_new(json_object_get(list, "items"), fake_object("a", "ua", "1"));
        fake_reply(r->conn, 200, NULL, list);
    } else if (g->answer_code) {
        fake_status(r->conn, g->answer_code, g->answer_reason, "because");
    } else {
        fake_reply(r->conn, 200, NULL, fake_object("demo", "u1", "7"));
    }
}

static void on_done(void *ctx, const struct ko_result *r)
{
    struct rig *g = ctx;
    g->done++;
    g->code = r->code;
    snprintf(g->reason, sizeof(g->reason), "%s", r->reason);
}

static void begin(struct rig *g)
{
    memset(g, 0, sizeof(*g));
    fake_api_init(&g->api, handle, g);
    g->store = ko_store_k8s_new(&g->api.loop, &g->api.config, 0, NULL);
    KT_REQUIRE(g->store != NULL);
}

static void end(struct rig *g)
{
    g->store->ops->free(g->store);
    fake_api_fini(&g->api);
    json_decref(g->body);
}

static void wait_done(struct rig *g, const char *line)
{
    KT_TRUE(fake_api_until(&g->api, &g->done, g->done + 1));
    KT_STR(g->line, line);
}

static json_t *cluster(void)
{
    return json_pack("{s:{s:s,s:s,s:s,s:[]},s:{s:i}}", "metadata", "namespace", "apps", "name",
                     "demo", "resourceVersion", "7", "managedFields", "spec", "replicas", 3);
}

static void reads_address_one_or_many(void)
{
    struct rig g;
    begin(&g);
    g.store->ops->get(g.store, KO_LEASE, "apps", "kaas-operator", on_done, &g);
    wait_done(&g, "GET /apis/coordination.k8s.io/v1/namespaces/apps/leases/kaas-operator");
    g.store->ops->list(g.store, KO_POD, "apps", "kaas.dev/cluster=demo", on_done, &g);
    wait_done(&g, "GET /api/v1/namespaces/apps/pods?labelSelector=kaas.dev%2Fcluster%3Ddemo");
    g.store->ops->list(g.store, KO_KAASTOPIC, NULL, NULL, on_done, &g);
    wait_done(&g, "GET /apis/kaas.dev/v1alpha1/kaastopics");
    KT_EQ(g.code, 200);
    end(&g);
}

static void writes_name_their_manager_and_kind(void)
{
    struct rig g;
    begin(&g);
    json_t *doc = cluster();
    g.store->ops->create(g.store, KO_KAASCLUSTER, doc, on_done, &g);
    wait_done(
        &g, "POST /apis/kaas.dev/v1alpha1/namespaces/apps/kaasclusters?fieldManager=kaas-operator");
    KT_STR(kc_json_str(g.body, "kind", ""), "KaasCluster");
    KT_STR(kc_json_str(g.body, "apiVersion", ""), "kaas.dev/v1alpha1");
    g.store->ops->update(g.store, KO_KAASCLUSTER, doc, on_done, &g);
    wait_done(
        &g,
        "PUT /apis/kaas.dev/v1alpha1/namespaces/apps/kaasclusters/demo?fieldManager=kaas-operator");
    KT_STR(kc_json_str(g.body, "metadata.resourceVersion", ""), "7");
    g.store->ops->apply(g.store, KO_KAASCLUSTER, doc, NULL, on_done, &g);
    wait_done(&g, "PATCH /apis/kaas.dev/v1alpha1/namespaces/apps/kaasclusters/demo?"
                  "fieldManager=kaas-operator&force=true");
    KT_STR(g.type, "application/apply-patch+yaml");
    KT_TRUE(kc_json_at(g.body, "metadata.managedFields") == NULL);
    KT_TRUE(kc_json_at(doc, "metadata.managedFields") != NULL); /* borrowed, not changed */
    g.store->ops->apply_status(g.store, KO_KAASCLUSTER, doc, on_done, &g);
    wait_done(&g, "PATCH /apis/kaas.dev/v1alpha1/namespaces/apps/kaasclusters/demo/status?"
                  "fieldManager=kaas-operator&force=true");
    json_decref(doc);
    end(&g);
}

static void a_merge_patch_keeps_its_nulls(void)
{
    struct rig g;
    begin(&g);
    json_t *patch = json_pack("{s:{s:n}}", "metadata", "finalizers");
    g.store->ops->merge(g.store, KO_KAASTOPIC, "apps", "orders", patch, on_done, &g);
    wait_done(
        &g, "PATCH "
            "/apis/kaas.dev/v1alpha1/namespaces/apps/kaastopics/orders?fieldManager=kaas-operator");
    KT_STR(g.type, "application/merge-patch+json");
    KT_TRUE(json_equal(g.body, patch));
    json_decref(patch);
    end(&g);
}

static void a_removal_may_insist_on_the_uid(void)
{
    struct rig g;
    begin(&g);
    g.store->ops->remove(g.store, KO_STATEFULSET, "apps", "demo", "u1", on_done, &g);
    wait_done(&g, "DELETE /apis/apps/v1/namespaces/apps/statefulsets/demo");
    KT_STR(kc_json_str(g.body, "preconditions.uid", ""), "u1");
    g.store->ops->remove(g.store, KO_STATEFULSET, "apps", "demo", NULL, on_done, &g);
    wait_done(&g, "DELETE /apis/apps/v1/namespaces/apps/statefulsets/demo");
    KT_TRUE(kc_json_at(g.body, "preconditions") == NULL);
    end(&g);
}

static void a_conflict_and_a_loss_are_told_apart(void)
{
    struct rig g;
    begin(&g);
    json_t *doc = cluster();
    g.answer_code = 409;
    g.answer_reason = "Conflict";
    g.store->ops->update(g.store, KO_KAASCLUSTER, doc, on_done, &g);
    KT_TRUE(fake_api_until(&g.api, &g.done, 1));
    KT_EQ(g.code, 409);
    KT_STR(g.reason, "Conflict");
    json_object_del(json_object_get(doc, "metadata"), "name");
    g.store->ops->update(g.store, KO_KAASCLUSTER, doc, on_done, &g); /* never reaches the server */
    KT_TRUE(fake_api_until(&g.api, &g.done, 2));
    KT_EQ(g.code, 0);
    KT_EQ(g.api.requests, 1);
    json_decref(doc);
    end(&g);
}

static void on_event(void *ctx, enum ko_event ev, json_t *doc)
{
    struct rig *g = ctx;
    size_t len = strlen(g->events);
    snprintf(g->events + len, sizeof(g->events) - len, "%c%s ", "+~-="[ev],
             kc_json_str(doc, "metadata.name", ""));
    g->told++;
}

static void a_watch_tells_all_then_changes(void)
{
    struct rig g;
    begin(&g);
    struct ko_watch *w = g.store->ops->watch(g.store, KO_CONFIGMAP, "ns", NULL, on_event, &g);
    KT_TRUE(fake_api_until(&g.api, &g.told, 3));
    KT_STR(g.events, "+a = -a ");
    g.store->ops->unwatch(w);
    end(&g);
}

static void calls_under_way_end_with_the_store(void)
{
    struct rig g;
    begin(&g);
    g.store->ops->get(g.store, KO_POD, "apps", "p", on_done, &g);
    end(&g);
    KT_EQ(g.done, 0);
}

KT_MAIN("store", KT(reads_address_one_or_many), KT(writes_name_their_manager_and_kind),
        KT(a_merge_patch_keeps_its_nulls), KT(a_removal_may_insist_on_the_uid),
        KT(a_conflict_and_a_loss_are_told_apart), KT(a_watch_tells_all_then_changes),
        KT(calls_under_way_end_with_the_store))
