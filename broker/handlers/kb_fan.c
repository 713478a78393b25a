/* kb_fan.c - see kb_fan.h. */
#include "handlers/kb_fan.h"

#include "base/kc_clock.h"
#include "handlers/kb_view.h"
#include "wire/kw_errors.h"

enum { PARK_MS = 200 }; /* how long a request waits for a partition that is on its way here */

bool kb_fan_init(struct kb_fan *fan, struct kb_req *req, int32_t n, size_t stride)
{
    *fan = (struct kb_fan){.req = req, .n = n, .stride = stride};
    int32_t n_loops = kd_n_loops(req->app->data);
    fan->items = kb_alloc(req, (size_t)n, stride);
    if (!fan->items) {
        return false;
    }
    fan->legs = kb_alloc(req, (size_t)n_loops, sizeof(*fan->legs));
    if (!fan->legs) {
        return false;
    }
    for (int32_t i = 0; i < n; i++) {
        struct kb_item *it = kb_fan_item(fan, i);
        it->fan = fan;
        it->hint = KP_NO_BROKER;
    }
    return true;
}

bool kb_fan_topics(struct kb_fan *fan, struct kb_req *req, int32_t n_topics,
                   const struct kb_fan_api *api)
{
    int64_t n = 0; /* below 2^31: each costs the request some bytes */
    for (int32_t t = 0; t < n_topics; t++) {
        n += api->count(req->body, t);
    }
    if (!kb_fan_init(fan, req, (int32_t)n, api->stride)) {
        return false;
    }
    fan->run = api->run;
    fan->done = api->done;
    int32_t at = 0;
    for (int32_t t = 0; t < n_topics; t++) {
        if (!api->room(fan, t)) {
            return false;
        }
        int32_t of_topic = api->count(req->body, t);
        for (int32_t i = 0; i < of_topic; i++) {
            api->set(kb_fan_item(fan, at++), t, i);
        }
    }
    return true;
}

static void to_home(struct rt_msg *msg)
{
    struct kb_fan *fan = KC_CONTAINER_OF(msg, struct kb_fan, home_msg);
    fan->done(fan);
}

static void finish(struct kb_fan *fan)
{
    if (rt_on_loop(fan->req->home)) {
        fan->done(fan);
        return;
    }
    fan->home_msg.fn = to_home;
    rt_post(fan->req->home, &fan->home_msg);
}

/* One unit of the fan is done; the last one ends it. */
static void release(struct kb_fan *fan)
{
    if (atomic_fetch_sub(&fan->pending, 1) == 1) {
        finish(fan);
    }
}

static struct kb_leg *leg_of(struct kb_item *item)
{
    struct kb_app *app = item->fan->req->app;
    return &item->fan->legs[kd_here_index(app->data)];
}

/* Serial: runs items until one is not done at once; kb_fan_done then comes back here. */
static void step(struct kb_leg *leg)
{
    leg->stepping = true;
    do {
        leg->more = false;
        struct kb_item *it = kb_fan_item(leg->fan, leg->at);
        leg->fan->run(it);
    } while (leg->more);
    leg->stepping = false;
}

static void run_leg(struct kb_leg *leg)
{
    struct kb_fan *fan = leg->fan;
    if (fan->serial) {
        leg->at = leg->head;
        step(leg);
        release(fan); /* the leg's own unit: the fan cannot end under step() */
        return;
    }
    for (int32_t i = leg->head, next; i >= 0; i = next) {
        struct kb_item *it = kb_fan_item(fan, i);
        next = it->next;
        fan->run(it);
    }
    release(fan);
}

static void on_leg(struct rt_msg *msg)
{
    run_leg(KC_CONTAINER_OF(msg, struct kb_leg, msg));
}

void kb_fan_done(struct kb_item *item)
{
    struct kb_fan *fan = item->fan;
    if (fan->serial && item->next >= 0) {
        struct kb_leg *leg = leg_of(item);
        leg->at = item->next;
        if (leg->stepping) {
            leg->more = true;
        } else {
            step(leg);
        }
    }
    release(fan);
}

static void sort_into_legs(struct kb_fan *fan, int32_t n_loops)
{
    struct kd_data *d = fan->req->app->data;
    for (int32_t l = 0; l < n_loops; l++) {
        fan->legs[l] = (struct kb_leg){.fan = fan, .loop = kd_loop(d, l), .head = -1, .tail = -1};
    }
    for (int32_t i = 0; i < fan->n; i++) {
        struct kb_item *it = kb_fan_item(fan, i);
        it->next = -1;
        if (it->error || it->left_out) {
            continue;
        }
        struct rt_loop *loop = kd_loop_of(d, &it->topic_id, it->partition);
        int32_t l = 0;
        while (fan->legs[l].loop != loop) {
            l++;
        }
        struct kb_leg *leg = &fan->legs[l];
        if (leg->head < 0) {
            leg->head = i;
        } else {
            kb_fan_item(fan, leg->tail)->next = i;
        }
        leg->tail = i;
        fan->pending++;
    }
}

void kb_fan_start(struct kb_fan *fan)
{
    int32_t n_loops = kd_n_loops(fan->req->app->data);
    atomic_store(&fan->pending, 1); /* the start's own unit */
    sort_into_legs(fan, n_loops);
    struct kb_leg *here = NULL;
    for (int32_t l = 0; l < n_loops; l++) {
        struct kb_leg *leg = &fan->legs[l];
        if (leg->head < 0) {
            continue;
        }
        atomic_fetch_add(&fan->pending, 1);
        if (rt_on_loop(leg->loop)) {
            here = leg;
        } else {
            leg->msg.fn = on_leg;
            rt_post(leg->loop, &leg->msg);
        }
    }
    if (here) { /* after the others were sent, so that they work at the same time */
        run_leg(here);
    }
    release(fan);
}

/* ---- partitions ---- */

void kb_item_set(struct kb_item *item, struct kc_str name, const struct kc_uuid *id,
                 int32_t partition)
{
    int16_t error;
    const struct ki_topic *t = kb_topic(item->fan->req, name, id, &error);
    item->partition = partition;
    if (!t) {
        item->error = error;
    } else if (partition < 0 || partition >= t->n_parts) {
        item->error = KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
    } else {
        item->topic_id = t->id;
    }
}

void kb_item_set_named(struct kb_item *item, struct kc_str name, int32_t partition)
{
    static const struct kc_uuid none;
    kb_item_set(item, name, &none, partition);
}

static void on_arrival(struct kd_arrival *a)
{
    struct kb_item *item = KC_CONTAINER_OF(a, struct kb_item, arrival);
    item->fan->run(item);
}

/* The image moves the partition here, or gives it to this broker. The latter may be older than a
 * release, which a hint tells of; a move to here is not, unless the image lags by a whole move. */
static bool on_its_way(const struct kb_item *item)
{
    const struct kb_req *req = item->fan->req;
    const struct kp_part *p = ki_part(req->image, &item->topic_id, item->partition);
    int32_t self = req->app->self_id;
    if (!p || p->offline) {
        return false;
    }
    bool moved = p->move.id && p->move.to == self;
    return moved || (p->assigned == self && item->hint == KP_NO_BROKER);
}

struct kd_part *kb_item_part(struct kb_item *item)
{
    struct kb_req *req = item->fan->req;
    struct kd_data *d = req->app->data;
    struct kd_part *p = kd_find(d, &item->topic_id, item->partition);
    if (p) {
        return p;
    }
    item->hint = kd_hint(d, &item->topic_id, item->partition);
    if (!item->awaited && on_its_way(item)) {
        item->awaited = true;
        item->arrival.fn = on_arrival;
        kd_await(d, &item->topic_id, item->partition, &item->arrival, kc_mono_ms() + PARK_MS);
        return NULL;
    }
    item->error = KAFKA_NOT_LEADER_OR_FOLLOWER;
    return NULL;
}

struct kd_part *kb_item_part_or_end(struct kb_item *item)
{
    struct kd_part *p = kb_item_part(item);
    if (!p && item->error) {
        kb_fan_done(item);
    }
    return p;
}

int16_t kb_check_epoch(int32_t asked, const struct ks_log *log)
{
    int32_t ours = ks_log_epoch(log);
    if (asked < 0 || asked == ours) {
        return KAFKA_NONE;
    }
    return asked < ours ? KAFKA_FENCED_LEADER_EPOCH : KAFKA_UNKNOWN_LEADER_EPOCH;
}

bool kb_item_leader(const struct kb_item *item, int32_t *ret_id, int32_t *ret_epoch)
{
    const struct kb_req *req = item->fan->req;
    const struct ki_topic *t = ki_topic_by_id(req->image, &item->topic_id);
    if (item->error != KAFKA_NOT_LEADER_OR_FOLLOWER || !t || item->partition >= t->n_parts) {
        return false;
    }
    struct kb_leader l;
    kb_leader(req, t, item->partition, &l);
    struct kb_node node;
    if (l.id < 0 && item->hint != KP_NO_BROKER && kb_node(req, item->hint, &node)) {
        /* Released here a moment ago and not yet in the image: the next claim counts one up. */
        l = (struct kb_leader){0, item->hint, t->parts[item->partition].led_epoch + 1};
    }
    if (l.id < 0 || l.id == req->app->self_id) {
        return false;
    }
    *ret_id = l.id;
    *ret_epoch = l.epoch;
    return true;
}
