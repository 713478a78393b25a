/* ko_keeper.c - keeps the Lease: the pure steps of kp_lease over a store of the control loop's own,
 * so that nothing the API loop does can delay a renewal (R63). */
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_json.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "control/ko_int.h"

#define ADDRESS_KEY "kaas.dev/heartbeat-address"

static struct kp_lease_doc doc_of(const json_t *d)
{
    struct kp_lease_doc out = {0};
    const char *holder = kc_json_str(d, "spec.holderIdentity", "");
    const char *renewed = kc_json_str(d, "spec.renewTime", "");
    memcpy(out.holder, holder, KC_MIN(strlen(holder), (size_t)KP_HOLDER_MAX));
    memcpy(out.renewed, renewed, KC_MIN(strlen(renewed), (size_t)KP_STAMP_MAX));
    out.duration_ms = kc_json_int(d, "spec.leaseDurationSeconds", 0) * 1000;
    out.transitions = kc_json_int(d, "spec.leaseTransitions", 0);
    return out;
}

static void keep_doc(struct ko_keeper *k, json_t *d)
{
    json_decref(k->doc);
    k->doc = json_incref(d);
    const json_t *notes = kc_json_at(d, "metadata.annotations");
    const char *address = json_string_value(json_object_get(notes, ADDRESS_KEY));
    size_t n = address ? KC_MIN(strlen(address), sizeof(k->address) - 1) : 0;
    memcpy(k->address, address ? address : "", n);
    k->address[n] = '\0';
}

static void tell_leader(struct ko_control *c, void *arg)
{
    bool *active = arg;
    if (c->o.cb.leader) {
        c->o.cb.leader(c->o.cb.ctx, *active);
    }
    kc_free(active);
}

/* Acts on a change of who leads. Called whenever time or an answer may have changed it. */
static void settle(struct ko_control *c, int64_t now_ms)
{
    struct ko_keeper *k = &c->keeper;
    bool held = kp_lease_held(&k->lease, now_ms) && !k->releasing;
    if (held == k->leader) {
        return;
    }
    k->leader = held;
    atomic_store(&c->may_publish, held);
    kc_log(KC_INFO, "control", "event=%s identity=%s", held ? "lease_acquired" : "lease_lost",
           c->o.identity);
    bool *active = kc_alloc(sizeof(*active));
    *active = held;
    ko_to_api(c, tell_leader, active, NULL);
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&c->clusters, &it));) {
        if (held) {
            ko_cc_lead(e->value);
        } else {
            ko_cc_unlead(e->value);
        }
    }
}

/* A call on its way: an answer to an older attempt is nobody's. */
struct call {
    struct kc_list link; /* keeper.calls */
    struct ko_control *c;
    uint64_t attempt;
    int64_t started_ms;
};

static struct call *call_new(struct ko_control *c, int64_t now_ms)
{
    struct call *x = kc_alloc(sizeof(*x));
    *x = (struct call){.c = c, .attempt = ++c->keeper.attempt, .started_ms = now_ms};
    kc_list_add_tail(&c->keeper.calls, &x->link);
    c->keeper.started_ms = now_ms;
    return x;
}

/* True if the answer is to the newest attempt. Frees the call. */
static bool call_current(struct call *x)
{
    bool current = x->attempt == x->c->keeper.attempt;
    kc_list_del(&x->link);
    kc_free(x);
    return current;
}

static void on_read(void *ctx, const struct ko_result *r)
{
    struct call *x = ctx;
    struct ko_control *c = x->c;
    struct ko_keeper *k = &c->keeper;
    if (!call_current(x)) {
        return;
    }
    int64_t now = ko_now(c);
    if (r->code == 200 && r->doc) {
        struct kp_lease_doc d = doc_of(r->doc);
        keep_doc(k, r->doc);
        kp_lease_seen(&k->lease, &d, now);
    } else if (r->code == 404) {
        kp_lease_seen(&k->lease, NULL, now);
    } else {
        kp_lease_failed(&k->lease, now);
    }
    settle(c, now);
    ko_keeper_tick(c, now); /* what was read may be taken at once */
}

static void on_wrote(void *ctx, const struct ko_result *r)
{
    struct call *x = ctx;
    struct ko_control *c = x->c;
    struct ko_keeper *k = &c->keeper;
    int64_t started = x->started_ms;
    if (!call_current(x)) {
        return;
    }
    int64_t now = ko_now(c);
    if ((r->code == 200 || r->code == 201) && r->doc) {
        struct kp_lease_doc d = doc_of(r->doc);
        keep_doc(k, r->doc);
        kp_lease_wrote(&k->lease, &d, started, now);
    } else {
        if (r->code && r->code != 409) {
            struct kc_log_buf lb;
            kc_log(KC_WARN, "control", "event=lease_write code=%d reason=%s", r->code,
                   kc_log_str(kc_str_of(r->reason), &lb));
        }
        kp_lease_failed(&k->lease, now);
    }
    settle(c, now);
}

static json_t *next_doc(struct ko_control *c, bool create, const char *holder)
{
    struct ko_keeper *k = &c->keeper;
    char now[32];
    kc_rfc3339(kc_wall_ms(), true, now);
    json_t *d = create ? json_pack("{s:s, s:s, s:{s:s, s:s}}", "apiVersion",
                                   "coordination.k8s.io/v1", "kind", "Lease", "metadata",
                                   "namespace", c->o.lease_ns, "name", c->o.lease_name)
                       : json_deep_copy(k->doc);
    json_t *meta = json_object_get(d, "metadata");
    json_object_del(meta, "managedFields");
    json_t *notes = json_object_get(meta, "annotations");
    if (!notes) {
        notes = json_object();
        json_object_set_new(meta, "annotations", notes);
    }
    json_object_set_new(notes, ADDRESS_KEY, json_string(c->o.advertised));
    bool mine = !create && strcmp(kc_json_str(k->doc, "spec.holderIdentity", ""), holder) == 0;
    const char *acquired = mine ? kc_json_str(k->doc, "spec.acquireTime", now) : now;
    json_t *spec =
        json_pack("{s:s, s:I, s:s, s:s, s:I}", "holderIdentity", holder, "leaseDurationSeconds",
                  (json_int_t)KC_MAX(c->o.lease_ms / 1000, 1), "acquireTime", acquired, "renewTime",
                  now, "leaseTransitions", (json_int_t)kp_lease_transitions(&k->lease));
    json_object_set_new(d, "spec", spec);
    return d;
}

void ko_keeper_tick(struct ko_control *c, int64_t now_ms)
{
    struct ko_keeper *k = &c->keeper;
    int64_t next;
    if (!k->store || k->releasing) {
        return;
    }
    if (k->lease.busy && now_ms - k->started_ms > KO_LEASE_CALL_MS) {
        k->attempt++; /* whatever it says later is too late */
        kp_lease_failed(&k->lease, now_ms);
    }
    enum kp_lease_do what = kp_lease_step(&k->lease, now_ms, &next);
    settle(c, now_ms);
    const struct ko_store_ops *ops = k->store->ops;
    if (what == KP_LEASE_READ) {
        ops->get(k->store, KO_LEASE, c->o.lease_ns, c->o.lease_name, on_read, call_new(c, now_ms));
    } else if (what != KP_LEASE_WAIT) {
        bool create = what == KP_LEASE_CREATE;
        json_t *d = next_doc(c, create, c->o.identity);
        struct call *x = call_new(c, now_ms);
        if (create) {
            ops->create(k->store, KO_LEASE, d, on_wrote, x);
        } else {
            ops->update(k->store, KO_LEASE, d, on_wrote, x);
        }
        json_decref(d);
    }
}

void ko_keeper_init(struct ko_control *c)
{
    struct ko_keeper *k = &c->keeper;
    struct kp_lease_opts o = {.lease_ms = c->o.lease_ms,
                              .renew_deadline_ms = c->o.renew_deadline_ms,
                              .retry_ms = c->o.retry_ms};
    kp_lease_init(&k->lease, &o, c->o.identity);
    k->store = c->o.lease_store(c->o.lease_store_ctx, &c->loop);
    if (!k->store) {
        kc_log(KC_ERROR, "control", "event=lease_store_missing");
        return;
    }
    ko_keeper_tick(c, ko_now(c));
}

static void on_released(void *ctx, const struct ko_result *r)
{
    struct call *x = ctx;
    (void)r;
    x->c->keeper.released = true;
    call_current(x);
}

/* An empty holder lets the next one take over at once; best effort, within a second. */
void ko_keeper_release(struct ko_control *c)
{
    struct ko_keeper *k = &c->keeper;
    bool held = k->leader && k->doc;
    k->releasing = true;
    settle(c, ko_now(c));
    if (!held) {
        k->released = true;
        return;
    }
    json_t *d = next_doc(c, false, "");
    k->store->ops->update(k->store, KO_LEASE, d, on_released, call_new(c, ko_now(c)));
    json_decref(d);
}

void ko_keeper_fini(struct ko_control *c)
{
    struct ko_keeper *k = &c->keeper;
    if (k->store) {
        k->store->ops->free(k->store); /* calls under way end without an answer */
        k->store = NULL;
    }
    KC_LIST_EACH(it, nx, &k->calls)
    {
        kc_list_del(it);
        kc_free(KC_LIST_ENTRY(it, struct call, link));
    }
    json_decref(k->doc);
    k->doc = NULL;
}
