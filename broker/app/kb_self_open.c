/* kb_self_open.c - opens what is assigned to the self-led broker, lets go of what is not wanted.
 *
 * On the control loop; the takeovers themselves run on the engine's pools. Failure modes: a failed
 * open is retried with a doubling pause; corruption is permanent and makes the partition offline
 * without holding up the rest (R45). */
#include "app/kb_self_int.h"

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "handlers/kb_kafka_config.h"

static void idle(struct kb_self_part *p)
{
    p->state = KB_PART_IDLE;
    p->self->n_held--;
    kb_self_soon(p->self);
}

/* ---- releasing ---- */

static void on_released(void *ctx, int rc, struct kc_bytes seal, int64_t end_offset, int32_t epoch)
{
    struct kb_self_part *p = ctx;
    (void)seal;
    (void)end_offset;
    (void)epoch;
    if (rc && rc != KC_E_NOT_FOUND) {
        kc_log(KC_WARN, "self", "event=release_failed topic=%s partition=%d error=\"%s\"",
               p->topic->name, p->partition, kc_strerror(rc));
    }
    p->self->report_full = true;
    idle(p);
}

void kb_self_release(struct kb_self_part *p, bool seal)
{
    p->state = KB_PART_RELEASING;
    kd_release(p->self->o.app->data, &p->topic->id, p->partition, seal, KP_NO_BROKER,
               p->self->o.loop, on_released, p);
}

/* ---- opening ---- */

/* There is no other broker: every incarnation but the one our row names may be fenced. [pool] */
static bool condemned(void *ctx, int32_t broker, const struct kc_uuid *incarnation)
{
    struct kb_self *s = ctx;
    struct ki_image *im = kb_image(s->o.app);
    bool yes = im && kp_condemned(im->rows, im->n_rows, broker, incarnation);
    ki_image_unref(im);
    return yes;
}

static void on_installed(void *ctx)
{
    struct kb_self_part *p = ctx;
    p->state = KB_PART_OPEN;
    p->attempts = 0;
    p->self->report_full = true;
    kb_self_soon(p->self);
}

static void open_failed(struct kb_self_part *p, int rc, const struct kc_err *err)
{
    struct kb_self *s = p->self;
    if (rc == KC_E_NOT_FOUND && !p->may_create) {
        /* Its topic is on the volume and it is not: the process that made the topic ended before it
         * opened the partition. */
        p->may_create = true;
        p->retry_ms = 0;
        return;
    }
    p->permanent = rc == KC_E_CORRUPT;
    int64_t wait = (int64_t)KB_SELF_RETRY_MS << KC_MIN(p->attempts++, 8);
    p->retry_ms = kc_mono_ms() + KC_MIN(wait, (int64_t)KB_SELF_RETRY_MAX_MS);
    if (s->mode == KB_SELF_RUN) {
        kc_log(KC_WARN, "self", "event=open_failed topic=%s partition=%d attempt=%d error=\"%s\"",
               p->topic->name, p->partition, p->attempts, err ? err->msg : kc_strerror(rc));
    }
}

static void on_opened(void *ctx, int rc, struct ks_log *log, const struct kc_err *err,
                      int32_t blocker_broker, const struct kc_uuid *blocker_incarnation)
{
    struct kb_self_part *p = ctx;
    struct kb_self *s = p->self;
    (void)blocker_broker;
    (void)blocker_incarnation;
    s->n_opening--;
    if (rc) {
        open_failed(p, rc, err);
        idle(p);
        return;
    }
    p->state = KB_PART_INSTALLING;
    p->epoch = ks_log_epoch(log);
    p->permanent = false;
    kd_install(s->o.app->data, log, s->o.loop, on_installed, p);
    kb_self_soon(s);
}

static void open_part(struct kb_self_part *p)
{
    struct kb_self *s = p->self;
    struct ki_image *im = kb_image(s->o.app);
    const struct ki_topic *t = ki_topic_by_id(im, &p->topic->id);
    if (t) {
        struct ks_open_args args = {.topic_id = p->topic->id,
                                    .partition = p->partition,
                                    .may_create = p->may_create,
                                    .order = im->order,
                                    .condemned = condemned,
                                    .condemned_ctx = s,
                                    .loop = s->o.loop,
                                    .done = on_opened,
                                    .ctx = p};
        kb_log_config(s->o.app, im, t, &args.config);
        p->state = KB_PART_OPENING;
        s->n_opening++;
        s->n_held++;
        if (!ks_log_open(s->o.app->engine, &args)) {
            s->n_opening--;
            p->retry_ms = kc_mono_ms() + KB_SELF_RETRY_MS;
            idle(p);
        }
    }
    ki_image_unref(im);
}

void kb_self_configure_all(struct kb_self *s)
{
    struct ki_image *im = kb_image(s->o.app);
    for (int32_t i = 0; i < s->n_topics; i++) {
        const struct ki_topic *t = ki_topic_by_id(im, &s->topics[i]->id);
        for (int32_t p = 0; t && p < s->topics[i]->n_parts; p++) {
            struct ks_log_config cfg;
            kb_log_config(s->o.app, im, t, &cfg);
            kd_configure(s->o.app->data, &t->id, p, &cfg);
        }
    }
    ki_image_unref(im);
}

/* ---- what is wanted ---- */

static void reconcile_part(struct kb_self_part *p, const struct kp_part *want, int64_t now_ms)
{
    struct kb_self *s = p->self;
    bool wanted =
        s->mode == KB_SELF_RUN && !p->topic->deleted && want->assigned == s->o.app->self_id;
    if (p->state == KB_PART_OPEN && !wanted) {
        /* A fenced incarnation seals nothing, and what is deleted needs no seal. */
        kb_self_release(p, s->mode == KB_SELF_LEAVE);
    } else if (p->state == KB_PART_IDLE && wanted && now_ms >= p->retry_ms &&
               s->n_opening < KB_SELF_OPENS_MAX) {
        open_part(p);
    }
}

void kb_self_reconcile(struct kb_self *s, int64_t now_ms)
{
    for (int32_t t = 0; t < s->n_topics; t++) {
        struct kb_self_topic *topic = s->topics[t];
        int32_t n;
        const struct kp_part *parts = kp_ctl_parts(s->ctl, &topic->id, &n);
        for (int32_t i = 0; parts && i < KC_MIN(n, topic->n_parts); i++) {
            reconcile_part(topic->parts[i], &parts[i], now_ms);
        }
    }
    if (s->mode == KB_SELF_REJOIN) {
        kb_self_rejoin(s, now_ms);
    }
}

int64_t kb_self_next_retry(const struct kb_self *s)
{
    int64_t next = INT64_MAX;
    for (int32_t t = 0; s->n_opening < KB_SELF_OPENS_MAX && t < s->n_topics; t++) {
        for (int32_t i = 0; i < s->topics[t]->n_parts; i++) {
            const struct kb_self_part *p = s->topics[t]->parts[i];
            if (p->state == KB_PART_IDLE && p->retry_ms > 0) {
                next = KC_MIN(next, p->retry_ms);
            }
        }
    }
    return next;
}

/* ---- a log that stopped ---- */

struct stopped {
    struct rt_msg msg;
    struct kb_self *self;
    struct kc_uuid topic_id;
    int32_t partition;
};

static void on_stopped(struct rt_msg *msg)
{
    struct stopped *st = KC_CONTAINER_OF(msg, struct stopped, msg);
    struct kb_self_topic *t = kb_self_topic_find(st->self, &st->topic_id);
    if (t && st->partition < t->n_parts && t->parts[st->partition]->state == KB_PART_OPEN) {
        kb_self_release(t->parts[st->partition], false);
    }
    kc_free(st);
}

void kb_self_stopped(struct kb_self *s, const struct kc_uuid *topic_id, int32_t partition)
{
    struct stopped *st = kc_alloc(sizeof(*st));
    *st = (struct stopped){
        .msg.fn = on_stopped, .self = s, .topic_id = *topic_id, .partition = partition};
    rt_post(s->o.loop, &st->msg);
}

/* ---- a log that claimed again ---- */

struct grown {
    struct rt_msg msg;
    struct kb_self *self;
    struct kc_uuid topic_id;
    int32_t partition, epoch;
};

static void on_grown(struct rt_msg *msg)
{
    struct grown *g = KC_CONTAINER_OF(msg, struct grown, msg);
    struct kb_self *s = g->self;
    struct kb_self_topic *t = kb_self_topic_find(s, &g->topic_id);
    struct kb_self_part *p = t && g->partition < t->n_parts ? t->parts[g->partition] : NULL;
    if (p && p->state == KB_PART_OPEN && g->epoch > p->epoch) {
        p->epoch = g->epoch;
        s->report_full = true;
        kb_self_soon(s);
    }
    kc_free(g);
}

void kb_self_epoch(struct kb_self *s, const struct kc_uuid *topic_id, int32_t partition,
                   int32_t epoch)
{
    struct grown *g = kc_alloc(sizeof(*g));
    *g = (struct grown){.msg.fn = on_grown,
                        .self = s,
                        .topic_id = *topic_id,
                        .partition = partition,
                        .epoch = epoch};
    rt_post(s->o.loop, &g->msg);
}
