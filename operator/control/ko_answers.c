/* ko_answers.c - what brokers are told: changed rows, new leaders, orders of moves, the newest order of the
 * image.
 *
 * An answer goes out for every status, and at once on all streams of a cluster when a row changed,
 * an order is new or an image was published (design.md, 4 and 5). */
#include <string.h>

#include "base/kc_hash.h"
#include "base/kc_mem.h"
#include "control/ko_int.h"
#include "hb/hb_convert.h"

/* ---- seals of released partitions, to be handed to the target with `go` ---- */

void ko_seal_take(struct ko_cc *cc, const Kaas__Heartbeat__ReleasedReport *r, int64_t now_ms)
{
    if (!r->seal) {
        return;
    }
    size_t len = r->seal->record.len; /* bounded by hb_check */
    struct ko_seal *seal = kc_try_alloc(sizeof(*seal) + len);
    if (!seal) {
        return; /* the target reads it back from the volume */
    }
    *seal = (struct ko_seal){.at_ms = now_ms,
                             .epoch = r->seal->epoch,
                             .end_offset = r->seal->end_offset,
                             .len = (int32_t)len};
    if (len) {
        memcpy(seal->record, r->seal->record.data, len);
    }
    kc_free(kc_map_put(&cc->seals, &r->move_id, sizeof(r->move_id), seal));
}

void ko_seals_sweep(struct ko_cc *cc, int64_t now_ms)
{
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&cc->seals, &it));) {
        struct ko_seal *seal = e->value;
        if (now_ms - seal->at_ms > KO_SEAL_KEEP_MS) {
            kc_map_del(&cc->seals, e->key, e->key_len);
            kc_free(seal);
        }
    }
}

static Kaas__Heartbeat__Seal *seal_for(struct ko_cc *cc, const struct kp_relay *r,
                                       struct kc_arena *a)
{
    struct ko_seal *seal =
        r->phase == KP_MOVE_GO ? kc_map_get(&cc->seals, &r->move_id, sizeof(r->move_id)) : NULL;
    Kaas__Heartbeat__Seal *out = seal ? kc_arena_alloc(a, sizeof(*out)) : NULL;
    if (!out) {
        return NULL;
    }
    kaas__heartbeat__seal__init(out);
    out->epoch = seal->epoch;
    out->end_offset = seal->end_offset;
    out->record = (ProtobufCBinaryData){.len = (size_t)seal->len, .data = seal->record};
    return out;
}

/* ---- rows ---- */

/* What brokers act on; counts and times of a row are for people. */
static bool same_to_brokers(const struct kp_row *a, const struct kp_row *b)
{
    return a->health == b->health && a->state == b->state && a->reason == b->reason &&
           a->condemned == b->condemned && kc_uuid_eq(&a->incarnation, &b->incarnation) &&
           strcmp(a->rack, b->rack) == 0 && a->n_listeners == b->n_listeners &&
           memcmp(a->listeners, b->listeners, (size_t)a->n_listeners * sizeof(a->listeners[0])) ==
               0;
}

void ko_rows_changed(struct ko_cc *cc)
{
    const struct kp_row *rows;
    int32_t n = kp_ctl_rows(cc->ctl, &rows);
    bool there[KP_BROKERS_MAX] = {false};
    uint64_t version = cc->version + 1;
    for (int32_t i = 0; i < n; i++) {
        int32_t id = rows[i].id;
        there[id] = true;
        if (!cc->row_there[id] || !same_to_brokers(&rows[i], &cc->told[id])) {
            cc->row_version[id] = cc->version = version;
        }
        cc->told[id] = rows[i];
    }
    for (int32_t id = 0; id < KP_BROKERS_MAX; id++) {
        if (cc->row_there[id] && !there[id]) {
            cc->row_version[id] = cc->version = version;
        }
        cc->row_there[id] = there[id];
    }
}

static bool add_rows(struct ko_cc *cc, uint64_t since, struct kc_arena *a,
                     Kaas__Heartbeat__StatusAnswer *m)
{
    m->rows = kc_arena_zalloc(a, KP_BROKERS_MAX, sizeof(*m->rows));
    m->gone = kc_arena_zalloc(a, KP_BROKERS_MAX, sizeof(*m->gone));
    if (!m->rows || !m->gone) {
        return false;
    }
    for (int32_t id = 0; id < KP_BROKERS_MAX; id++) {
        if (cc->row_version[id] <= since) {
            continue;
        }
        if (!cc->row_there[id]) {
            m->gone[m->n_gone++] = id;
            continue;
        }
        m->rows[m->n_rows] = hb_row_new(a, &cc->told[id]);
        if (!m->rows[m->n_rows++]) {
            return false;
        }
    }
    return true;
}

/* ---- orders ---- */

static uint64_t orders_hash(const struct kp_relay *r, int32_t n)
{
    uint64_t h = 0;
    for (int32_t i = 0; i < n; i++) {
        h = kc_hash64_mix(h + 1, r[i].move_id << 3 | (uint64_t)r[i].phase);
    }
    return h;
}

static bool add_orders(struct ko_cc *cc, const struct kp_relay *r, int32_t n, struct kc_arena *a,
                       Kaas__Heartbeat__StatusAnswer *m)
{
    m->orders = kc_arena_zalloc(a, (size_t)n + 1, sizeof(*m->orders));
    for (int32_t i = 0; i < n && m->orders; i++) {
        m->orders[i] = hb_order_new(a, &r[i], seal_for(cc, &r[i], a));
        if (!m->orders[i]) {
            return false;
        }
        m->n_orders++;
    }
    return m->orders != NULL;
}

/* ---- leaders ---- */

/* What this broker has not heard of and no image shows yet; its own it knows itself. */
static int32_t new_leads(struct ko_cc *cc, struct ko_stream *s, struct kp_lead *ret)
{
    int32_t n = kp_ctl_leads(cc->ctl, s->told_leads, ret, KP_LEADS_MAX), kept = 0;
    for (int32_t i = 0; i < n; i++) {
        if (ret[i].broker != s->hello.broker) {
            ret[kept++] = ret[i];
        }
    }
    return kept;
}

static bool add_leads(const struct kp_lead *l, int32_t n, struct kc_arena *a,
                      Kaas__Heartbeat__StatusAnswer *m)
{
    m->leads = kc_arena_zalloc(a, (size_t)n + 1, sizeof(*m->leads));
    for (int32_t i = 0; i < n && m->leads; i++) {
        m->leads[i] = hb_lead_new(a, &l[i]);
        if (!m->leads[i]) {
            return false;
        }
        m->n_leads++;
    }
    return m->leads != NULL;
}

/* ---- the answer ---- */

static void send_status(struct ko_stream *s, Kaas__Heartbeat__StatusAnswer *m)
{
    Kaas__Heartbeat__OperatorMessage o = KAAS__HEARTBEAT__OPERATOR_MESSAGE__INIT;
    o.kind_case = KAAS__HEARTBEAT__OPERATOR_MESSAGE__KIND_STATUS;
    o.status = m;
    ko_stream_send(s, &o);
}

static bool stream_condemned(const struct ko_cc *cc, const struct ko_stream *s)
{
    const struct kp_row *row = kp_ctl_row(cc->ctl, s->hello.broker);
    return !row || row->condemned || !kc_uuid_eq(&row->incarnation, &s->hello.incarnation);
}

void ko_answer(struct ko_stream *s, bool even_if_nothing_new)
{
    Kaas__Heartbeat__StatusAnswer m = KAAS__HEARTBEAT__STATUS_ANSWER__INIT;
    struct ko_cc *cc = ko_cc_find(s->c, s->cluster);
    if (!cc || !ko_cc_held(cc) || !s->admitted) {
        if (even_if_nothing_new) {
            send_status(s, &m); /* a standby, or not yet: active = false */
        }
        return;
    }
    static _Thread_local struct kp_relay relays[KO_ORDERS_MAX];
    static _Thread_local struct kp_lead leads[KP_LEADS_MAX];
    int32_t n = kp_ctl_relays(cc->ctl, s->hello.broker, relays, KO_ORDERS_MAX);
    uint64_t orders = orders_hash(relays, n);
    int32_t n_leads = ko_cc_decides(cc) ? new_leads(cc, s, leads) : 0;
    bool news = s->told_version < cc->version || s->told_generation != cc->order.generation ||
                (n > 0 && orders != s->told_orders) || n_leads > 0;
    if (!news && !even_if_nothing_new) {
        return;
    }
    struct kc_arena a;
    kc_arena_init(&a, 16 * 1024, HB_ARENA_CAP);
    m.image_uid = cc->order.uid;
    m.term = cc->order.term;
    m.generation = cc->order.generation;
    m.active = ko_cc_decides(cc);
    m.condemned = m.active && stream_condemned(cc, s);
    if (add_rows(cc, s->told_version, &a, &m) && add_orders(cc, relays, n, &a, &m) &&
        add_leads(leads, n_leads, &a, &m)) {
        s->told_version = cc->version;
        s->told_generation = cc->order.generation;
        s->told_orders = orders;
        s->told_leads = m.active ? kp_ctl_leads_seq(cc->ctl) : 0;
        send_status(s, &m);
    }
    kc_arena_fini(&a);
}

void ko_answer_all(struct ko_cc *cc)
{
    KC_LIST_EACH(it, nx, &cc->c->streams)
    {
        struct ko_stream *s = KC_LIST_ENTRY(it, struct ko_stream, link);
        if (s->state == KO_ST_UP && s->admitted && strcmp(s->cluster, cc->key) == 0) {
            ko_answer(s, false);
        }
    }
}
