/* Where the API server is: kubeconfig text and a pod's files. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "k8s/k8s_config.h"
#include "kt.h"
#include "kt_dir.h"

static int parse(struct k8s_config *c, const char *text, struct kc_err *err)
{
    *c = (struct k8s_config){0};
    return k8s_config_parse(c, text, strlen(text), "/etc/kube", err);
}

#define HEAD "apiVersion: v1\nkind: Config\ncurrent-context: two\n"
#define CONTEXTS                                                                                   \
    "contexts:\n- {name: one, context: {cluster: x, user: x}}\n"                                   \
    "- {name: two, context: {cluster: c2, user: u2, namespace: apps}}\n"

static void the_current_context_decides(void)
{
    struct k8s_config c;
    struct kc_err err = {0};
    int rc =
        parse(&c,
              HEAD CONTEXTS "clusters:\n- {name: c1, cluster: {server: 'https://a:1'}}\n"
                            "- name: c2\n  cluster:\n    server: https://10.0.0.1:6443/\n"
                            "    certificate-authority: pki/ca.crt\n"
                            "users:\n- name: u2\n  user:\n    client-certificate-data: Q0VSVA==\n"
                            "    client-key-data: S0VZ\n",
              &err);
    KT_EQ(rc, 0);
    KT_STR(c.server, "https://10.0.0.1:6443");
    KT_STR(c.namespace_, "apps");
    KT_STR(c.ca_file, "/etc/kube/pki/ca.crt");
    KT_TRUE(c.ca_pem == NULL && c.cert_file == NULL);
    KT_STR(c.cert_pem, "CERT");
    KT_STR(c.key_pem, "KEY");
    k8s_config_fini(&c);
}

static void a_token_may_be_a_file_or_text(void)
{
    struct k8s_config c;
    KT_EQ(parse(&c,
                HEAD CONTEXTS "clusters: [{name: c2, cluster: {server: 'https://a'}}]\n"
                              "users: [{name: u2, user: {token: abc}}]\n",
                NULL),
          0);
    KT_STR(c.token, "abc");
    k8s_config_fini(&c);
    KT_EQ(parse(&c,
                HEAD CONTEXTS "clusters: [{name: c2, cluster: {server: 'https://a'}}]\n"
                              "users: [{name: u2, user: {token: abc, tokenFile: /run/t}}]\n",
                NULL),
          0);
    KT_STR(c.token_file, "/run/t");
    KT_TRUE(c.token == NULL);
    k8s_config_fini(&c);
}

static void what_cannot_be_honoured_is_refused_by_name(void)
{
    static const struct {
        const char *cluster, *user, *says;
    } cases[] = {
        {"server: 'http://10.0.0.1:80'", "token: a", "https"},
        {"server: 'https://a', insecure-skip-tls-verify: true", "token: a",
         "insecure-skip-tls-verify"},
        {"server: 'https://a', tls-server-name: b", "token: a", "tls-server-name"},
        {"server: 'https://a'", "exec: {command: x}", "exec"},
        {"server: 'https://a'", "client-key-data: '?'", "base64"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[1024];
        struct k8s_config c;
        struct kc_err err = {0};
        snprintf(text, sizeof(text),
                 HEAD CONTEXTS
                 "clusters: [{name: c2, cluster: {%s}}]\nusers: [{name: u2, user: {%s}}]\n",
                 cases[i].cluster, cases[i].user);
        KT_TRUE(parse(&c, text, &err) < 0);
        KT_TRUE(strstr(err.msg, cases[i].says) != NULL);
    }
}

static void a_context_that_leads_nowhere_is_an_error(void)
{
    struct k8s_config c;
    struct kc_err err = {0};
    KT_TRUE(parse(&c, "current-context: none\n", &err) < 0);
    KT_TRUE(strstr(err.msg, "none") != NULL);
    KT_TRUE(parse(&c, HEAD CONTEXTS, &err) < 0);
    KT_TRUE(parse(&c, "just text", &err) < 0);
    KT_TRUE(parse(&c, "{a: [", &err) < 0);
}

static void loopback_may_be_plain_http(void)
{
    struct k8s_config c;
    KT_EQ(parse(&c,
                HEAD CONTEXTS
                "clusters: [{name: c2, cluster: {server: 'http://127.0.0.1:8001'}}]\n",
                NULL),
          0);
    KT_STR(c.server, "http://127.0.0.1:8001");
    k8s_config_fini(&c);
}

static void write_file(const char *root, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/var/run/secrets/kubernetes.io/serviceaccount/%s", root, name);
    kt_file_write(path, "%s", text);
}

static void a_pod_finds_its_account(void)
{
    char root[KT_DIR_MAX], path[512];
    kt_dir_make(root);
    static const char *const dirs[] = {"var", "var/run", "var/run/secrets",
                                       "var/run/secrets/kubernetes.io",
                                       "var/run/secrets/kubernetes.io/serviceaccount"};
    for (size_t i = 0; i < 5; i++) {
        snprintf(path, sizeof(path), "%s/%s", root, dirs[i]);
        KT_EQ(mkdir(path, 0700), 0);
    }
    struct k8s_config c = {0};
    struct kc_err err = {0};
    setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
    setenv("KUBERNETES_SERVICE_PORT", "6443", 1);
    KT_TRUE(k8s_config_in_cluster(&c, root, &err) < 0);
    KT_TRUE(strstr(err.msg, "namespace") != NULL);
    write_file(root, "namespace", "apps\n");
    KT_EQ(k8s_config_in_cluster(&c, root, &err), 0);
    KT_STR(c.server, "https://[fd00::1]:6443");
    KT_STR(c.namespace_, "apps");
    KT_TRUE(strstr(c.token_file, "/serviceaccount/token") != NULL);
    k8s_config_fini(&c);
    unsetenv("KUBERNETES_SERVICE_HOST");
    KT_TRUE(k8s_config_in_cluster(&c, root, &err) < 0);
    write_file(root, "namespace", "");
    kt_dir_remove(root);
}

KT_MAIN("config", KT(the_current_context_decides), KT(a_token_may_be_a_file_or_text),
        KT(what_cannot_be_honoured_is_refused_by_name),
        KT(a_context_that_leads_nowhere_is_an_error), KT(loopback_may_be_plain_http),
        KT(a_pod_finds_its_account))
