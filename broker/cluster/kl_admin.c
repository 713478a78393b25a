/* Admin changes on their way to the active operator (design.md, 1).
 *
 * Each has a sequence of this process; it is sent again with the same one on every new stream to
 * the active operator, which stores results, until it is answered or its deadline passes. Order is
 * kept. Control loop; submitting is for any thread. */
#include "cluster/kl_int.h"

#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "hb/hb_convert.h"

enum {
    PENDING_MAX = 10000,
    REQUEST_TIMED_OUT = 7, /* Kafka's */
    NOT_CONTROLLER = 41,
    INVALID_REQUEST = 42,
    THROTTLING_QUOTA_EXCEEDED = 89 /* retriable: too many changes are under way */
};

struct change {
    struct kc_list link;
    struct rt_msg msg;
    struct kl_cluster *k;
    struct kb_admin_ticket *ticket;
    const struct kb_admin_change *asked;
    int64_t deadline_ms;
    uint64_t sequence;
    uint64_t sent_on; /* stream; 0 = not sent, or to be sent again */
};

struct kl_admin {
    struct kl_cluster *k;
    struct kc_list pending; /* by sequence */
    int32_t n;
    uint64_t next_sequence;
};

static void settle(struct kl_admin *a, struct change *c, const struct kb_admin_result *r)
{
    kc_list_del(&c->link);
    a->n--;
    atomic_store(&a->k->a_admin, (uint64_t)a->n);
    kb_admin_settle(c->ticket, r);
    kc_free(c);
}

static void settle_error(struct kl_admin *a, struct change *c, int16_t error, const char *message)
{
    struct kb_admin_result r = {.error = error, .message = message};
    settle(a, c, &r);
}

static bool fill(struct kc_arena *arena, const struct change *c, Kaas__Heartbeat__AdminRequest *r)
{
    const struct kb_admin_change *w = c->asked;
    r->sequence = c->sequence;
    r->kind = (Kaas__Heartbeat__AdminKind)w->kind;
    r->principal = (char *)(uintptr_t)(w->principal ? w->principal : "");
    r->topic = (char *)(uintptr_t)(w->topic ? w->topic : "");
    r->topic_id = hb_uuid_copy(arena, &w->topic_id);
    r->partitions = w->partitions;
    r->replication_factor = w->replication_factor;
    r->validate_only = w->validate_only;
    r->internal = w->internal;
    r->configs = kc_arena_zalloc(arena, (size_t)w->n_configs, sizeof(*r->configs));
    for (int32_t i = 0; r->configs && i < w->n_configs; i++) {
        Kaas__Heartbeat__ConfigEntry *e = kc_arena_alloc(arena, sizeof(*e));
        if (!e) {
            return false;
        }
        kaas__heartbeat__config_entry__init(e);
        e->name = (char *)(uintptr_t)w->configs[i].name;
        e->value = (char *)(uintptr_t)(w->configs[i].value ? w->configs[i].value : "");
        e->remove = w->configs[i].value == NULL;
        r->configs[r->n_configs++] = e;
    }
    return r->configs != NULL;
}

static void dispatch(struct kl_admin *a, struct change *c, uint64_t stream)
{
    struct kc_arena arena;
    kc_arena_init(&arena, 1024, HB_ARENA_CAP);
    Kaas__Heartbeat__AdminRequest r = KAAS__HEARTBEAT__ADMIN_REQUEST__INIT;
    Kaas__Heartbeat__BrokerMessage m = KAAS__HEARTBEAT__BROKER_MESSAGE__INIT;
    m.kind_case = KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_ADMIN;
    m.admin = &r;
    int rc = fill(&arena, c, &r) ? kl_hb_send(a->k->hb, stream, &m) : KC_E_TOO_LARGE;
    kc_arena_fini(&arena);
    if (rc == 0) {
        c->sent_on = stream;
    } else if (rc == KC_E_TOO_LARGE) {
        settle_error(a, c, INVALID_REQUEST, "the change is too large for the control stream");
    }
}

void kl_admin_active(struct kl_admin *a, uint64_t stream)
{
    KC_LIST_EACH(at, next, &a->pending)
    {
        struct change *c = KC_LIST_ENTRY(at, struct change, link);
        if (c->sent_on != stream) {
            dispatch(a, c, stream);
        }
    }
}

void kl_admin_result(struct kl_admin *a, const Kaas__Heartbeat__AdminResult *r)
{
    KC_LIST_EACH(at, next, &a->pending)
    {
        struct change *c = KC_LIST_ENTRY(at, struct change, link);
        if (c->sequence != r->sequence) {
            continue;
        }
        if (r->error_code == NOT_CONTROLLER) {
            c->sent_on = 0; /* it has just been superseded; the next active one is asked */
            return;
        }
        struct kb_admin_result out = {.error = (int16_t)r->error_code,
                                      .message = r->message,
                                      .topic_id = hb_uuid(r->topic_id),
                                      .partitions = r->partitions};
        if (r->error_code == 0 && r->generation && a->k->view.document) {
            out.order = a->k->view.document->order; /* for its uid */
            out.order.term = r->term;
            out.order.generation = r->generation;
        }
        settle(a, c, &out);
        return;
    }
}

void kl_admin_step(struct kl_admin *a, int64_t now_ms)
{
    uint64_t active = kl_hb_active(a->k->hb);
    KC_LIST_EACH(at, next, &a->pending)
    {
        struct change *c = KC_LIST_ENTRY(at, struct change, link);
        if (now_ms >= c->deadline_ms) {
            settle_error(a, c, REQUEST_TIMED_OUT,
                         c->sent_on ? "the operator did not answer in time"
                                    : "no active operator is connected");
        } else if (c->sent_on == 0 && active) {
            dispatch(a, c, active);
        }
    }
}

/* ---- the port ---- */

static void on_submit(struct rt_msg *msg)
{
    struct change *c = KC_CONTAINER_OF(msg, struct change, msg);
    struct kl_admin *a = c->k->admin;
    if (!a) { /* stopped meanwhile */
        struct kb_admin_result r = {.error = REQUEST_TIMED_OUT, .message = "shutting down"};
        kb_admin_settle(c->ticket, &r);
        kc_free(c);
        return;
    }
    c->sequence = ++a->next_sequence;
    kc_list_add_tail(&a->pending, &c->link);
    atomic_store(&c->k->a_admin, (uint64_t)++a->n);
    if (a->n > PENDING_MAX) {
        settle_error(a, c, THROTTLING_QUOTA_EXCEEDED, "too many changes are under way");
        return;
    }
    uint64_t active = kl_hb_active(c->k->hb);
    if (active) {
        dispatch(a, c, active);
    }
}

static void submit(void *ctx, struct kb_admin_ticket *t, const struct kb_admin_change *change,
                   int64_t deadline_ms)
{
    struct kl_cluster *k = ctx;
    struct change *c = kc_zalloc(sizeof(*c));
    *c = (struct change){
        .msg.fn = on_submit, .k = k, .ticket = t, .asked = change, .deadline_ms = deadline_ms};
    kc_list_init(&c->link);
    rt_post(k->loop, &c->msg);
}

struct kb_admin_port kl_admin_port(struct kl_cluster *k)
{
    return (struct kb_admin_port){.submit = submit, .ctx = k};
}

/* ---- life ---- */

struct kl_admin *kl_admin_new(struct kl_cluster *k)
{
    struct kl_admin *a = kc_zalloc(sizeof(*a));
    a->k = k;
    kc_list_init(&a->pending);
    return a;
}

void kl_admin_free(struct kl_admin *a)
{
    if (!a) {
        return;
    }
    KC_LIST_EACH(at, next, &a->pending)
    {
        settle_error(a, KC_LIST_ENTRY(at, struct change, link), REQUEST_TIMED_OUT, "shutting down");
    }
    kc_free(a);
}
