/* kb_config.c - reads and checks the broker's YAML; see kb_config.h. */
#include "app/kb_config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_json.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "handlers/kb_kafka_config.h"

enum { FILE_MAX = 1024 * 1024 };

struct reader {
    const json_t *doc;
    const struct kb_config_env *env;
    struct kb_config *c;
    struct kc_err *err;
};

/* ---- typed fields ---- */

static int bad(struct reader *r, const char *field, const char *what)
{
    return kc_fail(r->err, KC_E_CONFIG, "%s: %s", field, what);
}

/* {pod} and {id} are replaced; anything else in braces stays. */
static int expand(struct reader *r, const char *field, const char *in, char *out, size_t cap)
{
    size_t n = 0;
    for (const char *p = in; *p;) {
        char id[16];
        const char *put = NULL;
        if (strncmp(p, "{pod}", 5) == 0) {
            put = r->c->pod_name;
            p += 5;
        } else if (strncmp(p, "{id}", 4) == 0) {
            snprintf(id, sizeof(id), "%d", r->c->id);
            put = id;
            p += 4;
        }
        if (put && !*put) {
            return bad(r, field, "uses {pod}, but POD_NAME is not set");
        }
        size_t len = put ? strlen(put) : 1;
        if (n + len >= cap) {
            return bad(r, field, "is too long");
        }
        memcpy(out + n, put ? put : p++, len);
        n += len;
    }
    out[n] = '\0';
    return 0;
}

static int text_at(struct reader *r, const json_t *doc, const char *path, const char *field,
                   const char *dflt, char *out, size_t cap)
{
    const json_t *v = kc_json_at(doc, path);
    if (v && !json_is_string(v) && !json_is_null(v)) {
        return bad(r, field, "must be a text");
    }
    return expand(r, field, json_is_string(v) ? json_string_value(v) : dflt, out, cap);
}

static int path_at(struct reader *r, const char *path, char **out)
{
    char buf[4096];
    int rc = text_at(r, r->doc, path, path, "", buf, sizeof(buf));
    if (!rc && *buf) {
        *out = kc_strdup(buf);
    }
    return rc;
}

static int number_at(struct reader *r, const json_t *doc, const char *path, const char *field,
                     const int64_t range[2], int64_t *ret)
{
    const json_t *v = kc_json_at(doc, path);
    if (!v) {
        return 0;
    }
    if (!json_is_integer(v)) {
        return bad(r, field, "must be a whole number");
    }
    int64_t n = json_integer_value(v);
    if (n < range[0] || n > range[1]) {
        return kc_fail(r->err, KC_E_CONFIG, "%s: must be between %lld and %lld, is %lld", field,
                       (long long)range[0], (long long)range[1], (long long)n);
    }
    *ret = n;
    return 0;
}

static int port_at(struct reader *r, const json_t *doc, const char *path, const char *field,
                   uint16_t *ret)
{
    int64_t n = *ret;
    int rc = number_at(r, doc, path, field, (const int64_t[]){0, 65535}, &n);
    *ret = (uint16_t)n;
    return rc;
}

/* ---- sections ---- */

static int check_keys(struct reader *r)
{
    static const char *const known[] = {
        "cluster",       "dataDir",   "listeners", "health", "operator",
        "image",         "heartbeat", "rack",      "id",     "terminationGracePeriodSeconds",
        "unsafeStorage", "dataLoops", "config"};
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)r->doc, key, v)
    {
        bool found = false;
        for (size_t i = 0; i < KC_ARRAY_LEN(known); i++) {
            found |= strcmp(key, known[i]) == 0;
        }
        if (!found) {
            return kc_fail(r->err, KC_E_CONFIG, "unknown field \"%.60s\"", key);
        }
    }
    return 0;
}

/* The ordinal: --id, else `id`, else the digits at the end of the pod's name. */
static int read_identity(struct reader *r)
{
    struct kb_config *c = r->c;
    snprintf(c->pod_name, sizeof(c->pod_name), "%s", r->env->pod_name ? r->env->pod_name : "");
    snprintf(c->pod_uid, sizeof(c->pod_uid), "%s", r->env->pod_uid ? r->env->pod_uid : "");
    int64_t id = r->env->id;
    if (id < 0) {
        int rc = number_at(r, r->doc, "id", "id", (const int64_t[]){0, INT32_MAX}, &id);
        if (rc) {
            return rc;
        }
    }
    if (id < 0) {
        const char *dash = strrchr(c->pod_name, '-');
        if (!dash || !isdigit((unsigned char)dash[1]) || kc_parse_i64(kc_str_of(dash + 1), &id) ||
            id > INT32_MAX) {
            id = -1;
        }
    }
    const json_t *cluster = kc_json_at(r->doc, "cluster");
    c->self_led = !cluster || json_is_null(cluster);
    if (id < 0 && c->self_led) {
        id = 0;
    }
    if (id < 0) {
        return bad(r, "id", "unknown: give --id, or set POD_NAME to <cluster>-<n>");
    }
    c->id = (int32_t)id;
    if (c->self_led) {
        return 0;
    }
    const char *name = json_string_value(cluster);
    const char *slash = name ? strchr(name, '/') : NULL;
    if (!slash || slash == name || !slash[1] || strchr(slash + 1, '/') ||
        (size_t)(slash - name) >= sizeof(c->cluster_namespace) ||
        strlen(slash + 1) >= sizeof(c->cluster_name)) {
        return bad(r, "cluster", "must be \"namespace/name\" of the KaasCluster");
    }
    snprintf(c->cluster_namespace, sizeof(c->cluster_namespace), "%.*s", (int)(slash - name), name);
    snprintf(c->cluster_name, sizeof(c->cluster_name), "%s", slash + 1);
    return 0;
}

static int read_listener(struct reader *r, const json_t *doc, int32_t i)
{
    struct kb_listener *l = &r->c->listeners[i];
    char field[64];
    snprintf(field, sizeof(field), "listeners[%d]", i);
    if (!json_is_object(doc)) {
        return bad(r, field, "must be {name, bind, port, advertisedHost, advertisedPort}");
    }
    const char *host = r->c->pod_name[0] ? r->c->pod_name : "localhost";
    int rc = text_at(r, doc, "name", field, "", l->name, sizeof(l->name));
    rc = rc ? rc : text_at(r, doc, "bind", field, "", l->bind, sizeof(l->bind));
    rc = rc ? rc : port_at(r, doc, "port", field, &l->port);
    l->advertised_port = l->port;
    rc = rc ? rc : port_at(r, doc, "advertisedPort", field, &l->advertised_port);
    rc = rc ? rc
            : text_at(r, doc, "advertisedHost", field, host, l->advertised_host,
                      sizeof(l->advertised_host));
    if (rc) {
        return rc;
    }
    if (!l->name[0]) {
        return bad(r, field, "needs a name");
    }
    for (int32_t j = 0; j < i; j++) {
        if (strcmp(r->c->listeners[j].name, l->name) == 0) {
            return kc_fail(r->err, KC_E_CONFIG, "%s: the name %s is taken by another listener",
                           field, l->name);
        }
    }
    if (!kc_json_at(doc, "port")) {
        return bad(r, field, "needs a port");
    }
    return 0;
}

static int read_listeners(struct reader *r)
{
    const json_t *list = kc_json_at(r->doc, "listeners");
    size_t n = json_array_size(list);
    if (n < 1 || n > KP_LISTENERS_MAX) {
        return kc_fail(r->err, KC_E_CONFIG, "listeners: must be a list of 1 to %d listeners",
                       KP_LISTENERS_MAX);
    }
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        rc = read_listener(r, json_array_get(list, i), (int32_t)i);
    }
    r->c->n_listeners = (int32_t)n;
    return rc;
}

static int read_cluster_parts(struct reader *r)
{
    struct kb_config *c = r->c;
    char source[32];
    int rc = text_at(r, r->doc, "operator.host", "operator.host", "", c->operator_host,
                     sizeof(c->operator_host));
    rc = rc ? rc : port_at(r, r->doc, "operator.port", "operator.port", &c->operator_port);
    rc = rc ? rc : path_at(r, "operator.tokenFile", &c->token_file);
    rc = rc ? rc : text_at(r, r->doc, "image.source", "image.source", "", source, sizeof(source));
    rc = rc ? rc
            : text_at(r, r->doc, "image.name", "image.name", "", c->image_name,
                      sizeof(c->image_name));
    rc = rc ? rc : path_at(r, "image.mount", &c->image_mount);
    rc = rc ? rc : path_at(r, "image.directory", &c->image_directory);
    if (rc || c->self_led) {
        return rc;
    }
    if (!c->operator_host[0] || !c->operator_port) {
        return bad(r, "operator", "a broker of a cluster needs operator.host and operator.port");
    }
    if (strcmp(source, "kubernetes") == 0) {
        c->image_source = KB_IMAGE_KUBERNETES;
    } else if (strcmp(source, "directory") == 0) {
        c->image_source = KB_IMAGE_DIRECTORY;
    } else {
        return bad(r, "image.source", "must be kubernetes or directory");
    }
    if (c->image_source == KB_IMAGE_DIRECTORY && !c->image_directory) {
        return bad(r, "image.directory", "is needed with image.source directory");
    }
    if (!c->image_name[0]) {
        snprintf(c->image_name, sizeof(c->image_name), "%.*s-image", 246, c->cluster_name);
    }
    return 0;
}

static int read_numbers(struct reader *r)
{
    struct kb_config *c = r->c;
    int64_t grace = 30, loops = 0;
    c->heartbeat_interval_ms = 1000;
    c->heartbeat_timeout_ms = 3000;
    c->health_port = 8080;
    int rc = number_at(r, r->doc, "heartbeat.intervalMs", "heartbeat.intervalMs",
                       (const int64_t[]){100, 60000}, &c->heartbeat_interval_ms);
    rc = rc ? rc
            : number_at(r, r->doc, "heartbeat.timeoutMs", "heartbeat.timeoutMs",
                        (const int64_t[]){300, 600000}, &c->heartbeat_timeout_ms);
    rc = rc ? rc
            : number_at(r, r->doc, "terminationGracePeriodSeconds", "terminationGracePeriodSeconds",
                        (const int64_t[]){0, 86400}, &grace);
    rc = rc ? rc : number_at(r, r->doc, "dataLoops", "dataLoops", (const int64_t[]){0, 64}, &loops);
    rc = rc ? rc : port_at(r, r->doc, "health.port", "health.port", &c->health_port);
    rc = rc ? rc
            : text_at(r, r->doc, "health.bind", "health.bind", "", c->health_bind,
                      sizeof(c->health_bind));
    rc = rc ? rc : text_at(r, r->doc, "rack", "rack", "", c->rack, sizeof(c->rack));
    rc = rc ? rc : path_at(r, "dataDir", &c->data_dir);
    if (rc) {
        return rc;
    }
    if (!c->data_dir) {
        return bad(r, "dataDir", "is needed: the directory of the shared volume");
    }
    const json_t *unsafe = kc_json_at(r->doc, "unsafeStorage");
    if (unsafe && !json_is_boolean(unsafe)) {
        return bad(r, "unsafeStorage", "must be true or false");
    }
    c->unsafe_storage = json_is_true(unsafe);
    c->termination_grace_s = (int32_t)grace;
    c->data_loops = (int32_t)loops;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ki_config *)a)->name, ((const struct ki_config *)b)->name);
}

/* Kafka broker keys: known ones with a value of their type. YAML may give a bare number or bool. */
static int read_kafka_configs(struct reader *r)
{
    json_t *map = kc_json_at(r->doc, "config");
    if (!map || json_is_null(map)) {
        return 0;
    }
    if (!json_is_object(map)) {
        return bad(r, "config", "must be a map of Kafka broker keys");
    }
    struct kb_config *c = r->c;
    c->configs = kc_try_zalloc(json_object_size(map) + 1, sizeof(*c->configs));
    if (!c->configs) {
        return kc_fail(r->err, -ENOMEM, "out of memory");
    }
    const char *key;
    json_t *v;
    json_object_foreach(map, key, v)
    {
        char *text = json_is_string(v) ? kc_strdup(json_string_value(v)) : NULL;
        if (!text && (json_is_number(v) || json_is_boolean(v))) {
            char *dump = json_dumps(v, JSON_ENCODE_ANY);
            if (!dump) {
                return kc_fail(r->err, -ENOMEM, "out of memory");
            }
            text = kc_strdup(dump);
            free(dump);
        }
        char field[300], why[160];
        snprintf(field, sizeof(field), "config.%.250s", key);
        if (!text) {
            return bad(r, field, "must be a text, a number or true/false");
        }
        c->configs[c->n_configs++] = (struct ki_config){kc_strdup(key), text};
        const struct ki_key *def = ki_key_find(KI_BROKER_KEY, kc_str_of(key));
        if (!def) {
            return bad(r, field, "is not a broker config that kaas knows");
        }
        if (!ki_key_check(def, kc_str_of(text), why, sizeof(why))) {
            return bad(r, field, why);
        }
    }
    qsort(c->configs, (size_t)c->n_configs, sizeof(*c->configs), by_name);
    return 0;
}

int kb_config_parse(const char *text, size_t len, const struct kb_config_env *env,
                    struct kb_config **ret, struct kc_err *err)
{
    json_t *doc = kc_yaml_load(text, len, err);
    if (!doc) {
        return KC_E_CONFIG;
    }
    struct reader r = {doc, env, kc_zalloc(sizeof(struct kb_config)), err};
    int rc = 0;
    if (!json_is_object(doc)) {
        rc = kc_fail(err, KC_E_CONFIG, "the configuration must be a map");
    }
    rc = rc ? rc : check_keys(&r);
    rc = rc ? rc : read_identity(&r);
    rc = rc ? rc : read_listeners(&r);
    rc = rc ? rc : read_numbers(&r);
    rc = rc ? rc : read_cluster_parts(&r);
    rc = rc ? rc : read_kafka_configs(&r);
    json_decref(doc);
    if (rc) {
        kb_config_free(r.c);
        return rc;
    }
    *ret = r.c;
    return 0;
}

int kb_config_load(const char *path, const struct kb_config_env *env, struct kb_config **ret,
                   struct kc_err *err)
{
    FILE *f = fopen(path, "re");
    if (!f) {
        return kc_fail(err, -errno, "cannot read %s: %s", path, kc_strerror(-errno));
    }
    char *text = kc_try_alloc(FILE_MAX);
    if (!text) {
        fclose(f);
        return kc_fail(err, -ENOMEM, "out of memory");
    }
    size_t len = fread(text, 1, FILE_MAX, f);
    int rc = ferror(f)         ? kc_fail(err, -EIO, "cannot read %s", path)
             : len == FILE_MAX ? kc_fail(err, KC_E_CONFIG, "%s is larger than 1 MiB", path)
                               : kb_config_parse(text, len, env, ret, err);
    fclose(f);
    kc_free(text);
    return rc;
}

void kb_config_free(struct kb_config *c)
{
    if (!c) {
        return;
    }
    kc_free(c->data_dir);
    kc_free(c->token_file);
    kc_free(c->image_mount);
    kc_free(c->image_directory);
    for (int32_t i = 0; i < c->n_configs; i++) {
        kc_free((char *)(uintptr_t)c->configs[i].name);
        kc_free((char *)(uintptr_t)c->configs[i].value);
    }
    kc_free(c->configs);
    kc_free(c);
}
