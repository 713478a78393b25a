/* kb_context.c - the current image, and who waits for the next one.
 *
 * The image is a pointer that any thread may take a reference of. Its lowest bit is a latch that is
 * held for the few instructions between reading the pointer and counting the reference: without it a
 * writer could free the image in between. */
#include "handlers/kb_context.h"

#include <sched.h>

#include "base/kc_log.h"
#include "groups/kg_groups.h"
#include "handlers/kb_kafka_config.h"
#include "net/kn_net.h"

static struct ki_image *latch(struct kb_app *app)
{
    for (;;) {
        uintptr_t v = atomic_load_explicit(&app->image, memory_order_relaxed);
        if (!(v & 1) && atomic_compare_exchange_weak_explicit(
                            &app->image, &v, v | 1, memory_order_acquire, memory_order_relaxed)) {
            return (struct ki_image *)v;
        }
        sched_yield();
    }
}

static void unlatch(struct kb_app *app, struct ki_image *im)
{
    atomic_store_explicit(&app->image, (uintptr_t)im, memory_order_release);
}

struct ki_image *kb_image(struct kb_app *app)
{
    struct ki_image *im = latch(app);
    struct ki_image *mine = im ? ki_image_ref(im) : NULL;
    unlatch(app, im);
    return mine;
}

/* ---- waiting ---- */

static bool reached(const struct ki_image *im, const struct kp_order *order)
{
    if (!order->uid[0]) {
        return true;
    }
    struct kp_order have = im->order;
    for (size_t i = 0; i < sizeof(have.uid); i++) {
        if (have.uid[i] != order->uid[i]) {
            return true; /* another history: waiting would be for ever */
        }
        if (!have.uid[i]) {
            break;
        }
    }
    return kp_order_cmp(&have, order) >= 0;
}

static void check_waiters(void *arg)
{
    struct kb_app *app = arg;
    struct kc_list *list = &app->image_waiters[kd_here_index(app->data)];
    struct ki_image *im = kb_image(app);
    KC_LIST_EACH(it, nx, list)
    {
        struct kb_image_waiter *w = KC_LIST_ENTRY(it, struct kb_image_waiter, node);
        if (im && reached(im, &w->order)) {
            kb_image_unwait(w);
            w->fn(w);
            nx = list->next; /* fn may have taken others off */
        }
    }
    ki_image_unref(im);
}

void kb_image_wait(struct kb_app *app, struct kb_image_waiter *w, const struct kp_order *order)
{
    w->order = *order;
    struct ki_image *im = kb_image(app);
    bool now = im && reached(im, order);
    ki_image_unref(im);
    if (now) {
        w->fn(w);
        return;
    }
    w->waiting = true;
    kc_list_add_tail(&app->image_waiters[kd_here_index(app->data)], &w->node);
}

void kb_image_unwait(struct kb_image_waiter *w)
{
    if (w->waiting) {
        w->waiting = false;
        kc_list_del(&w->node);
    }
}

static void name_slots(struct kb_app *app, const struct ki_image *im)
{
    for (int32_t kind = KP_GROUP_SLOTS; kind <= KP_TXN_SLOTS; kind++) {
        const struct ki_topic *t = ki_slot_topic(im, kind);
        if (t) {
            kd_set_slot_topic(app->data, kind, &t->id);
        }
    }
}

static void limit_connections(struct kb_app *app, const struct ki_image *im)
{
    int32_t wanted = (int32_t)kb_broker_i64(app, im, "max.connections");
    int32_t max = app->connection_cap ? KC_MIN(wanted, app->connection_cap) : wanted;
    if (max < wanted && wanted != app->lowered_from) {
        app->lowered_from = wanted;
        kc_log(KC_WARN, "broker", "event=max_connections_lowered to=%d from=%d", max, wanted);
    }
    kn_limit_connections(app->net, max, (int32_t)kb_broker_i64(app, im, "max.connections.per.ip"));
}

void kb_set_image(struct kb_app *app, struct ki_image *im)
{
    if (im && app->data) {
        name_slots(app, im);
    }
    struct ki_image *old = latch(app);
    unlatch(app, im);
    ki_image_unref(old);
    if (im && app->engine) {
        struct ks_cleaner_config cleaner;
        kb_cleaner_config(app, im, &cleaner);
        ks_engine_cleaner(app->engine, &cleaner);
    }
    if (im && app->net) {
        limit_connections(app, im);
    }
    if (im && app->groups) {
        kg_groups_image(app->groups, im);
    }
    for (int32_t i = 0; im && app->data && i < kd_n_loops(app->data); i++) {
        rt_call(kd_loop(app->data, i), check_waiters, app);
    }
}

void kb_app_init(struct kb_app *app)
{
    for (size_t i = 0; i < KC_ARRAY_LEN(app->image_waiters); i++) {
        kc_list_init(&app->image_waiters[i]);
    }
}
