/* kb_cluster.h - a broker of a cluster: wires broker/cluster to the rest of the process.
 *
 * The counterpart of kb_self.h. Owner: the control loop, except where marked. */
#ifndef KB_CLUSTER_H
#define KB_CLUSTER_H

#include "app/kb_config.h"
#include "cluster/kl_cluster.h"
#include "handlers/kb_context.h"

struct kb_cluster {
    struct kb_app *app;
    struct kl_cluster *control;
    void (*first_image)(void *ctx); /* clients can be answered from now on */
    void (*drained)(void *ctx);
    void *ctx;
    bool imaged;
};

/* Fills c (callbacks and ctx are set by the caller) and starts the control plane; sets app->admin.
 * 0 or an error of kl_start. */
int kb_cluster_start(struct kb_cluster *c, struct kb_app *app, const struct kb_config *config,
                     const struct kp_listener *listeners, const char *version,
                     struct rt_loop *control, struct kc_err *err) KC_MUST_CHECK;

#endif
