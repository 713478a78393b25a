/* 19 CreateTopics.
 *
 * v0      no validation only; v1 brings it and error messages. v4: -1 asks for the default partition
 *         count and replication factor. v5: the answer has partitions, factor and configs. v7: ids.
 * Checked here as Kafka's controller does, then forwarded one by one; the answer waits until this
 * broker's image shows the topics (any broker takes the request, never NOT_CONTROLLER). Replication is
 * the storage's: a factor is kept and shown, and may not exceed the registered brokers; of a manual
 * assignment only the partition count is used. */
#include <stdlib.h>
#include <string.h>

#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_changes.h"
#include "handlers/kb_describe.h"
#include "handlers/kb_kafka_config.h"
#include "handlers/kb_view.h"
#include "wire/kw_create_topics.h"
#include "wire/kw_errors.h"

/* ---- checks ---- */

static bool collides(const struct ki_image *im, struct kc_str name)
{
    for (int32_t s = 0; s < KP_SHARDS; s++) {
        const struct ki_shard *shard = im->shards[s];
        for (int32_t i = 0; shard && i < shard->n_topics; i++) {
            const struct ki_topic *other = &shard->topics[i];
            if (!other->deleted && ki_topic_names_collide(name, kc_str_of(other->name))) {
                return true;
            }
        }
    }
    return false;
}

static void check_name(const struct kb_req *req,
                       const struct kw_create_topics_request_creatable_topic *t,
                       struct kb_change *c)
{
    if (!ki_topic_name_valid(t->name)) {
        kb_refuse(c, KAFKA_INVALID_TOPIC_EXCEPTION,
                  "A topic name is 1 to 249 of [a-zA-Z0-9._-], and neither . nor ..");
    } else if (ki_topic_by_name(req->image, t->name)) {
        kb_refuse(c, KAFKA_TOPIC_ALREADY_EXISTS, "The topic exists already.");
    } else if (collides(req->image, t->name)) {
        kb_refuse(c, KAFKA_INVALID_TOPIC_EXCEPTION,
                  "The name differs from an existing topic's only in . and _");
    }
}

/* false when req was dropped. */
static bool check_assignments(struct kb_req *req,
                              const struct kw_create_topics_request_creatable_topic *t,
                              struct kb_change *c)
{
    int32_t n = t->n_assignments;
    if (t->num_partitions != -1 || t->replication_factor != -1) {
        kb_refuse(c, KAFKA_INVALID_REQUEST, "With a manual assignment the counts must both be -1.");
        return true;
    }
    if (n > KP_TOPIC_PARTS_MAX) {
        kb_refuse(c, KAFKA_INVALID_PARTITIONS, "The number of partitions must be 1 to 20000.");
        return true;
    }
    bool *seen = kb_alloc(req, (size_t)n, sizeof(*seen));
    if (!seen) {
        return false;
    }
    for (int32_t i = 0; i < n && !c->error; i++) { /* n different indexes below n: all of them */
        int32_t index = t->assignments[i].partition_index;
        bool fits = index >= 0 && index < n && !seen[index] && t->assignments[i].n_broker_ids > 0;
        for (int32_t k = 0; fits && k < t->assignments[i].n_broker_ids; k++) {
            fits = ki_row(req->image, t->assignments[i].broker_ids[k]) != NULL;
        }
        if (fits) {
            seen[index] = true;
        } else {
            kb_refuse(c, KAFKA_INVALID_REPLICA_ASSIGNMENT,
                      "Partitions must count up from 0 and name registered brokers.");
        }
    }
    c->change.partitions = n;
    c->change.replication_factor = t->assignments[0].n_broker_ids;
    return true;
}

static void check_counts(const struct kb_req *req,
                         const struct kw_create_topics_request_creatable_topic *t,
                         struct kb_change *c)
{
    int32_t registered = KC_MAX(req->image->n_rows, 1);
    c->change.partitions = t->num_partitions != -1
                               ? t->num_partitions
                               : (int32_t)kb_broker_i64(req->app, req->image, "num.partitions");
    c->change.replication_factor =
        t->replication_factor != -1
            ? t->replication_factor
            : (int32_t)kb_broker_i64(req->app, req->image, "default.replication.factor");
    if (c->change.partitions < 1 || c->change.partitions > KP_TOPIC_PARTS_MAX) {
        kb_refuse(c, KAFKA_INVALID_PARTITIONS, "The number of partitions must be 1 to 20000.");
    } else if (c->change.replication_factor < 1 || c->change.replication_factor > registered) {
        kb_refuse(c, KAFKA_INVALID_REPLICATION_FACTOR,
                  "The replication factor must be 1 to the number of registered brokers.");
    }
}

/* false when req was dropped. */
static bool check_configs(struct kb_req *req,
                          const struct kw_create_topics_request_creatable_topic *t,
                          struct kb_change *c)
{
    struct kb_admin_config *configs = kb_alloc(req, (size_t)t->n_configs, sizeof(*configs));
    if (!configs) {
        return false;
    }
    for (int32_t i = 0; i < t->n_configs && !c->error; i++) {
        char *why = kb_alloc(req, 1, KI_WHY_MAX);
        if (!why) {
            return false;
        }
        const struct ki_key *def =
            ki_key_take(KI_TOPIC_KEY, t->configs[i].name, t->configs[i].value, why, KI_WHY_MAX);
        if (!def) {
            kb_refuse(c, KAFKA_INVALID_CONFIG, why);
        } else {
            configs[i].name = def->name;
            configs[i].value = kb_text(req, t->configs[i].value);
            if (!configs[i].value) {
                return false;
            }
        }
    }
    c->change.configs = configs;
    c->change.n_configs = t->n_configs;
    return true;
}

static struct kc_str topic_of(const void *body, int32_t i)
{
    return ((const struct kw_create_topics_request *)body)->topics[i].name;
}

static bool prepare(struct kb_req *req, int32_t i, struct kb_change *c)
{
    const struct kw_create_topics_request *in = req->body;
    const struct kw_create_topics_request_creatable_topic *t = &in->topics[i];
    c->change.topic = kb_text(req, t->name);
    if (!c->change.topic) {
        return false;
    }
    check_name(req, t, c);
    if (!c->error && t->n_assignments > 0) {
        if (!check_assignments(req, t, c)) {
            return false;
        }
    } else if (!c->error) {
        check_counts(req, t, c);
    }
    if (!c->error && !check_configs(req, t, c)) {
        return false;
    }
    c->change.kind = in->validate_only ? (enum kb_admin_kind)0 : KB_CREATE_TOPIC;
    return true;
}

/* ---- the answer ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ki_config *)a)->name, ((const struct ki_config *)b)->name);
}

/* The configs in force, from the request's overrides: also right when nothing was created. */
static bool fill_configs(struct kb_req *req, const struct kb_change *c,
                         struct kw_create_topics_response_creatable_topic_result *out)
{
    struct ki_config *own = kb_alloc(req, (size_t)c->change.n_configs, sizeof(*own));
    if (!own) {
        return false;
    }
    for (int32_t i = 0; i < c->change.n_configs; i++) {
        own[i] = (struct ki_config){c->change.configs[i].name, c->change.configs[i].value};
    }
    qsort(own, (size_t)c->change.n_configs, sizeof(*own), by_name);
    struct ki_topic t = {.name = c->change.topic, .configs = own, .n_configs = c->change.n_configs};
    struct kb_described *d;
    int32_t n = kb_describe(req, KI_TOPIC_KEY, &t, &d);
    out->configs = n < 0 ? NULL : kb_alloc(req, (size_t)n, sizeof(*out->configs));
    if (!out->configs) {
        return false;
    }
    for (int32_t i = 0; i < n; i++) {
        out->configs[i] = (struct kw_create_topics_response_creatable_topic_configs){
            .name = kc_str_of(d[i].def->name),
            .value = kc_str_of(d[i].value.value),
            .config_source = (int8_t)d[i].value.source};
    }
    out->n_configs = n;
    return true;
}

static bool result(struct kb_req *req, int32_t i, const struct kb_change *c, void *ret)
{
    const struct kw_create_topics_request *in = req->body;
    struct kw_create_topics_response_creatable_topic_result *out = ret;
    kw_create_topics_response_creatable_topic_result_init(out);
    out->name = in->topics[i].name;
    out->error_code = c->error;
    out->error_message = kb_change_message(c);
    if (c->error) {
        return true;
    }
    out->topic_id = c->topic_id;
    out->num_partitions = c->change.partitions;
    out->replication_factor = (int16_t)c->change.replication_factor;
    return req->version < 5 || fill_configs(req, c, out);
}

static void reply(struct kb_req *req, void *results, int32_t n)
{
    struct kw_create_topics_response resp;
    kw_create_topics_response_init(&resp);
    resp.topics = results;
    resp.n_topics = n;
    kb_reply(req, &resp);
}

void kb_handle_create_topics(struct kb_req *req)
{
    static const struct kb_changes_api api = {
        .topic = topic_of,
        .prepare = prepare,
        .result_size = sizeof(struct kw_create_topics_response_creatable_topic_result),
        .result = result,
        .reply = reply};
    const struct kw_create_topics_request *in = req->body;
    kb_changes_run(req, in->n_topics, in->timeout_ms, &api);
}
