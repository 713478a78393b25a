/* 20 DeleteTopics.
 *
 * v0-5    by name. v5: error messages. v6: by name or by id.
 * A deletion is forwarded and leaves a tombstone for ever (design.md, 2); the answer waits for the
 * image without the topic. Internal topics are not deleted, nor is what is given twice in the same way
 * (ControllerApis.deleteTopics). */
#include <stdlib.h>
#include <string.h>

#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_changes.h"
#include "handlers/kb_kafka_config.h"
#include "handlers/kb_view.h"
#include "wire/kw_delete_topics.h"
#include "wire/kw_errors.h"

static struct kw_delete_topics_request_delete_topic_state named(const struct kb_req *req, int32_t i)
{
    const struct kw_delete_topics_request *in = req->body;
    if (req->version >= 6) {
        return in->topics[i];
    }
    return (struct kw_delete_topics_request_delete_topic_state){.name = in->topic_names[i]};
}

/* The name, or the bytes of the id. */
static struct kc_str topic_of(const void *body, int32_t i)
{
    const struct kw_delete_topics_request *in = body;
    if (i < in->n_topic_names) {
        return in->topic_names[i];
    }
    const struct kw_delete_topics_request_delete_topic_state *t = &in->topics[i];
    return t->name.ptr ? t->name
                       : (struct kc_str){(const char *)t->topic_id.b, sizeof(t->topic_id.b)};
}

static bool prepare(struct kb_req *req, int32_t i, struct kb_change *c)
{
    struct kw_delete_topics_request_delete_topic_state t = named(req, i);
    bool by_id = !kc_uuid_is_zero(&t.topic_id);
    int16_t error;
    const struct ki_topic *topic = kb_topic(req, t.name, &t.topic_id, &error);
    c->topic_id = t.topic_id;
    /* A copy: the answer has another image than the one the name is in now. */
    c->change.topic = kb_text(req, topic ? kc_str_of(topic->name) : t.name);
    if (!c->change.topic) {
        return false;
    }
    if (by_id && t.name.ptr) {
        kb_refuse(c, KAFKA_INVALID_REQUEST, "A topic is named or given by id, not both.");
    } else if (!topic) {
        kb_refuse(c, error, "There is no such topic.");
    } else if (topic->internal) {
        kb_refuse(c, KAFKA_INVALID_REQUEST, "Internal topics are not deleted.");
    } else if (!kb_broker_bool(req->app, req->image, "delete.topic.enable")) {
        kb_refuse(c, KAFKA_TOPIC_DELETION_DISABLED, "delete.topic.enable is false.");
    }
    if (c->error) {
        return true;
    }
    c->change.kind = KB_DELETE_TOPIC;
    c->change.topic_id = topic->id;
    return true;
}

static int by_topic(const void *a, const void *b)
{
    const struct kb_change *x = *(struct kb_change *const *)a, *y = *(struct kb_change *const *)b;
    return memcmp(x->change.topic_id.b, y->change.topic_id.b, sizeof(x->change.topic_id.b));
}

/* A topic may come by its name and by its id: the id is taken. */
static bool check(struct kb_changes *all)
{
    struct kb_change **list = kb_alloc(all->req, (size_t)all->n, sizeof(struct kb_change *));
    size_t n = 0;
    if (!list) {
        return false;
    }
    for (int32_t i = 0; i < all->n; i++) {
        if (!all->items[i].error) {
            list[n++] = &all->items[i];
        }
    }
    qsort(list, n, sizeof(struct kb_change *), by_topic);
    for (size_t k = 1; k < n; k++) {
        if (by_topic(&list[k], &list[k - 1]) == 0) {
            bool named_one = kc_uuid_is_zero(&list[k]->topic_id);
            kb_refuse(list[named_one ? k : k - 1], KAFKA_INVALID_REQUEST,
                      "The topic is also given by its id.");
        }
    }
    return true;
}

static bool result(struct kb_req *req, int32_t i, const struct kb_change *c, void *ret)
{
    struct kw_delete_topics_request_delete_topic_state t = named(req, i);
    struct kw_delete_topics_response_deletable_topic_result *out = ret;
    kw_delete_topics_response_deletable_topic_result_init(out);
    out->error_code = c->error;
    if (req->version >= 6) {
        bool resolved = c->change.kind != 0;
        out->name = resolved ? kc_str_of(c->change.topic) : t.name;
        out->topic_id = resolved ? c->change.topic_id : t.topic_id;
    } else {
        out->name = t.name;
    }
    out->error_message = kb_change_message(c);
    return true;
}

static void reply(struct kb_req *req, void *results, int32_t n)
{
    struct kw_delete_topics_response resp;
    kw_delete_topics_response_init(&resp);
    resp.responses = results;
    resp.n_responses = n;
    kb_reply(req, &resp);
}

void kb_handle_delete_topics(struct kb_req *req)
{
    static const struct kb_changes_api api = {
        .topic = topic_of,
        .prepare = prepare,
        .check = check,
        .result_size = sizeof(struct kw_delete_topics_response_deletable_topic_result),
        .result = result,
        .reply = reply};
    const struct kw_delete_topics_request *in = req->body;
    kb_changes_run(req, req->version >= 6 ? in->n_topics : in->n_topic_names, in->timeout_ms, &api);
}
