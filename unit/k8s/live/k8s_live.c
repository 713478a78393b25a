/* The operator's store against a real API server (KUBECONFIG, or the pod's own): what a played server cannot prove,
 * i.e. that the server agrees. Runs in namespace "default" under names of its own; in a pod with
 * the pod's account. */
#include <stdio.h>
#include <stdlib.h>

#include "base/kc_json.h"
#include "build/ko_build.h"
#include "kt.h"
#include "store/ko_store_k8s.h"

enum { DEADLINE_MS = 20000, EVENTS_MAX = 8192 };

struct rig {
    struct rt_loop loop;
    uv_timer_t watchdog;
    struct ko_store *store;
    const struct ko_store_ops *ops;
    bool timed_out;
    int done, code;
    char reason[64], message[512], version[64], uid[64];
    json_t *doc;
    char events[EVENTS_MAX]; /* "+name " … of the watch */
    int synced, told;
};

static struct rig g;

static void on_done(void *ctx, const struct ko_result *r)
{
    (void)ctx;
    g.done++;
    g.code = r->code;
    snprintf(g.reason, sizeof(g.reason), "%s", r->reason);
    snprintf(g.message, sizeof(g.message), "%s", r->message);
    json_decref(g.doc);
    g.doc = json_incref(r->doc);
}

static void on_watchdog(uv_timer_t *h)
{
    (void)h;
    g.timed_out = true;
}

static bool until(const int *n, int want)
{
    g.timed_out = false;
    uv_timer_start(&g.watchdog, on_watchdog, DEADLINE_MS, 0);
    while (*n < want && !g.timed_out) {
        uv_run(&g.loop.uv, UV_RUN_ONCE);
    }
    uv_timer_stop(&g.watchdog);
    return *n >= want;
}

/* Waits for the call just made; its code. */
static int answer(void)
{
    KT_TRUE(until(&g.done, g.done + 1));
    if (g.code == 0 || g.code >= 400) {
        printf("  %d %s: %.160s\n", g.code, g.reason, g.message);
    }
    return g.code;
}

static json_t *config_map(const char *name, const char *value)
{
    return json_pack("{s:{s:s,s:s,s:{s:s}},s:{s:s}}", "metadata", "name", name, "namespace",
                     "default", "labels", "kaas-live", "yes", "data", "k", value);
}

static void remove_all(void)
{
    static const char *const names[] = {"kaas-live-a", "kaas-live-b", "kaas-live-c"};
    for (size_t i = 0; i < KC_ARRAY_LEN(names); i++) {
        g.ops->remove(g.store, KO_CONFIGMAP, "default", names[i], NULL, on_done, NULL);
        answer();
    }
}

static void create_get_update_is_a_compare_and_swap(void)
{
    remove_all();
    json_t *doc = config_map("kaas-live-a", "1");
    g.ops->create(g.store, KO_CONFIGMAP, doc, on_done, NULL);
    KT_EQ(answer(), 201);
    g.ops->create(g.store, KO_CONFIGMAP, doc, on_done, NULL);
    KT_EQ(answer(), 409);
    KT_STR(g.reason, "AlreadyExists");
    json_decref(doc);

    g.ops->get(g.store, KO_CONFIGMAP, "default", "kaas-live-a", on_done, NULL);
    KT_EQ(answer(), 200);
    json_t *first = json_deep_copy(g.doc);
    kc_json_set(first, "data.k", json_string("2"));
    g.ops->update(g.store, KO_CONFIGMAP, first, on_done, NULL);
    KT_EQ(answer(), 200);
    KT_STR(kc_json_str(g.doc, "data.k", ""), "2");
    kc_json_set(first, "data.k", json_string("3"));
    g.ops->update(g.store, KO_CONFIGMAP, first, on_done, NULL); /* an old resourceVersion */
    KT_EQ(answer(), 409);
    KT_STR(g.reason, "Conflict");
    json_decref(first);
    g.ops->get(g.store, KO_CONFIGMAP, "default", "kaas-live-none", on_done, NULL);
    KT_EQ(answer(), 404);
    KT_STR(g.reason, "NotFound");
}

static void apply_creates_changes_and_removes_fields(void)
{
    json_t *doc = config_map("kaas-live-b", "1");
    kc_json_set(doc, "data.extra", json_string("x"));
    g.ops->apply(g.store, KO_CONFIGMAP, doc, NULL, on_done, NULL);
    KT_EQ(answer(), 201);
    json_object_del(json_object_get(doc, "data"), "extra");
    g.ops->apply(g.store, KO_CONFIGMAP, doc, NULL, on_done, NULL);
    KT_EQ(answer(), 200);
    KT_TRUE(kc_json_at(g.doc, "data.extra") == NULL); /* what is not applied again goes */
    char *version = strdup(kc_json_str(g.doc, "metadata.resourceVersion", ""));
    g.ops->apply(g.store, KO_CONFIGMAP, doc, NULL, on_done, NULL);
    KT_EQ(answer(), 200);
    KT_STR(kc_json_str(g.doc, "metadata.resourceVersion", ""), version); /* no change, no write */
    free(version);
    json_t *patch = json_pack("{s:{s:{s:s}}}", "metadata", "annotations", "a", "b");
    g.ops->merge(g.store, KO_CONFIGMAP, "default", "kaas-live-b", patch, on_done, NULL);
    KT_EQ(answer(), 200);
    KT_STR(kc_json_str(g.doc, "metadata.annotations.a", ""), "b");
    json_decref(patch);
    json_decref(doc);
}

static void a_removal_with_a_wrong_uid_is_refused(void)
{
    g.ops->remove(g.store, KO_CONFIGMAP, "default", "kaas-live-b",
                  "00000000-0000-0000-0000-000000000000", on_done, NULL);
    KT_EQ(answer(), 409);
    g.ops->get(g.store, KO_CONFIGMAP, "default", "kaas-live-b", on_done, NULL);
    KT_EQ(answer(), 200);
    char *uid = strdup(kc_json_str(g.doc, "metadata.uid", ""));
    g.ops->remove(g.store, KO_CONFIGMAP, "default", "kaas-live-b", uid, on_done, NULL);
    KT_EQ(answer(), 200);
    free(uid);
}

static void on_event(void *ctx, enum ko_event ev, json_t *doc)
{
    (void)ctx;
    size_t len = strlen(g.events);
    snprintf(g.events + len, EVENTS_MAX - len, "%c%s ", "+~-="[ev], kc_json_str(doc, "data.k", ""));
    g.told++;
    g.synced += ev == KO_SYNCED;
}

static void put(const char *name, const char *value)
{
    json_t *doc = config_map(name, value);
    g.ops->apply(g.store, KO_CONFIGMAP, doc, NULL, on_done, NULL);
    KT_TRUE(answer() < 300);
    json_decref(doc);
}

static void a_watch_with_a_selector_follows(void)
{
    remove_all();
    put("kaas-live-a", "a1");
    struct ko_watch *w =
        g.ops->watch(g.store, KO_CONFIGMAP, "default", "kaas-live=yes", on_event, NULL);
    KT_TRUE(until(&g.synced, 1));
    put("kaas-live-a", "a2");
    put("kaas-live-c", "c1");
    g.ops->remove(g.store, KO_CONFIGMAP, "default", "kaas-live-a", NULL, on_done, NULL);
    KT_EQ(answer(), 200);
    KT_TRUE(until(&g.told, 5));
    KT_STR(g.events, "+a1 = ~a2 +c1 -a2 ");
    g.ops->unwatch(w);
    remove_all();
}

static void custom_resources_have_a_status_of_their_own(void)
{
    json_t *doc = json_pack("{s:{s:s,s:s},s:{s:{s:s}}}", "metadata", "name", "kaas-live",
                            "namespace", "default", "spec", "storage", "hostPath", "/srv/shared");
    g.ops->apply(g.store, KO_KAASCLUSTER, doc, NULL, on_done, NULL);
    KT_TRUE(answer() < 300);
    KT_EQ(kc_json_int(g.doc, "spec.replicas", 0), 3); /* defaulted by the schema */
    int64_t generation = kc_json_int(g.doc, "metadata.generation", 0);
    json_t *status =
        json_pack("{s:{s:s,s:s},s:{s:i,s:s}}", "metadata", "name", "kaas-live", "namespace",
                  "default", "status", "serving", 2, "fencedBrokers", "kaas-live-1");
    g.ops->apply_status(g.store, KO_KAASCLUSTER, status, on_done, NULL);
    KT_EQ(answer(), 200);
    KT_STR(kc_json_str(g.doc, "status.fencedBrokers", ""), "kaas-live-1");
    KT_EQ(kc_json_int(g.doc, "metadata.generation", 0), generation);
    kc_json_set(doc, "spec.replicas", json_integer(0));
    g.ops->apply(g.store, KO_KAASCLUSTER, doc, NULL, on_done, NULL);
    KT_EQ(answer(), 422);
    KT_TRUE(strstr(g.message, "spec.replicas must be 1 to 128") != NULL);
    g.ops->remove(g.store, KO_KAASCLUSTER, "default", "kaas-live", NULL, on_done, NULL);
    KT_EQ(answer(), 200);
    json_decref(status);
    json_decref(doc);
}

static void apply_steal(enum ko_kind kind, json_t *doc)
{
    g.ops->apply(g.store, kind, doc, NULL, on_done, NULL);
    KT_TRUE(answer() < 300);
    json_decref(doc);
}

/* What operator/build makes of a KaasCluster passes the server's checks, as owned objects. */
static void the_documents_of_a_cluster_are_accepted(void)
{
    static const struct ko_build_opts opts = {.image = "localhost/none:1",
                                              .heartbeat_host = "kaas-heartbeat.kaas-system.svc",
                                              .heartbeat_port = 7070};
    json_t *doc =
        json_pack("{s:{s:s,s:s},s:{s:i,s:{s:{s:{s:{s:s}}}},s:{s:s},s:{s:{s:s}}}}", "metadata",
                  "name", "kaas-live", "namespace", "default", "spec", "replicas", 1, "storage",
                  "claimTemplate", "resources", "requests", "storage", "1Gi", "rack", "topologyKey",
                  "topology.kubernetes.io/zone", "resources", "requests", "memory", "64Mi");
    g.ops->apply(g.store, KO_KAASCLUSTER, doc, NULL, on_done, NULL);
    KT_TRUE(answer() < 300);
    json_decref(doc);
    struct ko_cluster *c = NULL;
    struct ko_field_errors errs = {0};
    char text[512];
    int rc = ko_cluster_parse(g.doc, &c, &errs); /* with all that the server has added to it */
    printf("  %s", ko_field_errors_join(&errs, text, sizeof(text)));
    KT_REQUIRE(rc == 0);
    apply_steal(KO_SERVICEACCOUNT, ko_build_service_account(c));
    apply_steal(KO_ROLE, ko_build_role(c));
    apply_steal(KO_ROLEBINDING, ko_build_role_binding(c));
    apply_steal(KO_SERVICE, ko_build_headless_service(c));
    apply_steal(KO_SERVICE, ko_build_bootstrap_service(c));
    apply_steal(KO_CONFIGMAP, ko_build_config(c, &opts));
    apply_steal(KO_PVC, ko_build_claim(c));
    apply_steal(KO_PDB, ko_build_pdb(c));
    apply_steal(KO_STATEFULSET, ko_build_statefulset(c, &opts, 1));
    int64_t generation = kc_json_int(g.doc, "metadata.generation", 0);
    apply_steal(KO_STATEFULSET, ko_build_statefulset(c, &opts, 1));
    KT_EQ(kc_json_int(g.doc, "metadata.generation", 0),
          generation); /* the same again is no rollout */
    apply_steal(KO_KAASBROKER, ko_build_broker(c, 0));
    ko_cluster_free(c);
    g.ops->remove(g.store, KO_KAASCLUSTER, "default", "kaas-live", NULL, on_done, NULL);
    KT_EQ(answer(), 200);
    g.ops->remove(g.store, KO_PVC, "default", "kaas-live-data", NULL, on_done, NULL);
    KT_TRUE(answer() < 300);
}

/* 1 MiB, the largest a ConfigMap may be: so large is a shard of the image at most. */
static void a_large_object_goes_both_ways(void)
{
    size_t size = 1000 * 1000;
    char *text = malloc(size + 1);
    memset(text, 'x', size);
    text[size] = '\0';
    json_t *doc = config_map("kaas-live-a", text);
    g.ops->apply(g.store, KO_CONFIGMAP, doc, NULL, on_done, NULL);
    KT_TRUE(answer() < 300);
    g.ops->get(g.store, KO_CONFIGMAP, "default", "kaas-live-a", on_done, NULL);
    KT_EQ(answer(), 200);
    KT_EQ(strlen(kc_json_str(g.doc, "data.k", "")), size);
    json_decref(doc);
    free(text);
    remove_all();
}

static const struct kt_case cases[] = {KT(create_get_update_is_a_compare_and_swap),
                                       KT(apply_creates_changes_and_removes_fields),
                                       KT(a_removal_with_a_wrong_uid_is_refused),
                                       KT(a_watch_with_a_selector_follows),
                                       KT(custom_resources_have_a_status_of_their_own),
                                       KT(the_documents_of_a_cluster_are_accepted),
                                       KT(a_large_object_goes_both_ways)};

int main(int argc, char **argv)
{
    struct k8s_config cfg = {0};
    struct kc_err err = {0};
    if (!getenv("KUBECONFIG") && !getenv("KUBERNETES_SERVICE_HOST")) {
        puts("skipped: no KUBECONFIG, and not in a pod");
        return 77;
    }
    if (rt_loop_init(&g.loop, "live") || k8s_config_load(&cfg, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    uv_timer_init(&g.loop.uv, &g.watchdog);
    g.store = ko_store_k8s_new(&g.loop, &cfg, 0, &err);
    k8s_config_fini(&cfg);
    if (!g.store) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    g.ops = g.store->ops;
    int rc = kt_run("live", cases, KC_ARRAY_LEN(cases), argc, argv);
    g.ops->free(g.store);
    rt_loop_stop(&g.loop);
    rt_loop_run(&g.loop);
    json_decref(g.doc);
    return rc;
}
