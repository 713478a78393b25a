/* The status writer: a tick of its own, a write only on a change, never more than one under way a
 * cluster. Nothing here waits for a reconcile, so status is at most a tick and a write behind. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_json.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "reconcile/ko_events.h"
#include "reconcile/ko_rec.h"
#include "reconcile/ko_status.h"

enum { RECHECK_MS = 1000, SOON_MS = 20, APART_MS = 100 };

void ko_rec_status_dirty(struct ko_rec *r, struct ko_rc *c)
{
    c->status_dirty = true;
    ko_rec_status_in(r, KC_MAX((int64_t)SOON_MS, c->status_at_ms + APART_MS - kc_mono_ms()));
}

struct status_op {
    struct ko_op op;
    char cluster[KO_KEY_MAX];
    json_t *status;
};

static void status_fini(struct ko_op *op)
{
    json_decref(((struct status_op *)op)->status);
}

static void on_written(void *ctx, const struct ko_result *res)
{
    struct status_op *o = ctx;
    struct ko_rc *c = ko_rec_cluster(o->op.rec, o->cluster);
    if (c) {
        c->status_in_flight = false;
        if (c->status_dirty) {
            ko_rec_status_dirty(o->op.rec, c);
        }
        if (res->code == 200) {
            json_decref(c->status);
            c->status = json_incref(o->status);
        } else if (res->code != 404 && res->code != 409) {
            struct kc_log_buf lb;
            kc_log(KC_WARN, "reconcile", "event=status_failed cluster=%s code=%d error=%s",
                   o->cluster, res->code, kc_log_str(kc_str_of(res->message), &lb));
        }
    }
    ko_op_free(o);
}

static void write_status(struct ko_rec *r, struct ko_rc *c, json_t *status)
{
    struct status_op *o = ko_op_new(r, sizeof(*o), status_fini);
    snprintf(o->cluster, sizeof(o->cluster), "%s", c->key);
    o->status = json_incref(status);
    json_t *doc = ko_doc_new(KO_KAASCLUSTER, ko_ns(c->doc), ko_name(c->doc));
    json_object_set_new(json_object_get(doc, "metadata"), "uid", json_string(ko_uid(c->doc)));
    json_object_set(doc, "status", status);
    c->status_in_flight = true;
    atomic_fetch_add(&r->m.status_writes, 1);
    r->store->ops->apply_status(r->store, KO_KAASCLUSTER, doc, on_written, o);
    json_decref(doc);
}

void ko_rec_status_run(struct ko_rec *r)
{
    struct kc_map_iter it = {0};
    int64_t now = kc_mono_ms(), wall = kc_wall_ms();
    for (struct kc_map_entry *e; r->leader && (e = kc_map_next(&r->clusters, &it));) {
        struct ko_rc *c = e->value;
        bool due = now - c->status_at_ms >= (c->status_dirty ? APART_MS : RECHECK_MS);
        if (!due && c->status_dirty) {
            ko_rec_status_in(r, c->status_at_ms + APART_MS - now);
        }
        if (!due || c->status_in_flight || !c->doc || ko_deleting(c->doc) ||
            (!c->spec && !*c->invalid)) {
            continue;
        }
        c->status_dirty = false;
        c->status_at_ms = now;
        json_t *status = ko_status_build(r, c, now, wall);
        if (!json_equal(status, c->status)) {
            write_status(r, c, status);
        }
        ko_rollout_run(r, c, status);
        json_decref(status);
        if (c->spec) {
            ko_rec_brokers_run(r, c);
        }
        if (c->rolling) { /* the gate is looked at as pods come and time passes */
            ko_rec_queue(r, 'c', c->key, 0);
        }
    }
}

static void emit(struct ko_rec *r, const json_t *about, enum ko_event_level level,
                 const char *reason, const char *text)
{
    if (about && r->leader && ko_event_emit(r->events, about, level, reason, text, kc_wall_ms())) {
        atomic_fetch_add(&r->m.events, 1);
    }
}

void ko_rec_event(struct ko_rec *r, const json_t *about, bool warning, const char *reason,
                  const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    emit(r, about, warning ? KO_EVENT_WARNING : KO_EVENT_NORMAL, reason, text);
}

void ko_rec_control_event(void *ctx, const char *cluster, const struct kp_event *ev)
{
    static const struct {
        const char *reason, *text;
        enum ko_event_level level;
    } kinds[] = {
        [KP_EV_REGISTERED] = {"BrokerRegistered", "is registered", KO_EVENT_NORMAL},
        [KP_EV_SERVING] = {"BrokerServing", "serves", KO_EVENT_NORMAL},
        [KP_EV_FENCED] = {"BrokerFenced", "is fenced", KO_EVENT_WARNING},
        [KP_EV_DRAINING] = {"BrokerDraining", "is draining", KO_EVENT_NORMAL},
        [KP_EV_DEREGISTERED] = {"BrokerDeregistered", "is deregistered", KO_EVENT_NORMAL},
        [KP_EV_CONDEMNED] = {"BrokerCondemned", "lost its incarnation; its claims may be fenced",
                             KO_EVENT_WARNING},
        [KP_EV_PARTITIONS_MOVED] = {"PartitionsMoved", "took over partitions", KO_EVENT_DETAIL},
        [KP_EV_VOLUME_STALL] = {"VolumeStall",
                                "of the cluster report a storage stall, half of them or more: "
                                "it is the volume, and nothing is moved",
                                KO_EVENT_WARNING},
        [KP_EV_VOLUME_FULL] = {"VolumeFull", "refuses records: its volume is full; reads go on",
                               KO_EVENT_WARNING},
        [KP_EV_VOLUME_READ_ONLY] = {"VolumeReadOnly",
                                    "refuses records: its volume is read-only; reads go on",
                                    KO_EVENT_WARNING},
        [KP_EV_VOLUME_WRITABLE] = {"VolumeWritable", "writes to its volume again", KO_EVENT_NORMAL},
        [KP_EV_OFFLINE] = {"PartitionsOffline", "has partitions that failed for good",
                           KO_EVENT_WARNING},
    };
    struct ko_rec *r = ctx;
    struct ko_rc *c = ko_rec_cluster(r, cluster);
    char count[40] = "", who[280] = "brokers", text[512];
    if (!c || !c->doc || (size_t)ev->kind >= KC_ARRAY_LEN(kinds)) {
        return;
    }
    const char *why = kp_reason_name(ev->reason);
    if (ev->count > 0) {
        snprintf(count, sizeof(count), " (%d)", ev->count);
    }
    if (ev->broker >= 0) {
        snprintf(who, sizeof(who), "broker %s-%d", ko_name(c->doc), (int)ev->broker);
    }
    snprintf(text, sizeof(text), "%s %s%s%s%s", who, kinds[ev->kind].text, *why ? ": " : "", why,
             count);
    emit(r, c->doc, kinds[ev->kind].level, kinds[ev->kind].reason, text);
}
