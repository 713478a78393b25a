/* kl_cluster.h - the control plane of a broker that belongs to a cluster.
 *
 * One object on the control loop: it registers an incarnation, keeps heartbeat streams to the
 * operators, reads the cluster image, opens what the image assigns to this broker and lets go of
 * what it does not, and hands admin changes to the active operator. It survives a wedge of the data
 * loops: it never waits for them. Functions without a mark run on the control loop; [any] ones read
 * atomics and take no lock. */
#ifndef KL_CLUSTER_H
#define KL_CLUSTER_H

#include "app/kb_admin.h"
#include "data/kd_data.h"
#include "image/ki_image.h"
#include "storage/ks_engine.h"

struct kl_cluster;

enum kl_source_kind {
    KL_SOURCE_DIRECTORY, /* ConfigMaps as files of the local host */
    KL_SOURCE_KUBERNETES /* the API server; the mount is the boot-time copy */
};

/* Strings and arrays are copied. */
struct kl_opts {
    const char *cluster; /* "namespace/name" of the KaasCluster */
    int32_t broker_id;
    const char *pod_name, *pod_uid; /* "" outside Kubernetes */
    const char *rack, *version;
    int32_t n_listeners;
    const struct kp_listener *listeners; /* as advertised */
    const char *volume_cluster_id; /* what cluster.json says; "" = nothing yet */

    const char *operator_host;
    uint16_t operator_port;
    const char *token_file; /* read afresh for each stream; NULL = no token */
    int64_t interval_ms, timeout_ms;

    enum kl_source_kind source;
    const char *image_ns, *image_name; /* the root ConfigMap; shards are <image_name>-0 … -15 */
    const char *image_dir; /* DIRECTORY: the folder of <name>.json files */
    const char *image_mount; /* KUBERNETES: <mount>/<name>/<key>, or NULL */

    int64_t drain_ms, leave_ms; /* to hand over, then to seal what is left (kp_drain.h, R29) */

    struct ks_engine *engine;
    struct kd_data *data;

    /* A new image is current: whenever the document, or a row pushed by the operator, changed.
     * Borrowed for the call; take a reference. */
    void (*on_image)(void *ctx, struct ki_image *im);
    /* What a topic's log needs to know of its configs; runs on the control loop. */
    void (*log_config)(void *ctx, const struct ki_image *im, const struct ki_topic *topic,
                       struct ks_log_config *ret);
    /* Active consumer groups, shown on the heartbeat; runs on the control loop. NULL = none. */
    int32_t (*active_groups)(void *ctx);
    /* A drain has ended: nothing is led any more, the operator has been told. Once. */
    void (*on_drained)(void *ctx);
    void *ctx;
};

/* On any thread while `loop` (the control loop) is not running yet, or on it. 0, KC_E_CONFIG,
 * -ENOMEM; the work (registration, dialling) starts on the loop. */
int kl_start(const struct kl_opts *o, struct rt_loop *loop, struct kl_cluster **ret,
             struct kc_err *err) KC_MUST_CHECK;
/* Closes streams and source and joins the pools. What is still open stays open on the data loops:
 * drain first. On the control loop, once. */
void kl_stop(struct kl_cluster *k);
/* After the engine is closed and the loop has ended: what they could still call is gone then. */
void kl_free(struct kl_cluster *k);

/* Begins the drain (SIGTERM, R23): the next status says draining, leaderships leave. Idempotent. */
void kl_drain(struct kl_cluster *k);

/* A ks_fenced_fn for the engine: this incarnation is fenced, a new one is registered. */
void kl_fenced(struct kl_cluster *k, const char *why);
/* An open partition's log gave up by itself: it is closed and opened again. [any] */
void kl_log_stopped(struct kl_cluster *k, const struct kc_uuid *topic_id, int32_t partition);
/* An open partition's log went on under a newer epoch: it is reported led again. [any] */
void kl_log_epoch(struct kl_cluster *k, const struct kc_uuid *topic_id, int32_t partition,
                  int32_t epoch);

/* ---- what others may know [any] ---- */

bool kl_serving(const struct kl_cluster *k); /* takeover complete and latched (R38, R45) */
/* main_alive ∧ ¬storage stalled (R46); why not, if false: as kh_vitals_text says it. */
bool kl_healthy(const struct kl_cluster *k, int64_t now_mono_ms, char *why, size_t cap);

struct kl_metrics {
    uint64_t term, generation; /* of the current image */
    int64_t image_age_ms; /* since a new document was read from the source; -1 = never */
    int32_t streams, active_streams; /* operator streams accepted, of which active */
    int32_t led, pending, blocked, failed;
    uint64_t takeovers, seals, incarnations, status_sent, admin_pending;
};
void kl_metrics_read(const struct kl_cluster *k, struct kl_metrics *ret);

/* The port behind kb_admin_submit: forwards changes to the active operator. [any] */
struct kb_admin_port kl_admin_port(struct kl_cluster *k);

#endif
