/* Produce, Fetch and ListOffsets on a real log in a directory of the test's own. */
#include "hx.h"

#include <poll.h>

#include "base/kc_clock.h"
#include "base/kc_str.h"
#include "wire/kw_batch.h"
#include "wire/kw_delete_records.h"
#include "wire/kw_errors.h"
#include "wire/kw_fetch.h"
#include "wire/kw_list_offsets.h"
#include "wire/kw_metadata.h"
#include "wire/kw_produce.h"

static struct hx h;
static struct hx_client c;

static void up(int32_t n_parts)
{
    hx_up_engine(&h, 1, 2);
    hx_row(&h, 1);
    hx_row(&h, 2);
    hx_topic(&h, "t", n_parts, 1);
    hx_publish(&h);
    for (int32_t p = 0; p < n_parts; p++) {
        hx_open_part(&h, &h.topics[0], p);
    }
    hx_dial(&h, &c, 0);
}

static void down(int32_t n_parts)
{
    for (int32_t p = 0; p < n_parts; p++) {
        hx_close_part(&h, &h.topics[0], p, -1);
    }
    hx_end(&h, &c);
}

/* ---- requests ---- */

enum { PRODUCE = 0, FETCH = 1, LIST = 2, DELETE = 21 };

/* A batch of one record of `size` bytes; builder to be freed by the caller. */
static struct kc_bytes make_batch(struct kw_batch_builder *b, size_t size)
{
    static uint8_t value[128 * 1024];
    struct kw_batch_args args = KW_BATCH_ARGS_PLAIN;
    struct kc_bytes out;
    kw_batch_builder_init(b, &args, 1 << 20);
    kw_batch_builder_add(b, 1000, KC_BYTES_NULL, (struct kc_bytes){value, (int32_t)size}, NULL, 0);
    KT_REQUIRE(kw_batch_builder_end(b, &out) == 0);
    return out;
}

/* Of topic t, for versions that name it and those that give its id; or of another, by name. */
static void send_part(struct hx_client *cl, int16_t version, int16_t acks, const char *topic,
                      struct kw_produce_request_partition_produce_data *p)
{
    struct kw_produce_request_topic_produce_data t = {.name = kc_str_of(topic),
                                                      .topic_id = h.topics[0].id,
                                                      .partition_data = p,
                                                      .n_partition_data = 1};
    struct kw_produce_request in;
    kw_produce_request_init(&in);
    in.acks = acks;
    in.timeout_ms = 10000;
    in.topic_data = &t;
    in.n_topic_data = 1;
    hx_send(cl, PRODUCE, version, &in);
}

static void send_produce(struct hx_client *cl, int16_t version, int16_t acks, int32_t partition,
                         size_t size)
{
    struct kw_batch_builder b;
    struct kw_produce_request_partition_produce_data p = {.index = partition,
                                                          .records = make_batch(&b, size)};
    send_part(cl, version, acks, "t", &p);
    kw_batch_builder_fini(&b);
}

static struct kw_produce_response_partition_produce_response produce(int16_t version, int16_t acks,
                                                                     int32_t partition, size_t size)
{
    send_produce(&c, version, acks, partition, size);
    const struct kw_produce_response *r = hx_receive(&c, PRODUCE, version);
    KT_REQUIRE(r != NULL);
    return r->responses[0].partition_responses[0];
}

struct ask {
    int16_t version;
    int32_t wait_ms, min_bytes, max_bytes, part_bytes;
    int32_t n;
    int64_t offset;
    int32_t epoch;
};

static void send_fetch(struct hx_client *cl, const struct ask *a)
{
    static struct kw_fetch_request_partition parts[16];
    for (int32_t i = 0; i < a->n; i++) {
        parts[i] = (struct kw_fetch_request_partition){.partition = i,
                                                       .current_leader_epoch = a->epoch,
                                                       .fetch_offset = a->offset,
                                                       .last_fetched_epoch = -1,
                                                       .log_start_offset = -1,
                                                       .partition_max_bytes = a->part_bytes,
                                                       .high_watermark = INT64_MAX};
    }
    struct kw_fetch_request_topic t = {.topic = KC_STR_LIT("t"),
                                       .topic_id = h.topics[0].id,
                                       .partitions = parts,
                                       .n_partitions = a->n};
    struct kw_fetch_request in;
    kw_fetch_request_init(&in);
    in.max_wait_ms = a->wait_ms;
    in.min_bytes = a->min_bytes;
    in.max_bytes = a->max_bytes;
    in.topics = &t;
    in.n_topics = 1;
    hx_send(cl, FETCH, a->version, &in);
}

static const struct ask plain = {.version = 12,
                                 .wait_ms = 0,
                                 .min_bytes = 1,
                                 .max_bytes = 1 << 20,
                                 .part_bytes = 1 << 20,
                                 .n = 1,
                                 .epoch = -1};

static const struct kw_fetch_response *fetch(const struct ask *a)
{
    send_fetch(&c, a);
    const struct kw_fetch_response *r = hx_receive(&c, FETCH, a->version);
    KT_REQUIRE(r != NULL);
    return r;
}

/* ---- tests ---- */

static void what_was_produced_is_fetched_in_every_version(void)
{
    up(1);
    for (int16_t v = 3; v <= 13; v++) {
        struct kw_produce_response_partition_produce_response r = produce(v, v % 2 ? 1 : -1, 0, 10);
        KT_EQ(r.error_code, 0);
        KT_EQ(r.base_offset, v - 3);
    }
    for (int16_t v = 4; v <= 18; v++) {
        struct ask a = plain;
        a.version = v;
        const struct kw_fetch_response *r = fetch(&a);
        const struct kw_fetch_response_partition_data *p = &r->responses[0].partitions[0];
        KT_EQ(p->error_code, 0);
        KT_EQ(p->high_watermark, 11);
        struct kw_batch b;
        KT_EQ(kw_batch_view(p->records.ptr, (size_t)p->records.len, &b), 0);
        KT_TRUE(kw_batch_crc_ok(&b));
        KT_EQ(p->records.len, 11 * (int64_t)b.size);
        KT_EQ(b.leader_epoch, 0);
    }
    down(1);
}

static void acks_other_than_0_1_and_all_are_refused(void)
{
    up(1);
    KT_EQ(produce(9, 2, 0, 10).error_code, KAFKA_INVALID_REQUIRED_ACKS);
    KT_EQ(produce(9, -2, 0, 10).error_code, KAFKA_INVALID_REQUIRED_ACKS);
    down(1);
}

static void acks_0_has_no_answer_and_an_error_closes(void)
{
    up(1);
    send_produce(&c, 9, 0, 0, 10);
    KT_EQ(produce(9, 1, 0, 10).base_offset, 1);
    send_produce(&c, 9, 0, 7, 10); /* no such partition */
    KT_EQ(hx_receive_raw(&c), -1);
    down(1);
}

static void a_long_poll_wakes_when_records_come(void)
{
    struct hx_client other;
    up(2);
    hx_dial(&h, &other, 0);
    struct ask a = plain;
    a.wait_ms = 120000;
    a.n = 2;
    int64_t start = kc_mono_ms();
    send_fetch(&other, &a);
    while (atomic_load(&h.app.metrics.under_way) == 0) {
        poll(NULL, 0, 1);
    }
    KT_EQ(produce(9, -1, 1, 10).error_code, 0);
    const struct kw_fetch_response *r = hx_receive(&other, FETCH, 12);
    KT_REQUIRE(r != NULL);
    KT_TRUE(kc_mono_ms() - start < 60000);
    KT_EQ(r->responses[0].partitions[0].records.len, 0);
    KT_TRUE(r->responses[0].partitions[1].records.len > 0);
    hx_hang_up(&other);
    down(2);
}

static void a_long_poll_ends_at_its_deadline_and_when_leadership_leaves(void)
{
    up(1);
    struct ask a = plain;
    a.wait_ms = 100;
    int64_t start = kc_mono_ms();
    const struct kw_fetch_response *r = fetch(&a);
    KT_TRUE(kc_mono_ms() - start >= 100);
    KT_EQ(r->responses[0].partitions[0].error_code, 0);
    a.wait_ms = 15000;
    a.version = 16;
    send_fetch(&c, &a);
    while (atomic_load(&h.app.metrics.under_way) == 0) {
        poll(NULL, 0, 1);
    }
    hx_close_part(&h, &h.topics[0], 0, 2);
    r = hx_receive(&c, FETCH, 16);
    KT_REQUIRE(r != NULL);
    const struct kw_fetch_response_partition_data *p = &r->responses[0].partitions[0];
    KT_EQ(p->error_code, KAFKA_NOT_LEADER_OR_FOLLOWER);
    KT_EQ(p->current_leader.leader_id, 2); /* KIP-951: where it went */
    KT_EQ(r->n_node_endpoints, 1);
    KT_EQ(r->node_endpoints[0].port, 9002);
    struct kw_produce_response_partition_produce_response pr = produce(10, -1, 0, 10);
    KT_EQ(pr.error_code, KAFKA_NOT_LEADER_OR_FOLLOWER);
    KT_EQ(pr.current_leader.leader_id, 2);
    KT_EQ(pr.base_offset, -1);
    down(0);
}

/* The answers that say where a partition went wait for nothing: the quickest of some is quicker than the wait for one that comes. */
static struct kw_produce_response_partition_produce_response refused_at_once(int16_t version)
{
    struct kw_produce_response_partition_produce_response pr;
    int64_t least = INT64_MAX;
    for (int i = 0; i < 10; i++) {
        int64_t start = kc_mono_ms();
        pr = produce(version, -1, 0, 10);
        least = KC_MIN(least, kc_mono_ms() - start);
        KT_EQ(pr.error_code, KAFKA_NOT_LEADER_OR_FOLLOWER);
    }
    KT_TRUE(least < 150);
    return pr;
}

static void requests_wait_a_moment_for_a_partition_on_its_way_here(void)
{
    up(1);
    hx_close_part(&h, &h.topics[0], 0, -1);
    send_produce(&c, 9, -1, 0, 10);
    while (atomic_load(&h.app.metrics.under_way) == 0) {
        poll(NULL, 0, 1);
    }
    hx_open_part(&h, &h.topics[0], 0); /* assigned to this broker: it comes */
    const struct kw_produce_response *r = hx_receive(&c, PRODUCE, 9);
    KT_REQUIRE(r != NULL);
    KT_EQ(r->responses[0].partition_responses[0].error_code, 0);
    hx_close_part(&h, &h.topics[0], 0, -1);
    int64_t start = kc_mono_ms(); /* it does not come: the wait is short */
    KT_EQ(produce(9, -1, 0, 10).error_code, KAFKA_NOT_LEADER_OR_FOLLOWER);
    KT_TRUE(kc_mono_ms() - start >= 150);
    h.topics[0].parts[0].assigned = 2; /* nor is it meant to: no wait */
    hx_publish(&h);
    refused_at_once(9);
    down(0);
}

static struct kw_metadata_response_partition metadata(struct hx_client *cl)
{
    struct kw_metadata_request in;
    kw_metadata_request_init(&in);
    in.n_topics = -1;
    const struct kw_metadata_response *m = hx_call(cl, 3, 12, &in);
    KT_REQUIRE(m != NULL && m->n_topics == 1 && m->topics[0].n_partitions == 1);
    return m->topics[0].partitions[0];
}

static void a_released_partition_is_where_it_went_until_the_image_knows(void)
{
    up(1);
    struct kp_part *part = &h.topics[0].parts[0];
    struct kp_row *third = hx_row(&h, 3);
    part->led_epoch = 0;
    hx_publish(&h);
    hx_close_part(&h, &h.topics[0], 0, 2);
    for (int i = 0; i < 4; i++) { /* connections are spread over the loops, and all of them know */
        struct hx_client other;
        hx_dial(&h, &other, 0);
        struct kw_metadata_response_partition p = metadata(&other);
        KT_EQ(p.error_code, KAFKA_NONE);
        KT_EQ(p.leader_id, 2);
        KT_EQ(p.leader_epoch, 1);
        hx_hang_up(&other);
    }
    part->led = 3; /* it went on from there */
    part->led_incarnation = third->incarnation;
    part->led_epoch = 5;
    hx_publish(&h);
    struct kw_metadata_response_partition p = metadata(&c);
    KT_EQ(p.leader_id, 3);
    KT_EQ(p.leader_epoch, 5);
    down(0);
}

/* Where it went once is no reason to send its clients away when it comes back. */
static void requests_wait_for_a_partition_that_comes_back(void)
{
    up(1);
    hx_close_part(&h, &h.topics[0], 0, 2);
    struct kw_produce_response_partition_produce_response pr = refused_at_once(10);
    KT_EQ(pr.current_leader.leader_id, 2); /* an image from before the release: no wait */
    h.topics[0].parts[0].move =
        (struct kp_move){.id = 7, .from = 2, .to = 1, .phase = KP_MOVE_RELEASE};
    hx_publish(&h);
    send_produce(&c, 9, -1, 0, 10);
    while (atomic_load(&h.app.metrics.under_way) == 0) {
        poll(NULL, 0, 1);
    }
    hx_open_part(&h, &h.topics[0], 0);
    const struct kw_produce_response *r = hx_receive(&c, PRODUCE, 9);
    KT_REQUIRE(r != NULL);
    KT_EQ(r->responses[0].partition_responses[0].error_code, 0);
    down(1);
}

static void offsets_and_epochs_out_of_range_are_errors_at_once(void)
{
    up(1);
    produce(9, -1, 0, 10);
    struct ask a = plain;
    a.wait_ms = 15000;
    a.offset = 2;
    KT_EQ(fetch(&a)->responses[0].partitions[0].error_code, KAFKA_OFFSET_OUT_OF_RANGE);
    a.offset = -1;
    const struct kw_fetch_response *r = fetch(&a);
    KT_EQ(r->responses[0].partitions[0].error_code, KAFKA_OFFSET_OUT_OF_RANGE);
    KT_EQ(r->responses[0].partitions[0].high_watermark, -1);
    a.offset = 0;
    a.epoch = 1;
    KT_EQ(fetch(&a)->responses[0].partitions[0].error_code, KAFKA_UNKNOWN_LEADER_EPOCH);
    down(1);
}

static void limits_hold_but_a_batch_always_comes(void)
{
    enum { SIZE = 20000 };
    up(3);
    for (int32_t p = 0; p < 3; p++) {
        produce(9, -1, p, SIZE);
        produce(9, -1, p, SIZE);
    }
    struct ask a = plain;
    a.n = 3;
    a.max_bytes = 1; /* KIP-74: the first batch comes whole */
    const struct kw_fetch_response *r = fetch(&a);
    int64_t total = 0;
    for (int i = 0; i < 3; i++) {
        total += r->responses[0].partitions[i].records.len;
    }
    KT_TRUE(total > SIZE && total < 2 * SIZE);
    a.max_bytes = 1 << 20;
    a.part_bytes = 3 * SIZE / 2;
    r = fetch(&a);
    for (int i = 0; i < 3; i++) {
        int32_t len = r->responses[0].partitions[i].records.len;
        KT_TRUE(len > SIZE && len < 2 * SIZE);
    }
    down(3);
}

static uint64_t fetches_answered(void)
{
    return atomic_load(&h.app.metrics.api[FETCH].requests);
}

static int64_t bytes_of(const struct kw_fetch_response *r)
{
    int64_t total = 0;
    for (int32_t i = 0; i < r->responses[0].n_partitions; i++) {
        total += r->responses[0].partitions[i].records.len;
    }
    return total;
}

/* Sixty consumers ask for eight megabytes each and do not read: what they hold stays within the
 * budget of the connections (64 MiB here), and others are still served. */
static void consumers_that_do_not_read_stay_within_the_budget(void)
{
    enum { PARTS = 8, BATCHES = 8, SIZE = 127 * 1024, SLOW = 60, BUDGET = 64 << 20 };
    static struct hx_client slow[SLOW];
    up(PARTS);
    for (int32_t i = 0; i < PARTS * BATCHES; i++) {
        KT_EQ(produce(9, -1, i % PARTS, SIZE).error_code, 0);
    }
    struct ask a = plain;
    a.n = PARTS;
    a.wait_ms = 200;
    a.max_bytes = PARTS * (1 << 20);
    int64_t most = 0, until;
    struct kn_counters *n = kn_server_counters(h.app.net);
    for (int i = 0; i < SLOW; i++) {
        uint64_t before = fetches_answered();
        hx_dial(&h, &slow[i], 0);
        send_fetch(&slow[i], &a);
        until = kc_mono_ms() + 10000;
        while (fetches_answered() == before && kc_mono_ms() < until) {
            poll(NULL, 0, 1);
        }
        most = KC_MAX(most, atomic_load(&n->inflight_bytes));
    }
    KT_TRUE(most <= BUDGET);
    until = kc_mono_ms() + 10000; /* given back a moment after the answer was counted */
    while (atomic_load(&n->reserved_bytes) && kc_mono_ms() < until) {
        poll(NULL, 0, 1);
    }
    KT_EQ(atomic_load(&n->reserved_bytes), 0);
    KT_EQ(produce(9, -1, 0, 10).error_code, 0);
    for (int i = 0; i < SLOW; i++) {
        const struct kw_fetch_response *r = hx_receive(&slow[i], FETCH, a.version);
        KT_REQUIRE(r != NULL);
        KT_TRUE(bytes_of(r) > SIZE); /* KIP-74 holds */
        hx_hang_up(&slow[i]);
    }
    KT_TRUE(bytes_of(fetch(&a)) > PARTS * (int64_t)SIZE); /* all is given back */
    down(PARTS);
}

static struct kw_list_offsets_response_partition_response list_at(int16_t version,
                                                                  int32_t partition, int64_t ts)
{
    struct kw_list_offsets_request_partition p = {.partition_index = partition,
                                                  .current_leader_epoch = -1,
                                                  .timestamp = ts,
                                                  .max_num_offsets = 1};
    struct kw_list_offsets_request_topic t = {KC_STR_LIT("t"), &p, 1};
    struct kw_list_offsets_request in = {.replica_id = -1, .topics = &t, .n_topics = 1};
    const struct kw_list_offsets_response *r = hx_call(&c, LIST, version, &in);
    KT_REQUIRE(r != NULL);
    return r->topics[0].partitions[0];
}

static struct kw_list_offsets_response_partition_response list(int16_t version, int64_t ts)
{
    return list_at(version, 0, ts);
}

static void list_offsets_knows_the_special_timestamps(void)
{
    up(1);
    KT_EQ(list(7, -3).offset, -1); /* an empty log */
    produce(9, -1, 0, 10);
    produce(9, -1, 0, 10);
    KT_EQ(list(1, -1).offset, 2);
    KT_EQ(list(1, -2).offset, 0);
    KT_EQ(list(7, -3).timestamp, 1000);
    KT_EQ(list(8, -4).offset, 0);
    KT_EQ(list(9, -5).offset, -1);
    KT_EQ(list(9, -5).error_code, 0);
    KT_EQ(list(11, -6).offset, -1);
    KT_EQ(list(6, -3).error_code, KAFKA_UNSUPPORTED_VERSION);
    KT_EQ(list(11, -7).error_code, KAFKA_UNSUPPORTED_VERSION);
    KT_EQ(list_at(11, 5, -7).error_code,
          KAFKA_UNSUPPORTED_VERSION); /* judged before the partition */
    KT_EQ(list_at(11, 5, -1).error_code, KAFKA_UNKNOWN_TOPIC_OR_PARTITION);
    KT_EQ(list(4, 1000).offset, 0);
    KT_EQ(list(4, 1001).offset, -1);
    struct kw_list_offsets_response_partition_response v0 = list(0, -1);
    KT_EQ(v0.n_old_style_offsets, 1);
    KT_EQ(v0.old_style_offsets[0], 2);
    down(1);
}

static struct kw_delete_records_response_partition_result
delete_records(int16_t version, const char *topic, int32_t partition, int64_t offset)
{
    struct kw_delete_records_request_partition p = {partition, offset};
    struct kw_delete_records_request_topic t = {kc_str_of(topic), &p, 1};
    struct kw_delete_records_request in = {.topics = &t, .n_topics = 1, .timeout_ms = 10000};
    const struct kw_delete_records_response *r = hx_call(&c, DELETE, version, &in);
    KT_REQUIRE(r != NULL);
    KT_EQ(r->topics[0].partitions[0].partition_index, partition);
    return r->topics[0].partitions[0];
}

static void delete_records_moves_the_start(void)
{
    up(1);
    hx_topic(&h, "__internal", 1, 1)->internal = true;
    hx_publish(&h);
    for (int i = 0; i < 4; i++) {
        produce(9, -1, 0, 10);
    }
    for (int16_t v = 0; v <= 2; v++) {
        KT_EQ(delete_records(v, "t", 0, v + 1).low_watermark, v + 1);
        KT_EQ(list(4, -2).offset, v + 1);
    }
    struct ask a = plain;
    KT_EQ(fetch(&a)->responses[0].partitions[0].error_code, KAFKA_OFFSET_OUT_OF_RANGE);
    a.offset = 3;
    KT_EQ(fetch(&a)->responses[0].partitions[0].log_start_offset, 3);
    KT_EQ(delete_records(2, "t", 0, 5).error_code, KAFKA_OFFSET_OUT_OF_RANGE);
    KT_EQ(delete_records(2, "t", 0, 5).low_watermark, -1);
    KT_EQ(delete_records(2, "t", 0, -1).low_watermark, 4);
    KT_EQ(produce(9, -1, 0, 10).log_start_offset, 4);
    KT_EQ(delete_records(2, "t", 1, 0).error_code, KAFKA_UNKNOWN_TOPIC_OR_PARTITION);
    KT_EQ(delete_records(2, "no", 0, 0).error_code, KAFKA_UNKNOWN_TOPIC_OR_PARTITION);
    KT_EQ(delete_records(2, "__internal", 0, 0).error_code, KAFKA_INVALID_TOPIC_EXCEPTION);
    down(1);
    hx_up_engine(&h, 1, 2); /* nothing is open here */
    hx_topic(&h, "t", 1, -1);
    hx_publish(&h);
    hx_dial(&h, &c, 0);
    KT_EQ(delete_records(2, "t", 0, 0).error_code, KAFKA_NOT_LEADER_OR_FOLLOWER);
    hx_end(&h, &c);
}

/* Produces a batch whose attributes are changed; the checksum is wrong then, which is found later. */
static struct kw_produce_response_partition_produce_response
produce_with(int16_t version, uint8_t attributes, int16_t acks, const char *topic)
{
    struct kw_batch_builder b;
    struct kc_bytes batch = make_batch(&b, 10);
    ((uint8_t *)(uintptr_t)batch.ptr)[22] = attributes;
    struct kw_produce_request_partition_produce_data p = {.index = 0, .records = batch};
    send_part(&c, version, acks, topic, &p);
    const struct kw_produce_response *r = hx_receive(&c, PRODUCE, version);
    kw_batch_builder_fini(&b);
    KT_REQUIRE(r != NULL);
    return r->responses[0].partition_responses[0];
}

static void produce_refuses_before_the_log_what_kafka_refuses(void)
{
    up(1);
    hx_topic(&h, "__internal", 1, 1)->internal = true;
    hx_publish(&h);
    KT_EQ(produce_with(9, 0x10, -1, "t").error_code, KAFKA_TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
    KT_EQ(produce_with(9, 0x10, -1, "no").error_code, KAFKA_TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
    KT_EQ(produce_with(6, 4, -1, "t").error_code, KAFKA_UNSUPPORTED_COMPRESSION_TYPE);
    KT_EQ(produce_with(7, 4, -1, "t").error_code, KAFKA_CORRUPT_MESSAGE); /* comes to the log */
    KT_EQ(produce_with(9, 0, -1, "__internal").error_code, KAFKA_INVALID_TOPIC_EXCEPTION);
    KT_EQ(produce_with(9, 0, 2, "no").error_code, KAFKA_UNKNOWN_TOPIC_OR_PARTITION);
    KT_EQ(produce_with(9, 0, 2, "t").error_code, KAFKA_INVALID_REQUIRED_ACKS);
    KT_EQ(produce_with(9, 0, 2, "t").log_start_offset, -1);
    KT_EQ(produce_with(9, 0, 1, "t").error_code, 0);
    down(1);
}

KT_MAIN("log", KT(what_was_produced_is_fetched_in_every_version),
        KT(acks_other_than_0_1_and_all_are_refused), KT(acks_0_has_no_answer_and_an_error_closes),
        KT(a_long_poll_wakes_when_records_come),
        KT(a_long_poll_ends_at_its_deadline_and_when_leadership_leaves),
        KT(requests_wait_a_moment_for_a_partition_on_its_way_here),
        KT(a_released_partition_is_where_it_went_until_the_image_knows),
        KT(requests_wait_for_a_partition_that_comes_back),
        KT(offsets_and_epochs_out_of_range_are_errors_at_once),
        KT(limits_hold_but_a_batch_always_comes),
        KT(consumers_that_do_not_read_stay_within_the_budget),
        KT(list_offsets_knows_the_special_timestamps), KT(delete_records_moves_the_start),
        KT(produce_refuses_before_the_log_what_kafka_refuses))
