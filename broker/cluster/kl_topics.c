/* What the volume says of topics: topics/<id>/meta, tombstones, the inventory. Control loop; the
 * volume is touched on a pool.
 *
 * The leader of partition 0 writes meta, when it takes over and when the topic changes: what a
 * crash left undone, the next leader does. A tombstone's directory is removed by the broker that led
 * partition 0, once it has closed it, or, if nobody did, by the lowest broker alive. */
#include "cluster/kl_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_hash.h"
#include "base/kc_json.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "hb/hb_convert.h"

enum {
    RETRY_MS = 2000,
    REMOVE_OWN_MS = 1000, /* the other partitions' leaders close theirs meanwhile */
    REMOVE_OTHER_MS = 5000, /* nobody has: the lowest broker alive does */
    JOBS_MAX = 16
};

struct entry {
    struct kc_uuid id;
    uint64_t want, written; /* hashes of meta; 0 = none */
    bool busy, tombstone, led_here, removed;
    int64_t tomb_ms, retry_ms;
};

struct kl_topics {
    struct kl_cluster *k;
    struct kc_map entries; /* by topic id */
    int32_t n_todo; /* entries with something to do; a hint to look */
    int32_t n_jobs;
    int32_t n_removed;
};

/* ---- jobs ---- */

struct topic_job {
    struct kl_job job;
    struct kc_uuid id;
    bool remove;
    uint64_t hash;
    struct ks_topic_meta meta; /* configs_json: owned by the job */
};

static int run_topic(struct kl_job *job)
{
    struct topic_job *j = KC_CONTAINER_OF(job, struct topic_job, job);
    return j->remove ? ks_topic_remove(job->engine, &j->id, &job->err)
                     : ks_topic_write(job->engine, &j->meta, &job->err);
}

static void log_job(const struct topic_job *j)
{
    char id[KC_UUID_B64_LEN + 1];
    kc_uuid_to_b64(&j->id, id);
    struct kc_log_buf lb;
    if (j->job.rc) {
        kc_log(KC_WARN, "cluster", "event=%s topic_id=%s error=%s",
               j->remove ? "topic_remove_failed" : "topic_write_failed", id,
               kc_log_str(kc_str_of(kl_job_why(&j->job)), &lb));
    } else if (j->remove) {
        kc_log(KC_INFO, "cluster", "event=topic_removed topic_id=%s", id);
    }
}

static void on_topic(struct kl_job *job)
{
    struct topic_job *j = KC_CONTAINER_OF(job, struct topic_job, job);
    struct kl_cluster *k = job->k;
    free(j->meta.configs_json);
    log_job(j);
    struct entry *e = k->closed ? NULL : kc_map_get(&k->topics->entries, &j->id, sizeof(j->id));
    if (e) {
        k->topics->n_jobs--;
        e->busy = false;
        if (job->rc) {
            e->retry_ms = kc_mono_ms() + RETRY_MS;
        } else if (j->remove) {
            e->removed = true;
            k->topics->n_removed++;
            kl_hb_changed(k->hb);
        } else {
            e->written = j->hash;
        }
        k->topics->n_todo++;
    }
    kc_free(j);
}

static char *configs_json(const struct ki_topic *t)
{
    json_t *o = json_object();
    for (int32_t i = 0; o && i < t->n_configs; i++) {
        json_object_set_new(o, t->configs[i].name, json_string(t->configs[i].value));
    }
    char *s = o ? kc_json_canonical(o) : NULL;
    json_decref(o);
    return s;
}

static void post(struct kl_topics *ts, struct entry *e, const struct ki_topic *t)
{
    struct topic_job *j = kc_zalloc(sizeof(*j));
    *j = (struct topic_job){.job = {.run = run_topic, .done = on_topic},
                            .id = e->id,
                            .remove = e->tombstone,
                            .hash = e->want};
    if (!e->tombstone) {
        j->meta.id = t->id;
        snprintf(j->meta.name, sizeof(j->meta.name), "%s", t->name);
        j->meta.partitions = t->n_parts;
        j->meta.internal = t->internal;
        j->meta.configs_json = configs_json(t);
        if (!j->meta.configs_json) {
            kc_free(j);
            e->retry_ms = kc_mono_ms() + RETRY_MS;
            return;
        }
    }
    e->busy = true;
    ts->n_jobs++;
    kl_job_post(&j->job, ts->k);
}

/* ---- the image ---- */

static uint64_t meta_hash(const struct ki_topic *t)
{
    uint64_t h = kc_hash64(t->name, strlen(t->name));
    h = kc_hash64_mix(h, (uint64_t)t->n_parts << 1 | (uint64_t)t->internal);
    for (int32_t i = 0; i < t->n_configs; i++) {
        h = kc_hash64_mix(h, kc_hash64(t->configs[i].name, strlen(t->configs[i].name)));
        h = kc_hash64_mix(h, kc_hash64(t->configs[i].value, strlen(t->configs[i].value)));
    }
    return h ? h : 1;
}

static struct entry *entry_of(struct kl_topics *ts, const struct kc_uuid *id)
{
    struct entry *e = kc_map_get(&ts->entries, id, sizeof(*id));
    if (!e) {
        e = kc_zalloc(sizeof(*e));
        e->id = *id;
        kc_map_put(&ts->entries, id, sizeof(*id), e);
    }
    return e;
}

static void see_topic(struct kl_topics *ts, const struct ki_topic *t, int64_t now_ms)
{
    struct kl_cluster *k = ts->k;
    if (t->deleted) {
        struct entry *e = entry_of(ts, &t->id);
        const struct kl_item *it = kl_plan_find(k->plan, &t->id, 0);
        e->led_here |= it && (it->state == KL_OPEN || it->state == KL_RELEASING);
        if (!e->tombstone) {
            e->tombstone = true;
            e->tomb_ms = now_ms;
        }
        ts->n_todo++;
    } else if (t->n_parts > 0 && t->parts[0].assigned == k->o.broker_id) {
        struct entry *e = entry_of(ts, &t->id);
        e->want = meta_hash(t);
        ts->n_todo += e->want != e->written;
    } else {
        struct entry *e = kc_map_get(&ts->entries, &t->id, sizeof(t->id));
        if (e) {
            e->want = e->written = 0; /* another broker writes it now */
        }
    }
}

/* Topics that left the image are forgotten; a tombstone that is done is one of them. */
static void forget_gone(struct kl_topics *ts, const struct ki_image *im)
{
    struct kc_map_iter iter = {0};
    for (struct kc_map_entry *m; (m = kc_map_next(&ts->entries, &iter));) {
        struct entry *e = m->value;
        if (!e->busy && !ki_topic_by_id(im, &e->id)) {
            ts->n_removed -= e->removed;
            kc_map_del(&ts->entries, &e->id, sizeof(e->id));
            kc_free(e);
        }
    }
}

void kl_topics_image(struct kl_topics *ts, const struct ki_image *old, const struct ki_image *im)
{
    int64_t now = kc_mono_ms();
    for (int32_t s = 0; s < KP_SHARDS; s++) {
        if (old && old->shards[s] == im->shards[s]) {
            continue;
        }
        for (int32_t i = 0; i < im->shards[s]->n_topics; i++) {
            see_topic(ts, &im->shards[s]->topics[i], now);
        }
    }
    forget_gone(ts, im);
}

static bool lowest_alive(const struct kl_cluster *k)
{
    const struct ki_image *im = k->view.merged;
    for (int32_t i = 0; im && i < im->n_rows; i++) {
        if (im->rows[i].health == KP_ALIVE) {
            return im->rows[i].id == k->o.broker_id;
        }
    }
    return false;
}

/* 1: post it now; 0: later; -1: nothing to do. */
static int due(const struct kl_topics *ts, const struct entry *e, int64_t now_ms)
{
    const struct kl_cluster *k = ts->k;
    if (e->tombstone) {
        if (e->removed) {
            return -1;
        }
        const struct kl_item *it = kl_plan_find(k->plan, &e->id, 0);
        bool closed = !it || it->state == KL_IDLE;
        int64_t age = now_ms - e->tomb_ms;
        bool ours = e->led_here ? age >= REMOVE_OWN_MS : age >= REMOVE_OTHER_MS && lowest_alive(k);
        return !e->busy && closed && ours && now_ms >= e->retry_ms;
    }
    if (e->want == 0 || e->want == e->written) {
        return -1;
    }
    return !e->busy && now_ms >= e->retry_ms;
}

void kl_topics_step(struct kl_topics *ts, int64_t now_ms)
{
    struct kl_cluster *k = ts->k;
    if (ts->n_todo == 0 || !k->plan->entitled) {
        return; /* only an incarnation that may claim writes about topics */
    }
    int32_t todo = 0;
    struct kc_map_iter iter = {0};
    for (struct kc_map_entry *m; (m = kc_map_next(&ts->entries, &iter));) {
        struct entry *e = m->value;
        int when = due(ts, e, now_ms);
        todo += when >= 0;
        const struct ki_topic *t = when == 1 ? ki_topic_by_id(k->plan->image, &e->id) : NULL;
        if (t && ts->n_jobs < JOBS_MAX) {
            post(ts, e, t);
        }
    }
    ts->n_todo = todo;
}

int32_t kl_topics_removed(const struct kl_topics *ts, struct kc_uuid *ret, int32_t cap)
{
    int32_t n = 0;
    struct kc_map_iter iter = {0};
    for (struct kc_map_entry *m;
         ts->n_removed && n < cap && (m = kc_map_next(&ts->entries, &iter));) {
        const struct entry *e = m->value;
        if (e->removed) {
            ret[n++] = e->id;
        }
    }
    return n;
}

/* ---- inventory ---- */

struct inventory_job {
    struct kl_job job;
    uint64_t stream;
    struct ks_inventory *inv;
};

static int run_inventory(struct kl_job *job)
{
    struct inventory_job *j = KC_CONTAINER_OF(job, struct inventory_job, job);
    return ks_inventory_read(job->engine, &j->inv, &job->err);
}

static bool fill_configs(struct kc_arena *a, const char *json, Kaas__Heartbeat__InventoryTopic *t)
{
    json_t *o = json ? json_loads(json, 0, NULL) : NULL;
    size_t n = json_object_size(o);
    t->configs = kc_arena_zalloc(a, n, sizeof(*t->configs));
    const char *name;
    json_t *value;
    bool ok = t->configs != NULL;
    json_object_foreach(o, name, value)
    {
        Kaas__Heartbeat__ConfigEntry *c = ok ? kc_arena_alloc(a, sizeof(*c)) : NULL;
        const char *v = json_string_value(value);
        ok = c != NULL;
        if (ok && v) {
            kaas__heartbeat__config_entry__init(c);
            c->name = kc_arena_strndup(a, name, strlen(name));
            c->value = kc_arena_strndup(a, v, strlen(v));
            ok = c->name && c->value;
            t->configs[t->n_configs++] = c;
        }
    }
    json_decref(o);
    return ok;
}

static bool fill_inventory(struct kc_arena *a, const struct ks_inventory *inv,
                           Kaas__Heartbeat__Inventory *m)
{
    m->revision = inv->revision;
    m->topics = kc_arena_zalloc(a, (size_t)inv->n, sizeof(*m->topics));
    m->deleted = kc_arena_zalloc(a, (size_t)inv->n_deleted, sizeof(*m->deleted));
    if (!m->topics || !m->deleted) {
        return false;
    }
    for (int32_t i = 0; i < inv->n; i++) {
        const struct ks_topic_meta *meta = &inv->topics[i];
        Kaas__Heartbeat__InventoryTopic *t = kc_arena_alloc(a, sizeof(*t));
        if (!t) {
            return false;
        }
        kaas__heartbeat__inventory_topic__init(t);
        t->topic_id = hb_uuid_data(&meta->id);
        t->name = (char *)(uintptr_t)meta->name;
        t->partitions = meta->partitions;
        t->internal = meta->internal;
        if (!fill_configs(a, meta->configs_json, t)) {
            return false;
        }
        m->topics[m->n_topics++] = t;
    }
    for (int32_t i = 0; i < inv->n_deleted; i++) {
        m->deleted[m->n_deleted++] = hb_uuid_data(&inv->deleted[i]);
    }
    return true;
}

static void send_inventory(struct kl_cluster *k, uint64_t stream, const struct ks_inventory *inv)
{
    struct kc_arena a;
    kc_arena_init(&a, 64 * 1024, HB_ARENA_CAP);
    Kaas__Heartbeat__Inventory inventory = KAAS__HEARTBEAT__INVENTORY__INIT;
    Kaas__Heartbeat__BrokerMessage m = KAAS__HEARTBEAT__BROKER_MESSAGE__INIT;
    inventory.cluster_id = (char *)(uintptr_t)k->o.volume_cluster_id;
    m.kind_case = KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_INVENTORY;
    m.inventory = &inventory;
    int rc = fill_inventory(&a, inv, &inventory) ? kl_hb_send(k->hb, stream, &m) : KC_E_TOO_LARGE;
    kc_log(rc ? KC_WARN : KC_INFO, "cluster", "event=inventory topics=%d deleted=%d rc=%d", inv->n,
           inv->n_deleted, rc);
    kc_arena_fini(&a);
}

static void on_inventory(struct kl_job *job)
{
    struct inventory_job *j = KC_CONTAINER_OF(job, struct inventory_job, job);
    struct kl_cluster *k = job->k;
    if (job->rc) {
        struct kc_log_buf lb;
        kc_log(KC_ERROR, "cluster", "event=inventory_failed error=%s",
               kc_log_str(kc_str_of(kl_job_why(job)), &lb));
    } else if (!k->closed) {
        k->inventory_revision = j->inv->revision;
        send_inventory(k, j->stream, j->inv);
    }
    if (job->rc == 0) {
        ks_inventory_free(j->inv);
    }
    kc_free(j);
}

void kl_topics_inventory(struct kl_topics *ts, uint64_t stream)
{
    struct inventory_job *j = kc_zalloc(sizeof(*j));
    *j = (struct inventory_job){.job = {.run = run_inventory, .done = on_inventory},
                                .stream = stream};
    kl_job_post(&j->job, ts->k);
}

/* ---- life ---- */

struct kl_topics *kl_topics_new(struct kl_cluster *k)
{
    struct kl_topics *ts = kc_zalloc(sizeof(*ts));
    ts->k = k;
    kc_map_init(&ts->entries);
    return ts;
}

void kl_topics_free(struct kl_topics *ts)
{
    if (ts) {
        kc_map_fini(&ts->entries, kc_free);
        kc_free(ts);
    }
}
