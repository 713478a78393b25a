/* ki_names.h - what a topic may be called, and which names mean something. Pure; any thread. */
#ifndef KI_NAMES_H
#define KI_NAMES_H

#include "base/kc_base.h"
#include "policy/kp_types.h"

/* Kafka's rule (Topic.validate): 1 to 249 of [a-zA-Z0-9._-], neither "." nor "..". NULL: it is kept;
 * else what Kafka says is wrong. */
const char *ki_topic_name_fault(struct kc_str name);
static inline bool ki_topic_name_valid(struct kc_str name)
{
    return ki_topic_name_fault(name) == NULL;
}
/* "a.b" and "a_b" would share the name of a metric: Kafka refuses the second (Topic.hasCollision). */
bool ki_topic_names_collide(struct kc_str a, struct kc_str b);

/* The internal topics by what their partitions are (KP_GROUP_SLOTS, KP_TXN_SLOTS), and the other way
 * round: KP_NOT_SLOTS for every other name. */
const char *ki_slot_topic_name(int32_t kind);
int32_t ki_slot_kind(struct kc_str name);

#endif
