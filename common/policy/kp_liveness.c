/* kp_liveness.c - streams, ages and verdicts: which brokers are connected, and which of them get
 * the benefit of the doubt (design.md, 3). */
#include "policy/kp_alive.h"
#include "policy/kp_internal.h"

#include <string.h>

static bool superseded(const struct kp_peer *p, const struct kc_uuid *incarnation)
{
    int32_t n = KC_MIN(p->n_past, KP_PAST_MAX);
    for (int32_t i = 0; i < n; i++) {
        if (kc_uuid_eq(&p->past[i], incarnation)) {
            return true;
        }
    }
    return false;
}

static int admit(struct kp_ctl *c, const struct kp_hello *h, struct kc_err *err)
{
    if (h->broker < 0 || h->broker >= KP_BROKERS_MAX || !c->peers[h->broker].registered) {
        return kc_fail(err, KC_E_REFUSED, "broker %d is not registered", (int)h->broker);
    }
    const struct kp_peer *p = &c->peers[h->broker];
    const struct kp_row *row = kp_row_of(c, h->broker);
    if (kc_uuid_is_zero(&h->incarnation)) {
        return kc_fail(err, KC_E_REFUSED, "the incarnation is empty");
    }
    if (h->broker != c->o.self_id && strcmp(row->pod_uid, h->pod_uid) != 0) {
        return kc_fail(err, KC_E_REFUSED, "pod %s is not the admitted pod of broker %d", h->pod_uid,
                       (int)h->broker);
    }
    bool same = kc_uuid_eq(&row->incarnation, &h->incarnation);
    if ((same && row->condemned) || superseded(p, &h->incarnation)) {
        return kc_fail(err, KC_E_FENCED, "this incarnation of broker %d is condemned",
                       (int)h->broker);
    }
    return 0;
}

/* W5: what a process has proven is kept over re-registrations of that process, not beyond it. */
static void take_process(struct kp_peer *p, struct kp_row *row, const struct kp_hello *h)
{
    bool known = !kc_uuid_is_zero(&p->process) && !kc_uuid_is_zero(&h->process);
    if (known && !kc_uuid_eq(&p->process, &h->process)) {
        row->ever_healthy = false;
    }
    p->process = h->process;
}

static void new_incarnation(struct kp_ctl *c, struct kp_peer *p, struct kp_row *row,
                            const struct kp_hello *h)
{
    if (!kc_uuid_is_zero(&row->incarnation)) {
        p->past[p->n_past % KP_PAST_MAX] = row->incarnation;
        p->n_past++;
        /* Who did not leave in order waits longer each time for failback. Who did is another process, of
         * another image perhaps, which a rollout does not have to wait for. */
        p->crashes = p->draining ? 0 : p->crashes + 1;
    }
    row->incarnation = h->incarnation;
    row->condemned = false;
    p->status_seen = false;
    p->healthy = p->draining = p->serving = p->stalled = false;
    p->volume = KP_VOLUME_WRITABLE;
    p->condemn = false;
    p->silent_held = false;
    p->drain_ms = p->stall_ms = p->serving_ms = p->alive_ms = -1;
    kp_reports_new_incarnation(c, row->id);
}

int kp_ctl_hello(struct kp_ctl *c, const struct kp_hello *h, int64_t now_ms, struct kc_err *err)
{
    int rc = admit(c, h, err);
    if (rc) {
        return rc;
    }
    c->now_ms = now_ms;
    struct kp_peer *p = &c->peers[h->broker];
    struct kp_row *row = kp_row_of(c, h->broker);
    take_process(p, row, h);
    if (!kc_uuid_eq(&row->incarnation, &h->incarnation)) {
        new_incarnation(c, p, row, h);
    }
    row->protocol_version = h->protocol_version;
    memcpy(row->version, h->version, sizeof(row->version));
    memcpy(row->rack, h->rack, sizeof(row->rack));
    row->n_listeners = KC_MIN(KC_MAX(h->n_listeners, 0), KP_LISTENERS_MAX);
    memcpy(row->listeners, h->listeners, sizeof(row->listeners));
    p->stream = h->stream;
    p->open = true;
    p->last_ms = p->hello_ms = now_ms;
    c->rows_dirty = true;
    c->assign_dirty = true;
    return 0;
}

void kp_ctl_stream_closed(struct kp_ctl *c, int32_t broker, uint64_t stream, int64_t now_ms)
{
    if (broker < 0 || broker >= KP_BROKERS_MAX) {
        return;
    }
    struct kp_peer *p = &c->peers[broker];
    if (p->open && p->stream == stream) {
        p->open = false;
        p->close_ms = now_ms;
        p->life_ms = p->healthy ? now_ms : p->life_ms; /* a process that ends lived until then */
    }
}

void kp_ctl_paused(struct kp_ctl *c, int64_t now_ms)
{
    for (int32_t i = 0; i < c->n_rows; i++) {
        struct kp_peer *p = &c->peers[c->rows[i].id];
        if (p->open) {
            p->last_ms = now_ms;
        } else if (p->connected) {
            p->close_ms = now_ms;
        }
        p->silent_held = false;
    }
    c->mass_until_ms = -1;
}

/* How long an open stream may be silent: a new process may take 5 s to its first word (W6). */
static int64_t silence_limit(const struct kp_ctl *c, const struct kp_peer *p)
{
    return p->status_seen ? c->o.timeout_ms : KC_MAX(c->o.timeout_ms, KP_FIRST_STATUS_MS);
}

/* Connected by the letter: open and young, or closed within the interval it has to redial (R51). */
static bool connected(const struct kp_ctl *c, int32_t id, int64_t now_ms)
{
    const struct kp_peer *p = &c->peers[id];
    if (id == c->o.self_id) {
        return true;
    }
    if (p->open) {
        return now_ms - p->last_ms <= silence_limit(c, p);
    }
    return p->close_ms >= 0 && now_ms - p->close_ms <= c->o.interval_ms;
}

/* Several brokers silent at once are more likely our own network than their death: they get one
 * more timeout, and the Lease is confirmed before anything is published (W4). A broker that has
 * missed a heartbeat counts as silent with one that has run out, because expiries of one cut spread
 * over an interval. */
static void hold_mass_expiry(struct kp_ctl *c, int64_t now_ms)
{
    int32_t expired = 0, suspect = 0, members = 0;
    for (int32_t i = 0; i < c->n_rows; i++) {
        struct kp_peer *p = &c->peers[c->rows[i].id];
        if (!p->member || c->rows[i].id == c->o.self_id) {
            continue;
        }
        members++;
        int64_t age = now_ms - p->last_ms;
        bool late = p->open && age > silence_limit(c, p) - c->o.interval_ms;
        suspect += late;
        expired += p->open && !p->connected && !p->silent_held;
        if (!late) {
            p->silent_held = false; /* heard again */
        }
    }
    if (c->mass_until_ms >= 0 && now_ms >= c->mass_until_ms) {
        c->mass_until_ms = -1;
        c->confirm_lease = true;
        for (int32_t i = 0; i < c->n_rows; i++) {
            struct kp_peer *p = &c->peers[c->rows[i].id];
            if (p->silent_held && p->open && now_ms - p->last_ms > silence_limit(c, p)) {
                p->open = false; /* second timeout: gone for good */
                p->close_ms = p->last_ms;
            }
            p->silent_held = false;
        }
        return;
    }
    if (expired == 0 || (suspect <= 1 && suspect * 2 <= members)) {
        return;
    }
    if (c->mass_until_ms < 0) {
        c->mass_until_ms = now_ms + c->o.timeout_ms;
        c->confirm_lease = true;
    }
    for (int32_t i = 0; i < c->n_rows; i++) {
        struct kp_peer *p = &c->peers[c->rows[i].id];
        if (p->member && p->open && now_ms - p->last_ms > silence_limit(c, p) - c->o.interval_ms) {
            p->silent_held = true;
        }
    }
}

/* Half of the brokers (two at least, where there are two) that report a storage stall within the
 * window are one stalled volume: nothing is moved. */
static void detect_volume_stall(struct kp_ctl *c)
{
    int32_t stalled = 0, present = 0;
    int64_t first = KP_NEVER, last = -1;
    for (int32_t i = 0; i < c->n_rows; i++) {
        const struct kp_peer *p = &c->peers[c->rows[i].id];
        if (!p->member || !p->connected || !p->status_seen) {
            continue;
        }
        present++;
        if (p->stall_ms >= 0) {
            stalled++;
            first = KC_MIN(first, p->stall_ms);
            last = KC_MAX(last, p->stall_ms);
        }
    }
    bool many = stalled >= KC_MIN(present, 2) && stalled > 0 && stalled * 2 >= present;
    bool now = many && (c->volume_stall || last - first <= KP_STALL_WINDOW_MS);
    if (now && !c->volume_stall) {
        kp_event_add(c, KP_EV_VOLUME_STALL, KP_NO_BROKER, KP_REASON_STALLED, stalled);
    }
    c->volume_stall = now;
}

/* After a total outage the members of the last set wait for each other, so that the first to
 * return does not get everything (R62's reason). A single one has nobody to wait for (R14). */
static bool outage_hold(struct kp_ctl *c, int32_t id, int32_t members, int64_t now_ms)
{
    if (!c->outage || members < 2 || !c->peers[id].member) {
        return false;
    }
    return c->outage_return_ms < 0 || now_ms - c->outage_return_ms < KP_COLD_WAIT_MS;
}

static bool held(struct kp_ctl *c, int32_t id, int32_t members, int64_t now_ms)
{
    const struct kp_peer *p = &c->peers[id];
    if (outage_hold(c, id, members, now_ms)) {
        return true;
    }
    /* One stalled broker waits for the window: only then is it known not to be the volume. */
    if (p->connected && p->stall_ms >= 0 && !p->draining) {
        return c->volume_stall || now_ms - p->stall_ms < KP_STALL_WINDOW_MS;
    }
    /* A quick restart keeps its place until its first word, as one that redials does (R51). */
    return p->open && !p->status_seen && now_ms - p->hello_ms <= c->o.interval_ms;
}

static void track_outage(struct kp_ctl *c, const struct kp_liveness *l, int32_t n, bool stands,
                         int64_t now_ms)
{
    int32_t back = 0, waiting = 0;
    for (int32_t i = 0; i < n; i++) {
        bool alive = kp_is_alive(&l[i]);
        back += alive;
        waiting += !alive && c->peers[l[i].id].member;
    }
    if (stands && waiting > 0) {
        c->outage = true;
    }
    if (!c->outage || back == 0) {
        c->outage_return_ms = -1;
        return;
    }
    if (c->outage_return_ms < 0) {
        c->outage_return_ms = now_ms;
    }
    if (waiting == 0 || now_ms - c->outage_return_ms >= KP_COLD_WAIT_MS) {
        c->outage = false;
    }
}

void kp_liveness_eval(struct kp_ctl *c, int64_t now_ms)
{
    struct kp_liveness l[KP_BROKERS_MAX];
    bool member[KP_BROKERS_MAX];
    int32_t members = 0;
    for (int32_t i = 0; i < c->n_rows; i++) {
        struct kp_peer *p = &c->peers[c->rows[i].id];
        p->connected = connected(c, c->rows[i].id, now_ms);
        members += p->member;
    }
    hold_mass_expiry(c, now_ms);
    detect_volume_stall(c);
    for (int32_t i = 0; i < c->n_rows; i++) {
        const struct kp_row *row = &c->rows[i];
        struct kp_peer *p = &c->peers[row->id];
        p->connected = p->connected || p->silent_held;
        member[i] = p->member;
        l[i] = (struct kp_liveness){.id = row->id,
                                    .connected = p->connected && p->status_seen,
                                    .healthy = p->healthy,
                                    .ever_healthy = row->ever_healthy,
                                    .draining = p->draining,
                                    .condemned = row->condemned || (p->condemn && members > 1),
                                    .held = held(c, row->id, members, now_ms),
                                    .protocol_version = row->protocol_version};
    }
    bool any_alive = false;
    for (int32_t i = 0; i < c->n_rows; i++) {
        any_alive = any_alive || kp_is_alive(&l[i]);
    }
    bool stands = kp_decide_alive(l, c->n_rows, c->o.self_id, member) || !any_alive;
    for (int32_t i = 0; i < c->n_rows; i++) {
        struct kp_peer *p = &c->peers[c->rows[i].id];
        if (p->member != member[i]) {
            p->member = member[i];
            c->assign_dirty = true;
        }
        bool alive = kp_is_alive(&l[i]) || c->rows[i].id == c->o.self_id;
        p->alive_ms = !alive ? -1 : p->alive_ms < 0 ? now_ms : p->alive_ms;
        if (p->alive_ms >= 0 && now_ms - p->alive_ms > KP_CALM_MS) {
            p->crashes = 0;
        }
    }
    track_outage(c, l, c->n_rows, stands, now_ms);
}

static void sooner(int64_t *next, int64_t at)
{
    *next = KC_MIN(*next, at);
}

/* When the next verdict may change by time alone. */
int64_t kp_liveness_next(const struct kp_ctl *c, int64_t now_ms)
{
    int64_t next = KP_NEVER;
    if (c->mass_until_ms >= 0) {
        sooner(&next, c->mass_until_ms);
    }
    if (c->outage && c->outage_return_ms >= 0) {
        sooner(&next, c->outage_return_ms + KP_COLD_WAIT_MS);
    }
    for (int32_t i = 0; i < c->n_rows; i++) {
        int32_t id = c->rows[i].id;
        const struct kp_peer *p = &c->peers[id];
        if (id == c->o.self_id) {
            continue;
        }
        if (p->open && p->connected && !p->silent_held) {
            sooner(&next, p->last_ms + silence_limit(c, p) + 1);
        } else if (!p->open && p->connected) {
            sooner(&next, p->close_ms + c->o.interval_ms + 1);
        }
        if (p->open && !p->status_seen) {
            sooner(&next, p->hello_ms + c->o.interval_ms + 1);
        }
        if (p->stall_ms >= 0) {
            sooner(&next, p->stall_ms + KP_STALL_WINDOW_MS);
        }
        if (p->draining && p->drain_ms >= 0) {
            sooner(&next, p->drain_ms + kp_drain_time(p).condemn_ms);
        }
    }
    return next <= now_ms ? now_ms + c->o.interval_ms : next;
}
