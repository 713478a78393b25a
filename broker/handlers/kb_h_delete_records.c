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
#include "wire/kw_delete_records.h"
#include "wire/kw_errors.h"

struct deletion {
    struct kb_item item;
    struct ks_delete ask;
    int64_t low_watermark;
    _Atomic bool finished;
    struct kw_delete_records_response_partition_result *out;
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
    for (int32_t i = 0; i < ds->fan.n; i++) {
        struct kb_item *it = kb_fan_item(&ds->fan, i);
        struct deletion *d = KC_CONTAINER_OF(it, struct deletion, item);
        bool finished = atomic_load(&d->finished);
        int16_t error = finished ? it->error : KAFKA_REQUEST_TIMED_OUT;
        *d->out = (struct kw_delete_records_response_partition_result){
            .partition_index = it->partition,
            .low_watermark = error ? -1 : d->low_watermark,
            .error_code = error};
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

static int32_t count(const void *body, int32_t t)
{
    return ((const struct kw_delete_records_request *)body)->topics[t].n_partitions;
}

static bool room(struct kb_fan *fan, int32_t t)
{
    const struct kw_delete_records_request *in = fan->req->body;
    struct deletions *ds = KC_CONTAINER_OF(fan, struct deletions, fan);
    struct kw_delete_records_response_topic_result *out = &ds->resp.topics[t];
    out->name = in->topics[t].name;
    out->n_partitions = in->topics[t].n_partitions;
    out->partitions = kb_alloc(fan->req, (size_t)out->n_partitions, sizeof(*out->partitions));
    return out->partitions != NULL;
}

static void set(struct kb_item *item, int32_t t, int32_t i)
{
    const struct kw_delete_records_request *in = item->fan->req->body;
    struct deletions *ds = KC_CONTAINER_OF(item->fan, struct deletions, fan);
    struct deletion *d = KC_CONTAINER_OF(item, struct deletion, item);
    d->ask.offset = in->topics[t].partitions[i].offset;
    d->out = &ds->resp.topics[t].partitions[i];
    kb_item_set_named(item, in->topics[t].name, in->topics[t].partitions[i].partition_index);
    if (!item->error && ki_topic_by_id(item->fan->req->image, &item->topic_id)->internal) {
        item->error = KAFKA_INVALID_TOPIC_EXCEPTION;
    }
    atomic_init(&d->finished, item->error != KAFKA_NONE);
}

void kb_handle_delete_records(struct kb_req *req)
{
    static const struct kb_fan_api api = {sizeof(struct deletion), count, room, set, run, on_done};
    const struct kw_delete_records_request *in = req->body;
    struct deletions *ds = kb_alloc(req, 1, sizeof(*ds));
    if (!ds) {
        return;
    }
    kw_delete_records_response_init(&ds->resp);
    ds->resp.n_topics = in->n_topics;
    ds->resp.topics = kb_alloc(req, (size_t)in->n_topics, sizeof(*ds->resp.topics));
    if (!ds->resp.topics || !kb_fan_topics(&ds->fan, req, in->n_topics, &api)) {
        return;
    }
    if (in->timeout_ms > 0) {
        ds->timeout.fn = on_timeout;
        kd_timer_arm(kd_timers_here(req->app->data), &ds->timeout, kc_mono_ms() + in->timeout_ms);
    }
    kb_fan_start(&ds->fan);
}
