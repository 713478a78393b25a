/* 21 DeleteRecords: moves the start of partitions up; what lies below is gone for consumers at once.
 *
 * v0-1    the same. v2: compact.
 * An offset of -1 means the high watermark. An offset at or below the start succeeds and changes
 * nothing. Answers as Kafka's ReplicaManager.deleteRecordsOnLocalLog: internal topics are
 * INVALID_TOPIC_EXCEPTION, topics whose cleanup.policy is only "compact" POLICY_VIOLATION, offsets
 * beyond the high watermark OFFSET_OUT_OF_RANGE; the low watermark is the new start, -1 with an error.
 * A volume that does not answer in timeout_ms is answered with REQUEST_TIMED_OUT; the start may still
 * move, as in Kafka. */
#include "base/kc_clock.h"
#include "handlers/kb_api.h"
#include "handlers/kb_fan.h"
#include "handlers/kb_view.h"
#include "wire/kw_delete_records.h"
#include "wire/kw_errors.h"

struct deletion {
    struct kb_item item;
    struct ks_delete ask;
    int64_t low_watermark;
    _Atomic bool finished;
};

struct deletions {
    struct kb_fan fan;
    struct kd_timer timeout;
    bool answered;
    struct kw_delete_records_response resp; /* made before the start: an answer needs no memory */
};

static void finish(struct deletion *d)
{
    atomic_store(&d->finished, true);
    kb_fan_done(&d->item);
}

static void on_deleted(struct ks_delete *ask, int16_t error, int64_t log_start)
{
    struct deletion *d = KC_CONTAINER_OF(ask, struct deletion, ask);
    d->item.error = error;
    d->low_watermark = log_start;
    finish(d);
}

static void run(struct kb_item *item)
{
    struct deletion *d = KC_CONTAINER_OF(item, struct deletion, item);
    struct kd_part *p = kb_item_part(item);
    if (p) {
        d->ask.done = on_deleted;
        ks_log_delete_records(kd_part_log(p), &d->ask);
    } else if (item->error) {
        finish(d);
    }
}

static const struct kw_delete_records_response *fill(struct deletions *ds)
{
    int32_t at = 0;
    for (int32_t t = 0; t < ds->resp.n_topics; t++) {
        struct kw_delete_records_response_topic_result *out = &ds->resp.topics[t];
        for (int32_t i = 0; i < out->n_partitions; i++) {
            struct kb_item *it = kb_fan_item(&ds->fan, at++);
            struct deletion *d = KC_CONTAINER_OF(it, struct deletion, item);
            bool finished = atomic_load(&d->finished);
            int16_t error = finished ? it->error : KAFKA_REQUEST_TIMED_OUT;
            out->partitions[i] = (struct kw_delete_records_response_partition_result){
                .partition_index = it->partition,
                .low_watermark = error ? -1 : d->low_watermark,
                .error_code = error};
        }
    }
    return &ds->resp;
}

static void on_done(struct kb_fan *fan)
{
    struct deletions *ds = KC_CONTAINER_OF(fan, struct deletions, fan);
    kd_timer_disarm(kd_timers_here(fan->req->app->data), &ds->timeout);
    if (ds->answered) {
        kb_end(fan->req);
    } else {
        kb_reply(fan->req, fill(ds));
    }
}

/* Deletions under way hold on to the request: it is answered now and freed when they end. */
static void on_timeout(struct kd_timer *t)
{
    struct deletions *ds = KC_CONTAINER_OF(t, struct deletions, timeout);
    ds->answered = true;
    kb_send(ds->fan.req, fill(ds));
}

static void set_item(struct kb_item *it, struct kc_str topic,
                     const struct kw_delete_records_request_partition *in)
{
    static const struct kc_uuid none;
    struct deletion *d = KC_CONTAINER_OF(it, struct deletion, item);
    int16_t error;
    d->ask.offset = in->offset;
    kb_item_set(it, topic, &none, in->partition_index);
    const struct ki_topic *t = kb_topic(it->fan->req, topic, &none, &error);
    if (!it->error && t->internal) {
        it->error = KAFKA_INVALID_TOPIC_EXCEPTION;
    }
    atomic_init(&d->finished, it->error != KAFKA_NONE);
}

/* The response's arrays, and an item a partition; false when req was dropped. */
static bool prepare(struct kb_req *req, struct deletions *ds)
{
    const struct kw_delete_records_request *in = req->body;
    struct kw_delete_records_response *resp = &ds->resp;
    kw_delete_records_response_init(resp);
    resp->topics = kb_alloc(req, (size_t)in->n_topics, sizeof(*resp->topics));
    if (!resp->topics) {
        return false;
    }
    int32_t at = 0;
    for (int32_t t = 0; t < in->n_topics; t++) {
        const struct kw_delete_records_request_topic *topic = &in->topics[t];
        struct kw_delete_records_response_topic_result *out = &resp->topics[t];
        out->name = topic->name;
        out->partitions = kb_alloc(req, (size_t)topic->n_partitions, sizeof(*out->partitions));
        if (!out->partitions) {
            return false;
        }
        out->n_partitions = topic->n_partitions;
        resp->n_topics++;
        for (int32_t i = 0; i < topic->n_partitions; i++) {
            set_item(kb_fan_item(&ds->fan, at++), topic->name, &topic->partitions[i]);
        }
    }
    return true;
}

void kb_handle_delete_records(struct kb_req *req)
{
    const struct kw_delete_records_request *in = req->body;
    int64_t n = 0;
    for (int32_t t = 0; t < in->n_topics; t++) {
        n += in->topics[t].n_partitions;
    }
    struct deletions *ds = kb_alloc(req, 1, sizeof(*ds));
    if (!ds || !kb_fan_init(&ds->fan, req, (int32_t)n, sizeof(struct deletion)) ||
        !prepare(req, ds)) {
        return;
    }
    ds->fan.run = run;
    ds->fan.done = on_done;
    if (in->timeout_ms > 0) {
        ds->timeout.fn = on_timeout;
        kd_timer_arm(kd_timers_here(req->app->data), &ds->timeout, kc_mono_ms() + in->timeout_ms);
    }
    kb_fan_start(&ds->fan);
}
