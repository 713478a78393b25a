/* KaasTopic objects for topics that clients made or that the volume has; admin requests. */
#include <stdio.h>
#include <string.h>

#include "base/kc_json.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "reconcile/ko_rec.h"

enum { ATTEMPTS = 3 };

/* What an answer of the API server means to the client. */
static int32_t kafka_code(const struct ko_result *res)
{
    switch (res->code) {
    case 200:
    case 201:
    case 202:
        return KO_KAFKA_NONE;
    case 404:
        return KO_KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
    case 403:
    case 422:
    case 400:
        return KO_KAFKA_POLICY_VIOLATION;
    default:
        return res->code == 0 || res->code == 409 || res->code == 429 || res->code >= 500
                   ? KO_KAFKA_REQUEST_TIMED_OUT
                   : KO_KAFKA_UNKNOWN_SERVER_ERROR;
    }
}

/* ---- making an object ---- */

struct make_op {
    struct ko_op op;
    char cluster[KO_KEY_MAX], name_key[KO_KEY_MAX];
    char id[KC_UUID_B64_LEN + 1];
    json_t *doc;
    int attempt;
    uint64_t ticket;
    void (*done)(struct ko_rec *r, uint64_t ticket, int32_t code, const char *why);
};

static void make_fini(struct ko_op *op)
{
    json_decref(((struct make_op *)op)->doc);
}

static void make_finish(struct make_op *m, int32_t code, const char *why)
{
    struct ko_rec *r = m->op.rec;
    struct ko_topic_name *n = ko_rec_find(&r->names, m->name_key);
    if (n) {
        n->creating = false;
        if (code && !ko_rec_claimed(n) && m->ticket) {
            n->id[0] = '\0'; /* the topic was never published */
        }
        ko_rec_queue(r, 'n', n->key, code && !m->ticket ? KO_BACKOFF_MAX_MS : 0);
    }
    m->done(r, m->ticket, code, why);
    ko_op_free(m);
}

static void on_made(void *ctx, const struct ko_result *res);

static void make_try(struct make_op *m)
{
    char salt[64], name[254];
    const char *topic = kc_json_str(m->doc, "spec.topicName", "");
    salt[0] = '\0';
    if (m->attempt > 0) {
        snprintf(salt, sizeof(salt), "%s%d", m->id, m->attempt);
    }
    ko_topic_object_name(topic, salt, name);
    kc_json_set(m->doc, "metadata.name", json_string(name));
    struct ko_store *s = m->op.rec->store;
    s->ops->create(s, KO_KAASTOPIC, m->doc, on_made, m);
}

static void on_status(void *ctx, const struct ko_result *res)
{
    struct make_op *m = ctx;
    int32_t code = kafka_code(res);
    /* Without the status the object would be given another id; the caller tries again. */
    make_finish(m, code, code ? res->message : "");
}

static void on_made(void *ctx, const struct ko_result *res)
{
    struct make_op *m = ctx;
    struct ko_rec *r = m->op.rec;
    struct ko_topic_name *n = ko_rec_find(&r->names, m->name_key);
    bool claimed = n && ko_rec_claimed(n);
    if (res->code == 409 && !claimed && ++m->attempt < ATTEMPTS) {
        make_try(m); /* the object name is taken, by another topic or one being deleted */
        return;
    }
    if (res->code != 201) {
        make_finish(m,
                    res->code == 409 && claimed ? KO_KAFKA_TOPIC_ALREADY_EXISTS : kafka_code(res),
                    res->message);
        return;
    }
    json_t *doc = ko_doc_new(KO_KAASTOPIC, ko_ns(res->doc), ko_name(res->doc));
    kc_json_set(doc, "metadata.uid", json_string(ko_uid(res->doc)));
    kc_json_set(doc, "status.topicId", json_string(m->id));
    kc_json_set(doc, "status.partitions", json_incref(kc_json_at(m->doc, "spec.partitions")));
    r->store->ops->apply_status(r->store, KO_KAASTOPIC, doc, on_status, m);
    json_decref(doc);
}

static json_t *topic_doc(const struct ko_make *m, const char *ns, const char *cluster)
{
    json_t *doc = ko_doc_new(KO_KAASTOPIC, ns, "");
    json_t *config = json_object(), *meta = json_object_get(doc, "metadata");
    json_object_set_new(meta, "labels", json_pack("{s:s}", "kaas.dev/cluster", cluster));
    json_object_set_new(meta, "finalizers", json_pack("[s]", KO_TOPIC_FINALIZER));
    for (int32_t i = 0; i < m->n_configs; i++) {
        json_object_set_new(config, m->configs[i].name, json_string(m->configs[i].value));
    }
    json_t *spec = json_pack("{s:s, s:s, s:i}", "cluster", cluster, "topicName", m->topic,
                             "partitions", (int)m->partitions);
    if (m->replication_factor > 0) {
        json_object_set_new(spec, "replicationFactor", json_integer(m->replication_factor));
    }
    if (json_object_size(config) > 0) {
        json_object_set(spec, "config", config);
    }
    json_decref(config);
    json_object_set_new(doc, "spec", spec);
    return doc;
}

void ko_rec_make_topic(struct ko_rec *r, const struct ko_make *mk, uint64_t ticket,
                       void (*done)(struct ko_rec *r, uint64_t ticket, int32_t code,
                                    const char *why))
{
    struct ko_topic_name *n = ko_rec_name(r, mk->cluster, mk->topic, true);
    const char *slash = strchr(mk->cluster, '/');
    if (!n || !slash) {
        done(r, ticket, KO_KAFKA_UNKNOWN_SERVER_ERROR, "name too long");
        return;
    }
    struct make_op *m = ko_op_new(r, sizeof(*m), make_fini);
    char ns[254];
    snprintf(ns, sizeof(ns), "%.*s", (int)(slash - mk->cluster), mk->cluster);
    snprintf(m->cluster, sizeof(m->cluster), "%s", mk->cluster);
    snprintf(m->name_key, sizeof(m->name_key), "%s", n->key);
    snprintf(m->id, sizeof(m->id), "%s", mk->id);
    memcpy(n->id, m->id, sizeof(n->id)); /* mk->id may be n's own */
    m->doc = topic_doc(mk, ns, slash + 1);
    m->ticket = ticket;
    m->done = done;
    n->creating = true;
    n->deleting = n->told = false; /* of the id before */
    n->refused[0] = '\0';
    make_try(m);
}

/* ---- admin requests ---- */

static void answer(struct ko_rec *r, uint64_t ticket, int32_t code, const char *why)
{
    ko_control_admin_done(r->control, ticket, code, why);
}

struct admin_op {
    struct ko_op op;
    uint64_t ticket;
    bool deletion;
    char name_key[KO_KEY_MAX], object_key[KO_KEY_MAX];
};

static void on_changed(void *ctx, const struct ko_result *res)
{
    struct admin_op *o = ctx;
    struct ko_rec *r = o->op.rec;
    int32_t code = kafka_code(res);
    struct ko_topic_name *n = ko_rec_find(&r->names, o->name_key);
    struct ko_to *t = ko_rec_find(&r->topics, o->object_key);
    if (o->deletion && code && n && t) {
        n->deleting = t->doomed = false;
    }
    answer(r, o->ticket, code, code ? res->message : "");
    ko_op_free(o);
}

static struct admin_op *admin_op(struct ko_rec *r, const struct ko_admin *a,
                                 const struct ko_topic_name *n)
{
    struct admin_op *o = ko_op_new(r, sizeof(*o), NULL);
    o->ticket = a->ticket;
    snprintf(o->name_key, sizeof(o->name_key), "%s", n->key);
    return o;
}

static void create(struct ko_rec *r, const struct ko_admin *a)
{
    char id[KC_UUID_B64_LEN + 1];
    struct ko_topic_name *n = ko_rec_name(r, a->cluster, a->topic, false);
    if (n && (n->creating || ko_rec_claimed(n))) {
        answer(r, a->ticket, KO_KAFKA_TOPIC_ALREADY_EXISTS, "a KaasTopic of this name exists");
        return;
    }
    kc_uuid_to_b64(&a->topic_id, id);
    struct ko_make m = {a->cluster,   a->topic,  id, a->partitions, a->replication_factor,
                        a->n_configs, a->configs};
    ko_rec_make_topic(r, &m, a->ticket, answer);
}

/* The patch that turns the object's config into the given set. */
static json_t *config_patch(const json_t *doc, const struct ko_admin *a)
{
    json_t *config = json_object();
    const char *key;
    json_t *v;
    json_object_foreach(kc_json_at(doc, "spec.config"), key, v)
    {
        json_object_set_new(config, key, json_null());
    }
    for (int32_t i = 0; i < a->n_configs; i++) {
        json_object_set_new(config, a->configs[i].name, json_string(a->configs[i].value));
    }
    return json_pack("{s:{s:o}}", "spec", "config", config);
}

static void change(struct ko_rec *r, const struct ko_admin *a, struct ko_topic_name *n,
                   const struct ko_to *owner)
{
    json_t *patch = a->kind == KO_CREATE_PARTITIONS
                        ? json_pack("{s:{s:i}}", "spec", "partitions", (int)a->partitions)
                        : config_patch(owner->doc, a);
    r->store->ops->merge(r->store, KO_KAASTOPIC, ko_ns(owner->doc), ko_name(owner->doc), patch,
                         on_changed, admin_op(r, a, n));
    json_decref(patch);
}

static void delete (struct ko_rec *r, const struct ko_admin *a, struct ko_topic_name *n,
                    struct ko_to *owner)
{
    struct admin_op *o = admin_op(r, a, n);
    o->deletion = true;
    snprintf(o->object_key, sizeof(o->object_key), "%s", owner->key);
    /* From here on an older version of the object, still on its way, must not bring it back. */
    n->deleting = owner->doomed = true;
    r->store->ops->remove(r->store, KO_KAASTOPIC, ko_ns(owner->doc), ko_name(owner->doc),
                          ko_uid(owner->doc), on_changed, o);
}

void ko_rec_admin(struct ko_rec *r, const struct ko_admin *a)
{
    struct ko_topic_name *n = ko_rec_name(r, a->cluster, a->topic, false);
    struct ko_to *owner = n ? ko_rec_owner(n) : NULL;
    struct ko_rc *c = ko_rec_cluster(r, a->cluster);
    struct kc_log_buf topic, principal;
    kc_log(KC_INFO, "reconcile", "event=admin kind=%d cluster=%s topic=%s principal=%s",
           (int)a->kind, a->cluster, kc_log_str(kc_str_of(a->topic), &topic),
           kc_log_str(kc_str_of(a->principal), &principal));
    if (a->internal) {
        answer(r, a->ticket, KO_KAFKA_NONE, "");
    } else if (!c || !c->doc || ko_deleting(c->doc)) {
        answer(r, a->ticket, KO_KAFKA_REQUEST_TIMED_OUT, "the KaasCluster is being deleted");
    } else if (a->kind == KO_CREATE_TOPIC) {
        create(r, a);
    } else if (!owner) {
        /* Deleted on both sides at once, or an object that is being made again. */
        answer(r, a->ticket,
               a->kind == KO_DELETE_TOPIC ? KO_KAFKA_NONE : KO_KAFKA_REQUEST_TIMED_OUT,
               "the KaasTopic is not there (yet)");
    } else if (a->kind == KO_DELETE_TOPIC) {
        delete (r, a, n, owner);
    } else {
        change(r, a, n, owner);
    }
}
