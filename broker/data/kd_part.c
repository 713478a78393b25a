/* kd_part.c - partitions on their loops: install, release, watch, wait.
 *
 * Everything here runs on the loop that owns the partition, reached by messages. A partition whose
 * log stopped by itself (fenced) stays in the table, answering nobody, until the control loop
 * releases it. */
#include "data/kd_internal.h"

#include <string.h>

#include "base/kc_mem.h"

/* ---- what all loops know ---- */

struct news {
    struct rt_msg msg;
    struct kd_loop *loop;
    uint8_t key[KD_KEY];
    int32_t epoch; /* -1 = closed */
    int32_t hint; /* of a closed one: where it went */
};

static void learn(struct kd_loop *l, const uint8_t key[KD_KEY], int32_t epoch, int32_t hint)
{
    if (epoch >= 0) {
        kc_map_put(&l->known, key, KD_KEY, (void *)((intptr_t)epoch + 1));
        kc_map_del(&l->hints, key, KD_KEY);
        return;
    }
    kc_map_del(&l->known, key, KD_KEY);
    if (hint != KP_NO_BROKER && l->hints.len < KD_HINTS_MAX) {
        kc_map_put(&l->hints, key, KD_KEY, (void *)((intptr_t)hint + 1));
    }
}

static void on_news(struct rt_msg *msg)
{
    struct news *n = KC_CONTAINER_OF(msg, struct news, msg);
    learn(n->loop, n->key, n->epoch, n->hint);
    kc_free(n);
}

static void tell_all(struct kd_loop *me, const uint8_t key[KD_KEY], int32_t epoch, int32_t hint)
{
    struct kd_data *d = me->data;
    learn(me, key, epoch, hint);
    for (int32_t i = 0; i < d->n_loops; i++) {
        if (&d->loops[i] == me) {
            continue;
        }
        struct news *n = kc_alloc(sizeof(*n));
        *n = (struct news){.msg.fn = on_news, .loop = &d->loops[i], .epoch = epoch, .hint = hint};
        memcpy(n->key, key, KD_KEY);
        rt_post(&d->loops[i].rt, &n->msg);
    }
}

int32_t kd_open_epoch(struct kd_data *d, const struct kc_uuid *topic_id, int32_t partition)
{
    struct kd_loop *l = kd_here();
    KC_ASSERT(l && l->data == d);
    uint8_t key[KD_KEY];
    kd_key(key, topic_id, partition);
    return (int32_t)((intptr_t)kc_map_get(&l->known, key, KD_KEY) - 1);
}

/* ---- waiters ---- */

void kd_wait(struct kd_part *p, struct kd_waiter *w)
{
    w->part = p;
    kc_list_add_tail(&p->waiters, &w->node);
}

void kd_unwait(struct kd_waiter *w)
{
    if (w->part) {
        w->part = NULL;
        kc_list_del(&w->node);
    }
}

/* Takes all waiters aside first: one that is woken may come back, or take others off. */
static void wake(struct kd_part *p, bool gone)
{
    struct kc_list now;
    kc_list_init(&now);
    while (!kc_list_empty(&p->waiters)) {
        struct kc_list *it = p->waiters.next;
        kc_list_del(it);
        kc_list_add_tail(&now, it);
    }
    while (!kc_list_empty(&now)) {
        struct kd_waiter *w = KC_LIST_ENTRY(now.next, struct kd_waiter, node);
        kc_list_del(&w->node);
        if (gone) {
            w->part = NULL;
        } else {
            kc_list_add_tail(&p->waiters, &w->node);
        }
        w->fn(w, gone);
    }
}

/* ---- leaving ---- */

/* Waiters are answered with the hint in place. */
static void leave(struct kd_part *p, int32_t hint)
{
    if (!p->gone || hint != KP_NO_BROKER) {
        tell_all(p->loop, p->key, -1, hint);
    }
    if (p->gone) {
        return;
    }
    p->gone = true;
    struct kd_data *d = p->loop->data;
    atomic_fetch_sub(&d->n_open, 1);
    if (p->slot_kind != KP_NOT_SLOTS && d->hooks.closing) {
        d->hooks.closing(d->hooks.ctx, p->slot_kind, p->partition);
    }
    wake(p, true);
}

/* Clients are to see the epoch their requests are checked against, whoever they ask (KIP-320). */
static void check_epoch(struct kd_part *p, struct ks_log *log)
{
    struct kd_data *d = p->loop->data;
    int32_t epoch = ks_log_epoch(log);
    if (epoch == p->epoch) {
        return;
    }
    p->epoch = epoch;
    tell_all(p->loop, p->key, epoch, KP_NO_BROKER);
    if (d->grew) {
        d->grew(d->grew_ctx, ks_log_topic(log), p->partition, epoch);
    }
}

static void on_log_event(void *ctx, struct ks_log *log, bool gone)
{
    struct kd_part *p = ctx;
    struct kd_data *d = p->loop->data;
    if (gone) {
        struct kc_uuid topic_id = *ks_log_topic(log);
        int32_t partition = p->partition;
        leave(p, KP_NO_BROKER);
        if (d->stopped) {
            d->stopped(d->stopped_ctx, &topic_id, partition);
        }
    } else {
        check_epoch(p, log);
        wake(p, false);
    }
}

/* ---- arrivals ---- */

static void arrived(struct kd_loop *l, const uint8_t key[KD_KEY])
{
    struct kc_list *head = kc_map_del(&l->awaited, key, KD_KEY);
    while (head && !kc_list_empty(head)) {
        struct kd_arrival *a = KC_LIST_ENTRY(head->next, struct kd_arrival, node);
        kc_list_del(&a->node);
        kd_timer_disarm(&l->timers, &a->timer);
        a->fn(a);
    }
    kc_free(head);
}

/* Nobody waits longer than who came first: a request that went on waiting behind one that was turned
 * away would overtake it if the partition came now, and the second of a producer's pipelined batches
 * must not be judged without the first (its sequence would have a gap, which makes clients begin a new
 * epoch and send again what was written already). */
static void on_late(struct kd_timer *t)
{
    struct kd_arrival *a = KC_CONTAINER_OF(t, struct kd_arrival, timer);
    uint8_t key[KD_KEY];
    memcpy(key, a->key, sizeof(key));
    arrived(kd_here(), key);
}

void kd_await(struct kd_data *d, const struct kc_uuid *topic_id, int32_t partition,
              struct kd_arrival *a, int64_t deadline_ms)
{
    struct kd_loop *l = kd_here();
    KC_ASSERT(l && l->data == d);
    kd_key(a->key, topic_id, partition);
    struct kc_list *head = kc_map_get(&l->awaited, a->key, KD_KEY);
    if (!head) {
        head = kc_alloc(sizeof(*head));
        kc_list_init(head);
        kc_map_put(&l->awaited, a->key, KD_KEY, head);
    }
    kc_list_add_tail(head, &a->node);
    a->timer = (struct kd_timer){.fn = on_late};
    kd_timer_arm(&l->timers, &a->timer, deadline_ms);
}

/* ---- install ---- */

struct install {
    struct rt_msg msg;
    struct kd_data *data;
    struct kd_loop *owner;
    struct ks_log *log;
    struct rt_loop *reply_loop;
    void (*done)(void *ctx);
    void *ctx;
};

static int32_t slot_kind_of(struct kd_data *d, const struct kc_uuid *topic_id)
{
    for (int32_t k = KP_GROUP_SLOTS; k <= KP_TXN_SLOTS; k++) {
        const struct kc_uuid *id = atomic_load(&d->slot_topics[k]);
        if (id && kc_uuid_eq(id, topic_id)) {
            return k;
        }
    }
    return KP_NOT_SLOTS;
}

static void on_install(struct rt_msg *msg)
{
    struct install *in = KC_CONTAINER_OF(msg, struct install, msg);
    struct kd_data *d = in->data;
    struct kd_part *p = kc_zalloc(sizeof(*p));
    p->loop = in->owner;
    p->log = in->log;
    p->partition = ks_log_partition(in->log);
    p->slot_kind = slot_kind_of(d, ks_log_topic(in->log));
    kc_list_init(&p->waiters);
    kd_key(p->key, ks_log_topic(in->log), p->partition);
    struct kd_part *old = kc_map_put(&in->owner->parts, p->key, KD_KEY, p);
    KC_ASSERT(!old); /* the control loop releases before it installs again */
    atomic_fetch_add(&d->n_open, 1);
    p->epoch = ks_log_epoch(p->log);
    tell_all(in->owner, p->key, p->epoch, KP_NO_BROKER);
    ks_log_watch(p->log, on_log_event, p);
    if (p->slot_kind != KP_NOT_SLOTS && d->hooks.opened) {
        d->hooks.opened(d->hooks.ctx, p->slot_kind, p->partition, p);
    }
    rt_call(in->reply_loop, in->done, in->ctx);
    uint8_t key[KD_KEY];
    memcpy(key, p->key, KD_KEY); /* whoever waited may see to it that p goes */
    arrived(in->owner, key);
    kc_free(in);
}

void kd_install(struct kd_data *d, struct ks_log *log, struct rt_loop *loop,
                void (*done)(void *ctx), void *ctx)
{
    struct install *in = kc_alloc(sizeof(*in));
    struct rt_loop *rt = kd_loop_of(d, ks_log_topic(log), ks_log_partition(log));
    *in = (struct install){.msg.fn = on_install,
                           .data = d,
                           .log = log,
                           .reply_loop = loop,
                           .owner = KC_CONTAINER_OF(rt, struct kd_loop, rt),
                           .done = done,
                           .ctx = ctx};
    ks_log_own(log, rt);
    rt_post(rt, &in->msg);
}

/* ---- release ---- */

struct release {
    struct rt_msg msg;
    struct kd_loop *owner;
    uint8_t key[KD_KEY];
    bool seal;
    int32_t new_leader;
    int rc;
    struct rt_loop *reply_loop;
    ks_seal_done done;
    void *ctx;
};

static void on_release_answer(struct rt_msg *msg)
{
    struct release *r = KC_CONTAINER_OF(msg, struct release, msg);
    r->done(r->ctx, r->rc, KC_BYTES_NULL, -1, -1);
    kc_free(r);
}

static void release_answer(struct release *r, int rc)
{
    r->rc = rc;
    r->msg.fn = on_release_answer;
    rt_post(r->reply_loop, &r->msg);
}

static void on_release(struct rt_msg *msg)
{
    struct release *r = KC_CONTAINER_OF(msg, struct release, msg);
    struct kd_loop *l = r->owner;
    struct kd_part *p = kc_map_get(&l->parts, r->key, KD_KEY);
    if (!p) {
        release_answer(r, KC_E_NOT_FOUND);
        return;
    }
    struct ks_log *log = p->log;
    leave(p, r->new_leader);
    kc_map_del(&l->parts, r->key, KD_KEY);
    ks_log_watch(log, NULL, NULL);
    kc_free(p);
    if (r->seal) {
        ks_log_seal(log, r->reply_loop, r->done, r->ctx);
        kc_free(r);
    } else {
        ks_log_close(log);
        release_answer(r, 0);
    }
}

void kd_release(struct kd_data *d, const struct kc_uuid *topic_id, int32_t partition, bool seal,
                int32_t new_leader, struct rt_loop *loop, ks_seal_done done, void *ctx)
{
    struct rt_loop *rt = kd_loop_of(d, topic_id, partition);
    struct release *r = kc_zalloc(sizeof(*r));
    r->msg.fn = on_release;
    r->owner = KC_CONTAINER_OF(rt, struct kd_loop, rt);
    kd_key(r->key, topic_id, partition);
    r->seal = seal;
    r->new_leader = new_leader;
    r->reply_loop = loop;
    r->done = done;
    r->ctx = ctx;
    rt_post(rt, &r->msg);
}

/* ---- configs ---- */

struct configure {
    struct rt_msg msg;
    struct kd_loop *owner;
    uint8_t key[KD_KEY];
    struct ks_log_config cfg;
};

static void on_configure(struct rt_msg *msg)
{
    struct configure *c = KC_CONTAINER_OF(msg, struct configure, msg);
    struct kd_part *p = kc_map_get(&c->owner->parts, c->key, KD_KEY);
    if (p && !p->gone) {
        ks_log_configure(p->log, &c->cfg);
    }
    kc_free(c);
}

void kd_configure(struct kd_data *d, const struct kc_uuid *topic_id, int32_t partition,
                  const struct ks_log_config *cfg)
{
    struct rt_loop *rt = kd_loop_of(d, topic_id, partition);
    struct configure *c = kc_alloc(sizeof(*c));
    *c = (struct configure){
        .msg.fn = on_configure, .cfg = *cfg, .owner = KC_CONTAINER_OF(rt, struct kd_loop, rt)};
    kd_key(c->key, topic_id, partition);
    rt_post(rt, &c->msg);
}

/* ---- finding ---- */

struct kd_part *kd_find(struct kd_data *d, const struct kc_uuid *topic_id, int32_t partition)
{
    struct kd_loop *l = kd_here();
    KC_ASSERT(l && l->data == d);
    uint8_t key[KD_KEY];
    kd_key(key, topic_id, partition);
    struct kd_part *p = kc_map_get(&l->parts, key, KD_KEY);
    return p && !p->gone ? p : NULL;
}

struct ks_log *kd_part_log(struct kd_part *p)
{
    return p->log;
}

int32_t kd_hint(struct kd_data *d, const struct kc_uuid *topic_id, int32_t partition)
{
    struct kd_loop *l = kd_here();
    KC_ASSERT(l && l->data == d);
    uint8_t key[KD_KEY];
    kd_key(key, topic_id, partition);
    return (int32_t)((intptr_t)kc_map_get(&l->hints, key, KD_KEY) - 1);
}
