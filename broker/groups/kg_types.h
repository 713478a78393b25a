/* kg_types.h - limits, settings and error codes of the group coordinator. */
#ifndef KG_TYPES_H
#define KG_TYPES_H

#include "base/kc_base.h"

/* Kafka's error codes that the coordinator answers with. */
enum {
    KAFKA_UNKNOWN_SERVER_ERROR = -1,
    KAFKA_OFFSET_OUT_OF_RANGE = 1,
    KAFKA_UNKNOWN_TOPIC_OR_PARTITION = 3,
    KAFKA_MESSAGE_TOO_LARGE = 10,
    KAFKA_OFFSET_METADATA_TOO_LARGE = 12,
    KAFKA_COORDINATOR_LOAD_IN_PROGRESS = 14,
    KAFKA_COORDINATOR_NOT_AVAILABLE = 15,
    KAFKA_NOT_COORDINATOR = 16,
    KAFKA_RECORD_LIST_TOO_LARGE = 18,
    KAFKA_ILLEGAL_GENERATION = 22,
    KAFKA_INCONSISTENT_GROUP_PROTOCOL = 23,
    KAFKA_INVALID_GROUP_ID = 24,
    KAFKA_UNKNOWN_MEMBER_ID = 25,
    KAFKA_INVALID_SESSION_TIMEOUT = 26,
    KAFKA_REBALANCE_IN_PROGRESS = 27,
    KAFKA_INVALID_COMMIT_OFFSET_SIZE = 28,
    KAFKA_UNSUPPORTED_VERSION = 35,
    KAFKA_INVALID_REQUEST = 42,
    KAFKA_NON_EMPTY_GROUP = 68,
    KAFKA_GROUP_ID_NOT_FOUND = 69,
    KAFKA_MEMBER_ID_REQUIRED = 79,
    KAFKA_GROUP_MAX_SIZE_REACHED = 81,
    KAFKA_FENCED_INSTANCE_ID = 82,
    KAFKA_GROUP_SUBSCRIBED_TO_TOPIC = 86,
    KAFKA_UNSTABLE_OFFSET_COMMIT = 88,
    KAFKA_UNKNOWN_TOPIC_ID = 100
};

enum {
    KG_PENDING_MAX = 10000,                /* ids of a group given out by error 79, not used yet */
    KG_GROUP_BYTES_MAX = 64 * 1024 * 1024, /* protocols and assignments of one group */
    KG_NEW_MEMBER_TIMEOUT_MS = 300000      /* a first JoinGroup may be parked that long */
};

/* Kafka's broker settings for groups, read once at start. */
struct kg_config {
    int32_t min_session_ms;       /* group.min.session.timeout.ms */
    int32_t max_session_ms;       /* group.max.session.timeout.ms */
    int32_t initial_delay_ms;     /* group.initial.rebalance.delay.ms */
    int32_t max_size;             /* group.max.size */
    int32_t metadata_max;         /* offset.metadata.max.bytes */
    int64_t retention_ms;         /* offsets.retention.minutes */
    int64_t retention_check_ms;   /* offsets.retention.check.interval.ms */
};
#define KG_CONFIG_DEFAULTS                                                                         \
    {                                                                                              \
        .min_session_ms = 6000, .max_session_ms = 1800000, .initial_delay_ms = 3000,               \
        .max_size = INT32_MAX, .metadata_max = 4096, .retention_ms = 7 * 86400000LL,               \
        .retention_check_ms = 600000                                                               \
    }

#endif
