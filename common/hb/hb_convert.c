#include "hb/hb_convert.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

_Static_assert((int)KP_MOVE_PREPARE == KAAS__HEARTBEAT__MOVE_ORDER__PHASE__PREPARE &&
                   (int)KP_MOVE_RELEASE == KAAS__HEARTBEAT__MOVE_ORDER__PHASE__RELEASE &&
                   (int)KP_MOVE_GO == KAAS__HEARTBEAT__MOVE_ORDER__PHASE__GO &&
                   (int)KP_MOVE_CANCEL == KAAS__HEARTBEAT__MOVE_ORDER__PHASE__CANCEL,
               "phases have one numbering");

struct kc_uuid hb_uuid(ProtobufCBinaryData b)
{
    struct kc_uuid u = {{0}};
    if (b.len == sizeof(u.b)) {
        memcpy(u.b, b.data, sizeof(u.b));
    }
    return u;
}

ProtobufCBinaryData hb_uuid_data(const struct kc_uuid *u)
{
    return (ProtobufCBinaryData){.len = sizeof(u->b), .data = (uint8_t *)(uintptr_t)u->b};
}

ProtobufCBinaryData hb_uuid_copy(struct kc_arena *a, const struct kc_uuid *u)
{
    uint8_t *p = kc_uuid_is_zero(u) ? NULL : kc_arena_alloc(a, sizeof(u->b));
    if (!p) {
        return (ProtobufCBinaryData){.len = 0};
    }
    memcpy(p, u->b, sizeof(u->b));
    return (ProtobufCBinaryData){.len = sizeof(u->b), .data = p};
}

struct kp_pid hb_pid(const Kaas__Heartbeat__PartitionId *p)
{
    return (struct kp_pid){.topic_id = hb_uuid(p->topic_id), .partition = p->partition};
}

Kaas__Heartbeat__PartitionId *hb_pid_new(struct kc_arena *a, const struct kc_uuid *topic_id,
                                         int32_t partition)
{
    struct {
        Kaas__Heartbeat__PartitionId p;
        struct kc_uuid id;
    } *both = kc_arena_alloc(a, sizeof(*both));
    if (!both) {
        return NULL;
    }
    kaas__heartbeat__partition_id__init(&both->p);
    both->id = *topic_id;
    both->p.topic_id = hb_uuid_data(&both->id);
    both->p.partition = partition;
    return &both->p;
}

/* A checked copy into a field of fixed size: a cut name would be another name. */
static bool copy_text(char *to, size_t size, const char *from)
{
    size_t n = strnlen(from, size);
    if (n == size) {
        return false;
    }
    memcpy(to, from, n + 1);
    return true;
}

static int copy_listeners(Kaas__Heartbeat__Listener *const *from, size_t n, struct kp_listener *to,
                          int32_t *ret_n, struct kc_err *err)
{
    if (n > KP_LISTENERS_MAX) {
        return kc_fail(err, KC_E_MALFORMED, "%zu listeners", n);
    }
    for (size_t i = 0; i < n; i++) {
        if (!copy_text(to[i].name, sizeof(to[i].name), from[i]->name) ||
            !copy_text(to[i].host, sizeof(to[i].host), from[i]->host)) {
            return kc_fail(err, KC_E_MALFORMED, "listener name or host too long");
        }
        to[i].port = (uint16_t)from[i]->port;
    }
    *ret_n = (int32_t)n;
    return 0;
}

int hb_hello_to_kp(const Kaas__Heartbeat__Hello *h, uint64_t stream, struct kp_hello *ret,
                   struct kc_err *err)
{
    struct kp_hello k = {.broker = h->broker_id,
                         .stream = stream,
                         .incarnation = hb_uuid(h->incarnation),
                         .protocol_version = h->protocol_version};
    if (!copy_text(k.pod_uid, sizeof(k.pod_uid), h->pod_uid) ||
        !copy_text(k.version, sizeof(k.version), h->software_version) ||
        !copy_text(k.rack, sizeof(k.rack), h->rack)) {
        return kc_fail(err, KC_E_MALFORMED, "hello with a name too long");
    }
    int rc = copy_listeners(h->listeners, h->n_listeners, k.listeners, &k.n_listeners, err);
    if (rc == 0) {
        *ret = k;
    }
    return rc;
}

/* Declares and fills one list of the status: `field` of type `struct kp_<type>`, each element from
 * `m`, the message. */
#define LIST(type, field, ...)                                                                     \
    do {                                                                                           \
        if (s->n_##field) {                                                                        \
            struct type *list = kc_arena_zalloc(a, s->n_##field, sizeof(*list));                   \
            if (!list) {                                                                           \
                return -ENOMEM;                                                                    \
            }                                                                                      \
            for (size_t i = 0; i < s->n_##field; i++) {                                            \
                const __typeof__(**s->field) *m = s->field[i];                                     \
                list[i] = (struct type)__VA_ARGS__;                                                \
            }                                                                                      \
            k.field = list;                                                                        \
            k.n_##field = (int32_t)s->n_##field;                                                   \
        }                                                                                          \
    } while (0)

int hb_status_to_kp(const Kaas__Heartbeat__BrokerStatus *s, uint64_t stream, int64_t wall_ms,
                    struct kc_arena *a, struct kp_status *ret)
{
    struct kp_status k = {.broker = s->broker_id,
                          .stream = stream,
                          .incarnation = hb_uuid(s->incarnation),
                          .healthy = s->healthy,
                          .draining = s->draining,
                          .serving = s->serving,
                          .stalled = s->storage_stalled,
                          /* What a newer broker says that is not known here cannot be told. */
                          .volume = s->volume <= KP_VOLUME_READ_ONLY ? (enum kp_volume)s->volume
                                                                     : KP_VOLUME_WRITABLE,
                          .full = s->full,
                          .wall_ms = wall_ms};
    LIST(kp_led, led,
         {.topic_id = hb_uuid(m->partition->topic_id),
          .partition = m->partition->partition,
          .epoch = m->epoch});
    LIST(kp_pid, unled, {.topic_id = hb_uuid(m->topic_id), .partition = m->partition});
    LIST(kp_moved, prepared, {.p = hb_pid(m->partition), .move_id = m->move_id});
    LIST(kp_moved, released,
         {.p = hb_pid(m->partition), .move_id = m->move_id, .stopped_ms = m->stopped_ms_ago});
    LIST(kp_blocked, blocked,
         {.p = hb_pid(m->partition), .broker = m->broker, .incarnation = hb_uuid(m->incarnation)});
    LIST(kp_failed, failed, {.p = hb_pid(m->partition), .permanent = m->permanent});
    *ret = k;
    return 0;
}

Kaas__Heartbeat__Listener **hb_listeners_new(struct kc_arena *a, const struct kp_listener *l,
                                             int32_t n)
{
    if (n <= 0) {
        return NULL;
    }
    Kaas__Heartbeat__Listener **list = kc_arena_zalloc(a, (size_t)n, sizeof(*list));
    Kaas__Heartbeat__Listener *items = kc_arena_zalloc(a, (size_t)n, sizeof(*items));
    if (!list || !items) {
        return NULL;
    }
    for (int32_t i = 0; i < n; i++) {
        kaas__heartbeat__listener__init(&items[i]);
        items[i].name = kc_arena_strndup(a, l[i].name, strlen(l[i].name));
        items[i].host = kc_arena_strndup(a, l[i].host, strlen(l[i].host));
        items[i].port = l[i].port;
        if (!items[i].name || !items[i].host) {
            return NULL;
        }
        list[i] = &items[i];
    }
    return list;
}

Kaas__Heartbeat__Row *hb_row_new(struct kc_arena *a, const struct kp_row *row)
{
    Kaas__Heartbeat__Row *r = kc_arena_alloc(a, sizeof(*r));
    if (!r) {
        return NULL;
    }
    kaas__heartbeat__row__init(r);
    r->id = row->id;
    r->incarnation = hb_uuid_copy(a, &row->incarnation);
    r->health = (uint32_t)row->health;
    r->state = (uint32_t)row->state;
    r->condemned = row->condemned;
    const char *reason = kp_reason_name(row->reason);
    r->reason = kc_arena_strndup(a, reason, strlen(reason));
    r->rack = kc_arena_strndup(a, row->rack, strlen(row->rack));
    r->listeners = hb_listeners_new(a, row->listeners, row->n_listeners);
    r->n_listeners = r->listeners ? (size_t)row->n_listeners : 0;
    if (!r->reason || !r->rack || r->n_listeners != (size_t)row->n_listeners ||
        (r->incarnation.len == 0 && !kc_uuid_is_zero(&row->incarnation))) {
        return NULL;
    }
    return r;
}

int hb_row_apply(const Kaas__Heartbeat__Row *r, struct kp_row *row, struct kc_err *err)
{
    struct kp_row out = *row;
    out.id = r->id;
    out.incarnation = hb_uuid(r->incarnation);
    out.health = (enum kp_health)r->health;
    out.state = (enum kp_state)r->state;
    out.condemned = r->condemned;
    out.reason = kp_reason_parse(r->reason);
    out.serving = out.state != KP_FENCED;
    if (!copy_text(out.rack, sizeof(out.rack), r->rack)) {
        return kc_fail(err, KC_E_MALFORMED, "rack too long");
    }
    if (r->n_listeners) { /* a row of a broker that never said hello has none yet */
        int rc = copy_listeners(r->listeners, r->n_listeners, out.listeners, &out.n_listeners, err);
        if (rc) {
            return rc;
        }
    }
    *row = out;
    return 0;
}

Kaas__Heartbeat__MoveOrder *hb_order_new(struct kc_arena *a, const struct kp_relay *r,
                                         Kaas__Heartbeat__Seal *seal)
{
    Kaas__Heartbeat__MoveOrder *o = kc_arena_alloc(a, sizeof(*o));
    Kaas__Heartbeat__PartitionId *p = hb_pid_new(a, &r->p.topic_id, r->p.partition);
    if (!o || !p) {
        return NULL;
    }
    kaas__heartbeat__move_order__init(o);
    o->id = r->move_id;
    o->partition = p;
    o->from = r->from;
    o->to = r->to;
    o->phase = (Kaas__Heartbeat__MoveOrder__Phase)r->phase;
    o->seal = seal;
    return o;
}

Kaas__Heartbeat__Lead *hb_lead_new(struct kc_arena *a, const struct kp_lead *l)
{
    Kaas__Heartbeat__Lead *m = kc_arena_alloc(a, sizeof(*m));
    Kaas__Heartbeat__PartitionId *p = hb_pid_new(a, &l->p.topic_id, l->p.partition);
    if (!m || !p) {
        return NULL;
    }
    kaas__heartbeat__lead__init(m);
    m->partition = p;
    m->broker = l->broker;
    m->incarnation = hb_uuid_copy(a, &l->incarnation);
    m->epoch = l->epoch;
    return m->incarnation.len ? m : NULL;
}

struct kp_lead hb_lead(const Kaas__Heartbeat__Lead *l)
{
    return (struct kp_lead){.p = hb_pid(l->partition),
                            .broker = l->broker,
                            .incarnation = hb_uuid(l->incarnation),
                            .epoch = l->epoch};
}

struct kp_relay hb_order_relay(const Kaas__Heartbeat__MoveOrder *o)
{
    bool known = o->phase >= 0 && (int)o->phase <= (int)KP_MOVE_CANCEL;
    return (struct kp_relay){.move_id = o->id,
                             .p = hb_pid(o->partition),
                             .from = o->from,
                             .to = o->to,
                             .phase = known ? (enum kp_phase)o->phase : KP_MOVE_NONE};
}
