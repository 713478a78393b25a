/* kg_offsets.h - the committed offsets of one group, by topic and partition.
 *
 * What counts is what the log holds: an offset becomes visible when its append was acked, in the
 * order of the acks. An entry exists already while its first append is under way, so that a deletion
 * in between leaves a tombstone for it. One owner: the data loop of the group's slot. */
#ifndef KG_OFFSETS_H
#define KG_OFFSETS_H

#include "base/kc_map.h"
#include "base/kc_uuid.h"
#include "groups/kg_types.h"

struct kg_offset_value {
    int64_t offset;
    int32_t leader_epoch; /* -1: the client did not say */
    struct kc_str metadata;
    int64_t commit_wall_ms;
    int64_t expire_wall_ms; /* asked for by OffsetCommit 2-4, else -1 */
    struct kc_uuid topic_id; /* of the topic that had the name then; zero: not known */
};

struct kg_offset {
    int32_t partition;
    bool visible;
    int32_t under_way; /* appends not acked yet */
    struct kg_offset_value v; /* metadata is owned */
};

struct kg_topic {
    struct kc_str name; /* owned */
    int32_t n, room;
    struct kg_offset *parts; /* sorted by partition */
};

struct kg_offsets {
    struct kc_map topics; /* name -> struct kg_topic */
    int32_t n; /* entries, visible or under way */
};

void kg_offsets_init(struct kg_offsets *o);
void kg_offsets_fini(struct kg_offsets *o);

/* NULL: never committed. A visible entry or one whose append is under way. */
struct kg_offset *kg_offset_find(const struct kg_offsets *o, struct kc_str topic,
                                 int32_t partition);
const struct kg_topic *kg_offsets_topic(const struct kg_offsets *o, struct kc_str topic);

/* An append of this key begins: makes the entry if need be. false: no memory. */
bool kg_offset_begin(struct kg_offsets *o, struct kc_str topic, int32_t partition);
/* It ended: v becomes visible, or (NULL) it failed and nothing changes. An entry that is not visible
 * and has nothing under way goes. */
void kg_offset_end(struct kg_offsets *o, struct kc_str topic, int32_t partition,
                   const struct kg_offset_value *v);
/* What the log says when it is replayed. false: no memory. */
bool kg_offset_set(struct kg_offsets *o, struct kc_str topic, int32_t partition,
                   const struct kg_offset_value *v);
/* A tombstone was acked or replayed: no longer visible. */
void kg_offset_clear(struct kg_offsets *o, struct kc_str topic, int32_t partition);

/* Each entry, visible or not; NULL ends. Nothing may be added or removed meanwhile. */
struct kg_offset_iter {
    struct kc_map_iter topics;
    const struct kg_topic *topic; /* of the entry just returned */
    int32_t next;
};
struct kg_offset *kg_offset_next(const struct kg_offsets *o, struct kg_offset_iter *it);

#endif
