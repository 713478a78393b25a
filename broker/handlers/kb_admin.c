/* kb_admin.c - one admin change from submission to the image that shows it; see app/kb_admin.h.
 *
 * A ticket belongs to the data loop of its request. It ends for the client at the first of: the
 * port's refusal, the image that shows the result, the deadline. Its memory goes when the port has
 * settled it, too. */
#include "app/kb_admin.h"

#include <stdio.h>
#include <string.h>

#include "base/kc_mem.h"
#include "handlers/kb_context.h"
#include "wire/kw_errors.h"

struct kb_admin_ticket {
    struct kb_app *app;
    struct kb_admin_change change; /* everything it points to is in the arena */
    struct kc_arena arena;
    struct rt_loop *loop;
    kb_admin_done done;
    void *ctx;
    struct kd_timer deadline;
    struct kb_image_waiter waiter;
    struct rt_msg settled_msg;
    struct kb_admin_result result;
    char message[256];
    bool answered, settled;
};

static void maybe_free(struct kb_admin_ticket *t)
{
    if (t->answered && t->settled) {
        kc_arena_fini(&t->arena);
        kc_free(t);
    }
}

static void answer(struct kb_admin_ticket *t, const struct kb_admin_result *r)
{
    t->answered = true;
    kd_timer_disarm(kd_timers_here(t->app->data), &t->deadline);
    kb_image_unwait(&t->waiter);
    t->done(t->ctx, r);
    maybe_free(t);
}

static void on_deadline(struct kd_timer *timer)
{
    struct kb_admin_ticket *t = KC_CONTAINER_OF(timer, struct kb_admin_ticket, deadline);
    struct kb_admin_result r = {.error = KAFKA_REQUEST_TIMED_OUT,
                                .message =
                                    "The change was not confirmed in time; it may still happen."};
    answer(t, &r);
}

static void on_image(struct kb_image_waiter *w)
{
    struct kb_admin_ticket *t = KC_CONTAINER_OF(w, struct kb_admin_ticket, waiter);
    answer(t, &t->result);
}

static void on_settled(struct rt_msg *msg)
{
    struct kb_admin_ticket *t = KC_CONTAINER_OF(msg, struct kb_admin_ticket, settled_msg);
    t->settled = true;
    if (t->answered) {
        maybe_free(t);
    } else if (t->result.error) {
        answer(t, &t->result);
    } else {
        kb_image_wait(t->app, &t->waiter, &t->result.order);
    }
}

void kb_admin_settle(struct kb_admin_ticket *t, const struct kb_admin_result *r)
{
    t->result = *r;
    snprintf(t->message, sizeof(t->message), "%s", r->message ? r->message : "");
    t->result.message = t->message;
    t->settled_msg.fn = on_settled;
    rt_post(t->loop, &t->settled_msg);
}

static bool copy_change(struct kb_admin_ticket *t, const struct kb_admin_change *c)
{
    t->change = *c;
    t->change.topic = kc_arena_strndup(&t->arena, c->topic, strlen(c->topic));
    t->change.principal = kc_arena_strndup(&t->arena, c->principal, strlen(c->principal));
    struct kb_admin_config *configs =
        kc_arena_zalloc(&t->arena, (size_t)c->n_configs + 1, sizeof(*configs));
    bool ok = t->change.topic && t->change.principal && configs;
    for (int32_t i = 0; ok && i < c->n_configs; i++) {
        const struct kb_admin_config *from = &c->configs[i];
        configs[i].name = kc_arena_strndup(&t->arena, from->name, strlen(from->name));
        configs[i].value =
            from->value ? kc_arena_strndup(&t->arena, from->value, strlen(from->value)) : NULL;
        ok = configs[i].name && (!from->value || configs[i].value);
    }
    t->change.configs = configs;
    return ok;
}

void kb_admin_submit(struct kb_app *app, const struct kb_admin_change *change, int64_t deadline_ms,
                     kb_admin_done done, void *ctx)
{
    struct kb_admin_ticket *t = kc_zalloc(sizeof(*t));
    t->app = app;
    t->loop = kd_loop(app->data, kd_here_index(app->data));
    t->done = done;
    t->ctx = ctx;
    t->deadline.fn = on_deadline;
    t->waiter.fn = on_image;
    kc_arena_init(&t->arena, 512, 1024 * 1024);
    if (!app->admin.submit || !copy_change(t, change)) {
        struct kb_admin_result r = {.error = KAFKA_COORDINATOR_NOT_AVAILABLE,
                                    .message = "The change cannot be forwarded now."};
        t->settled = true;
        answer(t, &r);
        return;
    }
    kd_timer_arm(kd_timers_here(app->data), &t->deadline, deadline_ms);
    app->admin.submit(app->admin.ctx, t, &t->change, deadline_ms);
}
