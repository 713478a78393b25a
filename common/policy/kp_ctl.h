/* kp_ctl.h - the controller core: one state, fed with facts and time, asked for decisions.
 *
 * Hosted by the operator (Kubernetes and local) and by the self-led broker. Pure: no I/O, no clock,
 * no logging; memory is asked for only in kp_ctl_new and when topics are added. One owner thread.
 * All times are the owner's monotonic milliseconds (now_ms), except *_wall_ms.
 *
 * Use: feed facts with the calls of part 1 and 2 in any order, then kp_ctl_step(now): it decides
 * (rows, alive set, slots, assignment, moves) and says what changed. The caller publishes an image
 * of the new content and confirms with kp_ctl_published. */
#ifndef KP_CTL_H
#define KP_CTL_H

#include "base/kc_error.h"
#include "policy/kp_types.h"

struct kp_ctl;

struct kp_ctl_opts {
    int32_t max_brokers; /* <= KP_BROKERS_MAX */
    int32_t max_topics; /* default limit 2,000 */
    int32_t max_partitions; /* default limit 20,000 */
    int64_t interval_ms; /* heartbeat.interval, 1 s */
    int64_t timeout_ms; /* heartbeat.timeout, 3 s (W4) */
    int32_t self_id; /* self-led host: this broker; KP_NO_BROKER on an operator */
};

struct kp_ctl *kp_ctl_new(const struct kp_ctl_opts *opts); /* NULL: no memory */
void kp_ctl_free(struct kp_ctl *c);

/* New limits, at any time; what exists already stays. 0 or -ENOMEM (the old ones hold). */
int kp_ctl_set_limits(struct kp_ctl *c, int32_t max_topics, int32_t max_partitions) KC_MUST_CHECK;

/* ---- 1. what the cluster is ---- */

/* spec.replicas: ordinals 0..desired-1 are wanted (W1, the second witness of R4). */
void kp_ctl_set_desired(struct kp_ctl *c, int32_t desired);

/* One endpoint of an EndpointSlice that passed admission (design.md, 3). */
struct kp_endpoint {
    int32_t ordinal;
    bool ready; /* serving condition where publishNotReadyAddresses forces ready */
    char pod_uid[40];
    char host[KP_HOST_MAX + 1];
    int64_t created_ms; /* of the pod, wall; newest wins among duplicates of an ordinal */
    int32_t grace_s; /* from its SIGTERM to its SIGKILL, R29; 0 = KP_GRACE_DEFAULT_S */
};
/* The whole membership of one slice, named by its key (R4-R6). Order of rows is free. */
void kp_ctl_slice(struct kp_ctl *c, const char *slice_key, const struct kp_endpoint *eps, int32_t n,
                  int64_t now_ms);
void kp_ctl_slice_deleted(struct kp_ctl *c, const char *slice_key, int64_t now_ms);

/* Topics. parts starts at n unassigned partitions, or keeps existing ones when it grows
 * (kp_ctl_topic on a known id with more partitions; fewer is refused). fresh: no directory exists
 * yet, brokers may create it. Returns 0, KC_E_TOO_LARGE (limits) or -ENOMEM. */
int kp_ctl_topic(struct kp_ctl *c, const struct kc_uuid *id, bool internal, int32_t slot_kind,
                 int32_t n_parts, bool fresh) KC_MUST_CHECK;
/* Deletion: the topic stays as a tombstone until kp_ctl_topic_forget (its directory is reported
 * removed). Its partitions keep an alive assignee: the one assigned partition 0 removes the
 * directory, so that a dead leader cannot leave it behind. */
void kp_ctl_topic_delete(struct kp_ctl *c, const struct kc_uuid *id);
void kp_ctl_topic_forget(struct kp_ctl *c, const struct kc_uuid *id);

/* ---- 2. what brokers say ---- */

/* A stream's hello was authenticated and admitted. Rejects (reason in err) a stream of an
 * unregistered ordinal or of a pod that is not the newest admitted one (KC_E_REFUSED), and of an
 * incarnation that is condemned already (KC_E_FENCED; final). A newer process of the same broker
 * condemns the older one. */
struct kp_hello {
    int32_t broker;
    uint64_t stream; /* caller's id, unique for ever */
    struct kc_uuid incarnation;
    struct kc_uuid process; /* of the process life; zero = not told (W5) */
    char pod_uid[40];
    uint32_t protocol_version;
    char version[32];
    char rack[64];
    int32_t n_listeners;
    struct kp_listener listeners[KP_LISTENERS_MAX];
};
int kp_ctl_hello(struct kp_ctl *c, const struct kp_hello *h, int64_t now_ms, struct kc_err *err);
void kp_ctl_stream_closed(struct kp_ctl *c, int32_t broker, uint64_t stream, int64_t now_ms);

struct kp_led {
    struct kc_uuid topic_id;
    int32_t partition;
    int32_t epoch;
};
struct kp_moved {
    struct kp_pid p;
    uint64_t move_id;
    int64_t stopped_ms; /* released: the source took its last append so long ago; 0 = not told */
};
struct kp_blocked {
    struct kp_pid p;
    int32_t broker;
    struct kc_uuid incarnation;
};
struct kp_failed {
    struct kp_pid p;
    bool permanent;
};
struct kp_status {
    int32_t broker;
    uint64_t stream;
    struct kc_uuid incarnation;
    bool healthy, draining, serving;
    bool stalled; /* healthy is false because of storage */
    enum kp_volume volume;
    bool full; /* led etc. are complete, not a difference */
    int64_t wall_ms; /* the operator's wall clock now */
    const struct kp_led *led;
    int32_t n_led;
    const struct kp_pid *unled;
    int32_t n_unled;
    const struct kp_moved *prepared;
    int32_t n_prepared;
    const struct kp_moved *released;
    int32_t n_released;
    const struct kp_blocked *blocked;
    int32_t n_blocked;
    const struct kp_failed *failed;
    int32_t n_failed;
};
void kp_ctl_status(struct kp_ctl *c, const struct kp_status *s, int64_t now_ms);

/* ---- 3. becoming and being active ---- */

/* Restores what an image says (rows, homes, assigned, led), before the first step of a new active
 * operator: topics were added by kp_ctl_topic, then parts by kp_ctl_restore_part. */
void kp_ctl_restore_row(struct kp_ctl *c, const struct kp_row *row);
void kp_ctl_restore_part(struct kp_ctl *c, const struct kc_uuid *id, int32_t partition,
                         const struct kp_part *part);
void kp_ctl_restore_homes(struct kp_ctl *c, int32_t slot_kind, const int32_t homes[KP_SLOTS]);
/* This host decides from now on (R62: the grace starts); until then facts are taken, and that is all. */
void kp_ctl_activate(struct kp_ctl *c, int64_t now_ms);
/* The owner's loop was not running for a while (a pause of more than 500 ms, a reconnect): message
 * ages restart (design.md, 3). */
void kp_ctl_paused(struct kp_ctl *c, int64_t now_ms);

enum kp_event_kind {
    KP_EV_REGISTERED,
    KP_EV_SERVING,
    KP_EV_FENCED,
    KP_EV_DRAINING,
    KP_EV_DEREGISTERED,
    KP_EV_CONDEMNED,
    KP_EV_PARTITIONS_MOVED,
    KP_EV_VOLUME_STALL,
    KP_EV_VOLUME_FULL,
    KP_EV_VOLUME_READ_ONLY,
    KP_EV_VOLUME_WRITABLE, /* again */
    KP_EV_OFFLINE
};
struct kp_event {
    enum kp_event_kind kind;
    int32_t broker;
    enum kp_reason reason;
    int32_t count; /* partitions, for KP_EV_PARTITIONS_MOVED */
};

enum { KP_EVENTS_MAX = 256 };
struct kp_changes {
    bool active; /* decisions were made; false: still in grace, or a standby */
    bool rows; /* broker rows or homes changed: new root */
    uint32_t shards; /* bit s: topics of shard s changed */
    bool told; /* what only status shows of a row changed; also while active is false */
    bool confirm_lease; /* re-confirm the Lease before publishing (many expired at once) */
    int64_t next_ms; /* step again no later than this */
    int32_t n_events;
    struct kp_event events[KP_EVENTS_MAX];
};
/* Decides. generation: what the next published image will carry (stamped on new assignments). */
void kp_ctl_step(struct kp_ctl *c, int64_t now_ms, uint64_t generation, struct kp_changes *ret);
/* An image with this generation stands. Moves are relayed to brokers only from here on, so that an
 * operator that takes over knows every move a broker may have been told. */
void kp_ctl_published(struct kp_ctl *c, uint64_t generation);

/* ---- 4. reading ---- */

int32_t kp_ctl_rows(const struct kp_ctl *c, const struct kp_row **ret); /* sorted by id; borrowed */
const struct kp_row *kp_ctl_row(const struct kp_ctl *c, int32_t broker); /* NULL = gone */
/* Borrowed until the topic changes; *ret_n partitions. NULL: unknown topic. */
const struct kp_part *kp_ctl_parts(const struct kp_ctl *c, const struct kc_uuid *id,
                                   int32_t *ret_n);
bool kp_ctl_topic_fresh(const struct kp_ctl *c, const struct kc_uuid *id);
const int32_t *kp_ctl_homes(const struct kp_ctl *c, int32_t slot_kind); /* KP_SLOTS ids */

/* Phases to relay to a broker on its stream, oldest first, each until the phase is answered. */
struct kp_relay {
    uint64_t move_id;
    struct kp_pid p;
    int32_t from, to;
    enum kp_phase phase;
};
int32_t kp_ctl_relays(const struct kp_ctl *c, int32_t broker, struct kp_relay *ret, int32_t cap);

/* Who leads what since news number `since` (0 = the first): those that the published image may not
 * tell of yet, as they are now, at most cap, which may hold KP_LEADS_MAX. What was handed out goes up to
 * kp_ctl_leads_seq. A broker takes them by epoch: the higher one is the newer (ADR 19). */
enum { KP_LEADS_MAX = 4096 };
int32_t kp_ctl_leads(struct kp_ctl *c, uint64_t since, struct kp_lead *ret, int32_t cap);
uint64_t kp_ctl_leads_seq(const struct kp_ctl *c);

/* ---- 5. measuring a rollout ---- */

/* What clients felt since the measurement began: a gap is the time from the moment the leader of a
 * partition stopped acknowledging until an owner says that it leads (again). Gaps older than the
 * measurement count from its beginning. Percentiles are of gaps that have ended, at most 1 % high. */
struct kp_measure {
    int64_t since_ms;
    int64_t gaps; /* that have ended */
    int32_t partitions; /* that had any */
    int32_t open; /* without an acking leader now */
    int64_t p50_ms, p99_ms, max_ms; /* max_ms: those still open included */
    int32_t max_out; /* most wanted brokers that were not serving at once */
};
/* on: begins, anew. off: ends. Costs one pass over the partitions; lives with this kp_ctl alone, so
 * a new operator begins its own. */
void kp_ctl_measure(struct kp_ctl *c, bool on, int64_t now_ms);
bool kp_ctl_measured(const struct kp_ctl *c, int64_t now_ms, struct kp_measure *ret); /* is on */

#endif
