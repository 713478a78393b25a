/* kp_move.c - planned moves, make before break (design.md, 4):
 *
 *   prepare   the target opens the sealed part and keeps it warm; no deadline in a failback
 *   release   the source drains, seals and says so
 *   go        the target claims; it is the assigned leader from here on
 *   cancel    the source goes on, the target drops what it warmed
 *
 * A slow or failed move never fences anybody: it is cancelled, and the old leader resumes. */
#include "policy/kp_internal.h"

#include <stdlib.h>
#include <string.h>

void kp_move_start(struct kp_ctl *c, struct kp_topic *t, int32_t partition, int32_t to)
{
    struct kp_part *p = &t->parts[partition];
    struct kp_aux *a = &t->aux[partition];
    if (c->move_generation != c->generation) {
        c->move_generation = c->generation;
        c->move_seq = 0;
    }
    c->n_moves += p->move.id == 0;
    p->move = (struct kp_move){.id = c->generation << KP_MOVE_SEQ_BITS | ++c->move_seq,
                               .from = p->assigned,
                               .to = to,
                               .phase = KP_MOVE_PREPARE};
    a->prepared = a->released = false;
    a->release_ms = -1;
    c->peers[to].n_coming[t->slot_kind]++;
    c->assign_dirty = true; /* its first step may be due at once */
    kp_dirty_part(c, t);
}

static void clear(struct kp_ctl *c, struct kp_topic *t, int32_t partition)
{
    t->parts[partition].move = (struct kp_move){.from = KP_NO_BROKER, .to = KP_NO_BROKER};
    c->n_moves--;
    if (c->n_moves > 0) {
        c->assign_dirty = true; /* another of its wave may go */
    }
    kp_dirty_part(c, t);
}

/* Both sides are told for a while; a broker that misses it sees the move gone from the image. */
static void cancel(struct kp_ctl *c, struct kp_topic *t, int32_t partition, int64_t now_ms)
{
    struct kp_move *m = &t->parts[partition].move;
    m->phase = KP_MOVE_CANCEL;
    m->deadline_ms = now_ms + KP_CANCEL_MS;
    kp_wake(c, m->deadline_ms);
    kp_dirty_part(c, t);
}

static void cancel_late(struct kp_ctl *c, struct kp_topic *t, int32_t partition, int64_t now_ms)
{
    t->aux[partition].retry_ms = now_ms + KP_RETRY_MS;
    cancel(c, t, partition, now_ms);
}

/* The source died under a move: its warm target takes over by an ordinary claim. */
static void hand_to_target(struct kp_ctl *c, struct kp_topic *t, int32_t partition)
{
    int32_t to = t->parts[partition].move.to;
    clear(c, t, partition);
    kp_set_assigned(c, t, partition, to);
}

static bool source_present(const struct kp_ctl *c, int32_t from)
{
    return kp_member(c, from) ||
           (c->peers[from].registered && c->peers[from].health == KP_DRAINING);
}

/* When a failback to this broker may begin: 10 s after it serves, doubling per crash. */
static int64_t failback_at(const struct kp_peer *to)
{
    if (to->serving_ms < 0) {
        return KP_NEVER;
    }
    int64_t hold = KP_HOLD_MS;
    for (int32_t k = 1; k < to->crashes && hold < KP_HOLD_MAX_MS; k++) {
        hold *= 2;
    }
    return to->serving_ms + KC_MIN(hold, KP_HOLD_MAX_MS);
}

/* How many moves of a pair may be under way. Few: each stops its partition for as long as the syncs of
 * all of them take, and whoever is served shares the disk with them. But a drain has to end in time. */
static int32_t wave_of(const struct kp_ctl *c, int32_t from, int32_t to, int64_t now_ms)
{
    int64_t since = c->peers[from].drain_ms;
    if (since < 0) {
        return KP_WAVE;
    }
    const int32_t *coming = c->peers[to].n_coming;
    int64_t work_ms = ((int64_t)coming[0] + coming[1] + coming[2]) * KP_WAVE_MS;
    int64_t left_ms =
        KC_MAX(since + kp_drain_time(&c->peers[from]).drain_ms / 2 - now_ms, (int64_t)1);
    return (int32_t)KC_MIN(KC_MAX(work_ms / left_ms, (int64_t)KP_WAVE), (int64_t)KP_WAVE_MAX);
}

static bool may_release(struct kp_ctl *c, struct kp_move *m, const struct kp_aux *a, int64_t now_ms)
{
    bool draining = !kp_member(c, m->from);
    if (draining && m->deadline_ms == 0) {
        int64_t half_ms = kp_drain_time(&c->peers[m->from]).drain_ms / 2;
        m->deadline_ms = now_ms + KC_MIN(half_ms, (int64_t)KP_PREPARE_MS);
    }
    if (draining && !a->prepared && now_ms < m->deadline_ms) {
        kp_wake(c, m->deadline_ms);
        return false;
    }
    if (!draining) {
        int64_t at = failback_at(&c->peers[m->to]);
        if (!a->prepared || now_ms < at) {
            kp_wake(c, a->prepared ? at : KP_NEVER);
            return false;
        }
    }
    return c->wave[m->from][m->to] < wave_of(c, m->from, m->to, now_ms);
}

static void go(struct kp_ctl *c, struct kp_topic *t, int32_t partition, int64_t now_ms)
{
    struct kp_move *m = &t->parts[partition].move;
    m->phase = KP_MOVE_GO;
    m->deadline_ms = now_ms + KP_GO_MS;
    kp_wake(c, m->deadline_ms);
    kp_set_assigned(c, t, partition, m->to);
}

static void step_prepare(struct kp_ctl *c, struct kp_topic *t, int32_t partition, int64_t now_ms)
{
    struct kp_part *p = &t->parts[partition];
    struct kp_move *m = &p->move;
    struct kp_aux *a = &t->aux[partition];
    if (!kp_alive_member(c, m->to)) {
        cancel(c, t, partition, now_ms);
    } else if (a->released) {
        go(c, t, partition, now_ms); /* a predecessor got this far */
    } else if (!source_present(c, m->from) ||
               (!kp_member(c, m->from) && !kp_leads(c, p, m->from))) {
        hand_to_target(c, t, partition);
    } else if (kp_member(c, m->from) && (m->to != p->home || !kp_leads(c, p, m->from))) {
        cancel(c, t, partition, now_ms);
    } else if (may_release(c, m, a, now_ms)) {
        c->wave[m->from][m->to]++;
        m->phase = KP_MOVE_RELEASE;
        m->deadline_ms = now_ms + KP_RELEASE_MS;
        a->release_ms = now_ms;
        kp_wake(c, m->deadline_ms);
    }
}

static void step_release(struct kp_ctl *c, struct kp_topic *t, int32_t partition, int64_t now_ms)
{
    struct kp_move *m = &t->parts[partition].move;
    if (!kp_alive_member(c, m->to)) {
        cancel(c, t, partition, now_ms);
    } else if (t->aux[partition].released) {
        go(c, t, partition, now_ms);
    } else if (!source_present(c, m->from)) {
        hand_to_target(c, t, partition);
    } else if (now_ms >= m->deadline_ms) {
        cancel_late(c, t, partition, now_ms);
    } else {
        kp_wake(c, m->deadline_ms);
    }
}

static void step_go(struct kp_ctl *c, struct kp_topic *t, int32_t partition, int64_t now_ms)
{
    struct kp_part *p = &t->parts[partition];
    struct kp_move *m = &p->move;
    if (m->deadline_ms == 0) { /* restored from an image: this operator's clock starts */
        m->deadline_ms = now_ms + KP_GO_MS;
    }
    if (kp_leads(c, p, m->to)) {
        clear(c, t, partition);
    } else if (!kp_member(c, m->to)) {
        int32_t back = kp_alive_member(c, m->from) ? m->from : kp_pick(c, t, partition);
        if (back >= 0) {
            kp_set_assigned(c, t, partition, back);
        }
        cancel(c, t, partition, now_ms);
    } else if (now_ms < m->deadline_ms) {
        kp_wake(c, m->deadline_ms);
    } else if (kp_alive_member(c, m->from)) {
        kp_set_assigned(c, t, partition, m->from);
        cancel_late(c, t, partition, now_ms);
    } else {
        clear(c, t, partition); /* nobody to go back to: the target claims in its own time */
    }
}

void kp_move_step(struct kp_ctl *c, struct kp_topic *t, int32_t partition, int64_t now_ms)
{
    struct kp_move *m = &t->parts[partition].move;
    switch (m->phase) {
    case KP_MOVE_PREPARE:
        step_prepare(c, t, partition, now_ms);
        break;
    case KP_MOVE_RELEASE:
        step_release(c, t, partition, now_ms);
        break;
    case KP_MOVE_GO:
        step_go(c, t, partition, now_ms);
        break;
    case KP_MOVE_CANCEL:
    case KP_MOVE_NONE:
        if (now_ms >= m->deadline_ms) {
            clear(c, t, partition);
        } else {
            kp_wake(c, m->deadline_ms);
        }
        break;
    }
}

void kp_moves_count(struct kp_ctl *c)
{
    for (int32_t i = 0; i < c->n_rows; i++) {
        int32_t id = c->rows[i].id;
        memset(c->wave[id], 0, sizeof(c->wave[id]));
        memset(c->peers[id].n_coming, 0, sizeof(c->peers[id].n_coming));
    }
    for (int32_t k = 0; k < c->n_topics && c->n_moves > 0; k++) {
        const struct kp_topic *t = c->topics[k];
        for (int32_t i = 0; i < t->n_parts; i++) {
            const struct kp_move *m = &t->parts[i].move;
            if (m->id == 0) {
                continue;
            }
            c->wave[m->from][m->to] += m->phase == KP_MOVE_RELEASE || m->phase == KP_MOVE_GO;
            c->peers[m->to].n_coming[t->slot_kind] +=
                m->phase == KP_MOVE_PREPARE || m->phase == KP_MOVE_RELEASE;
        }
    }
}

/* What a broker still has to hear of a move; nothing before the move itself is published. */
static bool relayed(const struct kp_ctl *c, const struct kp_move *m, const struct kp_aux *a,
                    int32_t broker)
{
    if (m->id == 0 || m->id >> KP_MOVE_SEQ_BITS > c->published) {
        return false;
    }
    switch (m->phase) {
    case KP_MOVE_PREPARE:
        return broker == m->to && !a->prepared;
    case KP_MOVE_RELEASE:
        return broker == m->from && !a->released;
    case KP_MOVE_GO:
        return broker == m->to;
    case KP_MOVE_CANCEL:
        return broker == m->to || broker == m->from;
    case KP_MOVE_NONE:
        break;
    }
    return false;
}

static int by_move_id(const void *a, const void *b)
{
    const struct kp_relay *x = a, *y = b;
    return x->move_id < y->move_id ? -1 : x->move_id > y->move_id;
}

/* Adds the relays of one urgency: those that somebody waits for, or the preparations. */
static int32_t collect(const struct kp_ctl *c, int32_t broker, bool preparations,
                       struct kp_relay *ret, int32_t n, int32_t cap)
{
    for (int32_t k = 0; k < c->n_topics; k++) {
        const struct kp_topic *t = c->topics[k];
        for (int32_t i = 0; i < t->n_parts && n < cap; i++) {
            const struct kp_move *m = &t->parts[i].move;
            if ((m->phase == KP_MOVE_PREPARE) == preparations &&
                relayed(c, m, &t->aux[i], broker)) {
                ret[n++] = (struct kp_relay){.move_id = m->id,
                                             .p = {t->id, i},
                                             .from = m->from,
                                             .to = m->to,
                                             .phase = m->phase};
            }
        }
    }
    return n;
}

int32_t kp_ctl_relays(const struct kp_ctl *c, int32_t broker, struct kp_relay *ret, int32_t cap)
{
    if (c->n_moves == 0 || !c->active) {
        return 0;
    }
    int32_t n = collect(c, broker, false, ret, 0, cap);
    n = collect(c, broker, true, ret, n, cap);
    qsort(ret, (size_t)n, sizeof(*ret), by_move_id);
    return n;
}
