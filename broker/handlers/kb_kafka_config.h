/* kb_kafka_config.h - Kafka's config keys: what exists, what is valid, what is in force.
 *
 * The table is kb_configs.def. A topic's value is its override, else the broker key it falls back
 * to (cluster-wide configs of the image first, then this broker's file), else the default. Any
 * thread; nothing here is changed after start. */
#ifndef KB_KAFKA_CONFIG_H
#define KB_KAFKA_CONFIG_H

#include "image/ki_image.h"
#include "storage/ks_engine.h"

struct kb_app;

enum kb_config_scope { KB_TOPIC_CONFIG, KB_BROKER_CONFIG };
enum kb_config_type { /* numbers of DescribeConfigs (ConfigDef.Type) */
                      KB_BOOLEAN = 1,
                      KB_STRING = 2,
                      KB_INT = 3,
                      KB_LONG = 5,
                      KB_DOUBLE = 6,
                      KB_LIST = 7
};
enum kb_config_source { /* numbers of DescribeConfigs (ConfigSource) */
                        KB_SOURCE_TOPIC = 1,
                        KB_SOURCE_CLUSTER = 3, /* dynamic default broker config: the image's */
                        KB_SOURCE_BROKER = 4, /* static: this broker's file */
                        KB_SOURCE_DEFAULT = 5
};

struct kb_kafka_config {
    enum kb_config_scope scope;
    const char *name;
    enum kb_config_type type;
    const char *dflt; /* NULL = none */
    const char *fallback; /* broker key, or NULL */
    const char *hours_twin; /* the same broker key in hours, or NULL */
    const char *valid;
    const char *doc;
};

const struct kb_kafka_config *kb_kafka_config_find(enum kb_config_scope scope, struct kc_str name);
const struct kb_kafka_config *kb_kafka_configs(size_t *ret_n); /* the table; topics first */
/* Whether value fits; if not, why[] says what would. */
bool kb_kafka_config_check(const struct kb_kafka_config *def, struct kc_str value, char *why,
                           size_t cap);

struct kb_config_value {
    const char *value; /* NULL = none; borrows from topic, image, app, table or buf */
    enum kb_config_source source;
    const char *from; /* the key it was found under */
    char buf[24]; /* hours or minutes turned into ms */
};
/* What is in force for a key. topic NULL for broker keys. Fills *ret in place (it may point into
 * itself: do not copy). skip: how many of the answers to pass over, to list synonyms; false when
 * there are no more. */
bool kb_config_lookup(const struct kb_app *app, const struct ki_image *im,
                      const struct ki_topic *topic, const struct kb_kafka_config *def, int skip,
                      struct kb_config_value *ret);

/* The value in force, parsed; the default if there is none. Unknown names are programmer errors. */
int64_t kb_broker_i64(const struct kb_app *app, const struct ki_image *im, const char *name);
bool kb_broker_bool(const struct kb_app *app, const struct ki_image *im, const char *name);
int64_t kb_topic_i64(const struct kb_app *app, const struct ki_image *im,
                     const struct ki_topic *topic, const char *name);
/* All that the log of a partition needs to know. */
void kb_log_config(const struct kb_app *app, const struct ki_image *im,
                   const struct ki_topic *topic, struct ks_log_config *ret);
/* The configs of the log cleaner, with the image's cluster configs. */
void kb_cleaner_config(const struct kb_app *app, const struct ki_image *im,
                       struct ks_cleaner_config *ret);

#endif
