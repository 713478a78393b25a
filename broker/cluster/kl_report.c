/* What this broker says on its streams, and what it hears. Control loop. */
#include "cluster/kl_int.h"

#include <stdio.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "hb/hb_convert.h"

enum { REMOVED_MAX = 4096 };

static char *text(const char *z)
{
    return (char *)(uintptr_t)z; /* protobuf-c's structs are not const; encoding only reads */
}

/* ---- hello ---- */

static bool on_hello(void *ctx, struct kc_arena *a, Kaas__Heartbeat__Hello *h)
{
    struct kl_cluster *k = ctx;
    if (k->reg.state != KL_REG_DONE) {
        return false;
    }
    h->cluster = text(k->o.cluster);
    h->broker_id = k->o.broker_id;
    h->incarnation = hb_uuid_data(&k->reg.incarnation);
    h->pod_uid = text(k->o.pod_uid);
    h->pod_name = text(k->o.pod_name);
    h->process_id = hb_uuid_data(&k->process_id);
    h->protocol_version = HB_PROTOCOL_VERSION;
    h->software_version = text(k->o.version);
    h->rack = text(k->o.rack);
    h->volume_cluster_id = text(k->o.volume_cluster_id);
    h->inventory_revision = k->inventory_revision;
    h->listeners = hb_listeners_new(a, k->o.listeners, k->o.n_listeners);
    h->n_listeners = h->listeners ? (size_t)k->o.n_listeners : 0;
    return true;
}

static void on_hello_answer(void *ctx, uint64_t stream, const Kaas__Heartbeat__HelloAnswer *h)
{
    struct kl_cluster *k = ctx;
    if (h->condemned) {
        kl_reg_lost(k, "the operator refused a condemned incarnation");
    } else if (h->accepted && h->want_inventory) {
        kl_topics_inventory(k->topics, stream);
    }
}

/* ---- status ---- */

/* Each list has room for all n items; the room is an arena's and short-lived. */
static bool lists_new(struct kc_arena *a, size_t n, Kaas__Heartbeat__BrokerStatus *s)
{
    s->led = kc_arena_alloc(a, n * sizeof(void *));
    s->unled = kc_arena_alloc(a, n * sizeof(void *));
    s->prepared = kc_arena_alloc(a, n * sizeof(void *));
    s->released = kc_arena_alloc(a, n * sizeof(void *));
    s->blocked = kc_arena_alloc(a, n * sizeof(void *));
    s->failed = kc_arena_alloc(a, n * sizeof(void *));
    return s->led && s->unled && s->prepared && s->released && s->blocked && s->failed;
}

#define NEW(a, type) init_##type(kc_arena_alloc((a), sizeof(Kaas__Heartbeat__##type)))
#define INITIALISER(type, initialiser)                                                             \
    static Kaas__Heartbeat__##type *init_##type(void *p)                                           \
    {                                                                                              \
        if (p) {                                                                                   \
            initialiser(p);                                                                        \
        }                                                                                          \
        return p;                                                                                  \
    }
INITIALISER(LedReport, kaas__heartbeat__led_report__init)
INITIALISER(PreparedReport, kaas__heartbeat__prepared_report__init)
INITIALISER(ReleasedReport, kaas__heartbeat__released_report__init)
INITIALISER(BlockedReport, kaas__heartbeat__blocked_report__init)
INITIALISER(FailedReport, kaas__heartbeat__failed_report__init)
INITIALISER(Seal, kaas__heartbeat__seal__init)

static bool say_released(struct kc_arena *a, const struct kl_item *it, int64_t now_ms,
                         Kaas__Heartbeat__PartitionId *pid, Kaas__Heartbeat__BrokerStatus *s)
{
    Kaas__Heartbeat__ReleasedReport *r = NEW(a, ReleasedReport);
    if (!r) {
        return false;
    }
    r->partition = pid;
    r->move_id = it->move.id;
    r->stopped_ms_ago = it->stop_ms ? KC_MAX(now_ms - it->stop_ms, (int64_t)1) : 0;
    if (it->seal) {
        Kaas__Heartbeat__Seal *seal = NEW(a, Seal);
        if (!seal) {
            return false;
        }
        seal->epoch = it->seal_epoch;
        seal->end_offset = it->seal_end;
        seal->record = (ProtobufCBinaryData){.len = (size_t)it->seal_len, .data = it->seal};
        r->seal = seal;
    }
    s->released[s->n_released++] = r;
    return true;
}

static bool say_waiting(struct kc_arena *a, const struct kl_item *it,
                        Kaas__Heartbeat__PartitionId *pid, Kaas__Heartbeat__BrokerStatus *s)
{
    if (it->blocked) {
        Kaas__Heartbeat__BlockedReport *r = NEW(a, BlockedReport);
        if (!r) {
            return false;
        }
        r->partition = pid;
        r->broker = it->blocker;
        r->incarnation = hb_uuid_data(&it->blocker_incarnation);
        s->blocked[s->n_blocked++] = r;
        return true;
    }
    Kaas__Heartbeat__FailedReport *r = NEW(a, FailedReport);
    if (!r) {
        return false;
    }
    r->partition = pid;
    r->permanent = it->permanent;
    r->reason = text(kc_strerror(it->fail_rc));
    s->failed[s->n_failed++] = r;
    return true;
}

static bool say_item(struct kc_arena *a, const struct kl_item *it, bool full,
                     Kaas__Heartbeat__BrokerStatus *s)
{
    bool failing = it->blocked || it->permanent || it->fail_rc;
    bool silent =
        it->state != KL_OPEN && it->state != KL_PREPARED && it->state != KL_RELEASED && !failing;
    if (full && silent) {
        return true; /* a full report lists what is; the rest is not */
    }
    Kaas__Heartbeat__PartitionId *pid = hb_pid_new(a, &it->topic_id, it->partition);
    if (!pid) {
        return false;
    }
    if (it->state == KL_OPEN) {
        Kaas__Heartbeat__LedReport *r = NEW(a, LedReport);
        if (!r) {
            return false;
        }
        r->partition = pid;
        r->epoch = it->epoch;
        s->led[s->n_led++] = r;
    } else if (it->state == KL_PREPARED) {
        Kaas__Heartbeat__PreparedReport *r = NEW(a, PreparedReport);
        if (!r) {
            return false;
        }
        r->partition = pid;
        r->move_id = it->move.id;
        s->prepared[s->n_prepared++] = r;
    } else if (it->state == KL_RELEASED) {
        return say_released(a, it, kc_mono_ms(), pid, s);
    } else if (failing) {
        return say_waiting(a, it, pid, s);
    } else {
        s->unled[s->n_unled++] = pid;
    }
    return true;
}

static bool say_items(struct kl_cluster *k, struct kc_arena *a, bool full, uint64_t since,
                      Kaas__Heartbeat__BrokerStatus *s)
{
    const struct kc_list *head = &k->plan->changed;
    size_t n = 0;
    for (const struct kc_list *at = head->prev; at != head; at = at->prev, n++) {
        if (!full && KC_LIST_ENTRY(at, const struct kl_item, changed_link)->changed <= since) {
            break;
        }
    }
    if (n == 0) {
        return true;
    }
    if (!lists_new(a, n, s)) {
        return false;
    }
    const struct kc_list *at = head->prev;
    for (size_t i = 0; i < n; i++, at = at->prev) {
        if (!say_item(a, KC_LIST_ENTRY(at, const struct kl_item, changed_link), full, s)) {
            return false;
        }
    }
    return true;
}

static bool say_deleted(struct kl_cluster *k, struct kc_arena *a, Kaas__Heartbeat__BrokerStatus *s)
{
    static struct kc_uuid ids[REMOVED_MAX]; /* the control loop's alone */
    int32_t n = kl_topics_removed(k->topics, ids, REMOVED_MAX);
    if (n == 0) {
        return true;
    }
    s->deleted = kc_arena_alloc(a, (size_t)n * sizeof(void *));
    for (int32_t i = 0; s->deleted && i < n; i++) {
        Kaas__Heartbeat__PartitionId *pid = hb_pid_new(a, &ids[i], -1);
        if (!pid) {
            return false;
        }
        s->deleted[s->n_deleted++] = pid;
    }
    return s->deleted != NULL;
}

static_assert((int)KS_VOLUME_OK == (int)KP_VOLUME_WRITABLE &&
                  (int)KS_VOLUME_FULL == (int)KP_VOLUME_FULL &&
                  (int)KS_VOLUME_READ_ONLY == (int)KP_VOLUME_READ_ONLY,
              "what the storage says goes into the heartbeat as it is");

static bool on_status(void *ctx, struct kc_arena *a, bool full, uint64_t since,
                      Kaas__Heartbeat__BrokerStatus *s, uint64_t *ret_seq)
{
    struct kl_cluster *k = ctx;
    int64_t now = kc_mono_ms();
    if (k->incarnations == 0) {
        return false; /* a lost incarnation goes on reporting until the next one is registered */
    }
    struct kh_vitals v;
    kh_vitals_read(&k->vitals, now, &v);
    if (v.loop_ms == INT64_MAX && now - k->started_ms < KL_FIRST_STATUS_MS) {
        return false; /* W6: not before every data loop has ticked once */
    }
    char *why = kc_arena_alloc(a, 96);
    if (!why) {
        return false;
    }
    s->broker_id = k->o.broker_id;
    s->timestamp = kc_wall_ms();
    s->incarnation = hb_uuid_data(&k->reg.incarnation);
    s->protocol_version = HB_PROTOCOL_VERSION;
    s->software_version = text(k->o.version);
    kh_vitals_text(&v, why, 96);
    s->healthy = kh_healthy(&v);
    s->stall_reason = why;
    s->storage_stalled = !v.storage_ok;
    s->volume = (uint32_t)ks_volume_state(k->o.engine);
    s->draining = k->drain.on;
    s->serving = kl_plan_serving(k->plan, now);
    s->partitions = kl_plan_led(k->plan);
    s->active_groups = k->o.active_groups ? k->o.active_groups(k->o.ctx) : 0;
    s->full = full;
    if (k->view.document) {
        const struct kp_order *o = &k->view.document->order;
        s->image_uid = text(o->uid);
        s->image_term = o->term;
        s->last_seen_version = o->generation;
    }
    *ret_seq = k->plan->seq;
    if (!say_items(k, a, full, since, s) || !say_deleted(k, a, s)) {
        kc_log(KC_ERROR, "heartbeat", "event=status_too_large");
        return false;
    }
    return true;
}

/* ---- answers ---- */

static void take_orders(struct kl_cluster *k, const Kaas__Heartbeat__StatusAnswer *s,
                        const struct kp_order *order)
{
    int64_t now = kc_mono_ms();
    for (size_t i = 0; i < s->n_orders; i++) {
        struct kp_relay r = hb_order_relay(s->orders[i]);
        const Kaas__Heartbeat__Seal *seal = s->orders[i]->seal;
        struct kc_bytes record = KC_BYTES_NULL;
        if (seal && seal->record.len) {
            record = (struct kc_bytes){seal->record.data, (int32_t)seal->record.len};
        }
        kl_plan_order(k->plan, &r, record, order, now);
    }
}

static void on_answer(void *ctx, uint64_t stream, const Kaas__Heartbeat__StatusAnswer *s)
{
    struct kl_cluster *k = ctx;
    (void)stream;
    /* Only the active operator decides; one that has been superseded may not know it yet. */
    if (!s->active || !kl_view_current_term(&k->view, s->term)) {
        return;
    }
    if (s->condemned) {
        kl_reg_lost(k, "condemned by the operator");
    }
    struct kp_order order = {.term = s->term, .generation = s->generation};
    snprintf(order.uid, sizeof(order.uid), "%s", s->image_uid);
    bool confirmed = kl_view_answer(&k->view, &order);
    bool led = kl_view_leads(&k->view, s, &order);
    bool pushed = kl_view_push(&k->view, s, &order);
    if (confirmed || pushed) {
        kl_apply_view(k);
    } else if (led) {
        k->o.on_image(k->o.ctx, k->view.merged); /* clients are told; to the plan it is all one */
    }
    take_orders(k, s, &order);
    if (s->n_orders || confirmed || pushed) {
        kl_wake(k);
    }
}

static void on_admin(void *ctx, const Kaas__Heartbeat__AdminResult *r)
{
    struct kl_cluster *k = ctx;
    kl_admin_result(k->admin, r);
}

static void on_active(void *ctx, uint64_t stream)
{
    struct kl_cluster *k = ctx;
    kl_admin_active(k->admin, stream);
}

struct kl_hb_callbacks kl_report_callbacks(struct kl_cluster *k)
{
    return (struct kl_hb_callbacks){.hello = on_hello,
                                    .status = on_status,
                                    .hello_answer = on_hello_answer,
                                    .answer = on_answer,
                                    .admin = on_admin,
                                    .active = on_active,
                                    .ctx = k};
}
