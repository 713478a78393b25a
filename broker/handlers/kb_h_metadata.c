/* 3 Metadata: brokers, topics, leaders.
 *
 * v0      an empty list means all topics; v1: null does, empty means none. v1: controller, rack,
 *         internal. v2: cluster id. v4: the client may forbid auto-creation. v5: offline replicas.
 * v7      leader epochs. v8: authorized operations. v10-12: topic ids. v13: top-level error.
 * Brokers are the visible ones (R30, R32). A partition whose leader is not visible answers
 * LEADER_NOT_AVAILABLE (W7). Topics that may be created by being asked for are created first: the
 * answer waits for the image that shows them, at most AUTO_CREATE_MS. */
#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_changes.h"
#include "handlers/kb_kafka_config.h"
#include "handlers/kb_view.h"
#include "wire/kw_errors.h"
#include "wire/kw_metadata.h"

enum { AUTO_CREATE_MS = 3000, AUTO_CREATE_MAX = 100 };

/* ---- the answer ---- */

static bool fill_partitions(struct kb_req *req, const struct ki_topic *t,
                            struct kw_metadata_response_topic *out)
{
    size_t n = (size_t)t->n_parts;
    out->partitions = kb_alloc(req, n, sizeof(*out->partitions));
    struct kb_replicas *replicas = out->partitions ? kb_alloc(req, n, sizeof(*replicas)) : NULL;
    if (!replicas) {
        return false;
    }
    out->n_partitions = t->n_parts;
    for (int32_t p = 0; p < t->n_parts; p++) {
        struct kw_metadata_response_partition *o = &out->partitions[p];
        struct kb_replicas *r = &replicas[p];
        struct kb_leader leader;
        kb_leader(req, t, p, &leader);
        kb_replicas(t, p, &leader, r);
        *o = (struct kw_metadata_response_partition){.error_code = leader.error,
                                                     .partition_index = p,
                                                     .leader_id = leader.id,
                                                     .leader_epoch = leader.epoch,
                                                     .replica_nodes = r->all,
                                                     .n_replica_nodes = r->n_all,
                                                     .isr_nodes = r->isr,
                                                     .n_isr_nodes = r->n_isr,
                                                     .offline_replicas = r->offline,
                                                     .n_offline_replicas = r->n_offline};
    }
    return true;
}

static bool fill_topic(struct kb_req *req, const struct ki_topic *t,
                       struct kw_metadata_response_topic *out)
{
    const struct kw_metadata_request *in = req->body;
    kw_metadata_response_topic_init(out);
    out->name = kc_str_of(t->name);
    out->topic_id = t->id;
    out->is_internal = t->internal;
    if (in->include_topic_authorized_operations) {
        out->topic_authorized_operations = KB_OPS_TOPIC;
    }
    return fill_partitions(req, t, out);
}

/* A topic by name or id; an unknown one gets the error in *out. */
static bool fill_asked(struct kb_req *req, const struct kw_metadata_request_topic *asked,
                       int16_t error_if_unknown, struct kw_metadata_response_topic *out)
{
    int16_t error;
    const struct ki_topic *t = kb_topic(req, asked->name, &asked->topic_id, &error);
    if (t) {
        return fill_topic(req, t, out);
    }
    kw_metadata_response_topic_init(out);
    bool by_id = !kc_uuid_is_zero(&asked->topic_id);
    out->topic_id = asked->topic_id;
    out->name = asked->name.ptr || req->version >= 12 ? asked->name : KC_STR_LIT("");
    if (by_id) {
        out->name = req->version >= 12 ? KC_STR_NULL : KC_STR_LIT("");
    } else if (!ki_topic_name_valid(asked->name)) {
        error = KAFKA_INVALID_TOPIC_EXCEPTION;
    } else if (error_if_unknown) {
        error = error_if_unknown;
    }
    out->error_code = error;
    return true;
}

/* What stands in the way of creating a topic, if the client should know; otherwise it may ask again,
 * as on Kafka's first answer to an unknown topic. */
static int16_t creation_error(const struct kb_changes *c, int32_t i)
{
    bool telling = c && (c->items[i].error == KAFKA_INVALID_TOPIC_EXCEPTION ||
                         c->items[i].error == KAFKA_POLICY_VIOLATION);
    return telling ? c->items[i].error : KAFKA_NONE;
}

static bool fill_all(struct kb_req *req, struct kw_metadata_response *resp)
{
    const struct ki_image *im = req->image;
    resp->topics = kb_alloc(req, (size_t)im->n_topics, sizeof(*resp->topics));
    for (int32_t s = 0; resp->topics && s < KP_SHARDS; s++) {
        const struct ki_shard *shard = im->shards[s];
        for (int32_t i = 0; shard && i < shard->n_topics; i++) {
            if (shard->topics[i].deleted || resp->n_topics == im->n_topics) {
                continue;
            }
            if (!fill_topic(req, &shard->topics[i], &resp->topics[resp->n_topics++])) {
                return false;
            }
        }
    }
    return resp->topics != NULL;
}

static bool fill_brokers(struct kb_req *req, struct kw_metadata_response *resp)
{
    struct kb_node *nodes;
    int32_t n = kb_nodes(req, false, &nodes);
    if (n < 0) {
        return false;
    }
    resp->brokers = kb_alloc(req, (size_t)n, sizeof(*resp->brokers));
    if (!resp->brokers) {
        return false;
    }
    resp->n_brokers = n;
    for (int32_t i = 0; i < n; i++) {
        resp->brokers[i] = (struct kw_metadata_response_broker){nodes[i].id, nodes[i].host,
                                                                nodes[i].port, nodes[i].rack};
    }
    return true;
}

static void answer(struct kb_req *req, const struct kb_changes *created)
{
    const struct kw_metadata_request *in = req->body;
    struct kw_metadata_response resp;
    kw_metadata_response_init(&resp);
    resp.cluster_id = kc_str_of(req->app->cluster_id);
    resp.controller_id = kb_controller(req);
    if (in->include_cluster_authorized_operations) {
        resp.cluster_authorized_operations = KB_OPS_CLUSTER;
    }
    if (!fill_brokers(req, &resp)) {
        return;
    }
    bool all = req->version == 0 ? in->n_topics == 0 : in->n_topics < 0;
    if (all) {
        if (!fill_all(req, &resp)) {
            return;
        }
        kb_reply(req, &resp);
        return;
    }
    resp.topics = kb_alloc(req, (size_t)in->n_topics, sizeof(*resp.topics));
    if (!resp.topics) {
        return;
    }
    for (int32_t i = 0; i < in->n_topics; i++) {
        if (!fill_asked(req, &in->topics[i], creation_error(created, i), &resp.topics[i])) {
            return;
        }
        resp.n_topics++;
    }
    kb_reply(req, &resp);
}

/* ---- auto-creation ---- */

static void on_created(struct kb_changes *c)
{
    answer(c->req, c);
}

static bool may_create(const struct kb_req *req, const struct kw_metadata_request_topic *t)
{
    int16_t error;
    return kc_uuid_is_zero(&t->topic_id) && !kb_topic(req, t->name, &t->topic_id, &error) &&
           ki_topic_name_valid(t->name) && ki_slot_kind(t->name) == KP_NOT_SLOTS;
}

/* One change a topic of the request, of which only the missing ones are submitted. */
static void create_missing(struct kb_req *req)
{
    const struct kw_metadata_request *in = req->body;
    struct kb_changes *c = kb_changes_new(req, in->n_topics);
    int32_t left = AUTO_CREATE_MAX;
    for (int32_t i = 0; c && i < in->n_topics && left > 0; i++) {
        if (!may_create(req, &in->topics[i])) {
            continue;
        }
        left--;
        c->items[i].change = (struct kb_admin_change){
            .kind = KB_CREATE_TOPIC,
            .topic = kb_text(req, in->topics[i].name),
            .partitions = (int32_t)kb_broker_i64(req->app, req->image, "num.partitions"),
            .replication_factor =
                (int32_t)kb_broker_i64(req->app, req->image, "default.replication.factor")};
        if (!c->items[i].change.topic) {
            return;
        }
    }
    if (c) {
        kb_changes_submit(c, AUTO_CREATE_MS, on_created);
    }
}

void kb_handle_metadata(struct kb_req *req)
{
    const struct kw_metadata_request *in = req->body;
    bool missing = false;
    if (in->n_topics > 0 && in->allow_auto_topic_creation &&
        kb_broker_bool(req->app, req->image, "auto.create.topics.enable")) {
        for (int32_t i = 0; i < in->n_topics && !missing; i++) {
            missing = may_create(req, &in->topics[i]);
        }
    }
    if (missing) {
        create_missing(req);
    } else {
        answer(req, NULL);
    }
}
