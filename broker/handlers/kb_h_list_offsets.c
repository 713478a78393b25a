/* 2 ListOffsets: offsets by timestamp or by a special value.
 *
 * v0      a list of at most max_num_offsets offsets; kaas gives the one that matters.
 * v1      one offset and its timestamp. v2: isolation level. v4: leader epochs.
 * Special timestamps: -1 end (the last stable offset if read_committed), -2 start, -3 (v7) the record
 * with the largest timestamp, -4 (v8) local start, which is the start, -5 (v9) and -6 (v11) tiered
 * offsets, of which there are none. Others below 0, or a special one at a version before it, are
 * UNSUPPORTED_VERSION, as in Kafka 4. */
#include "base/kc_clock.h"
#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_fan.h"
#include "wire/kw_errors.h"
#include "wire/kw_list_offsets.h"

enum {
    FENCE_AGE_MS = 1000, /* oldest check an answer may rely on */
    RETRY_MS = 20, /* a newer check is on its way … */
    RETRIES = 50 /* … or the partition is not ours to speak for */
};
enum {
    LATEST = -1,
    EARLIEST = -2,
    MAX_TIMESTAMP = -3,
    EARLIEST_LOCAL = -4,
    LATEST_TIERED = -5,
    EARLIEST_PENDING = -6
};

struct lookup {
    struct kb_item item;
    const struct kw_list_offsets_request_partition *in;
    struct kw_list_offsets_response_partition_response *out;
    int64_t offset, timestamp;
    int32_t epoch;
    int32_t tries;
    struct kd_timer retry;
};

struct list_offsets {
    struct kb_fan fan;
    struct kw_list_offsets_response resp;
};

static void on_found(void *ctx, int16_t error, int64_t offset, int64_t timestamp_ms,
                     int32_t leader_epoch)
{
    struct lookup *l = ctx;
    l->item.error = error;
    l->offset = offset;
    l->timestamp = timestamp_ms;
    l->epoch = offset < 0 ? -1 : leader_epoch;
    kb_fan_done(&l->item);
}

static bool version_has(int16_t version, int64_t timestamp)
{
    static const int16_t since[] = {[-MAX_TIMESTAMP] = 7,
                                    [-EARLIEST_LOCAL] = 8,
                                    [-LATEST_TIERED] = 9,
                                    [-EARLIEST_PENDING] = 11};
    return timestamp >= EARLIEST || (timestamp >= EARLIEST_PENDING && version >= since[-timestamp]);
}

static void on_retry(struct kd_timer *t);

/* True when the answer has to wait for a fence check. */
static bool stale(struct lookup *l)
{
    struct kb_app *app = l->item.fan->req->app;
    if (ks_fence_age_ms(app->engine, kc_mono_ms()) <= FENCE_AGE_MS) {
        return false;
    }
    if (l->tries++ == RETRIES) {
        l->item.error = KAFKA_NOT_LEADER_OR_FOLLOWER;
        return false;
    }
    l->retry.fn = on_retry;
    kd_timer_arm(kd_timers_here(app->data), &l->retry, kc_mono_ms() + RETRY_MS);
    return true;
}

static void run(struct kb_item *item)
{
    struct lookup *l = KC_CONTAINER_OF(item, struct lookup, item);
    struct kb_req *req = item->fan->req;
    const struct kw_list_offsets_request *in = req->body;
    struct kd_part *p = kb_item_part_or_end(item);
    if (!p) {
        return;
    }
    struct ks_log *log = kd_part_log(p);
    item->error = kb_check_epoch(l->in->current_leader_epoch, log);
    if (!item->error && stale(l)) {
        return;
    }
    struct ks_offsets o = ks_log_offsets(log);
    int64_t ts = l->in->timestamp;
    if (!item->error && (ts >= 0 || ts == MAX_TIMESTAMP)) {
        ks_log_lookup(log, ts == MAX_TIMESTAMP ? KS_TS_MAX : ts, on_found, l);
        return;
    }
    if (!item->error && ts != LATEST_TIERED && ts != EARLIEST_PENDING) {
        l->offset = ts != LATEST               ? o.start
                    : in->isolation_level == 1 ? o.last_stable
                                               : o.high_watermark;
        l->epoch = ts == LATEST ? ks_log_epoch(log) : ks_log_start_epoch(log);
    }
    kb_fan_done(item);
}

static void on_retry(struct kd_timer *t)
{
    struct lookup *l = KC_CONTAINER_OF(t, struct lookup, retry);
    run(&l->item);
}

static void fill(struct kb_req *req, struct lookup *l)
{
    struct kw_list_offsets_response_partition_response *out = l->out;
    kw_list_offsets_response_partition_response_init(out);
    out->partition_index = l->item.partition;
    out->error_code = l->item.error;
    if (l->item.error) {
        return;
    }
    if (req->version > 0) {
        out->offset = l->offset;
        out->timestamp = l->timestamp;
        out->leader_epoch = req->version >= 4 ? l->epoch : -1;
    } else if (l->offset >= 0 && l->in->max_num_offsets > 0) {
        out->old_style_offsets = &l->offset;
        out->n_old_style_offsets = 1;
    }
}

static void on_done(struct kb_fan *fan)
{
    struct list_offsets *lo = KC_CONTAINER_OF(fan, struct list_offsets, fan);
    for (int32_t i = 0; i < fan->n; i++) {
        fill(fan->req, KC_CONTAINER_OF(kb_fan_item(fan, i), struct lookup, item));
    }
    kb_reply(fan->req, &lo->resp);
}

static int32_t count(const void *body, int32_t t)
{
    return ((const struct kw_list_offsets_request *)body)->topics[t].n_partitions;
}

static bool room(struct kb_fan *fan, int32_t t)
{
    const struct kw_list_offsets_request *in = fan->req->body;
    struct list_offsets *lo = KC_CONTAINER_OF(fan, struct list_offsets, fan);
    struct kw_list_offsets_response_topic_response *out = &lo->resp.topics[t];
    out->name = in->topics[t].name;
    out->n_partitions = in->topics[t].n_partitions;
    out->partitions = kb_alloc(fan->req, (size_t)out->n_partitions, sizeof(*out->partitions));
    return out->partitions != NULL;
}

static void set(struct kb_item *item, int32_t t, int32_t i)
{
    const struct kb_req *req = item->fan->req;
    const struct kw_list_offsets_request *in = req->body;
    struct list_offsets *lo = KC_CONTAINER_OF(item->fan, struct list_offsets, fan);
    struct lookup *l = KC_CONTAINER_OF(item, struct lookup, item);
    l->in = &in->topics[t].partitions[i];
    l->out = &lo->resp.topics[t].partitions[i];
    l->offset = l->timestamp = l->epoch = -1;
    kb_item_set_named(item, in->topics[t].name, l->in->partition_index);
    if (!version_has(req->version, l->in->timestamp)) {
        item->error = KAFKA_UNSUPPORTED_VERSION;
    }
}

void kb_handle_list_offsets(struct kb_req *req)
{
    static const struct kb_fan_api api = {sizeof(struct lookup), count, room, set, run, on_done};
    const struct kw_list_offsets_request *in = req->body;
    struct list_offsets *lo = kb_alloc(req, 1, sizeof(*lo));
    if (!lo) {
        return;
    }
    kw_list_offsets_response_init(&lo->resp);
    lo->resp.n_topics = in->n_topics;
    lo->resp.topics = kb_alloc(req, (size_t)in->n_topics, sizeof(*lo->resp.topics));
    if (lo->resp.topics && kb_fan_topics(&lo->fan, req, in->n_topics, &api)) {
        kb_fan_start(&lo->fan);
    }
}
