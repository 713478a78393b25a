/* Only endpoints of our StatefulSet's pods are brokers; readiness is an attribute. */
#include "base/kc_json.h"
#include "op_bed.h"

static void make_pod(struct bed *b, int n, const char *owner)
{
    char name[20];
    snprintf(name, sizeof(name), "demo-%d", n);
    bed_create_pod(b, name, owner);
}

static void start(struct bed *b)
{
    char uid[40];
    bed_start_cluster(b, "");
    bed_get(b, KO_STATEFULSET, "demo");
    snprintf(uid, sizeof(uid), "%s", ko_uid(b->doc));
    make_pod(b, 0, uid);
    make_pod(b, 1, uid);
    bed_settle(b);
    op_played_reset();
}

static void R3_R6_readiness_is_an_attribute(void) /* R3 */
{
    struct bed b;
    json_t *list = json_array();
    start(&b);
    bed_add_endpoint(&b, list, "demo-0", "demo-0", true);
    bed_add_endpoint(&b, list, "demo-1", "demo-1", false);
    bed_put_slice(&b, "s", "demo-brokers", list);
    KT_EQ(op_played.n_eps, 2);
    KT_TRUE(op_played.eps[0].ready);
    KT_FALSE(op_played.eps[1].ready);
    KT_EQ(op_played.eps[1].ordinal, 1);
    KT_STR(op_played.eps[1].host, "demo-1");
    KT_TRUE(op_played.eps[0].created_ms > 1700000000000);
    bed_remove(&b, KO_ENDPOINTSLICE, "s"); /* R6 */
    bed_settle(&b);
    KT_TRUE(strstr(op_played.log, "slice- ns/demo ns/s|") != NULL);
    bed_stop(&b);
}

static void R2_slices_of_other_services_do_not_count(void) /* R2 */
{
    struct bed b;
    json_t *list = json_array();
    start(&b);
    bed_add_endpoint(&b, list, "demo-0", "demo-0", true);
    bed_put_slice(&b, "s", "demo-bootstrap", list);
    KT_STR(op_played.log, "");
    bed_stop(&b);
}

/* Everything about these endpoints is in order but the hostname: pods of the StatefulSet, listed under
 * their own names. */
static void R10_hostnames_without_an_ordinal_are_ignored(void)
{
    static const char *const names[] = {"demo",     "demo-",   "demo-x",  "demo-1x",
                                        "demo--1",  "demo-+1", "demo-01", "demo-1-1",
                                        "demo-128", "demo1",   "other-1", "demo-4294967297"};
    struct bed b;
    struct ko_rec_metrics m;
    char uid[40];
    json_t *list = json_array();
    start(&b);
    bed_get(&b, KO_STATEFULSET, "demo");
    snprintf(uid, sizeof(uid), "%s", ko_uid(b.doc));
    for (size_t i = 0; i < KC_ARRAY_LEN(names); i++) {
        bed_create_pod(&b, names[i], uid);
        bed_add_endpoint(&b, list, names[i], names[i], true);
    }
    bed_add_endpoint(&b, list, "demo-1", "demo-1", true);
    bed_settle(&b);
    bed_put_slice(&b, "s", "demo-brokers", list);
    KT_EQ(op_played.n_eps, 1);
    KT_EQ(op_played.eps[0].ordinal, 1);
    ko_rec_metrics_read(b.rec, &m);
    KT_EQ(m.foreign_endpoints, KC_ARRAY_LEN(names));
    bed_stop(&b);
}

static void foreign_endpoints_raise_an_event_and_a_metric(void)
{
    struct bed b;
    struct ko_rec_metrics m;
    json_t *list = json_array();
    start(&b);
    bed_create(&b, KO_STATEFULSET, "metadata: {name: other, namespace: ns}");
    char other[40];
    snprintf(other, sizeof(other), "%s", ko_uid(b.doc));
    make_pod(&b, 2, other); /* not of our StatefulSet */
    bed_settle(&b);
    bed_add_endpoint(&b, list, "demo-0", "demo-0", true);
    bed_add_endpoint(&b, list, "demo-2", "demo-2", true);
    bed_add_endpoint(&b, list, "intruder", "demo-1", true); /* R10 */
    bed_add_endpoint(&b, list, "demo-01", "demo-1", true);
    bed_put_slice(&b, "s", "demo-brokers", list);
    KT_EQ(op_played.n_eps, 1);
    ko_rec_metrics_read(b.rec, &m);
    KT_EQ(m.foreign_endpoints, 3);
    KT_EQ(m.events, 3);
    bed_stop(&b);
}

/* The controller waits for a broker as long as its pod lets it live, no matter what the KaasCluster says
 * by now; a deletion may leave it less. */
static void R29_an_endpoint_carries_the_grace_of_its_pod(void)
{
    struct bed b;
    json_t *list = json_array();
    start(&b);
    bed_merge(&b, KO_POD, "demo-0", "spec: {terminationGracePeriodSeconds: 12}");
    bed_add_endpoint(&b, list, "demo-0", "demo-0", true);
    bed_add_endpoint(&b, list, "demo-1", "demo-1", true);
    bed_put_slice(&b, "s", "demo-brokers", list);
    KT_EQ(op_played.n_eps, 2);
    KT_EQ(op_played.eps[0].grace_s, 12);
    KT_EQ(op_played.eps[1].grace_s, 30);
    bed_merge(&b, KO_POD, "demo-0",
              "metadata: {finalizers: [test/held], deletionGracePeriodSeconds: 7}");
    bed_settle(&b);
    KT_EQ(op_played.eps[0].grace_s, 12); /* not being deleted */
    bed_remove(&b, KO_POD, "demo-0");
    bed_settle(&b);
    KT_EQ(op_played.n_eps, 2);
    KT_EQ(op_played.eps[0].grace_s, 7); /* told anew, though the slice is as it was */
    bed_stop(&b);
}

/* A slice's word about a pod that is gone counts no longer, however long the slice lags behind. */
static void R4_an_endpoint_whose_pod_is_gone_is_not_listed(void)
{
    struct bed b;
    json_t *list = json_array();
    start(&b);
    bed_add_endpoint(&b, list, "demo-0", "demo-0", true);
    bed_add_endpoint(&b, list, "demo-1", "demo-1", true);
    bed_put_slice(&b, "s", "demo-brokers", list);
    KT_EQ(op_played.n_eps, 2);
    bed_remove(&b, KO_POD, "demo-1");
    bed_settle(&b);
    KT_EQ(op_played.n_eps, 1);
    KT_EQ(op_played.eps[0].ordinal, 0);
    bed_stop(&b);
}

/* The endpoints of a Service may be sharded anew, in one go where a relist shows it: each slice is told
 * under its own key, and the one that is gone is told to be. */
static void R5_R6_slices_are_told_one_by_one_and_withdrawn_by_name(void)
{
    struct bed b;
    json_t *first = json_array(), *second = json_array(), *both = json_array();
    start(&b);
    bed_add_endpoint(&b, first, "demo-0", "demo-0", true);
    bed_add_endpoint(&b, second, "demo-1", "demo-1", true);
    bed_add_endpoint(&b, both, "demo-0", "demo-0", true);
    bed_add_endpoint(&b, both, "demo-1", "demo-1", true);
    bed_put_slice(&b, "s1", "demo-brokers", first);
    bed_put_slice(&b, "s2", "demo-brokers", second);
    KT_STR(op_played.log, "slice ns/demo ns/s1 1|slice ns/demo ns/s2 1|");
    op_played_reset();
    bed_put_slice(&b, "s3", "demo-brokers", both);
    bed_remove(&b, KO_ENDPOINTSLICE, "s1");
    bed_remove(&b, KO_ENDPOINTSLICE, "s2");
    bed_settle(&b);
    KT_STR(op_played.log, "slice ns/demo ns/s3 2|slice- ns/demo ns/s1|slice- ns/demo ns/s2|");
    bed_stop(&b);
}

static void an_unseen_pod_is_waited_for(void)
{
    struct bed b;
    struct ko_rec_metrics m;
    json_t *list = json_array();
    char uid[40];
    start(&b);
    bed_get(&b, KO_STATEFULSET, "demo");
    snprintf(uid, sizeof(uid), "%s", ko_uid(b.doc));
    json_array_append_new(list, json_pack("{s:s, s:{s:b}, s:{s:s, s:s, s:s}}", "hostname", "demo-2",
                                          "conditions", "serving", 1, "targetRef", "kind", "Pod",
                                          "name", "demo-2", "uid", "later"));
    bed_put_slice(&b, "s", "demo-brokers", list);
    KT_EQ(op_played.n_eps, 0);
    ko_rec_metrics_read(b.rec, &m);
    KT_EQ(m.foreign_endpoints, 0);
    make_pod(&b, 2, uid);
    list = json_array();
    bed_add_endpoint(&b, list, "demo-2", "demo-2", true);
    bed_put_slice(&b, "s", "demo-brokers", list);
    KT_EQ(op_played.n_eps, 1);
    bed_stop(&b);
}

KT_MAIN("operator/slices", KT(R3_R6_readiness_is_an_attribute),
        KT(R2_slices_of_other_services_do_not_count),
        KT(R10_hostnames_without_an_ordinal_are_ignored),
        KT(foreign_endpoints_raise_an_event_and_a_metric),
        KT(R29_an_endpoint_carries_the_grace_of_its_pod),
        KT(R4_an_endpoint_whose_pod_is_gone_is_not_listed),
        KT(R5_R6_slices_are_told_one_by_one_and_withdrawn_by_name), KT(an_unseen_pod_is_waited_for))
