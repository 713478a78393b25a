#include "k8s/k8s_config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/kc_b64.h"
#include "base/kc_json.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"

#define ACCOUNT_DIR "/var/run/secrets/kubernetes.io/serviceaccount"
enum { FILE_MAX = 1 << 20 };

void k8s_config_fini(struct k8s_config *c)
{
    kc_free(c->server);
    kc_free(c->namespace_);
    kc_free(c->ca_file);
    kc_free(c->ca_pem);
    kc_free(c->cert_file);
    kc_free(c->cert_pem);
    kc_free(c->key_file);
    kc_free(c->key_pem);
    kc_free(c->token_file);
    kc_free(c->token);
    *c = (struct k8s_config){0};
}

char *k8s_read_file(const char *path, size_t max_bytes, size_t *ret_len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    char *buf = kc_try_alloc(max_bytes + 1);
    size_t len = 0;
    ssize_t n = buf ? 1 : -1;
    while (n > 0 && len <= max_bytes) {
        n = read(fd, buf + len, max_bytes + 1 - len);
        if (n < 0 && errno == EINTR) {
            n = 1;
            continue;
        }
        len += n > 0 ? (size_t)n : 0;
    }
    int saved = buf ? errno : ENOMEM;
    close(fd);
    if (n < 0 || len > max_bytes) {
        kc_free(buf);
        errno = n < 0 ? saved : EFBIG;
        return NULL;
    }
    buf[len] = '\0';
    *ret_len = len;
    return buf;
}

static char *join(const char *dir, const char *path)
{
    if (path[0] == '/') {
        return kc_strdup(path);
    }
    size_t room = strlen(dir) + strlen(path) + 2;
    char *s = kc_alloc(room);
    snprintf(s, room, "%s/%s", dir, path);
    return s;
}

int k8s_config_in_cluster(struct k8s_config *ret, const char *root, struct kc_err *err)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST");
    const char *port = getenv("KUBERNETES_SERVICE_PORT");
    if (!host || !*host) {
        return kc_fail(err, KC_E_CONFIG,
                       "no Kubernetes: neither KUBECONFIG nor KUBERNETES_SERVICE_HOST is set");
    }
    struct k8s_config c = {0};
    char url[320], path[4096];
    size_t len;
    bool v6 = strchr(host, ':') != NULL;
    snprintf(url, sizeof(url), "https://%s%s%s:%s", v6 ? "[" : "", host, v6 ? "]" : "",
             port && *port ? port : "443");
    c.server = kc_strdup(url);
    snprintf(path, sizeof(path), "%s%s/ca.crt", root, ACCOUNT_DIR);
    c.ca_file = kc_strdup(path);
    snprintf(path, sizeof(path), "%s%s/token", root, ACCOUNT_DIR);
    c.token_file = kc_strdup(path);
    snprintf(path, sizeof(path), "%s%s/namespace", root, ACCOUNT_DIR);
    c.namespace_ = k8s_read_file(path, 256, &len);
    if (!c.namespace_) {
        int rc = kc_fail(err, KC_E_CONFIG, "%s: %s; is the ServiceAccount token mounted?", path,
                         strerror(errno));
        k8s_config_fini(&c);
        return rc;
    }
    c.namespace_[strcspn(c.namespace_, "\r\n \t")] = '\0';
    *ret = c;
    return 0;
}

/* The entry of a kubeconfig's named list. */
static json_t *named(json_t *doc, const char *list, const char *name)
{
    json_t *arr = kc_json_at(doc, list), *item;
    size_t i;
    json_array_foreach(arr, i, item)
    {
        if (name && strcmp(kc_json_str(item, "name", ""), name) == 0) {
            return item;
        }
    }
    return NULL;
}

/* A credential given as a file name or inline as base64. */
static int credential(json_t *from, const char *key, const char *dir, char **ret_file,
                      char **ret_pem, struct kc_err *err)
{
    char data_key[64];
    snprintf(data_key, sizeof(data_key), "%s-data", key);
    const char *data = kc_json_str(from, data_key, NULL);
    const char *file = kc_json_str(from, key, NULL);
    if (data && *data) {
        size_t len;
        uint8_t *raw = kc_b64_decode(kc_str_of(data), &len);
        if (!raw) {
            return kc_fail(err, KC_E_CONFIG, "kubeconfig: %s is not base64", data_key);
        }
        *ret_pem = kc_strndup((const char *)raw, len);
        kc_free(raw);
    } else if (file && *file) {
        *ret_file = join(dir, file);
    }
    return 0;
}

static bool is_loopback(const char *server)
{
    static const char *const ok[] = {"http://127.", "http://localhost:", "http://[::1]:"};
    for (size_t i = 0; i < KC_ARRAY_LEN(ok); i++) {
        if (strncmp(server, ok[i], strlen(ok[i])) == 0) {
            return true;
        }
    }
    return false;
}

static int parse_cluster(struct k8s_config *c, json_t *cluster, const char *dir, struct kc_err *err)
{
    const char *server = kc_json_str(cluster, "server", "");
    if (strncmp(server, "https://", 8) != 0 && !is_loopback(server)) {
        return kc_fail(err, KC_E_CONFIG, "kubeconfig: server must be an https:// address");
    }
    static const char *const refused[] = {"insecure-skip-tls-verify", "tls-server-name",
                                          "proxy-url"};
    for (size_t i = 0; i < KC_ARRAY_LEN(refused); i++) {
        json_t *v = kc_json_at(cluster, refused[i]);
        if (v && !json_is_false(v)) {
            return kc_fail(err, KC_E_UNSUPPORTED, "kubeconfig: cluster.%s is not supported",
                           refused[i]);
        }
    }
    size_t len = strlen(server);
    while (len && server[len - 1] == '/') {
        len--;
    }
    c->server = kc_strndup(server, len);
    return credential(cluster, "certificate-authority", dir, &c->ca_file, &c->ca_pem, err);
}

static int parse_user(struct k8s_config *c, json_t *user, const char *dir, struct kc_err *err)
{
    static const char *const refused[] = {"exec", "auth-provider", "username", "as"};
    for (size_t i = 0; i < KC_ARRAY_LEN(refused); i++) {
        if (kc_json_at(user, refused[i])) {
            return kc_fail(
                err, KC_E_UNSUPPORTED,
                "kubeconfig: user.%s is not supported; use a token or a client certificate",
                refused[i]);
        }
    }
    const char *token = kc_json_str(user, "token", NULL);
    const char *token_file = kc_json_str(user, "tokenFile", NULL);
    if (token_file && *token_file) {
        c->token_file = join(dir, token_file);
    } else if (token && *token) {
        c->token = kc_strdup(token);
    }
    int rc = credential(user, "client-certificate", dir, &c->cert_file, &c->cert_pem, err);
    return rc ? rc : credential(user, "client-key", dir, &c->key_file, &c->key_pem, err);
}

int k8s_config_parse(struct k8s_config *ret, const char *yaml, size_t len, const char *dir,
                     struct kc_err *err)
{
    json_t *doc = kc_yaml_load(yaml, len, err);
    if (!doc) {
        return KC_E_CONFIG;
    }
    struct k8s_config c = {0};
    const char *name = kc_json_str(doc, "current-context", NULL);
    json_t *context = kc_json_at(named(doc, "contexts", name), "context");
    json_t *cluster =
        kc_json_at(named(doc, "clusters", kc_json_str(context, "cluster", NULL)), "cluster");
    json_t *user = kc_json_at(named(doc, "users", kc_json_str(context, "user", NULL)), "user");
    int rc;
    if (!context || !cluster) {
        rc = kc_fail(err, KC_E_CONFIG, "kubeconfig: current-context \"%s\" names no %s",
                     name ? name : "", context ? "cluster" : "context");
    } else {
        rc = parse_cluster(&c, cluster, dir, err);
    }
    if (rc == 0 && user) {
        rc = parse_user(&c, user, dir, err);
    }
    c.namespace_ = kc_strdup(kc_json_str(context, "namespace", "default"));
    json_decref(doc);
    if (rc) {
        k8s_config_fini(&c);
        return rc;
    }
    *ret = c;
    return 0;
}

int k8s_config_load(struct k8s_config *ret, struct kc_err *err)
{
    const char *path = getenv("KUBECONFIG");
    if (!path || !*path) {
        return k8s_config_in_cluster(ret, "", err);
    }
    size_t len;
    char *text = k8s_read_file(path, FILE_MAX, &len);
    if (!text) {
        return kc_fail(err, KC_E_CONFIG, "KUBECONFIG %s: %s", path, strerror(errno));
    }
    char *dir = kc_strdup(path);
    char *slash = strrchr(dir, '/');
    if (slash) {
        *slash = '\0';
    }
    int rc = k8s_config_parse(ret, text, len, slash ? dir : ".", err);
    kc_free(dir);
    kc_free(text);
    return rc;
}
