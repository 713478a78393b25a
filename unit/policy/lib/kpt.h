/* kpt.h - a small world for the controller core: brokers in virtual time that do what real ones do.
 *
 * The brokers act on the image alone (a copy made at every publication), dial, report, open what is
 * assigned to them, take part in moves, and can be killed, frozen, wedged, stalled and drained. The
 * volume is modelled by one owner and one epoch per partition, and refuses two live owners. */
#ifndef KPT_H
#define KPT_H

#include "base/kc_rng.h"
#include "policy/kp_ctl.h"

enum { KPT_BROKERS = 12, KPT_TOPICS = 24, KPT_PARTS = 256, KPT_TICK_MS = 100 };

struct kpt_broker {
    bool listed; /* the slice names its pod */
    bool up; /* the process runs */
    bool frozen; /* it runs, but says nothing (SIGSTOP, a cut) */
    bool wedged, stalled, draining;
    enum kp_volume volume;
    bool serving; /* opened its boot set once */
    bool apart; /* its stream is not dialled (heartbeats blocked) */
    int32_t slice;
    int32_t pod; /* count of pods of this ordinal */
    int32_t grace_s; /* of its pod; 0 = the default */
    uint64_t stream;
    bool dialled, full_due;
    int64_t dial_ms, said_ms, boot_ms;
    struct kc_uuid incarnation, process;
    uint32_t protocol_version;
};

struct kpt_owner { /* of a partition on the volume */
    int32_t broker; /* -1 = sealed or never claimed */
    struct kc_uuid incarnation;
    int32_t epoch;
};

struct kpt_topic {
    struct kc_uuid id;
    int32_t n_parts, kind;
    bool deleted;
    struct kpt_owner owner[KPT_PARTS];
    bool prepared[KPT_PARTS], released[KPT_PARTS];
    uint64_t prepared_id[KPT_PARTS], released_id[KPT_PARTS];
};

struct kpt_image {
    uint64_t generation;
    int32_t n_rows;
    struct kp_row rows[KPT_BROKERS];
    struct kp_part parts[KPT_TOPICS][KPT_PARTS];
    int32_t homes[2][KP_SLOTS];
};

struct kpt {
    struct kp_ctl *c;
    int64_t now;
    uint64_t generation;
    int32_t desired;
    struct kp_changes ch; /* of the last step */
    struct kpt_broker b[KPT_BROKERS];
    int32_t n_topics;
    struct kpt_topic topics[KPT_TOPICS];
    struct kpt_image image;
    uint64_t next_stream, next_id;
    int64_t publish_delay_ms;
    int64_t stopped_ms; /* sources say that they stopped so long before their report of a release */
    int64_t publish_ms; /* a publication is under way until then; -1 = none */
    int32_t events[16]; /* counted by kind */
    int32_t confirm_leases;
    bool step_only; /* brokers do not act by themselves */
};

void kpt_init(struct kpt *w, int32_t desired);
void kpt_fini(struct kpt *w);
/* Pods 0..n-1 exist and are listed; their processes start. */
void kpt_start(struct kpt *w, int32_t n);
/* And lead all topics, each partition at its home; the test fails if they do not come to it. */
void kpt_start_settled(struct kpt *w, int32_t n);
/* The usual: a world of n brokers, settled, with one topic. */
void kpt_begin(struct kpt *w, int32_t n, int32_t n_parts);
/* A process dies, is away for so long, and starts again in the same pod. */
void kpt_crash(struct kpt *w, int32_t id, int64_t away_ms);
int32_t kpt_topic(struct kpt *w, int32_t n_parts); /* index */
int32_t kpt_slot_topic(struct kpt *w, int32_t kind); /* index */
void kpt_slices(struct kpt *w); /* sends both slices anew */
void kpt_boot(struct kpt *w, int32_t id); /* a new process in the same pod */
void kpt_new_pod(struct kpt *w, int32_t id); /* and lists it */
void kpt_kill(struct kpt *w, int32_t id); /* SIGKILL: the stream closes */
void kpt_desired(struct kpt *w, int32_t desired);
/* Lets time pass in ticks: brokers act, the controller steps, images are published. */
void kpt_run(struct kpt *w, int64_t ms);
void kpt_step(struct kpt *w);
/* A new operator takes over from the image alone; or it holds what that says, and does not decide yet. */
void kpt_operator_change(struct kpt *w);
void kpt_operator_holds(struct kpt *w);
/* What a well broker would say on its stream; for tests that speak for it. */
struct kp_status kpt_status(const struct kpt *w, int32_t id);
/* Runs until every partition is led by its home and no move is left; false after max_ms. */
bool kpt_settled(struct kpt *w);
bool kpt_await_settled(struct kpt *w, int64_t max_ms);
void kpt_dump(const struct kpt *w); /* rows, and the partitions that are not at rest */

struct kc_uuid kpt_uuid(struct kpt *w);
int32_t kpt_leader(const struct kpt *w, int32_t topic, int32_t partition); /* assigned */
const struct kp_row *kpt_row(const struct kpt *w, int32_t id);
int32_t kpt_alive(const struct kpt *w); /* rows with health Alive */

/* kpt_brokers.c */
void kpt_brokers_act(struct kpt *w);
bool kpt_condemned(const struct kpt *w, int32_t broker, const struct kc_uuid *incarnation);

#endif
