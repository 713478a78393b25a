/* The rollout's gate: one broker at a time, and only when all others serve (R57, R60). */
#include <string.h>
#include <time.h>

#include "base/kc_clock.h"
#include "base/kc_json.h"
#include "op_bed.h"
#include "reconcile/ko_cond.h"

/* The StatefulSet controller's word: it has seen the newest template, which has this revision. */
static void observe_as(struct bed *b, const char *revision, const char *current, int updated)
{
    bed_get(b, KO_STATEFULSET, "demo");
    json_t *doc = ko_doc_new(KO_STATEFULSET, "ns", "demo");
    json_object_set_new(doc, "status",
                        json_pack("{s:I, s:s, s:s, s:i, s:i, s:i}", "observedGeneration",
                                  (json_int_t)ko_generation(b->doc), "updateRevision", revision,
                                  "currentRevision", current, "replicas", 3, "updatedReplicas",
                                  updated, "availableReplicas", 3));
    b->store->ops->apply_status(b->store, KO_STATEFULSET, doc, NULL, NULL);
    json_decref(doc);
}

static void observe(struct bed *b, const char *revision)
{
    observe_as(b, revision, "r1", 0);
}

/* The kubelet's word, true for ago_ms; waiting: the reason that its container waits for, NULL = none. */
static void pod_status(struct bed *b, int n, bool ready, int64_t ago_ms, const char *waiting)
{
    char name[20], at[32];
    snprintf(name, sizeof(name), "demo-%d", n);
    kc_rfc3339(kc_wall_ms() - ago_ms, false, at);
    json_t *doc = ko_doc_new(KO_POD, "ns", name);
    kc_json_set(doc, "status.conditions",
                json_pack("[{s:s, s:s, s:s}]", "type", "Ready", "status", ready ? "True" : "False",
                          "lastTransitionTime", at));
    json_t *state = waiting ? json_pack("{s:{s:s, s:s}}", "waiting", "reason", waiting, "message",
                                        "no such image")
                            : json_pack("{s:{}}", "running");
    kc_json_set(doc, "status.containerStatuses",
                json_pack("[{s:s, s:o}]", "name", "broker", "state", state));
    b->store->ops->apply_status(b->store, KO_POD, doc, NULL, NULL);
    json_decref(doc);
}

static void pod_since(struct bed *b, int n, const char *revision, bool ready, int64_t ago_ms,
                      const char *waiting)
{
    char name[20];
    snprintf(name, sizeof(name), "demo-%d", n);
    bed_remove(b, KO_POD, name);
    json_t *doc = ko_doc_new(KO_POD, "ns", name);
    kc_json_set(
        doc, "metadata.labels",
        json_pack("{s:s, s:s}", "kaas.dev/cluster", "demo", "controller-revision-hash", revision));
    bed_create_doc(b, KO_POD, doc);
    pod_status(b, n, ready, ago_ms, waiting);
}

static void pod(struct bed *b, int n, const char *revision, bool ready)
{
    pod_since(b, n, revision, ready, 5000, NULL);
}

/* The StatefulSet controller has seen what stands, as `revision`; looks again, as the second's tick
 * would, and returns the gate. */
static int64_t gate(struct bed *b, const char *revision)
{
    bed_settle(b);
    observe(b, revision);
    bed_settle(b);
    b->cb.leader(b->cb.ctx, true);
    bed_settle(b);
    bed_get(b, KO_STATEFULSET, "demo");
    return kc_json_int(b->doc, "spec.updateStrategy.rollingUpdate.partition", -1);
}

/* How many Events have the reason; ret_message: of the last one, "" if there is none. */
static int events(struct bed *b, const char *reason, char ret_message[512])
{
    size_t i;
    json_t *e;
    int n = 0;
    ret_message[0] = '\0';
    bed_settle(b);
    bed_list(b, KO_EVENT);
    json_array_foreach(json_object_get(b->doc, "items"), i, e)
    {
        if (strcmp(kc_json_str(e, "reason", ""), reason) == 0) {
            snprintf(ret_message, 512, "%s", kc_json_str(e, "message", ""));
            n += (int)kc_json_int(e, "count", 1);
        }
    }
    return n;
}

static const char *progressing(struct bed *b)
{
    bed_get(b, KO_KAASCLUSTER, "demo");
    return kc_json_str(ko_cond_find(kc_json_at(b->doc, "status.conditions"), "Progressing"),
                       "reason", "");
}

/* Three brokers of revision r1, at rest. */
static void rest(struct bed *b)
{
    bed_start_cluster(b, "  minReadySeconds: 1\n  image: kaas:1\n");
    observe(b, "r1");
    for (int i = 0; i < 3; i++) {
        pod(b, i, "r1", true);
    }
    b->cb.view(b->cb.ctx, op_view());
    KT_EQ(gate(b, "r1"), 0);
}

static void start(struct bed *b)
{
    rest(b);
    bed_merge(b, KO_KAASCLUSTER, "demo", "spec: {image: \"kaas:2\"}");
}

static void R57_the_gate_closes_with_a_new_template_and_opens_one_by_one(void)
{
    struct bed b;
    start(&b);
    bed_settle(&b);
    bed_get(&b, KO_STATEFULSET, "demo");
    KT_EQ(kc_json_int(b.doc, "spec.updateStrategy.rollingUpdate.partition", -1), 3);
    KT_EQ(gate(&b, "r2"), 2);
    KT_EQ(gate(&b, "r2"), 2);
    pod(&b, 2, "r2", false);
    KT_EQ(gate(&b, "r2"), 2);
    KT_STR(progressing(&b), "WaitingForBroker");
    pod(&b, 2, "r2", true);
    KT_EQ(gate(&b, "r2"), 1);
    pod(&b, 1, "r2", true);
    KT_EQ(gate(&b, "r2"), 0);
    bed_get(&b, KO_KAASCLUSTER, "demo");
    KT_STR(kc_json_str(b.doc, "status.lastRollout.revision", ""), "r2");
    KT_TRUE(kc_json_at(b.doc, "status.lastRollout.finishedAt") == NULL);
    pod(&b, 0, "r2", true);
    KT_EQ(gate(&b, "r2"), 0);
    observe_as(&b, "r2", "r2", 3);
    bed_settle(&b);
    KT_STR(progressing(&b), "RolloutComplete");
    KT_TRUE(kc_json_str(b.doc, "status.lastRollout.finishedAt", NULL) != NULL);
    KT_EQ(kc_json_int(b.doc, "status.lastRollout.brokers", 0), 3);
    bed_stop(&b);
}

/* A view in which this rollout is being measured, from since_ms, with figures; away: partitions not at
 * home. */
static struct ko_view *measured(uint64_t rollout, int64_t since_ms, int32_t away, int64_t max_ms)
{
    struct ko_view *v = op_view();
    v->away = away;
    v->rollout = rollout;
    v->measured_wall_ms = since_ms;
    v->measure = (struct kp_measure){
        .gaps = 24, .partitions = 12, .p50_ms = 30, .p99_ms = 90, .max_ms = max_ms, .max_out = 1};
    return v;
}

/* When the rollout began, as its report says. */
static int64_t started_ms(struct bed *b)
{
    struct tm tm = {0};
    bed_get(b, KO_KAASCLUSTER, "demo");
    KT_REQUIRE(strptime(kc_json_str(b->doc, "status.lastRollout.startedAt", ""),
                        "%Y-%m-%dT%H:%M:%S", &tm) != NULL);
    return (int64_t)timegm(&tm) * 1000;
}

/* The report: begun and ended by the rollout, with what the control thread measured in between. */
static void a_rollout_leaves_a_report_and_says_so_once(void)
{
    struct bed b;
    char text[512];
    start(&b);
    KT_EQ(gate(&b, "r2"), 2);
    KT_TRUE(op_played.rollout != 0);
    uint64_t id = op_played.rollout;
    int64_t since = started_ms(&b);
    b.cb.view(b.cb.ctx, measured(id, since, 0, 700));
    for (int i = 2; i >= 0; i--) {
        pod(&b, i, "r2", true);
        gate(&b, "r2");
    }
    bed_get(&b, KO_KAASCLUSTER, "demo");
    KT_EQ(kc_json_int(b.doc, "status.lastRollout.gapMillis.max", -1), 700); /* as it goes */
    b.cb.view(b.cb.ctx, measured(id, since, 4, 90)); /* less than was written: the largest stays */
    observe_as(&b, "r2", "r2", 3);
    bed_settle(&b);
    bed_get(&b, KO_KAASCLUSTER, "demo");
    KT_STR(bed_cond(&b, "Progressing"), "True"); /* partitions are not back at home yet */
    KT_TRUE(kc_json_at(b.doc, "status.lastRollout.finishedAt") == NULL);
    KT_EQ(op_played.rollout, id);
    b.cb.view(b.cb.ctx, measured(id, since, 0, 90));
    bed_settle(&b);
    bed_get(&b, KO_KAASCLUSTER, "demo");
    KT_STR(bed_cond(&b, "Progressing"), "False");
    const json_t *ro = kc_json_at(b.doc, "status.lastRollout");
    KT_TRUE(kc_json_str(ro, "finishedAt", NULL) != NULL);
    KT_TRUE(kc_json_int(ro, "durationSeconds", -1) >= 0);
    KT_EQ(kc_json_int(ro, "brokers", -1), 3);
    KT_EQ(kc_json_int(ro, "partitionsMoved", -1), 12);
    KT_EQ(kc_json_int(ro, "maxBrokersOut", -1), 1);
    KT_EQ(kc_json_int(ro, "gapMillis.count", -1), 24);
    KT_EQ(kc_json_int(ro, "gapMillis.p50", -1), 30);
    KT_EQ(kc_json_int(ro, "gapMillis.p99", -1), 90);
    KT_EQ(kc_json_int(ro, "gapMillis.max", -1), 700);
    KT_TRUE(kc_json_at(ro, "measuredSince") == NULL);
    KT_TRUE(kc_json_at(ro, "halted") == NULL);
    KT_EQ(op_played.rollout, 0); /* nothing more is measured */
    KT_EQ(events(&b, "RolloutStarted", text), 1);
    KT_EQ(events(&b, "RolloutHalted", text), 0);
    KT_EQ(events(&b, "RolloutFinished", text), 1);
    KT_TRUE(strstr(text, "r2 is on 3 brokers after ") == text);
    KT_TRUE(strstr(text, "at most 1 out at once, 12 partitions moved") != NULL);
    KT_TRUE(strstr(text, "p50 30 ms, p99 90 ms, max 700 ms") != NULL);
    bed_stop(&b);
}

/* An operator that takes over goes on with the report, and says since when it measures itself. */
static void a_report_taken_over_says_since_when_it_measures(void)
{
    struct bed b;
    char text[512];
    bed_start_cluster(&b, "  minReadySeconds: 1\n");
    b.cb.leader(b.cb.ctx, false);
    observe_as(&b, "r2", "r1", 1);
    json_t *doc = ko_doc_new(KO_KAASCLUSTER, "ns", "demo");
    kc_json_set(doc, "status",
                op_yaml("lastRollout: {revision: r2, startedAt: \"2026-01-02T03:04:05Z\","
                        " maxBrokersOut: 2, gapMillis: {count: 9, p50: 1, p99: 2, max: 350}}\n"
                        "conditions: [{type: Progressing, status: \"True\", reason: X}]\n"));
    b.store->ops->apply_status(b.store, KO_KAASCLUSTER, doc, NULL, NULL);
    json_decref(doc);
    bed_settle(&b);
    b.cb.leader(b.cb.ctx, true);
    bed_settle(&b);
    KT_TRUE(op_played.rollout != 0);
    bed_get(&b, KO_KAASCLUSTER, "demo");
    KT_EQ(kc_json_int(b.doc, "status.lastRollout.gapMillis.p99", -1), 2); /* until there is more */
    b.cb.view(b.cb.ctx, measured(op_played.rollout, kc_wall_ms(), 0, 100));
    bed_settle(&b);
    bed_get(&b, KO_KAASCLUSTER, "demo");
    const json_t *ro = kc_json_at(b.doc, "status.lastRollout");
    KT_STR(kc_json_str(ro, "startedAt", ""), "2026-01-02T03:04:05Z");
    KT_TRUE(kc_json_str(ro, "measuredSince", NULL) != NULL);
    KT_EQ(kc_json_int(ro, "gapMillis.p99", -1), 90);
    KT_EQ(kc_json_int(ro, "gapMillis.max", -1), 350); /* the predecessor's stays */
    KT_EQ(kc_json_int(ro, "maxBrokersOut", -1), 2);
    KT_EQ(events(&b, "RolloutStarted", text), 0); /* that was said */
    bed_stop(&b);
}

/* A new image that cannot be pulled: told with the pod and the reason, once; a corrected one goes on. */
static void R60_a_pod_that_cannot_start_halts_the_rollout_and_says_why(void)
{
    struct bed b;
    char text[512];
    start(&b);
    KT_EQ(gate(&b, "r2"), 2);
    pod_since(&b, 2, "r2", false, 5000, "ContainerCreating");
    KT_EQ(gate(&b, "r2"), 2);
    KT_STR(progressing(&b), "WaitingForBroker");
    pod_since(&b, 2, "r2", false, 60000, "ImagePullBackOff");
    struct ko_view *v = op_view();
    v->rows[2].state = KP_FENCED;
    v->rows[2].health = KP_DEAD;
    v->rows[2].reason = KP_REASON_DRAINED;
    b.cb.view(b.cb.ctx, v);
    KT_EQ(gate(&b, "r2"), 2);
    KT_STR(progressing(&b), "RolloutHalted");
    KT_STR(bed_cond(&b, "Progressing"), "True");
    KT_STR(bed_cond(&b, "Degraded"), "True");
    KT_STR(kc_json_str(b.doc, "status.lastRollout.halted.pod", ""), "demo-2");
    KT_STR(kc_json_str(b.doc, "status.lastRollout.halted.reason", ""), "ImagePullBackOff");
    KT_STR(kc_json_str(b.doc, "status.lastRollout.halted.message", ""),
           "pod demo-2 does not turn ready: ImagePullBackOff: no such image");
    /* Between two attempts nothing waits: that is no news. */
    pod_status(&b, 2, false, 0, NULL);
    KT_EQ(gate(&b, "r2"), 2);
    KT_STR(progressing(&b), "RolloutHalted");
    KT_STR(kc_json_str(b.doc, "status.lastRollout.halted.reason", ""), "ImagePullBackOff");
    pod_status(&b, 2, false, 60000, "ImagePullBackOff");
    KT_EQ(gate(&b, "r2"), 2);
    KT_EQ(events(&b, "RolloutHalted", text), 1);
    KT_TRUE(strstr(text, "demo-2") && strstr(text, "ImagePullBackOff"));
    bed_merge(&b, KO_KAASCLUSTER, "demo", "spec: {image: \"kaas:3\"}");
    bed_settle(&b);
    KT_EQ(gate(&b, "r3"), 2); /* the broken pod is the first to go, and no serving one is touched */
    KT_STR(progressing(&b), "ReplacingBroker");
    bed_get(&b, KO_KAASCLUSTER, "demo");
    KT_STR(bed_cond(&b, "Degraded"), "False");
    KT_STR(kc_json_str(b.doc, "status.lastRollout.revision", ""), "r3");
    KT_TRUE(kc_json_at(b.doc, "status.lastRollout.halted") == NULL);
    b.cb.view(b.cb.ctx, op_view());
    pod(&b, 2, "r3", true);
    KT_EQ(gate(&b, "r3"), 1);
    bed_stop(&b);
}

/* Brokers that have been ready for hours go one by one: their condition says True until they are gone. */
static void R60_a_pod_on_its_way_out_halts_nothing(void)
{
    enum { HOURS_MS = 3 * 3600 * 1000 };
    struct bed b;
    start(&b);
    pod_since(&b, 2, "r1", true, HOURS_MS, NULL);
    KT_EQ(gate(&b, "r2"), 2);
    bed_merge(&b, KO_POD, "demo-2", "metadata: {finalizers: [test/kubelet]}");
    bed_remove(&b, KO_POD, "demo-2");
    bed_get(&b, KO_POD, "demo-2");
    KT_TRUE(ko_deleting(b.doc));
    struct ko_view *v = op_view();
    v->rows[2].state = KP_STATE_DRAINING;
    v->rows[2].health = KP_DRAINING;
    b.cb.view(b.cb.ctx, v);
    KT_EQ(gate(&b, "r2"), 2);
    KT_STR(progressing(&b), "ReplacingBroker");
    KT_STR(bed_cond(&b, "Degraded"), "False");
    bed_stop(&b);
}

/* Back to the image from before: for the StatefulSet that is no update, for its users it is. */
static void taking_a_halted_rollout_back_is_reported_too(void)
{
    struct bed b;
    start(&b);
    KT_EQ(gate(&b, "r2"), 2);
    pod_since(&b, 2, "r2", false, 60000, "CrashLoopBackOff");
    KT_EQ(gate(&b, "r2"), 2);
    KT_STR(progressing(&b), "RolloutHalted");
    bed_merge(&b, KO_KAASCLUSTER, "demo", "spec: {image: \"kaas:1\"}");
    bed_settle(&b);
    KT_EQ(gate(&b, "r1"), 2);
    pod(&b, 2, "r1", true);
    gate(&b, "r1");
    observe_as(&b, "r1", "r1", 3);
    bed_settle(&b);
    bed_get(&b, KO_KAASCLUSTER, "demo");
    KT_STR(kc_json_str(b.doc, "status.lastRollout.revision", ""), "r1");
    KT_TRUE(kc_json_str(b.doc, "status.lastRollout.finishedAt", NULL) != NULL);
    KT_STR(bed_cond(&b, "Progressing"), "False");
    bed_stop(&b);
}

static void it_waits_for_failback(void)
{
    struct bed b;
    start(&b);
    struct ko_view *v = op_view();
    v->away = 4;
    b.cb.view(b.cb.ctx, v);
    KT_EQ(gate(&b, "r2"), 3);
    KT_STR(progressing(&b), "WaitingForFailback");
    b.cb.view(b.cb.ctx, op_view());
    KT_EQ(gate(&b, "r2"), 2);
    bed_stop(&b);
}

static void R60_an_outdated_broker_that_is_down_blocks_unless_forced(void)
{
    struct bed b;
    start(&b);
    pod(&b, 0, "r1", false);
    KT_EQ(gate(&b, "r2"), 3);
    KT_STR(progressing(&b), "RolloutBlocked");
    bed_merge(&b, KO_KAASCLUSTER, "demo",
              "metadata: {annotations: {kaas.dev/force-rollout: \"1\"}}");
    KT_EQ(gate(&b, "r2"), 2);
    bed_stop(&b);
}

/* What needs no restart causes none: the image has it, the gate stays open, nobody is replaced. */
static void a_setting_that_needs_no_restart_starts_no_rollout(void)
{
    struct bed b;
    rest(&b);
    bed_get(&b, KO_STATEFULSET, "demo");
    int64_t generation = ko_generation(b.doc);
    op_played_reset();
    bed_merge(&b, KO_KAASCLUSTER, "demo", "spec: {config: {log.retention.ms: \"60000\"}}");
    bed_settle(&b);
    KT_TRUE(strstr(op_played.log, "cluster ns/demo 3|") != NULL); /* told, to be published */
    bed_get(&b, KO_STATEFULSET, "demo");
    KT_EQ(ko_generation(b.doc), generation);
    bed_merge(&b, KO_KAASCLUSTER, "demo", "spec: {config: {group.max.size: \"500\"}}");
    bed_settle(&b);
    bed_get(&b, KO_STATEFULSET, "demo");
    KT_EQ(kc_json_int(b.doc, "spec.updateStrategy.rollingUpdate.partition", -1), 3);
    bed_stop(&b);
}

static void a_newer_template_restarts_the_gate(void)
{
    struct bed b;
    start(&b);
    KT_EQ(gate(&b, "r2"), 2);
    bed_merge(&b, KO_KAASCLUSTER, "demo", "spec: {image: \"kaas:3\"}");
    bed_settle(&b);
    bed_get(&b, KO_STATEFULSET, "demo");
    KT_EQ(kc_json_int(b.doc, "spec.updateStrategy.rollingUpdate.partition", -1), 3);
    bed_stop(&b);
}

/* A store whose StatefulSet is not written: the answer is this code all the same. */
static const struct ko_store_ops *real_ops;
static int sts_code;

static void apply_but_the_statefulset(struct ko_store *s, enum ko_kind k, json_t *doc,
                                      const char *manager, ko_done done, void *ctx)
{
    struct ko_result res = {.code = sts_code, .reason = "", .message = "", .doc = doc};
    if (k == KO_STATEFULSET) {
        done(ctx, &res);
    } else {
        real_ops->apply(s, k, doc, manager, done, ctx);
    }
}

/* A cluster at rest, whose next StatefulSet goes nowhere. */
static void stand_without_writes(struct bed *b, int code)
{
    static struct ko_store_ops ops;
    rest(b);
    observe_as(b, "r1", "r1", 3);
    bed_settle(b);
    KT_STR(progressing(b), "RolloutComplete");
    real_ops = b->store->ops;
    ops = *real_ops;
    ops.apply = apply_but_the_statefulset;
    sts_code = code;
    b->store->ops = &ops;
    bed_merge(b, KO_KAASCLUSTER, "demo", "spec: {image: \"kaas:2\"}");
}

/* kubectl wait --for=condition=Progressing=False believes a condition of the newest generation. */
static void a_rollout_that_has_yet_to_begin_is_not_complete(void)
{
    struct bed b;
    stand_without_writes(&b, 200); /* written, and the watch has yet to say so */
    bed_settle(&b);
    bed_get(&b, KO_KAASCLUSTER, "demo");
    KT_EQ(kc_json_int(b.doc, "status.observedGeneration", -1), ko_generation(b.doc));
    KT_STR(bed_cond(&b, "Progressing"), "True");
    b.store->ops = real_ops;
    bed_stop(&b);
}

static void a_spec_that_was_not_acted_on_is_not_observed(void)
{
    struct bed b;
    stand_without_writes(&b, 500);
    do {
        bed_get(&b, KO_KAASCLUSTER, "demo");
    } while (strcmp(bed_cond(&b, "Degraded"), "True") != 0);
    KT_TRUE(kc_json_int(b.doc, "status.observedGeneration", -1) < ko_generation(b.doc));
    KT_TRUE(kc_json_int(b.doc, "status.conditions.0.observedGeneration", -1) <
            ko_generation(b.doc));
    b.store->ops = real_ops;
    do {
        bed_get(&b, KO_KAASCLUSTER, "demo");
    } while (kc_json_int(b.doc, "status.observedGeneration", -1) < ko_generation(b.doc));
    KT_STR(bed_cond(&b, "Progressing"), "True");
    bed_stop(&b);
}

KT_MAIN("operator/roll", KT(a_rollout_that_has_yet_to_begin_is_not_complete),
        KT(a_spec_that_was_not_acted_on_is_not_observed),
        KT(R57_the_gate_closes_with_a_new_template_and_opens_one_by_one), KT(it_waits_for_failback),
        KT(R60_an_outdated_broker_that_is_down_blocks_unless_forced),
        KT(a_setting_that_needs_no_restart_starts_no_rollout),
        KT(a_newer_template_restarts_the_gate), KT(a_rollout_leaves_a_report_and_says_so_once),
        KT(a_report_taken_over_says_since_when_it_measures),
        KT(R60_a_pod_that_cannot_start_halts_the_rollout_and_says_why),
        KT(R60_a_pod_on_its_way_out_halts_nothing),
        KT(taking_a_halted_rollout_back_is_reported_too))
