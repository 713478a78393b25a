/* ko_host.h - what both hosts of the operator have: the API loop, reconciler, control thread, health
 * port. Internal to operator/app. Owner: the API loop, which is the main thread's. */
#ifndef KO_HOST_H
#define KO_HOST_H

#include "control/ko_control.h"
#include "reconcile/ko_reconcile.h"
#include "rt/rt_http.h"

struct ko_host {
    struct rt_loop loop;
    struct ko_store *store;
    struct ko_rec *rec;
    struct ko_control *control;
    struct rt_http *http;
    uv_signal_t term, interrupt;
    void (*on_stop)(void *ctx, bool again); /* a signal came; again: it is not the first */
    void *ctx;
    int signals;
};

struct ko_host_opts {
    struct ko_rec_opts rec;
    struct ko_control_opts control; /* store and callbacks are filled in */
    const char *health_bind;
    uint16_t health_port;
};

/* The loop, before anything that needs it. */
int ko_host_init(struct ko_host *h, struct kc_err *err);
/* With h->store set: reconciler, control thread, health port. */
int ko_host_start(struct ko_host *h, const struct ko_host_opts *o, struct kc_err *err);
/* Runs until ko_host_stop, then takes everything down. */
void ko_host_run(struct ko_host *h);
/* Ends the run: releases the Lease, closes streams and watches. On the loop. */
void ko_host_stop(struct ko_host *h);

#endif
