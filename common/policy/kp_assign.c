/* kp_assign.c - who leads what: home if alive, else where it is, else the next alive choice; moves
 * only what must move (design.md, 4). What can be handed over is handed over by kp_move.c. */
#include "policy/kp_internal.h"

bool kp_member(const struct kp_ctl *c, int32_t broker)
{
    return broker >= 0 && c->peers[broker].registered && c->peers[broker].member;
}

bool kp_alive_member(const struct kp_ctl *c, int32_t broker)
{
    /* alive_ms is set exactly while the broker counts as alive itself, not merely as kept. */
    return kp_member(c, broker) && c->peers[broker].alive_ms >= 0;
}

void kp_dirty_part(struct kp_ctl *c, const struct kp_topic *t)
{
    c->shards_dirty |= 1u << t->shard;
}

void kp_wake(struct kp_ctl *c, int64_t at_ms)
{
    c->scan_ms = KC_MIN(c->scan_ms, at_ms);
}

static void load_add(struct kp_ctl *c, const struct kp_topic *t, int32_t broker, int32_t n)
{
    if (broker >= 0) {
        c->peers[broker].n_assigned[t->slot_kind] += n;
    }
}

void kp_set_assigned(struct kp_ctl *c, struct kp_topic *t, int32_t partition, int32_t broker)
{
    struct kp_part *p = &t->parts[partition];
    if (p->assigned == broker) {
        return;
    }
    load_add(c, t, p->assigned, -1);
    load_add(c, t, broker, 1);
    if (p->assigned >= 0 && broker >= 0) {
        c->moved[broker]++;
    }
    p->assigned = broker;
    p->assigned_generation = c->generation;
    t->aux[partition].blocked_ms = -1;
    t->aux[partition].blocked_handed = false;
    kp_dirty_part(c, t);
}

static void led_add(struct kp_ctl *c, const struct kp_topic *t, int32_t broker, int32_t n)
{
    if (broker >= 0 && kp_is_slots(t)) {
        c->peers[broker].n_led_slots += n;
    } else if (broker >= 0) {
        c->peers[broker].n_led += n;
    }
}

void kp_set_led(struct kp_ctl *c, struct kp_topic *t, int32_t partition, int32_t broker,
                const struct kc_uuid *incarnation, int32_t epoch)
{
    static const struct kc_uuid nobody;
    struct kp_part *p = &t->parts[partition];
    led_add(c, t, p->led, -1);
    led_add(c, t, broker, 1);
    if (broker >= 0) {
        kp_gap_close(c, t, partition);
    }
    p->led = broker;
    p->led_incarnation = incarnation ? *incarnation : nobody;
    p->led_epoch = epoch;
    if (broker >= 0) {
        kp_news_led(c, t, partition);
    }
    kp_dirty_part(c, t);
}

bool kp_leads(const struct kp_ctl *c, const struct kp_part *p, int32_t broker)
{
    /* led is cleared when its incarnation is superseded or condemned, so the id says it all. */
    return p->led == broker && broker >= 0 && c->peers[broker].registered;
}

int32_t kp_pick(const struct kp_ctl *c, const struct kp_topic *t, int32_t partition)
{
    int32_t best = KP_NO_BROKER, best_load = 0;
    bool best_stays = false;
    uint64_t best_score = 0;
    for (int32_t i = 0; i < c->n_rows; i++) {
        int32_t id = c->rows[i].id;
        const struct kp_peer *p = &c->peers[id];
        if (!kp_alive_member(c, id)) {
            continue;
        }
        bool stays = id < c->desired; /* one that a scale-down removes would only hand it on */
        int32_t load = p->n_assigned[t->slot_kind] + p->n_coming[t->slot_kind];
        uint64_t score = kp_score(&t->id, partition, id);
        bool better = best < 0              ? true
                      : stays != best_stays ? stays
                      : load != best_load   ? load < best_load
                                            : score > best_score;
        if (better) {
            best = id;
            best_stays = stays;
            best_load = load;
            best_score = score;
        }
    }
    return best;
}

/* Still there to hand over what it leads. */
static bool draining(const struct kp_ctl *c, int32_t broker)
{
    return broker >= 0 && c->peers[broker].registered && c->peers[broker].health == KP_DRAINING;
}

static void place(struct kp_ctl *c, struct kp_topic *t, int32_t i, int64_t now_ms)
{
    struct kp_part *p = &t->parts[i];
    struct kp_aux *a = &t->aux[i];
    int32_t cur = p->assigned;
    bool home_up = kp_alive_member(c, p->home);
    if (kp_member(c, cur)) {
        if (cur == p->home || !home_up || t->deleted || !kp_leads(c, p, cur)) {
            return;
        }
        if (now_ms < a->retry_ms) {
            kp_wake(c, a->retry_ms);
        } else if (p->move.id == 0) {
            kp_move_start(c, t, i, p->home);
        }
        return;
    }
    int32_t to = home_up ? p->home : kp_pick(c, t, i);
    if (to < 0) {
        return; /* R15: nobody to give it to; it stays as it is */
    }
    if (draining(c, cur) && kp_leads(c, p, cur) && !t->deleted) {
        kp_move_start(c, t, i, to); /* R26: while it can still hand over */
    } else {
        kp_set_assigned(c, t, i, to);
    }
}

/* design.md, 4: blocked by a live owner longer than 3 s: the owner gets the partition; if it does
 * not lead it within another 3 s, it is condemned. Liveness only: safety is in the volume. */
static void step_blocked(struct kp_ctl *c, struct kp_topic *t, int32_t i, int64_t now_ms)
{
    struct kp_part *p = &t->parts[i];
    struct kp_aux *a = &t->aux[i];
    if (now_ms < a->blocked_ms + KP_BLOCKED_MS) {
        kp_wake(c, a->blocked_ms + KP_BLOCKED_MS);
        return;
    }
    int32_t owner = a->blocked_by;
    const struct kp_row *row = owner >= 0 ? kp_row_of(c, owner) : NULL;
    bool present = row && kc_uuid_eq(&row->incarnation, &a->blocked_inc) && !row->condemned;
    a->blocked_ms = -1;
    if (!present || !kp_alive_member(c, owner)) {
        a->blocked_handed = false; /* condemned already: the claimant will see it */
        return;
    }
    if (!a->blocked_handed) {
        kp_set_assigned(c, t, i, owner);
        a->blocked_handed = true;
        a->blocked_ms = now_ms;
        a->retry_ms = now_ms + KP_RETRY_MS;
        kp_wake(c, now_ms + KP_BLOCKED_MS);
    } else if (!kp_leads(c, p, owner)) {
        a->blocked_handed = false;
        c->peers[owner].condemn = true;
        kp_wake(c, now_ms);
    }
}

/* What was reported led by a live broker before a new operator's first decision stays there: an
 * operator restart moves nothing, not even what its predecessor could not publish any more. */
static void adopt_led(struct kp_ctl *c, struct kp_topic *t, int32_t i)
{
    struct kp_part *p = &t->parts[i];
    if (p->move.id == 0 && p->led != p->assigned && kp_alive_member(c, p->led)) {
        kp_set_assigned(c, t, i, p->led);
    }
}

static void settle(struct kp_ctl *c, struct kp_topic *t, int32_t i, int64_t now_ms)
{
    struct kp_part *p = &t->parts[i];
    if (p->led >= 0 && (!c->peers[p->led].registered || c->peers[p->led].condemned)) {
        kp_gap_died(c, t, i, p->led);
        kp_set_led(c, t, i, KP_NO_BROKER, NULL, p->led_epoch);
    }
    if (!c->decided) {
        adopt_led(c, t, i);
    }
    if (p->move.id) {
        kp_move_step(c, t, i, now_ms);
    }
    if (p->move.id && p->move.phase != KP_MOVE_CANCEL) {
        return;
    }
    if (t->aux[i].blocked_ms >= 0) {
        step_blocked(c, t, i, now_ms);
    }
    place(c, t, i, now_ms);
}

void kp_assign(struct kp_ctl *c, int64_t now_ms)
{
    bool anyone = false;
    c->scan_ms = KP_NEVER;
    for (int32_t i = 0; i < c->n_rows; i++) {
        anyone = anyone || c->peers[c->rows[i].id].member;
    }
    if (!anyone) {
        return; /* R15 */
    }
    kp_moves_count(c);
    for (int32_t k = 0; k < c->n_topics; k++) {
        struct kp_topic *t = c->topics[k];
        for (int32_t i = 0; i < t->n_parts; i++) {
            settle(c, t, i, now_ms);
        }
    }
}
