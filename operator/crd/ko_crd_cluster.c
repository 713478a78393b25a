/* KaasCluster: defaults and checks (design.md 2). */
#include <stdio.h>
#include <string.h>

#include "base/kc_json.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "crd/ko_crd_fields.h"
#include "image/ki_keys.h"

enum {
    BROKERS_MAX = 128, /* KP_BROKERS_MAX */
    CLUSTER_NAME_MAX =
        40, /* "<name>-bootstrap", "<name>-image-15", pod hostnames fit a DNS label */
    HEALTH_PORT = 8080,
    ARENA_CHUNK = 4096,
    ARENA_MAX = 1024 * 1024
};

static const char *const type_names[] = {"internal", "nodeport", "loadbalancer", "route"};

static bool dns_label(const char *s, size_t max, bool letter_first)
{
    size_t len = strlen(s);
    if (len == 0 || len > max || strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") != len) {
        return false;
    }
    bool digit_first = s[0] >= '0' && s[0] <= '9';
    return s[0] != '-' && s[len - 1] != '-' && !(letter_first && digit_first);
}

static bool alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* [prefix/]name, as Kubernetes has it: the prefix a DNS name. */
static bool label_key(const char *s)
{
    const char *slash = strchr(s, '/'), *name = slash ? slash + 1 : s;
    size_t len = strlen(name);
    if (slash && !ko_dns_name(s, (size_t)(slash - s), 253)) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if (!alnum(name[i]) && (i == 0 || i + 1 == len || !strchr("-._", name[i]))) {
            return false;
        }
    }
    return len > 0 && len <= 63;
}

static void default_at(json_t *doc, const char *path, json_t *value)
{
    if (kc_json_at(doc, path)) {
        json_decref(value);
    } else {
        (void)kc_json_set(doc, path, value); /* a parent of another type is reported by parse */
    }
}

void ko_cluster_default(json_t *doc)
{
    default_at(doc, "spec.replicas", json_integer(3));
    default_at(doc, "spec.minReadySeconds", json_integer(60));
    default_at(doc, "spec.terminationGracePeriodSeconds", json_integer(30));
    default_at(doc, "spec.heartbeat.interval", json_string("1s"));
    default_at(doc, "spec.heartbeat.timeout", json_string("3s"));
    default_at(doc, "spec.limits.topics", json_integer(2000));
    default_at(doc, "spec.limits.partitions", json_integer(20000));
    default_at(doc, "spec.storage.deleteClaim", json_false());
    default_at(
        doc, "spec.listeners",
        json_pack("[{s:s, s:i, s:s}]", "name", "internal", "port", 9092, "type", "internal"));
}

static void check_fields(const json_t *doc, struct ko_field_errors *e)
{
    static const char *const spec[] = {"replicas",
                                       "image",
                                       "minReadySeconds",
                                       "storage",
                                       "listeners",
                                       "config",
                                       "authorization",
                                       "heartbeat",
                                       "limits",
                                       "rack",
                                       "resources",
                                       "podTemplate",
                                       "terminationGracePeriodSeconds",
                                       "unsafeStorage",
                                       NULL};
    static const char *const storage[] = {"existingClaim", "claimTemplate", "hostPath",
                                          "deleteClaim", NULL};
    static const char *const heartbeat[] = {"interval", "timeout", NULL};
    static const char *const limits[] = {"topics", "partitions", NULL};
    static const char *const rack[] = {"topologyKey", NULL};
    ko_field_known(doc, "spec", spec, e);
    ko_field_known(doc, "spec.storage", storage, e);
    ko_field_known(doc, "spec.heartbeat", heartbeat, e);
    ko_field_known(doc, "spec.limits", limits, e);
    ko_field_known(doc, "spec.rack", rack, e);
}

static void parse_storage(struct ko_cluster *c, struct ko_field_errors *e)
{
    struct ko_storage *s = &c->storage;
    const char *claim = ko_field_str(c->doc, "spec.storage.existingClaim", "", e);
    const char *path = ko_field_str(c->doc, "spec.storage.hostPath", "", e);
    const json_t *template = kc_json_at(c->doc, "spec.storage.claimTemplate");
    template = json_is_null(template) ? NULL : template;
    s->delete_claim = ko_field_bool(c->doc, "spec.storage.deleteClaim", false, e);
    if ((*claim != '\0') + (*path != '\0') + (template != NULL) != 1) {
        ko_field_error(e, "spec.storage",
                       "set exactly one of existingClaim, claimTemplate and hostPath");
    }
    /* The local host keeps its volume in its own folder, whatever this says; on Kubernetes the CRD
     * asks for an absolute path. */
    if (*path && (strstr(path, "..") || strlen(path) > 1024)) {
        ko_field_error(e, "spec.storage.hostPath", "must be a path without \"..\"");
    }
    if (*claim && !ko_dns_name(claim, strlen(claim), 253)) {
        ko_field_error(e, "spec.storage.existingClaim", "must name a PersistentVolumeClaim");
    }
    if (template && !json_is_object(template)) {
        ko_field_error(e, "spec.storage.claimTemplate", "must be a PersistentVolumeClaimSpec");
    }
    if (s->delete_claim && *claim) {
        ko_field_error(e, "spec.storage.deleteClaim",
                       "an existing claim is never deleted; use claimTemplate or remove the field");
    }
    s->type = *claim ? KO_STORAGE_CLAIM : *path ? KO_STORAGE_HOSTPATH : KO_STORAGE_TEMPLATE;
    s->claim = claim;
    s->host_path = path;
    s->claim_spec = template;
}

static enum ko_listener_type parse_type(const char *name, const char *path,
                                        struct ko_field_errors *e)
{
    for (size_t i = 0; i < KC_ARRAY_LEN(type_names); i++) {
        if (strcmp(type_names[i], name) == 0) {
            return (enum ko_listener_type)i;
        }
    }
    ko_field_error(e, path, "must be internal, nodeport, loadbalancer or route");
    return KO_LISTENER_INTERNAL;
}

static void parse_listener(struct ko_cluster *c, int32_t i, struct ko_field_errors *e)
{
    static const char *const fields[] = {"name", "port", "type", "tls", "authentication", NULL};
    struct ko_listener *l = &c->listeners[i];
    char at[40], path[60];
    snprintf(at, sizeof(at), "spec.listeners.%d", i);
    ko_field_known(c->doc, at, fields, e);
    snprintf(path, sizeof(path), "%s.name", at);
    l->name = ko_field_str(c->doc, path, "", e);
    if (!dns_label(l->name, 15, true) || strstr(l->name, "--")) {
        ko_field_error(e, path,
                       "must be at most 15 lower-case letters, digits and single dashes, a letter "
                       "first");
    }
    if (strcmp(l->name, "health") == 0) {
        ko_field_error(e, path, "must not be health, which is another port of the pods");
    }
    snprintf(path, sizeof(path), "%s.port", at);
    l->port = (uint16_t)ko_field_int(c->doc, path, 0, 1, 65535, e);
    if (l->port == 0 || l->port == HEALTH_PORT) {
        ko_field_error(e, path, "must be set, and not be %d (health)", HEALTH_PORT);
    }
    snprintf(path, sizeof(path), "%s.type", at);
    l->type = parse_type(ko_field_str(c->doc, path, "internal", e), path, e);
    if (l->type != KO_LISTENER_INTERNAL) {
        ko_field_error(e, path, "this version serves internal listeners only; use type internal");
    }
    snprintf(path, sizeof(path), "%s.tls", at);
    l->tls = ko_field_bool(c->doc, path, false, e);
    if (l->tls) {
        ko_field_error(e, path, "this version serves PLAINTEXT listeners only; remove the field");
    }
    for (int32_t k = 0; k < i; k++) {
        if (strcmp(c->listeners[k].name, l->name) == 0 || c->listeners[k].port == l->port) {
            ko_field_error(e, at, "name and port must differ from those of spec.listeners.%d", k);
        }
    }
}

static void parse_listeners(struct ko_cluster *c, struct ko_field_errors *e)
{
    const json_t *list = kc_json_at(c->doc, "spec.listeners");
    if (!json_is_array(list) || json_array_size(list) < 1 ||
        json_array_size(list) > KO_LISTENERS_MAX) {
        ko_field_error(e, "spec.listeners", "must list 1 to %d listeners", KO_LISTENERS_MAX);
        return;
    }
    c->n_listeners = (int32_t)json_array_size(list);
    for (int32_t i = 0; i < c->n_listeners; i++) {
        parse_listener(c, i, e);
    }
}

/* Keys that the operator decides, or that mean nothing without ZooKeeper, KRaft or local disks; and values
 * that no broker would take, before they get to any. A key that is not known here may be a newer
 * broker's: it goes into the file, and a broker that does not know it either says so. */
static void check_settings(const struct ko_cluster *c, struct ko_field_errors *e)
{
    static const char *const refused[] = {
        "broker.id", "node.id",  "listeners",     "advertised.listeners",
        "log.dir",   "log.dirs", "process.roles", "broker.rack"};
    for (int32_t i = 0; i < c->n_settings; i++) {
        const char *name = c->settings[i].name;
        bool bad = strncmp(name, "zookeeper.", 10) == 0 || strncmp(name, "controller.", 11) == 0;
        for (size_t k = 0; k < KC_ARRAY_LEN(refused) && !bad; k++) {
            bad = strcmp(refused[k], name) == 0;
        }
        if (bad) {
            ko_field_error(e, "spec.config", "\"%.60s\" is decided by the operator; remove it",
                           name);
        }
        char why[200];
        const struct ki_key *def = ki_key_find(KI_BROKER_KEY, kc_str_of(name));
        if (!bad && def && !ki_key_check(def, kc_str_of(c->settings[i].value), why, sizeof(why))) {
            ko_field_error(e, "spec.config", "\"%.60s\" %s", name, why);
        }
    }
}

static void parse_spec(struct ko_cluster *c, struct ko_field_errors *e)
{
    const json_t *d = c->doc;
    c->replicas = (int32_t)ko_field_int(d, "spec.replicas", 3, 1, BROKERS_MAX, e);
    c->image = ko_field_str(d, "spec.image", "", e);
    const json_t *mrs = kc_json_at(d, "spec.minReadySeconds");
    c->min_ready_seconds =
        json_is_null(mrs) ? -1 : (int32_t)ko_field_int(d, "spec.minReadySeconds", 60, 0, 3600, e);
    c->grace_seconds =
        (int32_t)ko_field_int(d, "spec.terminationGracePeriodSeconds", 30, 10, 3600, e);
    c->unsafe_storage = ko_field_bool(d, "spec.unsafeStorage", false, e);
    c->interval_ms = ko_field_duration_ms(d, "spec.heartbeat.interval", 1000, 200, 10000, e);
    c->timeout_ms = ko_field_duration_ms(d, "spec.heartbeat.timeout", 3000, 500, 60000, e);
    if (c->timeout_ms < 2 * c->interval_ms) {
        ko_field_error(e, "spec.heartbeat.timeout",
                       "must be at least twice spec.heartbeat.interval");
    }
    c->max_topics = (int32_t)ko_field_int(d, "spec.limits.topics", 2000, 1, 10000, e);
    c->max_partitions = (int32_t)ko_field_int(d, "spec.limits.partitions", 20000, 1, 100000, e);
    c->rack_key = ko_field_str(d, "spec.rack.topologyKey", "", e);
    if (*c->rack_key && !label_key(c->rack_key)) {
        ko_field_error(e, "spec.rack.topologyKey",
                       "must be the key of a node label, such as topology.kubernetes.io/zone");
    }
    c->resources = kc_json_at(d, "spec.resources");
    c->pod_template = kc_json_at(d, "spec.podTemplate");
    if ((c->resources && !json_is_object(c->resources)) ||
        (c->pod_template && !json_is_object(c->pod_template))) {
        ko_field_error(e, "spec", "resources and podTemplate must be maps");
    }
    if (kc_json_at(c->pod_template, "spec.terminationGracePeriodSeconds")) {
        ko_field_error(e, "spec.podTemplate.spec.terminationGracePeriodSeconds",
                       "set spec.terminationGracePeriodSeconds, after which brokers time their "
                       "drain");
    }
    c->n_settings = ko_field_settings(d, "spec.config", &c->arena, &c->settings, e);
    check_settings(c, e);
    parse_storage(c, e);
    parse_listeners(c, e);
}

int ko_cluster_parse(json_t *given, struct ko_cluster **ret, struct ko_field_errors *errs)
{
    struct ko_cluster *c = kc_zalloc(sizeof(*c));
    errs->n = 0;
    *ret = NULL;
    kc_arena_init(&c->arena, ARENA_CHUNK, ARENA_MAX);
    c->doc = json_deep_copy(given);
    ko_cluster_default(c->doc);
    c->ns = kc_json_str(c->doc, "metadata.namespace", "default");
    c->name = kc_json_str(c->doc, "metadata.name", "");
    c->uid = kc_json_str(c->doc, "metadata.uid", "");
    c->generation = kc_json_int(c->doc, "metadata.generation", 0);
    c->deleting = kc_json_at(c->doc, "metadata.deletionTimestamp") != NULL;
    snprintf(c->key, sizeof(c->key), "%.253s/%.60s", c->ns, c->name);
    if (!dns_label(c->name, CLUSTER_NAME_MAX, true)) {
        ko_field_error(errs, "metadata.name",
                       "must be a lower-case DNS label of at most %d characters, letter first",
                       CLUSTER_NAME_MAX);
    }
    check_fields(c->doc, errs);
    parse_spec(c, errs);
    if (errs->n > 0) {
        ko_cluster_free(c);
        return KC_E_CONFIG;
    }
    *ret = c;
    return 0;
}

void ko_cluster_free(struct ko_cluster *c)
{
    if (c) {
        json_decref(c->doc);
        kc_arena_fini(&c->arena);
        kc_free(c);
    }
}
