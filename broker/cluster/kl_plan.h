/* kl_plan.h - which partitions this broker opens, warms, seals and drops. Pure.
 *
 * Fed with the applied image, the operator's orders, results and the time; asked for actions, one
 * at a time, with kl_plan_next. No I/O, no clock. Owner: the control loop (tests: anyone).
 *
 * A partition is opened only under a confirmed image whose row names our incarnation as alive
 * (design.md, 4); it is sealed when the image gives it to somebody else and no move is under way; a
 * move is followed phase by phase, and the image and the streams may tell it in any order. Safety
 * does not rest on any of this: the volume's chain decides (storage.md). */
#ifndef KL_PLAN_H
#define KL_PLAN_H

#include "base/kc_list.h"
#include "base/kc_map.h"
#include "image/ki_image.h"
#include "policy/kp_ctl.h"
#include "policy/kp_ready.h"

enum {
    KL_LATE_MS = KP_UNOPENED_MS, /* R45: a newly assigned partition counts after this */
    KL_RESUME_MS = 10000, /* released, and neither go nor cancel: the source resumes */
    KL_RETRY_MIN_MS = 100,
    KL_RETRY_MAX_MS = 5000,
    KL_BLOCKED_RETRY_MS = 250,
    KL_PERMANENT_RETRY_MS = 30000, /* a repaired volume needs no restart */
    KL_FORGET_MS = 60000, /* an idle partition of a topic that is gone */
    KL_WAITS =
        9 /* how long a failed attempt waits: 100 ms, doubled up to 5 s; blocked; permanent */
};

enum kl_item_state {
    KL_IDLE,
    KL_WAITING, /* wants to be opened or warmed, at retry_ms */
    KL_OPENING, /* takeover under way */
    KL_PREPARING, /* warming for a move */
    KL_PREPARED, /* warm */
    KL_CLAIMING, /* warm, and told to go */
    KL_INSTALLING, /* open, on its way to its data loop */
    KL_OPEN, /* led */
    KL_RELEASING, /* being sealed or closed */
    KL_RELEASED /* sealed for a move that is still under way */
};

/* One partition this broker has, wants, or had. Fields are the plan's; `exec` is its user's. */
struct kl_item {
    struct kc_uuid topic_id;
    int32_t partition;
    enum kl_item_state state;
    /* What the image says. */
    bool present, deleted, fresh, internal;
    int32_t assigned;
    /* The move it takes part in: the furthest phase heard of. */
    struct kp_move move;
    struct kp_order move_order; /* when it was learned: only a newer image may end it */
    uint8_t *seal; /* of a release: ours to report, or the source's to go on with */
    int32_t seal_len;
    int64_t seal_end;
    int32_t seal_epoch;
    /* Attempts. */
    int64_t wanted_ms, retry_ms, state_ms;
    int64_t stop_ms; /* when its release began: no append is taken from there on; 0 = never */
    int32_t attempts;
    bool in_boot; /* of the boot set, and neither open nor prepared yet */
    bool blocked;
    int32_t blocker;
    struct kc_uuid blocker_incarnation;
    bool permanent; /* failed for a permanent reason: offline, not unready (R45) */
    int32_t fail_rc; /* of the last attempt; 0 = none */
    int32_t epoch; /* while open */
    bool stopped; /* open, but the log gave up: close and open again */
    uint64_t changed; /* sequence of the last change worth a report */
    struct kc_list ready_link, pending_link, changed_link, wait_link;
    void *exec;
};

enum kl_do {
    KL_DO_OPEN, /* ks_log_open; answer with kl_plan_opened */
    KL_DO_PREPARE, /* ks_log_prepare; answer with kl_plan_warm */
    KL_DO_GO, /* ks_open_go with item->seal; answer with kl_plan_opened */
    KL_DO_CANCEL, /* ks_open_cancel; no answer */
    KL_DO_RELEASE /* kd_release; answer with kl_plan_released */
};
struct kl_action {
    enum kl_do what;
    struct kl_item *item;
    bool seal; /* KL_DO_RELEASE: else close at once */
    int32_t hint; /* KL_DO_RELEASE: the new leader, or KP_NO_BROKER */
};

enum kl_mode {
    KL_RUN,
    KL_DRAIN, /* nothing new is opened */
    KL_LEAVE, /* everything is sealed */
    KL_DROP /* fenced or condemned: everything is closed without a seal */
};

struct kl_plan {
    int32_t self;
    enum kl_mode mode;
    struct kc_uuid incarnation; /* zero: none is registered */
    struct ki_image *image; /* merged; a reference; NULL = none yet */
    bool confirmed; /* of image */
    bool entitled; /* may claim */
    bool boot_frozen, latched;
    int32_t n_boot; /* items with in_boot */
    uint64_t seq;
    int32_t n_states[KL_RELEASED + 1];
    int32_t n_blocked, n_permanent;
    struct kc_map items;
    struct kc_list ready_first, ready; /* to be looked at; internal partitions first */
    struct kc_list pending; /* neither settled nor idle; by wanted_ms, oldest first */
    struct kc_list released; /* KL_RELEASED, by state_ms; by pending_link */
    /* Failed and not yet due again, a list for each length of the wait: each is in the order of
     * retry_ms, so a tick looks at what is due and at one more. */
    struct kc_list waits[KL_WAITS];
    int64_t visits; /* items looked at by ticks and kl_plan_serving, for tests */
    struct kc_list changed; /* by sequence, oldest first */
};

struct kl_plan *kl_plan_new(int32_t self);
void kl_plan_free(struct kl_plan *p);

/* ---- facts ---- */

/* A new incarnation is registered; nothing of the former one is left (kl_plan_active = 0). */
void kl_plan_incarnation(struct kl_plan *p, const struct kc_uuid *inc, int64_t now_ms);
/* The current image (rows pushed by the operator laid over it) and whether it is confirmed: its
 * order was repeated by the active operator, or it came from a fresh read. Takes a reference. */
void kl_plan_image(struct kl_plan *p, const struct ki_image *im, bool confirmed, int64_t now_ms);
/* A move order from the active operator; seal may be null. order: what the operator had published
 * when it said so. */
void kl_plan_order(struct kl_plan *p, const struct kp_relay *r, struct kc_bytes seal,
                   const struct kp_order *order, int64_t now_ms);
void kl_plan_set_mode(struct kl_plan *p, enum kl_mode mode, int64_t now_ms);

/* ---- results ---- */

/* rc 0: open under `epoch`, now to be installed (kl_plan_installed follows). */
void kl_plan_opened(struct kl_plan *p, struct kl_item *it, int rc, int32_t epoch, int32_t blocker,
                    const struct kc_uuid *blocker_incarnation, int64_t now_ms);
void kl_plan_installed(struct kl_plan *p, struct kl_item *it, int64_t now_ms);
void kl_plan_warm(struct kl_plan *p, struct kl_item *it, int rc, int64_t now_ms);
/* seal is copied; null when there is none. */
void kl_plan_released(struct kl_plan *p, struct kl_item *it, struct kc_bytes seal, int64_t end,
                      int32_t epoch, int64_t now_ms);
/* An open log stopped by itself: it must be released (closed) and opened again. */
void kl_plan_stopped(struct kl_plan *p, const struct kc_uuid *topic_id, int32_t partition);
/* An open log claimed again under `epoch`: led is reported anew. */
void kl_plan_epoch(struct kl_plan *p, const struct kc_uuid *topic_id, int32_t partition,
                   int32_t epoch);

/* ---- decisions ---- */

/* Wakes what is due; call at kl_plan_next_ms or more often, and before a series of kl_plan_next. */
void kl_plan_tick(struct kl_plan *p, int64_t now_ms);
int64_t kl_plan_next_ms(const struct kl_plan *p, int64_t now_ms); /* INT64_MAX = nothing waits */
/* The next thing to do; false: nothing. */
bool kl_plan_next(struct kl_plan *p, int64_t now_ms, struct kl_action *ret);

/* ---- questions ---- */

bool kl_plan_serving(struct kl_plan *p, int64_t now_ms); /* R38, R45 */
/* Items that hold something: an open log, a handle, a release under way. */
int32_t kl_plan_active(const struct kl_plan *p);
int32_t kl_plan_led(const struct kl_plan *p); /* open or being released */
int32_t kl_plan_pending(const struct kl_plan *p); /* wanted, not there yet */
struct kl_item *kl_plan_find(const struct kl_plan *p, const struct kc_uuid *topic_id,
                             int32_t partition);

#endif
