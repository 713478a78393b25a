/* kg_group.h - one classic consumer group as data: members, protocols, votes.
 *
 * The shape of Kafka's GroupMetadata (KIP-62, KIP-345, KIP-394). No transitions here (kg_step.h) and
 * no committed offsets (kg_offsets.h). One owner: the data loop of the group's slot. Strings and byte
 * ranges of a group are its own copies, terminated. */
#ifndef KG_GROUP_H
#define KG_GROUP_H

#include "base/kc_map.h"
#include "groups/kg_types.h"

enum kg_state { KG_EMPTY, KG_PREPARING, KG_COMPLETING, KG_STABLE, KG_DEAD };
/* "Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead": the names clients see. */
const char *kg_state_name(enum kg_state s);

struct kg_protocol {
    struct kc_str name;
    struct kc_bytes metadata;
};

struct kg_member {
    struct kc_str id;
    struct kc_str instance_id; /* null for a dynamic member (KIP-345) */
    struct kc_str client_id;
    struct kc_str client_host;
    int32_t session_timeout_ms;
    int32_t rebalance_timeout_ms;
    int32_t n_protocols;
    struct kg_protocol *protocols; /* in the member's order of preference */
    size_t protocol_bytes; /* of names and metadata together */
    struct kc_bytes assignment; /* of the stable generation */
    struct kc_bytes staged; /* from the leader, not yet durable */
    bool is_new; /* joining for the first time: it cannot send heartbeats yet */
    bool pending_sync; /* has its join answer, has not sent SyncGroup */
    void *join_req; /* a parked JoinGroup, or NULL */
    void *sync_req; /* a parked SyncGroup, or NULL */
    bool join_can_skip; /* of join_req: v9, may be told to skip the assignment */
    struct kc_str prior_id; /* a static member's id before the current one, or null */
    int64_t deadline_ms; /* session; INT64_MAX while a parked request keeps it alive */
};

/* A member id given out by error 79 and not used yet (KIP-394). */
struct kg_pending {
    struct kc_str id;
    int64_t deadline_ms;
};

struct kg_group {
    struct kc_str id;
    enum kg_state state;
    int64_t state_wall_ms; /* when the state last changed (currentStateTimestamp) */
    int32_t generation;
    struct kc_str protocol_type; /* null: only simple commits so far */
    struct kc_str protocol_name; /* null while there is no generation */
    struct kc_str leader; /* null: no member */

    int32_t n_members, room_members;
    struct kg_member **members; /* in order of joining */
    struct kc_map by_id; /* id -> member */
    struct kc_map by_instance; /* instance id -> member */
    int32_t n_pending, room_pending;
    struct kg_pending *pending;
    struct kc_map pending_at; /* id -> its place in pending + 1, as a number */
    size_t bytes; /* protocols and assignments of all members: bounded (KG_GROUP_BYTES_MAX) */

    bool initial_join; /* the first rebalance of an empty group: waits out its delay */
    bool new_member_added; /* during it, so that it may be extended */
    int64_t initial_left_ms; /* how much it may still be extended */
    int64_t join_deadline_ms; /* INT64_MAX: none */
    int64_t sync_deadline_ms; /* INT64_MAX: none */
    int64_t wake_ms; /* no deadline is earlier: when kg_tick is due */
};

void kg_group_init(struct kg_group *g, struct kc_str id, int64_t wall_ms);
/* Parked requests must have been answered before (kg_group_abandon). */
void kg_group_fini(struct kg_group *g);

struct kg_member *kg_member_find(const struct kg_group *g, struct kc_str id);
struct kg_member *kg_member_by_instance(const struct kg_group *g, struct kc_str instance_id);
bool kg_group_is_leader(const struct kg_group *g, struct kc_str id);

/* What a member is made from. Strings and bytes are borrowed and copied. */
struct kg_member_spec {
    struct kc_str id, instance_id, client_id, client_host;
    int32_t session_timeout_ms, rebalance_timeout_ms;
    int32_t n_protocols;
    const struct kg_protocol *protocols;
};
/* Adds a member, which becomes the leader if there is none. NULL: no memory. */
struct kg_member *kg_member_add(struct kg_group *g, const struct kg_member_spec *spec);
/* Removes and frees it; the first of the others becomes leader if it was. */
void kg_member_remove(struct kg_group *g, struct kg_member *m);
/* New timeouts and protocols of a member that joins again. false: no memory, nothing changed. */
bool kg_member_update(struct kg_group *g, struct kg_member *m, const struct kg_member_spec *spec);
/* The static member m comes back as another process (KIP-345): same place, new id. */
void kg_member_rename(struct kg_group *g, struct kg_member *m, struct kc_str new_id);
/* Copies bytes into *field (assignment or staged). false: no memory. */
bool kg_member_set(struct kg_group *g, struct kc_bytes *field, struct kc_bytes value);
/* The staged assignment becomes the assignment. */
void kg_member_promote(struct kg_group *g, struct kg_member *m);
/* Same protocols, in the same order, with the same bytes. */
bool kg_member_matches(const struct kg_member *m, const struct kg_protocol *protocols, int32_t n);
/* Its metadata for the group's protocol, or empty. */
struct kc_bytes kg_member_metadata(const struct kg_group *g, const struct kg_member *m);

bool kg_pending_has(const struct kg_group *g, struct kc_str id);
bool kg_pending_add(struct kg_group *g, struct kc_str id, int64_t deadline_ms); /* false: full */
bool kg_pending_remove(struct kg_group *g, struct kc_str id); /* false: not there */

/* Whether a member with these protocols can be in the group: the type is the group's and one
 * protocol is supported by all; any non-empty set fits an empty group. */
bool kg_group_supports(const struct kg_group *g, struct kc_str type,
                       const struct kg_protocol *protocols, int32_t n);
/* The vote: every member votes for the first of its protocols that all support; most votes win, the
 * earlier in the first member's order on a tie. Null without members. Borrows. */
struct kc_str kg_group_vote(const struct kg_group *g);
int32_t kg_group_rebalance_timeout_ms(const struct kg_group *g); /* the largest of the members' */
bool kg_group_all_joined(const struct kg_group *g);

/* Whether the group, of protocol type "consumer", reads the topic: by the subscriptions of all
 * members. A subscription that cannot be read counts as "yes": its offsets are then kept. */
bool kg_group_subscribed(const struct kg_group *g, struct kc_str topic);

/* Owned copies with a terminator; a null view stays null. */
bool kg_str_set(struct kc_str *field, struct kc_str value);
void kg_str_clear(struct kc_str *field);

#endif
