/* KaasTopic: the oldest owns a name; deletion only by an observed deletion of the owner. */
#include "base/kc_json.h"
#include "base/kc_str.h"
#include "image/ki_keys.h"
#include "op_bed.h"

#define TOPIC(name, spec)                                                                          \
    "apiVersion: kaas.dev/v1alpha1\nkind: KaasTopic\nmetadata: {name: " name                       \
    ", namespace: ns}\nspec: {cluster: demo, " spec "}\n"

static void start(struct bed *b)
{
    bed_start_cluster(b, "");
    op_played_reset();
}

static void a_topic_gets_an_identity_before_it_is_told(void)
{
    struct bed b;
    start(&b);
    bed_create(&b, KO_KAASTOPIC, TOPIC("orders", "partitions: 4"));
    bed_settle(&b);
    KT_STR(op_played.log, "topic ns/demo orders 4|");
    bed_get(&b, KO_KAASTOPIC, "orders");
    KT_STR(kc_json_str(b.doc, "status.topicId", ""), op_played.topic_id);
    KT_TRUE(ko_has_finalizer(b.doc, "kaas.dev/topic"));
    KT_STR(bed_cond(&b, "Ready"), "True");
    KT_EQ(kc_json_int(b.doc, "status.partitions", 0), 4);
    bed_merge(&b, KO_KAASTOPIC, "orders", "spec: {partitions: 6}");
    bed_settle(&b);
    KT_EQ(op_played.topic_parts, 6);
    bed_merge(&b, KO_KAASTOPIC, "orders", "spec: {partitions: 2}");
    bed_settle(&b);
    KT_EQ(op_played.topic_parts, 6);
    bed_get(&b, KO_KAASTOPIC, "orders");
    KT_STR(bed_cond(&b, "Ready"), "False");
    KT_STR(kc_json_str(b.doc, "status.conditions.0.reason", ""), "PartitionsCannotDecrease");
    bed_stop(&b);
}

static void a_younger_claim_is_a_conflict(void)
{
    struct bed b;
    start(&b);
    bed_create(&b, KO_KAASTOPIC, TOPIC("first", "topicName: orders"));
    bed_settle(&b);
    bed_create(&b, KO_KAASTOPIC, TOPIC("second", "topicName: orders, partitions: 9"));
    bed_settle(&b);
    KT_STR(op_played.log, "topic ns/demo orders 1|");
    bed_get(&b, KO_KAASTOPIC, "second");
    KT_STR(bed_cond(&b, "Conflict"), "True");
    KT_STR(bed_cond(&b, "Ready"), "False");
    bed_remove(&b, KO_KAASTOPIC, "second"); /* touches nothing */
    bed_settle(&b);
    KT_EQ(bed_get(&b, KO_KAASTOPIC, "second"), 404);
    KT_STR(op_played.log, "topic ns/demo orders 1|");
    bed_stop(&b);
}

static void deletion_waits_for_the_data(void)
{
    struct bed b;
    char want[80];
    struct kc_uuid id;
    start(&b);
    bed_create(&b, KO_KAASTOPIC, TOPIC("orders", "partitions: 1"));
    bed_settle(&b);
    KT_EQ(kc_uuid_from_b64(kc_str_of(op_played.topic_id), &id), 0);
    snprintf(want, sizeof(want), "topic- ns/demo %s|", op_played.topic_id);
    bed_remove(&b, KO_KAASTOPIC, "orders");
    bed_settle(&b);
    KT_TRUE(strstr(op_played.log, want) != NULL);
    KT_EQ(bed_get(&b, KO_KAASTOPIC, "orders"), 200);
    b.cb.topic_gone(b.cb.ctx, "ns/demo", &id);
    bed_settle(&b);
    KT_EQ(bed_get(&b, KO_KAASTOPIC, "orders"), 404);
    bed_create(&b, KO_KAASTOPIC, TOPIC("orders", "partitions: 1"));
    bed_settle(&b);
    struct kc_uuid other;
    KT_EQ(kc_uuid_from_b64(kc_str_of(op_played.topic_id), &other), 0);
    KT_FALSE(kc_uuid_eq(&id, &other)); /* a new topic of the same name is another topic */
    bed_stop(&b);
}

static void a_missing_object_is_made_again(void)
{
    struct bed b;
    char id[32];
    start(&b);
    bed_create(&b, KO_KAASTOPIC, TOPIC("orders", "partitions: 3, config: {retention.ms: \"5\"}"));
    bed_settle(&b);
    snprintf(id, sizeof(id), "%s", op_played.topic_id);
    /* Both at once: before anybody could put the finalizer back. */
    json_t *patch = op_yaml("metadata: {finalizers: []}");
    b.store->ops->merge(b.store, KO_KAASTOPIC, "ns", "orders", patch, NULL, NULL);
    json_decref(patch);
    bed_remove(&b, KO_KAASTOPIC, "orders");
    bed_settle(&b);
    KT_TRUE(strstr(op_played.log, "topic-") == NULL);
    KT_EQ(bed_get(&b, KO_KAASTOPIC, "orders"), 200);
    KT_STR(kc_json_str(b.doc, "status.topicId", ""), id);
    KT_EQ(kc_json_int(b.doc, "spec.partitions", 0), 3);
    KT_TRUE(ko_has_finalizer(b.doc, "kaas.dev/topic"));
    bed_stop(&b);
}

static void a_standby_forgets_what_the_leader_deleted(void)
{
    struct bed b;
    start(&b);
    bed_create(&b, KO_KAASTOPIC, TOPIC("orders", "partitions: 3"));
    bed_settle(&b);
    b.cb.leader(b.cb.ctx, false);
    json_t *patch = op_yaml("metadata: {finalizers: []}"); /* the leader, done with the data */
    b.store->ops->merge(b.store, KO_KAASTOPIC, "ns", "orders", patch, NULL, NULL);
    json_decref(patch);
    bed_remove(&b, KO_KAASTOPIC, "orders");
    bed_settle(&b);
    KT_TRUE(strstr(op_played.log, "topic? ns/demo ") != NULL); /* the control thread forgets, too */
    b.cb.leader(b.cb.ctx, true);
    bed_settle(&b);
    KT_EQ(bed_get(&b, KO_KAASTOPIC, "orders"), 404);
    bed_stop(&b);
}

static void without_its_cluster_a_topic_goes_and_data_stays(void)
{
    struct bed b;
    start(&b);
    bed_create(&b, KO_KAASTOPIC, TOPIC("orders", "partitions: 1"));
    bed_settle(&b);
    bed_remove(&b, KO_KAASCLUSTER, "demo");
    bed_settle(&b);
    KT_EQ(bed_get(&b, KO_KAASTOPIC, "orders"), 200);
    KT_STR(bed_cond(&b, "Ready"), "False");
    bed_remove(&b, KO_KAASTOPIC, "orders");
    bed_settle(&b);
    KT_EQ(bed_get(&b, KO_KAASTOPIC, "orders"), 404);
    KT_TRUE(strstr(op_played.log, "topic-") == NULL);
    bed_stop(&b);
}

static void ask(struct bed *b, struct ko_admin a)
{
    op_played.done = 0;
    a.cluster = "ns/demo";
    a.principal = "User:ANONYMOUS";
    b->cb.admin(b->cb.ctx, &a);
    BED_WAIT(b, op_played.done > 0);
    KT_EQ(op_played.done_ticket, a.ticket);
}

static void clients_topics_become_objects(void)
{
    struct bed b;
    char id[32];
    start(&b);
    struct ki_config config = {"retention.ms", "7"};
    struct ko_admin a = {.ticket = 5,
                         .kind = KO_CREATE_TOPIC,
                         .topic = "My_Topic",
                         .topic_id = kc_uuid_random(),
                         .partitions = 2,
                         .replication_factor = 3,
                         .n_configs = 1,
                         .configs = &config};
    ask(&b, a);
    KT_EQ(op_played.done_error, 0);
    bed_settle(&b);
    char name[254];
    ko_topic_object_name("My_Topic", "", name);
    KT_EQ(bed_get(&b, KO_KAASTOPIC, name), 200);
    kc_uuid_to_b64(&a.topic_id, id);
    KT_STR(kc_json_str(b.doc, "status.topicId", ""), id);
    KT_STR(kc_json_str(b.doc, "spec.topicName", ""), "My_Topic");
    KT_STR(json_string_value(json_object_get(kc_json_at(b.doc, "spec.config"), "retention.ms")),
           "7");
    KT_STR(op_played.topic_id, id);
    ask(&b, a);
    KT_EQ(op_played.done_error, 36); /* TOPIC_ALREADY_EXISTS */

    a.kind = KO_CREATE_PARTITIONS;
    a.partitions = 5;
    ask(&b, a);
    KT_EQ(op_played.done_error, 0);
    struct ki_config other = {"cleanup.policy", "compact"};
    a.kind = KO_ALTER_TOPIC_CONFIG;
    a.configs = &other;
    ask(&b, a);
    bed_settle(&b);
    bed_get(&b, KO_KAASTOPIC, name);
    KT_EQ(kc_json_int(b.doc, "spec.partitions", 0), 5);
    KT_EQ(json_object_size(kc_json_at(b.doc, "spec.config")), 1);
    KT_EQ(op_played.topic_parts, 5);

    a.kind = KO_DELETE_TOPIC;
    ask(&b, a);
    KT_EQ(op_played.done_error, 0);
    bed_settle(&b);
    KT_EQ(bed_get(&b, KO_KAASTOPIC, name), 200);
    b.cb.topic_gone(b.cb.ctx, "ns/demo", &a.topic_id);
    bed_settle(&b);
    KT_EQ(bed_get(&b, KO_KAASTOPIC, name), 404);
    bed_stop(&b);
}

static void a_topic_made_again_while_the_old_one_goes_is_another(void)
{
    struct bed b;
    start(&b);
    struct ko_admin a = {.ticket = 1,
                         .kind = KO_CREATE_TOPIC,
                         .topic = "t",
                         .topic_id = kc_uuid_random(),
                         .partitions = 1};
    ask(&b, a);
    bed_settle(&b);
    struct kc_uuid old = a.topic_id;
    a.kind = KO_DELETE_TOPIC;
    ask(&b, a);
    a.kind = KO_CREATE_TOPIC;
    a.topic_id = kc_uuid_random();
    ask(&b, a);
    KT_EQ(op_played.done_error, 0);
    b.cb.topic_gone(b.cb.ctx, "ns/demo", &old);
    bed_settle(&b);
    char id[32];
    kc_uuid_to_b64(&a.topic_id, id);
    b.code = -1;
    KT_STR(op_played.topic_id, id);
    bed_get(&b, KO_KAASTOPIC, "t");
    KT_EQ(b.code, 404); /* the old object went; the new one has a name of its own */
    bed_stop(&b);
}

static void the_volumes_topics_are_adopted(void)
{
    struct bed b;
    char id[32];
    start(&b);
    struct ki_topic t[] = {
        {.id = kc_uuid_random(), .name = "found", .n_parts = 7},
        {.id = kc_uuid_random(), .name = "orders", .n_parts = 2},
        {.id = kc_uuid_random(), .name = "__consumer_offsets", .internal = true, .n_parts = 50}};
    bed_create(&b, KO_KAASTOPIC, TOPIC("orders", "partitions: 2"));
    bed_settle(&b);
    b.cb.adopt(b.cb.ctx, "ns/demo", t, 3);
    bed_settle(&b);
    kc_uuid_to_b64(&t[0].id, id);
    KT_EQ(bed_get(&b, KO_KAASTOPIC, "found"), 200);
    KT_STR(kc_json_str(b.doc, "status.topicId", ""), id);
    KT_EQ(kc_json_int(b.doc, "spec.partitions", 0), 7);
    kc_uuid_to_b64(&t[1].id, id);
    bed_get(&b, KO_KAASTOPIC, "orders");
    KT_STR(kc_json_str(b.doc, "status.topicId", ""), id); /* the volume's id wins */
    KT_TRUE(strstr(op_played.log, "topic ns/demo __consumer_offsets 50|") != NULL);
    KT_TRUE(strstr(op_played.log, "topic-") == NULL);
    bed_stop(&b);
}

/* Another operator deletes while this one stands by: taking over must not bring the topic back. */
static void a_standby_does_not_bring_deleted_topics_back(void)
{
    struct bed b;
    start(&b);
    bed_create(&b, KO_KAASTOPIC, TOPIC("orders", "partitions: 1"));
    bed_settle(&b);
    b.cb.leader(b.cb.ctx, false);
    bed_remove(&b, KO_KAASTOPIC, "orders");
    bed_settle(&b);
    bed_merge(&b, KO_KAASTOPIC, "orders", "metadata: {finalizers: []}");
    bed_settle(&b);
    KT_EQ(bed_get(&b, KO_KAASTOPIC, "orders"), 404);
    b.cb.leader(b.cb.ctx, true);
    bed_settle(&b);
    KT_EQ(bed_get(&b, KO_KAASTOPIC, "orders"), 404);
    bed_stop(&b);
}

static void an_object_whose_topic_is_dead_gets_a_new_one(void)
{
    struct bed b;
    struct kc_uuid id;
    char dead[32];
    start(&b);
    bed_create(&b, KO_KAASTOPIC, TOPIC("orders", "partitions: 1"));
    bed_settle(&b);
    snprintf(dead, sizeof(dead), "%s", op_played.topic_id);
    KT_EQ(kc_uuid_from_b64(kc_str_of(dead), &id), 0);
    op_played_reset();
    b.cb.topic_gone(b.cb.ctx, "ns/demo", &id);
    bed_settle(&b);
    KT_STR(op_played.log, "topic ns/demo orders 1|"); /* once, and not the dead one */
    KT_TRUE(strcmp(op_played.topic_id, dead) != 0);
    bed_get(&b, KO_KAASTOPIC, "orders");
    KT_STR(kc_json_str(b.doc, "status.topicId", ""), op_played.topic_id);
    bed_stop(&b);
}

static const char *reason(struct bed *b, const char *name)
{
    bed_get(b, KO_KAASTOPIC, name);
    return kc_json_str(b->doc, "status.conditions.0.reason", "");
}

static bool says(struct bed *b, const char *text)
{
    return strstr(kc_json_str(b->doc, "status.conditions.0.message", ""), text) != NULL;
}

/* As a client's CreateTopics: refused, in the same words; nothing is made until it is corrected. */
static void a_topic_with_an_unknown_setting_is_not_created(void)
{
    struct bed b;
    char why[KI_WHY_MAX];
    start(&b);
    bed_create(&b, KO_KAASTOPIC,
               TOPIC("orders", "config: {retention.msec: \"5\", cleanup.policy: sometimes}"));
    bed_settle(&b);
    KT_STR(op_played.log, "");
    KT_STR(reason(&b, "orders"), "InvalidConfig");
    KT_STR(bed_cond(&b, "Ready"), "False");
    KT_TRUE(
        !ki_key_take(KI_TOPIC_KEY, kc_str_of("retention.msec"), kc_str_of("5"), why, sizeof(why)));
    KT_TRUE(says(&b, why));
    KT_TRUE(!ki_key_take(KI_TOPIC_KEY, kc_str_of("cleanup.policy"), kc_str_of("sometimes"), why,
                         sizeof(why)));
    KT_TRUE(says(&b, why)); /* both are named at once */
    KT_STR(kc_json_str(b.doc, "status.topicId", "none"), "none");
    bed_merge(&b, KO_KAASTOPIC, "orders",
              "spec: {config: {retention.msec: null, cleanup.policy: compact}}");
    bed_settle(&b);
    KT_STR(op_played.log, "topic ns/demo orders 1|");
    KT_STR(op_played.topic_config, "cleanup.policy=compact;");
    KT_STR(reason(&b, "orders"), "Reconciled");
    bed_stop(&b);
}

/* The settings that were told last stay in force, whoever leads; the status is written once. */
static void a_bad_setting_leaves_the_last_good_ones_in_force(void)
{
    struct bed b;
    start(&b);
    bed_create(&b, KO_KAASTOPIC, TOPIC("orders", "config: {retention.ms: \"60000\"}"));
    bed_settle(&b);
    KT_STR(op_played.topic_config, "retention.ms=60000;");
    op_played_reset();
    bed_merge(&b, KO_KAASTOPIC, "orders",
              "spec: {partitions: 4, config: {retention.ms: soon\u00e9}}");
    bed_settle(&b);
    KT_STR(reason(&b, "orders"), "InvalidConfig");
    KT_TRUE(says(&b, "retention.ms must be a number, valid: -1.., is \"soon"));
    KT_EQ(kc_json_int(b.doc, "status.observedGeneration", 0), ko_generation(b.doc));
    int32_t writes = b.counting.writes;
    for (int i = 0; i < 50; i++) {
        bed_merge(&b, KO_KAASTOPIC, "orders",
                  i % 2 ? "metadata: {labels: {a: b}}" : "metadata: {labels: {a: c}}");
        b.cb.leader(b.cb.ctx, true);
        bed_settle(&b);
    }
    KT_EQ(b.counting.writes, writes);
    b.cb.leader(b.cb.ctx, false);
    b.cb.leader(b.cb.ctx, true);
    bed_settle(&b);
    KT_TRUE(strstr(op_played.log, "topic") == NULL); /* neither the bad ones nor their absence */
    bed_remove(&b, KO_KAASTOPIC, "orders"); /* and it can be deleted as it is */
    bed_settle(&b);
    KT_TRUE(strstr(op_played.log, "topic- ns/demo ") != NULL);
    bed_stop(&b);
}

static void refuse(struct bed *b, const char *why)
{
    struct kc_uuid id;
    KT_EQ(kc_uuid_from_b64(kc_str_of(op_played.topic_id), &id), 0);
    b->cb.topic_refused(b->cb.ctx, "ns/demo", &id, why);
    bed_settle(b);
    bed_get(b, KO_KAASTOPIC, "orders");
}

/* The status says what is in force, not what was asked for. */
static void a_topic_that_the_cluster_refuses_is_not_ready(void)
{
    struct bed b;
    start(&b);
    bed_create(&b, KO_KAASTOPIC, TOPIC("orders", "partitions: 4"));
    bed_settle(&b);
    refuse(&b, "The cluster's limit of 3 partitions would be exceeded: it has 0");
    KT_STR(bed_cond(&b, "Ready"), "False");
    KT_STR(reason(&b, "orders"), "LimitExceeded");
    KT_TRUE(says(&b, "limit of 3 partitions"));
    KT_EQ(kc_json_int(b.doc, "status.partitions", -1), 0);
    refuse(&b, ""); /* there is room now */
    KT_STR(bed_cond(&b, "Ready"), "True");
    KT_EQ(kc_json_int(b.doc, "status.partitions", -1), 4);
    bed_merge(&b, KO_KAASTOPIC, "orders", "spec: {partitions: 9}");
    bed_settle(&b);
    refuse(&b, "The cluster's limit of 5 partitions would be exceeded: it has 4");
    KT_STR(reason(&b, "orders"), "LimitExceeded");
    KT_EQ(kc_json_int(b.doc, "status.partitions", -1), 4);
    bed_merge(&b, KO_KAASTOPIC, "orders", "spec: {partitions: 4}"); /* what it has */
    bed_settle(&b);
    KT_EQ(op_played.topic_parts, 4);
    refuse(&b, "");
    KT_STR(bed_cond(&b, "Ready"), "True");
    bed_stop(&b);
}

KT_MAIN("operator/topics", KT(a_topic_that_the_cluster_refuses_is_not_ready),
        KT(a_topic_gets_an_identity_before_it_is_told), KT(a_younger_claim_is_a_conflict),
        KT(deletion_waits_for_the_data), KT(a_missing_object_is_made_again),
        KT(a_standby_forgets_what_the_leader_deleted),
        KT(without_its_cluster_a_topic_goes_and_data_stays), KT(clients_topics_become_objects),
        KT(a_topic_made_again_while_the_old_one_goes_is_another),
        KT(the_volumes_topics_are_adopted), KT(a_standby_does_not_bring_deleted_topics_back),
        KT(an_object_whose_topic_is_dead_gets_a_new_one),
        KT(a_topic_with_an_unknown_setting_is_not_created),
        KT(a_bad_setting_leaves_the_last_good_ones_in_force))
