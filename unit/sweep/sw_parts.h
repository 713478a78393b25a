/* sw_parts.h - the requests that scenarios are made of; each true when all went well. */
#ifndef SW_PARTS_H
#define SW_PARTS_H

#include "base/kc_str.h"
#include "sw.h"

#define SW_TOPIC KC_STR_LIT("sweep")

bool sw_produce_acks_0(struct sw *s);
bool sw_produce_acks_1(struct sw *s);
bool sw_produce_acks_all(struct sw *s);
bool sw_produce_idempotent(struct sw *s);
bool sw_fetch(struct sw *s);
bool sw_fetch_long(struct sw *s);
bool sw_list_offsets(struct sw *s);
bool sw_epochs(struct sw *s);
bool sw_create(struct sw *s, struct kc_str name, int32_t partitions, struct kc_uuid *ret_id);
bool sw_delete(struct sw *s, struct kc_str name);
bool sw_topic_admin(struct sw *s);
bool sw_describe_configs(struct sw *s);
bool sw_delete_records(struct sw *s);
bool sw_describe_topics(struct sw *s);
bool sw_metadata(struct sw *s);
bool sw_verify_records(struct sw *s);

bool sw_membership(struct sw *s);
bool sw_offsets(struct sw *s);
bool sw_group_admin(struct sw *s);
bool sw_find_coordinator(struct sw *s);
bool sw_verify_offsets(struct sw *s);
bool sw_coordinates(struct sw *s); /* every slot is open */

#endif
