/* The KaasTopic reconciler (design.md 2).
 *
 * The oldest object of a name owns the topic; others carry the condition Conflict. A topic's identity
 * is status.topicId, written before the control thread hears of it. A topic is deleted only for an
 * observed deletionTimestamp on its owner, with our finalizer and the topic's id (or by an admin
 * request); an object that is merely missing is made again. Where the cluster is absent or being
 * deleted the finalizer is dropped and no data is touched. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_hash.h"
#include "base/kc_json.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "reconcile/ko_cond.h"
#include "reconcile/ko_rec.h"

/* ---- names and their claimants ---- */

void ko_rec_topic_free(void *arg)
{
    struct ko_to *t = arg;
    json_decref(t->doc);
    kc_free(t);
}

void ko_rec_name_free(void *arg)
{
    struct ko_topic_name *n = arg;
    json_decref(n->lost);
    kc_free(n);
}

struct ko_topic_name *ko_rec_name(struct ko_rec *r, const char *cluster, const char *topic,
                                  bool make)
{
    char key[KO_KEY_MAX];
    int len = snprintf(key, sizeof(key), "%s/%s", cluster, topic);
    if (len <= 0 || (size_t)len >= sizeof(key)) {
        return NULL;
    }
    struct ko_topic_name *n = kc_map_get(&r->names, key, (size_t)len);
    if (!n && make) {
        n = kc_zalloc(sizeof(*n));
        memcpy(n->key, key, (size_t)len + 1);
        snprintf(n->cluster, sizeof(n->cluster), "%s", cluster);
        n->topic = n->key + strlen(cluster) + 1;
        kc_list_init(&n->claimants);
        kc_map_put(&r->names, key, (size_t)len, n);
    }
    return n;
}

/* Older first; objects of the same second by uid, so that every operator picks the same. */
static int by_age(const struct ko_to *a, const struct ko_to *b)
{
    int c = strcmp(kc_json_str(a->doc, "metadata.creationTimestamp", ""),
                   kc_json_str(b->doc, "metadata.creationTimestamp", ""));
    return c ? c : strcmp(ko_uid(a->doc), ko_uid(b->doc));
}

bool ko_rec_going(const struct ko_to *t)
{
    return t->doomed || ko_deleting(t->doc);
}

/* Lower is better. The object that holds the topic's id stays its owner until the topic is gone;
 * nobody takes a topic over by back-dating. Then those that stay, then age. */
static int claim_rank(const struct ko_topic_name *n, const struct ko_to *t)
{
    bool holds = *n->id && strcmp(kc_json_str(t->doc, "status.topicId", ""), n->id) == 0;
    return holds ? 0 : ko_rec_going(t) ? 2 : 1;
}

struct ko_to *ko_rec_owner(const struct ko_topic_name *n)
{
    struct ko_to *best = NULL;
    int best_rank = 0;
    KC_LIST_EACH(it, nx, &n->claimants)
    {
        struct ko_to *t = KC_LIST_ENTRY(it, struct ko_to, link);
        int rank = claim_rank(n, t);
        if (!best || rank < best_rank || (rank == best_rank && by_age(t, best) < 0)) {
            best = t;
            best_rank = rank;
        }
    }
    return best;
}

bool ko_rec_claimed(const struct ko_topic_name *n)
{
    KC_LIST_EACH(it, nx, &n->claimants)
    {
        if (!ko_rec_going(KC_LIST_ENTRY(it, struct ko_to, link))) {
            return true;
        }
    }
    return false;
}

void ko_rec_queue_claimants(struct ko_rec *r, const struct ko_topic_name *n)
{
    KC_LIST_EACH(it, nx, &n->claimants)
    {
        ko_rec_queue(r, 't', KC_LIST_ENTRY(it, struct ko_to, link)->key, 0);
    }
}

static void leave_name(struct ko_rec *r, struct ko_to *t, bool deleted)
{
    struct ko_topic_name *n = t->name;
    if (!n) {
        return;
    }
    bool owner = ko_rec_owner(n) == t;
    kc_list_del(&t->link);
    t->name = NULL;
    /* Gone without a deletion: it is made again. Only the active operator can know that there was
     * none; a standby forgets, and is told what the image has when it takes over (ko_rec_adopt). */
    struct kc_uuid id;
    if (owner && deleted && !r->leader) {
        if (kc_uuid_from_b64(kc_str_of(n->id), &id) == 0) {
            ko_control_topic_forget(r->control, n->cluster, &id);
        }
        n->id[0] = n->refused[0] = '\0';
        n->told = false;
    } else if (owner && deleted && *n->id && !n->deleting && !ko_rec_going(t)) {
        json_decref(n->lost);
        n->lost = json_deep_copy(json_object_get(t->doc, "spec"));
    }
    ko_rec_queue_claimants(r, n);
    ko_rec_queue(r, 'n', n->key, 0);
}

static void join_name(struct ko_rec *r, struct ko_to *t)
{
    char cluster[KO_KEY_MAX];
    const char *name = kc_json_str(t->doc, "spec.cluster", "");
    const char *topic = kc_json_str(t->doc, "spec.topicName", ko_name(t->doc));
    if (!*name || strchr(name, '/') || !ki_topic_name_valid(kc_str_of(topic))) {
        return;
    }
    int len = snprintf(cluster, sizeof(cluster), "%s/%s", ko_ns(t->doc), name);
    if (len <= 0 || (size_t)len >= sizeof(cluster)) {
        return;
    }
    t->name = ko_rec_name(r, cluster, topic, true);
    if (t->name) {
        kc_list_add_tail(&t->name->claimants, &t->link);
        json_decref(t->name->lost);
        t->name->lost = NULL;
    }
}

void ko_rec_topic_seen(struct ko_rec *r, enum ko_event ev, json_t *doc)
{
    char key[KO_KEY_MAX];
    int len = snprintf(key, sizeof(key), "%s/%s", ko_ns(doc), ko_name(doc));
    if (len <= 0 || (size_t)len >= sizeof(key)) {
        return;
    }
    struct ko_to *t = kc_map_get(&r->topics, key, (size_t)len);
    if (!t) {
        t = kc_zalloc(sizeof(*t));
        memcpy(t->key, key, (size_t)len + 1);
        kc_list_init(&t->link);
        kc_map_put(&r->topics, key, (size_t)len, t);
    } else if (strcmp(ko_uid(t->doc), ko_uid(doc)) != 0) {
        leave_name(r, t, true); /* deleted and made again between two looks */
        t->gone = t->doomed = false;
        json_decref(t->doc);
        t->doc = NULL;
    }
    struct ko_topic_name *before = t->name;
    json_t *old = t->doc;
    t->doc = json_incref(doc);
    if (ev == KO_DELETED) {
        leave_name(r, t, true);
        kc_map_del(&r->topics, key, (size_t)len);
        ko_rec_topic_free(t);
    } else {
        t->doomed |= ko_deleting(doc) && ko_has_finalizer(doc, KO_TOPIC_FINALIZER);
        bool moved =
            !old || !json_equal(json_object_get(old, "spec"), json_object_get(doc, "spec"));
        if (moved) {
            leave_name(r, t, false);
            join_name(r, t);
        }
        if (t->name && t->name != before) {
            ko_rec_queue_claimants(r, t->name);
        }
        ko_rec_queue(r, 't', key, 0);
    }
    json_decref(old);
    atomic_store(&r->m.topics, (uint32_t)r->topics.len);
}

void ko_rec_topics_of(struct ko_rec *r, const char *cluster)
{
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&r->names, &it));) {
        struct ko_topic_name *n = e->value;
        if (strcmp(n->cluster, cluster) == 0) {
            n->told = false;
            ko_rec_queue_claimants(r, n);
            ko_rec_queue(r, 'n', n->key, 0);
        }
    }
}

/* ---- writing ---- */

struct topic_op {
    struct ko_op op;
    char queue_key[KO_KEY_MAX];
};

static void on_written(void *ctx, const struct ko_result *res)
{
    struct topic_op *o = ctx;
    struct ko_rec *r = o->op.rec;
    /* 404: gone meanwhile, which the watch will say. A conflict is looked at again. */
    bool ok = (res->code >= 200 && res->code < 300) || res->code == 404;
    if (!ok && res->code != 409) {
        struct kc_log_buf lb;
        kc_log(KC_WARN, "reconcile", "event=topic_write_failed key=%s code=%d error=%s",
               o->queue_key + 2, res->code, kc_log_str(kc_str_of(res->message), &lb));
    }
    ko_rec_finished(r, o->queue_key, ok);
    ko_op_free(o);
}

static struct topic_op *op_of(struct ko_rec *r, const char *queue_key)
{
    struct topic_op *o = ko_op_new(r, sizeof(*o), NULL);
    snprintf(o->queue_key, sizeof(o->queue_key), "%s", queue_key);
    return o;
}

/* With or without our finalizer; resourceVersion keeps those of others. */
static void write_finalizer(struct ko_rec *r, const char *queue_key, const struct ko_to *t,
                            bool present)
{
    json_t *list = json_array();
    size_t i;
    json_t *v;
    json_array_foreach(kc_json_at(t->doc, "metadata.finalizers"), i, v)
    {
        if (strcmp(json_string_value(v) ? json_string_value(v) : "", KO_TOPIC_FINALIZER) != 0) {
            json_array_append(list, v);
        }
    }
    if (present) {
        json_array_append_new(list, json_string(KO_TOPIC_FINALIZER));
    }
    json_t *patch = json_pack("{s:{s:s, s:s, s:o}}", "metadata", "resourceVersion", ko_rv(t->doc),
                              "uid", ko_uid(t->doc), "finalizers", list);
    r->store->ops->merge(r->store, KO_KAASTOPIC, ko_ns(t->doc), ko_name(t->doc), patch, on_written,
                         op_of(r, queue_key));
    json_decref(patch);
}

/* What status should say beside the conditions. */
struct topic_status {
    const char *id; /* NULL: as it is */
    int32_t partitions; /* -1: as it is */
    bool ready, conflict;
    const char *reason, *message;
};

static json_t *status_of(const struct ko_to *t, const struct topic_status *s)
{
    const json_t *old = json_object_get(t->doc, "status");
    json_t *st = json_object(), *conds = json_array();
    const char *id = s->id ? s->id : kc_json_str(old, "topicId", "");
    int64_t partitions = s->partitions >= 0 ? s->partitions : kc_json_int(old, "partitions", -1);
    struct ko_cond_list l = {conds, json_object_get(old, "conditions"), ko_generation(t->doc)};
    if (*id) {
        json_object_set_new(st, "topicId", json_string(id));
    }
    if (partitions >= 0) {
        json_object_set_new(st, "partitions", json_integer(partitions));
    }
    if (t->name) {
        json_object_set_new(st, "topicName", json_string(t->name->topic));
    }
    json_object_set_new(st, "observedGeneration", json_integer(ko_generation(t->doc)));
    ko_cond_add(&l, "Ready", s->ready ? "True" : "False", s->reason, s->message);
    if (s->conflict) {
        ko_cond_add(&l, "Conflict", "True", s->reason, s->message);
    }
    json_object_set_new(st, "conditions", conds);
    return st;
}

/* Writes status if it says something else; else the run is finished. */
static void finish_with(struct ko_rec *r, const char *queue_key, const struct ko_to *t,
                        const struct topic_status *s)
{
    json_t *st = status_of(t, s);
    if (!r->leader || json_equal(st, json_object_get(t->doc, "status"))) {
        json_decref(st);
        ko_rec_finished(r, queue_key, true);
        return;
    }
    json_t *doc = ko_doc_new(KO_KAASTOPIC, ko_ns(t->doc), ko_name(t->doc));
    json_object_set_new(json_object_get(doc, "metadata"), "uid", json_string(ko_uid(t->doc)));
    json_object_set_new(doc, "status", st);
    r->store->ops->apply_status(r->store, KO_KAASTOPIC, doc, on_written, op_of(r, queue_key));
    json_decref(doc);
}

/* ---- the control thread ---- */

/* True: it is something else than what was told last. */
static bool tell(struct ko_rec *r, struct ko_topic_name *n, const struct ko_topic *t,
                 int32_t partitions)
{
    struct ki_topic k = {.name = n->topic,
                         .fresh = true,
                         .n_parts = partitions,
                         .replication_factor = t->replication_factor,
                         .n_configs = t->n_settings};
    uint64_t h = kc_hash64_mix(kc_hash64(n->id, strlen(n->id)), (uint64_t)partitions);
    if (kc_uuid_from_b64(kc_str_of(n->id), &k.id)) {
        return false; /* not an id of ours; the status is read-only for people, so this is damage */
    }
    struct ki_config *configs = kc_alloc(((size_t)t->n_settings + 1) * sizeof(*configs));
    for (int32_t i = 0; i < t->n_settings; i++) {
        configs[i] = (struct ki_config){t->settings[i].name, t->settings[i].value};
        h = kc_hash64_mix(h, kc_hash64(configs[i].name, strlen(configs[i].name)));
        h = kc_hash64_mix(h, kc_hash64(configs[i].value, strlen(configs[i].value)));
    }
    k.configs = configs;
    bool news = n->told_hash != h, again = !n->told;
    if (news || again) {
        n->told = true;
        n->told_hash = h;
        kc_log(KC_DEBUG, "reconcile", "event=topic_told topic=%s id=%s partitions=%d", n->key,
               n->id, partitions);
        ko_control_topic(r->control, n->cluster, &k);
    }
    kc_free(configs);
    return news;
}

/* ---- reconciling one object ---- */

static bool cluster_lives(const struct ko_rc *c)
{
    return c && c->doc && !ko_deleting(c->doc);
}

static void run_deletion(struct ko_rec *r, const char *queue_key, struct ko_to *t, struct ko_rc *c)
{
    struct ko_topic_name *n = t->name;
    const char *id = kc_json_str(t->doc, "status.topicId", "");
    struct kc_uuid uuid;
    if (!r->leader || !ko_has_finalizer(t->doc, KO_TOPIC_FINALIZER)) {
        ko_rec_finished(r, queue_key, true);
        return;
    }
    bool owns = n && ko_rec_owner(n) == t && *id && (!*n->id || strcmp(n->id, id) == 0) &&
                kc_uuid_from_b64(kc_str_of(id), &uuid) == 0;
    if (!cluster_lives(c) || !owns || t->gone) {
        write_finalizer(r, queue_key, t, false);
        return;
    }
    if (c->spec_told && !n->deleting) {
        snprintf(n->id, sizeof(n->id), "%s", id);
        n->deleting = true;
        ko_control_topic_delete(r->control, n->cluster, &uuid);
    }
    ko_rec_finished(r, queue_key, true); /* goes on when the control thread says it is gone */
}

static void run_owner(struct ko_rec *r, const char *queue_key, struct ko_to *t, struct ko_rc *c,
                      const struct ko_topic *spec)
{
    struct ko_topic_name *n = t->name;
    const char *kept = strcmp(spec->topic_id, n->dead) == 0 ? "" : spec->topic_id;
    if (!*n->id && *kept) {
        snprintf(n->id, sizeof(n->id), "%s", kept);
    } else if (!*n->id && r->leader) {
        struct kc_uuid u = kc_uuid_random();
        kc_uuid_to_b64(&u, n->id);
    }
    int32_t had = (int32_t)kc_json_int(t->doc, "status.partitions", 0);
    int32_t partitions = KC_MAX(spec->partitions, had);
    bool written = *kept && strcmp(kept, n->id) == 0; /* the id, before anybody hears of it */
    if (c->spec_told && written && !n->deleting && tell(r, n, spec, partitions)) {
        n->had = had;
    }
    if (!r->leader || !c->spec_told) {
        ko_rec_finished(r, queue_key, true);
        return;
    }
    if (!ko_has_finalizer(t->doc, KO_TOPIC_FINALIZER)) {
        write_finalizer(r, queue_key, t, true);
        return;
    }
    struct topic_status s = {.id = n->id,
                             .partitions = partitions,
                             .ready = true,
                             .reason = "Reconciled",
                             .message = "the cluster has been told"};
    char text[200];
    if (partitions > spec->partitions) {
        s.ready = false;
        s.reason = "PartitionsCannotDecrease";
        s.message = text;
        snprintf(text, sizeof(text), "the topic has %d partitions; raise spec.partitions from %d",
                 partitions, spec->partitions);
    }
    if (!written) {
        s.ready = false;
        s.partitions = -1;
        s.reason = "Pending";
        s.message = "the cluster is told next";
    } else if (*n->refused) {
        s.ready = false;
        s.partitions = n->had;
        s.reason = "LimitExceeded";
        s.message = n->refused;
    }
    finish_with(r, queue_key, t, &s);
}

static void run_object(struct ko_rec *r, const char *queue_key, struct ko_to *t, struct ko_rc *c)
{
    struct ko_field_errors errs;
    struct ko_topic *spec;
    char text[600];
    struct topic_status s = {.partitions = -1, .message = text};
    int rc = ko_topic_parse(t->doc, &spec, &errs);
    if (rc || !t->name) {
        s.reason = "InvalidSpec";
        s.message = rc ? ko_field_errors_join(&errs, text, sizeof(text)) : "the names are too long";
        finish_with(r, queue_key, t, &s);
        ko_topic_free(spec);
        return;
    }
    struct ko_to *owner = ko_rec_owner(t->name);
    if (!cluster_lives(c)) {
        s.reason = "ClusterNotFound";
        snprintf(text, sizeof(text), "there is no KaasCluster \"%.60s\" in this namespace",
                 spec->cluster);
        finish_with(r, queue_key, t, &s);
    } else if (owner != t) {
        s.conflict = true;
        s.reason = "NameTaken";
        snprintf(text, sizeof(text), "topic \"%.249s\" belongs to the older KaasTopic \"%.250s\"",
                 t->name->topic, ko_name(owner->doc));
        finish_with(r, queue_key, t, &s);
    } else if (ko_topic_check_config(spec, &errs)) {
        /* As AlterConfigs, all or nothing: what was told last stays in force. */
        s.reason = "InvalidConfig";
        ko_field_errors_join(&errs, text, sizeof(text));
        finish_with(r, queue_key, t, &s);
    } else {
        run_owner(r, queue_key, t, c, spec);
    }
    ko_topic_free(spec);
}

void ko_rec_topic_run(struct ko_rec *r, const char *queue_key)
{
    struct ko_to *t = ko_rec_find(&r->topics, queue_key + 2);
    if (!t) {
        ko_rec_finished(r, queue_key, true);
        return;
    }
    struct ko_rc *c = t->name ? ko_rec_cluster(r, t->name->cluster) : NULL;
    if (ko_deleting(t->doc)) {
        run_deletion(r, queue_key, t, c);
    } else if (t->doomed) {
        ko_rec_finished(r, queue_key, true); /* the watch will say so */
    } else {
        run_object(r, queue_key, t, c);
    }
}

/* ---- names without an object ---- */

static void on_made_again(struct ko_rec *r, uint64_t ticket, int32_t code, const char *why)
{
    (void)r;
    (void)ticket;
    if (code) {
        struct kc_log_buf lb;
        kc_log(KC_WARN, "reconcile", "event=topic_object_failed code=%d error=%s", code,
               kc_log_str(kc_str_of(why), &lb));
    }
}

static void make_again(struct ko_rec *r, struct ko_topic_name *n)
{
    struct ki_config configs[KO_CONFIGS_MAX];
    struct ko_make m = {.cluster = n->cluster,
                        .topic = n->topic,
                        .id = n->id,
                        .configs = configs,
                        .partitions = (int32_t)kc_json_int(n->lost, "partitions", 1),
                        .replication_factor =
                            (int32_t)kc_json_int(n->lost, "replicationFactor", 1)};
    const char *key;
    json_t *v;
    json_object_foreach(json_object_get(n->lost, "config"), key, v)
    {
        if (m.n_configs < KO_CONFIGS_MAX && json_is_string(v)) {
            configs[m.n_configs++] = (struct ki_config){key, json_string_value(v)};
        }
    }
    kc_log(KC_WARN, "reconcile", "event=topic_object_missing topic=%s action=recreate", n->key);
    ko_rec_make_topic(r, &m, 0, on_made_again);
}

void ko_rec_name_run(struct ko_rec *r, const char *queue_key)
{
    struct ko_topic_name *n = ko_rec_find(&r->names, queue_key + 2);
    if (n && kc_list_empty(&n->claimants) && !n->creating) {
        struct ko_rc *c = ko_rec_cluster(r, n->cluster);
        bool lives = cluster_lives(c);
        if (*n->id && n->lost && lives && c->spec_told && r->leader && !n->deleting) {
            make_again(r, n);
        } else if (!*n->id || !lives) {
            kc_map_del(&r->names, n->key, strlen(n->key));
            ko_rec_name_free(n);
        }
    }
    ko_rec_finished(r, queue_key, true);
}
