/* A KaasCluster becomes objects and facts for the controller; its status is what the controller sees. */
#include "base/kc_json.h"
#include "base/kc_mem.h"
#include "op_bed.h"
#include "reconcile/ko_cond.h"

static void a_cluster_gets_its_objects(void)
{
    struct bed b;
    bed_start_cluster(&b, "");
    KT_EQ(bed_get(&b, KO_STATEFULSET, "demo"), 200);
    KT_EQ(kc_json_int(b.doc, "spec.replicas", 0), 3);
    KT_EQ(bed_get(&b, KO_SERVICE, "demo-brokers"), 200);
    KT_TRUE(kc_json_bool(b.doc, "spec.publishNotReadyAddresses", false)); /* W3 */
    KT_EQ(bed_get(&b, KO_SERVICE, "demo-bootstrap"), 200);
    KT_EQ(bed_get(&b, KO_SERVICE, "demo-broker-0"), 200);
    KT_EQ(bed_get(&b, KO_SERVICE, "demo-broker-2"), 200);
    KT_EQ(bed_get(&b, KO_SERVICE, "demo-broker-3"), 404);
    KT_EQ(bed_get(&b, KO_CONFIGMAP, "demo-config"), 200);
    KT_EQ(bed_get(&b, KO_PDB, "demo"), 200);
    KT_EQ(bed_get(&b, KO_SERVICEACCOUNT, "demo-broker"), 200);
    KT_EQ(bed_get(&b, KO_ROLE, "demo-broker"), 200);
    KT_EQ(bed_get(&b, KO_ROLEBINDING, "demo-broker"), 200);
    KT_TRUE(strstr(op_played.log, "cluster ns/demo 3|") != NULL);
    KT_TRUE(strstr(op_played.log, "synced ns/demo|") != NULL);
    bed_stop(&b);
}

static void drift_is_put_right(void)
{
    struct bed b;
    bed_start_cluster(&b, "");
    bed_merge(&b, KO_STATEFULSET, "demo", "spec: {replicas: 9}");
    bed_settle(&b);
    bed_get(&b, KO_STATEFULSET, "demo");
    KT_EQ(kc_json_int(b.doc, "spec.replicas", 0), 3);
    bed_remove(&b, KO_SERVICE, "demo-brokers");
    bed_settle(&b);
    KT_EQ(bed_get(&b, KO_SERVICE, "demo-brokers"), 200);
    bed_stop(&b);
}

static void a_status_of_others_is_no_drift(void)
{
    struct bed b;
    struct ko_rec_metrics before, after;
    bed_start_cluster(&b, "");
    ko_rec_metrics_read(b.rec, &before);
    json_t *doc = op_yaml("metadata: {namespace: ns, name: demo}\nstatus: {replicas: 3}");
    b.store->ops->apply_status(b.store, KO_STATEFULSET, doc, NULL, NULL);
    json_decref(doc);
    bed_settle(&b);
    ko_rec_metrics_read(b.rec, &after);
    KT_EQ(after.applies, before.applies);
    bed_stop(&b);
}

static void scaling_reaches_set_and_controller(void)
{
    struct bed b;
    bed_start_cluster(&b, "");
    bed_merge(&b, KO_KAASCLUSTER, "demo", "spec: {replicas: 2}");
    bed_settle(&b);
    bed_get(&b, KO_STATEFULSET, "demo");
    KT_EQ(kc_json_int(b.doc, "spec.replicas", 0), 2);
    KT_TRUE(strstr(op_played.log, "cluster ns/demo 2|") != NULL);
    bed_stop(&b);
}

/* A broker has its address before its pod is asked for, and keeps it until its row is gone (ADR 18). */
static void a_broker_has_its_service_for_as_long_as_its_row(void)
{
    struct bed b;
    bed_start_cluster(&b, "");
    b.cb.view(b.cb.ctx, op_view());
    bed_settle(&b);
    bed_merge(&b, KO_KAASCLUSTER, "demo", "spec: {replicas: 2}");
    bed_settle(&b);
    KT_EQ(bed_get(&b, KO_STATEFULSET, "demo"), 200);
    KT_EQ(kc_json_int(b.doc, "spec.replicas", 0), 2);
    KT_EQ(bed_get(&b, KO_SERVICE, "demo-broker-2"), 200); /* it is still being drained */
    struct ko_view *v = op_view();
    v->n_rows = 2;
    b.cb.view(b.cb.ctx, v);
    bed_settle(&b);
    KT_EQ(bed_get(&b, KO_SERVICE, "demo-broker-2"), 404);
    KT_EQ(bed_get(&b, KO_SERVICE, "demo-broker-1"), 200);
    bed_merge(&b, KO_KAASCLUSTER, "demo", "spec: {replicas: 4}");
    bed_settle(&b);
    KT_EQ(bed_get(&b, KO_SERVICE, "demo-broker-2"), 200);
    KT_EQ(bed_get(&b, KO_SERVICE, "demo-broker-3"), 200);
    bed_stop(&b);
}

/* Asked for again while its removal was under way: it is made anew. */
static void a_service_wanted_again_comes_back(void)
{
    struct bed b;
    bed_start_cluster(&b, "");
    bed_merge(&b, KO_KAASCLUSTER, "demo", "spec: {replicas: 2}");
    bed_settle(&b);
    struct ko_view *v = op_view();
    v->n_rows = 2;
    b.cb.view(b.cb.ctx, v);
    bed_merge(&b, KO_KAASCLUSTER, "demo", "spec: {replicas: 3}");
    bed_settle(&b);
    KT_EQ(bed_get(&b, KO_SERVICE, "demo-broker-2"), 200);
    bed_stop(&b);
}

static void an_invalid_spec_says_why_and_the_old_one_goes_on(void)
{
    struct bed b;
    bed_start_cluster(&b, "");
    bed_merge(&b, KO_KAASCLUSTER, "demo", "spec: {replicas: 0}");
    bed_settle(&b);
    bed_get(&b, KO_KAASCLUSTER, "demo");
    KT_STR(bed_cond(&b, "Ready"), "False");
    KT_TRUE(strstr(kc_json_str(b.doc, "status.conditions.0.message", ""), "spec.replicas") != NULL);
    KT_STR(bed_cond(&b, "Degraded"), "True");
    bed_get(&b, KO_STATEFULSET, "demo");
    KT_EQ(kc_json_int(b.doc, "spec.replicas", 0), 3);
    bed_stop(&b);
}

static void a_standby_writes_nothing(void)
{
    struct bed b;
    bed_start(&b);
    b.cb.leader(b.cb.ctx, false);
    bed_create_doc(&b, KO_KAASCLUSTER, op_cluster_doc(""));
    bed_settle(&b);
    KT_EQ(bed_get(&b, KO_STATEFULSET, "demo"), 404);
    KT_TRUE(strstr(op_played.log, "cluster ns/demo 3|") != NULL);
    b.cb.leader(b.cb.ctx, true);
    bed_settle(&b);
    KT_EQ(bed_get(&b, KO_STATEFULSET, "demo"), 200);
    bed_stop(&b);
}

static void a_deleted_cluster_leaves_nothing_but_its_volume(void)
{
    struct bed b;
    bed_start_cluster(&b, "  storage: {claimTemplate: {resources: {requests: {storage: 1Gi}}}}\n");
    KT_EQ(bed_get(&b, KO_PVC, "demo-data"), 200);
    bed_remove(&b, KO_KAASCLUSTER, "demo");
    bed_settle(&b);
    KT_EQ(bed_get(&b, KO_STATEFULSET, "demo"), 404);
    KT_EQ(bed_get(&b, KO_CONFIGMAP, "demo-config"), 404);
    KT_EQ(bed_get(&b, KO_PVC, "demo-data"), 200);
    KT_TRUE(strstr(op_played.log, "removed ns/demo|") != NULL);
    bed_stop(&b);
}

static void status_shows_the_registry(void)
{
    struct bed b;
    bed_start_cluster(&b, "");
    struct ko_view *v = op_view();
    v->rows[1].state = KP_FENCED;
    v->rows[1].health = KP_DEAD;
    v->rows[1].reason = KP_REASON_LOST;
    v->rows[2].state = KP_STATE_DRAINING;
    v->rows[2].health = KP_DRAINING;
    b.cb.view(b.cb.ctx, v);
    bed_settle(&b);
    bed_get(&b, KO_KAASCLUSTER, "demo");
    KT_EQ(kc_json_int(b.doc, "status.desired", 0), 3);
    KT_EQ(kc_json_int(b.doc, "status.serving", 0), 1);
    KT_STR(kc_json_str(b.doc, "status.fencedBrokers", ""), "demo-1");
    KT_STR(kc_json_str(b.doc, "status.drainingBrokers", ""), "demo-2");
    KT_EQ(kc_json_int(b.doc, "status.partitions", 0), 12);
    KT_STR(kc_json_str(b.doc, "status.version", ""), "0.1.0");
    KT_EQ(kc_json_int(b.doc, "status.image.generation", 0), 7);
    KT_STR(kc_json_str(b.doc, "status.brokers.1.state", ""), "Fenced");
    KT_STR(kc_json_str(b.doc, "status.brokers.1.health", ""), "Dead");
    KT_STR(kc_json_str(b.doc, "status.brokers.1.reason", ""), "lost");
    KT_STR(kc_json_str(b.doc, "status.bootstrap.0.address", ""), "demo-bootstrap.ns.svc:9092");
    KT_STR(bed_cond(&b, "Ready"), "False");
    KT_STR(bed_cond(&b, "Degraded"), "True");
    KT_STR(bed_cond(&b, "StorageReady"), "True");
    KT_EQ(bed_get(&b, KO_KAASBROKER, "demo-1"), 200);
    KT_STR(kc_json_str(b.doc, "status.state", ""), "Fenced");
    v = op_view();
    v->n_rows = 2; /* deregistered (R33) */
    b.cb.view(b.cb.ctx, v);
    bed_settle(&b);
    KT_EQ(bed_get(&b, KO_KAASBROKER, "demo-2"), 404);
    KT_EQ(bed_get(&b, KO_KAASBROKER, "demo-1"), 200);
    KT_STR(kc_json_str(b.doc, "status.state", ""), "Serving");
    bed_stop(&b);
}

static void a_broker_that_cannot_write_says_so_and_stays_ready(void)
{
    static const struct {
        enum kp_volume volume;
        const char *status, *reason, *row;
    } t[] = {{KP_VOLUME_FULL, "False", "VolumeFull", "volume full"},
             {KP_VOLUME_READ_ONLY, "False", "VolumeReadOnly", "volume read-only"},
             {KP_VOLUME_WRITABLE, "True", "VolumeAnswers", ""}};
    struct bed b;
    bed_start_cluster(&b, "");
    for (size_t i = 0; i < KC_ARRAY_LEN(t); i++) {
        struct ko_view *v = op_view();
        v->rows[1].volume = t[i].volume;
        b.cb.view(b.cb.ctx, v);
        bed_settle(&b);
        bed_get(&b, KO_KAASCLUSTER, "demo");
        const json_t *c = ko_cond_find(kc_json_at(b.doc, "status.conditions"), "StorageReady");
        KT_STR(kc_json_str(c, "status", ""), t[i].status);
        KT_STR(kc_json_str(c, "reason", ""), t[i].reason);
        KT_STR(bed_cond(&b, "Ready"), "True");
        KT_STR(bed_cond(&b, "Degraded"), t[i].volume ? "True" : "False");
        KT_EQ(bed_get(&b, KO_KAASBROKER, "demo-1"), 200);
        c = ko_cond_find(kc_json_at(b.doc, "status.conditions"), "StorageReady");
        KT_STR(kc_json_str(c, "reason", ""), t[i].reason);
        KT_STR(bed_cond(&b, "Ready"), "True");
        KT_STR(kc_json_str(b.doc, "status.state", ""), "Serving");
        KT_STR(kc_json_str(b.doc, "status.reason", "-"), t[i].row);
        bed_get(&b, KO_KAASBROKER, "demo-0");
        KT_STR(bed_cond(&b, "StorageReady"), "True");
    }
    bed_stop(&b);
}

/* Wedged or stalled, a KaasBroker's condition names the loop, or the thread and what it waits in. */
static void the_condition_names_what_is_stuck(void)
{
    static const char want[] = "storage stalled 5 s: datasync on ks-sync";
    struct bed b;
    bed_start_cluster(&b, "");
    for (int i = 0; i < 2; i++) {
        struct ko_view *v = op_view();
        v->troubles = kc_zalloc(3 * sizeof(v->troubles[0]));
        snprintf(v->troubles[1], sizeof(v->troubles[1]), "%s", want);
        v->rows[1].state = KP_FENCED;
        v->rows[1].health = KP_DEAD;
        v->rows[1].reason = i == 0 ? KP_REASON_STALLED : KP_REASON_LOST; /* it died of it later */
        b.cb.view(b.cb.ctx, v);
        bed_settle(&b);
        KT_EQ(bed_get(&b, KO_KAASBROKER, "demo-1"), 200);
        KT_STR(bed_cond(&b, "Ready"), "False");
        const json_t *all = kc_json_at(b.doc, "status.conditions");
        KT_STR(kc_json_str(ko_cond_find(all, "Ready"), "message", ""), i == 0 ? want : "lost");
        const json_t *storage = ko_cond_find(all, "StorageReady");
        KT_STR(kc_json_str(storage, "reason", ""), i == 0 ? "StorageStalled" : "BrokerDead");
        KT_STR(kc_json_str(storage, "message", "-"), i == 0 ? want : "");
        KT_EQ(bed_get(&b, KO_KAASBROKER, "demo-0"), 200);
        KT_STR(kc_json_str(b.doc, "status.conditions.0.message", "-"), "");
    }
    bed_stop(&b);
}

/* ADR 22: a broker whose report is overdue serves as far as is decided, and is not said to. */
static void a_silent_broker_is_not_said_to_be_ready(void)
{
    struct bed b;
    bed_start_cluster(&b, "");
    for (int i = 0; i < 2; i++) {
        bool silent = i == 0;
        struct ko_view *v = op_view();
        v->rows[1].silent = silent;
        b.cb.view(b.cb.ctx, v);
        bed_settle(&b);
        KT_EQ(bed_get(&b, KO_KAASBROKER, "demo-1"), 200);
        KT_STR(bed_cond(&b, "Ready"), silent ? "Unknown" : "True");
        KT_STR(kc_json_str(b.doc, "status.state", ""), "Serving");
        KT_STR(kc_json_str(b.doc, "status.reason", ""), silent ? "silent" : "");
        KT_EQ(bed_get(&b, KO_KAASBROKER, "demo-0"), 200);
        KT_STR(bed_cond(&b, "Ready"), "True");
        KT_EQ(bed_get(&b, KO_KAASCLUSTER, "demo"), 200);
        const json_t *ready = ko_cond_find(kc_json_at(b.doc, "status.conditions"), "Ready");
        KT_STR(kc_json_str(ready, "status", ""), silent ? "Unknown" : "True");
        KT_STR(kc_json_str(ready, "message", ""),
               silent ? "a report is overdue of demo-1" : "all 3 brokers serve");
        KT_EQ(kc_json_int(b.doc, "status.serving", -1), 3);
    }
    bed_stop(&b);
}

static void last_seen_is_coarse_while_alive_and_exact_when_frozen(void) /* R13 */
{
    struct bed b;
    bed_start_cluster(&b, "");
    b.cb.view(b.cb.ctx, op_view());
    bed_settle(&b);
    struct ko_rec_metrics before, after;
    ko_rec_metrics_read(b.rec, &before);
    struct ko_view *v = op_view();
    v->rows[0].last_seen_ms += 29000;
    b.cb.view(b.cb.ctx, v);
    bed_settle(&b);
    ko_rec_metrics_read(b.rec, &after);
    KT_EQ(after.status_writes, before.status_writes);
    v = op_view();
    v->rows[0].last_seen_ms += 1234;
    v->rows[0].health = KP_DEAD;
    b.cb.view(b.cb.ctx, v);
    bed_settle(&b);
    bed_get(&b, KO_KAASCLUSTER, "demo");
    KT_STR(kc_json_str(b.doc, "status.brokers.0.lastSeen", ""), "2023-11-14T22:13:21.234000Z");
    bed_stop(&b);
}

KT_MAIN("operator/cluster", KT(a_cluster_gets_its_objects), KT(drift_is_put_right),
        KT(a_status_of_others_is_no_drift), KT(scaling_reaches_set_and_controller),
        KT(a_broker_has_its_service_for_as_long_as_its_row), KT(a_service_wanted_again_comes_back),
        KT(an_invalid_spec_says_why_and_the_old_one_goes_on), KT(a_standby_writes_nothing),
        KT(a_deleted_cluster_leaves_nothing_but_its_volume), KT(status_shows_the_registry),
        KT(a_broker_that_cannot_write_says_so_and_stays_ready),
        KT(the_condition_names_what_is_stuck), KT(a_silent_broker_is_not_said_to_be_ready),
        KT(last_seen_is_coarse_while_alive_and_exact_when_frozen))
