/* kp_homes.c - homes of partitions: rendezvous hashing over the registered brokers, evened out to a
 * difference of one, with as little movement as a registration allows (design.md, 4).
 *
 * A home is chosen once and kept; death never changes it. New partitions go to the broker with the
 * fewest of their topic, then the fewest at all, then the highest score. */
#include "policy/kp_internal.h"

#include <stdlib.h>

#include "base/kc_hash.h"

enum { SPREAD_MAX = 1024 }; /* above, a topic's own spread is not weighed when homes move */

struct kp_candidate {
    uint64_t score;
    struct kp_topic *t;
    int32_t partition;
};
_Static_assert(sizeof(struct kp_candidate) == 24, "kp_ctl_new sizes the scratch by it");

uint64_t kp_score(const struct kc_uuid *topic, int32_t partition, int32_t broker)
{
    uint64_t key = kc_hash64_mix(kc_uuid_hash(topic), (uint64_t)partition + 1);
    return kc_hash64_mix(key, (uint64_t)broker + 1);
}

static bool registered(const struct kp_ctl *c, int32_t broker)
{
    return broker >= 0 && c->peers[broker].registered;
}

static void set_home(struct kp_ctl *c, struct kp_topic *t, int32_t partition, int32_t broker)
{
    struct kp_part *p = &t->parts[partition];
    if (p->home == broker) {
        return;
    }
    if (!kp_is_slots(t)) {
        if (p->home >= 0) {
            c->peers[p->home].n_home--;
        }
        c->peers[broker].n_home++;
    }
    p->home = broker;
    kp_dirty_part(c, t);
    c->assign_dirty = true;
}

/* in_topic: homes of this topic by broker. */
static int32_t best_home(const struct kp_ctl *c, const struct kp_topic *t, int32_t partition,
                         const int32_t *in_topic)
{
    int32_t best = KP_NO_BROKER;
    uint64_t best_score = 0;
    for (int32_t i = 0; i < c->n_rows; i++) {
        int32_t id = c->rows[i].id;
        uint64_t score = kp_score(&t->id, partition, id);
        int32_t d = best < 0 ? -1 : in_topic[id] - in_topic[best];
        if (d == 0) {
            d = c->peers[id].n_home - c->peers[best].n_home;
        }
        if (d < 0 || (d == 0 && score > best_score)) {
            best = id;
            best_score = score;
        }
    }
    return best;
}

/* Where a partition without a (registered) home belongs: where it is led already, if that keeps
 * the balance - it was moved off a leaving broker, or an older image had no homes. */
static int32_t choose_home(const struct kp_ctl *c, const struct kp_topic *t, int32_t partition,
                           const int32_t *in_topic)
{
    int32_t now = t->parts[partition].assigned;
    int32_t ceil = (c->n_data_parts + c->n_rows - 1) / c->n_rows;
    if (registered(c, now) && c->peers[now].n_home < ceil) {
        return now;
    }
    return best_home(c, t, partition, in_topic);
}

static void place_topic(struct kp_ctl *c, struct kp_topic *t)
{
    int32_t in_topic[KP_BROKERS_MAX] = {0};
    int32_t missing = 0;
    for (int32_t i = 0; i < t->n_parts; i++) {
        if (registered(c, t->parts[i].home)) {
            in_topic[t->parts[i].home]++;
        } else {
            missing++;
        }
    }
    for (int32_t i = 0; i < t->n_parts && missing > 0; i++) {
        if (!registered(c, t->parts[i].home)) {
            int32_t home = choose_home(c, t, i, in_topic);
            set_home(c, t, i, home);
            in_topic[home]++;
            missing--;
        }
    }
}

static void follow_slots(struct kp_ctl *c, struct kp_topic *t)
{
    const int32_t *homes = c->homes[t->slot_kind - 1];
    for (int32_t i = 0; i < t->n_parts; i++) {
        set_home(c, t, i, homes[i % KP_SLOTS]);
    }
}

static int by_score(const void *a, const void *b)
{
    const struct kp_candidate *x = a, *y = b;
    return x->score < y->score ? 1 : x->score > y->score ? -1 : 0;
}

static int32_t candidates(struct kp_ctl *c, int32_t broker, int32_t keep)
{
    int32_t n = 0;
    for (int32_t k = 0; k < c->n_topics; k++) {
        struct kp_topic *t = c->topics[k];
        t->fill_count = 0;
        for (int32_t i = 0; i < t->n_parts && !kp_is_slots(t) && !t->deleted; i++) {
            int32_t home = t->parts[i].home;
            t->fill_count += home == broker;
            if (home != broker && c->peers[home].n_home > keep && n < c->scratch_len) {
                c->scratch[n++] = (struct kp_candidate){kp_score(&t->id, i, broker), t, i};
            }
        }
    }
    qsort(c->scratch, (size_t)n, sizeof(*c->scratch), by_score);
    return n;
}

/* Taking this one does not make its topic less even. */
static bool keeps_spread(const struct kp_ctl *c, const struct kp_candidate *x)
{
    const struct kp_topic *t = x->t;
    if (t->n_parts > SPREAD_MAX) {
        return true;
    }
    int32_t home = t->parts[x->partition].home, at_home = 0;
    for (int32_t i = 0; i < t->n_parts; i++) {
        at_home += t->parts[i].home == home;
    }
    return t->fill_count < (t->n_parts + c->n_rows - 1) / c->n_rows && at_home > t->fill_count;
}

/* Brings broker up to target homes, taking those it scores highest for from brokers that have more
 * than keep; first without unbalancing any topic, then as it comes. */
static void fill(struct kp_ctl *c, int32_t broker, int32_t target, int32_t keep)
{
    struct kp_peer *p = &c->peers[broker];
    if (p->n_home >= target) {
        return;
    }
    int32_t n = candidates(c, broker, keep);
    for (int round = 0; round < 2; round++) {
        for (int32_t i = 0; i < n && p->n_home < target; i++) {
            struct kp_candidate *x = &c->scratch[i];
            int32_t home = x->t->parts[x->partition].home;
            if (home == broker || c->peers[home].n_home <= keep ||
                (round == 0 && !keeps_spread(c, x))) {
                continue;
            }
            set_home(c, x->t, x->partition, broker);
            x->t->fill_count++;
        }
    }
}

static void level(struct kp_ctl *c)
{
    int32_t floor = c->n_data_parts / c->n_rows;
    int32_t ceil = (c->n_data_parts + c->n_rows - 1) / c->n_rows;
    int32_t over = 0;
    for (int32_t i = 0; i < c->n_rows; i++) {
        fill(c, c->rows[i].id, floor, floor);
    }
    for (int32_t i = 0; i < c->n_rows; i++) {
        over += KC_MAX(0, c->peers[c->rows[i].id].n_home - ceil);
    }
    for (int32_t i = 0; i < c->n_rows && over > 0; i++) {
        struct kp_peer *p = &c->peers[c->rows[i].id];
        int32_t before = p->n_home;
        fill(c, c->rows[i].id, ceil, ceil);
        over -= p->n_home - before;
    }
}

void kp_homes_layout(struct kp_ctl *c)
{
    if (c->n_rows == 0) {
        return; /* scaled to nothing: homes stay as they were */
    }
    for (int32_t k = 0; k < c->n_topics; k++) {
        struct kp_topic *t = c->topics[k];
        if (t->deleted) {
            continue;
        }
        if (kp_is_slots(t)) {
            follow_slots(c, t);
        } else {
            place_topic(c, t);
        }
    }
    if (c->registry_dirty) {
        level(c);
    }
}
