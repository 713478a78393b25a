/* kb_self.c - the self-led broker: facts to the controller core, its decisions to the image.
 *
 * Everything runs on the control loop. The order's uid is the incarnation of the first registration:
 * orders of different process lives are not compared, the volume's chain alone decides. */
#include "app/kb_self_int.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"

enum { TICK_MS = 1000, STREAM = 1, MEMORY_RETRY_MS = 50 };

/* ---- facts ---- */

static void hello(struct kb_self *s, int64_t now_ms)
{
    struct kp_hello h = {.broker = s->o.app->self_id,
                         .stream = STREAM,
                         .incarnation = s->incarnation,
                         .protocol_version = 1,
                         .n_listeners = s->o.n_listeners};
    snprintf(h.version, sizeof(h.version), "%s", s->o.version);
    snprintf(h.rack, sizeof(h.rack), "%s", s->o.app->rack);
    memcpy(h.listeners, s->o.listeners, (size_t)s->o.n_listeners * sizeof(h.listeners[0]));
    struct kc_err err;
    int rc = kp_ctl_hello(s->ctl, &h, now_ms, &err);
    if (rc) {
        kc_log(KC_ERROR, "self", "event=registration_refused why=\"%s\"", err.msg);
    }
    s->report_full = true;
}

static int32_t collect_led(struct kb_self *s, struct kp_led *led)
{
    int32_t n = 0;
    for (int32_t t = 0; t < s->n_topics; t++) {
        for (int32_t i = 0; i < s->topics[t]->n_parts; i++) {
            const struct kb_self_part *p = s->topics[t]->parts[i];
            if (p->state == KB_PART_OPEN) {
                led[n++] = (struct kp_led){p->topic->id, p->partition, p->epoch};
            }
        }
    }
    return n;
}

static bool all_open(const struct kb_self *s)
{
    for (int32_t t = 0; t < s->n_topics; t++) {
        for (int32_t i = 0; !s->topics[t]->deleted && i < s->topics[t]->n_parts; i++) {
            const struct kb_self_part *p = s->topics[t]->parts[i];
            if (p->state != KB_PART_OPEN && !p->permanent) {
                return false;
            }
        }
    }
    return true;
}

static void status(struct kb_self *s, int64_t now_ms)
{
    if (s->published && s->mode == KB_SELF_RUN && all_open(s)) {
        atomic_store(&s->serving, true); /* latched (R45) */
    } else if (s->mode == KB_SELF_REJOIN) {
        atomic_store(&s->serving, false);
    }
    struct kh_vitals vitals;
    kh_vitals_read(s->o.vitals, now_ms, &vitals);
    struct kp_status st = {.broker = s->o.app->self_id,
                           .stream = STREAM,
                           .incarnation = s->incarnation,
                           .healthy = kh_healthy(&vitals),
                           .draining = s->mode == KB_SELF_LEAVE,
                           .serving = atomic_load(&s->serving),
                           .stalled = !vitals.storage_ok,
                           .full = s->report_full,
                           .wall_ms = kc_wall_ms()};
    struct kp_led *led = NULL;
    if (s->report_full) {
        int64_t most = (int64_t)kd_n_open(s->o.app->data) + s->n_held + 1;
        led = kc_try_zalloc((size_t)most, sizeof(*led));
        st.full = led != NULL; /* without memory the next status says it */
        s->report_full = !led;
    }
    if (led) {
        st.n_led = collect_led(s, led);
        st.led = led;
    }
    kp_ctl_status(s->ctl, &st, now_ms);
    kc_free(led);
}

/* ---- the image ---- */

static struct ki_shard *build_shard(struct kb_self *s, int32_t index)
{
    struct ki_topic *topics = kc_try_zalloc((size_t)s->n_topics + 1, sizeof(*topics));
    int32_t n = 0;
    if (!topics) {
        return NULL;
    }
    for (int32_t i = 0; i < s->n_topics; i++) { /* sorted by id, as a shard wants them */
        const struct kb_self_topic *t = s->topics[i];
        if (kp_shard_of(&t->id) != index) {
            continue;
        }
        struct ki_topic *o = &topics[n++];
        *o = (struct ki_topic){.id = t->id,
                               .name = t->name,
                               .internal = t->internal,
                               .fresh = kp_ctl_topic_fresh(s->ctl, &t->id),
                               .deleted = t->deleted,
                               .n_configs = t->n_configs,
                               .configs = t->configs,
                               .replication_factor = t->replication_factor};
        o->parts = kp_ctl_parts(s->ctl, &t->id, &o->n_parts);
    }
    struct ki_shard *shard = ki_shard_build(index, KB_SELF_TERM, s->order.generation, topics, n);
    kc_free(topics);
    return shard;
}

/* The shards to publish, built anew where they changed; false: no memory, some may be new. */
static bool build_shards(struct kb_self *s, uint32_t shards)
{
    for (int32_t i = 0; i < KP_SHARDS; i++) {
        if ((shards & 1U << i) || !s->shards[i]) {
            struct ki_shard *fresh = build_shard(s, i);
            if (!fresh) {
                return false;
            }
            ki_shard_unref(s->shards[i]);
            s->shards[i] = fresh;
        }
    }
    return true;
}

static struct ki_image *build_image(struct kb_self *s)
{
    struct ki_shard *taken[KP_SHARDS];
    for (int32_t i = 0; i < KP_SHARDS; i++) {
        taken[i] = ki_shard_ref(s->shards[i]);
    }
    struct ki_image proto = {.order = s->order};
    memcpy(proto.cluster_id, s->o.app->cluster_id, sizeof(proto.cluster_id));
    proto.n_rows = kp_ctl_rows(s->ctl, &proto.rows);
    memcpy(proto.group_homes, kp_ctl_homes(s->ctl, KP_GROUP_SLOTS), sizeof(proto.group_homes));
    memcpy(proto.txn_homes, kp_ctl_homes(s->ctl, KP_TXN_SLOTS), sizeof(proto.txn_homes));
    return ki_image_build(&proto, taken);
}

/* False: there is no memory for the whole image. Nothing of it is shown, what it would have shown is
 * kept for the next turn, under the same generation, which admin changes wait for. */
static bool publish(struct kb_self *s, uint32_t shards)
{
    s->order.generation++;
    struct ki_image *im = build_shards(s, shards) ? build_image(s) : NULL;
    if (!im) {
        s->order.generation--;
        s->touched |= shards;
        s->unpublished = true;
        kc_log(KC_ERROR, "self", "event=publish_failed error=\"out of memory\"");
        return false;
    }
    s->unpublished = false;
    kb_set_image(s->o.app, im);
    kp_ctl_published(s->ctl, s->order.generation);
    if (!s->published) {
        s->published = true;
        s->o.first_image(s->o.ctx);
    }
    return true;
}

/* ---- the turn ---- */

static void on_timer(uv_timer_t *t)
{
    kb_self_soon(t->data);
}

static void finish_leaving(struct kb_self *s)
{
    if (s->mode == KB_SELF_LEAVE && s->n_held == 0 && s->drained) {
        void (*done)(void *) = s->drained;
        s->drained = NULL;
        done(s->drained_ctx);
    }
}

static void turn(struct kb_self *s)
{
    int64_t now = kc_mono_ms();
    struct kp_changes ch;
    bool late = !kb_self_apply_late(s);
    status(s, now);
    kp_ctl_step(s->ctl, now, s->order.generation + 1, &ch);
    uint32_t shards = ch.shards | s->touched;
    s->touched = 0;
    bool shown = (!ch.rows && !shards && !s->unpublished && s->published) || publish(s, shards);
    if (shown && s->reconfigure) {
        s->reconfigure = false;
        kb_self_configure_all(s);
    }
    if (s->o.groups && s->mode == KB_SELF_RUN) {
        kb_self_make_internal(s, ki_slot_topic_name(KP_GROUP_SLOTS));
    }
    if (s->published) {
        kb_self_reconcile(s, now);
        kb_self_sweep_tombstones(s);
    }
    int64_t next = KC_MIN(KC_MIN(ch.next_ms, kb_self_next_retry(s)), now + TICK_MS);
    next = shown && !late ? next : KC_MIN(next, now + MEMORY_RETRY_MS);
    uv_timer_start(&s->timer, on_timer, (uint64_t)KC_MAX(next - now, (int64_t)1), 0);
    finish_leaving(s);
}

static void on_soon(struct rt_msg *msg)
{
    struct kb_self *s = KC_CONTAINER_OF(msg, struct kb_self, soon_msg);
    s->soon = false;
    turn(s);
}

void kb_self_soon(struct kb_self *s)
{
    if (!s->soon) {
        s->soon = true;
        rt_post(s->o.loop, &s->soon_msg);
    }
}

/* ---- registering ---- */

int kb_self_prepare(struct ks_engine *engine, struct kb_self_boot *ret, struct kc_err *err)
{
    ret->incarnation = kc_uuid_random();
    int rc = ks_register(engine, &ret->incarnation, err);
    return rc ? rc : ks_inventory_read(engine, &ret->inventory, err);
}

struct registration {
    struct rt_work work;
    struct rt_msg msg;
    struct kb_self *self;
    struct kc_uuid incarnation;
    int rc;
    struct kc_err err;
};

static void on_registered(struct rt_msg *msg)
{
    struct registration *r = KC_CONTAINER_OF(msg, struct registration, msg);
    struct kb_self *s = r->self;
    s->registering = false;
    if (r->rc) {
        kc_log(KC_ERROR, "self", "event=registration_failed error=\"%s\"", r->err.msg);
        s->rejoin_wait_ms = KC_MIN(s->rejoin_wait_ms * 2, (int64_t)30000);
        s->rejoin_ms = kc_mono_ms() + s->rejoin_wait_ms;
    } else if (s->mode == KB_SELF_REJOIN) {
        s->incarnation = r->incarnation;
        s->mode = KB_SELF_RUN;
        hello(s, kc_mono_ms());
        kc_log(KC_INFO, "self", "event=registered_anew");
    }
    kc_free(r);
    kb_self_soon(s);
}

static void register_work(struct rt_work *w)
{
    struct registration *r = KC_CONTAINER_OF(w, struct registration, work);
    r->rc = ks_register(r->self->o.app->engine, &r->incarnation, &r->err);
    r->msg.fn = on_registered;
    rt_post(r->self->o.loop, &r->msg);
}

/* Nothing of the fenced incarnation is left: a new one may be registered, with a back-off. */
void kb_self_rejoin(struct kb_self *s, int64_t now_ms)
{
    struct kh_vitals vitals;
    kh_vitals_read(s->o.vitals, now_ms, &vitals);
    if (s->n_held > 0 || s->registering || now_ms < s->rejoin_ms || !vitals.main_alive) {
        return;
    }
    s->registering = true;
    struct registration *r = kc_zalloc(sizeof(*r));
    r->self = s;
    r->incarnation = kc_uuid_random();
    r->work.fn = register_work;
    rt_pool_post(s->o.pool, &r->work);
}

void kb_self_fenced(struct kb_self *s, const char *why)
{
    kc_log(KC_ERROR, "self", "event=fenced why=\"%s\"", why);
    if (s->mode != KB_SELF_RUN) {
        return;
    }
    s->mode = KB_SELF_REJOIN;
    s->rejoin_wait_ms = KC_MIN(KC_MAX(s->rejoin_wait_ms * 2, (int64_t)1000), (int64_t)30000);
    s->rejoin_ms = kc_mono_ms() + s->rejoin_wait_ms;
    kb_self_soon(s);
}

/* ---- life ---- */

/* All of the volume's topics but those past the limits. Without the memory for one there is no start:
 * clients would take it for deleted. */
static int adopt(struct kb_self *s, const struct ks_inventory *inv)
{
    struct kb_self_topic *t;
    int rc = 0;
    for (int32_t i = 0; i < inv->n && rc != -ENOMEM; i++) {
        rc = kb_self_topic_add(s, &inv->topics[i], false, &t);
    }
    if (rc != -ENOMEM) {
        kc_log(KC_INFO, "self", "event=adopted topics=%d", inv->n);
    }
    return rc == -ENOMEM ? rc : 0;
}

struct kb_self *kb_self_start(const struct kb_self_opts *o, struct kb_self_boot *boot)
{
    struct kb_self *s = kc_zalloc(sizeof(*s));
    s->o = *o;
    s->incarnation = boot->incarnation;
    s->order.term = KB_SELF_TERM;
    char hex[KC_UUID_HEX_LEN + 1];
    kc_uuid_to_hex(&s->incarnation, hex);
    snprintf(s->order.uid, sizeof(s->order.uid), "%s", hex);
    s->soon_msg.fn = on_soon;
    kc_list_init(&s->changes);
    struct kp_ctl_opts co = {.max_brokers = KP_BROKERS_MAX,
                             .max_topics = 2000,
                             .max_partitions = 20000 + 2 * KP_SLOTS,
                             .interval_ms = TICK_MS,
                             .timeout_ms = 10 * TICK_MS,
                             .self_id = o->app->self_id};
    s->ctl = kp_ctl_new(&co);
    int rc = s->ctl ? adopt(s, boot->inventory) : -ENOMEM;
    ks_inventory_free(boot->inventory);
    boot->inventory = NULL;
    if (rc) {
        kb_self_free(s);
        return NULL;
    }
    uv_timer_init(&o->loop->uv, &s->timer);
    s->timer.data = s;
    kp_ctl_activate(s->ctl, kc_mono_ms());
    hello(s, kc_mono_ms());
    kb_self_soon(s);
    return s;
}

void kb_self_drain(struct kb_self *s, void (*done)(void *ctx), void *ctx)
{
    s->mode = KB_SELF_LEAVE;
    s->drained = done;
    s->drained_ctx = ctx;
    kb_self_soon(s);
}

void kb_self_free(struct kb_self *s)
{
    if (!s) {
        return;
    }
    for (int32_t i = 0; i < s->n_topics; i++) {
        kb_self_topic_free(s->topics[i]);
    }
    for (int32_t i = 0; i < KP_SHARDS; i++) {
        ki_shard_unref(s->shards[i]);
    }
    kc_free(s->topics);
    kp_ctl_free(s->ctl);
    kc_free(s);
}

bool kb_self_serving(const struct kb_self *s)
{
    return atomic_load(&((struct kb_self *)(uintptr_t)s)->serving);
}
