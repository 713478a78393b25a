/* kp_rows.c - what is said of each broker: the table of design.md, 2, made of the facts. */
#include "policy/kp_internal.h"

void kp_event_add(struct kp_ctl *c, enum kp_event_kind kind, int32_t broker, enum kp_reason reason,
                  int32_t count)
{
    if (c->n_events < KP_EVENTS_MAX) {
        c->events[c->n_events++] =
            (struct kp_event){.kind = kind, .broker = broker, .reason = reason, .count = count};
    }
}

static bool healthy(const struct kp_row *row, const struct kp_peer *p)
{
    return p->healthy || (row->protocol_version == 0 && !row->ever_healthy); /* R52 */
}

static enum kp_health health_of(const struct kp_ctl *c, const struct kp_row *row,
                                const struct kp_peer *p, int64_t now_ms)
{
    bool self = row->id == c->o.self_id;
    if (self) {
        return p->draining ? KP_DRAINING : KP_ALIVE; /* R7, R28 */
    }
    if (!p->connected || !p->status_seen || row->condemned || (p->condemn && !p->member)) {
        return KP_DEAD;
    }
    if (!healthy(row, p)) {
        return KP_DEAD;
    }
    if (p->draining) {
        int64_t limit = kp_drain_time(p).condemn_ms;
        return now_ms - p->drain_ms < limit || p->member ? KP_DRAINING : KP_DEAD; /* R29 */
    }
    return KP_ALIVE;
}

static enum kp_reason reason_dead(const struct kp_row *row, const struct kp_peer *p)
{
    if (kc_uuid_is_zero(&row->incarnation)) {
        return KP_REASON_NEVER_SEEN;
    }
    if (p->draining) {
        return KP_REASON_DRAINED;
    }
    if (!p->connected) {
        return KP_REASON_LOST;
    }
    if (!p->status_seen) {
        return KP_REASON_BOOTING;
    }
    if (!healthy(row, p)) {
        return p->stalled ? KP_REASON_STALLED : KP_REASON_WEDGED;
    }
    /* Condemned, and well again or asked for by the blocked rule: it has yet to re-register. */
    return row->reason == KP_REASON_NONE || row->reason == KP_REASON_BOOTING ? KP_REASON_WEDGED
                                                                             : row->reason;
}

/* The broker's own word; the slice's where an older image does not send one (R36). */
static bool serving(const struct kp_row *row, const struct kp_peer *p)
{
    return row->protocol_version == 0 ? row->slice_ready : p->serving;
}

static enum kp_state state_of(enum kp_health health, bool is_serving)
{
    switch (health) {
    case KP_ALIVE:
        return is_serving ? KP_SERVING : KP_FENCED;
    case KP_DRAINING:
        return KP_STATE_DRAINING;
    case KP_DEAD:
        break;
    }
    return KP_FENCED;
}

/* An incarnation that may be fenced: it was in the set and fell out, or it went before it spoke.
 * One that is still on its way to its first status is not (W6). Final. */
static bool condemned_of(const struct kp_row *row, const struct kp_peer *p, enum kp_health health)
{
    if (row->condemned) {
        return true;
    }
    if (health != KP_DEAD || p->member || kc_uuid_is_zero(&row->incarnation)) {
        return false;
    }
    return p->status_seen || !p->connected;
}

static void row_event(struct kp_ctl *c, const struct kp_row *was, const struct kp_row *is)
{
    if (is->condemned && !was->condemned) {
        kp_event_add(c, KP_EV_CONDEMNED, is->id, is->reason, 0);
    }
    if (is->volume != was->volume && is->health != KP_DEAD) {
        static const enum kp_event_kind kinds[] = {[KP_VOLUME_WRITABLE] = KP_EV_VOLUME_WRITABLE,
                                                   [KP_VOLUME_FULL] = KP_EV_VOLUME_FULL,
                                                   [KP_VOLUME_READ_ONLY] = KP_EV_VOLUME_READ_ONLY};
        kp_event_add(c, kinds[is->volume], is->id, KP_REASON_NONE, 0);
    }
    if (is->state == was->state && (is->state != KP_FENCED || is->reason == was->reason)) {
        return;
    }
    enum kp_event_kind kind = is->state == KP_SERVING          ? KP_EV_SERVING
                              : is->state == KP_STATE_DRAINING ? KP_EV_DRAINING
                                                               : KP_EV_FENCED;
    kp_event_add(c, kind, is->id, is->reason, 0);
}

static void update_row(struct kp_ctl *c, struct kp_row *row, int64_t now_ms)
{
    struct kp_peer *p = &c->peers[row->id];
    struct kp_row was = *row;
    row->health = health_of(c, row, p, now_ms);
    row->serving = row->health != KP_DEAD && serving(row, p);
    row->state = state_of(row->health, row->serving);
    row->kept = p->member && row->health != KP_ALIVE;
    row->reason = row->health == KP_DEAD    ? reason_dead(row, p)
                  : row->state == KP_FENCED ? KP_REASON_BOOTING
                                            : KP_REASON_NONE;
    row->volume = row->health == KP_DEAD ? KP_VOLUME_WRITABLE : p->volume;
    row->condemned = condemned_of(row, p, row->health);
    p->health = row->health;
    p->condemned = row->condemned;
    row_event(c, &was, row);
    if (row->health != was.health || row->kept != was.kept || row->condemned != was.condemned) {
        c->assign_dirty = true;
        c->rows_dirty = true;
    }
    if (row->state != was.state || row->reason != was.reason || row->serving != was.serving ||
        row->volume != was.volume) {
        c->rows_dirty = true;
    }
    bool up = row->health == KP_ALIVE && row->serving;
    if (up && p->serving_ms < 0) {
        p->serving_ms = now_ms;
        c->assign_dirty = true; /* failback starts to count */
    } else if (!up) {
        p->serving_ms = -1;
    }
    if (row->health == KP_ALIVE && row->last_seen_ms - p->seen_written_ms >= KP_SEEN_COARSE_MS) {
        c->rows_dirty = true; /* R13: coarse while nothing else is written */
    }
}

/* When a report of a broker is overdue: half an interval late on a stream, or a stream that was not dialled
 * again in the interval it has for that (R51). KP_NEVER: nothing is expected of it. */
static int64_t overdue_at(const struct kp_ctl *c, const struct kp_row *row)
{
    const struct kp_peer *p = &c->peers[row->id];
    if (row->id == c->o.self_id || row->health == KP_DEAD || !p->status_seen) {
        return KP_NEVER;
    }
    if (p->open) {
        return p->last_ms + c->o.interval_ms * 3 / 2;
    }
    return p->close_ms < 0 ? KP_NEVER : p->close_ms + c->o.interval_ms;
}

int64_t kp_rows_silent(struct kp_ctl *c, int64_t now_ms)
{
    int64_t next = KP_NEVER;
    for (int32_t i = 0; i < c->n_rows; i++) {
        struct kp_row *row = &c->rows[i];
        int64_t at = overdue_at(c, row);
        bool silent = now_ms > at;
        c->told_dirty = c->told_dirty || silent != row->silent;
        row->silent = silent;
        if (!silent && at != KP_NEVER) {
            next = KC_MIN(next, at + 1);
        }
    }
    return next;
}

void kp_rows_update(struct kp_ctl *c, int64_t now_ms)
{
    for (int32_t i = 0; i < c->n_rows; i++) {
        update_row(c, &c->rows[i], now_ms);
    }
    kp_gaps_rows(c);
}

void kp_rows_loads(struct kp_ctl *c)
{
    for (int32_t i = 0; i < c->n_rows; i++) {
        struct kp_row *row = &c->rows[i];
        const struct kp_peer *p = &c->peers[row->id];
        if (row->partitions != p->n_led || row->slots != p->n_led_slots) {
            row->partitions = p->n_led;
            row->slots = p->n_led_slots;
            c->rows_dirty = true;
        }
    }
}
