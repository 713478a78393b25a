/* ko_admin.c - admin changes that brokers ask for: once each, in order, answered when visible.
 *
 * A request is known by (process id, sequence); asked again, its stored result is given. Requests of
 * one process that name the same topic run one after the other, others side by side. */
#include <string.h>

#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "control/ko_admin_int.h"
#include "hb/hb_convert.h"

enum {
    ASKED_MAX = 32, /* of one process at the API loop at once */
    QUEUED_MAX = 4096
};

struct ko_process {
    struct kc_list link; /* cc.processes, least recently used first */
    struct kc_uuid id;
    struct kc_map by_sequence; /* struct ko_req *, borrowed */
    struct kc_list order; /* all of them, owned */
    int32_t n_open, n_asked, n_done;
};

/* A ticket at the API loop names its request; it may be gone when the outcome comes. */
struct ticket {
    char key[KO_CLUSTER_KEY_MAX];
    struct kc_uuid process;
    uint64_t sequence;
};

static void req_free(struct ko_req *r)
{
    kc_arena_fini(&r->arena);
    kc_free(r);
}

static void process_free(struct ko_cc *cc, struct ko_process *p)
{
    KC_LIST_EACH(it, nx, &p->order)
    {
        req_free(KC_LIST_ENTRY(it, struct ko_req, link));
    }
    kc_map_fini(&p->by_sequence, NULL);
    kc_list_del(&p->link);
    cc->n_processes--;
    kc_free(p);
}

void ko_admin_drop(struct ko_cc *cc)
{
    KC_LIST_EACH(it, nx, &cc->processes)
    {
        process_free(cc, KC_LIST_ENTRY(it, struct ko_process, link));
    }
}

static struct ko_process *process_find(struct ko_cc *cc, const struct kc_uuid *id)
{
    KC_LIST_EACH(it, nx, &cc->processes)
    {
        struct ko_process *p = KC_LIST_ENTRY(it, struct ko_process, link);
        if (kc_uuid_eq(&p->id, id)) {
            return p;
        }
    }
    return NULL;
}

/* The least recently used process without open requests makes room. NULL: none can. */
static struct ko_process *process_get(struct ko_cc *cc, const struct kc_uuid *id)
{
    struct ko_process *p = process_find(cc, id);
    if (p) {
        kc_list_del(&p->link);
        kc_list_add_tail(&cc->processes, &p->link);
        return p;
    }
    KC_LIST_EACH(it, nx, &cc->processes)
    {
        struct ko_process *old = KC_LIST_ENTRY(it, struct ko_process, link);
        if (cc->n_processes >= KO_PROCESSES_MAX && old->n_open == 0) {
            process_free(cc, old);
        }
    }
    if (cc->n_processes >= KO_PROCESSES_MAX) {
        return NULL;
    }
    p = kc_zalloc(sizeof(*p));
    p->id = *id;
    kc_map_init(&p->by_sequence);
    kc_list_init(&p->order);
    kc_list_add_tail(&cc->processes, &p->link);
    cc->n_processes++;
    return p;
}

/* ---- results ---- */

static void send_result(struct ko_stream *s, Kaas__Heartbeat__AdminResult *a)
{
    Kaas__Heartbeat__OperatorMessage m = KAAS__HEARTBEAT__OPERATOR_MESSAGE__INIT;
    m.kind_case = KAAS__HEARTBEAT__OPERATOR_MESSAGE__KIND_ADMIN;
    m.admin = a;
    ko_stream_send(s, &m);
}

static void answer(struct ko_cc *cc, struct ko_req *r)
{
    struct ko_stream *s = r->stream ? ko_stream_find(cc->c, r->stream) : NULL;
    if (!s || s->state != KO_ST_UP) {
        return; /* it will ask again */
    }
    Kaas__Heartbeat__AdminResult a = KAAS__HEARTBEAT__ADMIN_RESULT__INIT;
    a.sequence = r->sequence;
    a.error_code = r->error;
    a.message = r->message;
    if (!kc_uuid_is_zero(&r->change.topic_id)) {
        a.topic_id = hb_uuid_data(&r->change.topic_id);
    }
    a.partitions = r->change.partitions;
    a.term = cc->order.term;
    a.generation = r->generation;
    send_result(s, &a);
}

/* An answer that is not remembered: the request was not taken. */
static void turn_away(struct ko_stream *s, uint64_t sequence, int32_t error, const char *why)
{
    Kaas__Heartbeat__AdminResult a = KAAS__HEARTBEAT__ADMIN_RESULT__INIT;
    a.sequence = sequence;
    a.error_code = error;
    a.message = (char *)(uintptr_t)why;
    send_result(s, &a);
}

static void finish(struct ko_cc *cc, struct ko_process *p, struct ko_req *r, int32_t error)
{
    p->n_asked -= r->state == KO_REQ_ASKED;
    p->n_open--;
    p->n_done++;
    r->state = KO_REQ_DONE;
    r->error = error;
    answer(cc, r);
    KC_LIST_EACH(it, nx, &p->order)
    {
        struct ko_req *old = KC_LIST_ENTRY(it, struct ko_req, link);
        if (p->n_done <= KO_RESULTS_MAX) {
            break;
        }
        if (old->state == KO_REQ_DONE) {
            kc_map_del(&p->by_sequence, &old->sequence, sizeof(old->sequence));
            kc_list_del(&old->link);
            req_free(old);
            p->n_done--;
        }
    }
}

/* ---- carrying out ---- */

struct ask {
    struct kc_arena arena;
    struct ko_admin change;
};

static void ask_free(void *p)
{
    struct ask *a = p;
    kc_arena_fini(&a->arena);
    kc_free(a);
}

static void tell_admin(struct ko_control *c, void *arg)
{
    struct ask *a = arg;
    if (c->o.cb.admin) {
        c->o.cb.admin(c->o.cb.ctx, &a->change);
    } else {
        ko_control_admin_done(c, a->change.ticket, 0, "");
    }
    ask_free(a);
}

/* The API loop makes the objects say it. */
static void ask(struct ko_cc *cc, struct ko_process *p, struct ko_req *r)
{
    struct ask *a = kc_zalloc(sizeof(*a));
    kc_arena_init(&a->arena, 2048, 0);
    a->change = r->change;
    a->change.ticket = ++cc->c->next_ticket;
    a->change.cluster = kc_arena_strndup(&a->arena, cc->key, strlen(cc->key));
    a->change.principal =
        kc_arena_strndup(&a->arena, r->change.principal, strlen(r->change.principal));
    a->change.topic = kc_arena_strndup(&a->arena, r->change.topic, strlen(r->change.topic));
    bool ok =
        ki_configs_copy(&a->arena, r->change.configs, r->change.n_configs, &a->change.configs);
    KC_ASSERT(ok && a->change.cluster && a->change.principal && a->change.topic);
    struct ticket *t = kc_zalloc(sizeof(*t));
    memcpy(t->key, cc->key, sizeof(t->key));
    t->process = p->id;
    t->sequence = r->sequence;
    kc_free(kc_map_put(&cc->c->tickets, &a->change.ticket, sizeof(a->change.ticket), t));
    r->state = KO_REQ_ASKED;
    p->n_asked++;
    ko_to_api(cc->c, tell_admin, a, ask_free);
}

static void apply(struct ko_cc *cc, struct ko_process *p, struct ko_req *r)
{
    int32_t error = ko_req_apply(cc, r);
    if (error) {
        finish(cc, p, r, error);
        return;
    }
    p->n_asked -= r->state == KO_REQ_ASKED;
    r->state = KO_REQ_APPLIED;
    r->generation = cc->started + 1;
    cc->dirty_root = true; /* an image of that generation there will be */
    cc->next_ms = 0;
    ko_step_soon(cc->c);
}

static void start(struct ko_cc *cc, struct ko_process *p, struct ko_req *r)
{
    int32_t error = ko_req_check(cc, r);
    if (error || r->validate_only) {
        finish(cc, p, r, error);
    } else if (r->change.internal) {
        apply(cc, p, r);
    } else {
        ask(cc, p, r);
    }
}

/* An earlier request about the same topic is not through yet. */
static bool waits(const struct ko_process *p, const struct ko_req *r)
{
    KC_LIST_EACH(it, nx, &p->order)
    {
        const struct ko_req *before = KC_LIST_ENTRY(it, struct ko_req, link);
        if (before == r) {
            return false;
        }
        if (before->state != KO_REQ_DONE && before->state != KO_REQ_APPLIED &&
            strcmp(before->change.topic, r->change.topic) == 0) {
            return true;
        }
    }
    return false;
}

static void pump(struct ko_cc *cc, struct ko_process *p)
{
    KC_LIST_EACH(it, nx, &p->order)
    {
        struct ko_req *r = KC_LIST_ENTRY(it, struct ko_req, link);
        if (p->n_asked >= ASKED_MAX) {
            return;
        }
        if (r->state == KO_REQ_QUEUED && !waits(p, r)) {
            start(cc, p, r);
            nx = p->order.next; /* finish may have dropped old results */
        }
    }
}

static const char *text(struct kc_arena *a, const char *s)
{
    return kc_arena_strndup(a, s, strlen(s));
}

/* NULL: larger than a request may be. */
static struct ko_req *req_new(const Kaas__Heartbeat__AdminRequest *m)
{
    struct ko_req *r = kc_zalloc(sizeof(*r));
    kc_arena_init(&r->arena, 1024, HB_FRAME_MAX);
    kc_list_init(&r->link);
    r->sequence = m->sequence;
    r->validate_only = m->validate_only;
    r->n_entries = (int32_t)m->n_configs;
    r->entries = kc_arena_zalloc(&r->arena, m->n_configs + 1, sizeof(*r->entries));
    r->change = (struct ko_admin){.kind = (enum ko_admin_kind)m->kind,
                                  .principal = text(&r->arena, m->principal),
                                  .topic = text(&r->arena, m->topic),
                                  .topic_id = hb_uuid(m->topic_id),
                                  .partitions = m->partitions,
                                  .replication_factor = m->replication_factor,
                                  .internal = m->internal};
    bool ok = r->entries && r->change.principal && r->change.topic;
    for (size_t i = 0; i < m->n_configs && ok; i++) {
        const Kaas__Heartbeat__ConfigEntry *e = m->configs[i];
        r->entries[i].name = text(&r->arena, e->name);
        r->entries[i].value = e->remove ? NULL : text(&r->arena, e->value);
        ok = r->entries[i].name && (e->remove || r->entries[i].value);
    }
    if (!ok) {
        req_free(r);
        return NULL;
    }
    return r;
}

void ko_admin_request(struct ko_stream *s, const Kaas__Heartbeat__AdminRequest *m)
{
    struct ko_cc *cc = ko_cc_find(s->c, s->cluster);
    if (!cc || !s->admitted || !ko_cc_decides(cc) || kc_uuid_is_zero(&s->process)) {
        turn_away(s, m->sequence, KO_KAFKA_REQUEST_TIMED_OUT,
                  "this operator does not decide (yet)");
        return;
    }
    struct ko_process *p = process_get(cc, &s->process);
    struct ko_req *r = p ? kc_map_get(&p->by_sequence, &m->sequence, sizeof(m->sequence)) : NULL;
    if (r) {
        r->stream = s->id;
        if (r->state == KO_REQ_DONE) {
            answer(cc, r);
        }
        return;
    }
    r = p && p->n_open < QUEUED_MAX ? req_new(m) : NULL;
    if (!r) {
        turn_away(s, m->sequence, KO_KAFKA_THROTTLING_QUOTA_EXCEEDED, "too many changes under way");
        return;
    }
    r->stream = s->id;
    kc_map_put(&p->by_sequence, &r->sequence, sizeof(r->sequence), r);
    kc_list_add_tail(&p->order, &r->link);
    p->n_open++;
    pump(cc, p);
}

void ko_admin_outcome(struct ko_control *c, uint64_t ticket, int32_t error, const char *message)
{
    struct ticket *t = kc_map_del(&c->tickets, &ticket, sizeof(ticket));
    struct ko_cc *cc = t ? ko_cc_find(c, t->key) : NULL;
    struct ko_process *p = cc ? process_find(cc, &t->process) : NULL;
    struct ko_req *r = p ? kc_map_get(&p->by_sequence, &t->sequence, sizeof(t->sequence)) : NULL;
    kc_free(t);
    if (!r || r->state != KO_REQ_ASKED || !ko_cc_decides(cc)) {
        return; /* asked under a Lease since lost: the broker asks the new active operator */
    }
    if (error) {
        memcpy(r->message, message, KC_MIN(strlen(message), sizeof(r->message) - 1));
        finish(cc, p, r, error);
    } else {
        apply(cc, p, r);
    }
    pump(cc, p);
}

void ko_admin_published(struct ko_cc *cc)
{
    KC_LIST_EACH(pit, pnx, &cc->processes)
    {
        struct ko_process *p = KC_LIST_ENTRY(pit, struct ko_process, link);
        KC_LIST_EACH(it, nx, &p->order)
        {
            struct ko_req *r = KC_LIST_ENTRY(it, struct ko_req, link);
            if (r->state == KO_REQ_APPLIED && r->generation <= cc->order.generation) {
                finish(cc, p, r, 0);
                nx = p->order.next;
            }
        }
        pump(cc, p);
    }
}

void ko_admin_stream_closed(struct ko_stream *s)
{
    struct ko_cc *cc = s->cluster[0] ? ko_cc_find(s->c, s->cluster) : NULL;
    struct ko_process *p = cc ? process_find(cc, &s->process) : NULL;
    if (!p) {
        return;
    }
    KC_LIST_EACH(it, nx, &p->order)
    {
        struct ko_req *r = KC_LIST_ENTRY(it, struct ko_req, link);
        if (r->stream == s->id) {
            r->stream = 0;
        }
    }
}
