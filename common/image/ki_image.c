/* Memory, sharing and lookups of the image. Immutable once built; any thread. */
#include "image/ki_internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_hash.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"

static struct ki_shard_own *own(struct ki_shard *s)
{
    return KC_CONTAINER_OF(s, struct ki_shard_own, pub);
}

/* ---- copies ---- */

static char *copy_z(struct kc_arena *a, const char *z)
{
    return kc_arena_strndup(a, z, strlen(z));
}

bool ki_configs_copy(struct kc_arena *a, const struct ki_config *from, int32_t n,
                     const struct ki_config **ret)
{
    *ret = NULL;
    if (n == 0) {
        return true;
    }
    struct ki_config *to = kc_arena_zalloc(a, (size_t)n, sizeof(*to));
    for (int32_t i = 0; to && i < n; i++) {
        to[i].name = copy_z(a, from[i].name);
        to[i].value = copy_z(a, from[i].value);
        if (!to[i].name || !to[i].value) {
            return false;
        }
    }
    *ret = to;
    return to != NULL;
}

bool ki_topic_copy(struct kc_arena *a, const struct ki_topic *from, struct ki_topic *to)
{
    *to = *from;
    to->name = copy_z(a, from->name);
    if (!to->name || !ki_configs_copy(a, from->configs, from->n_configs, &to->configs)) {
        return false;
    }
    struct kp_part *parts = NULL;
    if (from->parts && from->n_parts > 0) {
        parts = kc_arena_zalloc(a, (size_t)from->n_parts, sizeof(*parts));
        if (!parts) {
            return false;
        }
        memcpy(parts, from->parts, (size_t)from->n_parts * sizeof(*parts));
    }
    to->parts = parts;
    return true;
}

/* ---- shards ---- */

/* False: a name is there twice, or no memory. */
static bool index_names(struct ki_shard_own *s)
{
    uint32_t size = 16;
    while (size < (uint32_t)s->pub.n_topics * 2) {
        size *= 2;
    }
    s->mask = size - 1;
    s->names = kc_arena_zalloc(&s->arena, size, sizeof(*s->names));
    if (!s->names) {
        return false;
    }
    for (int32_t i = 0; i < s->pub.n_topics; i++) {
        const struct ki_topic *t = &s->pub.topics[i];
        if (t->deleted) {
            continue;
        }
        uint32_t at = (uint32_t)kc_hash64(t->name, strlen(t->name)) & s->mask;
        for (; s->names[at]; at = (at + 1) & s->mask) {
            if (strcmp(s->pub.topics[s->names[at] - 1].name, t->name) == 0) {
                return false;
            }
        }
        s->names[at] = (uint32_t)i + 1;
    }
    return true;
}

struct ki_shard *ki_shard_make(const struct ki_shard *proto, const char *hash)
{
    struct ki_shard_own *s = kc_try_zalloc(1, sizeof(*s));
    if (!s) {
        return NULL;
    }
    kc_arena_init(&s->arena, 4096, 0);
    s->pub.index = proto->index;
    s->pub.term = proto->term;
    s->pub.generation = proto->generation;
    s->pub.n_topics = proto->n_topics;
    atomic_init(&s->pub.refs, 1);
    struct ki_topic *topics = kc_arena_zalloc(&s->arena, (size_t)proto->n_topics, sizeof(*topics));
    bool ok = topics != NULL;
    for (int32_t i = 0; ok && i < proto->n_topics; i++) {
        ok = ki_topic_copy(&s->arena, &proto->topics[i], &topics[i]);
    }
    s->pub.topics = topics;
    if (ok && hash) {
        memcpy(s->pub.hash, hash, sizeof(s->pub.hash));
    } else if (ok) {
        json_t *content = ki_content_encode(topics, proto->n_topics);
        ok = content && ki_content_hash(content, s->pub.hash);
        json_decref(content);
    }
    if (!ok || !index_names(s)) {
        ki_shard_unref(&s->pub);
        return NULL;
    }
    return &s->pub;
}

static int by_id(const void *a, const void *b)
{
    const struct ki_topic *x = a, *y = b;
    return memcmp(x->id.b, y->id.b, sizeof(x->id.b));
}

struct ki_shard *ki_shard_build(int32_t index, uint64_t term, uint64_t generation,
                                const struct ki_topic *topics, int32_t n_topics)
{
    struct ki_topic *sorted = kc_try_zalloc((size_t)n_topics + 1, sizeof(*sorted));
    if (!sorted) {
        return NULL;
    }
    if (n_topics) {
        memcpy(sorted, topics, (size_t)n_topics * sizeof(*sorted));
        qsort(sorted, (size_t)n_topics, sizeof(*sorted), by_id);
    }
    struct ki_shard proto = {.index = index,
                             .term = term,
                             .generation = generation,
                             .n_topics = n_topics,
                             .topics = sorted};
    struct ki_shard *s = ki_shard_make(&proto, NULL);
    kc_free(sorted);
    return s;
}

struct ki_shard *ki_shard_ref(struct ki_shard *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

void ki_shard_unref(struct ki_shard *s)
{
    if (s && atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) == 1) {
        kc_arena_fini(&own(s)->arena);
        kc_free(own(s));
    }
}

/* ---- images ---- */

struct ki_image *ki_image_make(const struct ki_image *proto)
{
    struct ki_image_own *im = kc_try_zalloc(1, sizeof(*im));
    if (!im) {
        return NULL;
    }
    kc_arena_init(&im->arena, 4096, 0);
    im->pub = (struct ki_image){.order = proto->order,
                                .n_rows = proto->n_rows,
                                .n_configs = proto->n_configs,
                                .n_leads = proto->n_leads};
    atomic_init(&im->pub.refs, 1);
    memcpy(im->pub.cluster_id, proto->cluster_id, sizeof(proto->cluster_id));
    memcpy(im->pub.group_homes, proto->group_homes, sizeof(proto->group_homes));
    memcpy(im->pub.txn_homes, proto->txn_homes, sizeof(proto->txn_homes));
    memcpy(im->pub.hashes, proto->hashes, sizeof(proto->hashes));
    struct kp_row *rows = kc_arena_zalloc(&im->arena, (size_t)proto->n_rows, sizeof(*rows));
    struct kp_lead *leads = kc_arena_zalloc(&im->arena, (size_t)proto->n_leads, sizeof(*leads));
    if (!rows || !leads ||
        !ki_configs_copy(&im->arena, proto->configs, proto->n_configs, &im->pub.configs)) {
        ki_image_unref(&im->pub);
        return NULL;
    }
    if (proto->n_rows) {
        memcpy(rows, proto->rows, (size_t)proto->n_rows * sizeof(*rows));
    }
    if (proto->n_leads) {
        memcpy(leads, proto->leads, (size_t)proto->n_leads * sizeof(*leads));
    }
    im->pub.rows = rows;
    im->pub.leads = leads;
    return &im->pub;
}

struct ki_image *ki_image_build(const struct ki_image *proto, struct ki_shard *shards[KP_SHARDS])
{
    struct ki_image *im = ki_image_make(proto);
    for (int32_t i = 0; i < KP_SHARDS; i++) {
        if (!im) {
            ki_shard_unref(shards[i]);
            continue;
        }
        im->shards[i] = shards[i];
        memcpy(im->hashes[i], shards[i]->hash, sizeof(im->hashes[i]));
        for (int32_t t = 0; t < shards[i]->n_topics; t++) {
            im->n_topics += !shards[i]->topics[t].deleted;
        }
    }
    return im;
}

struct ki_image *ki_image_ref(const struct ki_image *im)
{
    struct ki_image *m = (struct ki_image *)(uintptr_t)im; /* only the count changes */
    atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
    return m;
}

void ki_image_unref(struct ki_image *im)
{
    if (!im || atomic_fetch_sub_explicit(&im->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    struct ki_image_own *o = KC_CONTAINER_OF(im, struct ki_image_own, pub);
    for (int32_t i = 0; i < KP_SHARDS; i++) {
        ki_shard_unref(im->shards[i]);
    }
    kc_arena_fini(&o->arena);
    kc_free(o);
}

/* ---- lookups ---- */

const struct ki_topic *ki_topic_by_id(const struct ki_image *im, const struct kc_uuid *id)
{
    const struct ki_shard *s = im->shards[kp_shard_of(id)];
    if (!s) {
        return NULL;
    }
    struct ki_topic key = {.id = *id};
    return bsearch(&key, s->topics, (size_t)s->n_topics, sizeof(key), by_id);
}

const struct ki_topic *ki_topic_by_name(const struct ki_image *im, struct kc_str name)
{
    if (!name.ptr || name.len <= 0 || name.len > KP_NAME_MAX) {
        return NULL;
    }
    uint32_t h = (uint32_t)kc_hash64(name.ptr, (size_t)name.len);
    for (int32_t i = 0; i < KP_SHARDS; i++) { /* a name does not say its shard; a probe is cheap */
        struct ki_shard *s = im->shards[i];
        if (!s) {
            continue;
        }
        const struct ki_shard_own *o = own(s);
        for (uint32_t at = h & o->mask; o->names[at]; at = (at + 1) & o->mask) {
            const struct ki_topic *t = &s->topics[o->names[at] - 1];
            if (kc_str_eqz(name, t->name)) {
                return t;
            }
        }
    }
    return NULL;
}

const struct ki_topic *ki_slot_topic(const struct ki_image *im, int32_t kind)
{
    const struct ki_topic *t = ki_topic_by_name(im, kc_str_of(ki_slot_topic_name(kind)));
    return t && t->internal ? t : NULL;
}

const struct kp_row *ki_row(const struct ki_image *im, int32_t broker)
{
    int32_t lo = 0, hi = im->n_rows;
    while (lo < hi) {
        int32_t mid = (lo + hi) / 2;
        if (im->rows[mid].id < broker) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < im->n_rows && im->rows[lo].id == broker ? &im->rows[lo] : NULL;
}

const struct kp_part *ki_part(const struct ki_image *im, const struct kc_uuid *topic_id,
                              int32_t partition)
{
    const struct ki_topic *t = ki_topic_by_id(im, topic_id);
    return t && partition >= 0 && partition < t->n_parts ? &t->parts[partition] : NULL;
}

int ki_pid_cmp(const struct kp_pid *a, const struct kp_pid *b)
{
    int c = memcmp(a->topic_id.b, b->topic_id.b, sizeof(a->topic_id.b));
    return c ? c : (a->partition > b->partition) - (a->partition < b->partition);
}

static int by_pid(const void *a, const void *b)
{
    return ki_pid_cmp(&((const struct kp_lead *)a)->p, &((const struct kp_lead *)b)->p);
}

struct kp_lead ki_leader(const struct ki_image *im, const struct ki_topic *t, int32_t partition)
{
    const struct kp_part *p = &t->parts[partition];
    struct kp_lead ret = {{t->id, partition}, p->led, p->led_incarnation, p->led_epoch};
    const struct kp_lead *news =
        im->n_leads ? bsearch(&ret, im->leads, (size_t)im->n_leads, sizeof(ret), by_pid) : NULL;
    return news && news->epoch > ret.epoch ? *news : ret;
}

static const char *config(const struct ki_config *configs, int32_t n, const char *name)
{
    int32_t lo = 0, hi = n;
    while (lo < hi) {
        int32_t mid = (lo + hi) / 2;
        int c = strcmp(configs[mid].name, name);
        if (c == 0) {
            return configs[mid].value;
        }
        if (c < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return NULL;
}

const char *ki_topic_config(const struct ki_topic *t, const char *name)
{
    return config(t->configs, t->n_configs, name);
}

const char *ki_config(const struct ki_image *im, const char *name)
{
    return config(im->configs, im->n_configs, name);
}
