/* kb_kafka_config.h - Kafka's config keys: what exists, what is valid, what is in force.
 *
 * The table is image/ki_keys.def. A topic's value is its override, else the broker key it falls back
 * to (cluster-wide configs of the image first, then this broker's file), else the default. Any
 * thread; nothing here is changed after start. */
#ifndef KB_KAFKA_CONFIG_H
#define KB_KAFKA_CONFIG_H

#include "image/ki_image.h"
#include "image/ki_keys.h"
#include "storage/ks_engine.h"

struct kb_app;

enum kb_config_source { /* numbers of DescribeConfigs (ConfigSource) */
                        KB_SOURCE_TOPIC = 1,
                        KB_SOURCE_CLUSTER = 3, /* dynamic default broker config: the image's */
                        KB_SOURCE_BROKER = 4, /* static: this broker's file */
                        KB_SOURCE_DEFAULT = 5
};

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
                      const struct ki_topic *topic, const struct ki_key *def, int skip,
                      struct kb_config_value *ret);

/* The value in force, parsed; the default if there is none. Unknown names are programmer errors. */
int64_t kb_broker_i64(const struct kb_app *app, const struct ki_image *im, const char *name);
/* Likewise of a key that is used from the start of the broker to its end (ki_key_at_start). */
int64_t kb_start_i64(const struct kb_app *app, const char *name);
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
