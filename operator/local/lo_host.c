#include "local/lo_host.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_json.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "local/lo_child.h"
#include "local/lo_objects.h"
#include "local/lo_plan.h"
#include "local/lo_probe.h"
#include "store/ko_object.h"

enum {
    TICK_MS = 100,
    BACKOFF_MIN_MS = 100,
    BACKOFF_MAX_MS = 10000,
    STEADY_MS = 10000, /* a child that ran this long starts with the shortest back-off again */
    ENV_MAX = 512
};

/* One ordinal: its Pod object, and the process in it. */
struct pod {
    struct lo_host *host;
    int32_t ordinal;
    bool exists; /* a Pod object was asked for */
    bool terminating; /* the process is to end, then the object */
    bool ready;
    char uid[40], created[32], revision[11];
    char program[PATH_MAX]; /* that its image names; "" = the host's kaas-broker */
    char since[32]; /* of the last change of readiness */
    int32_t restarts, exit_code;
    int64_t grace_s;
    int64_t ready_since_ms, started_ms, next_start_ms, kill_ms, backoff_ms;
    struct lo_child *child;
    struct lo_probe *probe;
};

struct lo_host {
    struct lo_host_opts o;
    char *dir, *broker;
    struct ko_watch *clusters, *sets;
    json_t *sts; /* the StatefulSet, NULL before it exists */
    struct ko_cluster *cluster;
    char revision[11];
    uv_timer_t tick;
    struct pod *pods; /* LO_BROKERS_MAX */
    bool gone; /* the StatefulSet was deleted; sts is its last state */
    bool draining, slice_dirty;
};

static void pod_name(const struct pod *p, char out[280])
{
    snprintf(out, 280, "%s-%d", ko_name(p->host->sts), p->ordinal);
}

static struct lo_pod_state state_of(const struct pod *p)
{
    return (struct lo_pod_state){.ordinal = p->ordinal,
                                 .uid = p->uid,
                                 .created = p->created,
                                 .running = p->child != NULL,
                                 .ready = p->ready,
                                 .terminating = p->terminating,
                                 .restarts = p->restarts,
                                 .exit_code = p->exit_code};
}

static void write_status(struct pod *p)
{
    char name[280];
    struct lo_host *h = p->host;
    struct lo_pod_state s = state_of(p);
    pod_name(p, name);
    json_t *doc = lo_pod_status_doc(ko_ns(h->sts), name, &s, p->since);
    h->o.store->ops->apply_status(h->o.store, KO_POD, doc, NULL, NULL);
    json_decref(doc);
    h->slice_dirty = true;
}

static void set_ready(struct pod *p, bool ready)
{
    if (p->ready != ready || !*p->since) {
        p->ready = ready;
        p->ready_since_ms = kc_mono_ms();
        kc_rfc3339(kc_wall_ms(), false, p->since);
        kc_log(KC_INFO, "local", "event=pod_ready broker=%d ready=%s", p->ordinal,
               ready ? "true" : "false");
    }
    write_status(p);
}

static void on_ready(void *ctx, bool ready)
{
    struct pod *p = ctx;
    if (p->child && *p->uid) {
        set_ready(p, ready);
    }
}

/* ---- the process ---- */

static void delete_pod(struct pod *p)
{
    char name[280];
    struct lo_host *h = p->host;
    pod_name(p, name);
    h->o.store->ops->remove(h->o.store, KO_POD, ko_ns(h->sts), name, p->uid, NULL, NULL);
    lo_probe_stop(p->probe);
    *p = (struct pod){.host = h, .ordinal = p->ordinal};
    h->slice_dirty = true;
}

static void maybe_drained(struct lo_host *h)
{
    for (int32_t i = 0; i < LO_BROKERS_MAX; i++) {
        if (h->pods[i].child) {
            return;
        }
    }
    if (h->draining && h->o.drained) {
        h->o.drained(h->o.ctx);
        h->o.drained = NULL;
    }
}

static void on_exited(void *ctx, struct lo_child *child, int status)
{
    struct pod *p = ctx;
    struct lo_host *h = p->host;
    int64_t now = kc_mono_ms();
    kc_log(KC_WARN, "local", "event=broker_exited broker=%d code=%d signal=%d", p->ordinal,
           WIFEXITED(status) ? WEXITSTATUS(status) : -1,
           WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    lo_child_free(child);
    p->child = NULL;
    lo_write_pid(h->dir, p->ordinal, 0);
    lo_probe_reset(p->probe);
    p->backoff_ms =
        now - p->started_ms >= STEADY_MS
            ? BACKOFF_MIN_MS
            : KC_MIN(KC_MAX(2 * p->backoff_ms, (int64_t)BACKOFF_MIN_MS), (int64_t)BACKOFF_MAX_MS);
    p->next_start_ms = now + p->backoff_ms;
    p->restarts++;
    p->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (p->terminating && !h->draining) {
        delete_pod(p);
    } else {
        set_ready(p, false);
    }
    maybe_drained(h);
}

/* The operator's environment plus what a pod would have. */
static void spawn(struct pod *p)
{
    struct lo_host *h = p->host;
    struct kc_err err;
    char config[PATH_MAX], log[PATH_MAX], id[12], name[280];
    char env_name[300], env_ns[300], env_uid[60];
    const char *env[ENV_MAX + 4];
    int n = 0;
    pod_name(p, name);
    snprintf(config, sizeof(config), "%s/brokers/%d/broker.yaml", h->dir, p->ordinal);
    snprintf(log, sizeof(log), "%s/brokers/%d/log", h->dir, p->ordinal);
    snprintf(id, sizeof(id), "%d", p->ordinal);
    snprintf(env_name, sizeof(env_name), "POD_NAME=%s", name);
    snprintf(env_ns, sizeof(env_ns), "POD_NAMESPACE=%s", ko_ns(h->sts));
    snprintf(env_uid, sizeof(env_uid), "POD_UID=%s", p->uid);
    while (environ[n] && n < ENV_MAX) {
        env[n] = environ[n];
        n++;
    }
    env[n++] = env_name;
    env[n++] = env_ns;
    env[n++] = env_uid;
    env[n] = NULL;
    const char *program = *p->program ? p->program : h->broker;
    const char *argv[] = {program, "--config", config, "--id", id, NULL};
    struct lo_child_opts co = {h->o.loop, argv, env, log, on_exited, p};
    int rc = lo_write_broker_file(h->dir, &h->o.ports, h->cluster, p->ordinal, &err);
    rc = rc ? rc : lo_child_start(&co, &p->child, &err);
    p->started_ms = kc_mono_ms();
    if (rc) {
        p->next_start_ms = p->started_ms + BACKOFF_MAX_MS;
        kc_log(KC_ERROR, "local", "event=broker_start_failed broker=%d error=\"%s\"", p->ordinal,
               err.msg);
        return;
    }
    lo_write_pid(h->dir, p->ordinal, lo_child_pid(p->child));
    kc_log(KC_INFO, "local", "event=broker_started broker=%d pid=%d", p->ordinal,
           lo_child_pid(p->child));
    if (!p->probe) {
        p->probe = lo_probe_start(h->o.loop, lo_port_health(&h->o.ports, p->ordinal), on_ready, p);
    }
    write_status(p);
}

/* ---- the Pod object ---- */

static void on_pod_there(void *ctx, const struct ko_result *r)
{
    struct pod *p = ctx;
    struct lo_host *h = p->host;
    char name[280];
    if (!p->exists || !h->sts) {
        return;
    }
    pod_name(p, name);
    if (r->code == 409) { /* of an earlier life of this host */
        h->o.store->ops->get(h->o.store, KO_POD, ko_ns(h->sts), name, on_pod_there, p);
        return;
    }
    if (r->code != 200 && r->code != 201) {
        kc_log(KC_ERROR, "local", "event=pod_create_failed broker=%d code=%d", p->ordinal, r->code);
        p->exists = false;
        return;
    }
    snprintf(p->uid, sizeof(p->uid), "%s", ko_uid(r->doc));
    snprintf(p->created, sizeof(p->created), "%s",
             kc_json_str(r->doc, "metadata.creationTimestamp", ""));
    snprintf(p->revision, sizeof(p->revision), "%s", ko_label(r->doc, "controller-revision-hash"));
    snprintf(p->program, sizeof(p->program), "%s", lo_pod_program(r->doc));
    p->grace_s = lo_pod_grace_s(r->doc);
    if (p->terminating) {
        delete_pod(p); /* unwanted again meanwhile */
        return;
    }
    set_ready(p, false);
}

static void create_pod(struct pod *p)
{
    struct lo_host *h = p->host;
    p->exists = true;
    json_t *doc = lo_pod_doc(h->sts, p->ordinal, h->revision);
    h->o.store->ops->create(h->o.store, KO_POD, doc, on_pod_there, p);
    json_decref(doc);
}

static void terminate(struct pod *p, int64_t now)
{
    if (!p->terminating && p->child) {
        kc_log(KC_INFO, "local", "event=broker_stopping broker=%d", p->ordinal);
        p->kill_ms = now + p->grace_s * 1000;
        lo_child_signal(p->child, SIGTERM);
        /* A SIGSTOPped child would sit out the grace period without seeing it. */
        lo_child_signal(p->child, SIGCONT);
    }
    p->terminating = true;
    if (p->child) {
        write_status(p);
    } else if (*p->uid && !p->host->draining) {
        delete_pod(p);
    }
}

/* ---- the controller ---- */

static void write_slice(struct lo_host *h)
{
    struct lo_pod_state pods[LO_BROKERS_MAX];
    int32_t n = 0;
    struct lo_sts_counts counts = {0};
    int64_t now = kc_mono_ms(),
            min_ready_ms = kc_json_int(h->sts, "spec.minReadySeconds", 0) * 1000;
    for (int32_t i = 0; i < LO_BROKERS_MAX; i++) {
        const struct pod *p = &h->pods[i];
        if (!p->exists || !*p->uid) {
            continue;
        }
        pods[n++] = state_of(p);
        counts.replicas++;
        counts.ready += p->ready;
        counts.available += p->ready && now - p->ready_since_ms >= min_ready_ms;
        counts.updated += strcmp(p->revision, h->revision) == 0;
    }
    json_t *slice = lo_slice_doc(h->sts, pods, n);
    h->o.store->ops->apply(h->o.store, KO_ENDPOINTSLICE, slice, "local-endpoints", NULL, NULL);
    json_decref(slice);
    json_t *status = lo_sts_status_doc(h->sts, &counts, h->revision);
    if (!json_equal(json_object_get(status, "status"), json_object_get(h->sts, "status"))) {
        h->o.store->ops->apply_status(h->o.store, KO_STATEFULSET, status, NULL, NULL);
    }
    json_decref(status);
    h->slice_dirty = false;
}

static void run_processes(struct lo_host *h, int64_t now)
{
    for (int32_t i = 0; i < LO_BROKERS_MAX; i++) {
        struct pod *p = &h->pods[i];
        if (p->child && p->terminating && now >= p->kill_ms) {
            kc_log(KC_WARN, "local", "event=broker_killed broker=%d reason=grace_period", i);
            lo_child_signal(p->child, SIGKILL);
            p->kill_ms = INT64_MAX;
        }
        if (p->exists && *p->uid && !p->child && !p->terminating && !h->draining &&
            now >= p->next_start_ms && h->cluster && !lo_held(h->dir, i)) {
            spawn(p);
        }
    }
}

static void reconcile(struct lo_host *h, int64_t now)
{
    struct lo_pod_view views[LO_BROKERS_MAX];
    enum lo_action actions[LO_BROKERS_MAX];
    struct lo_wish wish = {
        .replicas = (int32_t)kc_json_int(h->sts, "spec.replicas", 0),
        .partition = (int32_t)kc_json_int(h->sts, "spec.updateStrategy.rollingUpdate.partition", 0),
        .min_ready_ms = kc_json_int(h->sts, "spec.minReadySeconds", 0) * 1000,
    };
    wish.replicas = KC_MIN(KC_MAX(wish.replicas, 0), (int32_t)LO_BROKERS_MAX);
    for (int32_t i = 0; i < LO_BROKERS_MAX; i++) {
        const struct pod *p = &h->pods[i];
        views[i] = (struct lo_pod_view){p->exists, p->terminating, p->ready,
                                        !*p->uid || strcmp(p->revision, h->revision) == 0,
                                        p->ready_since_ms};
    }
    lo_plan(&wish, views, LO_BROKERS_MAX, now, actions);
    for (int32_t i = LO_BROKERS_MAX - 1; i >= 0; i--) {
        if (actions[i] == LO_START) {
            create_pod(&h->pods[i]);
        } else if (actions[i] == LO_STOP) {
            terminate(&h->pods[i], now);
        }
    }
}

static void on_tick(uv_timer_t *t)
{
    struct lo_host *h = t->data;
    int64_t now = kc_mono_ms();
    if (h->sts && !h->gone && !h->draining) {
        reconcile(h, now);
    }
    run_processes(h, now);
    if (h->sts && h->slice_dirty) {
        write_slice(h);
    }
}

static void on_set(void *ctx, enum ko_event ev, json_t *doc)
{
    struct lo_host *h = ctx;
    if (ev == KO_SYNCED) {
        return;
    }
    h->gone = ev == KO_DELETED;
    if (h->gone) { /* the cluster goes: so do its processes */
        for (int32_t i = LO_BROKERS_MAX - 1; i >= 0; i--) {
            if (h->pods[i].exists) {
                terminate(&h->pods[i], kc_mono_ms());
            }
        }
        return;
    }
    json_decref(h->sts);
    h->sts = json_incref(doc);
    lo_revision(doc, h->revision);
    h->slice_dirty = true;
}

static void on_cluster(void *ctx, enum ko_event ev, json_t *doc)
{
    struct lo_host *h = ctx;
    struct ko_field_errors errs;
    struct ko_cluster *c;
    /* A spec with errors is the reconciler's to report; the last good one stays. */
    if ((ev == KO_ADDED || ev == KO_MODIFIED) && ko_cluster_parse(doc, &c, &errs) == 0) {
        ko_cluster_free(h->cluster);
        h->cluster = c;
    }
}

struct lo_host *lo_host_start(const struct lo_host_opts *o)
{
    struct lo_host *h = kc_zalloc(sizeof(*h));
    h->o = *o;
    h->dir = kc_strdup(o->dir);
    h->broker = kc_strdup(o->broker);
    h->pods = kc_zalloc(LO_BROKERS_MAX * sizeof(*h->pods));
    for (int32_t i = 0; i < LO_BROKERS_MAX; i++) {
        h->pods[i] = (struct pod){.host = h, .ordinal = i};
    }
    uv_timer_init(&o->loop->uv, &h->tick);
    h->tick.data = h;
    uv_timer_start(&h->tick, on_tick, 0, TICK_MS);
    h->clusters = o->store->ops->watch(o->store, KO_KAASCLUSTER, NULL, NULL, on_cluster, h);
    h->sets = o->store->ops->watch(o->store, KO_STATEFULSET, NULL, NULL, on_set, h);
    return h;
}

int32_t lo_host_ready(const struct lo_host *h)
{
    int32_t n = 0;
    for (int32_t i = 0; i < LO_BROKERS_MAX; i++) {
        n += h->pods[i].child && h->pods[i].ready;
    }
    return n;
}

void lo_host_drain(struct lo_host *h)
{
    int64_t now = kc_mono_ms();
    h->draining = true;
    for (int32_t i = LO_BROKERS_MAX - 1; i >= 0; i--) {
        if (h->pods[i].child) {
            terminate(&h->pods[i], now);
        }
    }
    maybe_drained(h);
}

static void on_closed(uv_handle_t *t)
{
    struct lo_host *h = t->data;
    kc_free(h->pods);
    kc_free(h->dir);
    kc_free(h->broker);
    kc_free(h);
}

void lo_host_stop(struct lo_host *h)
{
    h->o.store->ops->unwatch(h->clusters);
    h->o.store->ops->unwatch(h->sets);
    for (int32_t i = 0; i < LO_BROKERS_MAX; i++) {
        lo_probe_stop(h->pods[i].probe);
        if (h->pods[i].child) {
            lo_child_kill(h->pods[i].child);
        }
    }
    json_decref(h->sts);
    ko_cluster_free(h->cluster);
    uv_close((uv_handle_t *)&h->tick, on_closed);
}
