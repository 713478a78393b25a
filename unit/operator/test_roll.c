/* The rollout's gate: one broker at a time, and only when all others serve (R57, R60). */
#include "base/kc_clock.h"
#include "base/kc_json.h"
#include "op_bed.h"

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

static void pod(struct bed *b, int n, const char *revision, bool ready)
{
    char name[20], now[32];
    snprintf(name, sizeof(name), "demo-%d", n);
    kc_rfc3339(kc_wall_ms() - 5000, false, now);
    bed_remove(b, KO_POD, name);
    json_t *doc = ko_doc_new(KO_POD, "ns", name);
    kc_json_set(
        doc, "metadata.labels",
        json_pack("{s:s, s:s}", "kaas.dev/cluster", "demo", "controller-revision-hash", revision));
    bed_create_doc(b, KO_POD, doc);
    doc = ko_doc_new(KO_POD, "ns", name);
    kc_json_set(doc, "status.conditions",
                json_pack("[{s:s, s:s, s:s}]", "type", "Ready", "status", ready ? "True" : "False",
                          "lastTransitionTime", now));
    b->store->ops->apply_status(b->store, KO_POD, doc, NULL, NULL);
    json_decref(doc);
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

static const char *progressing(struct bed *b)
{
    static char reason[64];
    size_t i;
    json_t *c;
    bed_get(b, KO_KAASCLUSTER, "demo");
    reason[0] = '\0';
    json_array_foreach(kc_json_at(b->doc, "status.conditions"), i, c)
    {
        if (strcmp(kc_json_str(c, "type", ""), "Progressing") == 0) {
            snprintf(reason, sizeof(reason), "%s", kc_json_str(c, "reason", ""));
        }
    }
    return reason;
}

static void start(struct bed *b)
{
    bed_start(b);
    bed_create_doc(b, KO_KAASCLUSTER, op_cluster_doc("  minReadySeconds: 1\n  image: kaas:1\n"));
    bed_settle(b);
    observe(b, "r1");
    for (int i = 0; i < 3; i++) {
        pod(b, i, "r1", true);
    }
    b->cb.view(b->cb.ctx, op_view());
    KT_EQ(gate(b, "r1"), 0);
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

KT_MAIN("operator/roll", KT(R57_the_gate_closes_with_a_new_template_and_opens_one_by_one),
        KT(it_waits_for_failback), KT(R60_an_outdated_broker_that_is_down_blocks_unless_forced),
        KT(a_newer_template_restarts_the_gate))
