/* kb_self_topics.c - the topics of the self-led broker, as the volume names them. Control loop. */
#include "app/kb_self_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_json.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"

static int32_t place_of(const struct kb_self *s, const struct kc_uuid *id, bool *ret_found)
{
    int32_t lo = 0, hi = s->n_topics;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        int c = memcmp(s->topics[mid]->id.b, id->b, sizeof(id->b));
        if (c == 0) {
            *ret_found = true;
            return mid;
        }
        if (c < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    *ret_found = false;
    return lo;
}

struct kb_self_topic *kb_self_topic_find(struct kb_self *s, const struct kc_uuid *id)
{
    bool found;
    int32_t at = place_of(s, id, &found);
    return found ? s->topics[at] : NULL;
}

struct kb_self_topic *kb_self_topic_named(struct kb_self *s, const char *name)
{
    for (int32_t i = 0; i < s->n_topics; i++) {
        if (!s->topics[i]->deleted && strcmp(s->topics[i]->name, name) == 0) {
            return s->topics[i];
        }
    }
    return NULL;
}

static int32_t slot_kind(const char *name)
{
    return strcmp(name, "__consumer_offsets") == 0    ? KP_GROUP_SLOTS
           : strcmp(name, "__transaction_state") == 0 ? KP_TXN_SLOTS
                                                      : KP_NOT_SLOTS;
}

int kb_self_topic_grow(struct kb_self *s, struct kb_self_topic *t, int32_t n, bool fresh)
{
    int32_t kind = t->internal ? slot_kind(t->name) : KP_NOT_SLOTS;
    int rc = kp_ctl_topic(s->ctl, &t->id, t->internal, kind, n, fresh);
    if (rc) {
        return rc;
    }
    t->parts = kc_realloc(t->parts, (size_t)KC_MAX(n, 1) * sizeof(*t->parts));
    for (int32_t i = t->n_parts; i < n; i++) {
        t->parts[i] = kc_zalloc(sizeof(*t->parts[i]));
        *t->parts[i] =
            (struct kb_self_part){.self = s, .topic = t, .partition = i, .may_create = fresh};
    }
    t->n_parts = KC_MAX(t->n_parts, n);
    s->touched |= 1U << kp_shard_of(&t->id);
    return 0;
}

struct kb_self_topic *kb_self_topic_add(struct kb_self *s, const struct ks_topic_meta *meta,
                                        bool fresh)
{
    bool found;
    int32_t at = place_of(s, &meta->id, &found);
    if (found) {
        return NULL;
    }
    struct kb_self_topic *t = kc_zalloc(sizeof(*t));
    t->id = meta->id;
    memcpy(t->name, meta->name, sizeof(t->name));
    t->internal = meta->internal;
    t->replication_factor = 1;
    t->n_configs = kb_self_configs_parse(meta->configs_json, &t->configs);
    int rc = kb_self_topic_grow(s, t, meta->partitions, fresh);
    if (rc) {
        kc_log(KC_ERROR, "self", "event=topic_refused topic=%s error=\"%s\"", t->name,
               kc_strerror(rc));
        kb_self_topic_free(t);
        return NULL;
    }
    if (s->n_topics == s->room) {
        s->room = s->room ? 2 * s->room : 16;
        s->topics = kc_realloc(s->topics, (size_t)s->room * sizeof(*s->topics));
    }
    memmove(s->topics + at + 1, s->topics + at, (size_t)(s->n_topics - at) * sizeof(*s->topics));
    s->topics[at] = t;
    s->n_topics++;
    return t;
}

void kb_self_topic_drop(struct kb_self *s, struct kb_self_topic *t)
{
    bool found;
    int32_t at = place_of(s, &t->id, &found);
    KC_ASSERT(found);
    memmove(s->topics + at, s->topics + at + 1,
            (size_t)(s->n_topics - at - 1) * sizeof(*s->topics));
    s->n_topics--;
    s->touched |= 1U << kp_shard_of(&t->id);
    kb_self_topic_free(t);
}

void kb_self_topic_free(struct kb_self_topic *t)
{
    for (int32_t i = 0; i < t->n_parts; i++) {
        kc_free(t->parts[i]);
    }
    kc_free(t->parts);
    kb_self_configs_free(t->configs, t->n_configs);
    kc_free(t);
}

/* ---- configs ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ki_config *)a)->name, ((const struct ki_config *)b)->name);
}

int32_t kb_self_configs_parse(const char *json, struct ki_config **ret)
{
    json_t *doc = json ? json_loads(json, 0, NULL) : NULL;
    size_t room = json_object_size(doc);
    struct ki_config *list = kc_zalloc((room + 1) * sizeof(*list));
    int32_t n = 0;
    const char *key;
    json_t *v;
    json_object_foreach(doc, key, v)
    {
        if (json_is_string(v)) {
            list[n++] = (struct ki_config){kc_strdup(key), kc_strdup(json_string_value(v))};
        }
    }
    qsort(list, (size_t)n, sizeof(*list), by_name);
    json_decref(doc);
    *ret = list;
    return n;
}

char *kb_self_configs_print(const struct ki_config *configs, int32_t n)
{
    json_t *doc = json_object();
    for (int32_t i = 0; i < n; i++) {
        json_object_set_new(doc, configs[i].name, json_string(configs[i].value));
    }
    char *text = kc_json_canonical(doc);
    char *copy = kc_strdup(text ? text : "{}");
    free(text);
    json_decref(doc);
    return copy;
}

void kb_self_configs_free(struct ki_config *configs, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        kc_free((char *)(uintptr_t)configs[i].name);
        kc_free((char *)(uintptr_t)configs[i].value);
    }
    kc_free(configs);
}
