/* 61 DescribeProducers v0: the idempotent producers that a partition remembers. */
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_fan.h"
#include "wire/kw_describe_producers.h"
#include "wire/kw_errors.h"

struct ask {
    struct kb_item item;
    int32_t n;
    struct ks_producer *producers; /* heap: made on the partition's loop */
};

struct asks {
    struct kb_fan fan;
    struct kw_describe_producers_response resp;
};

static void run(struct kb_item *item)
{
    struct ask *a = KC_CONTAINER_OF(item, struct ask, item);
    struct kd_part *p = kb_item_part(item);
    if (!p && !item->error) {
        return;
    }
    if (p) {
        int32_t n = ks_log_producers(kd_part_log(p), NULL, 0);
        a->producers = kc_try_zalloc((size_t)n + 1, sizeof(*a->producers));
        a->n = a->producers ? KC_MIN(ks_log_producers(kd_part_log(p), a->producers, n), n) : 0;
    }
    kb_fan_done(item);
}

/* Moves what the loop collected into the arena; false if it does not fit. */
static bool fill(struct kb_req *req, struct ask *a,
                 struct kw_describe_producers_response_partition_response *out)
{
    kw_describe_producers_response_partition_response_init(out);
    out->partition_index = a->item.partition;
    out->error_code = a->item.error;
    out->active_producers =
        kc_arena_zalloc(&req->arena, (size_t)a->n + 1, sizeof(*out->active_producers));
    for (int32_t i = 0; out->active_producers && i < a->n; i++) {
        const struct ks_producer *p = &a->producers[i];
        out->active_producers[out->n_active_producers++] =
            (struct kw_describe_producers_response_producer_state){
                .producer_id = p->producer_id,
                .producer_epoch = p->epoch,
                .last_sequence = p->last_sequence,
                .last_timestamp = p->last_timestamp_ms,
                .coordinator_epoch = -1,
                .current_txn_start_offset = p->txn_first_offset};
    }
    kc_free(a->producers);
    return out->active_producers != NULL;
}

static void on_done(struct kb_fan *fan)
{
    struct asks *as = KC_CONTAINER_OF(fan, struct asks, fan);
    int32_t at = 0;
    bool ok = true;
    for (int32_t t = 0; t < as->resp.n_topics; t++) {
        struct kw_describe_producers_response_topic_response *out = &as->resp.topics[t];
        for (int32_t i = 0; i < out->n_partitions; i++) {
            struct kb_item *it = kb_fan_item(fan, at++);
            ok &= fill(fan->req, KC_CONTAINER_OF(it, struct ask, item), &out->partitions[i]);
        }
    }
    if (ok) {
        kb_reply(fan->req, &as->resp);
    } else {
        kb_drop(fan->req, "an answer needs more memory than one may have");
    }
}

static bool make_items(struct kb_req *req, struct asks *as)
{
    static const struct kc_uuid none;
    const struct kw_describe_producers_request *in = req->body;
    int32_t at = 0;
    for (int32_t t = 0; t < in->n_topics; t++) {
        const struct kw_describe_producers_request_topic_request *topic = &in->topics[t];
        struct kw_describe_producers_response_topic_response *out =
            &as->resp.topics[as->resp.n_topics++];
        out->name = topic->name;
        out->partitions =
            kb_alloc(req, (size_t)topic->n_partition_indexes, sizeof(*out->partitions));
        if (!out->partitions) {
            return false;
        }
        out->n_partitions = topic->n_partition_indexes;
        for (int32_t i = 0; i < topic->n_partition_indexes; i++) {
            kb_item_set(kb_fan_item(&as->fan, at++), topic->name, &none,
                        topic->partition_indexes[i]);
        }
    }
    return true;
}

void kb_handle_describe_producers(struct kb_req *req)
{
    const struct kw_describe_producers_request *in = req->body;
    int64_t n = 0;
    for (int32_t t = 0; t < in->n_topics; t++) {
        n += in->topics[t].n_partition_indexes;
    }
    struct asks *as = kb_alloc(req, 1, sizeof(*as));
    if (!as || !kb_fan_init(&as->fan, req, (int32_t)n, sizeof(struct ask))) {
        return;
    }
    kw_describe_producers_response_init(&as->resp);
    as->resp.topics = kb_alloc(req, (size_t)in->n_topics, sizeof(*as->resp.topics));
    if (!as->resp.topics || !make_items(req, as)) {
        return;
    }
    as->fan.run = run;
    as->fan.done = on_done;
    kb_fan_start(&as->fan);
}
