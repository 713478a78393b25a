/* KaasBroker objects: one a registry row, as Nodes are in Kubernetes; gone with the row. */
#include <stdio.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_json.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "reconcile/ko_cond.h"
#include "reconcile/ko_rec.h"

struct ko_rb {
    char cluster[KO_KEY_MAX];
    int32_t id;
    bool exists, in_flight;
    json_t *status; /* last written, or as first seen */
};

void ko_rec_broker_free(void *arg)
{
    struct ko_rb *b = arg;
    json_decref(b->status);
    kc_free(b);
}

static struct ko_rb *broker(struct ko_rec *r, const char *key)
{
    struct ko_rb *b = ko_rec_find(&r->brokers, key);
    if (!b) {
        b = kc_zalloc(sizeof(*b));
        kc_map_put(&r->brokers, key, strlen(key), b);
    }
    return b;
}

void ko_rec_broker_seen(struct ko_rec *r, enum ko_event ev, json_t *doc)
{
    char key[KO_KEY_MAX];
    int n = snprintf(key, sizeof(key), "%s/%s", ko_ns(doc), ko_name(doc));
    if (n <= 0 || (size_t)n >= sizeof(key)) {
        return;
    }
    ko_rec_owned_seen(r, KO_KAASBROKER, ev, doc);
    struct ko_rb *b = broker(r, key);
    bool fresh = !b->exists;
    b->exists = ev != KO_DELETED;
    b->id = (int32_t)kc_json_int(doc, "spec.id", -1);
    snprintf(b->cluster, sizeof(b->cluster), "%s/%s", ko_ns(doc),
             kc_json_str(doc, "spec.cluster", ""));
    struct ko_rc *c = ko_rec_cluster(r, b->cluster);
    if (fresh && c) {
        ko_rec_status_dirty(r, c); /* its row can be written now */
    }
    if (!b->exists) {
        json_decref(b->status);
        b->status = NULL;
    } else if (!b->status) {
        b->status = json_deep_copy(json_object_get(doc, "status"));
    }
}

struct broker_op {
    struct ko_op op;
    char key[KO_KEY_MAX];
    json_t *status;
};

static void broker_fini(struct ko_op *op)
{
    json_decref(((struct broker_op *)op)->status);
}

static void on_written(void *ctx, const struct ko_result *res)
{
    struct broker_op *o = ctx;
    struct ko_rb *b = ko_rec_find(&o->op.rec->brokers, o->key);
    if (b) {
        b->in_flight = false;
        if (res->code == 200) {
            json_decref(b->status);
            b->status = json_incref(o->status);
        } else if (res->code != 404 && res->code != 409) {
            struct kc_log_buf lb;
            kc_log(KC_WARN, "reconcile", "event=status_failed broker=%s code=%d error=%s", o->key,
                   res->code, kc_log_str(kc_str_of(res->message), &lb));
        }
    }
    ko_op_free(o);
}

static void on_owned(struct ko_rec *r, const char *cluster, bool ok)
{
    (void)r;
    (void)cluster;
    (void)ok; /* logged where it failed; the next tick tries again */
}

/* A row of the registry plus what kubectl get kaasbrokers shows beside it. */
static json_t *status_of(struct ko_rec *r, const struct ko_view *v, int32_t i, const char *key,
                         const json_t *old, int64_t wall)
{
    const struct kp_row *row = &v->rows[i];
    json_t *st = ko_row_json(row, old, wall), *conds = json_array();
    struct ko_cond_list l = {conds, json_object_get(old, "conditions"), 1};
    const struct ko_pod *p = ko_rec_find(&r->pods, key); /* named as the KaasBroker */
    bool serving = row->state == KP_SERVING;
    const char *why = kp_reason_name(row->reason);
    bool told = row->reason == KP_REASON_WEDGED || row->reason == KP_REASON_STALLED;
    if (told && v->troubles && v->troubles[i][0]) {
        why = v->troubles[i]; /* which loop, or which thread and in what */
    }
    json_object_del(st, "id");
    json_object_set_new(st, "podUID", json_string(row->pod_uid));
    json_object_set_new(st, "rack", json_string(row->rack));
    json_object_set_new(st, "node", json_string(p ? p->node : ""));
    bool silent = serving && row->silent;
    ko_cond_add(&l, "Ready",
                silent    ? "Unknown"
                : serving ? "True"
                          : "False",
                silent ? "Silent" : kp_state_name(row->state),
                silent ? "a report is overdue" : why);
    bool dead = row->health == KP_DEAD, stalled = row->reason == KP_REASON_STALLED;
    bool writable = row->volume == KP_VOLUME_WRITABLE;
    ko_cond_add(&l, "StorageReady",
                stalled    ? "False"
                : dead     ? "Unknown"
                : writable ? "True"
                           : "False",
                stalled ? "StorageStalled"
                : dead  ? "BrokerDead"
                        : ko_volume_reason(row->volume),
                stalled            ? why
                : dead || writable ? ""
                                   : "records are refused, reads are served");
    json_object_set_new(st, "conditions", conds);
    return st;
}

static void write_row(struct ko_rec *r, struct ko_rc *c, int32_t i, int64_t wall)
{
    const struct kp_row *row = &c->view->rows[i];
    char key[KO_KEY_MAX];
    json_t *doc = ko_build_broker(c->spec, row->id);
    snprintf(key, sizeof(key), "%s/%s", ko_ns(doc), ko_name(doc));
    struct ko_rb *b = broker(r, key);
    if (!b->exists) {
        ko_rec_own(r, c, KO_KAASBROKER, doc, on_owned);
        return; /* the status follows when the watch has seen it */
    }
    json_decref(doc);
    json_t *status = status_of(r, c->view, i, key, b->status, wall);
    if (b->in_flight || json_equal(status, b->status)) {
        json_decref(status);
        return;
    }
    struct broker_op *o = ko_op_new(r, sizeof(*o), broker_fini);
    snprintf(o->key, sizeof(o->key), "%s", key);
    o->status = status;
    b->in_flight = true;
    doc = ko_doc_new(KO_KAASBROKER, c->spec->ns, strchr(key, '/') + 1);
    json_object_set(doc, "status", status);
    r->store->ops->apply_status(r->store, KO_KAASBROKER, doc, on_written, o);
    json_decref(doc);
}

static bool has_row(const struct ko_view *v, int32_t id)
{
    for (int32_t i = 0; i < v->n_rows; i++) {
        if (v->rows[i].id == id) {
            return true;
        }
    }
    return false;
}

void ko_rec_brokers_run(struct ko_rec *r, struct ko_rc *c)
{
    int64_t wall = kc_wall_ms();
    const struct ko_view *v = c->view;
    struct kc_map_iter it = {0};
    if (!v || !v->active) {
        return;
    }
    for (int32_t i = 0; i < v->n_rows; i++) {
        write_row(r, c, i, wall);
    }
    /* An address stays for as long as anybody may have been told of it: until its row is gone. */
    for (int32_t id = c->spec->replicas; id < KP_BROKERS_MAX; id++) {
        if (!has_row(v, id)) {
            char name[128];
            ko_build_broker_service_name(c->spec, id, name, sizeof(name));
            ko_rec_disown(r, c, KO_SERVICE, name);
        }
    }
    for (struct kc_map_entry *e; (e = kc_map_next(&r->brokers, &it));) {
        struct ko_rb *b = e->value;
        if (b->exists && strcmp(b->cluster, c->key) == 0 && !has_row(v, b->id)) {
            b->exists = false; /* asked for once; the watch confirms */
            r->store->ops->remove(r->store, KO_KAASBROKER, c->spec->ns, strchr(e->key, '/') + 1,
                                  NULL, NULL, NULL);
        }
    }
}
