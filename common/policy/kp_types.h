/* kp_types.h - the nouns of the control plane: brokers, partitions, moves, orders.
 *
 * Plain data, shared by the decisions (common/policy), the image document (common/image), the
 * operator and the brokers. */
#ifndef KP_TYPES_H
#define KP_TYPES_H

#include "base/kc_base.h"
#include "base/kc_uuid.h"

enum {
    KP_BROKERS_MAX = 128,
    KP_LISTENERS_MAX = 8,
    KP_NAME_MAX = 249, /* a topic name, as in Kafka */
    KP_HOST_MAX = 253, /* a DNS name */
    KP_SHARDS = 16, /* shards of the image; topic id -> shard */
    KP_TOPIC_PARTS_MAX = 20000, /* partitions of one topic */
    KP_SLOTS = 50, /* partitions of __consumer_offsets and of __transaction_state */
    KP_NO_BROKER = -1
};

/* What the partitions of a topic are: those of the internal topics are slots of coordinators. */
enum { KP_NOT_SLOTS = 0, KP_GROUP_SLOTS = 1, KP_TXN_SLOTS = 2 };

/* One broker's health, as the alive set sees it (R11). alive = KP_ALIVE. */
enum kp_health { KP_DEAD, KP_ALIVE, KP_DRAINING };

/* What users and clients see (R1); a broker without a row is gone. */
enum kp_state { KP_FENCED, KP_SERVING, KP_STATE_DRAINING };

/* Why a row is fenced or dead; kp_reason_name gives the text of status and events. */
enum kp_reason {
    KP_REASON_NONE,
    KP_REASON_BOOTING, /* connected and healthy, takeover not complete */
    KP_REASON_WEDGED, /* main_alive is false */
    KP_REASON_STALLED, /* storage stalled */
    KP_REASON_DRAINED, /* left in order */
    KP_REASON_LOST, /* stream closed, or silent past the timeout */
    KP_REASON_NEVER_SEEN /* registered, no heartbeat yet */
};

/* The place of a decision in history: image documents of one uid are ordered by (term, generation);
 * orders of different uids are not comparable (design.md, 4). */
struct kp_order {
    char uid[40]; /* of the root ConfigMap; "" = none yet */
    uint64_t term;
    uint64_t generation;
};

struct kp_listener {
    char name[32];
    char host[KP_HOST_MAX + 1];
    uint16_t port;
};

/* Whether the volume takes what a broker writes. While it does not, the broker refuses records and serves
 * reads: it stays healthy and ready. */
enum kp_volume { KP_VOLUME_WRITABLE, KP_VOLUME_FULL, KP_VOLUME_READ_ONLY };

/* A registered broker. */
struct kp_row {
    int32_t id;
    enum kp_health health;
    enum kp_state state;
    enum kp_reason reason;
    bool serving; /* the broker's own word (heartbeat) */
    bool slice_ready; /* what the EndpointSlice says */
    enum kp_volume volume; /* the broker's last word while it is not dead; not in the image */
    bool silent; /* a report is overdue: what the row says may be over (ADR 22); not in the image */
    /* The named incarnation may be fenced (dead, wedged, past the drain deadline). */
    bool condemned;
    bool ever_healthy;
    /* Not alive, but keeps its assignment (never-empty rule, volume stall): not condemned. */
    bool kept;
    uint32_t protocol_version; /* 0 = an image older than the field */
    struct kc_uuid incarnation; /* zero = none seen yet */
    char pod_uid[40];
    char version[32];
    char rack[64];
    char host[KP_HOST_MAX + 1]; /* stable pod name */
    int32_t n_listeners;
    struct kp_listener listeners[KP_LISTENERS_MAX];
    int64_t last_seen_ms; /* wall clock; frozen while not alive (R13) */
    int32_t partitions; /* led, data partitions */
    int32_t slots; /* coordinator slots led */
};

enum kp_phase { KP_MOVE_NONE, KP_MOVE_PREPARE, KP_MOVE_RELEASE, KP_MOVE_GO, KP_MOVE_CANCEL };

/* A planned move, make-before-break (design.md, 4). */
struct kp_move {
    uint64_t id; /* 0 = none; unique within the image's uid */
    int32_t from, to;
    enum kp_phase phase;
    int64_t deadline_ms; /* monotonic clock of the active operator; 0 = none */
};

struct kp_part {
    /* Who leads it while everyone is alive; kept in the image, so that a returning broker gets its
     * own back; KP_NO_BROKER = not laid out yet. */
    int32_t home;
    int32_t assigned; /* the operator's wish; KP_NO_BROKER before the first decision */
    uint64_t assigned_generation;
    int32_t led; /* reported by the owner after open; KP_NO_BROKER = nobody */
    struct kc_uuid led_incarnation;
    int32_t led_epoch; /* the claim's epoch; -1 = never led */
    bool offline; /* failed for a permanent reason (R45) */
    struct kp_move move;
};

struct kp_pid {
    struct kc_uuid topic_id;
    int32_t partition;
};

/* Who leads a partition. Epochs are the volume's: the higher one is the newer word. */
struct kp_lead {
    struct kp_pid p;
    int32_t broker;
    struct kc_uuid incarnation;
    int32_t epoch;
};

/* Which shard of the image a topic lives in: 0..KP_SHARDS-1. */
int32_t kp_shard_of(const struct kc_uuid *topic_id);
/* <0, 0, >0 for orders of the same uid. */
int kp_order_cmp(const struct kp_order *a, const struct kp_order *b);
const char *kp_health_name(enum kp_health h); /* "Alive" "Draining" "Dead" */
const char *kp_state_name(enum kp_state s); /* "Serving" "Fenced" "Draining" */
/* "" "volume full" "volume read-only" */
const char *kp_volume_name(enum kp_volume v);
const char *kp_reason_name(
    enum kp_reason r); /* "" "booting" "wedged" "stalled" "drained" "lost" "never seen" */
enum kp_reason kp_reason_parse(const char *name);

/* An incarnation is condemned in an image if its broker has no row, or the row names another
 * incarnation, or the row says condemned (design.md, 4). rows sorted by id. */
bool kp_condemned(const struct kp_row *rows, int32_t n_rows, int32_t broker,
                  const struct kc_uuid *incarnation);

#endif
