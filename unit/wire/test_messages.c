/* Golden bytes, as Kafka's own Java classes write them, and the rules of versions and null. */
#include <errno.h>
#include <string.h>

#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "kt.h"
#include "wire/kw_api_versions.h"
#include "wire/kw_describe_client_quotas.h"
#include "wire/kw_describe_cluster.h"
#include "wire/kw_describe_topic_partitions.h"
#include "wire/kw_errors.h"
#include "wire/kw_fetch.h"
#include "wire/kw_find_coordinator.h"
#include "wire/kw_metadata.h"
#include "wire/kw_produce.h"
#include "wire_help.h"

static void check_hex(struct kw_writer *w, const char *want)
{
    KT_EQ(w->error, 0);
    char *hex = wire_hex(w);
    KT_STR(hex, want);
    kc_free(hex);
    kw_writer_reset(w);
}

/* Decodes hex as a message and encodes it again: the same bytes. */
static void check_both_ways(const struct kw_message *m, int16_t version, const char *hex)
{
    uint8_t bytes[512];
    size_t n = wire_unhex(hex, bytes, sizeof(bytes));
    struct kc_arena a;
    kc_arena_init(&a, 4096, 0);
    void *out = kc_arena_zalloc(&a, 1, m->root->size);
    KT_REQUIRE(out);
    struct kw_cursor c;
    kw_cursor_init(&c, bytes, n);
    KT_EQ(kw_decode(m, &c, version, &a, out), 0);
    KT_EQ(kw_cursor_left(&c), 0);
    struct kw_writer w;
    kw_writer_init(&w, 4096);
    kw_encode(m, &w, version, out);
    check_hex(&w, hex);
    kw_writer_fini(&w);
    kc_arena_fini(&a);
}

static void golden_messages_survive(void)
{
    check_both_ways(&kw_api_versions_request_msg, 3, "056b63617404312e3700");
    check_both_ways(&kw_api_versions_request_msg, 5, "056b63617404312e3702630000000200");
    check_both_ways(&kw_api_versions_response_msg, 0, "002300000001001200000005");
    check_both_ways(&kw_api_versions_response_msg, 4,
                    "0000020012000000050000000000020008020266000000010001080000000000000005");
    check_both_ways(&kw_metadata_request_msg, 9, "0000000000");
    check_both_ways(&kw_metadata_request_msg, 9, "0101000000");
    check_both_ways(&kw_metadata_request_msg, 1, "00000000");
    check_both_ways(&kw_produce_response_msg, 8,
                    "0000000100017400000001000000010006ffffffffffffffffffffffffffffffffffffffffff"
                    "ffffff00000000ffff00000000");
    check_both_ways(&kw_find_coordinator_request_msg, 0, "000167");
    check_both_ways(&kw_describe_topic_partitions_request_msg, 0, "01000007d0ff00");
    check_both_ways(&kw_describe_topic_partitions_request_msg, 0, "01000007d0010274000000040000");
}

static void golden_headers(void)
{
    static const struct {
        const char *hex;
        struct kw_request_header h;
    } cases[] = {
        {"000300080000000700026162", {3, 8, 7, KC_STR_LIT("ab")}}, /* v1 */
        {"0003000900000007ffff00", {3, 9, 7, KC_STR_NULL}}, /* v2, plain client id */
    };
    struct kw_writer w;
    kw_writer_init(&w, 1024);
    for (size_t i = 0; i < KC_ARRAY_LEN(cases); i++) {
        kw_request_header_encode(&w, &cases[i].h);
        struct kw_request_header h;
        struct kw_cursor c;
        kw_cursor_init(&c, w.own.data, w.own.len);
        KT_EQ(kw_request_header_decode(&c, &h), 0);
        KT_EQ(kw_cursor_left(&c), 0);
        KT_TRUE(h.api_key == 3 && h.api_version == cases[i].h.api_version && h.correlation == 7);
        KT_TRUE(kc_str_eq(h.client_id, cases[i].h.client_id));
        check_hex(&w, cases[i].hex);
    }
    kw_response_header_encode(&w, kw_api_find(3), 8, 7);
    check_hex(&w, "00000007");
    kw_response_header_encode(&w, kw_api_find(3), 9, 7);
    check_hex(&w, "0000000700");
    kw_response_header_encode(&w, kw_api_find(KW_API_VERSIONS), 3, 7); /* always v0 */
    check_hex(&w, "00000007");
    kw_writer_fini(&w);
}

static int decode_header(const char *hex, struct kw_request_header *h)
{
    static uint8_t bytes[64];
    size_t n = wire_unhex(hex, bytes, sizeof(bytes));
    struct kw_cursor c;
    kw_cursor_init(&c, bytes, n);
    return kw_request_header_decode(&c, h);
}

static void bad_headers_are_refused(void)
{
    struct kw_request_header h;
    KT_EQ(decode_header("0003", &h), KC_E_TRUNCATED);
    KT_EQ(decode_header("000300090000000700056162", &h), KC_E_TRUNCATED);
    KT_EQ(decode_header("4745540000000007ffff", &h), KC_E_UNSUPPORTED); /* "GET\0" */
    KT_EQ(h.api_key, 0x4745);
    KT_EQ(decode_header("ffff00000000000700", &h), KC_E_UNSUPPORTED);
    /* A version from the future has a flexible header, too; the table's range is the caller's. */
    KT_EQ(decode_header("0012006300000007ffff00", &h), 0);
    KT_EQ(h.api_version, 99);
}

static void produce_answer_carries_the_new_leader_in_tags(void)
{
    struct kw_produce_response_partition_produce_response part;
    kw_produce_response_partition_produce_response_init(&part);
    part.index = 1;
    part.error_code = KAFKA_NOT_LEADER_OR_FOLLOWER;
    part.base_offset = -1;
    part.current_leader.leader_id = 2;
    part.current_leader.leader_epoch = 9;
    struct kw_produce_response_topic_produce_response topic;
    kw_produce_response_topic_produce_response_init(&topic);
    topic.name = KC_STR_LIT("t");
    topic.partition_responses = &part;
    topic.n_partition_responses = 1;
    struct kw_produce_response_node_endpoint node;
    kw_produce_response_node_endpoint_init(&node);
    node.node_id = 2;
    node.host = KC_STR_LIT("h");
    node.port = 9092;
    struct kw_produce_response r;
    kw_produce_response_init(&r);
    r.responses = &topic;
    r.n_responses = 1;
    r.node_endpoints = &node;
    r.n_node_endpoints = 1;
    struct kw_writer w;
    kw_writer_init(&w, 1024);
    kw_produce_response_encode(&w, 10, &r);
    check_hex(&w,
              "02027402000000010006ffffffffffffffffffffffffffffffffffffffffffffffff0100010009000000"
              "020000000900000000000001000d02000000020268000023840000");
    /* Version 9 has no place for it, and nothing says that it may be dropped. */
    kw_produce_response_encode(&w, 9, &r);
    KT_EQ(w.error, KC_E_UNSUPPORTED);
    KT_STR(w.error_field, "CurrentLeader");
    kw_writer_fini(&w);
}

static void fetch_answer_links_record_bytes(void)
{
    static const uint8_t records[] = {1, 2, 3};
    struct kc_slice slices[] = {{NULL, records, 1}, {NULL, records + 1, 2}};
    struct kw_fetch_response_partition_data part;
    kw_fetch_response_partition_data_init(&part);
    part.high_watermark = part.last_stable_offset = 10;
    part.log_start_offset = 0;
    part.n_aborted_transactions = -1;
    part.records_slices = slices;
    part.n_records_slices = 2;
    struct kw_fetch_response_fetchable_topic_response topic;
    kw_fetch_response_fetchable_topic_response_init(&topic);
    topic.topic = KC_STR_LIT("t");
    topic.partitions = &part;
    topic.n_partitions = 1;
    struct kw_fetch_response r;
    kw_fetch_response_init(&r);
    r.session_id = 3;
    r.responses = &topic;
    r.n_responses = 1;
    struct kw_writer w;
    kw_writer_init(&w, 1024);
    kw_fetch_response_encode(&w, 12, &r);
    KT_EQ(w.n_links, 2);
    check_hex(
        &w, "0000000000000000000302027402000000000000000000000000000a000000000000000a00000000000000"
            "0000ffffffff04010203000000");
    kw_fetch_response_encode(&w, 7, &r);
    check_hex(&w, "000000000000000000030000000100017400000001000000000000000000000000000a0000000000"
                  "00000a0000000000000000ffffffff00000003010203");
    kw_writer_fini(&w);
}

static void describe_cluster_shows_fenced_brokers(void)
{
    struct kw_describe_cluster_response_broker broker;
    kw_describe_cluster_response_broker_init(&broker);
    broker.broker_id = 1;
    broker.host = KC_STR_LIT("h");
    broker.port = 1;
    broker.is_fenced = true;
    struct kw_describe_cluster_response r;
    kw_describe_cluster_response_init(&r);
    r.cluster_id = KC_STR_LIT("c");
    r.controller_id = 1;
    r.brokers = &broker;
    r.n_brokers = 1;
    struct kw_writer w;
    kw_writer_init(&w, 1024);
    kw_describe_cluster_response_encode(&w, 2, &r);
    check_hex(&w, "000000000000000102630000000102000000010268000000010001008000000000");
    kw_writer_fini(&w);
}

/* Decodes hex as a Metadata request. */
static int decode_metadata(const char *hex, int16_t version, struct kc_arena *a,
                           struct kw_metadata_request *ret)
{
    static uint8_t bytes[64];
    size_t n = wire_unhex(hex, bytes, sizeof(bytes));
    struct kw_cursor c;
    kw_cursor_init(&c, bytes, n);
    return kw_metadata_request_decode(&c, version, a, ret);
}

static void null_is_refused_where_the_version_has_none(void)
{
    struct kc_arena a;
    kc_arena_init(&a, 4096, 0);
    struct kw_metadata_request r;
    KT_EQ(decode_metadata("ffffffff", 0, &a, &r), KC_E_MALFORMED);
    KT_EQ(decode_metadata("ffffffff", 1, &a, &r), 0);
    KT_EQ(r.n_topics, -1);
    KT_EQ(r.allow_auto_topic_creation, true); /* the default of a field version 1 lacks */
    struct kw_writer w;
    kw_writer_init(&w, 1024);
    kw_metadata_request_encode(&w, 0, &r);
    KT_EQ(w.error, KC_E_MALFORMED);
    KT_STR(w.error_field, "Topics");
    kw_writer_fini(&w);
    kc_arena_fini(&a);
}

static void counts_are_checked_before_memory_is_taken(void)
{
    struct kc_arena a;
    kc_arena_init(&a, 4096, 0);
    struct kw_metadata_request r;
    uint64_t before = kc_mem_try_count();
    KT_EQ(decode_metadata("7fffffff0000", 1, &a, &r), KC_E_TRUNCATED);
    KT_EQ(decode_metadata("ffffffff07000000", 9, &a, &r), KC_E_TRUNCATED);
    KT_EQ(kc_mem_try_count(), before);
    kc_arena_fini(&a);
    kc_arena_init(&a, 64, 64); /* the arena's cap is an ordinary error */
    KT_EQ(decode_metadata("00000008"
                          "0000000000000000"
                          "0000000000000000",
                          1, &a, &r),
          -ENOMEM);
    kc_arena_fini(&a);
}

static void unknown_tags_are_skipped_known_ones_must_fit(void)
{
    struct kc_arena a;
    kc_arena_init(&a, 4096, 0);
    struct kw_metadata_request r;
    KT_EQ(decode_metadata("00000000"
                          "0163"
                          "02aabb",
                          9, &a, &r),
          0);
    KT_EQ(decode_metadata("00000000"
                          "0163"
                          "05aabb",
                          9, &a, &r),
          KC_E_TRUNCATED);
    uint8_t bytes[64];
    struct kw_cursor c;
    struct kw_api_versions_response v;
    /* FinalizedFeaturesEpoch, tag 1, an int64, in 9 and in 7 bytes. */
    size_t n = wire_unhex("00000100000000"
                          "010109000000000000000500",
                          bytes, sizeof(bytes));
    kw_cursor_init(&c, bytes, n);
    KT_EQ(kw_api_versions_response_decode(&c, 3, &a, &v), KC_E_MALFORMED);
    n = wire_unhex("00000100000000"
                   "010107000000000000000500",
                   bytes, sizeof(bytes));
    kw_cursor_init(&c, bytes, n);
    KT_EQ(kw_api_versions_response_decode(&c, 3, &a, &v), KC_E_TRUNCATED);
    kc_arena_fini(&a);
}

static void ignorable_fields_are_dropped_silently(void)
{
    struct kw_find_coordinator_response r;
    kw_find_coordinator_response_init(&r);
    r.error_message = KC_STR_LIT("why"); /* ignorable, not in version 0 */
    r.host = KC_STR_LIT("h");
    struct kw_writer w;
    kw_writer_init(&w, 1024);
    kw_find_coordinator_response_encode(&w, 0, &r);
    check_hex(&w, "0000"
                  "00000000"
                  "000168"
                  "00000000");
    kw_writer_fini(&w);
}

static void new_gives_elements_with_defaults(void)
{
    struct kc_arena a;
    kc_arena_init(&a, 4096, 0);
    struct kw_produce_response_partition_produce_response *p =
        kw_produce_response_partition_produce_response_new(&a, 2);
    KT_REQUIRE(p);
    KT_EQ(p[1].log_append_time_ms, -1);
    KT_EQ(p[1].current_leader.leader_id, -1);
    KT_FALSE(p[1].error_message.ptr);
    kc_arena_fini(&a);
}

static void floats_survive(void)
{
    check_both_ways(&kw_describe_client_quotas_response_msg, 1,
                    "00000000000001020102026b3ff8000000000000000000");
}

static void errors_have_kafkas_numbers_and_names(void)
{
    KT_EQ(KAFKA_NONE, 0);
    KT_EQ(KAFKA_UNKNOWN_SERVER_ERROR, -1);
    KT_EQ(KAFKA_REBOOTSTRAP_REQUIRED, 129);
    KT_EQ(KAFKA_CONTROLLER_ID_NOT_REGISTERED, 136);
    KT_STR(kw_error_name(6), "NOT_LEADER_OR_FOLLOWER");
    KT_STR(kw_error_name(999), "UNKNOWN");
    KT_TRUE(kw_error_retriable(KAFKA_NOT_COORDINATOR));
    KT_FALSE(kw_error_retriable(KAFKA_INVALID_TOPIC_EXCEPTION));
    for (int16_t code = -1; code <= 136; code++) {
        KT_TRUE(strcmp(kw_error_name(code), "UNKNOWN") != 0);
    }
}

KT_MAIN("wire messages", KT(golden_messages_survive), KT(golden_headers),
        KT(bad_headers_are_refused), KT(produce_answer_carries_the_new_leader_in_tags),
        KT(fetch_answer_links_record_bytes), KT(describe_cluster_shows_fenced_brokers),
        KT(null_is_refused_where_the_version_has_none),
        KT(counts_are_checked_before_memory_is_taken),
        KT(unknown_tags_are_skipped_known_ones_must_fit), KT(ignorable_fields_are_dropped_silently),
        KT(new_gives_elements_with_defaults), KT(floats_survive),
        KT(errors_have_kafkas_numbers_and_names))
