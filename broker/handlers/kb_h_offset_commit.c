/* 8 OffsetCommit: a member, or a simple consumer (generation -1), stores offsets; the answer follows
 * the ack of the append.
 *
 * v2-4 may ask for an expiry. v6 leader epochs. v7 static members. v10 topic ids instead of names. */
#include "base/kc_clock.h"
#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_group.h"
#include "handlers/kb_view.h"
#include "wire/kw_offset_commit.h"

struct commit {
    struct kg_commit c;
    struct kb_req *req;
};

static void on_done(struct kg_commit *c)
{
    struct kb_req *req = KC_CONTAINER_OF(c, struct commit, c)->req;
    const struct kw_offset_commit_request *body = req->body;
    struct kw_offset_commit_response resp;
    kw_offset_commit_response_init(&resp);
    resp.topics = kb_alloc(req, (size_t)body->n_topics, sizeof(*resp.topics));
    if (!resp.topics) {
        return;
    }
    resp.n_topics = body->n_topics;
    int32_t at = 0;
    for (int32_t i = 0; i < body->n_topics; i++) {
        const struct kw_offset_commit_request_topic *t = &body->topics[i];
        struct kw_offset_commit_response_topic *out = &resp.topics[i];
        out->name = t->name;
        out->topic_id = t->topic_id;
        out->partitions = kb_alloc(req, (size_t)t->n_partitions, sizeof(*out->partitions));
        if (!out->partitions) {
            return;
        }
        out->n_partitions = t->n_partitions;
        for (int32_t p = 0; p < t->n_partitions; p++, at++) {
            out->partitions[p] = (struct kw_offset_commit_response_partition){
                t->partitions[p].partition_index, c->parts[at].error};
        }
    }
    kb_reply(req, &resp);
}

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

static void run(struct kb_req *req)
{
    const struct kw_offset_commit_request *body = req->body;
    size_t n = 0;
    for (int32_t i = 0; i < body->n_topics; i++) {
        n += (size_t)body->topics[i].n_partitions;
    }
    struct commit *m = kb_alloc(req, 1, sizeof(*m));
    struct kg_commit_part *parts = m ? kb_alloc(req, n, sizeof(*parts)) : NULL;
    if (!parts) {
        return;
    }
    int64_t expire = body->retention_time_ms >= 0 ? kc_wall_ms() + body->retention_time_ms : -1;
    for (int32_t i = 0, at = 0; i < body->n_topics; at += body->topics[i].n_partitions, i++) {
        fill(req, &body->topics[i], &parts[at], expire);
    }
    m->req = req;
    m->c = (struct kg_commit){
        .who = {body->member_id, body->group_instance_id, body->generation_id_or_member_epoch},
        .n = (int32_t)n,
        .parts = parts,
        .done = on_done,
    };
    kg_request_commit(kg_shard_here(req->app->groups), body->group_id, &m->c);
}

void kb_handle_offset_commit(struct kb_req *req)
{
    const struct kw_offset_commit_request *body = req->body;
    kb_group_run(req, body->group_id, run);
}
