/* kpt_brokers.c - the brokers' side of the world: they act on the image and on relays alone. */
#include "kpt.h"

#include <stdio.h>
#include <string.h>

#include "kt.h"

struct report {
    struct kp_led led[KPT_TOPICS * 64];
    struct kp_moved prepared[1024], released[1024];
    struct kp_blocked blocked[1024];
    int32_t n_led, n_prepared, n_released, n_blocked;
};

bool kpt_condemned(const struct kpt *w, int32_t broker, const struct kc_uuid *incarnation)
{
    return kp_condemned(w->image.rows, w->image.n_rows, broker, incarnation);
}

/* The image names this very incarnation as alive: only then a broker claims (design.md, 4). */
static bool may_claim(const struct kpt *w, int32_t id)
{
    for (int32_t i = 0; i < w->image.n_rows; i++) {
        const struct kp_row *r = &w->image.rows[i];
        if (r->id == id) {
            return (r->health == KP_ALIVE || r->kept) && !r->condemned &&
                   kc_uuid_eq(&r->incarnation, &w->b[id].incarnation);
        }
    }
    return false;
}

static bool mine(const struct kpt *w, const struct kpt_owner *o, int32_t id)
{
    return o->broker == id && kc_uuid_eq(&o->incarnation, &w->b[id].incarnation);
}

static void dial(struct kpt *w, int32_t id)
{
    struct kpt_broker *b = &w->b[id];
    struct kp_hello h = {.broker = id,
                         .stream = ++w->next_stream,
                         .incarnation = b->incarnation,
                         .process = b->process,
                         .protocol_version = b->protocol_version};
    snprintf(h.pod_uid, sizeof(h.pod_uid), "pod-%d-%d", (int)id, (int)b->pod);
    snprintf(h.version, sizeof(h.version), "0.1.0");
    struct kc_err err;
    int rc = kp_ctl_hello(w->c, &h, w->now, &err);
    if (rc == 0) {
        b->stream = h.stream;
        b->dialled = b->full_due = true;
        b->said_ms = w->now - 1000;
        return;
    }
    b->dial_ms = w->now + 500;
    if (rc == KC_E_FENCED && !b->wedged && !b->stalled && !b->draining) {
        b->incarnation = kpt_uuid(w); /* condemned is final: another registration */
        b->serving = false;
    }
}

/* Takes or gives up one partition as the image and the volume say. */
static void act_on_part(struct kpt *w, int32_t id, struct kpt_topic *t, int32_t i,
                        const struct kp_part *want, struct report *r)
{
    struct kpt_owner *o = &t->owner[i];
    const struct kp_move *m = &want->move;
    bool involved = m->id && m->from == id && m->phase != KP_MOVE_CANCEL;
    if (mine(w, o, id)) {
        if (want->assigned != id && !involved) {
            o->broker = KP_NO_BROKER; /* no longer assigned, in no move: it seals */
        }
        return;
    }
    bool gave = t->released[i] && involved && t->released_id[i] == m->id;
    if (want->assigned != id || !may_claim(w, id) || gave || w->b[id].stalled) {
        return;
    }
    if (o->broker != KP_NO_BROKER && !kpt_condemned(w, o->broker, &o->incarnation)) {
        if (r->n_blocked < 1024) {
            r->blocked[r->n_blocked++] = (struct kp_blocked){{t->id, i}, o->broker, o->incarnation};
        }
        return;
    }
    *o = (struct kpt_owner){id, w->b[id].incarnation, o->epoch + 1};
    t->prepared[i] = t->released[i] = false;
}

static void obey(struct kpt *w, int32_t id)
{
    struct kp_relay relays[256];
    int32_t n = kp_ctl_relays(w->c, id, relays, 256);
    for (int32_t k = 0; k < n; k++) {
        const struct kp_relay *x = &relays[k];
        for (int32_t t = 0; t < w->n_topics; t++) {
            struct kpt_topic *topic = &w->topics[t];
            int32_t i = x->p.partition;
            if (!kc_uuid_eq(&topic->id, &x->p.topic_id)) {
                continue;
            }
            struct kpt_owner *o = &topic->owner[i];
            if (x->phase == KP_MOVE_PREPARE && x->to == id) {
                topic->prepared[i] = true;
                topic->prepared_id[i] = x->move_id;
            } else if (x->phase == KP_MOVE_RELEASE && x->from == id && mine(w, o, id)) {
                o->broker = KP_NO_BROKER;
                topic->released[i] = true;
                topic->released_id[i] = x->move_id;
            } else if (x->phase == KP_MOVE_GO && x->to == id && may_claim(w, id) &&
                       o->broker == KP_NO_BROKER) {
                *o = (struct kpt_owner){id, w->b[id].incarnation, o->epoch + 1};
            } else if (x->phase == KP_MOVE_CANCEL && topic->released_id[i] == x->move_id) {
                topic->released[i] = false;
            }
        }
    }
}

static void act(struct kpt *w, int32_t id, struct report *r)
{
    struct kpt_broker *b = &w->b[id];
    bool all_open = may_claim(w, id);
    r->n_led = r->n_prepared = r->n_released = r->n_blocked = 0;
    if (!b->wedged && b->dialled) {
        obey(w, id);
    }
    for (int32_t t = 0; t < w->n_topics; t++) {
        struct kpt_topic *topic = &w->topics[t];
        for (int32_t i = 0; i < topic->n_parts && !topic->deleted; i++) {
            const struct kp_part *want = &w->image.parts[t][i];
            if (!b->wedged && w->image.generation) {
                act_on_part(w, id, topic, i, want, r);
            }
            if (mine(w, &topic->owner[i], id)) {
                KT_REQUIRE(r->n_led < (int32_t)KC_ARRAY_LEN(r->led));
                r->led[r->n_led++] = (struct kp_led){topic->id, i, topic->owner[i].epoch};
            } else if (w->image.generation && want->assigned == id) {
                all_open = false;
            }
            struct kp_pid pid = {topic->id, i};
            if (topic->prepared[i] && want->move.to == id && r->n_prepared < 1024) {
                r->prepared[r->n_prepared++] = (struct kp_moved){pid, topic->prepared_id[i], 0};
            }
            if (topic->released[i] && want->move.from == id && r->n_released < 1024) {
                r->released[r->n_released++] =
                    (struct kp_moved){pid, topic->released_id[i], w->stopped_ms};
            }
        }
    }
    b->serving = b->serving || (all_open && !b->wedged);
}

static void say(struct kpt *w, int32_t id, const struct report *r)
{
    struct kpt_broker *b = &w->b[id];
    struct kp_status s = {.broker = id,
                          .stream = b->stream,
                          .incarnation = b->incarnation,
                          .healthy = !b->wedged && !b->stalled,
                          .draining = b->draining,
                          .serving = b->serving && !b->wedged && !b->stalled,
                          .stalled = b->stalled,
                          .volume = b->volume,
                          .full = true,
                          .wall_ms = w->now + 5000000,
                          .led = r->led,
                          .n_led = r->n_led,
                          .prepared = r->prepared,
                          .n_prepared = r->n_prepared,
                          .released = r->released,
                          .n_released = r->n_released,
                          .blocked = r->blocked,
                          .n_blocked = r->n_blocked};
    kp_ctl_status(w->c, &s, w->now);
    b->said_ms = w->now;
}

/* Told that it is condemned (or finding itself so in the image), a healthy process registers as a
 * new incarnation; what it owned stays behind, to be fenced and sealed. */
static void reregister(struct kpt *w, int32_t id)
{
    struct kpt_broker *b = &w->b[id];
    const struct kp_row *row = kp_ctl_row(w->c, id);
    if (row && row->condemned && kc_uuid_eq(&row->incarnation, &b->incarnation) && b->dialled &&
        !b->wedged && !b->stalled && !b->draining) {
        kp_ctl_stream_closed(w->c, id, b->stream, w->now);
        b->dialled = b->serving = false;
        b->incarnation = kpt_uuid(w);
        b->dial_ms = w->now + 200;
    }
}

void kpt_brokers_act(struct kpt *w)
{
    static struct report r;
    for (int32_t id = 0; id < KPT_BROKERS; id++) {
        struct kpt_broker *b = &w->b[id];
        if (!b->up || b->frozen) {
            continue;
        }
        if (!b->dialled && !b->apart && w->now >= b->dial_ms && w->now - b->boot_ms >= 200) {
            dial(w, id);
        }
        reregister(w, id);
        act(w, id, &r);
        if (b->dialled) {
            say(w, id, &r);
        }
    }
}
