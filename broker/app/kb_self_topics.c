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

int kb_self_topic_grow(struct kb_self *s, struct kb_self_topic *t, int32_t n, bool fresh)
{
    int32_t kind = t->internal ? ki_slot_kind(kc_str_of(t->name)) : KP_NOT_SLOTS;
    int rc = kp_ctl_topic(s->ctl, &t->id, t->internal, kind, n, fresh);
    if (rc) {
        return rc;
    }
    struct kb_self_part **parts =
        kc_try_realloc(t->parts, (size_t)KC_MAX(n, t->n_parts) * sizeof(struct kb_self_part *));
    if (!parts) {
        return -ENOMEM;
    }
    t->parts = parts;
    for (; t->n_parts < n; t->n_parts++) { /* what is made stays: a later attempt goes on there */
        struct kb_self_part *p = kc_try_zalloc(1, sizeof(*p));
        if (!p) {
            return -ENOMEM;
        }
        *p = (struct kb_self_part){
            .self = s, .topic = t, .partition = t->n_parts, .may_create = fresh};
        t->parts[t->n_parts] = p;
    }
    s->touched |= 1U << kp_shard_of(&t->id);
    return 0;
}

static int make_topic(struct kb_self *s, const struct ks_topic_meta *meta, bool fresh,
                      struct kb_self_topic **ret)
{
    struct kb_self_topic *t = kc_try_zalloc(1, sizeof(*t));
    if (!t) {
        return -ENOMEM;
    }
    t->id = meta->id;
    memcpy(t->name, meta->name, sizeof(t->name));
    t->internal = meta->internal;
    t->replication_factor = 1;
    int rc = kb_self_configs_parse(meta->configs_json, &t->configs, &t->n_configs);
    rc = rc ? rc : kb_self_topic_grow(s, t, meta->partitions, fresh);
    if (rc) {
        kb_self_topic_free(t); /* the controller may know it: a later attempt finds that */
        return rc;
    }
    *ret = t;
    return 0;
}

int kb_self_topic_add(struct kb_self *s, const struct ks_topic_meta *meta, bool fresh,
                      struct kb_self_topic **ret)
{
    bool found;
    int32_t at = place_of(s, &meta->id, &found);
    if (found) {
        return -EEXIST;
    }
    if (s->n_topics == s->room) {
        int32_t room = s->room ? 2 * s->room : 16;
        struct kb_self_topic **topics =
            kc_try_realloc(s->topics, (size_t)room * sizeof(struct kb_self_topic *));
        if (!topics) {
            return -ENOMEM;
        }
        s->topics = topics;
        s->room = room;
    }
    int rc = make_topic(s, meta, fresh, ret);
    if (rc) {
        kc_log(KC_ERROR, "self", "event=topic_refused topic=%s error=\"%s\"", meta->name,
               kc_strerror(rc));
        return rc;
    }
    memmove(s->topics + at + 1, s->topics + at, (size_t)(s->n_topics - at) * sizeof(*s->topics));
    s->topics[at] = *ret;
    s->n_topics++;
    return 0;
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

static char *copy_text(const char *text)
{
    size_t room = strlen(text) + 1;
    char *copy = kc_try_alloc(room);
    return copy ? memcpy(copy, text, room) : NULL;
}

int kb_self_configs_parse(const char *json, struct ki_config **ret, int32_t *ret_n)
{
    json_t *doc = json_loads(json ? json : "{}", 0, NULL);
    size_t room = json_object_size(doc);
    struct ki_config *list = kc_try_zalloc(room + 1, sizeof(*list));
    bool ok = doc && list;
    int32_t n = 0;
    const char *key;
    json_t *v;
    json_object_foreach(doc, key, v)
    {
        if (ok && json_is_string(v)) {
            list[n] = (struct ki_config){copy_text(key), copy_text(json_string_value(v))};
            ok = list[n].name && list[n].value;
            n++;
        }
    }
    json_decref(doc);
    if (!ok) {
        kb_self_configs_free(list, n);
        return -ENOMEM; /* the volume gives no other text than an object */
    }
    qsort(list, (size_t)n, sizeof(*list), by_name);
    *ret = list;
    *ret_n = n;
    return 0;
}

char *kb_self_configs_print(const struct ki_config *configs, int32_t n)
{
    json_t *doc = json_object();
    bool ok = doc != NULL;
    for (int32_t i = 0; ok && i < n; i++) {
        ok = json_object_set_new(doc, configs[i].name, json_string(configs[i].value)) == 0;
    }
    char *text = ok ? kc_json_canonical(doc) : NULL;
    char *copy = text ? copy_text(text) : NULL;
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
