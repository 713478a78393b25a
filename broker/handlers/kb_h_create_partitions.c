/* 37 CreatePartitions: grows topics. All versions say the same; from v2 on compactly.
 *
 * `count` is the number of partitions afterwards. A manual assignment must have as many entries as
 * partitions are added, and is otherwise not used: placement is the operator's. */
#include <stdio.h>

#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_changes.h"
#include "wire/kw_create_partitions.h"
#include "wire/kw_errors.h"

static struct kc_str topic_of(const void *body, int32_t i)
{
    return ((const struct kw_create_partitions_request *)body)->topics[i].name;
}

static bool prepare(struct kb_req *req, int32_t i, struct kb_change *c)
{
    const struct kw_create_partitions_request *in = req->body;
    const struct kw_create_partitions_request_topic *t = &in->topics[i];
    const struct ki_topic *topic = ki_topic_by_name(req->image, t->name);
    c->change.topic = kb_text(req, t->name);
    char *why = c->change.topic ? kb_alloc(req, 1, 120) : NULL;
    if (!why) {
        return false;
    }
    if (!topic) {
        kb_refuse(c, KAFKA_UNKNOWN_TOPIC_OR_PARTITION, "There is no such topic.");
    } else if (topic->internal) {
        kb_refuse(c, KAFKA_INVALID_REQUEST, "Internal topics do not grow.");
    } else if (t->count <= topic->n_parts || t->count > KP_TOPIC_PARTS_MAX) {
        snprintf(why, 120, "The topic has %d partitions; it can grow, to at most %d.",
                 topic->n_parts, KP_TOPIC_PARTS_MAX);
        kb_refuse(c, KAFKA_INVALID_PARTITIONS, why);
    } else if (t->n_assignments >= 0 && t->n_assignments != t->count - topic->n_parts) {
        kb_refuse(c, KAFKA_INVALID_REPLICA_ASSIGNMENT,
                  "The assignment must have an entry for each added partition.");
    } else if (!in->validate_only) {
        c->change.kind = KB_CREATE_PARTITIONS;
        c->change.partitions = t->count;
    }
    return true;
}

static void answer(struct kb_changes *all)
{
    struct kb_req *req = all->req;
    const struct kw_create_partitions_request *in = req->body;
    struct kw_create_partitions_response resp;
    kw_create_partitions_response_init(&resp);
    resp.results = kb_alloc(req, (size_t)all->n, sizeof(*resp.results));
    if (!resp.results) {
        return;
    }
    resp.n_results = all->n;
    for (int32_t i = 0; i < all->n; i++) {
        const struct kb_change *c = &all->items[i];
        resp.results[i] = (struct kw_create_partitions_response_topic_result){
            .name = in->topics[i].name,
            .error_code = c->error,
            .error_message = kb_change_message(c)};
    }
    kb_reply(req, &resp);
}

void kb_handle_create_partitions(struct kb_req *req)
{
    static const struct kb_changes_api api = {topic_of, prepare, answer};
    const struct kw_create_partitions_request *in = req->body;
    kb_changes_run(req, in->n_topics, in->timeout_ms, &api);
}
