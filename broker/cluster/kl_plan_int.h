/* kl_plan_int.h - shared by kl_plan.c and kl_plan_step.c. */
#ifndef KL_PLAN_INT_H
#define KL_PLAN_INT_H

#include "cluster/kl_plan.h"

void kl_item_ready(struct kl_plan *p, struct kl_item *it); /* to be looked at */
void kl_item_changed(struct kl_plan *p, struct kl_item *it); /* to be reported */
void kl_item_set_state(struct kl_plan *p, struct kl_item *it, enum kl_item_state s, int64_t now_ms);
void kl_item_set_seal(struct kl_item *it, struct kc_bytes seal, int64_t end, int32_t epoch);
/* The image or a move wants it open or warm here. */
bool kl_item_wanted(const struct kl_plan *p, const struct kl_item *it);
/* It is: open, or prepared (a move homed here counts once it is prepared, R38). */
bool kl_item_there(const struct kl_item *it);

#endif
