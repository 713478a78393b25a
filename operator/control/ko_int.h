/* ko_int.h - the inside of ko_control, shared by the files of operator/control.
 *
 * Struct members belong to the control loop unless marked [api]. What crosses the loops is a message
 * that owns what it carries; every message holds a reference on ko_control, so that one that comes
 * late finds it (and `stopped`) still there. */
#ifndef KO_INT_H
#define KO_INT_H

#include <stdatomic.h>

#include "base/kc_arena.h"
#include "base/kc_list.h"
#include "base/kc_map.h"
#include "control/ko_control.h"
#include "hb/hb_frame.h"
#include "policy/kp_lease.h"

enum {
    KO_TICK_MS = 100,
    KO_PAUSE_MS = 500, /* a loop that was away longer restarts the brokers' ages (design.md, 3) */
    KO_STEP_MS = 5, /* least time between steps that statuses ask for */
    KO_BATCH_MS = 20, /* at least, between the end of one publication and the start of the next */
    KO_BATCH_REST = 3, /* times as long as that one took, */
    KO_BATCH_MAX_MS = 100, /* a failover may be next */
    KO_STREAMS_MAX = 1024,
    KO_HELLO_MS = 10000, /* a stream that has not been accepted by then is closed */
    KO_IDLE_MS = 60000, /* one that says nothing for so long is closed */
    KO_QUEUE_MAX = 16 * 1024 * 1024, /* bytes that wait for one slow reader */
    KO_ORDERS_MAX = 1024, /* orders in one answer */
    KO_CLUSTER_KEY_MAX = 320, /* "namespace/name" */
    KO_PROCESSES_MAX = 256, /* of which admin results are remembered, a cluster */
    KO_RESULTS_MAX = 128, /* results remembered per process */
    KO_SEAL_KEEP_MS = 60000,
    KO_VIEW_MS = 100,
    KO_LEASE_CALL_MS = 2000, /* a Lease request without an answer counts as failed */
    KO_RELEASE_MS = 1000 /* for giving the Lease up at the end */
};

struct ko_cc;
struct ko_stream;

/* ---- topics of a cluster: what the image says beside assignment ---- */

struct ko_ct {
    struct kc_uuid id;
    char *name;
    bool internal, deleted;
    bool fresh; /* as told; kp_ctl knows when the mark goes */
    uint64_t since; /* generation of the first image that has it; 0 = restored from one */
    bool told; /* ko_control_topic named this id */
    bool refused; /* of what is wanted: the last word was a refusal */
    int32_t replication_factor;
    int32_t n_parts;
    int32_t n_configs;
    struct ki_config *configs; /* sorted; strings owned */
};

struct ko_ct_set {
    struct kc_map by_id; /* struct ko_ct *, owned */
    struct kc_map by_name; /* live ones, borrowed */
};

void ko_cts_init(struct ko_ct_set *s);
void ko_cts_fini(struct ko_ct_set *s);
struct ko_ct *ko_cts_id(const struct ko_ct_set *s, const struct kc_uuid *id);
struct ko_ct *ko_cts_name(const struct ko_ct_set *s, const char *name);
/* A copy of t; its id must be new, and its name unless it is a tombstone. */
struct ko_ct *ko_cts_add(struct ko_ct_set *s, const struct ki_topic *t);
void ko_cts_remove(struct ko_ct_set *s, const struct kc_uuid *id);
void ko_cts_bury(struct ko_ct_set *s, struct ko_ct *t); /* becomes a tombstone: its name is free */
/* True if they differed. */
bool ko_ct_set_configs(struct ko_ct *t, const struct ki_config *configs, int32_t n);
/* The topic without its partitions; borrows from t. */
struct ki_topic ko_ct_view(const struct ko_ct *t);
/* A live name that equals this one but for '.' and '_' (they collide in metric names); NULL. */
const char *ko_cts_collision(const struct ko_ct_set *s, const char *name);

/* ---- a cluster on the control loop ---- */

enum ko_phase {
    KO_IDLE, /* not the leader */
    KO_LOADING, /* the standing image is being taken over on the API loop */
    KO_HELD, /* restored; brokers may say hello; waits for the sync and the inventory */
    KO_ACTIVE /* decides */
};

struct ko_slice {
    int32_t n;
    struct kp_endpoint eps[];
};

struct ko_seal {
    int64_t at_ms;
    int32_t epoch;
    int64_t end_offset;
    int32_t len;
    uint8_t record[];
};

struct ko_cc {
    struct ko_control *c;
    char key[KO_CLUSTER_KEY_MAX];
    /* As told by the API loop, whoever is active. */
    struct kc_arena spec_arena;
    struct ko_cluster_spec spec;
    bool synced;
    struct kc_map slices; /* key -> struct ko_slice * */
    struct ko_ct_set wanted; /* ko_control_topic */
    struct kc_map unwanted; /* ids of ko_control_topic_delete that came before KO_HELD */
    /* While leader. */
    enum ko_phase phase;
    uint64_t load_ticket;
    struct kp_ctl *ctl;
    struct ko_ct_set topics;
    struct kp_order order; /* of the newest published image */
    char cluster_id[KC_UUID_B64_LEN + 1];
    bool inventory_due; /* nothing is decided before one inventory is merged */
    bool inventory_merged;
    struct kc_map graves; /* topic ids that the volume says are deleted */
    bool room; /* there may be some for topics that were refused: the next step tries */
    int64_t next_ms; /* of the controller's next step */
    int64_t stepped_ms;
    /* Publishing. */
    bool publishing;
    uint64_t started; /* generation of the publication under way, or of the last one */
    uint32_t dirty_shards;
    bool dirty_root;
    int64_t begun_ms; /* when the last one began */
    int64_t batch_ms; /* not before */
    int64_t confirm_ms; /* not before the Lease was renewed after this; -1 */
    /* Answers. */
    uint64_t version; /* counts changes of rows */
    struct kp_row told[KP_BROKERS_MAX];
    uint64_t row_version[KP_BROKERS_MAX];
    bool row_there[KP_BROKERS_MAX];
    struct kc_map seals; /* move id -> struct ko_seal * */
    /* Admin. */
    struct kc_list processes; /* struct ko_process, least recently used first */
    int32_t n_processes;
    /* The view. */
    bool view_due;
    int64_t view_ms;
    int64_t connected_wall_ms;
    char trouble[KP_BROKERS_MAX][KO_TROUBLE_MAX];
    /* Rollouts: the one told, and the one this controller measures; 0 = none. */
    uint64_t rollout, measured;
    int64_t measured_wall_ms;
};

/* ---- a broker's stream ---- */

enum ko_stream_state { KO_ST_HELLO, KO_ST_AUTH, KO_ST_UP, KO_ST_CLOSED };

struct ko_stream {
    struct kc_list link;
    struct ko_control *c;
    uint64_t id;
    uv_tcp_t tcp;
    enum ko_stream_state state;
    struct hb_reader reader;
    char cluster[KO_CLUSTER_KEY_MAX];
    struct kp_hello hello;
    struct kc_uuid process;
    char volume_cluster_id[KC_UUID_B64_LEN + 1];
    bool admitted; /* known to the cluster's kp_ctl by this stream */
    int64_t opened_ms, heard_ms;
    uint64_t told_version; /* rows up to here were told */
    uint64_t told_generation;
    uint64_t told_orders; /* hash of the orders told last */
    uint64_t told_leads; /* news of leaders up to here were told */
    bool close_after_write;
};

/* ---- the Lease ---- */

struct ko_keeper {
    struct kp_lease lease;
    struct ko_store *store;
    json_t *doc; /* as read or written last */
    char address[256]; /* of the holder, for standbys to name */
    uint64_t attempt; /* of the call under way; older answers are ignored */
    struct kc_list calls;
    int64_t started_ms;
    bool leader;
    bool releasing, released;
};

/* ---- all of it ---- */

struct ko_control {
    struct ko_control_opts o; /* strings are owned */
    struct rt_loop *api;
    struct rt_loop loop;
    _Atomic uint32_t refs;
    _Atomic bool may_publish; /* the Lease is held */
    uint16_t port;
    uv_tcp_t server;
    uv_timer_t tick, step;
    bool closing;
    int64_t step_ms; /* when the step timer is due */
    int64_t turned_ms; /* when the loop was last seen at work */
    struct kc_list streams;
    _Atomic int32_t n_streams; /* written by the control loop */
    uint64_t next_stream;
    uint64_t next_ticket;
    struct kc_map clusters; /* struct ko_cc * */
    struct kc_map tickets; /* admin requests at the API loop: struct ko_pending * */
    struct ko_keeper keeper;
    struct kc_arena arena; /* of the message at hand */
    uint8_t read_buf[64 * 1024];
    /* [api] */
    bool stopped;
    struct kc_map publishers; /* struct ko_pub * */
};

void ko_control_ref(struct ko_control *c);
void ko_control_unref(struct ko_control *c);
/* Runs fn(c, arg) on the other loop; arg is the function's to free. */
void ko_to_control(struct ko_control *c, void (*fn)(struct ko_control *, void *), void *arg);
/* Likewise; not run once stopped: drop(arg) then (NULL: kc_free). */
void ko_to_api(struct ko_control *c, void (*fn)(struct ko_control *, void *), void *arg,
               void (*drop)(void *));
/* Reads the clock; notices a pause of this loop. Every entry from outside calls it first. */
int64_t ko_now(struct ko_control *c);
void ko_step_soon(struct ko_control *c);
void ko_step_by(struct ko_control *c, int64_t at_ms); /* no later than */

/* ko_cluster.c */
struct ko_cc *ko_cc_find(struct ko_control *c, const char *key);
struct ko_cc *ko_cc_get(struct ko_control *c, const char *key); /* made if missing */
void ko_cc_free(void *cc);
void ko_cc_lead(struct ko_cc *cc); /* the Lease was acquired */
void ko_cc_unlead(struct ko_cc *cc); /* and lost */
void ko_cc_try_activate(struct ko_cc *cc);
/* W1: the second witness of a removal is heard only when every slice has been told: until then whoever
 * is not listed yet merely seems to be gone. */
void ko_cc_tell_desired(struct ko_cc *cc);
/* Begins or ends to measure, as told. */
void ko_cc_measure(struct ko_cc *cc);
void ko_cc_step(struct ko_cc *cc, int64_t now_ms);
/* At once, or soon if one was made just now: statuses come in bursts. */
void ko_cc_step_paced(struct ko_cc *cc, int64_t now_ms);
static inline bool ko_cc_decides(const struct ko_cc *cc)
{
    return cc->phase == KO_ACTIVE;
}
static inline bool ko_cc_held(const struct ko_cc *cc)
{
    return cc->phase == KO_HELD || cc->phase == KO_ACTIVE;
}

/* ko_merge.c: what topics there are */
/* Lays what the API loop told over the restored state; before the first decision. */
void ko_merge_wanted(struct ko_cc *cc);
/* Brings what a KaasTopic says into force; whoever told it hears of a refusal, and of its end. */
void ko_merge_topic(struct ko_cc *cc, struct ko_ct *told);
/* Whether so much more is over spec.limits: why not, in the words of an admin answer. */
bool ko_over_limits(const struct ko_cc *cc, int32_t more_topics, int32_t more_parts, char *why,
                    size_t room);
/* There may be room now: what was refused is tried again. */
void ko_merge_refused(struct ko_cc *cc);
void ko_merge_delete(struct ko_cc *cc, const struct kc_uuid *id);
void ko_merge_inventory(struct ko_cc *cc, const Kaas__Heartbeat__Inventory *inv);
void ko_merge_internal(struct ko_cc *cc);
void ko_merge_adopt(struct ko_cc *cc);
int32_t ko_topic_kind(const struct ki_topic *t); /* KP_NOT_SLOTS, … */
/* Adds a topic to state and controller: 0, KC_E_TOO_LARGE, KC_E_EXISTS. */
int ko_topic_add(struct ko_cc *cc, const struct ki_topic *t, struct ko_ct **ret);
void ko_topic_delete(struct ko_cc *cc, struct ko_ct *t);
/* The directory of a tombstone is gone. */
void ko_topic_removed(struct ko_cc *cc, const struct kc_uuid *id);
void ko_dirty_topic(struct ko_cc *cc, const struct kc_uuid *id);

/* ko_stream.c */
int ko_streams_listen(struct ko_control *c, struct kc_err *err);
void ko_stream_close(struct ko_stream *s, const char *why);
void ko_streams_sweep(struct ko_control *c, int64_t now_ms);
int ko_stream_send(struct ko_stream *s, const Kaas__Heartbeat__OperatorMessage *m);
/* Reads nothing more until resumed, with the larger frame limit of an accepted stream. */
void ko_stream_pause(struct ko_stream *s);
void ko_stream_resume(struct ko_stream *s);
struct ko_stream *ko_stream_find(struct ko_control *c, uint64_t id);

/* ko_session.c: 0, or an error that closes the stream */
int ko_session_frame(struct ko_stream *s, struct kc_bytes frame, struct kc_err *err);
void ko_session_closed(struct ko_stream *s);

/* ko_answers.c */
void ko_answer(struct ko_stream *s, bool even_if_nothing_new);
void ko_answer_all(struct ko_cc *cc); /* those that have not heard the newest */
void ko_rows_changed(struct ko_cc *cc);
void ko_seal_take(struct ko_cc *cc, const Kaas__Heartbeat__ReleasedReport *r, int64_t now_ms);
void ko_seals_sweep(struct ko_cc *cc, int64_t now_ms);

/* ko_publish.c: from decisions to batches, on the control loop */
void ko_publish_soon(struct ko_cc *cc, int64_t now_ms);

/* ko_admin.c */
void ko_admin_request(struct ko_stream *s, const Kaas__Heartbeat__AdminRequest *r);
void ko_admin_published(struct ko_cc *cc); /* answers what the newest image shows */
void ko_admin_drop(struct ko_cc *cc); /* no longer the leader */
void ko_admin_outcome(struct ko_control *c, uint64_t ticket, int32_t error, const char *message);
void ko_admin_stream_closed(struct ko_stream *s);

/* ko_keeper.c */
void ko_keeper_init(struct ko_control *c);
void ko_keeper_tick(struct ko_control *c, int64_t now_ms);
void ko_keeper_release(struct ko_control *c); /* sets released when done */
void ko_keeper_fini(struct ko_control *c);

/* ko_view.c */
void ko_view_send(struct ko_cc *cc, int64_t now_ms);
void ko_events_send(struct ko_cc *cc, const struct kp_changes *ch);

#endif
