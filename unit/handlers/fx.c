#include "fx.h"

#include "base/kc_str.h"
#include "wire/kw_batch.h"
#include "wire/kw_produce.h"

enum { PRODUCE = 0, FETCH = 1, BY_ID = 13 };

const struct fx_ask fx_plain = {
    .version = 12, .min_bytes = 1, .max_bytes = 1 << 20, .session_epoch = -1};

void fx_add(struct fx_ask *a, const struct hx_topic *t, int32_t partition, int64_t offset)
{
    KT_REQUIRE(a->n < FX_MAX);
    a->want[a->n++] = (struct fx_want){t, partition, offset, 0, -1};
}

void fx_send(struct hx_client *c, const struct fx_ask *a)
{
    static struct kw_fetch_request_partition parts[FX_MAX];
    static struct kw_fetch_request_topic topics[FX_MAX];
    static struct kw_fetch_request_forgotten_topic forgotten[FX_MAX];
    static int32_t numbers[FX_MAX];
    struct kw_fetch_request in;
    kw_fetch_request_init(&in);
    in.max_wait_ms = a->wait_ms;
    in.min_bytes = a->min_bytes;
    in.max_bytes = a->max_bytes;
    in.session_id = a->session_id;
    in.session_epoch = a->session_epoch;
    for (int32_t i = 0; i < a->n; i++) { /* a topic a partition: the order is kept */
        const struct fx_want *w = &a->want[i];
        kw_fetch_request_partition_init(&parts[i]);
        parts[i].partition = w->partition;
        parts[i].fetch_offset = w->offset;
        parts[i].partition_max_bytes = w->max_bytes ? w->max_bytes : 1 << 20;
        parts[i].current_leader_epoch = w->epoch;
        topics[i] = (struct kw_fetch_request_topic){.topic = kc_str_of(w->topic->name),
                                                    .topic_id = w->topic->id,
                                                    .partitions = &parts[i],
                                                    .n_partitions = 1};
    }
    for (int32_t i = 0; i < a->n_forget; i++) {
        numbers[i] = a->forget[i].partition;
        forgotten[i] =
            (struct kw_fetch_request_forgotten_topic){.topic = kc_str_of(a->forget[i].topic->name),
                                                      .topic_id = a->forget[i].topic->id,
                                                      .partitions = &numbers[i],
                                                      .n_partitions = 1};
    }
    in.topics = topics;
    in.n_topics = a->n;
    in.forgotten_topics_data = forgotten;
    in.n_forgotten_topics_data = a->n_forget;
    hx_send(c, FETCH, a->version, &in);
}

const struct kw_fetch_response *fx_receive(struct hx_client *c, const struct fx_ask *a)
{
    const struct kw_fetch_response *r = hx_receive(c, FETCH, a->version);
    KT_REQUIRE(r != NULL);
    return r;
}

const struct kw_fetch_response *fx_fetch(struct hx_client *c, const struct fx_ask *a)
{
    fx_send(c, a);
    return fx_receive(c, a);
}

const struct kw_fetch_response_partition_data *fx_find(const struct kw_fetch_response *r,
                                                       const struct hx_topic *t, int32_t partition)
{
    for (int32_t i = 0; i < r->n_responses; i++) {
        const struct kw_fetch_response_fetchable_topic_response *in = &r->responses[i];
        bool is = in->topic.len > 0 ? kc_str_eqz(in->topic, t->name)
                                    : memcmp(&in->topic_id, &t->id, sizeof(t->id)) == 0;
        for (int32_t k = 0; is && k < in->n_partitions; k++) {
            if (in->partitions[k].partition_index == partition) {
                return &in->partitions[k];
            }
        }
    }
    return NULL;
}

int32_t fx_count(const struct kw_fetch_response *r)
{
    int32_t n = 0;
    for (int32_t i = 0; i < r->n_responses; i++) {
        n += r->responses[i].n_partitions;
    }
    return n;
}

void fx_produce(struct hx_client *c, const struct hx_topic *t, int32_t partition, int32_t n,
                size_t size)
{
    static uint8_t value[512 * 1024];
    KT_REQUIRE(size <= sizeof(value));
    while (n-- > 0) {
        struct kw_batch_builder b;
        struct kw_batch_args args = KW_BATCH_ARGS_PLAIN;
        struct kc_bytes bytes;
        kw_batch_builder_init(&b, &args, 1 << 20);
        kw_batch_builder_add(&b, 1000, KC_BYTES_NULL, (struct kc_bytes){value, (int32_t)size}, NULL,
                             0);
        KT_REQUIRE(kw_batch_builder_end(&b, &bytes) == 0);
        struct kw_produce_request_partition_produce_data p = {.index = partition, .records = bytes};
        struct kw_produce_request_topic_produce_data td = {
            .name = kc_str_of(t->name), .partition_data = &p, .n_partition_data = 1};
        struct kw_produce_request in;
        kw_produce_request_init(&in);
        in.acks = -1;
        in.timeout_ms = 10000;
        in.topic_data = &td;
        in.n_topic_data = 1;
        const struct kw_produce_response *r = hx_call(c, PRODUCE, 9, &in);
        kw_batch_builder_fini(&b);
        KT_REQUIRE(r != NULL);
        KT_EQ(r->responses[0].partition_responses[0].error_code, 0);
    }
}
