/* kb_context.h - what every handler can reach: the parts of the broker and its current image.
 *
 * One a process, made by broker/app, which fills the pointers before the first connection is
 * accepted; afterwards only the image and the flags change. */
#ifndef KB_CONTEXT_H
#define KB_CONTEXT_H

#include "app/kb_admin.h"
#include "app/kb_req.h"
#include "data/kd_data.h"
#include "handlers/kb_metrics.h"
#include "net/kn_net.h"

struct kg_groups;
struct kb_fetch_sessions;

/* A listener of this broker, as clients see it. */
struct kb_endpoint {
    const char *name;
    const char *host; /* advertised */
    uint16_t port; /* advertised */
};

struct kb_app {
    int32_t self_id;
    const char *rack; /* "" = none */
    int32_t n_endpoints;
    struct kb_endpoint endpoints[KP_LISTENERS_MAX];
    int32_t n_configs; /* Kafka keys of this broker's file */
    const struct ki_config *configs;
    char cluster_id[KC_UUID_B64_LEN + 1];
    struct kd_data *data;
    struct ks_engine *engine;
    struct kg_groups *_Atomic groups; /* NULL until the volume is open */
    struct kb_fetch_sessions *fetch_sessions;
    struct kn_server *net;
    int32_t connection_cap; /* whatever max.connections says; 0 = none */
    int32_t lowered_from; /* the max.connections above it that was last complained of */
    struct kb_admin_port admin;
    struct kb_metrics metrics;
    _Atomic bool draining;
    _Atomic uintptr_t image; /* struct ki_image *, bit 0 = a latch; see kb_context.c */
    struct kc_list image_waiters[KD_LOOPS_MAX]; /* one a data loop, its own */
};

/* Prepares a zeroed context; the caller fills the rest. */
void kb_app_init(struct kb_app *app);

/* The fetch sessions of all data loops (kb_fetch_ask.c); before the loops start, and after they ended. */
struct kb_fetch_sessions *kb_fetch_sessions_new(struct kb_app *app);
void kb_fetch_sessions_free(struct kb_fetch_sessions *all); /* NULL allowed */

/* Publishes an image: takes the reference, lets go of the previous one, wakes whoever waits for it.
 * NULL only to let go at the end. [one thread at a time] */
void kb_set_image(struct kb_app *app, struct ki_image *im);

/* Called once on a data loop when an image of this order or a newer one (or of another uid) is in
 * force: at once if it is. Disarm with kb_image_unwait. Owner: that loop. */
struct kb_image_waiter {
    struct kc_list node;
    struct kp_order order;
    void (*fn)(struct kb_image_waiter *w);
    bool waiting;
};
void kb_image_wait(struct kb_app *app, struct kb_image_waiter *w, const struct kp_order *order);
void kb_image_unwait(struct kb_image_waiter *w);

#endif
