/* What is as it should be is not written again: a store double counts every write of the reconciler. */
#include "base/kc_json.h"
#include "op_bed.h"

enum { TOPICS = 5, ROUNDS = 1000 };

/* A cluster with pods, a slice, topics and a view of it, after everything that is to be written was. */
static void start(struct bed *b)
{
    char uid[40], name[32], yaml[300];
    json_t *endpoints = json_array();
    bed_start_cluster(b, "");
    bed_get(b, KO_STATEFULSET, "demo");
    snprintf(uid, sizeof(uid), "%s", ko_uid(b->doc));
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "demo-%d", i);
        bed_create_pod(b, name, uid);
        bed_add_endpoint(b, endpoints, name, name, true);
    }
    bed_put_slice(b, "s", "demo-brokers", endpoints);
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
