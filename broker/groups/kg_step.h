/* kg_step.h - the classic group protocol: transitions of one group.
 *
 * Pure: no I/O, no clock. Each function takes one input (a request, an elapsed deadline, an append's
 * result) with the time in struct kg_step and appends actions: requests to answer, states to persist.
 * The caller performs the actions in order, then resets the list. Afterwards it must see to it that
 * kg_tick runs at g->wake_ms.
 *
 * The answers are those of research on real brokers (Kafka 3.7's GroupCoordinator, which 4.4 keeps
 * for classic groups). Checks that need no group (empty id, session bounds, not the coordinator) are
 * the caller's (kg_coord.h). */
#ifndef KG_STEP_H
#define KG_STEP_H

#include "base/kc_arena.h"
#include "groups/kg_group.h"

struct kg_join_member { /* what the leader is told of a member */
    struct kc_str id, instance_id;
    struct kc_bytes metadata;
};

struct kg_join_out {
    int16_t error;
    int32_t generation; /* -1 with an error */
    struct kc_str protocol_type, protocol_name, leader, member_id;
    bool skip_assignment; /* v9+ */
    int32_t n_members; /* 0 for all but the leader */
    struct kg_join_member *members;
};

struct kg_sync_out {
    int16_t error;
    struct kc_str protocol_type, protocol_name;
    struct kc_bytes assignment; /* empty with an error */
};

enum kg_persist {
    KG_PERSIST_EMPTY, /* the group lost its last member; nobody waits for it */
    KG_PERSIST_ASSIGNMENT, /* the leader's assignment is staged; kg_persisted makes it effective */
    KG_PERSIST_STATIC /* a static member has a new id; kg_persisted answers its JoinGroup */
};

enum kg_action_kind { KG_DO_JOIN_REPLY, KG_DO_SYNC_REPLY, KG_DO_PERSIST };

struct kg_action {
    enum kg_action_kind kind;
    void *req; /* of replies */
    union {
        struct kg_join_out join;
        struct kg_sync_out sync;
        struct {
            enum kg_persist what;
            int32_t generation; /* hand back to kg_persisted */
            struct kc_str member; /* KG_PERSIST_STATIC: hand back, too */
        } persist;
    };
};

/* One step: time and settings in, actions out. What actions point at lives until kg_step_fini. */
struct kg_step {
    const struct kg_config *cfg;
    int64_t now_ms; /* monotonic */
    int64_t wall_ms;
    struct kc_arena arena;
    int32_t n_actions, room_actions;
    struct kg_action *actions;
    const char *why; /* what made a rebalance start in this step, or NULL: for the log */
    struct kc_str reason; /* the client's own words for what it does (KIP-800), or null */
};

void kg_step_init(struct kg_step *s, const struct kg_config *cfg);
void kg_step_fini(struct kg_step *s);

struct kg_join_in {
    void *req;
    struct kg_member_spec spec; /* spec.id "" = a new member */
    struct kc_str new_id; /* for a new member: "<client or instance id>-<uuid>" */
    struct kc_str protocol_type;
    bool require_known_id; /* v4+: answer 79 first (KIP-394) */
    bool can_skip; /* v9+ */
};
/* The group must not be Dead; the request is answered now or parked. */
void kg_join(struct kg_group *g, struct kg_step *s, const struct kg_join_in *in);

struct kg_who { /* how a request names its sender */
    struct kc_str member_id, instance_id;
    int32_t generation;
};
struct kg_assignment {
    struct kc_str member_id;
    struct kc_bytes bytes;
};
struct kg_sync_in {
    void *req;
    struct kg_who who;
    struct kc_str protocol_type, protocol_name; /* v5+, else null: not checked */
    int32_t n_assignments;
    const struct kg_assignment *assignments;
};
void kg_sync(struct kg_group *g, struct kg_step *s, const struct kg_sync_in *in);

/* Both return the answer's error code. */
int16_t kg_heartbeat(struct kg_group *g, struct kg_step *s, const struct kg_who *who);
/* One member of a LeaveGroup; member_id "" with an instance id is an administrator's removal. */
int16_t kg_leave(struct kg_group *g, struct kg_step *s, const struct kg_who *who);

/* Whether a commit by who is welcome now: 0, 22, 25, 27, 82; a member's commit counts as a sign of
 * life, as in Kafka. Simple consumers (generation < 0, no member) may commit to an Empty group. */
int16_t kg_may_commit(struct kg_group *g, struct kg_step *s, const struct kg_who *who);

/* The append asked for by KG_DO_PERSIST ended; error is what clients are told. */
void kg_persisted(struct kg_group *g, struct kg_step *s, enum kg_persist what, int32_t generation,
                  struct kc_str member, int16_t error);

/* Deadlines up to s->now_ms have passed. */
void kg_tick(struct kg_group *g, struct kg_step *s);

/* The group was read from the log: sessions of its members start now. */
void kg_group_resume(struct kg_group *g, struct kg_step *s);
/* The slot leaves this broker, or the group is deleted: every parked request is answered with
 * error and the group is Dead. */
void kg_group_abandon(struct kg_group *g, struct kg_step *s, int16_t error);

#endif
