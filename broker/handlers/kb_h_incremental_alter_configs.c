/* 44 IncrementalAlterConfigs: sets, deletes, appends to and subtracts from topic configs (KIP-339).
 *
 * Keys are checked before topics, as in Kafka. The configs of brokers are the KaasCluster's: they are
 * refused with that hint. The answer waits for the image that shows the change. */
#include <string.h>

#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_changes.h"
#include "handlers/kb_kafka_config.h"
#include "wire/kw_errors.h"
#include "wire/kw_incremental_alter_configs.h"

enum { TOPIC = 2, TIMEOUT_MS = 30000 };
enum { OP_SET = 0, OP_DELETE = 1, OP_APPEND = 2, OP_SUBTRACT = 3 };

static bool lists(const char *list, struct kc_str item)
{
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",");
        if (n == (size_t)item.len && memcmp(p, item.ptr, n) == 0) {
            return true;
        }
        p += n + (p[n] == ',');
    }
    return false;
}

/* The list in force, with the item added or taken out; NULL when req was dropped. */
static const char *edit_list(struct kb_req *req, const char *have, struct kc_str item, bool append)
{
    char *out = kb_alloc(req, strlen(have) + (size_t)item.len + 2, 1);
    if (!out) {
        return NULL;
    }
    for (const char *p = have; *p;) {
        struct kc_str one = {p, (int32_t)strcspn(p, ",")};
        if (append || !kc_str_eq(one, item)) {
            size_t at = strlen(out);
            if (at) {
                out[at++] = ',';
            }
            memcpy(out + at, one.ptr, (size_t)one.len);
        }
        p += one.len + (p[one.len] == ',');
    }
    if (append && !lists(have, item)) {
        size_t at = strlen(out);
        if (at) {
            out[at++] = ',';
        }
        memcpy(out + at, item.ptr, (size_t)item.len);
    }
    return out;
}

/* One key of a topic; false when req was dropped. out->name stays NULL where nothing is to be done. */
static bool edit(struct kb_req *req, const struct ki_topic *topic,
                 const struct kw_incremental_alter_configs_request_alterable_config *in,
                 struct kb_admin_config *out, struct kb_change *c)
{
    const struct ki_key *def = ki_key_find(KI_TOPIC_KEY, in->name);
    int8_t op = in->config_operation;
    char *why = kb_alloc(req, 1, KI_WHY_MAX);
    if (!why) {
        return false;
    }
    if (!def && op == OP_DELETE) {
        return true; /* it is not set: Kafka has no objection either */
    }
    if (!def) {
        (void)ki_key_take(KI_TOPIC_KEY, in->name, in->value, why, KI_WHY_MAX);
        kb_refuse(c, KAFKA_INVALID_CONFIG, why);
        return true;
    }
    if (op >= OP_APPEND && def->type != KI_LIST) {
        kb_refuse(c, KAFKA_INVALID_CONFIG, "Only lists are appended to and subtracted from.");
        return true;
    }
    out->name = def->name;
    if (op == OP_DELETE || (op != OP_SET && !topic)) {
        return true;
    }
    if (op == OP_SET) {
        out->value = kb_text(req, in->value);
    } else {
        struct kb_config_value v;
        bool any = kb_config_lookup(req->app, req->image, topic, def, 0, &v);
        out->value = edit_list(req, any ? v.value : "", in->value, op == OP_APPEND);
    }
    if (!out->value) {
        return false;
    }
    if (!ki_key_take(KI_TOPIC_KEY, in->name, kc_str_of(out->value), why, KI_WHY_MAX)) {
        kb_refuse(c, KAFKA_INVALID_CONFIG, why);
    }
    return true;
}

/* What is wrong with a resource whatever its keys mean: as Kafka, before any key is looked at. */
static void judge_form(const struct kw_incremental_alter_configs_request_alter_configs_resource *r,
                       struct kb_change *c)
{
    for (int32_t k = 0; k < r->n_configs && !c->error; k++) {
        int8_t op = r->configs[k].config_operation;
        if (op < OP_SET || op > OP_SUBTRACT || (op != OP_DELETE && !r->configs[k].value.ptr)) {
            kb_refuse(c, KAFKA_INVALID_REQUEST, "There is no such operation, or it needs a value.");
        }
    }
}

static bool prepare(struct kb_req *req, int32_t i, struct kb_change *c)
{
    const struct kw_incremental_alter_configs_request *in = req->body;
    const struct kw_incremental_alter_configs_request_alter_configs_resource *r = &in->resources[i];
    if (r->resource_type != TOPIC) {
        kb_refuse(c, KAFKA_INVALID_REQUEST,
                  "Only topic configs are altered here; a broker's are in the KaasCluster's "
                  "spec.config.");
        return true;
    }
    const struct ki_topic *topic = ki_topic_by_name(req->image, r->resource_name);
    struct kb_admin_config *configs = kb_alloc(req, (size_t)r->n_configs, sizeof(*configs));
    c->change.topic = configs ? kb_text(req, r->resource_name) : NULL;
    if (!c->change.topic) {
        return false;
    }
    int32_t n = 0;
    judge_form(r, c);
    for (int32_t k = 0; k < r->n_configs && !c->error; k++) {
        if (!edit(req, topic, &r->configs[k], &configs[n], c)) {
            return false;
        }
        /* Only known keys get a name, each the definition's: the walk is as short as their list. */
        for (int32_t j = 0; j < n && configs[n].name && !c->error; j++) {
            if (configs[j].name == configs[n].name) {
                kb_refuse(c, KAFKA_INVALID_REQUEST, "A config is named twice.");
            }
        }
        n += configs[n].name != NULL;
    }
    if (!c->error && !topic) {
        kb_refuse(c, KAFKA_UNKNOWN_TOPIC_OR_PARTITION, "There is no such topic.");
    }
    c->change.configs = configs;
    c->change.n_configs = n;
    if (!in->validate_only && n > 0) {
        c->change.kind = KB_ALTER_TOPIC_CONFIG;
    }
    return true;
}

static bool result(struct kb_req *req, int32_t i, const struct kb_change *c, void *ret)
{
    const struct kw_incremental_alter_configs_request *in = req->body;
    struct kw_incremental_alter_configs_response_alter_configs_resource_response *out = ret;
    out->error_code = c->error;
    out->error_message = kb_change_message(c);
    out->resource_type = in->resources[i].resource_type;
    out->resource_name = in->resources[i].resource_name;
    return true;
}

static void reply(struct kb_req *req, void *results, int32_t n)
{
    struct kw_incremental_alter_configs_response resp;
    kw_incremental_alter_configs_response_init(&resp);
    resp.responses = results;
    resp.n_responses = n;
    kb_reply(req, &resp);
}

void kb_handle_incremental_alter_configs(struct kb_req *req)
{
    static const struct kb_changes_api api = {
        .topic = NULL, /* a topic may come again */
        .prepare = prepare,
        .result_size =
            sizeof(struct kw_incremental_alter_configs_response_alter_configs_resource_response),
        .result = result,
        .reply = reply};
    const struct kw_incremental_alter_configs_request *in = req->body;
    kb_changes_run(req, in->n_resources, TIMEOUT_MS, &api);
}
