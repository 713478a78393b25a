/* 47 OffsetDelete: offsets of topics that the group does not read any more go (KIP-496). */
#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_group.h"
#include "handlers/kb_view.h"
#include "wire/kw_offset_delete.h"

struct offset_delete {
    struct kg_admin admin;
    struct kb_req *req;
};

static void on_done(struct kg_admin *a)
{
    struct kb_req *req = KC_CONTAINER_OF(a, struct offset_delete, admin)->req;
    const struct kw_offset_delete_request *body = req->body;
    struct kw_offset_delete_response resp;
    kw_offset_delete_response_init(&resp);
    resp.error_code = a->error;
    if (a->error) {
        kb_reply(req, &resp);
        return;
    }
    resp.topics = kb_alloc(req, (size_t)body->n_topics, sizeof(*resp.topics));
    if (!resp.topics) {
        return;
    }
    resp.n_topics = body->n_topics;
    for (int32_t i = 0, at = 0; i < body->n_topics; i++) {
        const struct kw_offset_delete_request_topic *t = &body->topics[i];
        struct kw_offset_delete_response_topic *out = &resp.topics[i];
        out->name = t->name;
        out->partitions = kb_alloc(req, (size_t)t->n_partitions, sizeof(*out->partitions));
        if (!out->partitions) {
            return;
        }
        out->n_partitions = t->n_partitions;
        for (int32_t p = 0; p < t->n_partitions; p++, at++) {
            out->partitions[p] = (struct kw_offset_delete_response_partition){
                t->partitions[p].partition_index, a->parts[at].error};
        }
    }
    kb_reply(req, &resp);
}

static void fill(struct kb_req *req, const struct kw_offset_delete_request_topic *t,
                 struct kg_commit_part *out)
{
    const struct ki_topic *topic = ki_topic_by_name(req->image, t->name);
    for (int32_t p = 0; p < t->n_partitions; p++) {
        int32_t index = t->partitions[p].partition_index;
        bool known = topic && index >= 0 && index < topic->n_parts;
        out[p] = (struct kg_commit_part){.topic = t->name, .partition = index};
        out[p].error = known ? KAFKA_NONE : KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
    }
}

static void run(struct kb_req *req)
{
    const struct kw_offset_delete_request *body = req->body;
    size_t n = 0;
    for (int32_t i = 0; i < body->n_topics; i++) {
        n += (size_t)body->topics[i].n_partitions;
    }
    struct offset_delete *d = kb_alloc(req, 1, sizeof(*d));
    struct kg_commit_part *parts = d ? kb_alloc(req, n, sizeof(*parts)) : NULL;
    if (!parts) {
        return;
    }
    for (int32_t i = 0, at = 0; i < body->n_topics; at += body->topics[i].n_partitions, i++) {
        fill(req, &body->topics[i], &parts[at]);
    }
    d->req = req;
    d->admin = (struct kg_admin){.n = (int32_t)n, .parts = parts, .done = on_done};
    kg_request_offset_delete(kg_shard_here(req->app->groups), body->group_id, &d->admin);
}

void kb_handle_offset_delete(struct kb_req *req)
{
    const struct kw_offset_delete_request *body = req->body;
    kb_group_run(req, body->group_id, run);
}
