/* Requests and their refusals: versions, names, counts, configs; auto-creation; paging. */
#include "hx.h"

#include <arpa/inet.h>

#include "base/kc_str.h"
#include "handlers/kb_kafka_config.h"
#include "wire/kw_api_versions.h"
#include "wire/kw_create_partitions.h"
#include "wire/kw_create_topics.h"
#include "wire/kw_delete_topics.h"
#include "wire/kw_describe_configs.h"
#include "wire/kw_describe_topic_partitions.h"
#include "wire/kw_errors.h"
#include "wire/kw_metadata.h"

static struct hx h;
static struct hx_client c;

/* An admin port that applies creations to the image of the test, on the submitting thread. */
static struct {
    int16_t error;
    bool silent; /* keeps the ticket */
    struct kb_admin_ticket *kept;
    struct kb_admin_change last;
} port;

static void on_change(struct kb_admin_ticket *t, const struct kb_admin_change *change)
{
    port.last = *change;
    if (port.silent) {
        port.kept = t;
        return;
    }
    struct kb_admin_result r = {.error = port.error, .message = port.error ? "refused" : ""};
    if (!port.error && change->kind == KB_CREATE_TOPIC) {
        struct hx_topic *topic = hx_topic(&h, change->topic, change->partitions, 1);
        hx_publish(&h);
        r.topic_id = topic->id;
        r.order = (struct kp_order){"uid", 1, h.generation};
    }
    kb_admin_settle(t, &r);
}

static void up(void)
{
    memset(&port, 0, sizeof(port));
    hx_up_admin(&h, 2, on_change);
    hx_topic(&h, "a.b", 3, 1);
    hx_topic(&h, "plain", 2, 1);
    hx_publish(&h);
    hx_dial(&h, &c, 0);
}

static void down(void)
{
    hx_end(&h, &c);
}

static void too_new_api_versions_is_answered_in_version_0(void)
{
    up();
    /* key 18, version 77, correlation 9, client id null, empty tags */
    static const uint8_t frame[] = {0, 0, 0, 11, 0, 18, 0, 77, 0, 0, 0, 9, 0xff, 0xff, 0};
    hx_send_raw(&c, frame, sizeof(frame));
    static const uint8_t want[] = {0, 0, 0, 9, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 5};
    KT_EQ(hx_receive_raw(&c), sizeof(want));
    KT_TRUE(memcmp(c.buf, want, sizeof(want)) == 0);
    down();
}

static void api_versions_5_sends_strayed_clients_back(void)
{
    up();
    struct kw_api_versions_request in;
    kw_api_versions_request_init(&in);
    in.client_software_name = in.client_software_version = KC_STR_LIT("1.0");
    in.node_id = 2;
    const struct kw_api_versions_response *r = hx_call(&c, 18, 5, &in);
    KT_EQ(r->error_code, KAFKA_REBOOTSTRAP_REQUIRED);
    in.node_id = 1;
    in.cluster_id = KC_STR_LIT("another");
    r = hx_call(&c, 18, 5, &in);
    KT_EQ(r->error_code, KAFKA_REBOOTSTRAP_REQUIRED);
    in.cluster_id = kc_str_of(h.app.cluster_id);
    r = hx_call(&c, 18, 5, &in);
    KT_EQ(r->error_code, KAFKA_NONE);
    in.client_software_name = KC_STR_LIT("-bad");
    r = hx_call(&c, 18, 5, &in);
    KT_EQ(r->error_code, KAFKA_INVALID_REQUEST);
    down();
}

static void what_is_not_served_closes_the_connection(void)
{
    static const uint8_t frames[][14] = {
        {0, 0, 0, 10, 0, 0, 0, 2, 0, 0, 0, 1, 0xff, 0xff}, /* Produce 2: advertised, not served */
        {0, 0, 0, 10, 0, 1, 0, 3, 0, 0, 0, 1, 0xff, 0xff}, /* Fetch 3 */
        {0, 0, 0, 10, 0, 3, 0, 99, 0, 0, 0, 1, 0xff, 0xff}, /* Metadata 99 */
        {0, 0, 0, 10, 0, 4, 0, 0, 0, 0, 0, 1, 0xff, 0xff}, /* LeaderAndIsr */
        {0, 0, 0, 10, 0x7f, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff}, /* no such key */
        {0, 0, 0, 10, 0, 3, 0xff, 0xff, 0, 0, 0, 1, 0xff, 0xff}, /* version -1 */
        {0, 0, 0, 10, 0, 3, 0, 1, 0, 0, 0, 1, 0, 99}, /* client id past the end */
    };
    up();
    for (size_t i = 0; i < sizeof(frames) / sizeof(frames[0]); i++) {
        struct hx_client bad;
        hx_dial(&h, &bad, 0);
        hx_send_raw(&bad, frames[i], sizeof(frames[i]));
        KT_EQ(hx_receive_raw(&bad), -1);
        hx_hang_up(&bad);
    }
    down();
}

static const struct kw_metadata_response *ask(int16_t version, struct kw_metadata_request_topic *t,
                                              int32_t n, bool create)
{
    struct kw_metadata_request in;
    kw_metadata_request_init(&in);
    in.topics = t;
    in.n_topics = n;
    in.allow_auto_topic_creation = create || version < 4;
    const struct kw_metadata_response *m = hx_call(&c, 3, version, &in);
    KT_REQUIRE(m != NULL);
    return m;
}

static void metadata_tells_all_topics_from_none(void)
{
    up();
    KT_EQ(ask(0, NULL, 0, false)->n_topics, 2);
    KT_EQ(ask(1, NULL, 0, true)->n_topics, 0);
    KT_EQ(ask(1, NULL, -1, true)->n_topics, 2);
    KT_EQ(ask(12, NULL, 0, false)->n_topics, 0);
    KT_EQ(ask(12, NULL, -1, false)->n_topics, 2);
    down();
}

static void metadata_says_why_a_topic_is_not_there(void)
{
    up();
    struct kw_metadata_request_topic t[4] = {{.name = KC_STR_LIT("unknown")},
                                             {.name = KC_STR_LIT("bad/name")},
                                             {.topic_id = hx_uuid(77)},
                                             {.topic_id = hx_uuid(1)}};
    const struct kw_metadata_response *m = ask(12, t, 4, false);
    KT_EQ(m->topics[0].error_code, KAFKA_UNKNOWN_TOPIC_OR_PARTITION);
    KT_EQ(m->topics[1].error_code, KAFKA_INVALID_TOPIC_EXCEPTION);
    KT_EQ(m->topics[2].error_code, KAFKA_UNKNOWN_TOPIC_ID);
    KT_EQ(m->topics[3].error_code, KAFKA_NONE);
    KT_TRUE(kc_str_eqz(m->topics[3].name, "a.b"));
    KT_EQ(m->topics[3].topic_authorized_operations, INT32_MIN);
    KT_EQ(h.submitted, 0);
    down();
}

static void metadata_creates_what_it_is_asked_for(void)
{
    up();
    struct kw_metadata_request_topic t[2] = {{.name = KC_STR_LIT("new")},
                                             {.name = KC_STR_LIT("plain")}};
    const struct kw_metadata_response *m = ask(12, t, 2, true);
    KT_EQ(m->topics[0].error_code, KAFKA_NONE);
    KT_EQ(m->topics[0].n_partitions, 1);
    KT_EQ(h.submitted, 1);
    port.error = KAFKA_COORDINATOR_NOT_AVAILABLE; /* no active operator: the client may ask again */
    t[0].name = KC_STR_LIT("newer");
    m = ask(12, t, 1, true);
    KT_EQ(m->topics[0].error_code, KAFKA_UNKNOWN_TOPIC_OR_PARTITION);
    down();
}

struct creation {
    const char *name;
    int32_t partitions;
    int16_t factor;
    const char *key, *value;
    int16_t want;
};

static void create_topics_refuses_as_kafka_does(void)
{
    static const struct creation cases[] = {
        {"plain", 1, 1, NULL, NULL, KAFKA_TOPIC_ALREADY_EXISTS},
        {"a/b", 1, 1, NULL, NULL, KAFKA_INVALID_TOPIC_EXCEPTION},
        {"..", 1, 1, NULL, NULL, KAFKA_INVALID_TOPIC_EXCEPTION},
        {"", 1, 1, NULL, NULL, KAFKA_INVALID_TOPIC_EXCEPTION},
        {"a_b", 1, 1, NULL, NULL, KAFKA_INVALID_TOPIC_EXCEPTION},
        {"zero", 0, 1, NULL, NULL, KAFKA_INVALID_PARTITIONS},
        {"many", 1000000, 1, NULL, NULL, KAFKA_INVALID_PARTITIONS},
        {"factor", 1, 2, NULL, NULL, KAFKA_INVALID_REPLICATION_FACTOR},
        {"factor0", 1, 0, NULL, NULL, KAFKA_INVALID_REPLICATION_FACTOR},
        {"key", 1, 1, "no.such.key", "1", KAFKA_INVALID_CONFIG},
        {"value", 1, 1, "retention.ms", "soon", KAFKA_INVALID_CONFIG},
        {"range", 1, 1, "min.cleanable.dirty.ratio", "1.5", KAFKA_INVALID_CONFIG},
        {"policy", 1, 1, "cleanup.policy", "compact,shred", KAFKA_INVALID_CONFIG},
        {"fine", 2, 1, "cleanup.policy", "compact,delete", KAFKA_NONE},
        {"defaults", -1, -1, "retention.ms", "-1", KAFKA_NONE},
    };
    up();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kw_create_topics_request_creatable_topic_config config = {kc_str_of(cases[i].key),
                                                                         kc_str_of(cases[i].value)};
        struct kw_create_topics_request_creatable_topic t = {.name = kc_str_of(cases[i].name),
                                                             .num_partitions = cases[i].partitions,
                                                             .replication_factor = cases[i].factor,
                                                             .configs = &config,
                                                             .n_configs = cases[i].key ? 1 : 0};
        struct kw_create_topics_request in = {.topics = &t, .n_topics = 1, .timeout_ms = 5000};
        const struct kw_create_topics_response *r = hx_call(&c, 19, 7, &in);
        KT_EQ(r->topics[0].error_code, cases[i].want);
        KT_EQ(r->topics[0].error_message.ptr != NULL, cases[i].want != 0);
    }
    KT_EQ(h.submitted, 2);
    down();
}

static void create_topics_that_only_validates_creates_nothing(void)
{
    up();
    struct kw_create_topics_request_creatable_topic t[2] = {
        {.name = KC_STR_LIT("x"), .num_partitions = 4, .replication_factor = -1},
        {.name = KC_STR_LIT("y"), .num_partitions = 1, .replication_factor = 1}};
    struct kw_create_topics_request in = {
        .topics = t, .n_topics = 2, .timeout_ms = 5000, .validate_only = true};
    const struct kw_create_topics_response *r = hx_call(&c, 19, 7, &in);
    KT_EQ(r->topics[0].error_code, KAFKA_NONE);
    KT_EQ(r->topics[0].num_partitions, 4);
    KT_TRUE(r->topics[0].n_configs > 25);
    KT_EQ(h.submitted, 0);
    t[1].name = t[0].name;
    r = hx_call(&c, 19, 7, &in);
    KT_EQ(r->topics[0].error_code, KAFKA_INVALID_REQUEST);
    KT_EQ(r->topics[1].error_code, KAFKA_INVALID_REQUEST);
    down();
}

static void a_change_without_an_answer_times_out(void)
{
    up();
    port.silent = true;
    struct kw_create_topics_request_creatable_topic t = {
        .name = KC_STR_LIT("x"), .num_partitions = 1, .replication_factor = 1};
    struct kw_create_topics_request in = {.topics = &t, .n_topics = 1, .timeout_ms = 50};
    const struct kw_create_topics_response *r = hx_call(&c, 19, 7, &in);
    KT_EQ(r->topics[0].error_code, KAFKA_REQUEST_TIMED_OUT);
    struct kb_admin_result late = {.message =
                                       ""}; /* settles all the same: nobody is answered twice */
    kb_admin_settle(port.kept, &late);
    h.app.admin = (struct kb_admin_port){NULL, NULL};
    r = hx_call(&c, 19, 7, &in);
    KT_EQ(r->topics[0].error_code, KAFKA_COORDINATOR_NOT_AVAILABLE);
    down();
}

static void partitions_only_grow(void)
{
    up();
    struct kw_create_partitions_request_topic t[3] = {
        {.name = KC_STR_LIT("plain"), .count = 2, .n_assignments = -1},
        {.name = KC_STR_LIT("a.b"), .count = 5, .n_assignments = -1},
        {.name = KC_STR_LIT("nope"), .count = 5, .n_assignments = -1}};
    struct kw_create_partitions_request in = {.topics = t, .n_topics = 3, .timeout_ms = 5000};
    const struct kw_create_partitions_response *r = hx_call(&c, 37, 3, &in);
    KT_EQ(r->results[0].error_code, KAFKA_INVALID_PARTITIONS);
    KT_EQ(r->results[1].error_code, KAFKA_NONE);
    KT_EQ(r->results[2].error_code, KAFKA_UNKNOWN_TOPIC_OR_PARTITION);
    KT_EQ(h.submitted, 1);
    KT_EQ(port.last.partitions, 5);
    down();
}

static void topics_are_deleted_by_name_or_id(void)
{
    up();
    struct kw_delete_topics_request_delete_topic_state t[4] = {
        {.name = KC_STR_LIT("plain")},
        {.topic_id = hx_uuid(1)},
        {.topic_id = hx_uuid(99)},
        {.name = KC_STR_LIT("a.b"), .topic_id = hx_uuid(1)}};
    struct kw_delete_topics_request in = {.topics = t, .n_topics = 4, .timeout_ms = 5000};
    const struct kw_delete_topics_response *r = hx_call(&c, 20, 6, &in);
    KT_EQ(r->responses[0].error_code, KAFKA_NONE);
    KT_EQ(r->responses[1].error_code, KAFKA_NONE);
    KT_TRUE(kc_str_eqz(r->responses[1].name, "a.b"));
    KT_EQ(r->responses[2].error_code, KAFKA_UNKNOWN_TOPIC_ID);
    KT_EQ(r->responses[3].error_code, KAFKA_INVALID_REQUEST);
    struct kc_str names[1] = {KC_STR_LIT("none")};
    struct kw_delete_topics_request old = {.topic_names = names, .n_topic_names = 1};
    r = hx_call(&c, 20, 3, &old);
    KT_EQ(r->responses[0].error_code, KAFKA_UNKNOWN_TOPIC_OR_PARTITION);
    down();
}

static void topics_given_twice_are_not_deleted(void)
{
    up();
    struct kw_delete_topics_request_delete_topic_state t[6] = {
        {.name = KC_STR_LIT("plain")}, {.topic_id = hx_uuid(1)},
        {.name = KC_STR_LIT("plain")}, {.name = KC_STR_LIT("a.b")}, /* the same as that id */
        {.topic_id = hx_uuid(99)},     {.topic_id = hx_uuid(99)}};
    struct kw_delete_topics_request in = {.topics = t, .n_topics = 6, .timeout_ms = 5000};
    const struct kw_delete_topics_response *r = hx_call(&c, 20, 6, &in);
    static const int16_t want[6] = {KAFKA_INVALID_REQUEST, KAFKA_NONE,
                                    KAFKA_INVALID_REQUEST, KAFKA_INVALID_REQUEST,
                                    KAFKA_INVALID_REQUEST, KAFKA_INVALID_REQUEST};
    for (int i = 0; i < 6; i++) {
        KT_EQ(r->responses[i].error_code, want[i]);
    }
    KT_EQ(h.submitted, 1);
    struct kc_str names[2] = {KC_STR_LIT("plain"), KC_STR_LIT("plain")};
    struct kw_delete_topics_request old = {.topic_names = names, .n_topic_names = 2};
    r = hx_call(&c, 20, 3, &old);
    KT_EQ(r->responses[0].error_code, KAFKA_INVALID_REQUEST);
    KT_EQ(r->responses[1].error_code, KAFKA_INVALID_REQUEST);
    KT_EQ(h.submitted, 1);
    down();
}

static void configs_show_their_source_and_the_sync_before_ack(void)
{
    up();
    h.topics[1].configs[0] = (struct ki_config){"retention.ms", "5"};
    h.topics[1].n_configs = 1;
    hx_publish(&h);
    struct kc_str keys[2] = {KC_STR_LIT("flush.messages"), KC_STR_LIT("retention.ms")};
    struct kw_describe_configs_request_resource res = {.resource_type = 2,
                                                       .resource_name = KC_STR_LIT("plain"),
                                                       .configuration_keys = keys,
                                                       .n_configuration_keys = 2};
    struct kw_describe_configs_request in = {.resources = &res,
                                             .n_resources = 1,
                                             .include_synonyms = true,
                                             .include_documentation = true};
    const struct kw_describe_configs_response *r = hx_call(&c, 32, 4, &in);
    KT_EQ(r->results[0].n_configs, 2);
    KT_TRUE(kc_str_eqz(r->results[0].configs[0].value, "1"));
    KT_EQ(r->results[0].configs[0].config_source, 5);
    KT_TRUE(kc_str_eqz(r->results[0].configs[1].value, "5"));
    KT_EQ(r->results[0].configs[1].config_source, 1);
    KT_EQ(r->results[0].configs[1].n_synonyms, 2);
    KT_TRUE(r->results[0].configs[1].documentation.len > 0);
    res = (struct kw_describe_configs_request_resource){
        .resource_type = 4, .resource_name = KC_STR_LIT("9"), .n_configuration_keys = -1};
    in.include_synonyms = in.include_documentation = false;
    r = hx_call(&c, 32, 0, &in);
    KT_EQ(r->results[0].error_code, KAFKA_INVALID_REQUEST);
    res.resource_name = KC_STR_LIT("1");
    r = hx_call(&c, 32, 0, &in);
    KT_TRUE(r->results[0].n_configs > 30);
    down();
}

static const struct kw_describe_configs_response_resource_result *
describe_broker(const char *name, struct kc_str key, int32_t *ret_n)
{
    struct kw_describe_configs_request_resource res = {.resource_type = 4,
                                                       .resource_name = kc_str_of(name),
                                                       .configuration_keys = &key,
                                                       .n_configuration_keys = 1};
    struct kw_describe_configs_request in = {
        .resources = &res, .n_resources = 1, .include_synonyms = true};
    const struct kw_describe_configs_response *r = hx_call(&c, 32, 4, &in);
    *ret_n = r->results[0].n_configs;
    return r->results[0].configs;
}

/* What is read at start is what the file said then, until the next start: clients are told so. */
static void configs_that_are_read_at_start_are_the_files(void)
{
    static const struct ki_config file[] = {{"group.max.size", "500"}};
    up();
    h.app.configs = file;
    h.app.n_configs = 1;
    h.configs[0] = (struct ki_config){"group.max.size", "600"};
    h.n_configs = 1;
    hx_publish(&h);
    int32_t n;
    const struct kw_describe_configs_response_resource_result *d =
        describe_broker("1", KC_STR_LIT("group.max.size"), &n);
    KT_REQUIRE(n == 1);
    KT_TRUE(kc_str_eqz(d->value, "500"));
    KT_EQ(d->config_source, KB_SOURCE_BROKER);
    KT_EQ(d->n_synonyms, 2); /* the file's, the default */
    struct ki_image *im = kb_image(&h.app);
    KT_EQ(kb_broker_i64(&h.app, im, "group.max.size"), 500);
    KT_EQ(kb_start_i64(&h.app, "group.max.size"), 500);
    ki_image_unref(im);
    down();
}

/* KaasCluster's spec.config comes with the image: no restart, and no word of the broker's file. */
static void cluster_wide_configs_of_the_image_are_in_force_at_once(void)
{
    static const struct ki_config file[] = {{"num.partitions", "2"}};
    up();
    h.app.configs = file;
    h.app.n_configs = 1;
    static const struct ki_config set[] = {{"auto.create.topics.enable", "false"},
                                           {"log.retention.hours", "1"},
                                           {"log.segment.bytes", "4096"},
                                           {"message.max.bytes", "2048"},
                                           {"num.partitions", "7"}};
    struct kw_metadata_request_topic t = {.name = KC_STR_LIT("two")};
    KT_EQ(ask(12, &t, 1, true)->topics[0].n_partitions, 2); /* as the file says */
    h.n_configs = KC_ARRAY_LEN(set);
    memcpy(h.configs, set, sizeof(set));
    hx_publish(&h);
    t.name = KC_STR_LIT("none");
    KT_EQ(ask(12, &t, 1, true)->topics[0].error_code, KAFKA_UNKNOWN_TOPIC_OR_PARTITION);
    h.configs[0].value = "true";
    hx_publish(&h);
    t.name = KC_STR_LIT("seven");
    KT_EQ(ask(12, &t, 1, true)->topics[0].n_partitions, 7);

    struct ki_image *im = kb_image(&h.app);
    struct ks_log_config log;
    kb_log_config(&h.app, im, ki_topic_by_name(im, kc_str_of("plain")), &log);
    KT_EQ(log.retention_ms, 3600 * 1000);
    KT_EQ(log.segment_bytes, 4096);
    KT_EQ(log.max_message_bytes, 2048);
    ki_image_unref(im);

    int32_t n;
    const struct kw_describe_configs_response_resource_result *d =
        describe_broker("1", KC_STR_LIT("num.partitions"), &n);
    KT_REQUIRE(n == 1);
    KT_TRUE(kc_str_eqz(d->value, "7"));
    KT_EQ(d->config_source, KB_SOURCE_CLUSTER); /* DYNAMIC_DEFAULT_BROKER_CONFIG */
    KT_EQ(d->n_synonyms, 3); /* the image's, the file's, the default */
    KT_EQ(d->synonyms[1].source, KB_SOURCE_BROKER);
    KT_TRUE(d->read_only);
    d = describe_broker("", KC_STR_LIT("num.partitions"), &n); /* --entity-default */
    KT_EQ(n, 1);
    h.n_configs = 0;
    hx_publish(&h);
    d = describe_broker("1", KC_STR_LIT("num.partitions"), &n);
    KT_TRUE(kc_str_eqz(d->value, "2"));
    KT_EQ(d->config_source, KB_SOURCE_BROKER);
    describe_broker("", KC_STR_LIT("num.partitions"), &n);
    KT_EQ(n, 0);
    down();
}

static void topic_partitions_come_page_by_page(void)
{
    up();
    struct kw_describe_topic_partitions_request_topic_request names[3] = {
        {KC_STR_LIT("plain")}, {KC_STR_LIT("a.b")}, {KC_STR_LIT("nope")}};
    struct kw_describe_topic_partitions_request in = {
        .topics = names, .n_topics = 3, .response_partition_limit = 2};
    const struct kw_describe_topic_partitions_response *r = hx_call(&c, 75, 0, &in);
    KT_EQ(r->n_topics, 1);
    KT_TRUE(kc_str_eqz(r->topics[0].name, "a.b"));
    KT_EQ(r->topics[0].n_partitions, 2);
    KT_EQ(r->topics[0].partitions[0].n_eligible_leader_replicas, 0); /* not null */
    KT_REQUIRE(r->next_cursor != NULL);
    KT_EQ(r->next_cursor->partition_index, 2);
    struct kw_describe_topic_partitions_request_cursor at = {KC_STR_LIT("a.b"), 2};
    in.cursor = &at;
    r = hx_call(&c, 75, 0, &in);
    KT_EQ(r->n_topics, 3); /* the rest of a.b, the unknown one, one partition of plain */
    KT_EQ(r->topics[0].n_partitions, 1);
    KT_EQ(r->topics[1].error_code, KAFKA_UNKNOWN_TOPIC_OR_PARTITION);
    KT_EQ(r->topics[2].n_partitions, 1);
    KT_REQUIRE(r->next_cursor != NULL);
    at = (struct kw_describe_topic_partitions_request_cursor){KC_STR_LIT("plain"), 1};
    r = hx_call(&c, 75, 0, &in);
    KT_EQ(r->n_topics, 1);
    KT_TRUE(r->next_cursor == NULL);
    down();
}

KT_MAIN("requests", KT(too_new_api_versions_is_answered_in_version_0),
        KT(api_versions_5_sends_strayed_clients_back), KT(what_is_not_served_closes_the_connection),
        KT(metadata_tells_all_topics_from_none), KT(metadata_says_why_a_topic_is_not_there),
        KT(metadata_creates_what_it_is_asked_for), KT(create_topics_refuses_as_kafka_does),
        KT(create_topics_that_only_validates_creates_nothing),
        KT(a_change_without_an_answer_times_out), KT(partitions_only_grow),
        KT(topics_are_deleted_by_name_or_id), KT(topics_given_twice_are_not_deleted),
        KT(configs_show_their_source_and_the_sync_before_ack),
        KT(cluster_wide_configs_of_the_image_are_in_force_at_once),
        KT(configs_that_are_read_at_start_are_the_files), KT(topic_partitions_come_page_by_page))
