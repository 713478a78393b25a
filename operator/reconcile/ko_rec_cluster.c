/* The KaasCluster reconciler: a table of steps, each applying one document (design.md 7, R57). */
#include <stdio.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_hash.h"
#include "base/kc_json.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "reconcile/ko_cond.h"
#include "reconcile/ko_rec.h"

/* Everything a pod needs exists before the StatefulSet. A step that builds nothing is skipped. */
struct step {
    enum ko_kind kind;
    json_t *(*build)(struct ko_rec *r, struct ko_rc *c);
    json_t *(*build_for)(const struct ko_cluster *spec, int32_t id); /* else: one a wanted broker */
};

static json_t *account(struct ko_rec *r, struct ko_rc *c)
{
    (void)r;
    return ko_build_service_account(c->spec);
}
static json_t *role(struct ko_rec *r, struct ko_rc *c)
{
    (void)r;
    return ko_build_role(c->spec);
}
static json_t *binding(struct ko_rec *r, struct ko_rc *c)
{
    (void)r;
    return ko_build_role_binding(c->spec);
}
static json_t *headless(struct ko_rec *r, struct ko_rc *c)
{
    (void)r;
    return ko_build_headless_service(c->spec);
}
static json_t *bootstrap(struct ko_rec *r, struct ko_rc *c)
{
    (void)r;
    return ko_build_bootstrap_service(c->spec);
}
static json_t *config(struct ko_rec *r, struct ko_rc *c)
{
    return ko_build_config(c->spec, &r->o.build);
}
static json_t *claim(struct ko_rec *r, struct ko_rc *c)
{
    (void)r;
    return ko_build_claim(c->spec);
}
static json_t *pdb(struct ko_rec *r, struct ko_rc *c)
{
    (void)r;
    return ko_build_pdb(c->spec);
}
static const struct step steps[] = {
    {KO_SERVICEACCOUNT, account, NULL},
    {KO_ROLE, role, NULL},
    {KO_ROLEBINDING, binding, NULL},
    {KO_SERVICE, headless, NULL},
    {KO_SERVICE, bootstrap, NULL},
    {KO_SERVICE, NULL, ko_build_broker_service},
    {KO_CONFIGMAP, config, NULL},
    {KO_PVC, claim, NULL},
    {KO_PDB, pdb, NULL},
    {KO_STATEFULSET, ko_rec_statefulset, NULL},
};

void ko_rec_cluster_free(void *arg)
{
    struct ko_rc *c = arg;
    json_decref(c->doc);
    json_decref(c->sts);
    json_decref(c->status);
    ko_cluster_free(c->spec);
    ko_view_unref(c->view);
    kc_free(c);
}

static struct ko_rc *cluster_of(struct ko_rec *r, const char *ns, const char *name, bool make)
{
    char key[KO_KEY_MAX];
    int n = snprintf(key, sizeof(key), "%s/%s", ns, name);
    if (n <= 0 || (size_t)n >= sizeof(key)) {
        return NULL;
    }
    struct ko_rc *c = kc_map_get(&r->clusters, key, (size_t)n);
    if (!c && make) {
        c = kc_zalloc(sizeof(*c));
        c->step = -1;
        memcpy(c->key, key, (size_t)n + 1);
        kc_map_put(&r->clusters, key, (size_t)n, c);
        atomic_store(&r->m.clusters, (uint32_t)r->clusters.len);
    }
    return c;
}

void ko_rec_status_adopt(struct ko_rc *c)
{
    json_decref(c->status);
    c->status = json_deep_copy(json_object_get(c->doc, "status"));
    const json_t *cond = ko_cond_find(json_object_get(c->status, "conditions"), "Progressing");
    c->rolling = strcmp(kc_json_str(cond, "status", ""), "True") == 0;
}

void ko_rec_cluster_seen(struct ko_rec *r, enum ko_event ev, json_t *doc)
{
    struct ko_rc *c = cluster_of(r, ko_ns(doc), ko_name(doc), true);
    bool had = c->doc != NULL;
    bool spec_changed = !had || ko_generation(c->doc) != ko_generation(doc) ||
                        strcmp(ko_uid(c->doc), ko_uid(doc)) != 0 ||
                        ko_deleting(c->doc) != ko_deleting(doc);
    json_decref(c->doc);
    c->doc = ev == KO_DELETED ? NULL : json_incref(doc);
    if (c->doc && !c->status) {
        ko_rec_status_adopt(c);
    }
    if (ev == KO_DELETED) {
        ko_gauges_drop(&r->m.gauges, c->key);
    }
    if (ev == KO_DELETED || spec_changed) {
        ko_rec_queue(r, 'c', c->key, 0);
    }
    if (had != (c->doc != NULL)) {
        ko_rec_topics_of(r, c->key);
    }
}

void ko_rec_sts_seen(struct ko_rec *r, enum ko_event ev, json_t *doc)
{
    struct ko_rc *c = cluster_of(r, ko_ns(doc), ko_label(doc, "kaas.dev/cluster"), false);
    if (!c) {
        return;
    }
    bool new_uid = !c->sts || strcmp(ko_uid(c->sts), ko_uid(doc)) != 0;
    json_decref(c->sts);
    c->sts = ev == KO_DELETED ? NULL : json_incref(doc);
    if (new_uid && c->sts) {
        ko_rec_slices_of(r, c);
    }
    ko_rec_status_dirty(r, c);
}

static void tell_control(struct ko_rec *r, struct ko_rc *c)
{
    const struct ko_cluster *s = c->spec;
    if (c->spec_told && c->told_generation == s->generation) {
        return;
    }
    struct ki_config *configs = kc_alloc(((size_t)s->n_settings + 1) * sizeof(*configs));
    for (int32_t i = 0; i < s->n_settings; i++) {
        configs[i] = (struct ki_config){s->settings[i].name, s->settings[i].value};
    }
    struct ko_cluster_spec spec = {
        .cluster = c->key,
        .uid = s->uid,
        .desired = s->replicas,
        .interval_ms = s->interval_ms,
        .timeout_ms = s->timeout_ms,
        .max_topics = s->max_topics,
        .max_partitions = s->max_partitions,
        .n_configs = s->n_settings,
        .configs = configs,
    };
    ko_control_cluster(r->control, &spec);
    kc_free(configs);
    bool first = !c->spec_told;
    c->spec_told = true;
    c->told_generation = s->generation;
    if (first) {
        ko_rec_slices_of(r, c);
        ko_rec_topics_of(r, c->key);
    }
}

static void finish(struct ko_rec *r, struct ko_rc *c, bool ok)
{
    char key[KO_KEY_MAX + 2];
    uint64_t h =
        kc_hash64_mix((uint64_t)c->spec->generation, kc_hash64(c->error, strlen(c->error)));
    h = kc_hash64_mix(h, kc_hash64(c->roll_text, strlen(c->roll_text)));
    snprintf(key, sizeof(key), "c:%s", c->key);
    c->step = -1;
    if (c->outcome != h) {
        c->outcome = h;
        ko_rec_status_dirty(r, c);
    }
    ko_rec_finished(r, key, ok);
}

/* The next document of the run under way, of the kind in *ret_kind; NULL: that was the last. */
static json_t *next_doc(struct ko_rec *r, struct ko_rc *c, enum ko_kind *ret_kind)
{
    while (c->step < (int)KC_ARRAY_LEN(steps) && c->doc && r->leader) {
        const struct step *s = &steps[c->step];
        int32_t id = c->step_id++;
        if (id >= (s->build ? 1 : c->spec->replicas)) {
            c->step++;
            c->step_id = 0;
            continue;
        }
        json_t *doc = s->build ? s->build(r, c) : s->build_for(c->spec, id);
        if (doc) {
            *ret_kind = s->kind;
            return doc;
        }
    }
    return NULL;
}

static void next_step(struct ko_rec *r, const char *cluster, bool ok)
{
    enum ko_kind kind;
    struct ko_rc *c = ko_rec_cluster(r, cluster);
    KC_ASSERT(c && c->step >= 0); /* a run is under way until it is finished; clusters stay */
    if (!ok) {
        finish(r, c, false);
        return;
    }
    json_t *doc = next_doc(r, c, &kind);
    if (doc) {
        ko_rec_own(r, c, kind, doc, next_step);
        return;
    }
    c->error[0] = '\0';
    c->acted_generation = c->doc && r->leader ? c->spec->generation : c->acted_generation;
    finish(r, c, true);
}

/* The object is gone or going: nothing is made any more, dependents go by their owner references,
 * the volume stays unless its claim is owned (deleteClaim), topics drop their finalizers. */
static void removed(struct ko_rec *r, struct ko_rc *c)
{
    if (c->spec_told) {
        kc_log(KC_INFO, "reconcile", "event=cluster_removed cluster=%s", c->key);
        ko_control_cluster_removed(r->control, c->key);
        c->spec_told = c->told_synced = false;
        ko_rec_topics_of(r, c->key);
    }
    ko_view_unref(c->view);
    c->view = NULL;
    json_decref(c->status);
    c->status = NULL;
    c->rolling = false;
    c->acted_generation = 0;
    c->template_hash[0] = '\0';
    c->halt.on = false;
    c->rollout = (struct ko_rollout_told){.measured = 0};
    if (!c->doc) {
        ko_cluster_free(c->spec);
        c->spec = NULL;
    }
}

void ko_rec_cluster_run(struct ko_rec *r, const char *queue_key)
{
    struct ko_rc *c = ko_rec_cluster(r, queue_key + 2);
    struct ko_field_errors errs;
    struct ko_cluster *spec;
    if (!c) {
        ko_rec_finished(r, queue_key, true);
        return;
    }
    if (!c->doc || ko_deleting(c->doc)) {
        removed(r, c);
        ko_rec_finished(r, queue_key, true);
        return;
    }
    if (ko_cluster_parse(c->doc, &spec, &errs)) {
        /* The last valid spec goes on; a retry would find the same. */
        ko_field_errors_join(&errs, c->invalid, sizeof(c->invalid));
        c->acted_generation = ko_generation(c->doc); /* that it is refused is the answer to it */
        uint64_t h = kc_hash64(c->invalid, strlen(c->invalid));
        if (c->outcome != h) {
            c->outcome = h;
            ko_rec_status_dirty(r, c);
        }
        ko_rec_finished(r, queue_key, true);
        return;
    }
    if (c->spec && strcmp(c->spec->uid, spec->uid) != 0) {
        removed(r, c); /* deleted and made again between two looks */
    }
    c->invalid[0] = '\0';
    ko_cluster_free(c->spec);
    c->spec = spec;
    tell_control(r, c);
    c->step = c->step_id = 0;
    next_step(r, c->key, true);
}

/* The controller may decide once everything that exists has been told: the queue is idle then. */
void ko_rec_tell_synced(struct ko_rec *r)
{
    struct kc_map_iter it = {0};
    if (ko_queue_next_ms(r->queue) <= kc_mono_ms()) {
        return;
    }
    for (struct kc_map_entry *e; (e = kc_map_next(&r->clusters, &it));) {
        struct ko_rc *c = e->value;
        if (c->spec_told && !c->told_synced) {
            c->told_synced = true;
            ko_control_synced(r->control, c->key);
        }
    }
}
