/* 1 Fetch: reads record batches; waits for more when there are too few.
 *
 * v4      isolation level: to read_committed nothing from the last stable offset on, and the aborted
 *         transactions that what is sent may hold data of. v5: log start offset. v7: sessions
 *         (KIP-227), which are declined: the answer's session id is 0 and clients go on with full
 *         requests. v9: leader epochs.
 * v12     divergence by the last fetched epoch. v13: topics by id. v16: addresses of new leaders
 *         (KIP-951). v17-18: fields of replicas, which do not exist here.
 *
 * A pass reads every partition on its own loop, within one byte budget (kb_fetch_room.c). If nothing
 * failed and fewer than min_bytes came, the request parks: a waiter on each partition, which asks the
 * home loop for another pass when an offset moves. Every pass takes the waiters off first, so none is
 * left when the answer is made. What a pass may read is reserved in the budget of the connections
 * first; when that is spent, by peers that do not read their answers, it reads nothing and tries again.
 * KIP-74: the first partition with records gives at least one batch, whatever the limits say.
 *
 * What happens on the partitions' loops is in kb_fetch_part.c. */
#include "base/kc_clock.h"
#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_fetch.h"
#include "handlers/kb_kafka_config.h"
#include "handlers/kb_view.h"
#include "wire/kw_errors.h"

enum {
    STALE_RETRY_MS = 20, /* a newer check is on its way … */
    STALE_MAX_MS = 1000, /* … or the partition is not ours to speak for */
    COALESCE_MS = 5, /* between two passes of a request that wants many bytes */
    LOOK_MS = 1000 /* a parked request looks whether its connection is still there */
};

/* ---- the answer, on the home loop ---- */

static void give_back(struct kb_fetch *f)
{
    kn_give_back(f->fan.req->app->net, f->room);
    f->room = 0;
}

static void hint(struct kb_fetch *f, struct kb_fetch_part *p,
                 struct kw_fetch_response_partition_data *out)
{
    struct kb_req *req = f->fan.req;
    struct kb_node n;
    int32_t id, epoch;
    if (req->version < 12 || !kb_item_leader(&p->item, &id, &epoch) || !kb_node(req, id, &n)) {
        return;
    }
    out->current_leader.leader_id = id;
    out->current_leader.leader_epoch = epoch;
    struct kw_fetch_response *resp = &f->resp;
    for (int32_t i = 0; i < resp->n_node_endpoints; i++) {
        if (resp->node_endpoints[i].node_id == id) {
            return;
        }
    }
    if (req->version >= 16 && resp->n_node_endpoints <= req->image->n_rows) {
        resp->node_endpoints[resp->n_node_endpoints++] =
            (struct kw_fetch_response_node_endpoint){n.id, n.host, n.port, n.rack};
    }
}

static void fill(struct kb_fetch *f, struct kb_fetch_part *p, int64_t *total,
                 struct kw_fetch_response_partition_data *out)
{
    const struct kw_fetch_request *in = f->fan.req->body;
    kw_fetch_response_partition_data_init(out);
    if (p->stale && !p->item.error) {
        p->item.error = KAFKA_NOT_LEADER_OR_FOLLOWER; /* no check came back: perhaps deposed */
    }
    out->partition_index = p->item.partition;
    out->error_code = p->item.error;
    out->high_watermark = -1;
    out->records = (struct kc_bytes){(const uint8_t *)"", 0}; /* empty, which all clients read */
    if (p->item.error) {
        kb_count(&f->fan.req->app->metrics.fetch_errors, 1);
        hint(f, p, out);
        return;
    }
    out->high_watermark = p->high_watermark;
    out->last_stable_offset = p->last_stable;
    out->log_start_offset = p->log_start;
    /* As Kafka: a list, maybe empty, where it was asked for, null otherwise. */
    out->n_aborted_transactions = in->isolation_level == 1 ? 0 : -1;
    if (p->diverging_epoch >= 0) {
        out->diverging_epoch.epoch = p->diverging_epoch;
        out->diverging_epoch.end_offset = p->diverging_end;
    }
    /* Too much is only what was read behind a first batch that is larger than its limit. */
    if (p->n_slices > 0 && (*total == 0 || *total + p->bytes <= f->room)) {
        out->records_slices = p->slices;
        out->n_records_slices = p->n_slices;
        if (p->n_aborted > 0) {
            out->aborted_transactions = p->aborted;
            out->n_aborted_transactions = p->n_aborted;
        }
        *total += p->bytes;
    }
}

static void answer(struct kb_fetch *f)
{
    struct kb_req *req = f->fan.req;
    int32_t at = 0;
    int64_t total = 0;
    for (int32_t t = 0; t < f->resp.n_responses; t++) {
        struct kw_fetch_response_fetchable_topic_response *out = &f->resp.responses[t];
        for (int32_t i = 0; i < out->n_partitions; i++) {
            fill(f, kb_fetch_part_at(f, at++), &total, &out->partitions[i]);
        }
    }
    kb_count(&req->app->metrics.fetched_bytes, (uint64_t)total);
    kb_send(req, &f->resp);
    give_back(f); /* sent: the connection counts it now */
    for (int32_t i = 0; i < f->fan.n; i++) {
        kb_fetch_drop_read(kb_fetch_part_at(f, i));
    }
    kb_end(req);
}

/* ---- passes ---- */

static void on_pass(struct kb_fan *fan);
static void on_parked(struct kb_fan *fan);

static void begin_pass(struct kb_fetch *f)
{
    f->parked = f->again = false;
    f->last_pass_ms = kc_mono_ms();
    kd_timer_disarm(kd_timers_here(f->fan.req->app->data), &f->timer);
    give_back(f);
    f->room = kn_reserve(f->fan.req->app->net, f->max_bytes);
    for (int32_t i = 0; i < f->fan.n; i++) {
        struct kb_fetch_part *p = kb_fetch_part_at(f, i);
        kb_fetch_drop_read(p);
        p->item.error = p->unresolved;
    }
    kb_fetch_share_out(f);
    f->fan.run = kb_fetch_read_part;
    f->fan.done = on_pass;
    f->fan.serial = true; /* parts of a loop that share what is left take from it in order */
    kb_fan_start(&f->fan);
}

static void arm(struct kb_fetch *f, int64_t due_ms)
{
    kd_timer_arm(kd_timers_here(f->fan.req->app->data), &f->timer, due_ms);
}

static void on_timer(struct kd_timer *t)
{
    struct kb_fetch *f = KC_CONTAINER_OF(t, struct kb_fetch, timer);
    int64_t now = kc_mono_ms();
    if (now < f->deadline_ms && !f->again && kn_conn_open(f->fan.req->conn)) {
        arm(f, KC_MIN(f->deadline_ms, now + LOOK_MS));
        return;
    }
    begin_pass(f);
}

/* A request that wants many bytes would otherwise make a pass an append. */
static void pass_soon(struct kb_fetch *f)
{
    int64_t now = kc_mono_ms();
    if (f->min_bytes <= 1 || now - f->last_pass_ms >= COALESCE_MS) {
        begin_pass(f);
    } else {
        f->again = true;
        arm(f, f->last_pass_ms + COALESCE_MS);
    }
}

void kb_fetch_on_wake(struct rt_msg *msg)
{
    struct kb_fetch *f = KC_CONTAINER_OF(msg, struct kb_fetch, wake_msg);
    atomic_store(&f->woken, false);
    if (f->leaving) {
        answer(f);
    } else if (f->parked && !f->again) {
        pass_soon(f);
    } else {
        f->again = true;
    }
}

static void on_parked(struct kb_fan *fan)
{
    struct kb_fetch *f = KC_CONTAINER_OF(fan, struct kb_fetch, fan);
    f->parked = true;
    if (f->again) {
        pass_soon(f);
        return;
    }
    arm(f, KC_MIN(f->deadline_ms, kc_mono_ms() + LOOK_MS));
}

static void park(struct kb_fetch *f, bool stale)
{
    for (int32_t i = 0; i < f->fan.n; i++) {
        kb_fetch_drop_read(kb_fetch_part_at(f, i));
    }
    bool poor = f->room < 0;
    give_back(f);
    if (stale || poor) {
        f->again = f->parked = true; /* nothing moves when the check, or the budget, comes back */
        arm(f, kc_mono_ms() + STALE_RETRY_MS);
        return;
    }
    for (int32_t i = 0; i < f->fan.n; i++) {
        kb_fetch_part_at(f, i)->item.left_out = false;
    }
    f->fan.run = kb_fetch_park_part;
    f->fan.done = on_parked;
    f->fan.serial = false;
    kb_fan_start(&f->fan);
}

static void on_pass(struct kb_fan *fan)
{
    struct kb_fetch *f = KC_CONTAINER_OF(fan, struct kb_fetch, fan);
    if (kb_fetch_share_rest(f)) {
        kb_fan_start(fan);
        return;
    }
    bool stale = false, settled = fan->n == 0 || kb_fetch_is_full(f);
    for (int32_t i = 0; i < fan->n; i++) {
        struct kb_fetch_part *p = kb_fetch_part_at(f, i);
        settled |= p->item.error != 0 || p->diverging_epoch >= 0;
        stale |= p->stale;
    }
    int64_t until =
        stale ? KC_MAX(f->deadline_ms, fan->req->arrived_ms + STALE_MAX_MS) : f->deadline_ms;
    if (settled || (!stale && f->used >= f->min_bytes) || kc_mono_ms() >= until ||
        !kn_conn_open(fan->req->conn)) {
        f->leaving = true;
        if (!atomic_load(&f->woken)) { /* else on_wake answers: the message is still on its way */
            answer(f);
        }
        return;
    }
    park(f, stale);
}

/* ---- the request ---- */

static int32_t count(const struct kw_fetch_request *in)
{
    int64_t n = 0;
    for (int32_t t = 0; t < in->n_topics; t++) {
        n += in->topics[t].n_partitions;
    }
    return (int32_t)n; /* bounded by the frame's size */
}

static bool make_room(struct kb_fetch *f)
{
    struct kb_req *req = f->fan.req;
    const struct kw_fetch_request *in = req->body;
    struct kw_fetch_response *resp = &f->resp;
    kw_fetch_response_init(resp);
    resp->responses = kb_alloc(req, (size_t)in->n_topics, sizeof(*resp->responses));
    if (!resp->responses) {
        return false;
    }
    resp->node_endpoints =
        kb_alloc(req, (size_t)req->image->n_rows + 1, sizeof(*resp->node_endpoints));
    for (int32_t t = 0; resp->node_endpoints && t < in->n_topics; t++) {
        struct kw_fetch_response_fetchable_topic_response *out = &resp->responses[t];
        out->topic = in->topics[t].topic;
        out->topic_id = in->topics[t].topic_id;
        out->partitions =
            kb_alloc(req, (size_t)in->topics[t].n_partitions, sizeof(*out->partitions));
        if (!out->partitions) {
            return false;
        }
        out->n_partitions = in->topics[t].n_partitions;
        resp->n_responses++;
    }
    return resp->node_endpoints != NULL;
}

static void set_items(struct kb_fetch *f, const struct kw_fetch_request *in)
{
    static const struct kc_uuid none;
    bool by_id = f->fan.req->version >= 13;
    int32_t at = 0;
    for (int32_t t = 0; t < in->n_topics; t++) {
        const struct kw_fetch_request_topic *topic = &in->topics[t];
        for (int32_t i = 0; i < topic->n_partitions; i++) {
            struct kb_fetch_part *p = kb_fetch_part_at(f, at++);
            p->in = &topic->partitions[i];
            p->diverging_epoch = -1;
            kb_item_set(&p->item, by_id ? KC_STR_NULL : topic->topic,
                        by_id ? &topic->topic_id : &none, p->in->partition);
            p->unresolved = p->item.error;
        }
    }
}

/* Sessions are declined, so no session can be continued. */
static int16_t session_error(const struct kw_fetch_request *in)
{
    if (in->session_id != 0) {
        return KAFKA_FETCH_SESSION_ID_NOT_FOUND;
    }
    return in->session_epoch > 0 ? KAFKA_INVALID_FETCH_SESSION_EPOCH : KAFKA_NONE;
}

void kb_handle_fetch(struct kb_req *req)
{
    const struct kw_fetch_request *in = req->body;
    int16_t error = session_error(in);
    if (error) {
        struct kw_fetch_response resp;
        kw_fetch_response_init(&resp);
        resp.error_code = error;
        kb_reply(req, &resp);
        return;
    }
    struct kb_fetch *f = kb_alloc(req, 1, sizeof(*f));
    if (!f || !kb_fan_init(&f->fan, req, count(in), sizeof(struct kb_fetch_part)) ||
        !make_room(f)) {
        return;
    }
    f->max_bytes = KC_MIN((int64_t)KC_MAX(in->max_bytes, 0),
                          kb_broker_i64(req->app, req->image, "fetch.max.bytes"));
    f->min_bytes = KC_MIN((int64_t)in->min_bytes, f->max_bytes); /* as KafkaApis */
    f->deadline_ms = kc_mono_ms() + KC_MAX(in->max_wait_ms, 0);
    f->timer.fn = on_timer;
    set_items(f, in);
    begin_pass(f);
}
