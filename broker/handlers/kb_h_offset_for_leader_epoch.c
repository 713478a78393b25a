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
    struct kw_offset_for_leader_epoch_response_epoch_end_offset *out;
};

struct asks {
    struct kb_fan fan;
    struct kw_offset_for_leader_epoch_response resp;
};

static void run(struct kb_item *item)
{
    struct ask *a = KC_CONTAINER_OF(item, struct ask, item);
    struct kd_part *p = kb_item_part_or_end(item);
    if (!p) {
        return;
    }
    item->error = kb_check_epoch(a->in->current_leader_epoch, kd_part_log(p));
    if (!item->error) {
        ks_log_epoch_end(kd_part_log(p), a->in->leader_epoch, &a->epoch, &a->end);
    }
    kb_fan_done(item);
}

static void on_done(struct kb_fan *fan)
{
    struct asks *as = KC_CONTAINER_OF(fan, struct asks, fan);
    for (int32_t i = 0; i < fan->n; i++) {
        const struct kb_item *it = kb_fan_item(fan, i);
        const struct ask *a = KC_CONTAINER_OF(it, struct ask, item);
        kw_offset_for_leader_epoch_response_epoch_end_offset_init(a->out);
        a->out->partition = it->partition;
        a->out->error_code = it->error;
        if (!it->error) {
            a->out->leader_epoch = fan->req->version >= 1 ? a->epoch : -1;
            a->out->end_offset = a->end;
        }
    }
    kb_reply(fan->req, &as->resp);
}

static int32_t count(const void *body, int32_t t)
{
    return ((const struct kw_offset_for_leader_epoch_request *)body)->topics[t].n_partitions;
}

static bool room(struct kb_fan *fan, int32_t t)
{
    const struct kw_offset_for_leader_epoch_request *in = fan->req->body;
    struct asks *as = KC_CONTAINER_OF(fan, struct asks, fan);
    struct kw_offset_for_leader_epoch_response_offset_for_leader_topic_result *out =
        &as->resp.topics[t];
    out->topic = in->topics[t].topic;
    out->n_partitions = in->topics[t].n_partitions;
    out->partitions = kb_alloc(fan->req, (size_t)out->n_partitions, sizeof(*out->partitions));
    return out->partitions != NULL;
}

static void set(struct kb_item *item, int32_t t, int32_t i)
{
    const struct kw_offset_for_leader_epoch_request *in = item->fan->req->body;
    struct asks *as = KC_CONTAINER_OF(item->fan, struct asks, fan);
    struct ask *a = KC_CONTAINER_OF(item, struct ask, item);
    a->in = &in->topics[t].partitions[i];
    a->out = &as->resp.topics[t].partitions[i];
    a->epoch = -1;
    a->end = -1;
    kb_item_set_named(item, in->topics[t].topic, a->in->partition);
}

void kb_handle_offset_for_leader_epoch(struct kb_req *req)
{
    static const struct kb_fan_api api = {sizeof(struct ask), count, room, set, run, on_done};
    const struct kw_offset_for_leader_epoch_request *in = req->body;
    struct asks *as = kb_alloc(req, 1, sizeof(*as));
    if (!as) {
        return;
    }
    kw_offset_for_leader_epoch_response_init(&as->resp);
    as->resp.n_topics = in->n_topics;
    as->resp.topics = kb_alloc(req, (size_t)in->n_topics, sizeof(*as->resp.topics));
    if (as->resp.topics && kb_fan_topics(&as->fan, req, in->n_topics, &api)) {
        kb_fan_start(&as->fan);
    }
}
