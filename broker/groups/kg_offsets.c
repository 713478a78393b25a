#include "groups/kg_offsets.h"

#include <string.h>

#include "base/kc_mem.h"
#include "groups/kg_group.h"

void kg_offsets_init(struct kg_offsets *o)
{
    *o = (struct kg_offsets){0};
    kc_map_init(&o->topics);
}

static void topic_free(void *p)
{
    struct kg_topic *t = p;
    for (int32_t i = 0; i < t->n; i++) {
        kg_str_clear(&t->parts[i].v.metadata);
    }
    kg_str_clear(&t->name);
    kc_free(t->parts);
    kc_free(t);
}

void kg_offsets_fini(struct kg_offsets *o)
{
    kc_map_fini(&o->topics, topic_free);
    o->n = 0;
}

const struct kg_topic *kg_offsets_topic(const struct kg_offsets *o, struct kc_str topic)
{
    return topic.ptr ? kc_map_gets(&o->topics, topic) : NULL;
}

/* First place whose partition is not smaller. */
static int32_t place(const struct kg_topic *t, int32_t partition)
{
    int32_t low = 0, high = t->n;
    while (low < high) {
        int32_t mid = low + (high - low) / 2;
        if (t->parts[mid].partition < partition) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

struct kg_offset *kg_offset_find(const struct kg_offsets *o, struct kc_str topic, int32_t partition)
{
    const struct kg_topic *t = kg_offsets_topic(o, topic);
    if (!t) {
        return NULL;
    }
    int32_t at = place(t, partition);
    return at < t->n && t->parts[at].partition == partition ? &t->parts[at] : NULL;
}

static struct kg_topic *topic_make(struct kg_offsets *o, struct kc_str name)
{
    struct kg_topic *t = kc_try_zalloc(1, sizeof(*t));
    if (!t || !kg_str_set(&t->name, name)) {
        kc_free(t);
        return NULL;
    }
    kc_map_put(&o->topics, t->name.ptr, (size_t)t->name.len, t);
    return t;
}

static struct kg_offset *obtain(struct kg_offsets *o, struct kc_str topic, int32_t partition)
{
    struct kg_topic *t = kc_map_gets(&o->topics, topic);
    if (!t && !(t = topic_make(o, topic))) {
        return NULL;
    }
    int32_t at = place(t, partition);
    if (at < t->n && t->parts[at].partition == partition) {
        return &t->parts[at];
    }
    if (t->n == t->room) {
        int32_t room = t->room ? t->room * 2 : 4;
        struct kg_offset *more = kc_try_realloc(t->parts, (size_t)room * sizeof(*more));
        if (!more) {
            return NULL;
        }
        t->parts = more;
        t->room = room;
    }
    memmove(&t->parts[at + 1], &t->parts[at], (size_t)(t->n - at) * sizeof(*t->parts));
    t->parts[at] = (struct kg_offset){.partition = partition};
    t->n++;
    o->n++;
    return &t->parts[at];
}

/* Drops the entry if nothing speaks for it any more. */
static void settle(struct kg_offsets *o, struct kc_str topic, int32_t partition)
{
    struct kg_offset *p = kg_offset_find(o, topic, partition);
    if (!p || p->visible || p->under_way) {
        return;
    }
    struct kg_topic *t = kc_map_gets(&o->topics, topic);
    int32_t at = (int32_t)(p - t->parts);
    kg_str_clear(&p->v.metadata);
    memmove(p, p + 1, (size_t)(t->n - at - 1) * sizeof(*p));
    t->n--;
    o->n--;
    if (t->n == 0) {
        kc_map_del(&o->topics, topic.ptr, (size_t)topic.len);
        topic_free(t);
    }
}

static bool take(struct kg_offset *p, const struct kg_offset_value *v)
{
    struct kc_str metadata = KC_STR_NULL;
    if (!kg_str_set(&metadata, v->metadata)) {
        return false;
    }
    kg_str_clear(&p->v.metadata);
    p->v = *v;
    p->v.metadata = metadata;
    p->visible = true;
    return true;
}

bool kg_offset_begin(struct kg_offsets *o, struct kc_str topic, int32_t partition)
{
    struct kg_offset *p = obtain(o, topic, partition);
    if (p) {
        p->under_way++;
    }
    return p != NULL;
}

void kg_offset_end(struct kg_offsets *o, struct kc_str topic, int32_t partition,
                   const struct kg_offset_value *v)
{
    struct kg_offset *p = kg_offset_find(o, topic, partition);
    KC_ASSERT(p && p->under_way > 0);
    p->under_way--;
    if (v && !take(p, v)) {
        /* It is in the log and acked: the offset counts, its comment is lost until the next load. */
        kg_str_clear(&p->v.metadata);
        p->v = *v;
        p->v.metadata = KC_STR_NULL;
        p->visible = true;
    }
    settle(o, topic, partition);
}

bool kg_offset_set(struct kg_offsets *o, struct kc_str topic, int32_t partition,
                   const struct kg_offset_value *v)
{
    struct kg_offset *p = obtain(o, topic, partition);
    bool ok = p && take(p, v);
    settle(o, topic, partition);
    return ok;
}

void kg_offset_clear(struct kg_offsets *o, struct kc_str topic, int32_t partition)
{
    struct kg_offset *p = kg_offset_find(o, topic, partition);
    if (p) {
        p->visible = false;
        settle(o, topic, partition);
    }
}

struct kg_offset *kg_offset_next(const struct kg_offsets *o, struct kg_offset_iter *it)
{
    while (!it->topic || it->next >= it->topic->n) {
        struct kc_map_entry *e = kc_map_next(&o->topics, &it->topics);
        if (!e) {
            return NULL;
        }
        it->topic = e->value;
        it->next = 0;
    }
    return &it->topic->parts[it->next++];
}
