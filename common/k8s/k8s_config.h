/* k8s_config.h - where the API server is and how to prove who we are.
 *
 * In a pod: KUBERNETES_SERVICE_HOST/PORT and the projected ServiceAccount files. Elsewhere (tests,
 * a developer's machine): a kubeconfig. Loading reads files and is done once, at start. */
#ifndef K8S_CONFIG_H
#define K8S_CONFIG_H

#include "base/kc_error.h"

/* All strings are owned; NULL where absent. Of a pair file/pem at most one is set. */
struct k8s_config {
    char *server; /* "https://10.96.0.1:443", no trailing slash */
    char *namespace_; /* of the pod, or of the kubeconfig's context; "default" if neither says */
    char *ca_file, *ca_pem;
    char *cert_file, *cert_pem; /* client certificate and key */
    char *key_file, *key_pem;
    char *token_file; /* re-read: projected tokens rotate */
    char *token;
};

/* KUBECONFIG if set and not empty, else the pod's own account. */
int k8s_config_load(struct k8s_config *ret, struct kc_err *err) KC_MUST_CHECK;
/* The pod's account. root is "" or a prefix for the ServiceAccount's folder (tests). */
int k8s_config_in_cluster(struct k8s_config *ret, const char *root,
                          struct kc_err *err) KC_MUST_CHECK;
/* The current context of a kubeconfig's text; dir resolves its relative file names. Server
 * certificates are always verified, and plain HTTP is accepted only for a loopback address. */
int k8s_config_parse(struct k8s_config *ret, const char *yaml, size_t len, const char *dir,
                     struct kc_err *err) KC_MUST_CHECK;
void k8s_config_fini(struct k8s_config *c); /* a zeroed one is fine */

/* Reads a small file whole (terminated); NULL with errno set. Returns owned. */
char *k8s_read_file(const char *path, size_t max_bytes, size_t *ret_len) KC_MUST_CHECK;

#endif
