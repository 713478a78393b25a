/* Batches of an idempotent producer that follow a refused one: refused alike, not called out of
 * sequence, so that they come again in order (kd_note_refused). */
#include "hx.h"

#include "base/kc_str.h"
#include "wire/kw_batch.h"
#include "wire/kw_errors.h"
#include "wire/kw_produce.h"

static struct hx h;
static struct hx_client c;

/* Kafka's error of a batch of one record. */
static int produce(int64_t id, int16_t epoch, int32_t seq)
{
    struct kw_batch_args args = KW_BATCH_ARGS_PLAIN;
    struct kw_batch_builder b;
    struct kw_produce_request_partition_produce_data p = {.index = 0};
    struct kw_produce_request_topic_produce_data t = {
        .name = KC_STR_LIT("t"), .partition_data = &p, .n_partition_data = 1};
    struct kw_produce_request in;
    args.producer_id = id;
    args.producer_epoch = epoch;
    args.base_sequence = seq;
    kw_batch_builder_init(&b, &args, 1 << 10);
    kw_batch_builder_add(&b, 1000, KC_BYTES_NULL, KC_BYTES_NULL, NULL, 0);
    KT_REQUIRE(kw_batch_builder_end(&b, &p.records) == 0);
    kw_produce_request_init(&in);
    in.acks = -1;
    in.timeout_ms = 10000;
    in.topic_data = &t;
    in.n_topic_data = 1;
    const struct kw_produce_response *r = hx_call(&c, 0, 9, &in);
    KT_REQUIRE(r != NULL);
    kw_batch_builder_fini(&b);
    return r->responses[0].partition_responses[0].error_code;
}

static void leave(void)
{
    h.topics[0].parts[0].assigned = 2; /* nobody waits for it here */
    hx_publish(&h);
    hx_close_part(&h, &h.topics[0], 0, 2);
}

static void what_follows_a_refused_batch_is_refused_alike(void)
{
    hx_up_one(&h, &c, 2);
    KT_EQ(produce(7, 0, 0), 0);
    KT_EQ(produce(8, 0, 0), 0);
    leave();
    KT_EQ(produce(7, 0, 1), KAFKA_NOT_LEADER_OR_FOLLOWER);
    KT_EQ(produce(7, 0, 2), KAFKA_NOT_LEADER_OR_FOLLOWER);
    hx_open_part(&h, &h.topics[0], 0);
    KT_EQ(produce(7, 0, 3), KAFKA_NOT_LEADER_OR_FOLLOWER); /* was on its way already */
    KT_EQ(produce(8, 0, 2), KAFKA_OUT_OF_ORDER_SEQUENCE_NUMBER); /* another's own fault */
    KT_EQ(produce(7, 1, 3), KAFKA_OUT_OF_ORDER_SEQUENCE_NUMBER); /* another life's */
    for (int32_t seq = 1; seq < 4; seq++) {
        KT_EQ(produce(7, 0, seq), 0); /* again, in order */
    }
    KT_EQ(produce(7, 0, 9), KAFKA_OUT_OF_ORDER_SEQUENCE_NUMBER); /* nothing of it was refused */
    hx_down_one(&h, &c);
}

/* The client has gone on elsewhere, and its partition comes back: what it sends is in order. */
static void a_refusal_of_long_ago_refuses_nobody(void)
{
    hx_up_one(&h, &c, 2);
    KT_EQ(produce(7, 0, 0), 0);
    leave();
    KT_EQ(produce(7, 0, 1), KAFKA_NOT_LEADER_OR_FOLLOWER);
    hx_open_part(&h, &h.topics[0], 0);
    KT_EQ(produce(7, 0, 1), 0);
    KT_EQ(produce(7, 0, 1), 0); /* a repeat */
    KT_EQ(produce(7, 0, 2), 0);
    KT_EQ(produce(7, 0, 4), KAFKA_OUT_OF_ORDER_SEQUENCE_NUMBER);
    hx_down_one(&h, &c);
}

KT_MAIN("in_order", KT(what_follows_a_refused_batch_is_refused_alike),
        KT(a_refusal_of_long_ago_refuses_nobody))
