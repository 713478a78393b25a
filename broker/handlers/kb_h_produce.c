/* 0 Produce: appends record batches.
 *
 * v3-4    batches of format v2. v5: log start offset. v7: zstd. v8: which record is bad, and a text.
 * v10     on NOT_LEADER_OR_FOLLOWER the new leader and its address (KIP-951).
 * v13     topics by id (KIP-516).
 * acks 1 and -1 are answered when the batch is durable and the fence check came back (storage.md);
 * acks 0 has no answer, and an error closes the connection so that the client notices. Versions 0-2
 * are advertised but not served, as in Kafka 4. A volume that does not answer in timeout_ms is
 * answered with REQUEST_TIMED_OUT; the append may still happen, as in Kafka. */
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_fan.h"
#include "handlers/kb_view.h"
#include "storage/ks_batch.h"
#include "wire/kw_errors.h"
#include "wire/kw_produce.h"

struct append {
    struct kb_item item;
    const struct kw_produce_request_partition_produce_data *in;
    struct ks_append_result result;
    _Atomic bool finished;
};

struct produce {
    struct kb_fan fan;
    struct kd_timer timeout;
    bool answered;
    struct kw_produce_response
        resp; /* its arrays are made before the start: an answer needs no memory */
};

/* ---- appending, on the partition's loop ---- */

/* Of the item's batch; false: it is of no idempotent producer, or no batch. */
static bool sender_of(const struct append *a, struct kd_sender *ret)
{
    struct ks_batch b;
    if (!a->in->records.ptr || a->in->records.len < KS_BATCH_HEADER ||
        !ks_batch_parse(a->in->records.ptr, &b) || b.producer_id < 0) {
        return false;
    }
    *ret = (struct kd_sender){.topic_id = &a->item.topic_id,
                              .partition = a->item.partition,
                              .producer_id = b.producer_id,
                              .producer_epoch = b.producer_epoch,
                              .first_seq = b.first_seq};
    return true;
}

/* Keeps what a producer has on its way in order: see kd_note_refused. */
static void finish(struct append *a)
{
    struct kd_sender s;
    int16_t error = a->item.error;
    bool refused = error == KAFKA_NOT_LEADER_OR_FOLLOWER || error == KAFKA_KAFKA_STORAGE_ERROR;
    if (sender_of(a, &s)) {
        if (refused) {
            kd_note_refused(&s, kc_mono_ms());
        } else if (error == KAFKA_NONE) {
            kd_note_taken(&s);
        } else if (error == KAFKA_OUT_OF_ORDER_SEQUENCE_NUMBER && kd_was_refused(&s)) {
            a->item.error = KAFKA_NOT_LEADER_OR_FOLLOWER;
            a->result.message = NULL;
        }
    }
    atomic_store(&a->finished, true);
    kb_fan_done(&a->item);
}

static void on_appended(void *ctx, const struct ks_append_result *r)
{
    struct append *a = ctx;
    a->result = *r;
    a->item.error = r->error;
    finish(a);
}

static void append(struct kb_item *item)
{
    struct append *a = KC_CONTAINER_OF(item, struct append, item);
    struct kb_req *req = item->fan->req;
    const struct kw_produce_request *in = req->body;
    struct kd_part *p = kb_item_part(item);
    if (!p && item->error) {
        finish(a);
    }
    if (!p) {
        return;
    }
    kb_count(&req->app->metrics.produced_bytes, (uint64_t)a->in->records.len);
    struct ks_append_args args = {
        .batches = {req->frame, a->in->records.ptr, (size_t)a->in->records.len},
        .origin = KS_FROM_CLIENT,
        .now_wall_ms = kc_wall_ms(),
        .acks = in->acks,
        .done = on_appended,
        .ctx = a};
    ks_log_append(kd_part_log(p), &args);
}

/* ---- the answer, on the home loop ---- */

static bool add_node(struct produce *pr, int32_t id)
{
    struct kw_produce_response *resp = &pr->resp;
    struct kb_node n;
    for (int32_t i = 0; i < resp->n_node_endpoints; i++) {
        if (resp->node_endpoints[i].node_id == id) {
            return true;
        }
    }
    if (!kb_node(pr->fan.req, id, &n) || resp->n_node_endpoints > pr->fan.req->image->n_rows) {
        return false;
    }
    resp->node_endpoints[resp->n_node_endpoints++] =
        (struct kw_produce_response_node_endpoint){n.id, n.host, n.port, n.rack};
    return true;
}

static void fill(struct produce *pr, struct append *a,
                 struct kw_produce_response_partition_produce_response *out)
{
    struct kb_req *req = pr->fan.req;
    bool finished = atomic_load(&a->finished);
    kw_produce_response_partition_produce_response_init(out);
    out->index = a->item.partition;
    out->error_code = finished ? a->item.error : KAFKA_REQUEST_TIMED_OUT;
    out->base_offset = -1;
    if (out->error_code) {
        kb_count(&req->app->metrics.produce_errors, 1);
    } else {
        out->base_offset = a->result.base_offset;
        out->log_append_time_ms = a->result.append_time_ms;
    }
    out->log_start_offset = finished ? a->result.log_start : -1;
    if (finished && a->result.message && req->version >= 8) {
        out->error_message = kc_str_of(a->result.message);
    }
    int32_t id, epoch;
    if (finished && req->version >= 10 && kb_item_leader(&a->item, &id, &epoch) &&
        add_node(pr, id)) {
        out->current_leader.leader_id = id;
        out->current_leader.leader_epoch = epoch;
    }
}

static const struct kw_produce_response *fill_all(struct produce *pr)
{
    int32_t at = 0;
    for (int32_t t = 0; t < pr->resp.n_responses; t++) {
        struct kw_produce_response_topic_produce_response *out = &pr->resp.responses[t];
        for (int32_t p = 0; p < out->n_partition_responses; p++) {
            struct kb_item *it = kb_fan_item(&pr->fan, at++);
            fill(pr, KC_CONTAINER_OF(it, struct append, item), &out->partition_responses[p]);
        }
    }
    return &pr->resp;
}

/* The response's arrays; false when req was dropped. */
static bool make_room(struct produce *pr)
{
    struct kb_req *req = pr->fan.req;
    const struct kw_produce_request *in = req->body;
    struct kw_produce_response *resp = &pr->resp;
    kw_produce_response_init(resp);
    resp->responses = kb_alloc(req, (size_t)in->n_topic_data, sizeof(*resp->responses));
    if (!resp->responses) {
        return false;
    }
    resp->node_endpoints =
        kb_alloc(req, (size_t)req->image->n_rows + 1, sizeof(*resp->node_endpoints));
    if (!resp->node_endpoints) {
        return false;
    }
    for (int32_t t = 0; t < in->n_topic_data; t++) {
        const struct kw_produce_request_topic_produce_data *td = &in->topic_data[t];
        struct kw_produce_response_topic_produce_response *out = &resp->responses[t];
        out->name = td->name;
        out->topic_id = td->topic_id;
        out->partition_responses =
            kb_alloc(req, (size_t)td->n_partition_data, sizeof(*out->partition_responses));
        if (!out->partition_responses) {
            return false;
        }
        out->n_partition_responses = td->n_partition_data;
        resp->n_responses++;
    }
    return true;
}

static void finish_silently(struct produce *pr)
{
    struct kb_req *req = pr->fan.req;
    for (int32_t i = 0; i < pr->fan.n; i++) {
        if (kb_fan_item(&pr->fan, i)->error) {
            kb_drop(req, "a produce request with acks=0 failed");
            return;
        }
    }
    kb_no_reply(req);
}

static void on_done(struct kb_fan *fan)
{
    struct produce *pr = KC_CONTAINER_OF(fan, struct produce, fan);
    struct kb_req *req = fan->req;
    const struct kw_produce_request *in = req->body;
    kd_timer_disarm(kd_timers_here(req->app->data), &pr->timeout);
    if (pr->answered) {
        kb_end(req);
        return;
    }
    if (in->acks == 0) {
        finish_silently(pr);
        return;
    }
    kb_reply(req, fill_all(pr));
}

/* Appends under way hold on to the request: it is answered now and freed when they end. */
static void on_timeout(struct kd_timer *t)
{
    struct produce *pr = KC_CONTAINER_OF(t, struct produce, timeout);
    pr->answered = true;
    kb_send(pr->fan.req, fill_all(pr));
}

/* ---- the request ---- */

static int32_t count(const struct kw_produce_request *in)
{
    int64_t n = 0;
    for (int32_t t = 0; t < in->n_topic_data; t++) {
        n += in->topic_data[t].n_partition_data;
    }
    return (int32_t)n; /* bounded by the frame's size */
}

/* Attributes of the first batch; 0 if there is no batch of format v2, which the log finds out, too. */
static uint16_t attributes(const struct kw_produce_request_partition_produce_data *in)
{
    enum { MAGIC = 16, ATTRIBUTES = 21 };
    const uint8_t *p = in->records.ptr;
    return p && in->records.len > ATTRIBUTES + 1 && p[MAGIC] == 2
               ? (uint16_t)(p[ATTRIBUTES] << 8 | p[ATTRIBUTES + 1])
               : 0;
}

/* Transactional records need a transactional id; one batch without refuses the whole request. */
static int16_t refuse_all(const struct kw_produce_request *in)
{
    for (int32_t t = 0; t < in->n_topic_data && !in->transactional_id.ptr; t++) {
        const struct kw_produce_request_topic_produce_data *td = &in->topic_data[t];
        for (int32_t p = 0; p < td->n_partition_data; p++) {
            if (attributes(&td->partition_data[p]) & KS_ATTR_TRANSACTIONAL) {
                return KAFKA_TRANSACTIONAL_ID_AUTHORIZATION_FAILED;
            }
        }
    }
    return KAFKA_NONE;
}

/* What is refused before the log sees it. */
static int16_t refuse(const struct kb_item *it,
                      const struct kw_produce_request_partition_produce_data *in)
{
    enum { ZSTD = 4, ZSTD_SINCE = 7 };
    const struct kb_req *req = it->fan->req;
    if (!in->records.ptr || in->records.len == 0) {
        return KAFKA_INVALID_RECORD; /* Kafka 4.4 never answers this; we do */
    }
    int16_t acks = ((const struct kw_produce_request *)req->body)->acks;
    if (acks < -1 || acks > 1) {
        return KAFKA_INVALID_REQUIRED_ACKS;
    }
    if ((attributes(in) & KS_ATTR_CODEC) == ZSTD && req->version < ZSTD_SINCE) {
        return KAFKA_UNSUPPORTED_COMPRESSION_TYPE; /* KIP-110 */
    }
    return ki_topic_by_id(req->image, &it->topic_id)->internal ? KAFKA_INVALID_TOPIC_EXCEPTION
                                                               : KAFKA_NONE;
}

static void set_items(struct produce *pr, const struct kw_produce_request *in)
{
    static const struct kc_uuid none;
    int16_t version = pr->fan.req->version;
    int16_t all = refuse_all(in);
    int32_t at = 0;
    for (int32_t t = 0; t < in->n_topic_data; t++) {
        const struct kw_produce_request_topic_produce_data *td = &in->topic_data[t];
        for (int32_t p = 0; p < td->n_partition_data; p++) {
            struct kb_item *it = kb_fan_item(&pr->fan, at++);
            struct append *a = KC_CONTAINER_OF(it, struct append, item);
            a->in = &td->partition_data[p];
            a->result.log_start = -1;
            if (version >= 13) {
                kb_item_set(it, KC_STR_NULL, &td->topic_id, a->in->index);
            } else {
                kb_item_set(it, td->name, &none, a->in->index);
            }
            it->error = all ? all : it->error ? it->error : refuse(it, a->in);
            atomic_init(&a->finished, it->error != KAFKA_NONE);
        }
    }
}

void kb_handle_produce(struct kb_req *req)
{
    const struct kw_produce_request *in = req->body;
    struct produce *pr = kb_alloc(req, 1, sizeof(*pr));
    if (!pr || !kb_fan_init(&pr->fan, req, count(in), sizeof(struct append))) {
        return;
    }
    if (!make_room(pr)) {
        return;
    }
    pr->fan.run = append;
    pr->fan.done = on_done;
    set_items(pr, in);
    if (in->acks != 0 && in->timeout_ms > 0) {
        pr->timeout.fn = on_timeout;
        kd_timer_arm(kd_timers_here(req->app->data), &pr->timeout, kc_mono_ms() + in->timeout_ms);
    }
    kb_fan_start(&pr->fan);
}
