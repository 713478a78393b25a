/* kg_types.h - limits and settings of the group coordinator. */
#ifndef KG_TYPES_H
#define KG_TYPES_H

#include "base/kc_base.h"
#include "wire/kw_errors.h"

enum {
    KG_PENDING_MAX = 10000, /* ids of a group given out by error 79, not used yet */
    KG_GROUP_BYTES_MAX = 64 * 1024 * 1024, /* protocols and assignments of one group */
    KG_NEW_MEMBER_TIMEOUT_MS = 300000, /* a first JoinGroup may be parked that long */
    KG_PROTOCOLS_MAX = 256, /* of one member */
    KG_SLOT_GROUPS_MAX = 100000 /* groups of one slot */
};

/* Kafka's broker settings for groups, read once at start. */
struct kg_config {
    int32_t min_session_ms; /* group.min.session.timeout.ms */
    int32_t max_session_ms; /* group.max.session.timeout.ms */
    int32_t initial_delay_ms; /* group.initial.rebalance.delay.ms */
    int32_t max_size; /* group.max.size */
    int32_t metadata_max; /* offset.metadata.max.bytes */
    int64_t retention_ms; /* offsets.retention.minutes */
    int64_t retention_check_ms; /* offsets.retention.check.interval.ms */
};
#define KG_CONFIG_DEFAULTS                                                                         \
    {                                                                                              \
        .min_session_ms = 6000, .max_session_ms = 1800000, .initial_delay_ms = 3000,               \
        .max_size = INT32_MAX, .metadata_max = 4096, .retention_ms = 7 * 86400000LL,               \
        .retention_check_ms = 600000                                                               \
    }

#endif
