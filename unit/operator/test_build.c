/* The documents a KaasCluster asks for, compared with files under golden/ (KAAS_UPDATE_GOLDEN=1
 * writes them anew; review the difference). */
#include <stdlib.h>

#include "base/kc_json.h"
#include "base/kc_mem.h"
#include "build/ko_build.h"
#include "image/ki_keys.h"
#include "op_sample.h"

static const struct ko_build_opts opts = {"kaas:test", "kaas-heartbeat.kaas-system.svc", 7070};

static void golden_path(const char *name, char *out, size_t cap)
{
    const char *slash = strrchr(__FILE__, '/');
    snprintf(out, cap, "%.*s/golden/%s.json", (int)(slash - __FILE__), __FILE__, name);
}

/* Takes doc. */
static void check_golden(const char *name, json_t *doc)
{
    char path[1024];
    golden_path(name, path, sizeof(path));
    KT_REQUIRE(doc != NULL);
    if (getenv("KAAS_UPDATE_GOLDEN")) {
        KT_EQ(json_dump_file(doc, path, JSON_INDENT(2)), 0);
    }
    json_t *want = json_load_file(path, 0, NULL);
    if (!want || !json_equal(want, doc)) {
        fprintf(stderr, "%s differs:\n", path);
        json_dumpf(doc, stderr, JSON_INDENT(2));
        fputc('\n', stderr);
    }
    KT_TRUE(want && json_equal(want, doc));
    json_decref(want);
    json_decref(doc);
}

static void documents_are_the_golden_ones(void)
{
    struct ko_cluster *c =
        op_cluster("  image: registry/kaas:1\n  rack: {topologyKey: topology.kubernetes.io/zone}\n"
                   "  resources: {limits: {memory: 512Mi}}\n  config: {num.partitions: 3, "
                   "group.max.size: 500}\n");
    check_golden("serviceaccount", ko_build_service_account(c));
    check_golden("role", ko_build_role(c));
    check_golden("rolebinding", ko_build_role_binding(c));
    check_golden("headless", ko_build_headless_service(c));
    check_golden("bootstrap", ko_build_bootstrap_service(c));
    check_golden("broker-service", ko_build_broker_service(c, 2));
    check_golden("config", ko_build_config(c, &opts));
    check_golden("pdb", ko_build_pdb(c));
    check_golden("statefulset", ko_build_statefulset(c, &opts, 0));
    check_golden("broker", ko_build_broker(c, 2));
    KT_TRUE(ko_build_claim(c) == NULL);
    ko_cluster_free(c);
}

/* Peers, the registry and heartbeats find whoever runs, ready or not; clients only who is ready. */
static void W3_brokers_and_operators_are_found_whatever_their_readiness(void)
{
    struct ko_cluster *c = op_cluster("");
    json_t *brokers = ko_build_headless_service(c), *clients = ko_build_bootstrap_service(c),
           *sts = ko_build_statefulset(c, &opts, 0);
    KT_TRUE(kc_json_bool(brokers, "spec.publishNotReadyAddresses", false));
    KT_STR(kc_json_str(brokers, "spec.clusterIP", ""), "None");
    KT_STR(kc_json_str(sts, "spec.serviceName", ""), kc_json_str(brokers, "metadata.name", "-"));
    KT_FALSE(kc_json_bool(clients, "spec.publishNotReadyAddresses", false));
    json_decref(brokers);
    json_decref(clients);
    json_decref(sts);
    ko_cluster_free(c);

    /* The operator's own Service, which brokers dial, is the chart's. */
    const char *text = op_source("helm/kaas/templates/service.yaml");
    KT_TRUE(strstr(text, "include \"kaas.heartbeat\"") != NULL);
    KT_TRUE(strstr(text, "\n  clusterIP: None\n") != NULL);
    KT_TRUE(strstr(text, "\n  publishNotReadyAddresses: true\n") != NULL);
}

/* What a broker advertises is a Service's name: its address stays when the pod gets another (ADR 18). */
static void the_advertised_address_outlives_the_pod(void)
{
    char host[200], name[128];
    struct ko_cluster *c = op_cluster("");
    json_t *d = ko_build_broker_service(c, 2), *config = ko_build_config(c, &opts);
    ko_build_broker_service_name(c, 2, name, sizeof(name));
    KT_STR(kc_json_str(d, "metadata.name", ""), name);
    KT_STR(name, "demo-broker-2");
    KT_STR(kc_json_str(d, "spec.type", ""), "ClusterIP");
    KT_TRUE(kc_json_at(d, "spec.clusterIP") == NULL); /* the server allots one, and keeps it */
    KT_TRUE(kc_json_bool(d, "spec.publishNotReadyAddresses", false));
    KT_STR(json_string_value(json_object_get(kc_json_at(d, "spec.selector"),
                                             "statefulset.kubernetes.io/pod-name")),
           "demo-2");
    snprintf(host, sizeof(host), "advertisedHost: \"demo-broker-{id}.%s.svc\"",
             kc_json_str(d, "metadata.namespace", ""));
    const char *yaml =
        json_string_value(json_object_get(json_object_get(config, "data"), "broker.yaml"));
    KT_TRUE(yaml && strstr(yaml, host) != NULL);
    json_decref(d);
    json_decref(config);
    ko_cluster_free(c);
}

static void equal_specs_give_equal_hashes(void)
{
    char a[17], b[17];
    struct ko_cluster *x = op_cluster("  config: {b: 1, a: 2}\n");
    struct ko_cluster *y = op_cluster("  config: {a: 2, b: 1}\n");
    json_t *dx = ko_build_statefulset(x, &opts, 0), *dy = ko_build_statefulset(y, &opts, 0);
    ko_doc_hash(dx, a);
    ko_doc_hash(dy, b);
    KT_STR(a, b);
    json_decref(dx);
    json_decref(dy);
    ko_cluster_free(x);
    ko_cluster_free(y);
}

static bool rolls(const char *from, const char *to)
{
    struct ko_cluster *x = op_cluster(from), *y = op_cluster(to);
    json_t *dx = ko_build_statefulset(x, &opts, 0), *dy = ko_build_statefulset(y, &opts, 0);
    bool differs = !json_equal(kc_json_at(dx, "spec.template"), kc_json_at(dy, "spec.template"));
    json_decref(dx);
    json_decref(dy);
    ko_cluster_free(x);
    ko_cluster_free(y);
    return differs;
}

/* What brokers read once takes a restart, and so does what may be a newer broker's. */
static void a_setting_that_is_read_at_start_rolls_the_pods(void)
{
    KT_TRUE(rolls("  config: {socket.request.max.bytes: 5000}\n",
                  "  config: {socket.request.max.bytes: 6000}\n"));
    KT_TRUE(rolls("", "  config: {group.max.size: 100}\n"));
    KT_TRUE(rolls("  config: {not.known.yet: 1}\n", "  config: {not.known.yet: 2}\n"));
}

/* Everything else is in force with the image: made, changed or taken away, it rolls nobody. */
static void a_setting_that_the_image_delivers_rolls_nothing(void)
{
    size_t n, live = 0;
    const struct ki_key *keys = ki_keys(&n);
    for (size_t i = 0; i < n; i++) {
        char one[200];
        if (keys[i].scope != KI_BROKER_KEY || ki_key_at_start(keys[i].name) || !keys[i].dflt) {
            continue;
        }
        live++;
        snprintf(one, sizeof(one), "  config: {%s: \"%s\"}\n", keys[i].name, keys[i].dflt);
        KT_FALSE(rolls("", one));
    }
    KT_TRUE(live > 30);
    KT_FALSE(rolls("  config: {log.retention.ms: 1000, group.max.size: 5}\n",
                   "  config: {log.retention.ms: 2000, max.connections: 9, group.max.size: 5}\n"));
}

static void claims_outlive_the_cluster_unless_told(void)
{
    struct ko_cluster *c = op_cluster("  storage: {claimTemplate: {resources: {}}}\n");
    json_t *d = ko_build_claim(c);
    KT_REQUIRE(d != NULL);
    KT_STR(kc_json_str(d, "metadata.name", ""), "demo-data");
    KT_STR(kc_json_str(d, "spec.accessModes.0", ""), "ReadWriteMany");
    KT_TRUE(kc_json_at(d, "metadata.ownerReferences") == NULL);
    json_decref(d);
    ko_cluster_free(c);
    c = op_cluster("  storage: {claimTemplate: {resources: {}}, deleteClaim: true}\n");
    d = ko_build_claim(c);
    KT_TRUE(kc_json_at(d, "metadata.ownerReferences") != NULL);
    json_decref(d);
    ko_cluster_free(c);
}

static void pod_template_overrides_win(void)
{
    struct ko_cluster *c = op_cluster("  podTemplate: {spec: {priorityClassName: high, "
                                      "securityContext: {runAsUser: 0}}}\n");
    json_t *d = ko_build_statefulset(c, &opts, 2);
    KT_STR(kc_json_str(d, "spec.template.spec.priorityClassName", ""), "high");
    KT_EQ(kc_json_int(d, "spec.template.spec.securityContext.runAsUser", -1), 0);
    KT_EQ(kc_json_int(d, "spec.template.spec.securityContext.fsGroup", -1), 65532);
    KT_EQ(kc_json_int(d, "spec.updateStrategy.rollingUpdate.partition", -1), 2);
    json_decref(d);
    ko_cluster_free(c);
}

static void broker_file_is_yaml(void)
{
    struct kc_err err;
    struct ko_cluster *c = op_cluster("  config: {a: 'say \"x\"'}\n");
    struct ko_broker_file f = {.data_dir = "/d",
                               .bind = "127.0.0.1",
                               .advertised_host = "{pod}",
                               .ports = {9093},
                               .health_port = 9193,
                               .operator_host = "127.0.0.1",
                               .operator_port = 9292,
                               .token_file = "/t",
                               .image_dir = "/o"};
    char *text = ko_build_broker_yaml(c, &f);
    json_t *d = kc_yaml_load(text, strlen(text), &err);
    KT_REQUIRE(d != NULL);
    KT_STR(kc_json_str(d, "cluster", ""), "ns/demo");
    KT_EQ(kc_json_int(d, "listeners.0.port", 0), 9093);
    KT_STR(kc_json_str(d, "image.source", ""), "directory");
    KT_STR(kc_json_str(d, "image.name", ""), "demo-image");
    KT_STR(json_string_value(json_object_get(json_object_get(d, "config"), "a")), "say \"x\"");
    json_decref(d);
    kc_free(text);
    ko_cluster_free(c);
}

KT_MAIN("operator/build", KT(documents_are_the_golden_ones),
        KT(W3_brokers_and_operators_are_found_whatever_their_readiness),
        KT(the_advertised_address_outlives_the_pod), KT(equal_specs_give_equal_hashes),
        KT(a_setting_that_is_read_at_start_rolls_the_pods),
        KT(a_setting_that_the_image_delivers_rolls_nothing),
        KT(claims_outlive_the_cluster_unless_told), KT(pod_template_overrides_win),
        KT(broker_file_is_yaml))
