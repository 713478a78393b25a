/* Owned objects: applied when what is wanted changed, or when the watch says that somebody changed
 * them. A thousand reconciles without a change write nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_hash.h"
#include "base/kc_json.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "reconcile/ko_rec.h"

/* Of what people write; not of versions, nor of status, which changes without anybody's wish. */
static uint64_t content_hash(const json_t *doc)
{
    static const char *const volatile_meta[] = {"resourceVersion", "generation", "managedFields",
                                                "creationTimestamp"};
    json_t *copy = json_copy((json_t *)(uintptr_t)doc);
    json_t *meta = json_copy(json_object_get(doc, "metadata"));
    for (size_t i = 0; i < KC_ARRAY_LEN(volatile_meta); i++) {
        json_object_del(meta, volatile_meta[i]);
    }
    json_object_set_new(copy, "metadata", meta);
    json_object_del(copy, "status");
    char *text = kc_json_canonical(copy);
    json_decref(copy);
    KC_ASSERT(text);
    uint64_t h = kc_hash64(text, strlen(text));
    free(text);
    return h ? h : 1;
}

static struct ko_owned *owned(struct ko_rec *r, enum ko_kind k, const char *ns, const char *name,
                              bool make)
{
    char key[KO_KEY_MAX];
    int n = snprintf(key, sizeof(key), "%s/%s/%s", ko_kind_info(k)->plural, ns, name);
    KC_ASSERT(n > 0 && (size_t)n < sizeof(key));
    struct ko_owned *o = kc_map_get(&r->owned, key, (size_t)n);
    if (!o && make) {
        o = kc_zalloc(sizeof(*o));
        kc_map_put(&r->owned, key, (size_t)n, o);
    }
    return o;
}

void ko_rec_owned_seen(struct ko_rec *r, enum ko_kind k, enum ko_event ev, json_t *doc)
{
    char cluster[KO_KEY_MAX];
    struct ko_owned *o = owned(r, k, ko_ns(doc), ko_name(doc), true);
    uint64_t before = o->observed;
    o->observed = ev == KO_DELETED ? 0 : content_hash(doc);
    snprintf(o->uid, sizeof(o->uid), "%s", ev == KO_DELETED ? "" : ko_uid(doc));
    bool drifted = o->desired && !o->in_flight && o->observed != o->applied;
    if (before != o->observed && drifted) {
        snprintf(cluster, sizeof(cluster), "%s/%s", ko_ns(doc), ko_label(doc, "kaas.dev/cluster"));
        ko_rec_queue(r, 'c', cluster, 0);
    }
}

struct apply_op {
    struct ko_op op;
    enum ko_kind kind;
    uint64_t desired;
    char cluster[KO_KEY_MAX], ns[254], name[254];
    void (*done)(struct ko_rec *r, const char *cluster, bool ok);
};

static void on_applied(void *ctx, const struct ko_result *res)
{
    struct apply_op *a = ctx;
    struct ko_rec *r = a->op.rec;
    struct ko_owned *o = owned(r, a->kind, a->ns, a->name, true);
    struct ko_rc *c = ko_rec_cluster(r, a->cluster);
    bool ok = res->code == 200 || res->code == 201;
    o->in_flight = false;
    if (ok) {
        o->desired = a->desired;
        o->applied = o->observed = content_hash(res->doc);
        snprintf(o->uid, sizeof(o->uid), "%s", ko_uid(res->doc));
    } else {
        struct kc_log_buf lb;
        o->desired = 0;
        kc_log(KC_WARN, "reconcile", "event=apply_failed kind=%s name=%s/%s code=%d error=%s",
               ko_kind_info(a->kind)->kind, a->ns, a->name, res->code,
               kc_log_str(kc_str_of(res->message), &lb));
        if (c) {
            snprintf(c->error, sizeof(c->error), "%s %.100s: %.150s", ko_kind_info(a->kind)->kind,
                     a->name, *res->message ? res->message : "no answer from the API server");
        }
    }
    a->done(r, a->cluster, ok);
    ko_op_free(a);
}

struct remove_op {
    struct ko_op op;
    enum ko_kind kind;
    char cluster[KO_KEY_MAX], ns[254], name[254];
};

static void on_removed(void *ctx, const struct ko_result *res)
{
    struct remove_op *m = ctx;
    struct ko_owned *o = owned(m->op.rec, m->kind, m->ns, m->name, true);
    o->in_flight = false;
    if (res->code == 200 || res->code == 202 || res->code == 404) {
        o->observed = 0;
        ko_rec_queue(m->op.rec, 'c', m->cluster, 0); /* it may be wanted again meanwhile */
    } else {
        struct kc_log_buf lb;
        kc_log(KC_WARN, "reconcile", "event=remove_failed kind=%s name=%s/%s code=%d error=%s",
               ko_kind_info(m->kind)->kind, m->ns, m->name, res->code,
               kc_log_str(kc_str_of(res->message), &lb));
    }
    ko_op_free(m);
}

void ko_rec_disown(struct ko_rec *r, const struct ko_rc *c, enum ko_kind k, const char *name)
{
    const char *ns = c->spec->ns;
    struct ko_owned *o = owned(r, k, ns, name, false);
    if (!o || !o->observed || o->in_flight) {
        return;
    }
    struct remove_op *m = ko_op_new(r, sizeof(*m), NULL);
    m->kind = k;
    snprintf(m->cluster, sizeof(m->cluster), "%s", c->key);
    snprintf(m->ns, sizeof(m->ns), "%s", ns);
    snprintf(m->name, sizeof(m->name), "%s", name);
    o->in_flight = true;
    r->store->ops->remove(r->store, k, ns, name, o->uid, on_removed, m);
}

void ko_rec_own(struct ko_rec *r, struct ko_rc *c, enum ko_kind k, json_t *doc,
                void (*done)(struct ko_rec *r, const char *cluster, bool ok))
{
    struct ko_owned *o = owned(r, k, ko_ns(doc), ko_name(doc), true);
    uint64_t desired = content_hash(doc);
    if (o->desired == desired && o->observed == o->applied) {
        json_decref(doc);
        done(r, c->key, true);
        return;
    }
    struct apply_op *a = ko_op_new(r, sizeof(*a), NULL);
    a->kind = k;
    a->desired = desired;
    a->done = done;
    snprintf(a->cluster, sizeof(a->cluster), "%s", c->key);
    snprintf(a->ns, sizeof(a->ns), "%s", ko_ns(doc));
    snprintf(a->name, sizeof(a->name), "%s", ko_name(doc));
    o->in_flight = true;
    atomic_fetch_add(&r->m.applies, 1);
    r->store->ops->apply(r->store, k, doc, NULL, on_applied, a);
    json_decref(doc);
}
