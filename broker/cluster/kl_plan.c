/* Facts and questions of the plan; the decisions are in kl_plan_step.c. */
#include "cluster/kl_plan_int.h"

#include <string.h>

#include "base/kc_mem.h"

enum { KEY = 20 };

static void make_key(char key[KEY], const struct kc_uuid *topic_id, int32_t partition)
{
    memcpy(key, topic_id->b, sizeof(topic_id->b));
    memcpy(key + sizeof(topic_id->b), &partition, sizeof(partition));
}

struct kl_plan *kl_plan_new(int32_t self)
{
    struct kl_plan *p = kc_zalloc(sizeof(*p));
    p->self = self;
    kc_map_init(&p->items);
    kc_list_init(&p->ready_first);
    kc_list_init(&p->ready);
    kc_list_init(&p->pending);
    kc_list_init(&p->released);
    for (int i = 0; i < KL_WAITS; i++) {
        kc_list_init(&p->waits[i]);
    }
    kc_list_init(&p->changed);
    return p;
}

static void item_free(void *item)
{
    struct kl_item *it = item;
    kc_free(it->seal);
    kc_free(it);
}

void kl_plan_free(struct kl_plan *p)
{
    if (p) {
        kc_map_fini(&p->items, item_free);
        ki_image_unref(p->image);
        kc_free(p);
    }
}

struct kl_item *kl_plan_find(const struct kl_plan *p, const struct kc_uuid *topic_id,
                             int32_t partition)
{
    char key[KEY];
    make_key(key, topic_id, partition);
    return kc_map_get(&p->items, key, KEY);
}

static struct kl_item *find_or_add(struct kl_plan *p, const struct kc_uuid *topic_id,
                                   int32_t partition, int64_t now_ms)
{
    struct kl_item *it = kl_plan_find(p, topic_id, partition);
    if (it) {
        return it;
    }
    it = kc_zalloc(sizeof(*it));
    it->topic_id = *topic_id;
    it->partition = partition;
    it->assigned = KP_NO_BROKER;
    it->epoch = -1;
    it->state_ms = now_ms;
    kc_list_init(&it->ready_link);
    kc_list_init(&it->pending_link);
    kc_list_init(&it->wait_link);
    kc_list_init(&it->changed_link);
    char key[KEY];
    make_key(key, topic_id, partition);
    kc_map_put(&p->items, key, KEY, it);
    p->n_states[KL_IDLE]++;
    return it;
}

static void forget(struct kl_plan *p, struct kl_item *it)
{
    kc_list_del(&it->ready_link);
    kc_list_del(&it->changed_link);
    p->n_states[KL_IDLE]--;
    char key[KEY];
    make_key(key, &it->topic_id, it->partition);
    kc_map_del(&p->items, key, KEY);
    item_free(it);
}

void kl_item_ready(struct kl_plan *p, struct kl_item *it)
{
    kc_list_del(&it->ready_link);
    kc_list_add_tail(it->internal ? &p->ready_first : &p->ready, &it->ready_link);
}

static void all_ready(struct kl_plan *p)
{
    struct kc_map_iter iter = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&p->items, &iter));) {
        kl_item_ready(p, e->value);
    }
}

void kl_item_changed(struct kl_plan *p, struct kl_item *it)
{
    it->changed = ++p->seq;
    kc_list_del(&it->changed_link);
    kc_list_add_tail(&p->changed, &it->changed_link);
}

static bool is_pending(enum kl_item_state s)
{
    return s == KL_WAITING || s == KL_OPENING || s == KL_PREPARING || s == KL_CLAIMING ||
           s == KL_INSTALLING;
}

void kl_item_set_state(struct kl_plan *p, struct kl_item *it, enum kl_item_state s, int64_t now_ms)
{
    enum kl_item_state was = it->state;
    p->n_states[was]--;
    p->n_states[s]++;
    it->state = s;
    it->state_ms = now_ms;
    kc_list_del(&it->wait_link);
    if (s == KL_RELEASED) {
        kc_list_del(&it->pending_link);
        kc_list_add_tail(&p->released, &it->pending_link);
    } else if (!is_pending(s)) {
        kc_list_del(&it->pending_link);
    } else if (!is_pending(was)) { /* else it keeps its place */
        kc_list_del(&it->pending_link);
        kc_list_add_tail(&p->pending, &it->pending_link);
    }
}

/* ---- moves ---- */

void kl_item_set_seal(struct kl_item *it, struct kc_bytes seal, int64_t end, int32_t epoch)
{
    kc_free(it->seal);
    it->seal = NULL;
    it->seal_len = 0;
    if (seal.ptr) {
        it->seal = kc_alloc((size_t)KC_MAX(seal.len, 1));
        memcpy(it->seal, seal.ptr, (size_t)seal.len);
        it->seal_len = seal.len;
    }
    it->seal_end = end;
    it->seal_epoch = epoch;
}

static void clear_move(struct kl_item *it)
{
    memset(&it->move, 0, sizeof(it->move));
    kl_item_set_seal(it, KC_BYTES_NULL, -1, -1);
}

/* The furthest phase of the newest move wins, whoever tells it. True if that is news. */
static bool learn_move(struct kl_item *it, const struct kp_move *m, const struct kp_order *order)
{
    if (m->id < it->move.id || (m->id == it->move.id && m->phase <= it->move.phase)) {
        return false;
    }
    if (m->id != it->move.id) {
        clear_move(it);
        it->move_order = *order;
    }
    it->move = *m;
    return true;
}

/* ---- the image ---- */

static bool names_us(const struct kl_plan *p, const struct kp_part *part)
{
    return part->assigned == p->self ||
           (part->move.id && (part->move.from == p->self || part->move.to == p->self));
}

static void update_item(struct kl_plan *p, struct kl_item *it, const struct ki_topic *t,
                        const struct kp_part *part)
{
    const struct kp_order *order = &p->image->order;
    it->present = part != NULL;
    it->deleted = t && t->deleted;
    it->internal = t && t->internal;
    it->fresh = t && t->fresh;
    it->assigned = part ? part->assigned : KP_NO_BROKER;
    if (part && part->move.id) {
        learn_move(it, &part->move, order);
    } else if (it->move.id && (strcmp(order->uid, it->move_order.uid) != 0 ||
                               kp_order_cmp(order, &it->move_order) > 0)) {
        clear_move(it); /* done, or cancelled for good */
    }
    kl_item_ready(p, it);
}

/* What the image says of an item now; nothing, if there is no image yet. */
static void look_up(struct kl_plan *p, struct kl_item *it)
{
    const struct ki_topic *t = p->image ? ki_topic_by_id(p->image, &it->topic_id) : NULL;
    bool part = t && !t->deleted && it->partition >= 0 && it->partition < t->n_parts;
    if (p->image) {
        update_item(p, it, t, part ? &t->parts[it->partition] : NULL);
    }
}

/* Items whose shard changed look again; what the image newly gives us is added. */
static void apply_shards(struct kl_plan *p, const struct ki_image *old, int64_t now_ms)
{
    const struct ki_image *im = p->image;
    struct kc_map_iter iter = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&p->items, &iter));) {
        struct kl_item *it = e->value;
        int32_t s = kp_shard_of(&it->topic_id);
        if (old && im->shards[s] == old->shards[s]) {
            continue;
        }
        look_up(p, it);
        if (it->state == KL_IDLE && !it->present && now_ms - it->state_ms > KL_FORGET_MS) {
            forget(p, it);
        }
    }
    for (int32_t s = 0; s < KP_SHARDS; s++) {
        if (old && im->shards[s] == old->shards[s]) {
            continue;
        }
        for (int32_t i = 0; i < im->shards[s]->n_topics; i++) {
            const struct ki_topic *t = &im->shards[s]->topics[i];
            for (int32_t n = 0; n < t->n_parts && !t->deleted; n++) {
                if (names_us(p, &t->parts[n]) && !kl_plan_find(p, &t->id, n)) {
                    update_item(p, find_or_add(p, &t->id, n, now_ms), t, &t->parts[n]);
                }
            }
        }
    }
}

void kl_plan_order(struct kl_plan *p, const struct kp_relay *r, struct kc_bytes seal,
                   const struct kp_order *order, int64_t now_ms)
{
    if (r->move_id == 0 || (r->from != p->self && r->to != p->self)) {
        return;
    }
    struct kl_item *it = kl_plan_find(p, &r->p.topic_id, r->p.partition);
    bool known = it && it->move.id == r->move_id;
    if (!known && p->image && strcmp(p->image->order.uid, order->uid) == 0 &&
        kp_order_cmp(order, &p->image->order) < 0) {
        return; /* an echo of a move that the image we have already knows the end of */
    }
    if (!it) {
        it = find_or_add(p, &r->p.topic_id, r->p.partition, now_ms);
        look_up(p, it);
    }
    struct kp_move m = {.id = r->move_id, .from = r->from, .to = r->to, .phase = r->phase};
    bool news = learn_move(it, &m, order);
    if (seal.ptr && r->to == p->self && it->move.id == r->move_id && !it->seal) {
        kl_item_set_seal(it, seal, -1, -1);
    }
    if (news) {
        kl_item_ready(p, it);
    } else if (known && (it->state == KL_PREPARED || it->state == KL_RELEASED)) {
        kl_item_changed(p, it); /* it is still being asked for: our report may be lost */
    }
}

static bool may_claim(const struct kl_plan *p)
{
    const struct kp_row *row = p->image && p->confirmed ? ki_row(p->image, p->self) : NULL;
    return row && row->health == KP_ALIVE && !row->condemned && !kc_uuid_is_zero(&p->incarnation) &&
           kc_uuid_eq(&row->incarnation, &p->incarnation);
}

/* The boot set is what the first confirmed image that lists us as alive gives us (R38). */
static void freeze_boot(struct kl_plan *p)
{
    p->boot_frozen = true;
    struct kc_map_iter iter = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&p->items, &iter));) {
        struct kl_item *it = e->value;
        if (kl_item_wanted(p, it) && !kl_item_there(it)) {
            it->in_boot = true;
            p->n_boot++;
        }
    }
    p->latched = p->n_boot == 0;
}

static void entitle(struct kl_plan *p)
{
    bool may = may_claim(p);
    if (may && !p->boot_frozen) {
        freeze_boot(p);
    }
    if (may != p->entitled) {
        p->entitled = may;
        all_ready(p);
    }
}

void kl_plan_image(struct kl_plan *p, const struct ki_image *im, bool confirmed, int64_t now_ms)
{
    bool was_confirmed = p->confirmed;
    p->confirmed = confirmed;
    struct ki_image *old = p->image;
    if (im != old) {
        p->image = ki_image_ref(im);
        apply_shards(p, old, now_ms);
    }
    entitle(p);
    if (confirmed && (!was_confirmed || im != old)) {
        /* Whoever blocked a takeover may be condemned by now. */
        KC_LIST_EACH(at, next, &p->pending)
        {
            struct kl_item *it = KC_LIST_ENTRY(at, struct kl_item, pending_link);
            if (it->blocked && it->state == KL_WAITING) {
                it->retry_ms = now_ms;
            }
            kl_item_ready(p, it);
        }
    }
    if (confirmed && !was_confirmed) {
        all_ready(p); /* seals of what is no longer ours waited for this */
    }
    if (im != old) {
        ki_image_unref(old);
    }
}

void kl_plan_incarnation(struct kl_plan *p, const struct kc_uuid *inc, int64_t now_ms)
{
    KC_ASSERT(kl_plan_active(p) == 0);
    p->incarnation = *inc;
    p->mode = p->mode == KL_DROP ? KL_RUN : p->mode;
    p->entitled = p->boot_frozen = p->latched = false;
    struct kc_map_iter iter = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&p->items, &iter));) {
        struct kl_item *it = e->value;
        it->in_boot = false;
        it->attempts = 0;
        it->retry_ms = now_ms;
    }
    p->n_boot = 0;
    entitle(p);
    all_ready(p);
}

void kl_plan_set_mode(struct kl_plan *p, enum kl_mode mode, int64_t now_ms)
{
    (void)now_ms;
    if (mode <= p->mode) {
        return; /* a drop outranks a drain; only a new incarnation ends it */
    }
    p->mode = mode;
    if (mode == KL_DROP) {
        p->latched = false;
        p->boot_frozen = false;
        p->entitled = false;
        memset(&p->incarnation, 0, sizeof(p->incarnation));
    }
    all_ready(p);
}

/* ---- questions ---- */

/* The oldest come first: what is not late yet, and all behind it, changes nothing (R45). */
bool kl_plan_serving(struct kl_plan *p, int64_t now_ms)
{
    struct kp_serving_facts f = {.image_lists_self = p->boot_frozen,
                                 .latched = p->latched,
                                 .boot_left = p->n_boot,
                                 .unopened_ms = -1};
    KC_LIST_EACH(at, next, &p->pending)
    {
        const struct kl_item *it = KC_LIST_ENTRY(at, struct kl_item, pending_link);
        p->visits++;
        if (now_ms - it->wanted_ms <= KL_LATE_MS) {
            break;
        }
        if (!it->permanent && it->assigned == p->self && kl_item_wanted(p, it)) {
            f.unopened_ms = it->wanted_ms;
            break;
        }
    }
    return kp_serving_terms(&f, now_ms) == 0;
}

int32_t kl_plan_active(const struct kl_plan *p)
{
    int32_t n = 0;
    for (int s = KL_OPENING; s <= KL_RELEASING; s++) {
        n += p->n_states[s];
    }
    return n;
}

int32_t kl_plan_led(const struct kl_plan *p)
{
    return p->n_states[KL_OPEN] + p->n_states[KL_RELEASING] + p->n_states[KL_INSTALLING];
}

int32_t kl_plan_pending(const struct kl_plan *p)
{
    return p->n_states[KL_WAITING] + p->n_states[KL_OPENING] + p->n_states[KL_CLAIMING] +
           p->n_states[KL_PREPARING] + p->n_states[KL_INSTALLING];
}
