/* kb_kafka_config.c - see kb_kafka_config.h. */
#include "handlers/kb_kafka_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_str.h"
#include "handlers/kb_context.h"

/* ---- what is in force ---- */

static const char *static_value(const struct kb_app *app, const char *name)
{
    for (int32_t i = 0; i < app->n_configs; i++) {
        if (strcmp(app->configs[i].name, name) == 0) {
            return app->configs[i].value;
        }
    }
    return NULL;
}

/* Gives the candidate unless it is absent or to be skipped. */
static bool give(const char *value, const char *from, enum kb_config_source source, int *skip,
                 struct kb_config_value *ret)
{
    if (!value || (*skip)-- > 0) {
        return false;
    }
    ret->value = value;
    ret->from = from;
    ret->source = source;
    return true;
}

static bool give_broker_key(const struct kb_app *app, const struct ki_image *im, const char *key,
                            int *skip, struct kb_config_value *ret)
{
    /* What was read at start stays in force until the next, whatever the image says by now. */
    const char *live = im && !ki_key_at_start(key) ? ki_config(im, key) : NULL;
    return give(live, key, KB_SOURCE_CLUSTER, skip, ret) ||
           give(static_value(app, key), key, KB_SOURCE_BROKER, skip, ret);
}

/* A broker key of another unit. */
static bool give_in_ms(const struct kb_app *app, const struct ki_image *im, const char *key,
                       int64_t unit_ms, int *skip, struct kb_config_value *ret)
{
    if (!give_broker_key(app, im, key, skip, ret)) {
        return false;
    }
    int64_t n = strtoll(ret->value, NULL, 10);
    snprintf(ret->buf, sizeof(ret->buf), "%lld", (long long)(n < 0 ? -1 : n * unit_ms));
    ret->value = ret->buf;
    return true;
}

bool kb_config_lookup(const struct kb_app *app, const struct ki_image *im,
                      const struct ki_topic *topic, const struct ki_key *def, int skip,
                      struct kb_config_value *ret)
{
    if (topic && give(ki_topic_config(topic, def->name), def->name, KB_SOURCE_TOPIC, &skip, ret)) {
        return true;
    }
    const char *key = def->scope == KI_BROKER_KEY ? def->name : def->fallback;
    if (key && give_broker_key(app, im, key, &skip, ret)) {
        return true;
    }
    if (def->hours_twin) {
        bool minutes = strcmp(def->hours_twin, "log.retention.hours") == 0;
        if ((minutes && give_in_ms(app, im, "log.retention.minutes", 60000, &skip, ret)) ||
            give_in_ms(app, im, def->hours_twin, 3600000, &skip, ret)) {
            return true;
        }
    }
    return give(def->dflt, key ? key : def->name, KB_SOURCE_DEFAULT, &skip, ret);
}

static int64_t number(const struct kb_app *app, const struct ki_image *im,
                      const struct ki_topic *topic, enum ki_key_scope scope, const char *name)
{
    const struct ki_key *def = ki_key_find(scope, kc_str_of(name));
    KC_ASSERT(def);
    struct kb_config_value v;
    int64_t n;
    if (kb_config_lookup(app, im, topic, def, 0, &v) && kc_parse_i64(kc_str_of(v.value), &n) == 0) {
        return n;
    }
    return def->dflt ? strtoll(def->dflt, NULL, 10) : -1;
}

int64_t kb_broker_i64(const struct kb_app *app, const struct ki_image *im, const char *name)
{
    return number(app, im, NULL, KI_BROKER_KEY, name);
}

int64_t kb_start_i64(const struct kb_app *app, const char *name)
{
    KC_ASSERT(ki_key_at_start(name)); /* else a change of it would roll nobody, and reach nobody */
    return number(app, NULL, NULL, KI_BROKER_KEY, name);
}

bool kb_broker_bool(const struct kb_app *app, const struct ki_image *im, const char *name)
{
    const struct ki_key *def = ki_key_find(KI_BROKER_KEY, kc_str_of(name));
    KC_ASSERT(def);
    struct kb_config_value v;
    return kb_config_lookup(app, im, NULL, def, 0, &v) && strcmp(v.value, "true") == 0;
}

int64_t kb_topic_i64(const struct kb_app *app, const struct ki_image *im,
                     const struct ki_topic *topic, const char *name)
{
    return number(app, im, topic, KI_TOPIC_KEY, name);
}

static double decimal(const struct kb_app *app, const struct ki_image *im,
                      const struct ki_topic *topic, enum ki_key_scope scope, const char *name)
{
    const struct ki_key *def = ki_key_find(scope, kc_str_of(name));
    KC_ASSERT(def);
    struct kb_config_value v;
    double d;
    if (kb_config_lookup(app, im, topic, def, 0, &v) &&
        kc_parse_double(kc_str_of(v.value), &d) == 0) {
        return d;
    }
    return strtod(def->dflt, NULL);
}

static bool topic_has(const struct kb_app *app, const struct ki_image *im,
                      const struct ki_topic *topic, const char *name, const char *word)
{
    const struct ki_key *def = ki_key_find(KI_TOPIC_KEY, kc_str_of(name));
    KC_ASSERT(def);
    struct kb_config_value v;
    return kb_config_lookup(app, im, topic, def, 0, &v) && strstr(v.value, word) != NULL;
}

void kb_log_config(const struct kb_app *app, const struct ki_image *im,
                   const struct ki_topic *topic, struct ks_log_config *ret)
{
    *ret = (struct ks_log_config){
        .segment_bytes = kb_topic_i64(app, im, topic, "segment.bytes"),
        .retention_ms = kb_topic_i64(app, im, topic, "retention.ms"),
        .retention_bytes = kb_topic_i64(app, im, topic, "retention.bytes"),
        .segment_ms = kb_topic_i64(app, im, topic, "segment.ms"),
        .max_message_bytes = (int32_t)kb_topic_i64(app, im, topic, "max.message.bytes"),
        .log_append_time = topic_has(app, im, topic, "message.timestamp.type", "LogAppendTime"),
        .compact = topic_has(app, im, topic, "cleanup.policy", "compact"),
        .compact_only = topic_has(app, im, topic, "cleanup.policy", "compact") &&
                        !topic_has(app, im, topic, "cleanup.policy", "delete"),
        .min_dirty_ratio = decimal(app, im, topic, KI_TOPIC_KEY, "min.cleanable.dirty.ratio"),
        .min_compaction_lag_ms = kb_topic_i64(app, im, topic, "min.compaction.lag.ms"),
        .max_compaction_lag_ms = kb_topic_i64(app, im, topic, "max.compaction.lag.ms"),
        .delete_retention_ms = kb_topic_i64(app, im, topic, "delete.retention.ms"),
        .timestamp_before_max_ms = kb_topic_i64(app, im, topic, "message.timestamp.before.max.ms"),
        .timestamp_after_max_ms = kb_topic_i64(app, im, topic, "message.timestamp.after.max.ms"),
        .flush_messages = kb_topic_i64(app, im, topic, "flush.messages"),
        .flush_ms = kb_topic_i64(app, im, topic, "flush.ms"),
        .segment_jitter_ms = kb_topic_i64(app, im, topic, "segment.jitter.ms"),
        .retention_check_ms = kb_broker_i64(app, im, "log.retention.check.interval.ms"),
    };
    if (ret->flush_ms == 0) {
        ret->flush_messages = 1; /* no record may wait for its sync */
    }
}

void kb_cleaner_config(const struct kb_app *app, const struct ki_image *im,
                       struct ks_cleaner_config *ret)
{
    double rate = decimal(app, im, NULL, KI_BROKER_KEY, "log.cleaner.io.max.bytes.per.second");
    *ret = (struct ks_cleaner_config){
        .enabled = kb_broker_bool(app, im, "log.cleaner.enable"),
        .backoff_ms = kb_broker_i64(app, im, "log.cleaner.backoff.ms"),
        .dedupe_bytes = kb_broker_i64(app, im, "log.cleaner.dedupe.buffer.size"),
        .io_bytes_per_s = rate < (double)INT64_MAX ? KC_MAX((int64_t)rate, (int64_t)1) : 0,
    };
}
