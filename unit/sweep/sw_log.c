/* What a sweep asks about records: produce, read back, topics. */
#include "sw_parts.h"

#include <endian.h>
#include <poll.h>

#include "base/kc_str.h"
#include "wire/kw_batch.h"
#include "wire/kw_create_partitions.h"
#include "wire/kw_create_topics.h"
#include "wire/kw_delete_records.h"
#include "wire/kw_delete_topics.h"
#include "wire/kw_describe_configs.h"
#include "wire/kw_describe_producers.h"
#include "wire/kw_describe_topic_partitions.h"
#include "wire/kw_errors.h"
#include "wire/kw_fetch.h"
#include "wire/kw_incremental_alter_configs.h"
#include "wire/kw_init_producer_id.h"
#include "wire/kw_list_offsets.h"
#include "wire/kw_metadata.h"
#include "wire/kw_offset_for_leader_epoch.h"
#include "wire/kw_produce.h"

enum { WAIT_MS = 50 };

/* While no memory comes back there is nothing to wait for. */
static int32_t timeout_ms(const struct sw *s)
{
    return s->faults ? 200 : 10000;
}

/* ---- produce ---- */

static struct kc_bytes one_record(struct kw_batch_builder *b, const struct kw_batch_args *args,
                                  uint64_t stamp)
{
    uint64_t value = htobe64(stamp);
    struct kc_bytes out;
    kw_batch_builder_init(b, args, 1024);
    kw_batch_builder_add(b, 1000, KC_BYTES_NULL, (struct kc_bytes){(uint8_t *)&value, 8}, NULL, 0);
    KT_REQUIRE(kw_batch_builder_end(b, &out) == 0);
    return out;
}

static void acked(struct sw *s, int32_t partition, int64_t offset, uint64_t stamp)
{
    KT_REQUIRE(s->n_acked < SW_ACKS_MAX);
    s->acked[s->n_acked++] = (struct sw_acked){partition, offset, stamp};
}

static bool take_answer(struct sw *s, const uint64_t *stamps, const void *answer)
{
    const struct kw_produce_response *r = answer;
    for (int32_t p = 0; r && p < r->responses[0].n_partition_responses; p++) {
        const struct kw_produce_response_partition_produce_response *o =
            &r->responses[0].partition_responses[p];
        if (o->error_code == 0) {
            acked(s, o->index, o->base_offset, stamps[o->index]);
        }
    }
    return r != NULL;
}

static bool produce(struct sw *s, int16_t acks, const struct kw_batch_args *args, int32_t n,
                    const uint64_t *stamps)
{
    struct kw_batch_builder b[SW_TOPIC_PARTS];
    struct kw_produce_request_partition_produce_data parts[SW_TOPIC_PARTS];
    for (int32_t i = 0; i < n; i++) {
        parts[i] = (struct kw_produce_request_partition_produce_data){
            .index = i, .records = one_record(&b[i], args, stamps[i])};
    }
    struct kw_produce_request_topic_produce_data t = {
        .name = SW_TOPIC, .partition_data = parts, .n_partition_data = n};
    struct kw_produce_request q;
    kw_produce_request_init(&q);
    q.acks = acks;
    q.timeout_ms = timeout_ms(s);
    q.topic_data = &t;
    q.n_topic_data = 1;
    bool ok = sw_send(s, 0, 9, &q);
    for (int32_t i = 0; i < n; i++) {
        kw_batch_builder_fini(&b[i]);
    }
    return ok && (acks == 0 || take_answer(s, stamps, sw_receive_all(s, 0, 9)));
}

bool sw_produce(struct sw *s, int16_t acks)
{
    uint64_t stamps[SW_TOPIC_PARTS];
    struct kw_batch_args args = KW_BATCH_ARGS_PLAIN;
    for (int32_t i = 0; i < SW_TOPIC_PARTS; i++) {
        stamps[i] = ++s->stamp;
    }
    return produce(s, acks, &args, SW_TOPIC_PARTS, stamps) && !s->complaint;
}

bool sw_produce_acks_1(struct sw *s)
{
    return sw_produce(s, 1);
}

bool sw_produce_acks_all(struct sw *s)
{
    return sw_produce(s, -1) && sw_produce(s, -1);
}

/* Without an answer a later request on the connection says that it went well. */
bool sw_produce_acks_0(struct sw *s)
{
    return sw_produce(s, 0) && sw_list_offsets(s);
}

/* A batch keeps its sequence until it is acked, through whatever failed. */
bool sw_produce_idempotent(struct sw *s)
{
    if (s->producer_id < 0) {
        struct kw_init_producer_id_request q;
        kw_init_producer_id_request_init(&q);
        q.transactional_id = KC_STR_NULL;
        q.transaction_timeout_ms = 1000;
        const struct kw_init_producer_id_response *r = sw_ask(s, 22, 4, &q);
        if (!r) {
            return false;
        }
        s->producer_id = r->producer_id;
        s->producer_epoch = r->producer_epoch;
        s->producer_stamp = ++s->stamp;
    }
    struct kw_batch_args args = {
        .leader_epoch = -1, .producer_id = s->producer_id, .producer_epoch = s->producer_epoch};
    if (!produce(s, -1, &args, 1, &s->producer_stamp) || s->complaint) {
        return false;
    }
    s->producer_id = -1;
    return true;
}

/* ---- reading ---- */

static const struct kw_fetch_response *fetch(struct sw *s, const int64_t offsets[SW_TOPIC_PARTS],
                                             int32_t wait_ms)
{
    struct kw_fetch_request_partition parts[SW_TOPIC_PARTS];
    for (int32_t i = 0; i < SW_TOPIC_PARTS; i++) {
        kw_fetch_request_partition_init(&parts[i]);
        parts[i].partition = i;
        parts[i].fetch_offset = offsets[i];
        parts[i].partition_max_bytes = 1 << 20;
    }
    struct kw_fetch_request_topic t = {
        .topic_id = s->topic_id, .partitions = parts, .n_partitions = SW_TOPIC_PARTS};
    struct kw_fetch_request q;
    kw_fetch_request_init(&q);
    q.max_wait_ms = wait_ms;
    q.min_bytes = 1;
    q.max_bytes = 4 << 20;
    q.topics = &t;
    q.n_topics = 1;
    return sw_ask(s, 1, 16, &q);
}

bool sw_fetch(struct sw *s)
{
    int64_t from[SW_TOPIC_PARTS] = {0};
    const struct kw_fetch_response *r = fetch(s, from, 0);
    return r && r->responses[0].partitions[0].records.len > 0;
}

/* Waits at the end of the log. */
bool sw_fetch_long(struct sw *s)
{
    struct kw_fetch_response_partition_data *p;
    int64_t at[SW_TOPIC_PARTS] = {0};
    const struct kw_fetch_response *r = fetch(s, at, 0);
    for (int32_t i = 0; r && i < r->responses[0].n_partitions; i++) {
        p = &r->responses[0].partitions[i];
        at[p->partition_index] = p->high_watermark;
    }
    return r && fetch(s, at, WAIT_MS);
}

/* Counts what each acked record is found as; false when no answer came. */
static bool count_found(struct sw *s, int32_t partition, struct kc_bytes records, int64_t *next,
                        uint8_t *found)
{
    for (int32_t at = 0; at < records.len;) {
        struct kw_batch b;
        struct kw_record_iter it;
        struct kw_record rec;
        if (kw_batch_view(records.ptr + at, (size_t)(records.len - at), &b)) {
            return true; /* the rest of it comes with the next fetch */
        }
        KT_REQUIRE(kw_batch_crc_ok(&b) && kw_record_iter_init(&it, &b) == 0);
        while (kw_record_next(&it, &rec) == 1) {
            uint64_t stamp;
            memcpy(&stamp, rec.value.ptr, 8);
            stamp = be64toh(stamp);
            for (int32_t i = 0; i < s->n_acked; i++) {
                const struct sw_acked *a = &s->acked[i];
                if (a->partition == partition && a->stamp == stamp) {
                    found[i] += 1;
                    if (a->offset != rec.offset) {
                        sw_bad(s, "acked at %lld, found at %lld", (long long)a->offset,
                               (long long)rec.offset);
                    }
                }
            }
        }
        *next = kw_batch_last_offset(&b) + 1;
        at += (int32_t)b.size;
    }
    return true;
}

static bool read_all(struct sw *s, uint8_t *found)
{
    int64_t at[SW_TOPIC_PARTS] = {0};
    for (bool more = true; more;) {
        const struct kw_fetch_response *r = fetch(s, at, 0);
        more = false;
        for (int32_t i = 0; r && i < r->responses[0].n_partitions; i++) {
            struct kw_fetch_response_partition_data *p = &r->responses[0].partitions[i];
            int64_t *next = &at[p->partition_index];
            if (p->records.len > 0) {
                count_found(s, p->partition_index, p->records, next, found);
            }
            more |= *next < p->high_watermark;
        }
        if (!r) {
            return false;
        }
    }
    return true;
}

bool sw_verify_records(struct sw *s)
{
    static uint8_t found[SW_ACKS_MAX];
    memset(found, 0, sizeof(found));
    if (!read_all(s, found)) {
        return false;
    }
    for (int32_t i = 0; i < s->n_acked; i++) {
        if (found[i] != 1) {
            sw_bad(s, "an acked record is there %d times: partition %d offset %lld", found[i],
                   s->acked[i].partition, (long long)s->acked[i].offset);
        }
    }
    return true;
}

bool sw_list_offsets(struct sw *s)
{
    struct kw_list_offsets_request_partition parts[3];
    static const int64_t stamps[] = {-1, -2, 500};
    for (int i = 0; i < 3; i++) {
        parts[i] = (struct kw_list_offsets_request_partition){i % SW_TOPIC_PARTS, -1, stamps[i], 1};
    }
    bool ok = true;
    for (int i = 0; ok && i < 3; i++) {
        struct kw_list_offsets_request_topic t = {SW_TOPIC, &parts[i], 1};
        struct kw_list_offsets_request q;
        kw_list_offsets_request_init(&q);
        q.replica_id = -1;
        q.topics = &t;
        q.n_topics = 1;
        ok = sw_ask(s, 2, 7, &q) != NULL;
    }
    return ok;
}

bool sw_epochs(struct sw *s)
{
    struct kw_offset_for_leader_epoch_request_offset_for_leader_partition p = {0, -1, 1};
    struct kw_offset_for_leader_epoch_request_offset_for_leader_topic t = {SW_TOPIC, &p, 1};
    struct kw_offset_for_leader_epoch_request q;
    kw_offset_for_leader_epoch_request_init(&q);
    q.topics = &t;
    q.n_topics = 1;
    return sw_ask(s, 23, 4, &q) != NULL;
}

/* ---- topics ---- */

bool sw_create(struct sw *s, struct kc_str name, int32_t partitions, struct kc_uuid *ret_id)
{
    struct kw_create_topics_request_creatable_topic_config c = {
        KC_STR_LIT("retention.ms"), KC_STR_LIT("-1")}; /* the records are old */
    struct kw_create_topics_request_creatable_topic t = {.name = name,
                                                         .num_partitions = partitions,
                                                         .replication_factor = 1,
                                                         .configs = &c,
                                                         .n_configs = 1};
    struct kw_create_topics_request q;
    kw_create_topics_request_init(&q);
    q.topics = &t;
    q.n_topics = 1;
    q.timeout_ms = timeout_ms(s);
    s->expect[0] = KAFKA_TOPIC_ALREADY_EXISTS; /* an attempt whose answer was lost made it */
    const struct kw_create_topics_response *r = sw_ask(s, 19, 7, &q);
    s->expect[0] = 0;
    if (r && ret_id) {
        *ret_id = r->topics[0].topic_id;
    }
    return r != NULL;
}

bool sw_delete(struct sw *s, struct kc_str name)
{
    struct kw_delete_topics_request q;
    kw_delete_topics_request_init(&q);
    q.topic_names = &name;
    q.n_topic_names = 1;
    q.timeout_ms = timeout_ms(s);
    s->expect[0] = KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
    bool ok = sw_ask(s, 20, 5, &q) != NULL;
    s->expect[0] = 0;
    return ok;
}

static bool grow(struct sw *s, struct kc_str name, int32_t count)
{
    struct kw_create_partitions_request_topic t = {name, count, NULL, -1};
    struct kw_create_partitions_request q;
    kw_create_partitions_request_init(&q);
    q.topics = &t;
    q.n_topics = 1;
    q.timeout_ms = timeout_ms(s);
    s->expect[0] = KAFKA_INVALID_PARTITIONS; /* it has them already */
    bool ok = sw_ask(s, 37, 3, &q) != NULL;
    s->expect[0] = 0;
    return ok;
}

static bool alter(struct sw *s, struct kc_str name)
{
    struct kw_incremental_alter_configs_request_alterable_config c = {
        KC_STR_LIT("max.message.bytes"), 0, KC_STR_LIT("100000")};
    struct kw_incremental_alter_configs_request_alter_configs_resource res = {2, name, &c, 1};
    struct kw_incremental_alter_configs_request q;
    kw_incremental_alter_configs_request_init(&q);
    q.resources = &res;
    q.n_resources = 1;
    return sw_ask(s, 44, 1, &q) != NULL;
}

bool sw_topic_admin(struct sw *s)
{
    char name[32];
    snprintf(name, sizeof(name), "admin-%llu", (unsigned long long)s->number);
    struct kc_str topic = kc_str_of(name);
    return sw_create(s, topic, 1, NULL) && grow(s, topic, 2) && alter(s, topic) &&
           sw_delete(s, topic);
}

bool sw_describe_configs(struct sw *s)
{
    struct kw_describe_configs_request_resource res[2] = {{2, SW_TOPIC, NULL, -1},
                                                          {4, KC_STR_LIT("0"), NULL, -1}};
    struct kw_describe_configs_request q;
    kw_describe_configs_request_init(&q);
    q.resources = res;
    q.n_resources = 2;
    q.include_synonyms = q.include_documentation = true;
    return sw_ask(s, 32, 4, &q) != NULL;
}

/* Up to the start: nothing acked goes. */
bool sw_delete_records(struct sw *s)
{
    struct kw_delete_records_request_partition p = {0, 0};
    struct kw_delete_records_request_topic t = {SW_TOPIC, &p, 1};
    struct kw_delete_records_request q;
    kw_delete_records_request_init(&q);
    q.topics = &t;
    q.n_topics = 1;
    q.timeout_ms = timeout_ms(s);
    return sw_ask(s, 21, 2, &q) != NULL;
}

bool sw_describe_topics(struct sw *s)
{
    int32_t zero = 0;
    struct kw_describe_producers_request_topic_request pt = {SW_TOPIC, &zero, 1};
    struct kw_describe_producers_request pq;
    kw_describe_producers_request_init(&pq);
    pq.topics = &pt;
    pq.n_topics = 1;
    struct kw_describe_topic_partitions_request_topic_request t = {SW_TOPIC};
    struct kw_describe_topic_partitions_request q;
    kw_describe_topic_partitions_request_init(&q);
    q.topics = &t;
    q.n_topics = 1;
    return sw_ask(s, 61, 0, &pq) && sw_ask(s, 75, 0, &q);
}

/* ---- the start ---- */

bool sw_metadata(struct sw *s)
{
    struct kw_metadata_request_topic t = {.name = SW_TOPIC};
    struct kw_metadata_request q;
    kw_metadata_request_init(&q);
    q.topics = &t;
    q.n_topics = 1;
    const struct kw_metadata_response *r = sw_ask(s, 3, 12, &q);
    if (r) {
        s->topic_id = r->topics[0].topic_id;
    }
    return r != NULL;
}

bool sw_ready(struct sw *s)
{
    return sw_create(s, SW_TOPIC, SW_TOPIC_PARTS, NULL) && sw_metadata(s) && sw_coordinates(s) &&
           sw_list_offsets(s);
}

bool sw_verify(struct sw *s)
{
    return sw_verify_records(s) && sw_verify_offsets(s);
}
