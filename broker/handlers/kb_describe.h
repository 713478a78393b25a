/* kb_describe.h - configs in force, as DescribeConfigs and CreateTopics list them. */
#ifndef KB_DESCRIBE_H
#define KB_DESCRIBE_H

#include "app/kb_req.h"
#include "handlers/kb_kafka_config.h"

struct kb_described {
    const struct ki_key *def;
    struct kb_config_value value; /* value.value NULL = none */
};

/* All configs of a scope with what is in force; topic NULL for brokers. In the request's arena.
 * Returns the count, -1 when req was dropped. */
int32_t kb_describe(struct kb_req *req, enum ki_key_scope scope, const struct ki_topic *topic,
                    struct kb_described **ret);

#endif
