/* kp_ctl.c - life of a controller, becoming active, and the step that decides. */
#include "policy/kp_internal.h"

#include <errno.h>
#include <string.h>

#include "base/kc_mem.h"

enum { CANDIDATE_BYTES = 24 }; /* of kp_homes.c, which asserts it */

int kp_ctl_set_limits(struct kp_ctl *c, int32_t max_topics, int32_t max_partitions)
{
    if (!c->scratch || max_partitions > c->scratch_len) {
        int32_t n = KC_MAX(max_partitions, 1);
        void *scratch = kc_try_zalloc((size_t)n, CANDIDATE_BYTES);
        if (!scratch) {
            return -ENOMEM;
        }
        kc_free(c->scratch);
        c->scratch = scratch;
        c->scratch_len = n;
    }
    c->o.max_topics = max_topics;
    c->o.max_partitions = max_partitions;
    return 0;
}

struct kp_ctl *kp_ctl_new(const struct kp_ctl_opts *opts)
{
    struct kp_ctl *c = kc_try_zalloc(1, sizeof(*c));
    if (!c) {
        return NULL;
    }
    c->o = *opts;
    c->o.max_brokers = KC_MIN(opts->max_brokers, KP_BROKERS_MAX);
    c->desired = INT32_MAX; /* until told: nobody is removed */
    if (kp_ctl_set_limits(c, opts->max_topics, opts->max_partitions)) {
        kc_free(c);
        return NULL;
    }
    for (int32_t i = 0; i < KP_BROKERS_MAX; i++) {
        struct kp_peer *p = &c->peers[i];
        p->close_ms = p->drain_ms = p->stall_ms = p->serving_ms = p->alive_ms = p->life_ms = -1;
    }
    for (int32_t s = 0; s < KP_SLOTS; s++) {
        c->homes[0][s] = c->homes[1][s] = KP_NO_BROKER;
    }
    c->activated_ms = c->first_status_ms = c->mass_until_ms = c->outage_return_ms = -1;
    if (opts->self_id >= 0 && opts->self_id < KP_BROKERS_MAX) {
        kp_registry_add(c, opts->self_id); /* R7: pinned from the start */
    }
    return c;
}

void kp_ctl_free(struct kp_ctl *c)
{
    if (!c) {
        return;
    }
    for (int32_t i = 0; i < c->n_topics; i++) {
        kc_free(c->topics[i]->parts);
        kc_free(c->topics[i]->aux);
        kc_free(c->topics[i]);
    }
    kc_free(c->topics);
    kc_free(c->table);
    kc_free(c->scratch);
    kc_free(c);
}

/* ---- becoming active ---- */

void kp_ctl_restore_row(struct kp_ctl *c, const struct kp_row *row)
{
    if (row->id < 0 || row->id >= KP_BROKERS_MAX) {
        return;
    }
    struct kp_peer *p = &c->peers[row->id];
    if (!p->registered) {
        kp_registry_add(c, row->id);
        c->n_events--; /* it was registered all along */
    }
    struct kp_row *mine = kp_row_of(c, row->id);
    if (p->open) {
        /* A live stream knows better who the broker is; what was proven and seen is kept. */
        bool same = kc_uuid_eq(&mine->incarnation, &row->incarnation);
        mine->ever_healthy = mine->ever_healthy || (same && row->ever_healthy);
        mine->condemned = same && row->condemned;
        p->condemned = mine->condemned;
        mine->last_seen_ms = KC_MAX(mine->last_seen_ms, row->last_seen_ms);
    } else {
        *mine = *row;
        if (!p->listed) {
            memcpy(p->pod_uid, row->pod_uid, sizeof(p->pod_uid));
            memcpy(p->host, row->host, sizeof(p->host));
        }
        p->status_seen = row->health != KP_DEAD;
        p->healthy = row->health != KP_DEAD;
        p->draining = row->health == KP_DRAINING;
        p->serving = row->serving;
        p->condemned = row->condemned;
        p->health = row->health;
    }
    p->member = row->health == KP_ALIVE || row->kept;
    p->seen_written_ms = row->last_seen_ms;
}

void kp_ctl_restore_part(struct kp_ctl *c, const struct kc_uuid *id, int32_t partition,
                         const struct kp_part *part)
{
    struct kp_topic *t;
    struct kp_pid pid = {*id, partition};
    struct kp_part *p = kp_part_find(c, &pid, &t);
    if (!p) {
        return;
    }
    const struct kp_move *m = &part->move;
    bool valid = m->id && m->from >= 0 && m->from < KP_BROKERS_MAX && m->to >= 0 &&
                 m->to < KP_BROKERS_MAX && !t->deleted;
    if (p->move.id == 0 && valid) {
        p->move = *m;
        p->move.deadline_ms = 0;
        if (m->phase == KP_MOVE_RELEASE) {
            p->move.phase = KP_MOVE_PREPARE; /* the source's report says whether it released */
        }
        c->n_moves++;
    }
    if (part->assigned >= 0 && part->assigned < KP_BROKERS_MAX) {
        kp_set_assigned(c, t, partition, part->assigned);
    }
    p->assigned_generation = part->assigned_generation;
    p->offline = part->offline;
    if (part->home >= 0 && part->home < KP_BROKERS_MAX && !t->deleted) {
        c->peers[part->home].n_home += !kp_is_slots(t);
        p->home = part->home;
    }
    const struct kp_row *row = part->led >= 0 ? kp_row_of(c, part->led) : NULL;
    bool current = row && kc_uuid_eq(&row->incarnation, &part->led_incarnation);
    if (part->led_epoch > p->led_epoch) {
        kp_set_led(c, t, partition, current ? part->led : KP_NO_BROKER,
                   current ? &part->led_incarnation : NULL, part->led_epoch);
    }
}

void kp_ctl_restore_homes(struct kp_ctl *c, int32_t slot_kind, const int32_t homes[KP_SLOTS])
{
    for (int32_t s = 0; s < KP_SLOTS; s++) {
        bool valid = homes[s] >= 0 && homes[s] < KP_BROKERS_MAX;
        c->homes[slot_kind - 1][s] = valid ? homes[s] : KP_NO_BROKER;
    }
}

void kp_ctl_activate(struct kp_ctl *c, int64_t now_ms)
{
    c->active = true;
    c->decided = false;
    c->activated_ms = now_ms;
    c->first_status_ms = -1;
    for (int32_t i = 0; i < c->n_rows; i++) {
        struct kp_peer *p = &c->peers[c->rows[i].id];
        if (p->open && p->status_seen && c->first_status_ms < 0) {
            c->first_status_ms = now_ms;
        }
        if (!p->open) {
            p->close_ms = p->status_seen ? now_ms : -1;
        }
    }
    kp_ctl_paused(c, now_ms);
}

static bool has_assignment(const struct kp_ctl *c)
{
    for (int32_t k = 0; k < c->n_topics; k++) {
        for (int32_t i = 0; i < c->topics[k]->n_parts; i++) {
            if (c->topics[k]->parts[i].assigned >= 0) {
                return true;
            }
        }
    }
    return false;
}

static bool spoke(const struct kp_peer *p)
{
    return p->registered && p->open && p->status_seen;
}

/* Every wanted ordinal is registered and connected. */
static bool all_wanted(const struct kp_ctl *c)
{
    int32_t n = c->desired == INT32_MAX ? c->n_rows : KC_MIN(c->desired, c->o.max_brokers);
    for (int32_t id = 0; id < n; id++) {
        if (!spoke(&c->peers[id])) {
            return false;
        }
    }
    return n > 0;
}

/* R62: the first decision of a new active operator waits for the brokers, so that nothing is
 * assigned to whoever dials first. Returns true when it may decide; else *ret_next says when time
 * alone may allow it. A minority connected after the grace counts as nobody. */
static bool may_decide(struct kp_ctl *c, int64_t now_ms, int64_t *ret_next)
{
    if (c->decided || c->o.self_id >= 0) {
        return true;
    }
    int32_t last = 0, back = 0;
    for (int32_t i = 0; i < c->n_rows; i++) {
        const struct kp_peer *p = &c->peers[c->rows[i].id];
        last += p->member;
        back += p->member && spoke(p);
    }
    bool known = has_assignment(c);
    int64_t grace_ends = c->activated_ms + KP_GRACE_MS;
    if (known && last > 0) {
        if (back == last || (now_ms >= grace_ends && back * 2 >= last && back > 0)) {
            return true;
        }
        if (now_ms < grace_ends) {
            *ret_next = grace_ends;
            return false;
        }
    }
    if (c->first_status_ms < 0) {
        *ret_next = KP_NEVER;
        return false;
    }
    int64_t until = c->first_status_ms + (known ? KP_COLD_WAIT_MS : KP_FIRST_WAIT_MS);
    *ret_next = until;
    return all_wanted(c) || now_ms >= until;
}

/* ---- deciding ---- */

static void layout(struct kp_ctl *c)
{
    if (!c->registry_dirty && !c->layout_dirty) {
        return;
    }
    if (c->registry_dirty) {
        kp_slots_layout(c, KP_GROUP_SLOTS);
        kp_slots_layout(c, KP_TXN_SLOTS);
    }
    kp_homes_layout(c);
    c->registry_dirty = c->n_rows == 0;
    c->layout_dirty = false;
}

static void events_moved(struct kp_ctl *c)
{
    for (int32_t i = 0; i < c->n_rows; i++) {
        int32_t id = c->rows[i].id;
        if (c->moved[id] > 0) {
            kp_event_add(c, KP_EV_PARTITIONS_MOVED, id, KP_REASON_NONE, c->moved[id]);
        }
    }
    memset(c->moved, 0, sizeof(c->moved));
}

static void hand_out_told(struct kp_ctl *c, struct kp_changes *ret)
{
    ret->told = c->told_dirty;
    c->told_dirty = false;
}

static void hand_out(struct kp_ctl *c, struct kp_changes *ret)
{
    hand_out_told(c, ret);
    ret->active = true;
    ret->rows = c->rows_dirty;
    ret->shards = c->shards_dirty;
    ret->confirm_lease = c->confirm_lease;
    ret->n_events = c->n_events;
    memcpy(ret->events, c->events, (size_t)c->n_events * sizeof(c->events[0]));
    if (c->rows_dirty) {
        for (int32_t i = 0; i < c->n_rows; i++) {
            c->peers[c->rows[i].id].seen_written_ms = c->rows[i].last_seen_ms;
        }
    }
    c->rows_dirty = c->confirm_lease = false;
    c->shards_dirty = 0;
    c->n_events = 0;
}

void kp_ctl_step(struct kp_ctl *c, int64_t now_ms, uint64_t generation, struct kp_changes *ret)
{
    ret->active = ret->rows = ret->told = ret->confirm_lease = false;
    ret->shards = 0;
    ret->n_events = 0;
    ret->next_ms = now_ms + c->o.interval_ms;
    c->generation = generation;
    c->now_ms = now_ms;
    if (!c->active) {
        return;
    }
    int64_t wait_ms = KP_NEVER;
    if (!may_decide(c, now_ms, &wait_ms)) {
        ret->next_ms = KC_MIN(ret->next_ms, KC_MIN(wait_ms, kp_rows_silent(c, now_ms)));
        hand_out_told(c, ret);
        return;
    }
    kp_liveness_eval(c, now_ms);
    kp_rows_update(c, now_ms);
    int64_t silent_ms = kp_rows_silent(c, now_ms);
    layout(c);
    /* A move that starts may be due at once; each round only advances phases, so few are needed. */
    for (int rounds = 0; rounds < 3 && (c->assign_dirty || now_ms >= c->scan_ms || !c->decided);
         rounds++) {
        c->assign_dirty = false;
        kp_assign(c, now_ms);
        c->decided = true;
    }
    kp_rows_loads(c);
    events_moved(c);
    hand_out(c, ret);
    ret->next_ms = KC_MIN(kp_liveness_next(c, now_ms), KC_MAX(c->scan_ms, now_ms + 1));
    ret->next_ms = KC_MIN(ret->next_ms, silent_ms);
    if (c->assign_dirty) {
        ret->next_ms = now_ms + 1;
    }
}

void kp_ctl_published(struct kp_ctl *c, uint64_t generation)
{
    c->published = KC_MAX(c->published, generation);
}

/* ---- reading ---- */

int32_t kp_ctl_rows(const struct kp_ctl *c, const struct kp_row **ret)
{
    *ret = c->rows;
    return c->n_rows;
}

const struct kp_row *kp_ctl_row(const struct kp_ctl *c, int32_t broker)
{
    for (int32_t i = 0; i < c->n_rows; i++) {
        if (c->rows[i].id == broker) {
            return &c->rows[i];
        }
    }
    return NULL;
}

const struct kp_part *kp_ctl_parts(const struct kp_ctl *c, const struct kc_uuid *id, int32_t *ret_n)
{
    const struct kp_topic *t = kp_topic_find(c, id);
    *ret_n = t ? t->n_parts : 0;
    return t ? t->parts : NULL;
}

bool kp_ctl_topic_fresh(const struct kp_ctl *c, const struct kc_uuid *id)
{
    const struct kp_topic *t = kp_topic_find(c, id);
    return t && t->fresh;
}

const int32_t *kp_ctl_homes(const struct kp_ctl *c, int32_t slot_kind)
{
    return c->homes[slot_kind - 1];
}
