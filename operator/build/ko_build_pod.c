/* The pod of a broker: probes on the health thread, tokens of its own, restricted security. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_json.h"
#include "base/kc_mem.h"
#include "build/ko_build_parts.h"

enum { SHARDS = 16, USER = 65532 };

static json_t *field_env(const char *name, const char *path)
{
    return ko_pack("{s:s, s:{s:{s:s}}}", "name", name, "valueFrom", "fieldRef", "fieldPath", path);
}

static json_t *probe(const char *path, int period_s, int timeout_s, int failures)
{
    return ko_pack("{s:{s:s, s:s}, s:i, s:i, s:i}", "httpGet", "path", path, "port", "health",
                   "periodSeconds", period_s, "timeoutSeconds", timeout_s, "failureThreshold",
                   failures);
}

static json_t *ports(const struct ko_cluster *c)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < c->n_listeners; i++) {
        json_array_append_new(list, ko_pack("{s:s, s:i, s:s}", "name", c->listeners[i].name,
                                            "containerPort", (int)c->listeners[i].port, "protocol",
                                            "TCP"));
    }
    json_array_append_new(list, ko_pack("{s:s, s:i, s:s}", "name", "health", "containerPort",
                                        (int)KO_HEALTH_PORT, "protocol", "TCP"));
    return list;
}

static json_t *mount(const char *name, const char *path, bool read_only)
{
    json_t *m = ko_pack("{s:s, s:s}", "name", name, "mountPath", path);
    if (read_only) {
        ko_put(m, "readOnly", json_true());
    }
    return m;
}

static json_t *mounts(void)
{
    return ko_pack("[o,o,o,o,o,o]", mount("data", "/data", false),
                   mount("config", "/etc/kaas/config", true),
                   mount("image", "/etc/kaas/image", true), mount("token", "/var/run/kaas", true),
                   mount("api", "/var/run/secrets/kubernetes.io/serviceaccount", true),
                   mount("tmp", "/tmp", false));
}

static json_t *container(const struct ko_cluster *c, const struct ko_build_opts *o)
{
    json_t *k = ko_pack(
        "{s:s, s:s, s:[s,s,s], s:[o,o,o,o], s:o, s:o, s:o, s:o}", "name", "broker", "image",
        *c->image ? c->image : o->image, "command", "kaas-broker", "--config",
        "/etc/kaas/config/broker.yaml", "env", field_env("POD_NAME", "metadata.name"),
        field_env("POD_NAMESPACE", "metadata.namespace"), field_env("POD_UID", "metadata.uid"),
        field_env("NODE_NAME", "spec.nodeName"), "ports", ports(c), "volumeMounts", mounts(),
        /* Readiness is polled often: it is what the EndpointSlice and the rollout see.
                         * Liveness is for a process beyond repair; /healthz turns 503 only after 60 s. */
        "readinessProbe", probe("/readyz", 2, 1, 1), "livenessProbe", probe("/healthz", 10, 3, 3));
    ko_put(k, "securityContext",
           ko_pack("{s:b, s:b, s:{s:[s]}}", "allowPrivilegeEscalation", 0, "readOnlyRootFilesystem",
                   1, "capabilities", "drop", "ALL"));
    if (c->resources) {
        ko_put(k, "resources", json_deep_copy(c->resources));
    }
    return k;
}

static json_t *data_volume(const struct ko_cluster *c)
{
    char claim[128];
    if (c->storage.type == KO_STORAGE_HOSTPATH) {
        return ko_pack("{s:s, s:{s:s, s:s}}", "name", "data", "hostPath", "path",
                       c->storage.host_path, "type", "DirectoryOrCreate");
    }
    snprintf(claim, sizeof(claim), "%s-data", c->name);
    return ko_pack("{s:s, s:{s:s}}", "name", "data", "persistentVolumeClaim", "claimName",
                   c->storage.type == KO_STORAGE_CLAIM ? c->storage.claim : claim);
}

/* One folder a ConfigMap of the image; each holds the plain or the compressed key, so both are
 * optional. This is the boot-time copy: brokers watch the ConfigMaps by name. */
static json_t *image_volume(const struct ko_cluster *c)
{
    json_t *sources = json_array();
    for (int i = -1; i < SHARDS; i++) {
        char name[128], plain[160], gz[160];
        if (i < 0) {
            snprintf(name, sizeof(name), "%s-image", c->name);
        } else {
            snprintf(name, sizeof(name), "%s-image-%d", c->name, i);
        }
        snprintf(plain, sizeof(plain), "%s/image.json", name);
        snprintf(gz, sizeof(gz), "%s/image.json.gz", name);
        json_array_append_new(sources,
                              ko_pack("{s:{s:s, s:b, s:[{s:s, s:s}, {s:s, s:s}]}}", "configMap",
                                      "name", name, "optional", 1, "items", "key", "image.json",
                                      "path", plain, "key", "image.json.gz", "path", gz));
    }
    return ko_pack("{s:s, s:{s:o}}", "name", "image", "projected", "sources", sources);
}

/* What automounting would give, without automounting; brokers only read their image with it. */
static json_t *api_volume(void)
{
    json_t *token = ko_pack("{s:{s:s, s:i}}", "serviceAccountToken", "path", "token",
                            "expirationSeconds", 3607);
    json_t *ca = ko_pack("{s:{s:s, s:[{s:s, s:s}]}}", "configMap", "name", "kube-root-ca.crt",
                         "items", "key", "ca.crt", "path", "ca.crt");
    json_t *ns = ko_pack("{s:{s:[{s:s, s:{s:s}}]}}", "downwardAPI", "items", "path", "namespace",
                         "fieldRef", "fieldPath", "metadata.namespace");
    return ko_pack("{s:s, s:{s:[o,o,o]}}", "name", "api", "projected", "sources", token, ca, ns);
}

static json_t *volumes(const struct ko_cluster *c)
{
    char config[128];
    snprintf(config, sizeof(config), "%s-config", c->name);
    json_t *token = ko_pack("{s:s, s:{s:[{s:{s:s, s:s, s:i}}]}}", "name", "token", "projected",
                            "sources", "serviceAccountToken", "audience", "kaas-heartbeat", "path",
                            "token", "expirationSeconds", 3600);
    return ko_pack("[o, {s:s, s:{s:s}}, o, o, o, {s:s, s:{s:s}}]", data_volume(c), "name", "config",
                   "configMap", "name", config, image_volume(c), token, api_volume(), "name", "tmp",
                   "emptyDir", "sizeLimit", "64Mi");
}

static json_t *spread(const struct ko_cluster *c, const char *key)
{
    return ko_pack("{s:i, s:s, s:s, s:{s:o}}", "maxSkew", 1, "topologyKey", key,
                   "whenUnsatisfiable", "ScheduleAnyway", "labelSelector", "matchLabels",
                   ko_build_match_labels(c));
}

/* Brokers read their file at start, so a change of it must roll the pods. */
static json_t *template_meta(const struct ko_cluster *c, const struct ko_build_opts *o)
{
    char hash[17];
    json_t *config = ko_build_config(c, o);
    ko_doc_hash(json_object_get(config, "data"), hash);
    json_decref(config);
    return ko_pack("{s:o, s:{s:s}}", "labels", ko_build_labels(c), "annotations",
                   "kaas.dev/config-hash", hash);
}

json_t *ko_build_pod_template(const struct ko_cluster *c, const struct ko_build_opts *o)
{
    char account[128];
    snprintf(account, sizeof(account), "%s-broker", c->name);
    json_t *constraints = json_pack("[o]", spread(c, "kubernetes.io/hostname"));
    if (*c->rack_key) {
        json_array_append_new(constraints, spread(c, c->rack_key));
    }
    json_t *spec =
        ko_pack("{s:s, s:b, s:b, s:i, s:[o], s:o, s:o}", "serviceAccountName", account,
                "automountServiceAccountToken", 0, "enableServiceLinks", 0,
                "terminationGracePeriodSeconds", (int)c->grace_seconds, "containers",
                container(c, o), "volumes", volumes(c), "topologySpreadConstraints", constraints);
    ko_put(spec, "securityContext",
           ko_pack("{s:b, s:i, s:i, s:i, s:s, s:{s:s}}", "runAsNonRoot", 1, "runAsUser", (int)USER,
                   "runAsGroup", (int)USER, "fsGroup", (int)USER, "fsGroupChangePolicy",
                   "OnRootMismatch", "seccompProfile", "type", "RuntimeDefault"));
    json_t *tpl = ko_pack("{s:o, s:o}", "metadata", template_meta(c, o), "spec", spec);
    if (c->pod_template) {
        kc_json_merge(tpl, c->pod_template);
    }
    return tpl;
}
