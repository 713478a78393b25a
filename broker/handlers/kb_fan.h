/* kb_fan.h - one request over many partitions: to the loops that own them, and back.
 *
 * The home loop makes an item a partition, then kb_fan_start sends one message to each owning loop.
 * run(item) is called there and kb_fan_done(item) when the item has its result, on the same loop, at
 * once or later. When all are done, done(fan) runs on the home loop. Everything lives in the
 * request's arena; items of different loops touch nothing in common but atomics. */
#ifndef KB_FAN_H
#define KB_FAN_H

#include "handlers/kb_context.h"

struct kb_fan;

/* First member of a handler's own item. */
struct kb_item {
    struct kb_fan *fan;
    struct kc_uuid topic_id;
    int32_t partition;
    int16_t error; /* set before the start: the item is not run */
    int32_t hint; /* with NOT_LEADER_OR_FOLLOWER: where the leadership went, or KP_NO_BROKER */
    int32_t next; /* next item of the same loop */
    bool left_out; /* set before a start: the item is not run by it */
    bool awaited; /* has waited for its partition once */
    struct kd_arrival arrival;
};

struct kb_leg {
    struct rt_msg msg;
    struct kb_fan *fan;
    struct rt_loop *loop;
    int32_t head, tail; /* items of this loop; -1 = none */
    int32_t at; /* serial: the one under way */
    bool stepping;
    bool more;
};

struct kb_fan {
    struct kb_req *req;
    void *items;
    size_t stride;
    int32_t n;
    bool serial; /* within a loop an item begins when the one before is done */
    void (*run)(struct kb_item *item);
    void (*done)(struct kb_fan *fan);
    struct kb_leg *legs; /* one a data loop */
    _Atomic int32_t pending;
    struct rt_msg home_msg;
};

/* Makes n zeroed items of `stride` bytes; false when req was dropped. */
bool kb_fan_init(struct kb_fan *fan, struct kb_req *req, int32_t n, size_t stride);

/* What an API has of its own, whose request is a list of topics with partitions, and whose answer has
 * the same shape. */
struct kb_fan_api {
    size_t stride; /* of its items */
    int32_t (*count)(const void *body, int32_t t); /* partitions of the request's topic t */
    bool (*room)(struct kb_fan *fan, int32_t t); /* for its answer; false when req was dropped */
    void (*set)(struct kb_item *item, int32_t t, int32_t i); /* to partition i of topic t */
    void (*run)(struct kb_item *item);
    void (*done)(struct kb_fan *fan);
};
/* An item a partition, in the request's order; false when req was dropped. */
bool kb_fan_topics(struct kb_fan *fan, struct kb_req *req, int32_t n_topics,
                   const struct kb_fan_api *api);
static inline struct kb_item *kb_fan_item(struct kb_fan *fan, int32_t i)
{
    return (struct kb_item *)(void *)((char *)fan->items + (size_t)i * fan->stride);
}
/* On the home loop; may be started again after done. */
void kb_fan_start(struct kb_fan *fan);
void kb_fan_done(struct kb_item *item);

/* Resolves a partition named by a request: sets topic_id and partition, or error (3, 100). */
void kb_item_set(struct kb_item *item, struct kc_str name, const struct kc_uuid *id,
                 int32_t partition);
/* The same of an API that knows no topic ids. */
void kb_item_set_named(struct kb_item *item, struct kc_str name, int32_t partition);
/* On the owning loop: the open partition, or NULL. With NULL either error is NOT_LEADER_OR_FOLLOWER,
 * with the hint set, and the caller ends the item; or error is 0, because the partition is on its way
 * here: the caller just returns, and run() is called again when it has come, or after 200 ms. A
 * client that follows a hint in a planned move comes a moment too early (design.md, 4). */
struct kd_part *kb_item_part(struct kb_item *item);
/* The same, and ends the item if the partition is elsewhere: with NULL the caller just returns. */
struct kd_part *kb_item_part_or_end(struct kb_item *item);
/* KIP-320: FENCED_LEADER_EPOCH (74), UNKNOWN_LEADER_EPOCH (75), or 0; -1 = not given. */
int16_t kb_check_epoch(int32_t asked, const struct ks_log *log);
/* The leader to hint at for an item that answered NOT_LEADER_OR_FOLLOWER (KIP-951), on the home loop. */
bool kb_item_leader(const struct kb_item *item, int32_t *ret_id, int32_t *ret_epoch);

#endif
