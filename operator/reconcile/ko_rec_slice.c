/* Admission: which endpoints of which slices are brokers (design.md 3, R2-R6, R10, W1).
 *
 * Only slices of the headless Service count, and in them only endpoints whose target is a pod of our
 * StatefulSet with the hostname <cluster>-<n>. Readiness is an attribute, never a filter. An endpoint
 * whose pod has not been seen yet is looked at again when it has; after five seconds it counts as
 * foreign. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/kc_clock.h"
#include "base/kc_json.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "policy/kp_drain.h"
#include "reconcile/ko_cond.h"
#include "reconcile/ko_rec.h"

enum { UNKNOWN_POD_MS = 5000, ENDPOINTS_MAX = KP_BROKERS_MAX };

struct ko_slice {
    json_t *doc; /* NULL: deleted */
    char cluster[KO_KEY_MAX]; /* told to the control thread for this one; "" = never told */
    int64_t unknown_since_ms; /* an endpoint's pod is not known; 0 = all are */
    const json_t *reported; /* the version whose refused endpoints have been reported */
};

void ko_rec_slice_free(void *arg)
{
    struct ko_slice *s = arg;
    json_decref(s->doc);
    kc_free(s);
}

void ko_rec_slice_seen(struct ko_rec *r, enum ko_event ev, json_t *doc)
{
    char key[KO_KEY_MAX];
    int n = snprintf(key, sizeof(key), "%s/%s", ko_ns(doc), ko_name(doc));
    if (n <= 0 || (size_t)n >= sizeof(key)) {
        return;
    }
    struct ko_slice *s = kc_map_get(&r->slices, key, (size_t)n);
    if (!s) {
        s = kc_zalloc(sizeof(*s));
        kc_map_put(&r->slices, key, (size_t)n, s);
    }
    json_decref(s->doc);
    s->doc = ev == KO_DELETED ? NULL : json_incref(doc);
    ko_rec_queue(r, 's', key, 0);
}

void ko_rec_slices_of(struct ko_rec *r, const struct ko_rc *c)
{
    struct kc_map_iter it = {0};
    size_t ns = (size_t)(strchr(c->key, '/') - c->key) + 1;
    for (struct kc_map_entry *e; (e = kc_map_next(&r->slices, &it));) {
        if (strncmp(e->key, c->key, ns) == 0) {
            ko_rec_queue(r, 's', e->key, 0);
        }
    }
}

/* Kubernetes' RFC 3339 in UTC; 0 if it is not. */
static int64_t parse_time_ms(const char *s)
{
    struct tm tm = {0};
    const char *end = strptime(s, "%Y-%m-%dT%H:%M:%S", &tm);
    return end && (*end == 'Z' || *end == '.') ? (int64_t)timegm(&tm) * 1000 : 0;
}

/* R29. A deletion may shorten what the pod's own spec says (kubectl delete --grace-period). */
static int32_t grace_of(const json_t *doc)
{
    int64_t own = kc_json_int(doc, "spec.terminationGracePeriodSeconds", KP_GRACE_DEFAULT_S);
    int64_t s =
        ko_deleting(doc) ? kc_json_int(doc, "metadata.deletionGracePeriodSeconds", own) : own;
    return (int32_t)KC_MIN(KC_MAX(s, (int64_t)1), (int64_t)INT32_MAX);
}

static void set_fault(struct ko_pod *p, const char *reason, const char *text)
{
    snprintf(p->fault, sizeof(p->fault), "%s", reason);
    snprintf(p->fault_text, sizeof(p->fault_text), "%s", text);
    for (char *s = p->fault_text; *s; s++) {
        *s = *s < ' ' || *s > '~' ? '?' : *s; /* else the cut might leave half a letter */
    }
}

/* Why a container waits, except for those that are merely being made. */
static void take_containers(struct ko_pod *p, const json_t *list)
{
    size_t i;
    json_t *s;
    json_array_foreach(list, i, s)
    {
        const char *why = kc_json_str(s, "state.waiting.reason", "");
        if (!*why || strcmp(why, "ContainerCreating") == 0 || strcmp(why, "PodInitializing") == 0) {
            continue;
        }
        char text[160];
        int64_t code = kc_json_int(s, "lastState.terminated.exitCode", -1);
        snprintf(text, sizeof(text), "its last run ended with exit code %d", (int)code);
        set_fault(p, why, code >= 0 ? text : kc_json_str(s, "state.waiting.message", ""));
        return;
    }
}

static void take_fault(struct ko_pod *p, const json_t *doc)
{
    const json_t *node = ko_cond_find(kc_json_at(doc, "status.conditions"), "PodScheduled");
    set_fault(p, "", "");
    if (strcmp(kc_json_str(node, "status", ""), "False") == 0) {
        set_fault(p, kc_json_str(node, "reason", ""), kc_json_str(node, "message", ""));
    }
    take_containers(p, kc_json_at(doc, "status.initContainerStatuses"));
    take_containers(p, kc_json_at(doc, "status.containerStatuses"));
}

void ko_rec_pod_seen(struct ko_rec *r, enum ko_event ev, json_t *doc)
{
    char key[KO_KEY_MAX], cluster[KO_KEY_MAX];
    int n = snprintf(key, sizeof(key), "%s/%s", ko_ns(doc), ko_name(doc));
    if (n <= 0 || (size_t)n >= sizeof(key)) {
        return;
    }
    struct ko_pod *p = kc_map_get(&r->pods, key, (size_t)n);
    if (ev == KO_DELETED) {
        kc_free(kc_map_del(&r->pods, key, (size_t)n));
    } else {
        if (!p || strcmp(p->uid, ko_uid(doc)) != 0) {
            kc_free(p);
            p = kc_zalloc(sizeof(*p));
            kc_map_put(&r->pods, key, (size_t)n, p);
        }
        int32_t grace_s = grace_of(doc);
        bool known = *p->uid != '\0' && p->grace_s == grace_s, was_running = p->running;
        p->grace_s = grace_s;
        snprintf(p->uid, sizeof(p->uid), "%s", ko_uid(doc));
        snprintf(p->owner_uid, sizeof(p->owner_uid), "%s",
                 kc_json_str(doc, "metadata.ownerReferences.0.uid", ""));
        snprintf(p->node, sizeof(p->node), "%s", kc_json_str(doc, "spec.nodeName", ""));
        snprintf(p->revision, sizeof(p->revision), "%s", ko_label(doc, "controller-revision-hash"));
        const json_t *cond = ko_cond_find(kc_json_at(doc, "status.conditions"), "Ready");
        bool ready = strcmp(kc_json_str(cond, "status", ""), "True") == 0;
        p->ready = ready && !ko_deleting(doc);
        p->ready_since_ms = parse_time_ms(kc_json_str(cond, "lastTransitionTime", ""));
        p->unready_since_ms = ready ? 0 : p->ready_since_ms;
        p->created_ms = parse_time_ms(kc_json_str(doc, "metadata.creationTimestamp", ""));
        take_fault(p, doc);
        p->running = strcmp(kc_json_str(doc, "status.phase", ""), "Running") == 0;
        p->running_since_ms = p->running && !was_running ? kc_mono_ms() : p->running_since_ms;
        if (known) {
            return;
        }
    }
    snprintf(cluster, sizeof(cluster), "%s/%s", ko_ns(doc), ko_label(doc, "kaas.dev/cluster"));
    struct ko_rc *c = ko_rec_cluster(r, cluster);
    if (c) {
        ko_rec_slices_of(r, c);
    }
}

/* "<cluster>-<n>" gives n; -1 otherwise (R10). */
static int32_t ordinal_of(const char *hostname, const char *cluster)
{
    size_t len = strlen(cluster);
    int32_t n;
    if (strncmp(hostname, cluster, len) != 0 || hostname[len] != '-' || hostname[len + 1] == '+' ||
        (hostname[len + 1] == '0' && hostname[len + 2] != '\0') ||
        kc_parse_i32(kc_str_of(hostname + len + 1), &n) || n < 0 || n >= KP_BROKERS_MAX) {
        return -1;
    }
    return n;
}

enum verdict { ADMITTED, UNKNOWN, FOREIGN };

static enum verdict admit(struct ko_rec *r, const struct ko_rc *c, const json_t *e,
                          struct kp_endpoint *ret)
{
    char key[KO_KEY_MAX];
    const char *hostname = kc_json_str(e, "hostname", "");
    const char *uid = kc_json_str(e, "targetRef.uid", "");
    *ret = (struct kp_endpoint){.ordinal = ordinal_of(hostname, c->spec->name)};
    if (ret->ordinal < 0 || strcmp(kc_json_str(e, "targetRef.kind", ""), "Pod") != 0 ||
        strcmp(kc_json_str(e, "targetRef.name", ""), hostname) != 0 ||
        strcmp(kc_json_str(e, "targetRef.namespace", c->spec->ns), c->spec->ns) != 0) {
        return FOREIGN;
    }
    snprintf(key, sizeof(key), "%s/%s", c->spec->ns, hostname);
    const struct ko_pod *p = ko_rec_find(&r->pods, key);
    if (!p || strcmp(p->uid, uid) != 0) {
        return UNKNOWN;
    }
    if (strcmp(p->owner_uid, ko_uid(c->sts)) != 0) {
        return FOREIGN;
    }
    /* publishNotReadyAddresses forces `ready`, so `serving` is the one that tells. */
    ret->ready = kc_json_bool(e, "conditions.serving", kc_json_bool(e, "conditions.ready", false));
    ret->created_ms = p->created_ms;
    ret->grace_s = p->grace_s;
    snprintf(ret->pod_uid, sizeof(ret->pod_uid), "%s", uid);
    snprintf(ret->host, sizeof(ret->host), "%s", hostname);
    return ADMITTED;
}

static void report_foreign(struct ko_rec *r, struct ko_rc *c, const struct ko_slice *s,
                           const json_t *e)
{
    if (s->reported == s->doc) {
        return;
    }
    atomic_fetch_add(&r->m.foreign, 1);
    ko_rec_event(r, c->doc, true, "ForeignEndpoint",
                 "EndpointSlice %.100s lists \"%.60s\" (target \"%.60s\"), which is no pod of the "
                 "StatefulSet; it is not registered",
                 ko_name(s->doc), kc_json_str(e, "hostname", ""),
                 kc_json_str(e, "targetRef.name", ""));
}

static void withdraw(struct ko_rec *r, struct ko_slice *s, const char *key)
{
    if (*s->cluster) {
        struct ko_rc *c = ko_rec_cluster(r, s->cluster);
        if (c && c->spec_told) {
            ko_control_slice_deleted(r->control, s->cluster, key);
        }
        s->cluster[0] = '\0';
    }
}

/* The cluster whose headless Service this slice belongs to; NULL if none, or none yet. */
static struct ko_rc *cluster_of(struct ko_rec *r, const json_t *doc)
{
    char key[KO_KEY_MAX];
    const char *service = ko_label(doc, "kubernetes.io/service-name");
    size_t len = strlen(service);
    if (len <= 8 || strcmp(service + len - 8, "-brokers") != 0) {
        return NULL;
    }
    snprintf(key, sizeof(key), "%s/%.*s", ko_ns(doc), (int)(len - 8), service);
    return ko_rec_cluster(r, key);
}

static void tell(struct ko_rec *r, struct ko_rc *c, struct ko_slice *s, const char *key)
{
    struct kp_endpoint *eps = kc_alloc(ENDPOINTS_MAX * sizeof(*eps));
    int32_t n = 0;
    bool unknown = false, foreign = false;
    int64_t now = kc_mono_ms();
    size_t i;
    json_t *e;
    json_array_foreach(json_object_get(s->doc, "endpoints"), i, e)
    {
        enum verdict v = n < ENDPOINTS_MAX ? admit(r, c, e, &eps[n]) : FOREIGN;
        bool late =
            v == UNKNOWN && s->unknown_since_ms && now - s->unknown_since_ms >= UNKNOWN_POD_MS;
        if (v == ADMITTED) {
            n++;
        } else if (v == FOREIGN || late) {
            report_foreign(r, c, s, e);
            foreign = true;
        } else {
            unknown = true;
        }
    }
    if (unknown && !s->unknown_since_ms) {
        s->unknown_since_ms = now;
        ko_rec_queue(r, 's', key, UNKNOWN_POD_MS);
    } else if (!unknown) {
        s->unknown_since_ms = 0;
    }
    s->reported = foreign ? s->doc : s->reported;
    snprintf(s->cluster, sizeof(s->cluster), "%s", c->key);
    ko_control_slice(r->control, c->key, key, eps, n);
    kc_free(eps);
}

void ko_rec_slice_run(struct ko_rec *r, const char *queue_key)
{
    const char *key = queue_key + 2;
    struct ko_slice *s = ko_rec_find(&r->slices, key);
    struct ko_rc *c = s && s->doc ? cluster_of(r, s->doc) : NULL;
    if (s && (!s->doc || !c || (*s->cluster && strcmp(s->cluster, c->key) != 0))) {
        withdraw(r, s, key);
    }
    if (s && !s->doc) {
        kc_map_del(&r->slices, key, strlen(key));
        ko_rec_slice_free(s);
    } else if (c && c->spec && c->spec_told && c->sts) {
        tell(r, c, s, key);
    }
    ko_rec_finished(r, queue_key, true);
}
