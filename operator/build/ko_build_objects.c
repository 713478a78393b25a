/* The objects around the pods. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_dyn.h"
#include "base/kc_json.h"
#include "base/kc_mem.h"
#include "build/ko_build_parts.h"
#include "image/ki_keys.h"

enum { SHARDS = 16, YAML_MAX = 8 * 1024 * 1024 };

json_t *ko_build_service_account(const struct ko_cluster *c)
{
    json_t *d = ko_build_doc(c, "v1", "ServiceAccount", "-broker", true);
    ko_put(d, "automountServiceAccountToken", json_false());
    return d;
}

/* Brokers read the image, by name, and nothing else; they never write (design.md 1). */
json_t *ko_build_role(const struct ko_cluster *c)
{
    char name[128];
    json_t *d = ko_build_doc(c, "rbac.authorization.k8s.io/v1", "Role", "-broker", true);
    snprintf(name, sizeof(name), "%s-image", c->name);
    json_t *names = ko_pack("[s]", name);
    for (int i = 0; i < SHARDS; i++) {
        snprintf(name, sizeof(name), "%s-image-%d", c->name, i);
        json_array_append_new(names, json_string(name));
    }
    ko_put(d, "rules",
           ko_pack("[{s:[s], s:[s], s:o, s:[s,s,s]}]", "apiGroups", "", "resources", "configmaps",
                   "resourceNames", names, "verbs", "get", "list", "watch"));
    return d;
}

json_t *ko_build_role_binding(const struct ko_cluster *c)
{
    char name[128];
    json_t *d = ko_build_doc(c, "rbac.authorization.k8s.io/v1", "RoleBinding", "-broker", true);
    snprintf(name, sizeof(name), "%s-broker", c->name);
    ko_put(d, "roleRef",
           ko_pack("{s:s, s:s, s:s}", "apiGroup", "rbac.authorization.k8s.io", "kind", "Role",
                   "name", name));
    ko_put(
        d, "subjects",
        ko_pack("[{s:s, s:s, s:s}]", "kind", "ServiceAccount", "name", name, "namespace", c->ns));
    return d;
}

static json_t *service_ports(const struct ko_cluster *c, bool health)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < c->n_listeners; i++) {
        const struct ko_listener *l = &c->listeners[i];
        json_array_append_new(list,
                              ko_pack("{s:s, s:i, s:s, s:s}", "name", l->name, "port", (int)l->port,
                                      "targetPort", l->name, "protocol", "TCP"));
    }
    if (health) {
        json_array_append_new(list, ko_pack("{s:s, s:i, s:s, s:s}", "name", "health", "port",
                                            (int)KO_HEALTH_PORT, "targetPort", "health", "protocol",
                                            "TCP"));
    }
    return list;
}

/* Not-ready pods keep their names: peers and the registry must not depend on readiness (W3). */
json_t *ko_build_headless_service(const struct ko_cluster *c)
{
    json_t *d = ko_build_doc(c, "v1", "Service", "-brokers", true);
    ko_put(d, "spec",
           ko_pack("{s:s, s:b, s:o, s:o}", "clusterIP", "None", "publishNotReadyAddresses", 1,
                   "selector", ko_build_match_labels(c), "ports", service_ports(c, true)));
    return d;
}

json_t *ko_build_bootstrap_service(const struct ko_cluster *c)
{
    json_t *d = ko_build_doc(c, "v1", "Service", "-bootstrap", true);
    ko_put(d, "spec",
           ko_pack("{s:s, s:o, s:o}", "type", "ClusterIP", "selector", ko_build_match_labels(c),
                   "ports", service_ports(c, false)));
    return d;
}

void ko_build_broker_service_name(const struct ko_cluster *c, int32_t id, char *out, size_t cap)
{
    snprintf(out, cap, "%s-broker-%d", c->name, id);
}

/* Its address outlives every pod of the broker, so what clients, resolvers and nodes remember of the name
 * stays true over a restart (ADR 18). Readiness decides nothing here: a client that was told to
 * go to a broker must get there whatever the kubelet thinks of it. */
json_t *ko_build_broker_service(const struct ko_cluster *c, int32_t id)
{
    char suffix[32], pod[128];
    snprintf(suffix, sizeof(suffix), "-broker-%d", id);
    snprintf(pod, sizeof(pod), "%s-%d", c->name, id);
    json_t *d = ko_build_doc(c, "v1", "Service", suffix, true);
    json_t *selector = ko_build_match_labels(c);
    ko_put(selector, "statefulset.kubernetes.io/pod-name", json_string(pod));
    ko_put(d, "spec",
           ko_pack("{s:s, s:b, s:o, s:o}", "type", "ClusterIP", "publishNotReadyAddresses", 1,
                   "selector", selector, "ports", service_ports(c, false)));
    return d;
}

json_t *ko_build_config(const struct ko_cluster *c, const struct ko_build_opts *o)
{
    char host[700];
    struct ko_broker_file f = {
        .data_dir = "/data",
        .bind = "",
        .advertised_host = host,
        .health_port = KO_HEALTH_PORT,
        .operator_host = o->heartbeat_host,
        .operator_port = o->heartbeat_port,
        .token_file = "/var/run/kaas/token",
        .unsafe_storage = c->unsafe_storage,
    };
    snprintf(host, sizeof(host), "%s-broker-{id}.%s.svc", c->name, c->ns);
    for (int32_t i = 0; i < c->n_listeners; i++) {
        f.ports[i] = c->listeners[i].port;
    }
    json_t *d = ko_build_doc(c, "v1", "ConfigMap", "-config", true);
    char *yaml = ko_build_broker_yaml(c, &f);
    /* Lets the operator watch this one without the image's, which are large and change often. */
    ko_put(kc_json_at(d, "metadata.labels"), "kaas.dev/part", json_string("config"));
    ko_put(d, "data", ko_pack("{s:s}", "broker.yaml", yaml));
    kc_free(yaml);
    return d;
}

json_t *ko_build_claim(const struct ko_cluster *c)
{
    if (c->storage.type != KO_STORAGE_TEMPLATE) {
        return NULL;
    }
    json_t *d = ko_build_doc(c, "v1", "PersistentVolumeClaim", "-data", c->storage.delete_claim);
    json_t *spec = json_deep_copy(c->storage.claim_spec);
    if (!json_object_get(spec, "accessModes")) {
        ko_put(spec, "accessModes", ko_pack("[s]", "ReadWriteMany"));
    }
    ko_put(d, "spec", spec);
    return d;
}

/* A broken broker must not keep a node from being drained: it protects nobody. */
json_t *ko_build_pdb(const struct ko_cluster *c)
{
    json_t *d = ko_build_doc(c, "policy/v1", "PodDisruptionBudget", "", true);
    ko_put(d, "spec",
           ko_pack("{s:i, s:s, s:{s:o}}", "maxUnavailable", 1, "unhealthyPodEvictionPolicy",
                   "AlwaysAllow", "selector", "matchLabels", ko_build_match_labels(c)));
    return d;
}

json_t *ko_build_statefulset(const struct ko_cluster *c, const struct ko_build_opts *o,
                             int32_t partition)
{
    char service[128], hash[17];
    snprintf(service, sizeof(service), "%s-brokers", c->name);
    json_t *d = ko_build_doc(c, "apps/v1", "StatefulSet", "", true);
    json_t *template = ko_build_pod_template(c, o);
    ko_doc_hash(template, hash);
    ko_put(json_object_get(d, "metadata"), "annotations", ko_pack("{s:s}", KO_TEMPLATE_HASH, hash));
    json_t *spec =
        ko_pack("{s:s, s:i, s:s, s:{s:s, s:{s:i}}, s:{s:o}, s:o}", "serviceName", service,
                "replicas", (int)c->replicas, "podManagementPolicy", "Parallel", "updateStrategy",
                "type", "RollingUpdate", "rollingUpdate", "partition", (int)partition, "selector",
                "matchLabels", ko_build_match_labels(c), "template", template);
    if (c->min_ready_seconds >= 0) {
        ko_put(spec, "minReadySeconds", json_integer(c->min_ready_seconds));
    }
    ko_put(d, "spec", spec);
    return d;
}

json_t *ko_build_broker(const struct ko_cluster *c, int32_t id)
{
    char suffix[16];
    snprintf(suffix, sizeof(suffix), "-%d", id);
    json_t *d = ko_build_doc(c, "kaas.dev/v1alpha1", "KaasBroker", suffix, true);
    ko_put(d, "spec", ko_pack("{s:s, s:i}", "cluster", c->name, "id", (int)id));
    return d;
}

/* A double-quoted YAML scalar; JSON strings are YAML. */
static void add_quoted(struct kc_dyn *d, const char *s)
{
    json_t *v = json_string(s);
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY) : NULL;
    kc_dyn_addf(d, "%s", text ? text : "\"\"");
    free(text);
    json_decref(v);
}

static void add_line(struct kc_dyn *d, const char *key, const char *value)
{
    kc_dyn_addf(d, "%s: ", key);
    add_quoted(d, value);
    kc_dyn_add(d, "\n", 1);
}

static void add_listeners(struct kc_dyn *d, const struct ko_cluster *c,
                          const struct ko_broker_file *f)
{
    kc_dyn_addf(d, "listeners:\n");
    for (int32_t i = 0; i < c->n_listeners; i++) {
        kc_dyn_addf(d, "  - {name: ");
        add_quoted(d, c->listeners[i].name);
        kc_dyn_addf(d, ", bind: ");
        add_quoted(d, f->bind);
        kc_dyn_addf(d, ", port: %u, advertisedHost: ", f->ports[i]);
        add_quoted(d, f->advertised_host);
        kc_dyn_addf(d, ", advertisedPort: %u}\n", f->ports[i]);
    }
}

static void add_image(struct kc_dyn *d, const struct ko_cluster *c, const struct ko_broker_file *f)
{
    char name[128];
    snprintf(name, sizeof(name), "%s-image", c->name);
    kc_dyn_addf(d, "image: {source: %s, name: ", f->image_dir ? "directory" : "kubernetes");
    add_quoted(d, name);
    kc_dyn_addf(d, f->image_dir ? ", directory: " : ", mount: ");
    add_quoted(d, f->image_dir ? f->image_dir : "/etc/kaas/image");
    kc_dyn_addf(d, "}\n");
}

/* Only what a broker reads at its start, and what it alone may know: the file's hash is in the pod
 * template. Everything else reaches brokers by the image, and a change of it needs no restart. */
static void add_settings(struct kc_dyn *d, const struct ko_cluster *c)
{
    bool any = false;
    for (int32_t i = 0; i < c->n_settings; i++) {
        const char *name = c->settings[i].name;
        if (ki_key_at_start(name) || !ki_key_find(KI_BROKER_KEY, kc_str_of(name))) {
            kc_dyn_addf(d, any ? "  " : "config:\n  ");
            add_line(d, name, c->settings[i].value);
            any = true;
        }
    }
}

char *ko_build_broker_yaml(const struct ko_cluster *c, const struct ko_broker_file *f)
{
    struct kc_dyn d;
    kc_dyn_init(&d, YAML_MAX);
    add_line(&d, "cluster", c->key);
    add_line(&d, "dataDir", f->data_dir);
    add_listeners(&d, c, f);
    kc_dyn_addf(&d, "health: {bind: ");
    add_quoted(&d, f->bind);
    kc_dyn_addf(&d, ", port: %u}\noperator: {host: ", f->health_port);
    add_quoted(&d, f->operator_host);
    kc_dyn_addf(&d, ", port: %u, tokenFile: ", f->operator_port);
    add_quoted(&d, f->token_file);
    kc_dyn_addf(&d, "}\n");
    add_image(&d, c, f);
    kc_dyn_addf(&d,
                "heartbeat: {intervalMs: %lld, timeoutMs: %lld}\n"
                "terminationGracePeriodSeconds: %d\nunsafeStorage: %s\n",
                (long long)c->interval_ms, (long long)c->timeout_ms, c->grace_seconds,
                f->unsafe_storage ? "true" : "false");
    add_settings(&d, c);
    kc_dyn_add(&d, "", 1);
    KC_ASSERT(kc_dyn_ok(&d)); /* KO_CONFIGS_MAX settings of KO_SETTING_MAX bytes, quoted, fit */
    size_t len;
    char *text = (char *)kc_dyn_steal(&d, &len);
    kc_dyn_fini(&d);
    return text;
}
