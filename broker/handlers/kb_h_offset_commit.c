/* 8 OffsetCommit: a member, or a simple consumer (generation -1), stores offsets; the answer follows
 * the ack of the append.
 *
 * v2-4 may ask for an expiry. v6 leader epochs. v7 static members. v10 topic ids instead of names. A
 * volume that does not answer within offsets.commit.timeout.ms is answered with
 * COORDINATOR_NOT_AVAILABLE, so that the connection, which carries heartbeats, too, goes on; the
 * commit may still happen, as in Kafka. */
#include "base/kc_clock.h"
#include "base/kc_str.h"
#include "data/kd_timer.h"
#include "handlers/kb_api.h"
#include "handlers/kb_group.h"
#include "handlers/kb_kafka_config.h"
#include "handlers/kb_view.h"
#include "wire/kw_offset_commit.h"

struct commit {
    struct kg_commit c;
    struct kb_req *req;
    struct kd_timer timeout; /* on the home loop */
    bool answered;
    struct kw_offset_commit_response resp; /* made before the start: an answer needs no memory */
};

/* ---- the answer, on the home loop ---- */

static bool make_response(struct kb_req *req, struct kw_offset_commit_response *resp)
{
    const struct kw_offset_commit_request *body = req->body;
    kw_offset_commit_response_init(resp);
    resp->topics = kb_alloc(req, (size_t)body->n_topics, sizeof(*resp->topics));
    if (!resp->topics) {
        return false;
    }
    resp->n_topics = body->n_topics;
    for (int32_t i = 0; i < body->n_topics; i++) {
        const struct kw_offset_commit_request_topic *t = &body->topics[i];
        struct kw_offset_commit_response_topic *out = &resp->topics[i];
        out->name = t->name;
        out->topic_id = t->topic_id;
        out->partitions = kb_alloc(req, (size_t)t->n_partitions, sizeof(*out->partitions));
        if (!out->partitions) {
            return false;
        }
        out->n_partitions = t->n_partitions;
        for (int32_t p = 0; p < t->n_partitions; p++) {
            out->partitions[p].partition_index = t->partitions[p].partition_index;
            out->partitions[p].error_code = KAFKA_COORDINATOR_NOT_AVAILABLE;
        }
    }
    return true;
}

static void on_timeout(struct kd_timer *t)
{
    struct commit *m = KC_CONTAINER_OF(t, struct commit, timeout);
    m->answered = true;
    kb_send(m->req, &m->resp); /* the parts belong to the slot's loop until it is done */
}

static void finish(struct kb_req *req)
{
    struct commit *m = req->user;
    kd_timer_disarm(kd_timers_here(req->app->data), &m->timeout);
    if (m->answered) {
        kb_end(req);
        return;
    }
    for (int32_t i = 0, at = 0; i < m->resp.n_topics; i++) {
        struct kw_offset_commit_response_topic *out = &m->resp.topics[i];
        for (int32_t p = 0; p < out->n_partitions; p++) {
            out->partitions[p].error_code = m->c.parts[at++].error;
        }
    }
    kb_reply(req, &m->resp);
}

/* ---- the commit, on the slot's loop ---- */

static void on_done(struct kg_commit *c)
{
    struct kb_req *req = KC_CONTAINER_OF(c, struct commit, c)->req;
    kb_run_on(req, req->home, finish);
}

static void run(struct kb_req *req)
{
    const struct kw_offset_commit_request *body = req->body;
    struct commit *m = req->user;
    kg_request_commit(kg_shard_here(req->app->groups), body->group_id, &m->c);
}

/* ---- the request ---- */

static void fill(struct kb_req *req, const struct kw_offset_commit_request_topic *t,
                 struct kg_commit_part *out, int64_t expire_wall_ms)
{
    int16_t error;
    const struct ki_topic *topic = kb_topic(req, t->name, &t->topic_id, &error);
    for (int32_t p = 0; p < t->n_partitions; p++) {
        const struct kw_offset_commit_request_partition *in = &t->partitions[p];
        bool known = topic && in->partition_index >= 0 && in->partition_index < topic->n_parts;
        out[p].partition = in->partition_index;
        if (!known) {
            out[p].error = error ? error : (int16_t)KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
            continue;
        }
        out[p].topic = kc_str_of(topic->name);
        out[p].v = (struct kg_offset_value){
            .offset = in->committed_offset,
            .leader_epoch = in->committed_leader_epoch,
            .metadata = kb_or_empty(in->committed_metadata),
            .expire_wall_ms = expire_wall_ms,
            .topic_id = topic->id,
        };
    }
}

static struct commit *make(struct kb_req *req)
{
    const struct kw_offset_commit_request *body = req->body;
    size_t n = 0;
    for (int32_t i = 0; i < body->n_topics; i++) {
        n += (size_t)body->topics[i].n_partitions;
    }
    struct commit *m = kb_alloc(req, 1, sizeof(*m));
    struct kg_commit_part *parts = m ? kb_alloc(req, n, sizeof(*parts)) : NULL;
    if (!parts || !make_response(req, &m->resp)) {
        return NULL;
    }
    int64_t expire = body->retention_time_ms >= 0 ? kc_wall_ms() + body->retention_time_ms : -1;
    for (int32_t i = 0, at = 0; i < body->n_topics; at += body->topics[i].n_partitions, i++) {
        fill(req, &body->topics[i], &parts[at], expire);
    }
    m->req = req;
    m->timeout.fn = on_timeout;
    m->c = (struct kg_commit){
        .who = {body->member_id, body->group_instance_id, body->generation_id_or_member_epoch},
        .n = (int32_t)n,
        .parts = parts,
        .done = on_done,
    };
    return m;
}

void kb_handle_offset_commit(struct kb_req *req)
{
    const struct kw_offset_commit_request *body = req->body;
    struct commit *m = make(req);
    if (!m) {
        return;
    }
    req->user = m;
    int64_t limit_ms = kb_broker_i64(req->app, req->image, "offsets.commit.timeout.ms");
    kd_timer_arm(kd_timers_here(req->app->data), &m->timeout, kc_mono_ms() + limit_ms);
    kb_group_run(req, body->group_id, run);
}
