/* ko_control.h - the control thread of the operator: heartbeat streams, the controller core of
 * each KaasCluster, the Lease, and the image publisher.
 *
 * Two loops (R63): the control loop runs heartbeats, decisions (kp_ctl) and Lease renewal on API
 * connections of its own; the API loop runs informers, reconcilers, image encoding and writes.
 * Functions here are called on the API loop and copy what they are given; callbacks run on the API
 * loop. What crosses is messages and immutable views. */
#ifndef KO_CONTROL_H
#define KO_CONTROL_H

#include "base/kc_error.h"
#include "image/ki_image.h"
#include "policy/kp_ctl.h"
#include "rt/rt_loop.h"
#include "store/ko_store.h"

struct ko_control;

/* Who may speak for a broker. Local host: a shared secret. Kubernetes: TokenReview with the
 * audience "kaas-heartbeat"; the pod bound to the token must be the claimed one. Called on the API
 * loop; verdict(ctx, ok, why) may come later, on the API loop. */
typedef void (*ko_auth_verdict)(void *ctx, bool ok, const char *why);
typedef void (*ko_auth_fn)(void *auth_ctx, const char *cluster, const char *token,
                           const char *pod_name, const char *pod_uid, ko_auth_verdict verdict,
                           void *ctx);

enum { KO_TROUBLE_MAX = 96 };

/* What status, events and kubectl show; immutable, reference-counted, made at every change. */
struct ko_view {
    _Atomic uint32_t refs;
    char cluster[320]; /* "namespace/name" */
    bool active;
    struct kp_order order; /* of the newest published image */
    int32_t n_rows;
    struct kp_row *rows;
    /* What the broker of each row said was wrong when it stopped being healthy ("wedged loop 1, 5 s"),
     * "" = nothing; NULL = no row has any. */
    char (*troubles)[KO_TROUBLE_MAX];
    int32_t partitions; /* data partitions */
    int32_t offline; /* without an acking leader for a permanent reason, or no alive broker */
    int32_t leaderless; /* assigned but not led */
    int32_t away; /* led elsewhere than at home, slots included: failback is not done */
    int64_t connected_ms; /* wall clock of the last heartbeat from anyone; 0 = none ever */
    uint64_t rollout; /* that is being measured (ko_control_rollout); 0 = none */
    int64_t measured_wall_ms; /* since when */
    struct kp_measure measure;
};
void ko_view_unref(struct ko_view *v);

/* An admin change asked by a broker, already de-duplicated by (process id, sequence) and checked
 * against the image (names, counts, existence); the objects must now say so. The API loop calls
 * ko_control_admin_done with the outcome; only then the image changes and the broker is answered. */
enum ko_kafka_error { /* Kafka's wire codes, as clients get them */
                      KO_KAFKA_UNKNOWN_SERVER_ERROR = -1,
                      KO_KAFKA_NONE = 0,
                      KO_KAFKA_UNKNOWN_TOPIC_OR_PARTITION = 3,
                      KO_KAFKA_REQUEST_TIMED_OUT =
                          7, /* retriable: asked again, it may go through */
                      KO_KAFKA_INVALID_TOPIC_EXCEPTION = 17,
                      KO_KAFKA_TOPIC_ALREADY_EXISTS = 36,
                      KO_KAFKA_INVALID_PARTITIONS = 37,
                      KO_KAFKA_INVALID_REPLICATION_FACTOR = 38,
                      KO_KAFKA_INVALID_REQUEST = 42,
                      KO_KAFKA_POLICY_VIOLATION =
                          44, /* also: admission or validation refused the object */
                      KO_KAFKA_TOPIC_DELETION_DISABLED = 73,
                      KO_KAFKA_THROTTLING_QUOTA_EXCEEDED = 89,
                      KO_KAFKA_UNKNOWN_TOPIC_ID = 100
};
enum ko_admin_kind {
    KO_CREATE_TOPIC = 1,
    KO_DELETE_TOPIC,
    KO_CREATE_PARTITIONS,
    KO_ALTER_TOPIC_CONFIG
};
struct ko_admin {
    uint64_t ticket;
    enum ko_admin_kind kind;
    const char *cluster;
    const char *principal;
    const char *topic;
    struct kc_uuid topic_id; /* new for CREATE */
    int32_t partitions, replication_factor;
    int32_t n_configs;
    const struct ki_config *configs; /* after the change: the whole set of overrides */
    bool internal; /* no KaasTopic object: answer at once */
};

struct ko_control_callbacks {
    void (*view)(void *ctx, struct ko_view *v); /* takes a reference */
    void (*event)(void *ctx, const char *cluster, const struct kp_event *ev);
    void (*admin)(void *ctx, const struct ko_admin *a); /* borrowed for the call */
    /* Topics that the volume's inventory or the image has, and that no ko_control_topic told with
     * this id before ko_control_synced: an existing volume is adopted, a merely missing KaasTopic is
     * made again (design.md 2). For a name told with another id that was never published, the
     * volume's id wins: the API loop tells it again by ko_control_topic with this id. May be called
     * again (a later inventory). */
    void (*adopt)(void *ctx, const char *cluster, const struct ki_topic *topics, int32_t n);
    /* A tombstone is done: the directory is removed (or there never was one). The KaasTopic's
     * finalizer may go. Also the answer to ko_control_topic_delete of an unknown id. */
    void (*topic_gone)(void *ctx, const char *cluster, const struct kc_uuid *id);
    /* What ko_control_topic told of this topic is not in force (why: the words an admin request is
     * answered with), or is now, after it was not (why = ""). */
    void (*topic_refused)(void *ctx, const char *cluster, const struct kc_uuid *id,
                          const char *why);
    void (*leader)(void *ctx, bool active); /* this process holds the Lease, or not */
    void *ctx;
};

struct ko_control_opts {
    const char *bind; /* "" = any */
    uint16_t port; /* 0 = pick one */
    const char *identity; /* Lease holder, pod name */
    const char *lease_ns, *lease_name;
    const char *advertised; /* address others may dial for this process: named by a standby */
    struct ko_store *store; /* of the API loop */
    /* A second store, owned by the control loop, for the Lease alone (made by the caller's factory on
     * that loop), so that slow API calls never delay renewal. */
    struct ko_store *(*lease_store)(void *ctx, struct rt_loop *loop);
    void *lease_store_ctx;
    ko_auth_fn auth;
    void *auth_ctx;
    int64_t lease_ms, renew_deadline_ms, retry_ms; /* 4000, 3000, 500 */
    int64_t check_ms; /* one image document is looked at this often; 0 = 10 s */
    struct ko_control_callbacks cb;
};

int ko_control_start(const struct ko_control_opts *o, struct rt_loop *api_loop,
                     struct ko_control **ret, struct kc_err *err);
uint16_t ko_control_port(const struct ko_control *c);
/* Releases the Lease, closes streams, joins. */
void ko_control_stop(struct ko_control *c);
/* The age of the control loop's tick, for the operator's own /readyz. [any thread] */
int64_t ko_control_age_ms(struct ko_control *c, int64_t now_ms);
/* Open heartbeat streams. [any thread] */
int32_t ko_control_streams(const struct ko_control *c);

/* The KaasCluster's part the controller needs; again on every change of the spec. */
struct ko_cluster_spec {
    const char *cluster; /* "namespace/name" */
    const char *uid; /* of the KaasCluster object; also owner of the ConfigMaps */
    int32_t desired;
    int64_t interval_ms, timeout_ms;
    int32_t max_topics, max_partitions;
    int32_t n_configs;
    const struct ki_config *configs; /* Kafka broker keys, cluster-wide */
};
void ko_control_cluster(struct ko_control *c, const struct ko_cluster_spec *spec);
void ko_control_cluster_removed(struct ko_control *c, const char *cluster);
void ko_control_slice(struct ko_control *c, const char *cluster, const char *slice_key,
                      const struct kp_endpoint *eps, int32_t n);
void ko_control_slice_deleted(struct ko_control *c, const char *cluster, const char *slice_key);
/* All slices, topics of the cluster have been told once: the controller may decide. */
void ko_control_synced(struct ko_control *c, const char *cluster);

/* A rollout goes on, to be measured from now on; rollout: its name, 0 = none does. Again at will. */
void ko_control_rollout(struct ko_control *c, const char *cluster, uint64_t rollout);

/* A KaasTopic (or an internal topic) as it should be: name, id, partitions, configs. Idempotent. */
void ko_control_topic(struct ko_control *c, const char *cluster, const struct ki_topic *t);
/* Its KaasTopic went while another process led: nothing is wanted or unwanted of it any more. */
void ko_control_topic_forget(struct ko_control *c, const char *cluster, const struct kc_uuid *id);
void ko_control_topic_delete(struct ko_control *c, const char *cluster, const struct kc_uuid *id);
/* error: an enum ko_kafka_error; NONE: the object says so now. */
void ko_control_admin_done(struct ko_control *c, uint64_t ticket, int32_t error,
                           const char *message);

#endif
