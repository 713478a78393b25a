/* What is to be done about one partition: its goal from image, move and mode; then the step from its
 * state towards that goal. */
#include "cluster/kl_plan_int.h"

#include "base/kc_error.h"

enum goal {
    GOAL_NONE, /* somebody else's: seal what is open */
    GOAL_OPEN, /* ours */
    GOAL_PREPARE, /* target of a move: warm */
    GOAL_GO, /* target of a move: claim */
    GOAL_RELEASED, /* source of a move: sealed, and not opened again until the move ends */
    GOAL_DELETED, /* the topic is a tombstone: close, nothing is worth a seal */
    GOAL_DROP /* we are fenced: close */
};

static enum goal move_goal(const struct kl_plan *p, const struct kl_item *it)
{
    const struct kp_move *m = &it->move;
    if (m->to == p->self && m->from != p->self) {
        switch (m->phase) {
        case KP_MOVE_PREPARE:
        case KP_MOVE_RELEASE:
            return GOAL_PREPARE;
        case KP_MOVE_GO:
            return GOAL_GO;
        default:
            return GOAL_NONE; /* cancelled */
        }
    }
    switch (m->phase) {
    case KP_MOVE_RELEASE:
    case KP_MOVE_GO:
        return GOAL_RELEASED;
    case KP_MOVE_CANCEL:
        return GOAL_OPEN; /* the source goes on, whatever an older image says */
    default: /* being prepared elsewhere: nothing changes here yet */
        return it->assigned == p->self || it->state == KL_OPEN ? GOAL_OPEN : GOAL_NONE;
    }
}

static enum goal goal_of(const struct kl_plan *p, const struct kl_item *it)
{
    if (p->mode == KL_DROP) {
        return GOAL_DROP;
    }
    if (it->deleted) {
        return GOAL_DELETED;
    }
    if (p->mode == KL_LEAVE || !it->present) {
        return GOAL_NONE;
    }
    if (it->move.id && (it->move.from == p->self || it->move.to == p->self)) {
        return move_goal(p, it);
    }
    return it->assigned == p->self ? GOAL_OPEN : GOAL_NONE;
}

bool kl_item_wanted(const struct kl_plan *p, const struct kl_item *it)
{
    enum goal g = goal_of(p, it);
    return g == GOAL_OPEN || g == GOAL_PREPARE || g == GOAL_GO;
}

bool kl_item_there(const struct kl_item *it)
{
    return it->state == KL_OPEN || it->state == KL_PREPARED;
}

/* ---- attempts ---- */

static void set_blocked(struct kl_plan *p, struct kl_item *it, bool blocked)
{
    p->n_blocked += (int32_t)blocked - (int32_t)it->blocked;
    it->blocked = blocked;
}

static void set_permanent(struct kl_plan *p, struct kl_item *it, bool permanent)
{
    p->n_permanent += (int32_t)permanent - (int32_t)it->permanent;
    it->permanent = permanent;
}

static void clear_failure(struct kl_plan *p, struct kl_item *it)
{
    set_blocked(p, it, false);
    set_permanent(p, it, false);
    it->attempts = 0;
    it->fail_rc = 0;
}

/* Missing without the image calling it fresh, or not verifying: no retry in a hurry helps. */
static bool is_permanent(int rc)
{
    return rc == KC_E_NOT_FOUND || rc == KC_E_CORRUPT || rc == KC_E_GONE;
}

static void failed(struct kl_plan *p, struct kl_item *it, int rc, int64_t now_ms)
{
    bool was_blocked = it->blocked, was_permanent = it->permanent;
    set_blocked(p, it, rc == KC_E_BLOCKED);
    set_permanent(p, it, is_permanent(rc));
    it->fail_rc = rc;
    int64_t wait = KL_RETRY_MIN_MS;
    int32_t kind = 0;
    for (; kind < it->attempts && wait < KL_RETRY_MAX_MS; kind++) {
        wait *= 2;
    }
    kind = it->permanent ? KL_WAITS - 1 : it->blocked ? KL_WAITS - 2 : kind;
    it->attempts++;
    it->retry_ms = now_ms + (it->permanent ? (int64_t)KL_PERMANENT_RETRY_MS
                             : it->blocked ? (int64_t)KL_BLOCKED_RETRY_MS
                                           : KC_MIN(wait, (int64_t)KL_RETRY_MAX_MS));
    kl_item_set_state(p, it, KL_WAITING, now_ms);
    kc_list_add_tail(&p->waits[kind], &it->wait_link);
    if (it->blocked != was_blocked || it->permanent != was_permanent || it->attempts == 3) {
        kl_item_changed(p, it);
    }
    kl_item_ready(p, it);
}

/* An item leaves the boot set when it is there, has failed for good, or is not wanted any more. */
static void settle_boot(struct kl_plan *p, struct kl_item *it)
{
    if (it->in_boot && (kl_item_there(it) || it->permanent || !kl_item_wanted(p, it))) {
        it->in_boot = false;
        if (--p->n_boot == 0) {
            p->latched = true;
        }
    }
}

/* ---- steps ---- */

static void to_idle(struct kl_plan *p, struct kl_item *it, int64_t now_ms)
{
    clear_failure(p, it);
    kl_item_set_state(p, it, KL_IDLE, now_ms);
    kl_item_changed(p, it);
}

static void to_waiting(struct kl_plan *p, struct kl_item *it, int64_t now_ms)
{
    it->wanted_ms = now_ms;
    it->retry_ms = now_ms;
    kl_item_set_state(p, it, KL_WAITING, now_ms);
}

static bool act(struct kl_plan *p, struct kl_item *it, enum kl_item_state s, enum kl_do what,
                int64_t now_ms, struct kl_action *ret)
{
    kl_item_set_state(p, it, s, now_ms);
    *ret = (struct kl_action){.what = what, .item = it, .hint = KP_NO_BROKER};
    return true;
}

static bool cancel(struct kl_plan *p, struct kl_item *it, int64_t now_ms, struct kl_action *ret)
{
    act(p, it, KL_IDLE, KL_DO_CANCEL, now_ms, ret);
    to_idle(p, it, now_ms);
    kl_item_ready(p, it); /* it may be wanted in another way */
    return true;
}

static bool step_idle(struct kl_plan *p, struct kl_item *it, enum goal g, int64_t now_ms)
{
    if (p->mode != KL_RUN) {
        return false;
    }
    if (g == GOAL_RELEASED && p->entitled) {
        it->stop_ms = 0;
        kl_item_set_state(p, it, KL_RELEASED, now_ms); /* nothing is open here: nothing to seal */
        kl_item_changed(p, it);
    } else if (g == GOAL_OPEN || g == GOAL_PREPARE || g == GOAL_GO) {
        to_waiting(p, it, now_ms);
        kl_item_ready(p, it);
    }
    return false;
}

static bool step_waiting(struct kl_plan *p, struct kl_item *it, enum goal g, int64_t now_ms,
                         struct kl_action *ret)
{
    bool wanted = g == GOAL_OPEN || g == GOAL_PREPARE || g == GOAL_GO;
    if (!wanted || p->mode != KL_RUN) {
        to_idle(p, it, now_ms);
        if (g == GOAL_RELEASED) {
            kl_item_ready(p, it);
        }
        return false;
    }
    if (!p->entitled || now_ms < it->retry_ms) {
        return false;
    }
    return g == GOAL_PREPARE ? act(p, it, KL_PREPARING, KL_DO_PREPARE, now_ms, ret)
                             : act(p, it, KL_OPENING, KL_DO_OPEN, now_ms, ret);
}

static bool step_warm(struct kl_plan *p, struct kl_item *it, enum goal g, int64_t now_ms,
                      struct kl_action *ret)
{
    bool wanted = g == GOAL_OPEN || g == GOAL_PREPARE || g == GOAL_GO;
    if (!wanted || p->mode != KL_RUN) {
        return cancel(p, it, now_ms, ret);
    }
    if (it->state == KL_PREPARED && g != GOAL_PREPARE && p->entitled) {
        it->wanted_ms = now_ms;
        return act(p, it, KL_CLAIMING, KL_DO_GO, now_ms, ret);
    }
    return false;
}

/* Sealing what the image gives to others needs an image that is surely the current one. */
static bool may_seal(const struct kl_plan *p)
{
    return p->mode == KL_LEAVE || (p->image && p->confirmed);
}

static bool step_open(struct kl_plan *p, struct kl_item *it, enum goal g, int64_t now_ms,
                      struct kl_action *ret)
{
    bool close = g == GOAL_DROP || g == GOAL_DELETED || it->stopped;
    bool seal = g == GOAL_RELEASED || (g == GOAL_NONE && may_seal(p));
    if (!close && !seal) {
        return false;
    }
    act(p, it, KL_RELEASING, KL_DO_RELEASE, now_ms, ret);
    it->stop_ms = now_ms;
    ret->seal = seal && !it->stopped;
    ret->hint = g == GOAL_RELEASED                ? it->move.to
                : seal && it->assigned != p->self ? it->assigned
                                                  : KP_NO_BROKER;
    return true;
}

static bool step_released(struct kl_plan *p, struct kl_item *it, enum goal g, int64_t now_ms)
{
    if (g == GOAL_RELEASED) {
        if (now_ms - it->state_ms > KL_RESUME_MS && it->assigned == p->self) {
            it->move.phase =
                KP_MOVE_CANCEL; /* nobody tells us how it went: an ordinary claim will */
            kl_item_ready(p, it);
        }
        return false;
    }
    to_idle(p, it, now_ms);
    kl_item_ready(p, it);
    return false;
}

static bool step(struct kl_plan *p, struct kl_item *it, int64_t now_ms, struct kl_action *ret)
{
    enum goal g = goal_of(p, it);
    switch (it->state) {
    case KL_IDLE:
        return step_idle(p, it, g, now_ms);
    case KL_WAITING:
        return step_waiting(p, it, g, now_ms, ret);
    case KL_PREPARING:
    case KL_PREPARED:
        return step_warm(p, it, g, now_ms, ret);
    case KL_OPENING:
    case KL_CLAIMING:
        /* A claim may be in the chain already: it is finished and then sealed, so that no unsealed
         * epoch of a live incarnation blocks the next owner. Fenced, we must not touch it. */
        return g == GOAL_DROP ? cancel(p, it, now_ms, ret) : false;
    case KL_OPEN:
        return step_open(p, it, g, now_ms, ret);
    case KL_RELEASED:
        return step_released(p, it, g, now_ms);
    case KL_INSTALLING:
    case KL_RELEASING:
        return false;
    }
    return false;
}

bool kl_plan_next(struct kl_plan *p, int64_t now_ms, struct kl_action *ret)
{
    while (!kc_list_empty(&p->ready_first) || !kc_list_empty(&p->ready)) {
        struct kc_list *head = kc_list_empty(&p->ready_first) ? &p->ready : &p->ready_first;
        struct kl_item *it = KC_LIST_ENTRY(head->next, struct kl_item, ready_link);
        kc_list_del(&it->ready_link);
        bool found = step(p, it, now_ms, ret);
        settle_boot(p, it);
        if (found) {
            return true;
        }
    }
    return false;
}

/* ---- results ---- */

void kl_plan_opened(struct kl_plan *p, struct kl_item *it, int rc, int32_t epoch, int32_t blocker,
                    const struct kc_uuid *blocker_incarnation, int64_t now_ms)
{
    KC_ASSERT(it->state == KL_OPENING || it->state == KL_CLAIMING);
    if (rc == 0) {
        it->epoch = epoch;
        kl_item_set_state(p, it, KL_INSTALLING, now_ms);
        return;
    }
    if (rc == KC_E_BLOCKED) {
        it->blocker = blocker;
        it->blocker_incarnation = *blocker_incarnation;
    }
    failed(p, it, rc, now_ms);
    settle_boot(p, it);
}

void kl_plan_installed(struct kl_plan *p, struct kl_item *it, int64_t now_ms)
{
    KC_ASSERT(it->state == KL_INSTALLING);
    clear_failure(p, it);
    kl_item_set_state(p, it, KL_OPEN, now_ms);
    kl_item_changed(p, it);
    kl_item_ready(p, it);
    settle_boot(p, it);
}

void kl_plan_warm(struct kl_plan *p, struct kl_item *it, int rc, int64_t now_ms)
{
    KC_ASSERT(it->state == KL_PREPARING);
    if (rc) {
        failed(p, it, rc, now_ms);
        return;
    }
    clear_failure(p, it);
    kl_item_set_state(p, it, KL_PREPARED, now_ms);
    kl_item_changed(p, it);
    kl_item_ready(p, it);
    settle_boot(p, it);
}

void kl_plan_released(struct kl_plan *p, struct kl_item *it, struct kc_bytes seal, int64_t end,
                      int32_t epoch, int64_t now_ms)
{
    KC_ASSERT(it->state == KL_RELEASING);
    it->epoch = -1;
    it->stopped = false;
    if (goal_of(p, it) == GOAL_RELEASED) {
        kl_item_set_seal(it, seal, end, epoch);
        kl_item_set_state(p, it, KL_RELEASED, now_ms);
        kl_item_changed(p, it);
    } else {
        to_idle(p, it, now_ms);
    }
    kl_item_ready(p, it);
}

void kl_plan_stopped(struct kl_plan *p, const struct kc_uuid *topic_id, int32_t partition)
{
    struct kl_item *it = kl_plan_find(p, topic_id, partition);
    if (it && it->state == KL_OPEN) {
        it->stopped = true;
        kl_item_ready(p, it);
    }
}

void kl_plan_epoch(struct kl_plan *p, const struct kc_uuid *topic_id, int32_t partition,
                   int32_t epoch)
{
    struct kl_item *it = kl_plan_find(p, topic_id, partition);
    if (it && it->state == KL_OPEN && epoch > it->epoch) {
        it->epoch = epoch;
        kl_item_changed(p, it);
    }
}

/* ---- time ---- */

/* A released source is looked at until its move ends; a failed attempt once, when it is due: what
 * else may change then makes it ready by itself. */
void kl_plan_tick(struct kl_plan *p, int64_t now_ms)
{
    for (int i = 0; i < KL_WAITS; i++) {
        KC_LIST_EACH(at, next, &p->waits[i])
        {
            struct kl_item *it = KC_LIST_ENTRY(at, struct kl_item, wait_link);
            p->visits++;
            if (it->retry_ms > now_ms) {
                break;
            }
            kc_list_del(&it->wait_link);
            kl_item_ready(p, it);
        }
    }
    KC_LIST_EACH(at, next, &p->released)
    {
        struct kl_item *it = KC_LIST_ENTRY(at, struct kl_item, pending_link);
        p->visits++;
        if (now_ms - it->state_ms <= KL_RESUME_MS) {
            break;
        }
        kl_item_ready(p, it);
    }
}

int64_t kl_plan_next_ms(const struct kl_plan *p, int64_t now_ms)
{
    int64_t next = INT64_MAX;
    for (int i = 0; i < KL_WAITS && p->entitled; i++) {
        if (!kc_list_empty(&p->waits[i])) {
            const struct kl_item *it = KC_LIST_ENTRY(p->waits[i].next, struct kl_item, wait_link);
            next = KC_MIN(next, KC_MAX(it->retry_ms, now_ms));
        }
    }
    return next;
}
