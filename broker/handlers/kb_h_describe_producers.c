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
    struct kw_describe_producers_response_partition_response *out;
};

struct asks {
    struct kb_fan fan;
    struct kw_describe_producers_response resp;
};

static void run(struct kb_item *item)
{
    struct ask *a = KC_CONTAINER_OF(item, struct ask, item);
    struct kd_part *p = kb_item_part_or_end(item);
    if (!p) {
        return;
    }
    int32_t n = ks_log_producers(kd_part_log(p), NULL, 0);
    a->producers = kc_try_zalloc((size_t)n + 1, sizeof(*a->producers));
    a->n = a->producers ? KC_MIN(ks_log_producers(kd_part_log(p), a->producers, n), n) : 0;
    kb_fan_done(item);
}

/* Moves what the loop collected into the arena; false if it does not fit. */
static bool fill(struct kb_req *req, struct ask *a)
{
    struct kw_describe_producers_response_partition_response *out = a->out;
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
    bool ok = true;
    for (int32_t i = 0; i < fan->n; i++) {
        ok &= fill(fan->req, KC_CONTAINER_OF(kb_fan_item(fan, i), struct ask, item));
    }
    if (ok) {
        kb_reply(fan->req, &as->resp);
    } else {
        kb_drop(fan->req, "an answer needs more memory than one may have");
    }
}

static int32_t count(const void *body, int32_t t)
{
    return ((const struct kw_describe_producers_request *)body)->topics[t].n_partition_indexes;
}

static bool room(struct kb_fan *fan, int32_t t)
{
    const struct kw_describe_producers_request *in = fan->req->body;
    struct asks *as = KC_CONTAINER_OF(fan, struct asks, fan);
    struct kw_describe_producers_response_topic_response *out = &as->resp.topics[t];
    out->name = in->topics[t].name;
    out->n_partitions = in->topics[t].n_partition_indexes;
    out->partitions = kb_alloc(fan->req, (size_t)out->n_partitions, sizeof(*out->partitions));
    return out->partitions != NULL;
}

static void set(struct kb_item *item, int32_t t, int32_t i)
{
    const struct kw_describe_producers_request *in = item->fan->req->body;
    struct asks *as = KC_CONTAINER_OF(item->fan, struct asks, fan);
    KC_CONTAINER_OF(item, struct ask, item)->out = &as->resp.topics[t].partitions[i];
    kb_item_set_named(item, in->topics[t].name, in->topics[t].partition_indexes[i]);
}

void kb_handle_describe_producers(struct kb_req *req)
{
    static const struct kb_fan_api api = {sizeof(struct ask), count, room, set, run, on_done};
    const struct kw_describe_producers_request *in = req->body;
    struct asks *as = kb_alloc(req, 1, sizeof(*as));
    if (!as) {
        return;
    }
    kw_describe_producers_response_init(&as->resp);
    as->resp.n_topics = in->n_topics;
    as->resp.topics = kb_alloc(req, (size_t)in->n_topics, sizeof(*as->resp.topics));
    if (as->resp.topics && kb_fan_topics(&as->fan, req, in->n_topics, &api)) {
        kb_fan_start(&as->fan);
    }
}
