/* ko_store.h - the object store the operator works against.
 *
 * Two implementations behind one port: the Kubernetes API server (ko_store_k8s) and files of one
 * machine with revisions (ko_store_local), so that reconcilers are the same code (design.md, 1).
 * Objects are Kubernetes documents (jansson). One owner loop: calls and callbacks run on it; no
 * call blocks. Result codes are HTTP's, as the API server gives them. */
#ifndef KO_STORE_H
#define KO_STORE_H

#include <jansson.h>

#include "base/kc_error.h"
#include "rt/rt_loop.h"

/* X(ENUM, "group/version", "plural", "Kind", namespaced) */
#define KO_KINDS(X)                                                                                \
    X(KO_KAASCLUSTER, "kaas.dev/v1alpha1", "kaasclusters", "KaasCluster", true)                    \
    X(KO_KAASBROKER, "kaas.dev/v1alpha1", "kaasbrokers", "KaasBroker", true)                       \
    X(KO_KAASTOPIC, "kaas.dev/v1alpha1", "kaastopics", "KaasTopic", true)                          \
    X(KO_KAASUSER, "kaas.dev/v1alpha1", "kaasusers", "KaasUser", true)                             \
    X(KO_STATEFULSET, "apps/v1", "statefulsets", "StatefulSet", true)                              \
    X(KO_SERVICE, "v1", "services", "Service", true)                                               \
    X(KO_CONFIGMAP, "v1", "configmaps", "ConfigMap", true)                                         \
    X(KO_POD, "v1", "pods", "Pod", true)                                                           \
    X(KO_SECRET, "v1", "secrets", "Secret", true)                                                  \
    X(KO_SERVICEACCOUNT, "v1", "serviceaccounts", "ServiceAccount", true)                          \
    X(KO_PVC, "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true)                       \
    X(KO_ROLE, "rbac.authorization.k8s.io/v1", "roles", "Role", true)                              \
    X(KO_ROLEBINDING, "rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding", true)         \
    X(KO_PDB, "policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", true)                    \
    X(KO_ENDPOINTSLICE, "discovery.k8s.io/v1", "endpointslices", "EndpointSlice", true)            \
    X(KO_LEASE, "coordination.k8s.io/v1", "leases", "Lease", true)                                 \
    X(KO_EVENT, "v1", "events", "Event", true)                                                     \
    X(KO_TOKENREVIEW, "authentication.k8s.io/v1", "tokenreviews", "TokenReview", false)

enum ko_kind {
#define X(id, gv, plural, kind, ns) id,
    KO_KINDS(X)
#undef X
        KO_KIND_COUNT
};

struct ko_result {
    int code; /* 200, 201, 404, 409, 410, 422, …; 0 = no answer (network, timeout) */
    const char *reason; /* metav1.Status reason or "" */
    const char *message;
    json_t *doc; /* borrowed; the object, the list, or the Status; NULL if none */
};
typedef void (*ko_done)(void *ctx, const struct ko_result *r);

/* Called for every object of a watch, first for those that exist (ADDED), then synced once, then
 * for changes. A relist synthesises DELETED for what vanished (410 Gone, reconnects). Documents are
 * borrowed and immutable. */
enum ko_event { KO_ADDED, KO_MODIFIED, KO_DELETED, KO_SYNCED };
typedef void (*ko_watch_fn)(void *ctx, enum ko_event ev, json_t *doc);

struct ko_store;
struct ko_watch;
struct ko_store_ops {
    void (*get)(struct ko_store *s, enum ko_kind k, const char *ns, const char *name, ko_done done,
                void *ctx);
    /* selector: label selector or NULL. doc of the result is the List. */
    void (*list)(struct ko_store *s, enum ko_kind k, const char *ns, const char *selector,
                 ko_done done, void *ctx);
    void (*create)(struct ko_store *s, enum ko_kind k, json_t *doc, ko_done done, void *ctx);
    /* Replaces; metadata.resourceVersion in doc makes it a compare-and-swap (409 on conflict). */
    void (*update)(struct ko_store *s, enum ko_kind k, json_t *doc, ko_done done, void *ctx);
    /* Server-side apply with force under the field manager "kaas-operator" (or with a suffix:
     * manager NULL = default). Local store: merge of the fields given. */
    void (*apply)(struct ko_store *s, enum ko_kind k, json_t *doc, const char *manager,
                  ko_done done, void *ctx);
    /* Server-side apply to the /status subresource. */
    void (*apply_status)(struct ko_store *s, enum ko_kind k, json_t *doc, ko_done done, void *ctx);
    /* JSON merge patch (finalizers, annotations). */
    void (*merge)(struct ko_store *s, enum ko_kind k, const char *ns, const char *name,
                  json_t *patch, ko_done done, void *ctx);
    /* uid NULL or a precondition. */
    void (*remove)(struct ko_store *s, enum ko_kind k, const char *ns, const char *name,
                   const char *uid, ko_done done, void *ctx);
    /* ns NULL = all; selector NULL = all. */
    struct ko_watch *(*watch)(struct ko_store *s, enum ko_kind k, const char *ns,
                              const char *selector, ko_watch_fn fn, void *ctx);
    void (*unwatch)(struct ko_watch *w);
    void (*free)(struct ko_store *s);
};
struct ko_store {
    const struct ko_store_ops *ops;
    struct rt_loop *loop;
};

/* json_t arguments are borrowed for the call (implementations copy or serialise at once). done may
 * be NULL. */

#endif
