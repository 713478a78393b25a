/* kp_internal.h - the state of the controller core, shared by the files of common/policy only. */
#ifndef KP_INTERNAL_H
#define KP_INTERNAL_H

#include "policy/kp_ctl.h"
#include "policy/kp_drain.h"

enum {
    KP_SLICES_MAX = 64, /* a slice holds up to 100 endpoints: far more than KP_BROKERS_MAX needs */
    KP_SLICE_KEY_MAX = 320,
    KP_PAST_MAX = 8, /* former incarnations remembered per broker */
    KP_WAVE = 8, /* moves released at once per pair of brokers (design.md, 4), */
    KP_WAVE_MAX = 16, /* where a drain would else take more than half of its time, */
    KP_WAVE_MS = 50, /* if a wave takes so long */
    KP_FIRST_STATUS_MS = 10000, /* hello without a status: W6 allows 5 s */
    KP_STALL_WINDOW_MS = 10000, /* half the brokers within this: the volume (design.md, 3) */
    KP_HOLD_MS = 10000, /* of serving before failback; doubles per crash */
    KP_HOLD_MAX_MS = 300000,
    KP_CALM_MS = 600000, /* alive this long: former crashes are forgotten */
    KP_GRACE_MS = 3000, /* R62 */
    KP_COLD_WAIT_MS = 10000, /* R62: nobody, or only a minority, is connected */
    KP_FIRST_WAIT_MS = 30000, /* R62: no assignment yet */
    KP_BLOCKED_MS = 3000, /* design.md, 4 */
    KP_PREPARE_MS = 5000, /* of a drain, at most half of it: then released unprepared */
    KP_RELEASE_MS = 3000,
    KP_GO_MS = 5000,
    KP_CANCEL_MS = 3000, /* how long a cancelled move is still told */
    KP_RETRY_MS = 30000, /* after a move that timed out */
    KP_SEEN_COARSE_MS = 30000, /* R13: lastSeen is written no more often while nothing else is */
    KP_GAP_HALF = 128, /* buckets of the histogram of gaps (kp_gaps.c): exact below 256 ms, */
    KP_GAP_BUCKETS = 26 * KP_GAP_HALF, /* then 128 for each power of two up to 2^32 ms */
    KP_NEWS_MAX = KP_LEADS_MAX, /* new leaders remembered until an image tells of them */
    KP_MOVE_SEQ_BITS = 24 /* move id = generation << bits | sequence */
};

#define KP_NEVER INT64_MAX

struct kp_peer {
    bool registered;
    /* Slice facts, kept also for ordinals not (yet) registered. */
    uint64_t listed; /* bit per slice that lists the ordinal */
    bool ready;
    int64_t created_ms;
    char pod_uid[40];
    char host[KP_HOST_MAX + 1];
    int32_t grace_s;
    /* The stream. */
    uint64_t stream;
    bool open;
    int64_t last_ms; /* last message, monotonic */
    int64_t close_ms; /* when it closed; -1: was never open here */
    int64_t hello_ms;
    int64_t life_ms; /* its last healthy word, or when its stream closed; -1 = nothing heard here */
    struct kc_uuid process;
    struct kc_uuid past[KP_PAST_MAX]; /* ring of superseded incarnations: never admitted again */
    int32_t n_past;
    /* Its last word. */
    bool status_seen; /* at least one status of the row's incarnation */
    bool healthy, draining, serving, stalled;
    enum kp_volume volume;
    int64_t drain_ms, stall_ms, serving_ms, alive_ms; /* since when; -1 = not */
    /* Verdicts of the last evaluation. */
    bool connected;
    bool silent_held; /* expired together with others: one more timeout (W4, design.md 3) */
    bool condemn; /* asked for by the blocked rule */
    bool member; /* of the alive set */
    bool condemned; /* as the row says */
    enum kp_health health;
    int32_t crashes;
    int64_t seen_written_ms;
    /* Loads. */
    int32_t n_home; /* data partitions at home here */
    int32_t n_assigned[3]; /* partitions assigned, by slot kind; [KP_NOT_SLOTS]: data */
    int32_t n_coming[3]; /* by moves that have not reached go; recounted in each pass */
    int32_t n_led, n_led_slots;
};

struct kp_aux {
    int64_t blocked_ms; /* since when; -1 = not */
    int64_t retry_ms; /* no planned move before */
    struct kc_uuid blocked_inc;
    int32_t blocked_by;
    uint32_t seen; /* stamp of the full report that named it last */
    bool blocked_handed; /* assigned to the blocking owner; it must lead soon */
    bool prepared, released;
    int64_t release_ms; /* when the move's release was ordered here; -1 = not */
    int64_t gap_ms; /* without an acking leader since; -1 = has one, or never had */
    uint32_t gap_window; /* the measurement that has counted this partition */
};

struct kp_topic {
    struct kc_uuid id;
    bool internal, fresh, deleted;
    int32_t slot_kind;
    int32_t n_parts;
    int32_t shard;
    int32_t fill_count; /* scratch of kp_homes */
    struct kp_part *parts;
    struct kp_aux *aux;
};

/* A rollout as measured (kp_gaps.c). */
struct kp_gaps {
    bool on;
    uint32_t window; /* counts measurements */
    int64_t since_ms;
    int64_t count, max_ms; /* gaps that have ended */
    int32_t partitions; /* that had any */
    int32_t max_out; /* wanted brokers not serving at once */
    uint32_t buckets[KP_GAP_BUCKETS];
};

/* A partition that has got a leader (kp_news.c). */
struct kp_news {
    struct kp_pid p;
    uint64_t until; /* an image of this generation tells of it */
};

struct kp_candidate; /* kp_homes.c */

struct kp_ctl {
    struct kp_ctl_opts o;
    int64_t now_ms; /* of the fact or step at hand */
    int32_t desired;
    char slices[KP_SLICES_MAX][KP_SLICE_KEY_MAX]; /* "" = free */
    struct kp_peer peers[KP_BROKERS_MAX]; /* by ordinal */
    struct kp_row rows[KP_BROKERS_MAX]; /* compact, sorted */
    int32_t n_rows;
    /* Topics: an open-addressed table of pointers, and the same densely. */
    struct kp_topic **table;
    int32_t table_cap;
    struct kp_topic **topics;
    int32_t n_topics, topics_cap;
    int32_t n_live_topics, n_data_parts; /* what the limits count: no tombstones, no internal */
    struct kp_candidate *scratch; /* room to sort every data partition */
    int32_t scratch_len;
    int32_t homes[2][KP_SLOTS];
    /* Being active. */
    bool active, decided;
    int64_t activated_ms, first_status_ms; /* -1 = not yet */
    uint64_t generation, published;
    uint64_t move_generation;
    uint32_t move_seq;
    /* Holds. */
    int64_t mass_until_ms; /* -1 = no hold */
    bool outage; /* the never-empty rule speaks; members wait for each other */
    int64_t outage_return_ms; /* the first came back; -1 = nobody yet */
    bool volume_stall;
    /* Dirt. */
    bool registry_dirty; /* homes must be laid out again */
    bool layout_dirty; /* partitions without a home */
    bool assign_dirty;
    bool rows_dirty;
    bool told_dirty; /* what only status shows */
    bool confirm_lease;
    uint32_t shards_dirty;
    uint32_t report_seq;
    int64_t scan_ms; /* look at partitions no later than this */
    int32_t n_moves;
    int32_t moved[KP_BROKERS_MAX]; /* partitions that came to a broker in this step */
    int32_t wave[KP_BROKERS_MAX][KP_BROKERS_MAX]; /* scratch: moves under way by pair */
    struct kp_event events[KP_EVENTS_MAX];
    int32_t n_events;
    struct kp_gaps gaps;
    struct kp_news news[KP_NEWS_MAX]; /* a ring */
    uint64_t news_seq; /* entries ever written */
};

/* kp_registry.c */
struct kp_row *kp_row_of(struct kp_ctl *c, int32_t broker); /* NULL = not registered */
void kp_registry_sync(struct kp_ctl *c);
void kp_registry_add(struct kp_ctl *c, int32_t broker);

/* kp_liveness.c: fills connected and holds, decides the members. */
void kp_liveness_eval(struct kp_ctl *c, int64_t now_ms);
int64_t kp_liveness_next(const struct kp_ctl *c, int64_t now_ms);

/* R29: what the pod of this broker leaves it. */
static inline struct kp_drain kp_drain_time(const struct kp_peer *p)
{
    return kp_drain_of(p->grace_s ? p->grace_s : KP_GRACE_DEFAULT_S);
}

/* kp_rows.c */
void kp_rows_update(struct kp_ctl *c, int64_t now_ms);
/* Which brokers owe a report (ADR 22): decides nothing. Returns when the next one will. */
int64_t kp_rows_silent(struct kp_ctl *c, int64_t now_ms);
void kp_rows_loads(struct kp_ctl *c); /* counts, after the assignment */
void kp_event_add(struct kp_ctl *c, enum kp_event_kind kind, int32_t broker, enum kp_reason reason,
                  int32_t count);

/* kp_topics.c */
struct kp_topic *kp_topic_find(const struct kp_ctl *c, const struct kc_uuid *id);
/* The partition, or NULL. */
struct kp_part *kp_part_find(struct kp_ctl *c, const struct kp_pid *p, struct kp_topic **ret_t);
static inline bool kp_is_slots(const struct kp_topic *t)
{
    return t->slot_kind != KP_NOT_SLOTS;
}

/* kp_slots.c: lays homes of a kind out over the registered brokers, moving the fewest (W8). */
void kp_slots_layout(struct kp_ctl *c, int32_t kind);

/* kp_homes.c: gives every partition a home, after the slots have theirs. */
void kp_homes_layout(struct kp_ctl *c);
uint64_t kp_score(const struct kc_uuid *topic, int32_t partition, int32_t broker);

/* kp_assign.c */
void kp_assign(struct kp_ctl *c, int64_t now_ms);
/* alive: a member whose row says Alive, thus a target of decisions. */
bool kp_alive_member(const struct kp_ctl *c, int32_t broker);
bool kp_member(const struct kp_ctl *c, int32_t broker);
/* The member best suited for a partition that has to leave; KP_NO_BROKER if there is none. */
int32_t kp_pick(const struct kp_ctl *c, const struct kp_topic *t, int32_t partition);
void kp_set_assigned(struct kp_ctl *c, struct kp_topic *t, int32_t partition, int32_t broker);
void kp_set_led(struct kp_ctl *c, struct kp_topic *t, int32_t partition, int32_t broker,
                const struct kc_uuid *incarnation, int32_t epoch);
/* It is led by broker's present incarnation. */
bool kp_leads(const struct kp_ctl *c, const struct kp_part *p, int32_t broker);
void kp_dirty_part(struct kp_ctl *c, const struct kp_topic *t);
void kp_wake(struct kp_ctl *c, int64_t at_ms);

/* kp_move.c */
void kp_move_start(struct kp_ctl *c, struct kp_topic *t, int32_t partition, int32_t to);
void kp_move_step(struct kp_ctl *c, struct kp_topic *t, int32_t partition, int64_t now_ms);
void kp_moves_count(struct kp_ctl *c);

/* kp_gaps.c: a gap begins, unless one has already, at a known time; */
void kp_gap_open(struct kp_topic *t, int32_t partition, int64_t since_ms);
/* with the death of the broker's incarnation: at its last sign of life; */
void kp_gap_died(struct kp_ctl *c, struct kp_topic *t, int32_t partition, int32_t broker);
/* with a release: stopped_ms ago by the source's word, 0 = it does not say. */
void kp_gap_released(struct kp_ctl *c, struct kp_topic *t, int32_t partition, int64_t stopped_ms);
void kp_gap_close(struct kp_ctl *c, struct kp_topic *t, int32_t partition); /* it is led */
void kp_gaps_rows(struct kp_ctl *c); /* rows were made anew */

/* kp_news.c */
void kp_news_led(struct kp_ctl *c, const struct kp_topic *t, int32_t partition);

/* kp_reports.c */
void kp_reports_new_incarnation(struct kp_ctl *c, int32_t broker);

#endif
