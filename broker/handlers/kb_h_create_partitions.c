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

static bool result(struct kb_req *req, int32_t i, const struct kb_change *c, void *ret)
{
    const struct kw_create_partitions_request *in = req->body;
    struct kw_create_partitions_response_topic_result *out = ret;
    out->name = in->topics[i].name;
    out->error_code = c->error;
    out->error_message = kb_change_message(c);
    return true;
}

static void reply(struct kb_req *req, void *results, int32_t n)
{
    struct kw_create_partitions_response resp;
    kw_create_partitions_response_init(&resp);
    resp.results = results;
    resp.n_results = n;
    kb_reply(req, &resp);
}

void kb_handle_create_partitions(struct kb_req *req)
{
    static const struct kb_changes_api api = {
        .topic = topic_of,
        .prepare = prepare,
        .result_size = sizeof(struct kw_create_partitions_response_topic_result),
        .result = result,
        .reply = reply};
    const struct kw_create_partitions_request *in = req->body;
    kb_changes_run(req, in->n_topics, in->timeout_ms, &api);
}
