/* What is as it should be is not written again: a store double counts every write of the reconciler. */
#include "base/kc_json.h"
#include "op_bed.h"

enum { TOPICS = 5, ROUNDS = 1000 };

static void make_pod(struct bed *b, const char *name, const char *owner)
{
    char yaml[300];
    snprintf(yaml, sizeof(yaml),
             "metadata: {name: %s, namespace: ns, labels: {kaas.dev/cluster: demo}, "
             "ownerReferences: [{uid: \"%s\"}]}\n",
             name, owner);
    bed_create(b, KO_POD, yaml);
}

/* A cluster with pods, a slice, topics and a view of it, after everything that is to be written was. */
static void start(struct bed *b)
{
    char uid[40], name[32], yaml[300];
    json_t *endpoints = json_array();
    bed_start(b);
    bed_create_doc(b, KO_KAASCLUSTER, op_cluster_doc(""));
    bed_settle(b);
    bed_get(b, KO_STATEFULSET, "demo");
    snprintf(uid, sizeof(uid), "%s", ko_uid(b->doc));
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "demo-%d", i);
        make_pod(b, name, uid);
        bed_get(b, KO_POD, name);
        json_array_append_new(endpoints,
                              json_pack("{s:s, s:{s:b}, s:{s:s, s:s, s:s}}", "hostname", name,
                                        "conditions", "serving", 1, "targetRef", "kind", "Pod",
                                        "name", name, "uid", ko_uid(b->doc)));
    }
    json_t *slice = ko_doc_new(KO_ENDPOINTSLICE, "ns", "s");
    kc_json_set(slice, "metadata.labels",
                json_pack("{s:s, s:s}", "kaas.dev/cluster", "demo", "kubernetes.io/service-name",
                          "demo-brokers"));
    json_object_set_new(slice, "endpoints", endpoints);
    bed_create_doc(b, KO_ENDPOINTSLICE, slice);
    for (int i = 0; i < TOPICS; i++) {
        snprintf(yaml, sizeof(yaml),
                 "apiVersion: kaas.dev/v1alpha1\nkind: KaasTopic\n"
                 "metadata: {name: t%d, namespace: ns}\nspec: {cluster: demo, partitions: 3}\n",
                 i);
        bed_create(b, KO_KAASTOPIC, yaml);
    }
    b->cb.view(b->cb.ctx, op_view());
    bed_settle(b);
    KT_EQ(op_played.n_eps, 3);
    KT_EQ(bed_get(b, KO_KAASBROKER, "demo-2"), 200);
    bed_get(b, KO_KAASTOPIC, "t4");
    KT_STR(bed_cond(b, "Ready"), "True");
}

/* One round: everything is looked at, and a view says that the brokers were heard of again. */
static void round_of(struct bed *b, int i)
{
    struct ko_rec_metrics m;
    struct ko_view *v = op_view();
    ko_rec_metrics_read(b->rec, &m);
    uint64_t want = m.reconciles + 1 + TOPICS;
    for (int32_t n = 0; n < v->n_rows; n++) {
        v->rows[n].last_seen_ms += i;
    }
    b->cb.view(b->cb.ctx, v);
    b->cb.leader(b->cb.ctx, true);
    while (m.reconciles < want) {
        uv_run(&b->loop.uv, UV_RUN_ONCE);
        ko_rec_metrics_read(b->rec, &m);
    }
}

static void a_thousand_reconciles_write_nothing(void)
{
    struct bed b;
    start(&b);
    KT_TRUE(b.counting.writes >= 8 + 3 + TOPICS); /* the double sees what is written */
    int32_t before = b.counting.writes;
    for (int i = 0; i < ROUNDS; i++) {
        round_of(&b, i);
    }
    bed_settle(&b);
    KT_EQ(b.counting.writes, before);
    bed_merge(&b, KO_KAASCLUSTER, "demo", "spec: {replicas: 4}");
    bed_settle(&b);
    KT_TRUE(b.counting.writes > before);
    bed_stop(&b);
}

KT_MAIN("operator/noop", KT(a_thousand_reconciles_write_nothing))
