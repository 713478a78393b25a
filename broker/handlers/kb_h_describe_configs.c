/* 32 DescribeConfigs: topics and this broker.
 *
 * v0      says only whether a value is the default. v1: its source, and synonyms when asked for.
 * v3      type, and documentation when asked for.
 * Resources: 2 topic; 4 broker: this one by id, or "" for the cluster-wide configs; 8 broker loggers,
 * which have no configs here. Clients send a broker's resource to that broker. Everything of a broker
 * is read-only through the protocol: KaasCluster's spec.config is the place to change it. */
#include <stdio.h>
#include <string.h>

#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_context.h"
#include "handlers/kb_describe.h"
#include "handlers/kb_view.h"
#include "wire/kw_describe_configs.h"
#include "wire/kw_errors.h"

enum { TOPIC = 2, BROKER = 4, BROKER_LOGGER = 8, SYNONYMS_MAX = 6 };

int32_t kb_describe(struct kb_req *req, enum ki_key_scope scope, const struct ki_topic *topic,
                    struct kb_described **ret)
{
    size_t n;
    const struct ki_key *defs = ki_keys(&n);
    struct kb_described *list = kb_alloc(req, n, sizeof(*list));
    if (!list) {
        return -1;
    }
    int32_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (defs[i].scope != scope) {
            continue;
        }
        struct kb_described *d = &list[count++];
        d->def = &defs[i];
        if (!kb_config_lookup(req->app, req->image, topic, &defs[i], 0, &d->value)) {
            d->value.value = NULL;
            d->value.source = KB_SOURCE_DEFAULT;
        }
    }
    *ret = list;
    return count;
}

static bool wanted(const struct kw_describe_configs_request_resource *r, const char *name)
{
    for (int32_t i = 0; i < r->n_configuration_keys; i++) {
        if (kc_str_eqz(r->configuration_keys[i], name)) {
            return true;
        }
    }
    return r->n_configuration_keys < 0;
}

static bool fill_synonyms(struct kb_req *req, const struct ki_topic *topic,
                          const struct ki_key *def,
                          struct kw_describe_configs_response_resource_result *out)
{
    out->synonyms = kb_alloc(req, SYNONYMS_MAX, sizeof(*out->synonyms));
    struct kb_config_value *v = out->synonyms ? kb_alloc(req, SYNONYMS_MAX, sizeof(*v)) : NULL;
    if (!v) {
        return false;
    }
    for (int i = 0; i < SYNONYMS_MAX; i++) {
        if (!kb_config_lookup(req->app, req->image, topic, def, i, &v[i])) {
            break;
        }
        out->synonyms[out->n_synonyms++] = (struct kw_describe_configs_response_synonym){
            kc_str_of(v[i].from), kc_str_of(v[i].value), (int8_t)v[i].source};
    }
    return true;
}

static bool fill_configs(struct kb_req *req, const struct kw_describe_configs_request_resource *r,
                         enum ki_key_scope scope, const struct ki_topic *topic,
                         struct kw_describe_configs_response_result *out)
{
    const struct kw_describe_configs_request *in = req->body;
    struct kb_described *d;
    int32_t n = kb_describe(req, scope, topic, &d);
    out->configs = n < 0 ? NULL : kb_alloc(req, (size_t)n, sizeof(*out->configs));
    if (!out->configs) {
        return false;
    }
    bool cluster_wide = scope == KI_BROKER_KEY && r->resource_name.len == 0;
    for (int32_t i = 0; i < n; i++) {
        enum kb_config_source source = d[i].value.source;
        if (!wanted(r, d[i].def->name) || (cluster_wide && source != KB_SOURCE_CLUSTER)) {
            continue;
        }
        struct kw_describe_configs_response_resource_result *o = &out->configs[out->n_configs++];
        kw_describe_configs_response_resource_result_init(o);
        o->name = kc_str_of(d[i].def->name);
        o->value = kc_str_of(d[i].value.value);
        o->read_only = scope == KI_BROKER_KEY;
        if (req->version == 0) {
            o->is_default = source == KB_SOURCE_DEFAULT;
        } else {
            o->config_source = (int8_t)source;
        }
        if (req->version >= 3) {
            o->config_type = (int8_t)d[i].def->type;
            o->documentation = in->include_documentation ? kc_str_of(d[i].def->doc) : KC_STR_NULL;
        }
        if (req->version >= 1 && in->include_synonyms && !fill_synonyms(req, topic, d[i].def, o)) {
            return false;
        }
    }
    return true;
}

static bool fill_topic(struct kb_req *req, const struct kw_describe_configs_request_resource *r,
                       struct kw_describe_configs_response_result *out)
{
    const struct ki_topic *t = ki_topic_by_name(req->image, r->resource_name);
    if (!ki_topic_name_valid(r->resource_name)) {
        out->error_code = KAFKA_INVALID_TOPIC_EXCEPTION;
        out->error_message = KC_STR_LIT("The topic name is not valid.");
    } else if (!t) {
        out->error_code = KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
        out->error_message = KC_STR_LIT("There is no such topic.");
    } else {
        return fill_configs(req, r, KI_TOPIC_KEY, t, out);
    }
    return true;
}

static bool fill_broker(struct kb_req *req, const struct kw_describe_configs_request_resource *r,
                        struct kw_describe_configs_response_result *out)
{
    int32_t id;
    if (r->resource_name.len == 0 ||
        (kc_parse_i32(r->resource_name, &id) == 0 && id == req->app->self_id)) {
        return fill_configs(req, r, KI_BROKER_KEY, NULL, out);
    }
    out->error_code = KAFKA_INVALID_REQUEST;
    out->error_message = KC_STR_LIT("The name is not the id of the broker that was asked.");
    return true;
}

static bool fill(struct kb_req *req, const struct kw_describe_configs_request_resource *r,
                 struct kw_describe_configs_response_result *out)
{
    kw_describe_configs_response_result_init(out);
    out->error_message = KC_STR_NULL;
    out->resource_type = r->resource_type;
    out->resource_name = r->resource_name;
    switch (r->resource_type) {
    case TOPIC:
        return fill_topic(req, r, out);
    case BROKER:
        return fill_broker(req, r, out);
    case BROKER_LOGGER:
        return true;
    default:
        out->error_code = KAFKA_INVALID_REQUEST;
        out->error_message = KC_STR_LIT("Configs of that resource type are not served.");
        return true;
    }
}

void kb_handle_describe_configs(struct kb_req *req)
{
    const struct kw_describe_configs_request *in = req->body;
    struct kw_describe_configs_response resp;
    kw_describe_configs_response_init(&resp);
    resp.results = kb_alloc(req, (size_t)in->n_resources, sizeof(*resp.results));
    if (!resp.results) {
        return;
    }
    for (int32_t i = 0; i < in->n_resources; i++) {
        if (!fill(req, &in->resources[i], &resp.results[i])) {
            return;
        }
        resp.n_results++;
    }
    kb_reply(req, &resp);
}
