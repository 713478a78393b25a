/* k8s_client.h - asynchronous requests to the Kubernetes API server.
 *
 * libcurl's multi interface driven by the owner's libuv loop: nothing here blocks it. The server is
 * an IP address in a pod; should a kubeconfig name a host, libcurl's resolver thread looks it up.
 * HTTP/1.1 on kept-alive connections: a watch has one of its own, so that no slow reader holds up
 * another request, as streams of one HTTP/2 connection could. One owner loop: every call and every
 * callback happens on it. */
#ifndef K8S_CLIENT_H
#define K8S_CLIENT_H

#include <jansson.h>

#include "base/kc_error.h"
#include "k8s/k8s_config.h"
#include "rt/rt_loop.h"

struct k8s_client;
struct k8s_call;

/* A kind as the API server addresses it: {"v1", "configmaps"}, {"apps/v1", "statefulsets"}. */
struct k8s_resource {
    const char *api;
    const char *plural;
};

enum k8s_method { K8S_GET, K8S_POST, K8S_PUT, K8S_PATCH, K8S_DELETE };

#define K8S_MERGE_PATCH "application/merge-patch+json"
#define K8S_APPLY_PATCH "application/apply-patch+yaml" /* JSON is valid YAML */

/* Strings and body are borrowed for the call of k8s_send only. */
struct k8s_request {
    enum k8s_method method;
    struct k8s_resource resource;
    const char *ns; /* NULL = cluster-scoped, or all namespaces */
    const char *name; /* NULL = the collection */
    const char *subresource; /* "status", "scale" or NULL */
    const char *query; /* encoded, without '?', or NULL */
    const char *content_type; /* NULL = application/json */
    const json_t *body; /* NULL = none */
    int64_t timeout_ms; /* whole request; 0 = 10 s */
    size_t max_bytes; /* of the answer; 0 = 16 MiB */
};

struct k8s_result {
    int code; /* HTTP status; 0 = no whole answer came */
    int error; /* with code 0: KC_E_TIMEOUT, KC_E_BUSY, KC_E_TOO_LARGE, KC_E_CLOSED, … */
    const char *reason; /* metav1.Status reason ("NotFound", "Conflict", "Expired"), or "" */
    const char *message; /* metav1.Status message, or what the transport says */
    int64_t retry_after_ms; /* what the server asks for (429, 503); 0 = nothing */
    json_t *doc; /* the object, the list, or the Status; NULL if none; borrowed */
};
/* Every call ends in exactly one done, later than k8s_send returns, unless it is cancelled. */
typedef void (*k8s_done)(void *ctx, const struct k8s_result *r);

static inline bool k8s_ok(const struct k8s_result *r)
{
    return r->code >= 200 && r->code < 300;
}

/* Copies what it needs of cfg. NULL with err filled, e.g. when libcurl cannot start. */
struct k8s_client *k8s_client_new(struct rt_loop *loop, const struct k8s_config *cfg,
                                  struct kc_err *err) KC_MUST_CHECK;
/* Cancels what runs; watches must have been stopped before. NULL allowed. */
void k8s_client_free(struct k8s_client *c);

/* The handle is valid until done has been called; done may be NULL. Never fails at once: a request
 * that cannot be sent ends with code 0. */
struct k8s_call *k8s_send(struct k8s_client *c, const struct k8s_request *req, k8s_done done,
                          void *ctx);
/* done is not called any more. */
void k8s_cancel(struct k8s_call *call);
/* The commonest of all. */
struct k8s_call *k8s_get(struct k8s_client *c, struct k8s_resource resource, const char *ns,
                         const char *name, k8s_done done, void *ctx);

/* Appends key=value to a query being built in out ("" at first), value percent-encoded. Returns 0
 * or KC_E_TOO_LARGE. */
int k8s_query_add(char *out, size_t cap, const char *key, const char *value) KC_MUST_CHECK;
/* "/api/v1/namespaces/ns/configmaps/name/status?query" of a request; KC_E_MALFORMED for a name that
 * is no path segment. */
int k8s_request_path(const struct k8s_request *req, char *out, size_t cap) KC_MUST_CHECK;

#endif
