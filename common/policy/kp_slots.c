/* kp_slots.c - homes of the coordinator slots (C): over all registered brokers, dead and draining
 * included, so that death and draining move nothing but the dead broker's own (R16, R18, R19).
 * First layout registered[slot % n]; afterwards only as many slots change hands as a registration
 * or deregistration makes necessary (W8). */
#include "policy/kp_internal.h"

#include "base/kc_hash.h"

static uint64_t slot_score(int32_t kind, int32_t slot, int32_t broker)
{
    return kc_hash64_mix((uint64_t)kind << 32 | (uint32_t)slot, (uint64_t)broker + 1);
}

static void count_homes(const struct kp_ctl *c, const int32_t *homes, int32_t *load)
{
    for (int32_t i = 0; i < c->n_rows; i++) {
        load[c->rows[i].id] = 0;
    }
    for (int32_t s = 0; s < KP_SLOTS; s++) {
        if (homes[s] >= 0 && c->peers[homes[s]].registered) {
            load[homes[s]]++;
        }
    }
}

static int32_t least_loaded(const struct kp_ctl *c, const int32_t *load, int32_t kind, int32_t slot)
{
    int32_t best = KP_NO_BROKER;
    for (int32_t i = 0; i < c->n_rows; i++) {
        int32_t id = c->rows[i].id;
        if (best < 0 || load[id] < load[best] ||
            (load[id] == load[best] && slot_score(kind, slot, id) > slot_score(kind, slot, best))) {
            best = id;
        }
    }
    return best;
}

/* The slot's leader of the moment, if it is one of us: a slot that was moved off a leaving broker
 * already sits at its future home. */
static int32_t leader_of(const struct kp_ctl *c, int32_t kind, int32_t slot)
{
    for (int32_t i = 0; i < c->n_topics; i++) {
        const struct kp_topic *t = c->topics[i];
        if (t->slot_kind == kind && !t->deleted && slot < t->n_parts) {
            int32_t a = t->parts[slot].assigned;
            return a >= 0 && c->peers[a].registered ? a : KP_NO_BROKER;
        }
    }
    return KP_NO_BROKER;
}

static void replace_gone(struct kp_ctl *c, int32_t kind, int32_t *homes, int32_t *load)
{
    int32_t ceil = (KP_SLOTS + c->n_rows - 1) / c->n_rows;
    for (int32_t s = 0; s < KP_SLOTS; s++) {
        if (homes[s] >= 0 && c->peers[homes[s]].registered) {
            continue;
        }
        int32_t to = leader_of(c, kind, s);
        if (to < 0 || load[to] >= ceil) {
            to = least_loaded(c, load, kind, s);
        }
        homes[s] = to;
        load[to]++;
    }
}

/* One slot from the most loaded broker to the least, until they differ by one at most. */
static bool level_one(const struct kp_ctl *c, int32_t kind, int32_t *homes, int32_t *load)
{
    int32_t most = c->rows[0].id, least = c->rows[0].id;
    for (int32_t i = 1; i < c->n_rows; i++) {
        int32_t id = c->rows[i].id;
        most = load[id] > load[most] ? id : most;
        least = load[id] < load[least] ? id : least;
    }
    if (load[most] - load[least] <= 1) {
        return false;
    }
    int32_t pick = -1;
    for (int32_t s = 0; s < KP_SLOTS; s++) {
        if (homes[s] == most &&
            (pick < 0 || slot_score(kind, s, least) > slot_score(kind, pick, least))) {
            pick = s;
        }
    }
    homes[pick] = least;
    load[most]--;
    load[least]++;
    return true;
}

void kp_slots_layout(struct kp_ctl *c, int32_t kind)
{
    int32_t *homes = c->homes[kind - 1];
    int32_t load[KP_BROKERS_MAX];
    if (c->n_rows == 0) {
        return;
    }
    bool first = true;
    for (int32_t s = 0; s < KP_SLOTS; s++) {
        first = first && homes[s] == KP_NO_BROKER;
    }
    if (first) {
        for (int32_t s = 0; s < KP_SLOTS; s++) {
            homes[s] = c->rows[s % c->n_rows].id; /* R16 */
        }
        c->rows_dirty = true;
        return;
    }
    count_homes(c, homes, load);
    replace_gone(c, kind, homes, load);
    while (level_one(c, kind, homes, load)) {
    }
    c->rows_dirty = true;
}
