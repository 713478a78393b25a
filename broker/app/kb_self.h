/* kb_self.h - the self-led broker: no cluster, no operator (design.md, 1, host 3).
 *
 * Hosts the same controller core as the operator (kp_ctl with self_id): one row, its own; every
 * partition of the volume assigned to it; the image lives in memory. Topics come from the volume's
 * inventory, so that what is there is adopted; admin changes go to the volume first, then into the
 * image. Owner: the control loop, except where marked. */
#ifndef KB_SELF_H
#define KB_SELF_H

#include "app/kb_admin.h"
#include "handlers/kb_context.h"
#include "health/kh_vitals.h"
#include "rt/rt_pool.h"

struct kb_self;

struct kb_self_opts {
    struct kb_app *app; /* engine and data are set */
    struct rt_loop *loop; /* control loop */
    struct rt_pool *pool; /* blocking work on the volume */
    const struct kp_listener *listeners;
    int32_t n_listeners;
    const char *version;
    bool groups; /* make the topic of the group coordinator */
    const struct kh_vitals_source *vitals; /* outlives it */
    void (*first_image)(void *ctx); /* clients can be answered from now on */
    void *ctx;
};

/* [blocking: pool] What a start needs of the volume: registers an incarnation, reads the inventory. */
struct kb_self_boot {
    struct kc_uuid incarnation;
    struct ks_inventory *inventory; /* taken over by kb_self_start */
};
int kb_self_prepare(struct ks_engine *engine, struct kb_self_boot *ret, struct kc_err *err);

/* NULL: no memory. */
struct kb_self *kb_self_start(const struct kb_self_opts *o, struct kb_self_boot *boot);
/* Seals and lets go of every partition, then done(ctx); nothing is opened any more. */
void kb_self_drain(struct kb_self *s, void (*done)(void *ctx), void *ctx);
void kb_self_free(struct kb_self *s); /* after the drain */

/* A ks_fenced_fn: lets go of everything and registers anew. */
void kb_self_fenced(struct kb_self *s, const char *why);
/* A partition's log stopped by itself. [any] */
void kb_self_stopped(struct kb_self *s, const struct kc_uuid *topic_id, int32_t partition);
/* A partition's log went on under a newer epoch. [any] */
void kb_self_epoch(struct kb_self *s, const struct kc_uuid *topic_id, int32_t partition,
                   int32_t epoch);
bool kb_self_serving(const struct kb_self *s); /* [any] */
struct kb_admin_port kb_self_admin_port(struct kb_self *s); /* [any] */

#endif
