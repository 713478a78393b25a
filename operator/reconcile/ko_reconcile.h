/* ko_reconcile.h - makes the cluster what its resources say, and the resources say what it is.
 *
 * Informers over an object store feed a queue of keys; a KaasCluster is reconciled by a table of
 * steps that apply the documents of operator/build, a KaasTopic by the rules of design.md 2. Facts go
 * to the control thread (ko_control), its views come back as status, KaasBroker objects and Events,
 * its admin requests become objects. Writes happen only while this process holds the Lease; facts
 * are told by standbys, too. Failures retry with back-off and show in conditions.
 * Owner: the API loop. */
#ifndef KO_RECONCILE_H
#define KO_RECONCILE_H

#include "build/ko_build.h"
#include "control/ko_control.h"
#include "store/ko_store.h"

struct ko_rec;

struct ko_rec_opts {
    struct ko_store *store;
    const char *ns; /* NULL = all namespaces */
    struct ko_build_opts build;
    const char *component; /* source of events: "kaas-operator" */
    /* Local host: where clients connect, instead of the bootstrap Service. NULL = Kubernetes. */
    const char *local_bootstrap;
};

struct ko_rec *ko_rec_new(const struct ko_rec_opts *o);
/* The callbacks to start the control thread with. */
struct ko_control_callbacks ko_rec_callbacks(struct ko_rec *r);
/* Begins to watch. control outlives the reconciler. */
void ko_rec_start(struct ko_rec *r, struct ko_control *control);
/* Ends the watches and forgets calls under way. On the loop, before the store is freed. */
void ko_rec_stop(struct ko_rec *r);

bool ko_rec_synced(const struct ko_rec *r);
/* Nothing is due, under way or waiting to be written now (back-offs may run). */
bool ko_rec_idle(const struct ko_rec *r);
struct ko_rec_metrics {
    uint64_t reconciles, failures, applies, status_writes, events, foreign_endpoints, queue_len;
    uint32_t clusters, topics;
    bool leader;
};
/* [any thread]: reads atomics. */
void ko_rec_metrics_read(const struct ko_rec *r, struct ko_rec_metrics *ret);
/* What is known of each cluster, for /metrics (ko_gauges.h). */
const struct ko_gauges *ko_rec_gauges(const struct ko_rec *r);

#endif
