/* 1 Fetch: reads record batches; waits for more when there are too few.
 *
 * v4      isolation level: to read_committed nothing from the last stable offset on, and the aborted
 *         transactions that what is sent may hold data of. v5: log start offset. v7: sessions
 *         (KIP-227; kb_fetch_ask.c). v9: leader epochs.
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

/* As FetchResponse.of: a topic is named again when another one came in between. */
static struct kw_fetch_response_fetchable_topic_response *topic_for(struct kb_fetch *f,
                                                                    const struct kb_fetch_part *p)
{
    struct kw_fetch_response *resp = &f->resp;
    struct kw_fetch_response_fetchable_topic_response *t = &resp->responses[resp->n_responses];
    if (resp->n_responses == 0 || !kc_uuid_eq(&t[-1].topic_id, &p->topic_id) ||
        !kc_str_eq(t[-1].topic, p->topic)) {
        t->topic = p->topic;
        t->topic_id = p->topic_id;
        resp->n_responses++;
        return t;
    }
    return &t[-1];
}

static void fill_all(struct kb_fetch *f)
{
    int32_t n = 0;
    int64_t total = 0;
    for (int32_t i = 0; i < f->fan.n; i++) {
        struct kb_fetch_part *p = kb_fetch_part_at(f, i);
        struct kw_fetch_response_partition_data *out = &f->out[n];
        fill(f, p, &total, out);
        if (kb_fetch_is_news(f, p, out)) {
            struct kw_fetch_response_fetchable_topic_response *t = topic_for(f, p);
            t->partitions = t->n_partitions ? t->partitions : out;
            t->n_partitions++;
            n++;
        }
    }
    kb_count(&f->fan.req->app->metrics.fetched_bytes, (uint64_t)total);
}

static void answer(struct kb_fetch *f)
{
    struct kb_req *req = f->fan.req;
    if (kb_fetch_overtaken(f)) {
        f->resp.error_code = KAFKA_INVALID_FETCH_SESSION_EPOCH;
    } else {
        fill_all(f);
    }
    f->resp.session_id = kb_fetch_session_id(f, f->out);
    kb_send(req, &f->resp);
    give_back(f); /* sent: the connection counts it now */
    kb_fetch_end(f);
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

static bool make_room(struct kb_fetch *f)
{
    struct kb_req *req = f->fan.req;
    size_t n = (size_t)f->fan.n, nodes = (size_t)req->image->n_rows + 1;
    struct kw_fetch_response *resp = &f->resp;
    kw_fetch_response_init(resp);
    resp->responses = kb_alloc(req, n, sizeof(*resp->responses));
    f->out = resp->responses ? kb_alloc(req, n, sizeof(*f->out)) : NULL;
    resp->node_endpoints = f->out ? kb_alloc(req, nodes, sizeof(*resp->node_endpoints)) : NULL;
    if (!resp->node_endpoints) {
        kb_fetch_end(f);
        return false;
    }
    return true;
}

static void refuse(struct kb_req *req, int16_t error)
{
    struct kw_fetch_response resp;
    kw_fetch_response_init(&resp);
    resp.error_code = error;
    kb_reply(req, &resp);
}

void kb_handle_fetch(struct kb_req *req)
{
    const struct kw_fetch_request *in = req->body;
    struct kb_fetch *f = kb_alloc(req, 1, sizeof(*f));
    if (!f) {
        return;
    }
    f->fan.req = req;
    int16_t error = kb_fetch_begin(f);
    if (error) {
        refuse(req, error);
        return;
    }
    if (!kb_fetch_list(f) || !make_room(f)) {
        return;
    }
    f->max_bytes = KC_MIN((int64_t)KC_MAX(in->max_bytes, 0),
                          kb_broker_i64(req->app, req->image, "fetch.max.bytes"));
    f->min_bytes = KC_MIN((int64_t)in->min_bytes, f->max_bytes); /* as KafkaApis */
    f->deadline_ms = kc_mono_ms() + KC_MAX(in->max_wait_ms, 0);
    f->timer.fn = on_timer;
    begin_pass(f);
}
