/* 1 Fetch: reads record batches; waits for more when there are too few.
 *
 * v4      isolation level: to read_committed nothing from the last stable offset on, and the aborted
 *         transactions that what is sent may hold data of. v5: log start offset. v7: sessions (KIP-227), which are declined: the
 *         answer's session id is 0 and clients go on with full requests. v9: leader epochs.
 * v12     divergence by the last fetched epoch. v13: topics by id. v16: addresses of new leaders
 *         (KIP-951). v17-18: fields of replicas, which do not exist here.
 *
 * A pass reads every partition on its own loop, within one byte budget. If nothing failed and fewer
 * than min_bytes came, the request parks: a waiter on each partition, which asks the home loop for
 * another pass when an offset moves. Every pass takes the waiters off first, so none is left when
 * the answer is made. What a pass may read is reserved in the budget of the connections first; when
 * that is spent, by peers that do not read their answers, it reads nothing and tries again. KIP-74: the first partition with records gives at least one batch, whatever
 * the limits say. Reads need a fence check no older than a second (storage.md), so that a deposed
 * leader that was paused serves nothing stale. */
#include <limits.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_fan.h"
#include "handlers/kb_kafka_config.h"
#include "handlers/kb_view.h"
#include "wire/kw_errors.h"
#include "wire/kw_fetch.h"

enum {
    FENCE_AGE_MS = 1000, /* oldest check a read may rely on */
    STALE_RETRY_MS = 20, /* a newer check is on its way … */
    STALE_MAX_MS = 1000, /* … or the partition is not ours to speak for */
    COALESCE_MS = 5, /* between two passes of a request that wants many bytes */
    LOOK_MS = 1000 /* a parked request looks whether its connection is still there */
};

struct part {
    struct kb_item item;
    const struct kw_fetch_request_partition *in;
    int16_t unresolved; /* error of the name, before any pass */
    bool stale;
    int64_t high_watermark, last_stable, log_start;
    int32_t diverging_epoch;
    int64_t diverging_end;
    int32_t n_slices;
    struct kc_slice *slices; /* references; on the heap, as few partitions have any */
    int64_t bytes;
    int32_t n_aborted;
    struct kw_fetch_response_aborted_transaction *aborted; /* on the heap, too */
    struct kd_waiter waiter;
};

struct fetch {
    struct kb_fan fan;
    struct kw_fetch_response resp; /* its arrays are made before the first pass */
    int64_t max_bytes, min_bytes;
    int64_t room; /* of max_bytes, what the budget gave this pass; -1 = nothing now */
    int64_t deadline_ms, last_pass_ms;
    bool parked; /* all waiters are in place; only then another pass may begin */
    bool again; /* something moved meanwhile */
    bool leaving; /* the answer waits for wake_msg to come home */
    struct kd_timer timer;
    _Atomic int64_t used; /* bytes of this pass */
    _Atomic bool woken; /* wake_msg is on its way */
    struct rt_msg wake_msg;
};

static struct fetch *fetch_of(struct kb_item *item)
{
    return KC_CONTAINER_OF(item->fan, struct fetch, fan);
}

static struct part *part_at(struct fetch *f, int32_t i)
{
    return KC_CONTAINER_OF(kb_fan_item(&f->fan, i), struct part, item);
}

/* ---- a pass, on the partition's loop ---- */

/* What a consumer must know to leave out aborted data before `limit`. It is asked for before the read,
 * in the same turn as the file is chosen: a cleaning that takes the data away also takes the knowledge
 * of it. */
static bool note_aborted(struct part *p, const struct ks_log *log, int64_t limit)
{
    struct ks_aborted none;
    int32_t n = ks_log_aborted(log, p->in->fetch_offset, limit, &none, 0);
    if (n == 0) {
        return true;
    }
    struct ks_aborted *all = kc_try_alloc((size_t)n * sizeof(*all));
    p->aborted = all ? kc_try_alloc((size_t)n * sizeof(*p->aborted)) : NULL;
    if (p->aborted) {
        p->n_aborted = ks_log_aborted(log, p->in->fetch_offset, limit, all, n);
        for (int32_t i = 0; i < n; i++) {
            p->aborted[i] = (struct kw_fetch_response_aborted_transaction){
                .producer_id = all[i].producer_id, .first_offset = all[i].first_offset};
        }
    }
    kc_free(all);
    return p->aborted && p->n_aborted == n; /* an incomplete list would deliver aborted records */
}

/* Of those, the ones that began in what was read or before it. */
static void keep_aborted(struct part *p, int64_t next_offset)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_aborted; i++) {
        if (p->aborted[i].first_offset < next_offset) {
            p->aborted[n++] = p->aborted[i];
        }
    }
    p->n_aborted = n;
}

static void on_read(void *ctx, const struct ks_read_result *r)
{
    struct part *p = ctx;
    struct fetch *f = fetch_of(&p->item);
    p->item.error = r->error;
    keep_aborted(p, r->n_slices > 0 ? r->next_offset : p->in->fetch_offset);
    if (!r->error && r->n_slices > 0) {
        p->slices = kc_try_zalloc((size_t)r->n_slices, sizeof(*p->slices));
        for (int32_t i = 0; !p->slices && i < r->n_slices; i++) {
            p->item.error = KAFKA_KAFKA_STORAGE_ERROR;
            kc_buf_unref(r->slices[i].buf);
        }
    }
    if (p->slices) {
        memcpy(p->slices, r->slices, (size_t)r->n_slices * sizeof(*p->slices));
        p->n_slices = r->n_slices;
        for (int32_t i = 0; i < r->n_slices; i++) {
            p->bytes += (int64_t)r->slices[i].len;
        }
        atomic_fetch_add(&f->used, p->bytes);
    }
    kb_fan_done(&p->item);
}

static bool diverges(struct part *p, struct ks_log *log)
{
    if (p->in->last_fetched_epoch < 0) {
        return false;
    }
    int32_t epoch;
    int64_t end;
    ks_log_epoch_end(log, p->in->last_fetched_epoch, &epoch, &end);
    if (epoch < 0 || (epoch == p->in->last_fetched_epoch && end >= p->in->fetch_offset)) {
        return false;
    }
    p->diverging_epoch = epoch;
    p->diverging_end = end;
    return true;
}

/* Whether there is something to read at all; errors and offsets are set. */
static bool look(struct part *p, struct ks_log *log)
{
    p->item.error = kb_check_epoch(p->in->current_leader_epoch, log);
    if (p->item.error) {
        return false;
    }
    struct ks_offsets o = ks_log_offsets(log);
    if (p->in->fetch_offset < o.start || p->in->fetch_offset > o.end) {
        p->item.error = KAFKA_OFFSET_OUT_OF_RANGE;
        return false;
    }
    p->high_watermark = o.high_watermark;
    p->last_stable = o.last_stable;
    p->log_start = o.start;
    return !diverges(p, log);
}

static void read_part(struct kb_item *item)
{
    struct part *p = KC_CONTAINER_OF(item, struct part, item);
    struct fetch *f = fetch_of(item);
    struct kb_req *req = item->fan->req;
    const struct kw_fetch_request *in = req->body;
    kd_unwait(&p->waiter);
    p->stale = false;
    p->diverging_epoch = -1;
    struct kd_part *open = kb_item_part(item);
    if (!open && !item->error) {
        return;
    }
    if (!open || !look(p, kd_part_log(open))) {
        kb_fan_done(item);
        return;
    }
    if (ks_fence_age_ms(req->app->engine, kc_mono_ms()) > FENCE_AGE_MS) {
        p->stale = true;
        kb_fan_done(item);
        return;
    }
    int64_t limit = in->isolation_level == 1 ? p->last_stable : p->high_watermark;
    int64_t used = atomic_load(&f->used);
    int64_t room = KC_MIN((int64_t)p->in->partition_max_bytes, f->room - used);
    if (p->in->fetch_offset >= limit || (room <= 0 && used > 0) || f->room < 0) {
        kb_fan_done(item);
        return;
    }
    if (in->isolation_level == 1 && !note_aborted(p, kd_part_log(open), limit)) {
        item->error = KAFKA_KAFKA_STORAGE_ERROR;
        kb_fan_done(item);
        return;
    }
    struct ks_read_args args = {.offset = p->in->fetch_offset,
                                .limit_offset = limit,
                                .max_bytes = (int32_t)KC_MAX(room, (int64_t)0),
                                .at_least_one = used == 0};
    ks_log_read(kd_part_log(open), &args, on_read, p);
}

/* ---- parking, on the partition's loop ---- */

static void on_wake(struct rt_msg *msg);

static void wake(struct fetch *f)
{
    if (!atomic_exchange(&f->woken, true)) {
        f->wake_msg.fn = on_wake;
        rt_post(f->fan.req->home, &f->wake_msg);
    }
}

static void on_moved(struct kd_waiter *w, bool gone)
{
    (void)gone; /* either way the next pass finds out */
    struct part *p = KC_CONTAINER_OF(w, struct part, waiter);
    wake(fetch_of(&p->item));
}

static void park_part(struct kb_item *item)
{
    struct part *p = KC_CONTAINER_OF(item, struct part, item);
    struct kd_part *open = kd_find(item->fan->req->app->data, &item->topic_id, item->partition);
    struct ks_offsets o = open ? ks_log_offsets(kd_part_log(open)) : (struct ks_offsets){0};
    if (!open || o.high_watermark != p->high_watermark || o.last_stable != p->last_stable ||
        o.start != p->log_start) {
        wake(fetch_of(item)); /* moved between the pass and now */
    } else {
        p->waiter.fn = on_moved;
        kd_wait(open, &p->waiter);
    }
    kb_fan_done(item);
}

/* ---- the answer, on the home loop ---- */

static void drop_read(struct part *p)
{
    for (int32_t i = 0; i < p->n_slices; i++) {
        kc_buf_unref(p->slices[i].buf);
    }
    kc_free(p->slices);
    p->slices = NULL;
    p->n_slices = 0;
    p->bytes = 0;
    kc_free(p->aborted);
    p->aborted = NULL;
    p->n_aborted = 0;
}

static void give_back(struct fetch *f)
{
    kn_give_back(f->fan.req->app->net, f->room);
    f->room = 0;
}

static void hint(struct fetch *f, struct part *p, struct kw_fetch_response_partition_data *out)
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

static void fill(struct fetch *f, struct part *p, int64_t *total,
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
    /* Loops read at the same time: what both took past the limit is left for the next request. */
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

static void answer(struct fetch *f)
{
    struct kb_req *req = f->fan.req;
    int32_t at = 0;
    int64_t total = 0;
    for (int32_t t = 0; t < f->resp.n_responses; t++) {
        struct kw_fetch_response_fetchable_topic_response *out = &f->resp.responses[t];
        for (int32_t i = 0; i < out->n_partitions; i++) {
            fill(f, part_at(f, at++), &total, &out->partitions[i]);
        }
    }
    kb_count(&req->app->metrics.fetched_bytes, (uint64_t)total);
    kb_send(req, &f->resp);
    give_back(f); /* sent: the connection counts it now */
    for (int32_t i = 0; i < f->fan.n; i++) {
        drop_read(part_at(f, i));
    }
    kb_end(req);
}

/* ---- passes ---- */

static void on_pass(struct kb_fan *fan);
static void on_parked(struct kb_fan *fan);

static void begin_pass(struct fetch *f)
{
    f->parked = f->again = false;
    f->last_pass_ms = kc_mono_ms();
    kd_timer_disarm(kd_timers_here(f->fan.req->app->data), &f->timer);
    atomic_store(&f->used, 0);
    give_back(f);
    f->room = kn_reserve(f->fan.req->app->net, f->max_bytes);
    for (int32_t i = 0; i < f->fan.n; i++) {
        struct part *p = part_at(f, i);
        drop_read(p);
        p->item.error = p->unresolved;
    }
    f->fan.run = read_part;
    f->fan.done = on_pass;
    f->fan.serial = true; /* so that the byte budget is exact within a loop */
    kb_fan_start(&f->fan);
}

static void arm(struct fetch *f, int64_t due_ms)
{
    kd_timer_arm(kd_timers_here(f->fan.req->app->data), &f->timer, due_ms);
}

static void on_timer(struct kd_timer *t)
{
    struct fetch *f = KC_CONTAINER_OF(t, struct fetch, timer);
    int64_t now = kc_mono_ms();
    if (now < f->deadline_ms && !f->again && kn_conn_open(f->fan.req->conn)) {
        arm(f, KC_MIN(f->deadline_ms, now + LOOK_MS));
        return;
    }
    begin_pass(f);
}

/* A request that wants many bytes would otherwise make a pass an append. */
static void pass_soon(struct fetch *f)
{
    int64_t now = kc_mono_ms();
    if (f->min_bytes <= 1 || now - f->last_pass_ms >= COALESCE_MS) {
        begin_pass(f);
    } else {
        f->again = true;
        arm(f, f->last_pass_ms + COALESCE_MS);
    }
}

static void on_wake(struct rt_msg *msg)
{
    struct fetch *f = KC_CONTAINER_OF(msg, struct fetch, wake_msg);
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
    struct fetch *f = KC_CONTAINER_OF(fan, struct fetch, fan);
    f->parked = true;
    if (f->again) {
        pass_soon(f);
        return;
    }
    arm(f, KC_MIN(f->deadline_ms, kc_mono_ms() + LOOK_MS));
}

static void park(struct fetch *f, bool stale)
{
    for (int32_t i = 0; i < f->fan.n; i++) {
        drop_read(part_at(f, i));
    }
    bool poor = f->room < 0;
    give_back(f);
    if (stale || poor) {
        f->again = f->parked = true; /* nothing moves when the check, or the budget, comes back */
        arm(f, kc_mono_ms() + STALE_RETRY_MS);
        return;
    }
    f->fan.run = park_part;
    f->fan.done = on_parked;
    f->fan.serial = false;
    kb_fan_start(&f->fan);
}

static void on_pass(struct kb_fan *fan)
{
    struct fetch *f = KC_CONTAINER_OF(fan, struct fetch, fan);
    bool stale = false, settled = fan->n == 0;
    for (int32_t i = 0; i < fan->n; i++) {
        struct part *p = part_at(f, i);
        settled |= p->item.error != 0 || p->diverging_epoch >= 0;
        stale |= p->stale;
    }
    int64_t until =
        stale ? KC_MAX(f->deadline_ms, fan->req->arrived_ms + STALE_MAX_MS) : f->deadline_ms;
    if (settled || (!stale && atomic_load(&f->used) >= f->min_bytes) || kc_mono_ms() >= until ||
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

static bool make_room(struct fetch *f)
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

static void set_items(struct fetch *f, const struct kw_fetch_request *in)
{
    static const struct kc_uuid none;
    bool by_id = f->fan.req->version >= 13;
    int32_t at = 0;
    for (int32_t t = 0; t < in->n_topics; t++) {
        const struct kw_fetch_request_topic *topic = &in->topics[t];
        for (int32_t i = 0; i < topic->n_partitions; i++) {
            struct part *p = part_at(f, at++);
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
    struct fetch *f = kb_alloc(req, 1, sizeof(*f));
    if (!f || !kb_fan_init(&f->fan, req, count(in), sizeof(struct part)) || !make_room(f)) {
        return;
    }
    f->max_bytes = KC_MIN((int64_t)KC_MAX(in->max_bytes, 0),
                          kb_broker_i64(req->app, req->image, "fetch.max.bytes"));
    f->min_bytes = in->min_bytes;
    f->deadline_ms = kc_mono_ms() + KC_MAX(in->max_wait_ms, 0);
    f->timer.fn = on_timer;
    set_items(f, in);
    begin_pass(f);
}
