/* k8s_watch.h - the objects of a kind, kept current: list, then watch, for ever.
 *
 * fn hears ADDED for every object that exists, SYNCED once, then changes. The watch remembers the
 * last document of each object, so that a relist (410 Gone, or a version the server forgot) tells
 * exactly what changed meanwhile, deletions included, and nothing else. Failures are retried with
 * back-off and jitter until k8s_watch_stop. Runs on the client's loop.
 *
 * One ConfigMap by name:
 *
 *   struct k8s_watch_opts o = {.resource = {"v1", "configmaps"}, .ns = ns, .name = "demo-image"};
 *   w = k8s_watch_start(client, &o, on_image, ctx); */
#ifndef K8S_WATCH_H
#define K8S_WATCH_H

#include "k8s/k8s_client.h"

enum k8s_event { K8S_ADDED, K8S_MODIFIED, K8S_DELETED, K8S_SYNCED };

/* doc: borrowed for the call, immutable, take a reference to keep it; NULL with SYNCED. It has
 * apiVersion and kind, and no metadata.managedFields. DELETED carries the last document known.
 * The callee may stop the watch. */
typedef void (*k8s_watch_fn)(void *ctx, enum k8s_event ev, json_t *doc);

/* Strings are copied. */
struct k8s_watch_opts {
    struct k8s_resource resource;
    const char *ns; /* NULL = all namespaces, or a cluster-scoped kind */
    const char *name; /* one object (a field selector; RBAC with resourceNames allows it) */
    const char *label_selector; /* or NULL */
    const char *field_selector; /* or NULL; not together with name */
    int64_t idle_ms; /* no byte for so long, bookmarks included: redial; 0 = 150 s */
    int64_t backoff_max_ms; /* 0 = 2 s; five times as long when the server refuses (4xx) */
};

struct k8s_watch;
struct k8s_watch *k8s_watch_start(struct k8s_client *c, const struct k8s_watch_opts *o,
                                  k8s_watch_fn fn, void *ctx);
void k8s_watch_stop(struct k8s_watch *w); /* fn is not called any more; NULL allowed */

struct k8s_watch_health {
    bool synced; /* SYNCED has been told */
    bool connected; /* a stream is open now */
    int64_t last_byte_ms; /* monotonic; of the newest sign of life; 0 = never */
    uint64_t relists, redials;
    int last_code; /* of the newest failure; 0 = transport */
};
struct k8s_watch_health k8s_watch_health(const struct k8s_watch *w);

#endif
