/* Resources are checked with errors that name the field and the fix. */
#include "base/kc_json.h"
#include "build/ko_build.h"
#include "op_sample.h"

static void defaults_are_those_of_the_design(void)
{
    struct ko_cluster *c = op_cluster("");
    KT_STR(c->key, "ns/demo");
    KT_EQ(c->replicas, 3);
    KT_EQ(c->min_ready_seconds, 60);
    KT_EQ(c->interval_ms, 1000);
    KT_EQ(c->timeout_ms, 3000);
    KT_EQ(c->max_topics, 2000);
    KT_EQ(c->max_partitions, 20000);
    KT_EQ(c->grace_seconds, 30);
    KT_EQ(c->n_listeners, 1);
    KT_STR(c->listeners[0].name, "internal");
    KT_EQ(c->listeners[0].port, 9092);
    KT_EQ(c->storage.type, KO_STORAGE_HOSTPATH);
    KT_FALSE(c->storage.delete_claim);
    ko_cluster_free(c);
}

/* minReadySeconds of the StatefulSet; -1: the field is not there. */
static int64_t min_ready_of(const char *extra)
{
    static const struct ko_build_opts opts = {"kaas:test", "kaas-heartbeat.svc", 7070};
    struct ko_cluster *c = op_cluster(extra);
    json_t *sts = ko_build_statefulset(c, &opts, 0);
    int64_t n = kc_json_int(sts, "spec.minReadySeconds", -1);
    json_decref(sts);
    ko_cluster_free(c);
    return n;
}

static void R59_min_ready_seconds_is_60_unless_told_and_null_removes_the_field(void)
{
    KT_EQ(min_ready_of(""), 60);
    KT_EQ(min_ready_of("  minReadySeconds: 5\n"), 5);
    KT_EQ(min_ready_of("  minReadySeconds: 0\n"), 0);
    KT_EQ(min_ready_of("  minReadySeconds: null\n"), -1);
}

/* What the API server fills in, from the schema that is installed. */
static void R59_the_schema_says_60_and_lets_null_be_said(void)
{
    json_t *crd = op_crd("kaasclusters.yaml");
    json_t *field = kc_json_at(crd, "spec.versions.0.schema.openAPIV3Schema.properties.spec."
                                    "properties.minReadySeconds");
    KT_EQ(kc_json_int(field, "default", -1), 60);
    KT_TRUE(kc_json_bool(field, "nullable", false));
    json_decref(crd);
}

static void settings_are_sorted_text(void)
{
    struct ko_cluster *c =
        op_cluster("  config: {num.partitions: 4, auto.create.topics.enable: false, a.b: x}\n");
    KT_EQ(c->n_settings, 3);
    KT_STR(c->settings[0].name, "a.b");
    KT_STR(c->settings[1].value, "false");
    KT_STR(c->settings[2].value, "4");
    ko_cluster_free(c);
}

/* The joined errors of a cluster with these extra lines. */
static const char *errors_of(const char *extra)
{
    static char text[2048];
    struct ko_field_errors errs;
    struct ko_cluster *c;
    json_t *doc = op_cluster_doc(extra);
    int rc = ko_cluster_parse(doc, &c, &errs);
    json_decref(doc);
    KT_EQ(rc, KC_E_CONFIG);
    KT_TRUE(c == NULL);
    ko_cluster_free(c);
    return ko_field_errors_join(&errs, text, sizeof(text));
}

static void bad_specs_name_the_field(void)
{
    static const struct {
        const char *extra, *want;
    } cases[] = {
        {"  replicas: 0\n", "spec.replicas: must be an integer from 1 to 128"},
        {"  replicas: three\n", "spec.replicas: must be an integer"},
        {"  heartbeat: {interval: 2s, timeout: 3s}\n", "at least twice spec.heartbeat.interval"},
        {"  heartbeat: {interval: soon}\n", "spec.heartbeat.interval: must be a duration"},
        {"  storage: {}\n", "spec.storage: set exactly one of"},
        {"  storage: {hostPath: /a/../b}\n", "spec.storage.hostPath: must be a path without"},
        {"  storage: {existingClaim: c, deleteClaim: true}\n",
         "an existing claim is never deleted"},
        {"  listeners: []\n", "spec.listeners: must list 1 to 8 listeners"},
        {"  listeners: [{name: A, port: 9092}]\n",
         "spec.listeners.0.name: must be at most 15 lower-case"},
        {"  listeners: [{name: a, port: 8080}]\n", "spec.listeners.0.port"},
        {"  listeners: [{name: a, port: 1}, {name: a, port: 2}]\n",
         "spec.listeners.1: name and port"},
        {"  listeners: [{name: a, port: 1, type: nodeport}]\n", "spec.listeners.0.type"},
        {"  listeners: [{name: health, port: 1}]\n", "spec.listeners.0.name: must not be health"},
        {"  storage: {existingClaim: a..b}\n", "spec.storage.existingClaim: must name"},
        {"  rack: {topologyKey: zone/}\n",
         "spec.rack.topologyKey: must be the key of a node label"},
        {"  podTemplate: {spec: {terminationGracePeriodSeconds: 60}}\n",
         "spec.podTemplate.spec.terminationGracePeriodSeconds: set spec.terminationGracePeriodS"},
        {"  replica: 3\n", "spec: has no field \"replica\""},
        {"  config: {log.dirs: /x}\n", "spec.config: \"log.dirs\" is decided by the operator"},
        {"  config: {log.retention.ms: soon}\n",
         "spec.config: \"log.retention.ms\" must be a number, valid: -1.., is \"soon\""},
        {"  config: {num.partitions: 0}\n",
         "spec.config: \"num.partitions\" must be a 32-bit number"},
        {"  config: {a: [1]}\n", "spec.config: \"a\" must be a lower-case key"},
    };
    for (size_t i = 0; i < KC_ARRAY_LEN(cases); i++) {
        const char *got = errors_of(cases[i].extra);
        if (!strstr(got, cases[i].want)) {
            fprintf(stderr, "%s -> %s\n", cases[i].extra, got);
        }
        KT_TRUE(strstr(got, cases[i].want) != NULL);
    }
}

static void all_errors_are_told_at_once(void)
{
    const char *got = errors_of("  replicas: 0\n  limits: {topics: 0}\n");
    KT_TRUE(strstr(got, "spec.replicas") && strstr(got, "spec.limits.topics"));
}

static struct ko_topic *topic(const char *name, const char *spec, char *text, size_t cap)
{
    struct ko_field_errors errs;
    struct ko_topic *t = NULL;
    char yaml[1024];
    snprintf(yaml, sizeof(yaml),
             "apiVersion: kaas.dev/v1alpha1\nkind: KaasTopic\n"
             "metadata: {name: %s, namespace: ns}\nspec: %s\n",
             name, spec);
    json_t *doc = op_yaml(yaml);
    ko_topic_parse(doc, &t, &errs);
    json_decref(doc);
    ko_field_errors_join(&errs, text, cap);
    return t;
}

static void topics_are_checked(void)
{
    char text[1024];
    struct ko_topic *t = topic(
        "orders", "{cluster: demo, partitions: 3, config: {retention.ms: 5}}", text, sizeof(text));
    KT_REQUIRE(t != NULL);
    KT_STR(t->topic, "orders");
    KT_EQ(t->partitions, 3);
    KT_STR(t->settings[0].value, "5");
    ko_topic_free(t);
    KT_TRUE(topic("a", "{partitions: 3}", text, sizeof(text)) == NULL);
    KT_TRUE(strstr(text, "spec.cluster") != NULL);
    KT_TRUE(topic("a", "{cluster: c, topicName: \"a b\"}", text, sizeof(text)) == NULL);
    KT_TRUE(strstr(text, "spec.topicName: must be 1 to 249") != NULL);
    KT_TRUE(topic("a", "{cluster: c, topicName: __consumer_offsets}", text, sizeof(text)) == NULL);
    KT_TRUE(strstr(text, "internal topic") != NULL);
    KT_TRUE(topic("a", "{cluster: c, partitions: 0}", text, sizeof(text)) == NULL);
}

static void object_names_of_topics(void)
{
    char a[254], b[254], longest[250];
    ko_topic_object_name("orders.v1", "", a);
    KT_STR(a, "orders.v1");
    ko_topic_object_name("My_Topic", "", a);
    KT_EQ(strncmp(a, "my-topic-", 9), 0);
    KT_EQ(strlen(a), 9 + 10);
    ko_topic_object_name("my-topic", "x", b);
    KT_TRUE(strcmp(a, b) != 0);
    ko_topic_object_name("...", "", a);
    KT_EQ(strlen(a), 10);
    memset(longest, 'A', 249);
    longest[249] = '\0';
    ko_topic_object_name(longest, "", a);
    KT_EQ(strlen(a), 211);
}

KT_MAIN("operator/crd", KT(defaults_are_those_of_the_design),
        KT(R59_min_ready_seconds_is_60_unless_told_and_null_removes_the_field),
        KT(R59_the_schema_says_60_and_lets_null_be_said), KT(settings_are_sorted_text),
        KT(bad_specs_name_the_field), KT(all_errors_are_told_at_once), KT(topics_are_checked),
        KT(object_names_of_topics))
