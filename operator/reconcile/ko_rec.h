/* ko_rec.h - the inside of the reconciler, shared by its files. Owner: the API loop. */
#ifndef KO_REC_H
#define KO_REC_H

#include <stdatomic.h>

#include "base/kc_list.h"
#include "base/kc_map.h"
#include "reconcile/ko_gauges.h"
#include "reconcile/ko_queue.h"
#include "reconcile/ko_reconcile.h"
#include "store/ko_object.h"

#define KO_TOPIC_FINALIZER "kaas.dev/topic"
#define KO_FORCE_ROLLOUT "kaas.dev/force-rollout"

struct ko_events;

/* The context of one watch. */
struct ko_informer {
    struct ko_rec *rec;
    enum ko_kind kind;
};

/* A call on the store under way; freed by its callback, or with the reconciler. Base of the files'
 * own structs (first member). */
struct ko_op {
    struct kc_list link;
    struct ko_rec *rec;
    void (*fini)(struct ko_op *op); /* more than kc_free, or NULL */
};

/* An object the operator applies, as last applied and as last seen. */
struct ko_owned {
    uint64_t desired; /* hash of the document applied last; 0 = none */
    uint64_t applied; /* hash of what the API server made of it */
    uint64_t observed; /* hash of what the watch saw last; 0 = not there */
    char uid[40];
    bool in_flight;
};

struct ko_pod {
    char uid[40], owner_uid[40], node[254], revision[64];
    bool ready;
    /* Wall clock, as its condition says. One on its way out is not ready, yet says since when it is. */
    int64_t ready_since_ms;
    int64_t unready_since_ms; /* 0 = the condition is True */
    /* Why a container of it does not run, or why it has no node; "" = nothing is known to be wrong. */
    char fault[40], fault_text[160];
    int64_t created_ms;
    int32_t grace_s; /* from SIGTERM to SIGKILL; of one being deleted, what its deletion gives it */
    bool running;
    int64_t running_since_ms; /* monotonic, when first seen running */
};

/* A rollout that waits for a pod which does not come (R60). */
struct ko_halt {
    bool on;
    char pod[80], uid[40];
    char reason[40]; /* of its container, or NotReady */
    char text[400];
};

/* What has been said of a rollout, so that it is said once. */
struct ko_rollout_told {
    uint64_t measured; /* to the control thread; 0 = none */
    uint64_t started, finished; /* by Events: the rollouts' ids */
    bool halted;
};

/* A KaasCluster. */
struct ko_rc {
    char key[KO_KEY_MAX]; /* "ns/name" */
    json_t *doc; /* NULL: no object (any more) */
    struct ko_cluster *spec; /* the last valid one; NULL before */
    bool spec_told; /* to the control thread, with generation spec->generation */
    int64_t told_generation;
    bool told_synced;
    char invalid[600]; /* why the newest spec is not valid, "" if it is */
    char error[300]; /* the last failed step, "" if all went well */
    json_t *sts; /* StatefulSet as last seen */
    struct ko_view *view;
    json_t *status; /* last written; NULL: unknown */
    bool status_dirty, status_in_flight, rolling;
    int64_t status_at_ms; /* of the last write */
    int64_t blocked_since_ms; /* running pods without heartbeat since; 0 = none */
    int64_t disagree_since_ms; /* heartbeat and slice differ about a broker since; 0 = they agree */
    int step; /* of the run under way, -1 = none */
    int32_t step_id; /* the next document of that step */
    int64_t acted_generation; /* of the newest spec that a whole run has acted on; 0 = none yet */
    char template_hash[17]; /* of the pods as the spec wants them, "" = not yet known */
    uint64_t outcome; /* of the last run, as far as status shows it */
    char roll_reason[40], roll_text[400]; /* what a rollout waits for, "" = none runs */
    struct ko_halt halt;
    struct ko_rollout_told rollout;
    int64_t down_since_ms[KP_BROKERS_MAX]; /* monotonic; 0 = serves, or nobody looked yet */
    uint64_t
        down_pod[KP_BROKERS_MAX]; /* whose: hash of its uid; of another pod the time starts anew */
    int64_t looked_ms; /* at them, monotonic */
};

struct ko_topic_name;
/* A KaasTopic object. */
struct ko_to {
    struct kc_list link; /* among the claimants of a name */
    char key[KO_KEY_MAX]; /* "ns/object" */
    json_t *doc;
    struct ko_topic_name *name; /* NULL while the spec names no topic of a cluster */
    bool gone; /* being deleted, and the topic's data is: the finalizer may go */
    /* Its deletion was asked for by a client (the watch may not have shown it yet), or was seen. */
    bool doomed;
};
/* A topic of a cluster, by name; lives while an object claims it or the operator knows its id. */
struct ko_topic_name {
    char key[KO_KEY_MAX]; /* "ns/cluster/topic" */
    char cluster[KO_KEY_MAX]; /* "ns/cluster" */
    const char *topic; /* into key */
    struct kc_list claimants;
    char id[KC_UUID_B64_LEN + 1]; /* "" = none yet */
    char dead[KC_UUID_B64_LEN + 1]; /* the id that went last; the volume bars its return */
    json_t *lost; /* spec of the owner that vanished without being deleted: made again */
    bool creating; /* an object of this name is being made */
    bool deleting; /* its deletion has been told to the control thread */
    bool told; /* to the control thread, as told_* say */
    uint64_t told_hash;
    int32_t had; /* partitions before that */
    char refused[200]; /* why what was told is not in force; "" = it is, for all that is known */
};

struct ko_rec {
    struct ko_rec_opts o;
    char *ns, *component, *image, *heartbeat_host, *local_bootstrap;
    struct rt_loop *loop;
    struct ko_store *store;
    struct ko_control *control;
    struct ko_queue *queue;
    uv_timer_t timer, status_timer;
    int open_timers;
    struct ko_watch *watches[KO_KIND_COUNT];
    struct ko_informer informers[KO_KIND_COUNT];
    int unsynced;
    bool started, leader;
    _Atomic bool synced;
    struct kc_list ops;
    struct kc_map clusters; /* "ns/name" -> struct ko_rc */
    struct kc_map owned; /* "plural/ns/name" -> struct ko_owned */
    struct kc_map pods; /* "ns/name" -> struct ko_pod */
    struct kc_map slices; /* "ns/name" -> struct ko_slice (ko_rec_slice.c) */
    struct kc_map brokers; /* "ns/name" -> KaasBroker as seen and written (ko_rec_broker.c) */
    struct kc_map topics; /* "ns/name" -> struct ko_to */
    struct kc_map names; /* "ns/cluster/topic" -> struct ko_topic_name */
    struct ko_events *events;
    struct {
        _Atomic uint64_t reconciles, failures, applies, status_writes, events, foreign, queue_len;
        _Atomic uint32_t clusters, topics;
        _Atomic bool leader;
        struct ko_gauges gauges;
    } m;
};

/* ---- ko_reconcile.c ---- */
void *ko_op_new(struct ko_rec *r, size_t size, void (*fini)(struct ko_op *op));
void ko_op_free(void *op);
/* Queues "c:ns/name" (cluster), "t:ns/name" (topic object), "n:ns/cluster/topic" (topic name),
 * "s:ns/name" (slice). delay 0 = now. */
void ko_rec_queue(struct ko_rec *r, char type, const char *key, int64_t delay_ms);
/* What a reconcile ends with; steps that go on later call it from their last callback. */
void ko_rec_finished(struct ko_rec *r, const char *queue_key, bool ok);
struct ko_rc *ko_rec_cluster(struct ko_rec *r, const char *key);
void *ko_rec_find(const struct kc_map *m, const char *key);

/* ---- ko_rec_owned.c ---- */
/* Applies doc (takes it) unless the object is as it was applied. done(ctx, ok) at once when nothing
 * is to be done. why (of a failure) is written to c->error. */
void ko_rec_own(struct ko_rec *r, struct ko_rc *c, enum ko_kind k, json_t *doc,
                void (*done)(struct ko_rec *r, const char *cluster, bool ok));
void ko_rec_owned_seen(struct ko_rec *r, enum ko_kind k, enum ko_event ev, json_t *doc);
/* Removes an object of ours that is not wanted any more, if the watch has seen one; asked for again
 * with the next call until it is gone. */
void ko_rec_disown(struct ko_rec *r, const struct ko_rc *c, enum ko_kind k, const char *name);

/* ---- ko_rec_cluster.c ---- */
void ko_rec_cluster_seen(struct ko_rec *r, enum ko_event ev, json_t *doc);
/* The status that stands, maybe another operator's, is what goes on from here. */
void ko_rec_status_adopt(struct ko_rc *c);
void ko_rec_sts_seen(struct ko_rec *r, enum ko_event ev, json_t *doc);
void ko_rec_cluster_run(struct ko_rec *r, const char *key);
/* Slices and topics have been told: so may be that everything was. */
void ko_rec_tell_synced(struct ko_rec *r);
void ko_rec_cluster_free(void *c);

/* ---- ko_rec_roll.c ---- */
/* The StatefulSet as it should be, with the rollout's gate where it may stand now. New reference. */
json_t *ko_rec_statefulset(struct ko_rec *r, struct ko_rc *c);

/* ---- ko_rollout.c ---- */
/* status.lastRollout as it should be; NULL: there never was a rollout. New reference. */
json_t *ko_rollout_report(const struct ko_rc *c, int64_t now_wall_ms);
/* A status was built: Events of what is new in it, and whether there is something to measure. */
void ko_rollout_run(struct ko_rec *r, struct ko_rc *c, const json_t *status);

/* ---- ko_rec_slice.c ---- */
void ko_rec_slice_seen(struct ko_rec *r, enum ko_event ev, json_t *doc);
void ko_rec_pod_seen(struct ko_rec *r, enum ko_event ev, json_t *doc);
void ko_rec_slice_run(struct ko_rec *r, const char *key);
/* The cluster's StatefulSet came or changed: its slices may be admitted now. */
void ko_rec_slices_of(struct ko_rec *r, const struct ko_rc *c);
void ko_rec_slice_free(void *s);

/* ---- ko_rec_topic.c ---- */
void ko_rec_topic_seen(struct ko_rec *r, enum ko_event ev, json_t *doc);
void ko_rec_topic_run(struct ko_rec *r, const char *key);
void ko_rec_name_run(struct ko_rec *r, const char *key);
void ko_rec_topics_of(struct ko_rec *r, const char *cluster);
struct ko_topic_name *ko_rec_name(struct ko_rec *r, const char *cluster, const char *topic,
                                  bool make);
/* The object that owns the name; NULL = none. */
struct ko_to *ko_rec_owner(const struct ko_topic_name *n);
/* An object claims the name and is not being deleted. */
bool ko_rec_claimed(const struct ko_topic_name *n);
/* It is on its way out: being deleted, or seen so. */
bool ko_rec_going(const struct ko_to *t);
void ko_rec_queue_claimants(struct ko_rec *r, const struct ko_topic_name *n);
void ko_rec_topic_gone(struct ko_rec *r, const char *cluster, const struct kc_uuid *id);
void ko_rec_topic_refused(struct ko_rec *r, const char *cluster, const struct kc_uuid *id,
                          const char *why);
void ko_rec_adopt(struct ko_rec *r, const char *cluster, const struct ki_topic *topics, int32_t n);
void ko_rec_topic_free(void *t);
void ko_rec_name_free(void *n);

/* ---- ko_rec_make.c: KaasTopic objects for topics that clients made or the volume has ---- */
struct ko_make {
    const char *cluster; /* "ns/name" */
    const char *topic;
    const char *id; /* base64 */
    int32_t partitions, replication_factor;
    int32_t n_configs;
    const struct ki_config *configs;
};
/* Creates the object with the finalizer and status.topicId; done(r, ticket, code): 0 or Kafka's. */
void ko_rec_make_topic(struct ko_rec *r, const struct ko_make *m, uint64_t ticket,
                       void (*done)(struct ko_rec *r, uint64_t ticket, int32_t code,
                                    const char *why));
void ko_rec_admin(struct ko_rec *r, const struct ko_admin *a);

/* ---- ko_rec_status.c ---- */
void ko_rec_status_run(struct ko_rec *r);
/* The status timer fires within ms. */
void ko_rec_status_in(struct ko_rec *r, int64_t ms);
void ko_rec_status_dirty(struct ko_rec *r, struct ko_rc *c);
/* A transition of the control thread as an Event (a callback, so ctx is the reconciler). */
void ko_rec_control_event(void *ctx, const char *cluster, const struct kp_event *ev);
void ko_rec_event(struct ko_rec *r, const json_t *about, bool warning, const char *reason,
                  const char *fmt, ...) KC_PRINTF(5, 6);

/* ---- ko_rec_broker.c: KaasBroker objects ---- */
void ko_rec_brokers_run(struct ko_rec *r, struct ko_rc *c);
void ko_rec_broker_seen(struct ko_rec *r, enum ko_event ev, json_t *doc);
void ko_rec_broker_free(void *b);
/* A registry row as status shows it; old: the row shown before, or NULL. lastSeen of a living broker
 * moves at most every 30 s, and is exact when frozen (R13). */
/* Of condition StorageReady. */
const char *ko_volume_reason(enum kp_volume v);
json_t *ko_row_json(const struct kp_row *row, const json_t *old, int64_t now_wall_ms);

#endif
