/* ki_keys.h - Kafka's config keys: what exists, what is valid, what is read at start only.
 *
 * The table is ki_keys.def. Values travel in the image (cluster-wide and of topics), so that a changed
 * one is in force without a restart; a broker's file holds only what it reads at its start. Any thread. */
#ifndef KI_KEYS_H
#define KI_KEYS_H

#include "base/kc_str.h"

enum ki_key_scope { KI_TOPIC_KEY, KI_BROKER_KEY };
enum ki_key_type { /* numbers of DescribeConfigs (ConfigDef.Type) */
                   KI_BOOLEAN = 1,
                   KI_STRING = 2,
                   KI_INT = 3,
                   KI_LONG = 5,
                   KI_DOUBLE = 6,
                   KI_LIST = 7
};
enum { KI_WHY_MAX = 256 };
struct ki_key {
    enum ki_key_scope scope;
    const char *name;
    enum ki_key_type type;
    const char *dflt; /* NULL = none */
    const char *fallback; /* broker key, or NULL */
    const char *hours_twin; /* the same broker key in hours, or NULL */
    const char *valid;
    const char *doc;
};

const struct ki_key *ki_key_find(enum ki_key_scope scope, struct kc_str name);
const struct ki_key *ki_keys(size_t *ret_n); /* the table; topics first */
/* Whether value fits; if not, why[] says what would. */
bool ki_key_check(const struct ki_key *def, struct kc_str value, char *why, size_t cap);
/* The definition of a key that may have this value. NULL if there is no such key or it may not, and why[]
 * (KI_WHY_MAX is enough) says so and names the key: in the same words to a client and in a KaasTopic's
 * status. */
const struct ki_key *ki_key_take(enum ki_key_scope scope, struct kc_str name, struct kc_str value,
                                 char *why, size_t cap);
/* A broker key that a broker reads once, at its start, from its file; all others are the image's. */
bool ki_key_at_start(const char *name);

#endif
