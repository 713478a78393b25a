/* What the API server lets in by crds/ is what the operator takes, and nothing else: the schemas are read
 * here, and every bound, default and pattern of theirs is tried on the operator's own checks. */
#include <regex.h>

#include "base/kc_json.h"
#include "base/kc_str.h"
#include "op_sample.h"

/* The schema of a field, "spec.listeners[].name"; NULL if it has none. Borrowed. */
static const json_t *field(const json_t *crd, const char *path)
{
    const json_t *at = kc_json_at(crd, "spec.versions.0.schema.openAPIV3Schema");
    char name[64];
    while (*path && at) {
        size_t n = strcspn(path, ".[");
        snprintf(name, sizeof(name), "%.*s", (int)n, path);
        at = json_object_get(json_object_get(at, "properties"), name);
        path += n;
        if (strncmp(path, "[]", 2) == 0) {
            at = json_object_get(at, "items");
            path += 2;
        }
        path += *path == '.';
    }
    return at;
}

/* The rule of a field that begins so; "" if none does. */
static const char *rule(const json_t *schema, const char *begin)
{
    size_t i;
    json_t *r;
    json_array_foreach(json_object_get(schema, "x-kubernetes-validations"), i, r)
    {
        const char *text = kc_json_str(r, "rule", "");
        if (strncmp(text, begin, strlen(begin)) == 0) {
            return text;
        }
    }
    return "";
}

static json_t *topic_doc(void)
{
    return op_yaml("apiVersion: kaas.dev/v1alpha1\nkind: KaasTopic\n"
                   "metadata: {name: orders, namespace: ns}\nspec: {cluster: demo}\n");
}

/* Whether the operator takes the sample with this value (taken) at the path. Where not, it must be for
 * this very field. */
static bool takes(bool is_topic, const char *path, json_t *value)
{
    struct ko_field_errors errs;
    struct ko_cluster *c = NULL;
    struct ko_topic *t = NULL;
    char text[2048];
    json_t *doc = is_topic ? topic_doc() : op_cluster_doc("");
    if (strcmp(path, "spec.heartbeat.interval") == 0) { /* the other as wide as it may be */
        kc_json_set(doc, "spec.heartbeat.timeout", json_string("60s"));
    } else if (strcmp(path, "spec.heartbeat.timeout") == 0) {
        kc_json_set(doc, "spec.heartbeat.interval", json_string("200ms"));
    }
    if (strcmp(path, "spec.listeners.0.name") == 0) {
        ko_cluster_default(doc); /* with a list to change */
        json_object_set_new(kc_json_at(doc, "spec.listeners.0"), "name", value);
    } else {
        KT_EQ(kc_json_set(doc, path, value), 0);
    }
    int rc = is_topic ? ko_topic_parse(doc, &t, &errs) : ko_cluster_parse(doc, &c, &errs);
    if (rc) {
        KT_TRUE(strstr(ko_field_errors_join(&errs, text, sizeof(text)), path) != NULL);
    }
    ko_cluster_free(c);
    ko_topic_free(t);
    json_decref(doc);
    return rc == 0;
}

/* ---- bounds ---- */

static int integers, durations;

static void try_integer(bool is_topic, const char *path, const char *text)
{
    long long min, max;
    if (sscanf(text, "self >= %lld && self <= %lld", &min, &max) != 2) {
        return;
    }
    integers++;
    KT_TRUE(takes(is_topic, path, json_integer(min)));
    KT_TRUE(takes(is_topic, path, json_integer(max)));
    KT_FALSE(takes(is_topic, path, json_integer(min - 1)));
    KT_FALSE(takes(is_topic, path, json_integer(max + 1)));
    KT_FALSE(takes(is_topic, path, json_string("3")));
}

static void try_duration(const char *path, const char *text)
{
    char min[20], max[20], beyond[30];
    int64_t ms;
    if (sscanf(text,
               "duration(self) >= duration('%19[^']') && duration(self) <= duration('%19[^']')",
               min, max) != 2) {
        return;
    }
    durations++;
    KT_TRUE(takes(false, path, json_string(min)));
    KT_TRUE(takes(false, path, json_string(max)));
    KT_EQ(kc_parse_duration_ms(kc_str_of(min), &ms), 0);
    snprintf(beyond, sizeof(beyond), "%lldms", (long long)ms - 1);
    KT_FALSE(takes(false, path, json_string(beyond)));
    KT_EQ(kc_parse_duration_ms(kc_str_of(max), &ms), 0);
    snprintf(beyond, sizeof(beyond), "%lldms", (long long)ms + 1);
    KT_FALSE(takes(false, path, json_string(beyond)));
}

/* Fields of an object, and of the objects in it; lists have a test of their own. */
static void walk(const json_t *schema, const char *path,
                 void (*fn)(const json_t *schema, const char *path, void *ctx), void *ctx)
{
    const char *name;
    json_t *sub;
    json_object_foreach(json_object_get(schema, "properties"), name, sub)
    {
        char at[200];
        snprintf(at, sizeof(at), "%s.%s", path, name);
        fn(sub, at, ctx);
        if (strcmp(at, "spec.podTemplate") != 0 && strcmp(at, "spec.storage.claimTemplate") != 0) {
            walk(sub, at, fn, ctx);
        }
    }
}

static void try_bounds(const json_t *schema, const char *path, void *ctx)
{
    try_integer(ctx != NULL, path, rule(schema, "self >= "));
    try_duration(path, rule(schema, "duration(self)"));
}

static void every_bound_of_the_schemas_is_the_operators(void)
{
    static bool topics;
    json_t *c = op_crd("kaasclusters.yaml"), *t = op_crd("kaastopics.yaml");
    integers = durations = 0;
    walk(field(c, "spec"), "spec", try_bounds, NULL);
    KT_EQ(integers, 5); /* replicas, minReadySeconds, the grace period, two limits */
    KT_EQ(durations, 2);
    walk(field(t, "spec"), "spec", try_bounds, &topics);
    KT_EQ(integers, 5 + 2);
    json_decref(c);
    json_decref(t);
}

/* ---- fields and their defaults ---- */

static bool unknown_to_operator(bool is_topic, const char *path)
{
    struct ko_field_errors errs;
    struct ko_cluster *c = NULL;
    struct ko_topic *t = NULL;
    char text[2048], want[80];
    json_t *doc = is_topic ? topic_doc() : op_cluster_doc("");
    kc_json_set(doc, path, json_null());
    if (is_topic) {
        (void)ko_topic_parse(doc, &t, &errs);
    } else {
        (void)ko_cluster_parse(doc, &c, &errs);
    }
    snprintf(want, sizeof(want), "has no field \"%s\"", strrchr(path, '.') + 1);
    bool unknown = strstr(ko_field_errors_join(&errs, text, sizeof(text)), want) != NULL;
    ko_cluster_free(c);
    ko_topic_free(t);
    json_decref(doc);
    return unknown;
}

static void try_known(const json_t *schema, const char *path, void *ctx)
{
    (void)schema;
    if (strncmp(path, "spec.resources.", 15) != 0 &&
        strncmp(path, "spec.authorization.", 19) != 0) {
        KT_FALSE(unknown_to_operator(ctx != NULL, path));
    }
}

static void try_default(const json_t *schema, const char *path, void *ctx)
{
    const json_t *dflt = json_object_get(schema, "default"), *ours = kc_json_at(ctx, path);
    /* false is what an absent flag means; the default of an object is made of those of its fields */
    if (dflt && !json_is_object(dflt) && !(json_is_false(dflt) && !ours)) {
        KT_TRUE(ours && json_equal(ours, dflt));
    }
    if (ours && !json_is_object(ours) && strcmp(path, "spec.storage.hostPath") != 0) {
        KT_TRUE(dflt != NULL);
    }
}

static void fields_and_defaults_are_the_same_on_both_sides(void)
{
    static bool topics;
    json_t *c = op_crd("kaasclusters.yaml"), *t = op_crd("kaastopics.yaml");
    walk(field(c, "spec"), "spec", try_known, NULL);
    walk(field(t, "spec"), "spec", try_known, &topics);
    KT_TRUE(unknown_to_operator(false, "spec.replica") &&
            unknown_to_operator(true, "spec.replica"));
    json_t *doc = op_cluster_doc("");
    ko_cluster_default(doc);
    walk(field(c, "spec"), "spec", try_default, doc);
    json_decref(doc);
    json_decref(c);
    json_decref(t);
}

/* ---- patterns ---- */

static bool matches(const char *pattern, const char *s)
{
    regex_t re;
    KT_REQUIRE(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB) == 0);
    bool yes = regexec(&re, s, 0, NULL, 0) == 0;
    regfree(&re);
    return yes;
}

/* Whether the schema's rules let a text in: its length, and self.matches('...') of a rule. */
static bool schema_takes(const json_t *schema, const char *s)
{
    char pattern[400];
    const char *text = rule(schema, "self.matches('");
    KT_REQUIRE(sscanf(text, "self.matches('%399[^']')", pattern) == 1);
    int64_t len = (int64_t)strlen(s);
    return matches(pattern, s) && len >= kc_json_int(schema, "minLength", 0) &&
           len <= kc_json_int(schema, "maxLength", INT64_MAX);
}

static void names_that_the_schemas_refuse_are_refused_by_the_operator(void)
{
    static const struct {
        bool topic;
        const char *path, *schema;
    } fields[] = {{false, "spec.listeners.0.name", "spec.listeners[].name"},
                  {false, "spec.rack.topologyKey", "spec.rack.topologyKey"},
                  {true, "spec.topicName", "spec.topicName"}};
    static const char *const samples[] = {
        "a",
        "a-b",
        "a--b",
        "-a",
        "a-",
        "9",
        "9a",
        "A",
        "a_b",
        "a.b",
        "a..b",
        ".a",
        "a.-b",
        "a b",
        "abcdefghijklmno",
        "abcdefghijklmnop",
        "b\xc3\xa9",
        "kubernetes.io/hostname",
        "Kubernetes.io/a",
        "a/b/c",
        "/a",
        "a/",
        "x/-y",
        "topology.kubernetes.io/zone",
        "abcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghij123",
        "abcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghij1234"};
    json_t *c = op_crd("kaasclusters.yaml"), *t = op_crd("kaastopics.yaml");
    for (size_t i = 0; i < KC_ARRAY_LEN(fields); i++) {
        int yes = 0;
        for (size_t k = 0; k < KC_ARRAY_LEN(samples); k++) {
            const json_t *schema = field(fields[i].topic ? t : c, fields[i].schema);
            bool theirs = schema_takes(schema, samples[k]);
            bool ours = takes(fields[i].topic, fields[i].path, json_string(samples[k]));
            if (ours != theirs) {
                fprintf(stderr, "%s: %s\n", fields[i].path, samples[k]);
            }
            KT_EQ(ours, theirs);
            yes += ours;
        }
        KT_TRUE(yes >= 3 && yes <= (int)KC_ARRAY_LEN(samples) - 3);
    }
    json_decref(c);
    json_decref(t);
}

static void quantities_are_numbers_with_a_unit(void)
{
    static const char *const good[] = {"1",   "0.5",   ".5",  "1.", "500m",
                                       "1Gi", "100Gi", "2e3", "1E", "+1k"};
    static const char *const bad[] = {"",   "lots", "-1",   "1 Gi", "1gi",
                                      "Gi", "1GiB", "0x10", "1,5",  "1e"};
    static const char *const paths[] = {"spec.storage.claimTemplate.resources.requests",
                                        "spec.resources.requests", "spec.resources.limits"};
    json_t *c = op_crd("kaasclusters.yaml");
    for (size_t p = 0; p < KC_ARRAY_LEN(paths); p++) {
        const json_t *value = json_object_get(field(c, paths[p]), "additionalProperties");
        const char *pattern = kc_json_str(value, "pattern", "");
        KT_TRUE(json_is_true(json_object_get(value, "x-kubernetes-int-or-string")));
        KT_REQUIRE(*pattern);
        for (size_t i = 0; i < KC_ARRAY_LEN(good); i++) {
            KT_TRUE(matches(pattern, good[i]));
        }
        for (size_t i = 0; i < KC_ARRAY_LEN(bad); i++) {
            KT_FALSE(matches(pattern, bad[i]));
        }
    }
    json_decref(c);
}

KT_MAIN("operator/schema", KT(every_bound_of_the_schemas_is_the_operators),
        KT(fields_and_defaults_are_the_same_on_both_sides),
        KT(names_that_the_schemas_refuse_are_refused_by_the_operator),
        KT(quantities_are_numbers_with_a_unit))
