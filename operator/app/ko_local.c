/* kaas-operator local: the same operator over a store of files, brokers as child processes. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/ko_commands.h"
#include "app/ko_file.h"
#include "app/ko_host.h"
#include "app/ko_token.h"
#include "base/kc_json.h"
#include "base/kc_log.h"
#include "local/lo_host.h"
#include "reconcile/ko_cond.h"
#include "store/ko_object.h"
#include "store/ko_store_local.h"

enum { READY_TICK_MS = 20 };

struct local {
    struct ko_host host;
    struct lo_host *children;
    struct ko_file *file;
    struct ko_watch *watch;
    uv_timer_t ready_timer; /* until this run has been Ready once */
    json_t *cluster; /* the KaasCluster as last seen */
    char dir[PATH_MAX], broker[PATH_MAX], ready_file[PATH_MAX];
    char token[65], bootstrap[64];
    int lock;
    bool stopping;
};

/* There is one process, so a Lease of its own in memory is always to be had. */
static struct ko_store *lease_store(void *ctx, struct rt_loop *loop)
{
    struct ko_store *s = NULL;
    (void)ctx;
    return ko_store_local_open(loop, NULL, &s, NULL) ? NULL : s;
}

static void stop_all(struct local *l)
{
    if (l->stopping) {
        return;
    }
    l->stopping = true;
    unlink(l->ready_file);
    l->host.store->ops->unwatch(l->watch);
    uv_close((uv_handle_t *)&l->ready_timer, NULL);
    json_decref(l->cluster);
    ko_file_stop(l->file);
    lo_host_stop(l->children);
    ko_host_stop(&l->host);
}

static void on_drained(void *ctx)
{
    stop_all(ctx);
}

/* The first signal lets the brokers drain, with heartbeats going on; the second ends them. */
static void on_stop(void *ctx, bool again)
{
    struct local *l = ctx;
    if (again) {
        stop_all(l);
    } else {
        lo_host_drain(l->children);
    }
}

/* Readiness of this run, for `local wait`: a file that says which process is meant. The status may
 * still be an earlier run's, so this run's children must be ready, too. */
static void on_ready_timer(uv_timer_t *t)
{
    struct local *l = t->data;
    int64_t want = kc_json_int(l->cluster, "spec.replicas", -1);
    if (strcmp(ko_cond_status(l->cluster, "Ready"), "True") != 0 ||
        kc_json_int(l->cluster, "status.serving", 0) != want ||
        lo_host_ready(l->children) != want) {
        return;
    }
    uv_timer_stop(t);
    FILE *f = fopen(l->ready_file, "we");
    if (f) {
        fprintf(f, "%d\n", (int)getpid());
        fclose(f);
    }
    printf("ready: %s serves with %lld brokers, bootstrap %s\n", ko_name(l->cluster),
           (long long)want, l->bootstrap);
    fflush(stdout);
}

static void on_cluster(void *ctx, enum ko_event ev, json_t *doc)
{
    struct local *l = ctx;
    if (ev == KO_ADDED || ev == KO_MODIFIED) {
        json_decref(l->cluster);
        l->cluster = json_incref(doc);
    }
}

static int find_broker(struct local *l, const char *given, struct kc_err *err)
{
    if (given) {
        snprintf(l->broker, sizeof(l->broker), "%s", given);
    } else {
        ssize_t n = readlink("/proc/self/exe", l->broker, sizeof(l->broker) - 32);
        l->broker[n > 0 ? n : 0] = '\0';
        char *slash = strrchr(l->broker, '/');
        char *name = slash ? slash + 1 : l->broker;
        snprintf(name, sizeof(l->broker) - (size_t)(name - l->broker), "kaas-broker");
    }
    return access(l->broker, X_OK) ? kc_fail(err, -errno, "%s: %s", l->broker, kc_strerror(-errno))
                                   : 0;
}

static int open_dir(struct local *l, const struct ko_args *a, struct kc_err *err)
{
    int rc = lo_dir_open(a->dir, &l->lock, err);
    if (rc) {
        return rc;
    }
    if (!realpath(a->dir, l->dir) || strlen(l->dir) > PATH_MAX - 1024) {
        return kc_fail(err, -ENAMETOOLONG, "%s: cannot be used", a->dir);
    }
    snprintf(l->ready_file, sizeof(l->ready_file), "%.*s/ready", PATH_MAX - 64, l->dir);
    unlink(l->ready_file);
    return lo_token(l->dir, l->token, err);
}

static int start(struct local *l, const struct ko_args *a, struct kc_err *err)
{
    char objects[PATH_MAX + 16];
    struct lo_ports ports = {a->port};
    snprintf(objects, sizeof(objects), "%s/objects", l->dir);
    snprintf(l->bootstrap, sizeof(l->bootstrap), "127.0.0.1:%u", a->port);
    int rc = ko_host_init(&l->host, err);
    rc = rc ? rc : ko_store_local_open(&l->host.loop, objects, &l->host.store, err);
    if (rc) {
        return rc;
    }
    l->host.on_stop = on_stop;
    l->host.ctx = l;
    struct ko_host_opts o = {
        .rec = {.build = {"", "127.0.0.1", lo_port_heartbeat(&ports)},
                .component = "kaas-operator",
                .local_bootstrap = l->bootstrap},
        .control = {.bind = "127.0.0.1",
                    .port = lo_port_heartbeat(&ports),
                    .identity = "local",
                    .lease_ns = "default",
                    .lease_name = "kaas-operator",
                    .advertised = "127.0.0.1",
                    .lease_store = lease_store,
                    .auth = ko_token_secret,
                    .auth_ctx = l->token,
                    .lease_ms = 4000,
                    .renew_deadline_ms = 3000,
                    .retry_ms = 500},
        .health_bind = "127.0.0.1",
        .health_port = lo_port_operator_health(&ports),
    };
    rc = ko_host_start(&l->host, &o, err);
    rc = rc ? rc : ko_file_start(l->host.store, a->file, &l->file, err);
    if (rc) {
        return rc;
    }
    struct lo_host_opts lo = {.loop = &l->host.loop,
                              .store = l->host.store,
                              .dir = l->dir,
                              .broker = l->broker,
                              .ports = ports,
                              .drained = on_drained,
                              .ctx = l};
    l->children = lo_host_start(&lo);
    uv_timer_init(&l->host.loop.uv, &l->ready_timer);
    l->ready_timer.data = l;
    uv_timer_start(&l->ready_timer, on_ready_timer, READY_TICK_MS, READY_TICK_MS);
    l->watch = l->host.store->ops->watch(l->host.store, KO_KAASCLUSTER, NULL, NULL, on_cluster, l);
    return 0;
}

int ko_local(const struct ko_args *a, struct kc_err *err)
{
    static struct local l;
    int rc = find_broker(&l, a->broker, err);
    rc = rc ? rc : open_dir(&l, a, err);
    rc = rc ? rc : start(&l, a, err);
    if (!rc) {
        ko_host_run(&l.host);
    }
    return rc; /* the lock goes with the process */
}
