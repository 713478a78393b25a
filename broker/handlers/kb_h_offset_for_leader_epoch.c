/* 23 OffsetForLeaderEpoch: where a leader epoch ends (KIP-320), for consumers that check whether
 * what they read was truncated.
 *
 * v0      end offset. v1: the epoch it belongs to. v2: the client's own leader epoch is checked.
 * v3      replica id. An epoch later than ours is answered with -1, -1 and no error. */
#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_fan.h"
#include "wire/kw_errors.h"
#include "wire/kw_offset_for_leader_epoch.h"

struct ask {
    struct kb_item item;
    const struct kw_offset_for_leader_epoch_request_offset_for_leader_partition *in;
    int32_t epoch;
    int64_t end;
};

struct asks {
    struct kb_fan fan;
    struct kw_offset_for_leader_epoch_response resp;
};

static void run(struct kb_item *item)
{
    struct ask *a = KC_CONTAINER_OF(item, struct ask, item);
    struct kd_part *p = kb_item_part(item);
    if (!p && !item->error) {
        return;
    }
    if (p) {
        item->error = kb_check_epoch(a->in->current_leader_epoch, kd_part_log(p));
    }
    if (p && !item->error) {
        ks_log_epoch_end(kd_part_log(p), a->in->leader_epoch, &a->epoch, &a->end);
    }
    kb_fan_done(item);
}

static void on_done(struct kb_fan *fan)
{
    struct asks *as = KC_CONTAINER_OF(fan, struct asks, fan);
    int32_t at = 0;
    for (int32_t t = 0; t < as->resp.n_topics; t++) {
        struct kw_offset_for_leader_epoch_response_offset_for_leader_topic_result *out =
            &as->resp.topics[t];
        for (int32_t i = 0; i < out->n_partitions; i++) {
            const struct kb_item *it = kb_fan_item(fan, at++);
            const struct ask *a = KC_CONTAINER_OF(it, struct ask, item);
            struct kw_offset_for_leader_epoch_response_epoch_end_offset *o = &out->partitions[i];
            kw_offset_for_leader_epoch_response_epoch_end_offset_init(o);
            o->partition = it->partition;
            o->error_code = it->error;
            if (!it->error) {
                o->leader_epoch = fan->req->version >= 1 ? a->epoch : -1;
                o->end_offset = a->end;
            }
        }
    }
    kb_reply(fan->req, &as->resp);
}

static bool make_items(struct kb_req *req, struct asks *as)
{
    static const struct kc_uuid none;
    const struct kw_offset_for_leader_epoch_request *in = req->body;
    int32_t at = 0;
    for (int32_t t = 0; t < in->n_topics; t++) {
        const struct kw_offset_for_leader_epoch_request_offset_for_leader_topic *topic =
            &in->topics[t];
        struct kw_offset_for_leader_epoch_response_offset_for_leader_topic_result *out =
            &as->resp.topics[as->resp.n_topics++];
        out->topic = topic->topic;
        out->partitions = kb_alloc(req, (size_t)topic->n_partitions, sizeof(*out->partitions));
        if (!out->partitions) {
            return false;
        }
        out->n_partitions = topic->n_partitions;
        for (int32_t i = 0; i < topic->n_partitions; i++) {
            struct kb_item *it = kb_fan_item(&as->fan, at++);
            struct ask *a = KC_CONTAINER_OF(it, struct ask, item);
            a->in = &topic->partitions[i];
            a->epoch = -1;
            a->end = -1;
            kb_item_set(it, topic->topic, &none, a->in->partition);
        }
    }
    return true;
}

void kb_handle_offset_for_leader_epoch(struct kb_req *req)
{
    const struct kw_offset_for_leader_epoch_request *in = req->body;
    int64_t n = 0;
    for (int32_t t = 0; t < in->n_topics; t++) {
        n += in->topics[t].n_partitions;
    }
    struct asks *as = kb_alloc(req, 1, sizeof(*as));
    if (!as || !kb_fan_init(&as->fan, req, (int32_t)n, sizeof(struct ask))) {
        return;
    }
    kw_offset_for_leader_epoch_response_init(&as->resp);
    as->resp.topics = kb_alloc(req, (size_t)in->n_topics, sizeof(*as->resp.topics));
    if (!as->resp.topics || !make_items(req, as)) {
        return;
    }
    as->fan.run = run;
    as->fan.done = on_done;
    kb_fan_start(&as->fan);
}
