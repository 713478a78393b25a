/* ko_topics.c - sets of topics by id and name. */
#include <stdlib.h>
#include <string.h>

#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "control/ko_int.h"

static void configs_free(struct ki_config *configs, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        kc_free((void *)(uintptr_t)configs[i].name);
        kc_free((void *)(uintptr_t)configs[i].value);
    }
    kc_free(configs);
}

static void topic_free(void *p)
{
    struct ko_ct *t = p;
    configs_free(t->configs, t->n_configs);
    kc_free(t->name);
    kc_free(t);
}

void ko_cts_init(struct ko_ct_set *s)
{
    kc_map_init(&s->by_id);
    kc_map_init(&s->by_name);
}

void ko_cts_fini(struct ko_ct_set *s)
{
    kc_map_fini(&s->by_name, NULL);
    kc_map_fini(&s->by_id, topic_free);
    ko_cts_init(s);
}

struct ko_ct *ko_cts_id(const struct ko_ct_set *s, const struct kc_uuid *id)
{
    return kc_map_get(&s->by_id, id->b, sizeof(id->b));
}

struct ko_ct *ko_cts_name(const struct ko_ct_set *s, const char *name)
{
    return kc_map_get(&s->by_name, name, strlen(name));
}

static int by_config_name(const void *a, const void *b)
{
    return strcmp(((const struct ki_config *)a)->name, ((const struct ki_config *)b)->name);
}

bool ko_ct_set_configs(struct ko_ct *t, const struct ki_config *configs, int32_t n)
{
    struct ki_config *own = n ? kc_zalloc((size_t)n * sizeof(*own)) : NULL;
    for (int32_t i = 0; i < n; i++) {
        own[i] = (struct ki_config){kc_strdup(configs[i].name), kc_strdup(configs[i].value)};
    }
    if (n) {
        qsort(own, (size_t)n, sizeof(*own), by_config_name);
    }
    bool same = n == t->n_configs;
    for (int32_t i = 0; i < n && same; i++) {
        same = strcmp(own[i].name, t->configs[i].name) == 0 &&
               strcmp(own[i].value, t->configs[i].value) == 0;
    }
    configs_free(t->configs, t->n_configs);
    t->configs = own;
    t->n_configs = n;
    return !same;
}

struct ko_ct *ko_cts_add(struct ko_ct_set *s, const struct ki_topic *from)
{
    struct ko_ct *t = kc_zalloc(sizeof(*t));
    t->id = from->id;
    t->name = kc_strdup(from->name);
    t->internal = from->internal;
    t->deleted = from->deleted;
    t->fresh = from->fresh;
    t->replication_factor = from->replication_factor;
    t->n_parts = from->n_parts;
    ko_ct_set_configs(t, from->configs, from->n_configs);
    kc_map_put(&s->by_id, t->id.b, sizeof(t->id.b), t);
    if (!t->deleted) {
        kc_map_put(&s->by_name, t->name, strlen(t->name), t);
    }
    return t;
}

void ko_cts_bury(struct ko_ct_set *s, struct ko_ct *t)
{
    if (!t->deleted) {
        t->deleted = true;
        kc_map_del(&s->by_name, t->name, strlen(t->name));
    }
}

void ko_cts_remove(struct ko_ct_set *s, const struct kc_uuid *id)
{
    struct ko_ct *t = kc_map_del(&s->by_id, id->b, sizeof(id->b));
    if (t) {
        ko_cts_bury(s, t);
        topic_free(t);
    }
}

struct ki_topic ko_ct_view(const struct ko_ct *t)
{
    return (struct ki_topic){.id = t->id,
                             .name = t->name,
                             .internal = t->internal,
                             .fresh = t->fresh,
                             .deleted = t->deleted,
                             .n_configs = t->n_configs,
                             .configs = t->configs,
                             .n_parts = t->n_parts,
                             .replication_factor = t->replication_factor};
}

const char *ko_cts_collision(const struct ko_ct_set *s, const char *name)
{
    if (!strpbrk(name, "._")) {
        return NULL;
    }
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&s->by_name, &it));) {
        if (ki_topic_names_collide(kc_str_of(e->key), kc_str_of(name)) &&
            strcmp(e->key, name) != 0) {
            return e->key;
        }
    }
    return NULL;
}
