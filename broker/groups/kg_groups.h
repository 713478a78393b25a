/* kg_groups.h - the coordinator of a running broker: kg_coord.h on its data loops and logs.
 *
 * Made before the first log is installed (the hooks are set then), freed after the data loops ended
 * and before kd_free. Until an image names the topic of offsets and one of its partitions is opened, every
 * answer is NOT_COORDINATOR. */
#ifndef KG_GROUPS_H
#define KG_GROUPS_H

#include "groups/kg_coord.h"
#include "groups/kg_pids.h"
#include "image/ki_image.h"

struct kg_groups;

struct kg_groups_opts {
    struct kd_data *data;
    struct ks_engine *engine; /* NULL: comes later, by kg_groups_set_engine */
    struct kg_config config;
};
struct kg_groups *kg_groups_new(const struct kg_groups_opts *opts);
/* Once the volume is open, and before a log of it is installed. [any] */
void kg_groups_set_engine(struct kg_groups *g, struct ks_engine *engine);
void kg_groups_free(struct kg_groups *g); /* NULL allowed */
/* For kd_set_slot_hooks. */
struct kd_slot_hooks kg_groups_hooks(struct kg_groups *g);
/* A new image is in force: offsets of topics that it marks deleted go. Takes no reference beyond
 * the call. [any thread, one at a time] */
void kg_groups_image(struct kg_groups *g, struct ki_image *im);
void kg_groups_metrics(const struct kg_groups *g, struct kg_metrics *ret); /* [any] */

/* Where an id's coordinator is decided (W2): the slot is kc_coordinator_slot(id) of the internal topic
 * of kind KP_GROUP_SLOTS or KP_TXN_SLOTS, and the coordinator is whoever leads that partition. NULL:
 * the image has no such topic yet. [any] */
const struct ki_topic *kg_slot_topic(const struct ki_image *im, int32_t slot_kind);
int32_t kg_slot_of(struct kc_str id);

/* The loop that owns the slot of a group; NULL: the image has no topic of offsets yet. [any] */
struct rt_loop *kg_groups_loop(struct kg_groups *g, const struct ki_image *im, struct kc_str group);
/* The shard of the calling data loop. */
struct kg_shard *kg_shard_here(struct kg_groups *g);
struct kg_pids *kg_groups_pids(struct kg_groups *g);
int32_t kg_loop_here(const struct kg_groups *g); /* index of the calling data loop */

#endif
