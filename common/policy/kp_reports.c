/* kp_reports.c - what brokers report of their partitions. Everything is checked against what is
 * known: unknown topics, partitions and moves, stale epochs and stale streams change nothing. */
#include "policy/kp_internal.h"

static void set_flags(struct kp_ctl *c, struct kp_peer *p, struct kp_row *row,
                      const struct kp_status *s, int64_t now_ms)
{
    p->status_seen = true;
    p->healthy = s->healthy;
    p->draining = s->draining;
    p->serving = s->serving;
    p->stalled = s->stalled;
    p->volume = s->volume;
    p->drain_ms = !s->draining ? -1 : p->drain_ms < 0 ? now_ms : p->drain_ms;
    bool stall = !s->healthy && s->stalled;
    p->stall_ms = !stall ? -1 : p->stall_ms < 0 ? now_ms : p->stall_ms;
    if (s->healthy && !row->ever_healthy) {
        row->ever_healthy = true; /* R52: sticky */
        c->rows_dirty = true;
    }
    if (s->healthy && !s->draining) {
        row->last_seen_ms = s->wall_ms; /* R13: frozen while not alive */
    }
}

/* The mark goes when every partition was led once: a directory missing after that is a loss. */
static void settle_fresh(struct kp_ctl *c, struct kp_topic *t)
{
    if (!t->fresh) {
        return;
    }
    for (int32_t i = 0; i < t->n_parts; i++) {
        if (t->parts[i].led_epoch < 0) {
            return;
        }
    }
    t->fresh = false;
    kp_dirty_part(c, t);
}

static void take_led(struct kp_ctl *c, const struct kp_status *s, const struct kp_led *l)
{
    struct kp_topic *t;
    struct kp_pid pid = {l->topic_id, l->partition};
    struct kp_part *p = kp_part_find(c, &pid, &t);
    if (!p || l->epoch < p->led_epoch) {
        return; /* epochs are the volume's and only grow: this is older news */
    }
    t->aux[l->partition].seen = c->report_seq;
    if (p->led == s->broker && p->led_epoch == l->epoch &&
        kc_uuid_eq(&p->led_incarnation, &s->incarnation)) {
        return;
    }
    kp_set_led(c, t, l->partition, s->broker, &s->incarnation, l->epoch);
    p->offline = false;
    t->aux[l->partition].blocked_ms = -1;
    t->aux[l->partition].blocked_handed = false;
    settle_fresh(c, t);
    if (p->assigned != p->home || p->assigned != s->broker || p->move.id) {
        c->assign_dirty = true;
    }
}

/* A source that released under a move keeps the name of leader until the target has it, so that
 * clients are not told of a partition without one. */
static void take_unled(struct kp_ctl *c, int32_t broker, struct kp_topic *t, int32_t partition)
{
    struct kp_part *p = &t->parts[partition];
    const struct kp_move *m = &p->move;
    bool handing =
        m->id && m->from == broker && (m->phase == KP_MOVE_RELEASE || m->phase == KP_MOVE_GO);
    if (p->led == broker && !handing) {
        kp_gap_open(t, partition, c->now_ms);
        kp_set_led(c, t, partition, KP_NO_BROKER, NULL, p->led_epoch);
        c->assign_dirty = true;
    }
}

static void take_full(struct kp_ctl *c, int32_t broker)
{
    for (int32_t k = 0; k < c->n_topics; k++) {
        struct kp_topic *t = c->topics[k];
        for (int32_t i = 0; i < t->n_parts; i++) {
            if (t->parts[i].led == broker && t->aux[i].seen != c->report_seq) {
                take_unled(c, broker, t, i);
            }
        }
    }
}

static void take_moved(struct kp_ctl *c, int32_t broker, const struct kp_moved *m, bool released)
{
    struct kp_topic *t;
    struct kp_part *p = kp_part_find(c, &m->p, &t);
    if (!p || p->move.id == 0 || p->move.id != m->move_id) {
        return;
    }
    struct kp_aux *a = &t->aux[m->p.partition];
    if (released && broker == p->move.from && !a->released) {
        a->released = true;
        kp_gap_released(c, t, m->p.partition, m->stopped_ms);
        c->assign_dirty = true;
    } else if (!released && broker == p->move.to && !a->prepared) {
        a->prepared = true;
        c->assign_dirty = true;
    }
}

static void take_blocked(struct kp_ctl *c, int32_t broker, const struct kp_blocked *b,
                         int64_t now_ms)
{
    struct kp_topic *t;
    struct kp_part *p = kp_part_find(c, &b->p, &t);
    if (!p || p->assigned != broker || b->broker < 0 || b->broker >= KP_BROKERS_MAX ||
        b->broker == broker) {
        return;
    }
    struct kp_aux *a = &t->aux[b->p.partition];
    bool same = a->blocked_ms >= 0 && a->blocked_by == b->broker &&
                kc_uuid_eq(&a->blocked_inc, &b->incarnation);
    if (!same) {
        a->blocked_ms = now_ms;
        a->blocked_by = b->broker;
        a->blocked_inc = b->incarnation;
        a->blocked_handed = false;
        c->assign_dirty = true;
    }
}

static int32_t take_failed(struct kp_ctl *c, int32_t broker, const struct kp_failed *f)
{
    struct kp_topic *t;
    struct kp_part *p = kp_part_find(c, &f->p, &t);
    if (!p || !f->permanent || p->offline || p->assigned != broker) {
        return 0; /* others are retried by the broker (R61) */
    }
    p->offline = true;
    kp_dirty_part(c, t);
    return 1;
}

static void take_reports(struct kp_ctl *c, const struct kp_status *s, int64_t now_ms)
{
    int32_t offline = 0;
    c->report_seq++;
    for (int32_t i = 0; i < s->n_led; i++) {
        take_led(c, s, &s->led[i]);
    }
    if (s->full) {
        take_full(c, s->broker);
    }
    for (int32_t i = 0; i < s->n_unled; i++) {
        struct kp_topic *t;
        if (kp_part_find(c, &s->unled[i], &t)) {
            take_unled(c, s->broker, t, s->unled[i].partition);
        }
    }
    for (int32_t i = 0; i < s->n_prepared; i++) {
        take_moved(c, s->broker, &s->prepared[i], false);
    }
    for (int32_t i = 0; i < s->n_released; i++) {
        take_moved(c, s->broker, &s->released[i], true);
    }
    for (int32_t i = 0; i < s->n_blocked; i++) {
        take_blocked(c, s->broker, &s->blocked[i], now_ms);
    }
    for (int32_t i = 0; i < s->n_failed; i++) {
        offline += take_failed(c, s->broker, &s->failed[i]);
    }
    if (offline) {
        kp_event_add(c, KP_EV_OFFLINE, s->broker, KP_REASON_NONE, offline);
    }
}

void kp_ctl_status(struct kp_ctl *c, const struct kp_status *s, int64_t now_ms)
{
    if (s->broker < 0 || s->broker >= KP_BROKERS_MAX) {
        return;
    }
    struct kp_peer *p = &c->peers[s->broker];
    struct kp_row *row = p->registered ? kp_row_of(c, s->broker) : NULL;
    if (!row || !p->open || p->stream != s->stream ||
        !kc_uuid_eq(&row->incarnation, &s->incarnation)) {
        return;
    }
    c->now_ms = now_ms;
    p->last_ms = now_ms;
    if (c->active && c->first_status_ms < 0) {
        c->first_status_ms = now_ms;
    }
    if (row->condemned) {
        p->healthy = s->healthy;
        return; /* final: it is told, and registers anew */
    }
    set_flags(c, p, row, s, now_ms);
    p->life_ms = s->healthy ? now_ms : p->life_ms;
    take_reports(c, s, now_ms);
}

void kp_reports_new_incarnation(struct kp_ctl *c, int32_t broker)
{
    for (int32_t k = 0; k < c->n_topics; k++) {
        struct kp_topic *t = c->topics[k];
        for (int32_t i = 0; i < t->n_parts; i++) {
            struct kp_part *p = &t->parts[i];
            if (p->led == broker) {
                kp_gap_died(c, t, i, broker);
                kp_set_led(c, t, i, KP_NO_BROKER, NULL, p->led_epoch);
            }
            if (p->move.id && p->move.to == broker) {
                t->aux[i].prepared = false; /* warm state died with the process */
            }
        }
    }
    c->assign_dirty = true;
}
