/* kg_step_int.h - shared by the files of the step machine only. */
#ifndef KG_STEP_INT_H
#define KG_STEP_INT_H

#include "groups/kg_step.h"

/* Notes a deadline: kg_tick must not run later than this. */
void kgi_arm(struct kg_group *g, int64_t at_ms);
/* A sign of life: the member's session starts anew. */
void kgi_alive(struct kg_group *g, struct kg_step *s, struct kg_member *m);
void kgi_set_state(struct kg_group *g, struct kg_step *s, enum kg_state state);

/* Answers with an error; member_id is echoed (may be ""). */
void kgi_join_error(struct kg_step *s, void *req, struct kc_str member_id, int16_t error);
/* Answers with the current generation; the leader gets all members if with_members. */
void kgi_join_ok(struct kg_group *g, struct kg_step *s, void *req, const struct kg_member *m,
                 bool with_members);
void kgi_sync_error(struct kg_step *s, void *req, int16_t error);
void kgi_sync_ok(struct kg_group *g, struct kg_step *s, void *req, const struct kg_member *m);
struct kg_action *kgi_action(struct kg_step *s, enum kg_action_kind kind, void *req);
struct kc_str kgi_copy(struct kg_step *s, struct kc_str v);

/* Answers every parked SyncGroup with error: whoever waits for an assignment has to join again. */
void kgi_fail_syncs(struct kg_group *g, struct kg_step *s, int16_t error);
/* kg_persisted for an assignment. */
void kgi_assigned(struct kg_group *g, struct kg_step *s, int32_t generation, int16_t error);
/* Starts a rebalance if the state allows one. */
void kgi_rebalance(struct kg_group *g, struct kg_step *s, const char *why);
/* Ends the join phase if everybody is there. */
void kgi_try_complete(struct kg_group *g, struct kg_step *s);
/* Removes a member: parked requests are answered 25; the group rebalances or its join phase ends. */
void kgi_drop(struct kg_group *g, struct kg_step *s, struct kg_member *m, const char *why);
/* 0, 25 or 82: whether who names a current member (KIP-345). */
int16_t kgi_validate(const struct kg_group *g, const struct kg_who *who);

#endif
