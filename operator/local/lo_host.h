/* lo_host.h - Kubernetes' part on one machine: StatefulSet controller, kubelet and EndpointSlices.
 *
 * Watches the StatefulSet and KaasCluster objects of the store and keeps one child process an
 * ordinal: starts them, restarts them with back-off when they end (the Pod object and its uid stay,
 * as with a container), stops them by SIGTERM and, past the grace period, SIGKILL, replaces them
 * when the template changes (lo_plan.h). An image that is an absolute path is the program that the
 * pod runs; any other name is not looked at. Pods, the EndpointSlice and the StatefulSet's status are
 * written as the cluster's own controllers would, so the operator's code is the same.
 * One cluster a host. Owner: the loop of the main thread. */
#ifndef LO_HOST_H
#define LO_HOST_H

#include "local/lo_files.h"
#include "rt/rt_loop.h"
#include "store/ko_store.h"

struct lo_host;

struct lo_host_opts {
    struct rt_loop *loop;
    struct ko_store *store;
    const char *dir;
    const char *broker; /* path of kaas-broker, for pods whose image is no path */
    struct lo_ports ports;
    /* Every child has ended after lo_host_drain. */
    void (*drained)(void *ctx);
    void *ctx;
};
struct lo_host *lo_host_start(const struct lo_host_opts *o);
/* Children of this host whose /readyz says yes. */
int32_t lo_host_ready(const struct lo_host *h);
/* SIGTERM to every child, highest ordinal first; nothing is started any more. */
void lo_host_drain(struct lo_host *h);
/* Children still running are killed. */
void lo_host_stop(struct lo_host *h);

#endif
