/* kb_fetch_session.c - see kb_fetch_session.h. */
#include "handlers/kb_fetch_session.h"

#include <string.h>

#include "base/kc_hash.h"
#include "base/kc_mem.h"
#include "base/kc_siphash.h"
#include "base/kc_str.h"
#include "wire/kw_errors.h"

enum {
    FIRST_EPOCH = 1, /* of the request after the one that made the session */
    TABLE_MIN = 8,
    HEAP_MIN = 16,
    EVICT_AT_ONCE = 8, /* for one newcomer */
    OVERHEAD = 16 /* of the allocator, a block */
};

int32_t kb_fs_next_epoch(int32_t epoch)
{
    if (epoch < 0) {
        return -1;
    }
    return epoch == INT32_MAX ? FIRST_EPOCH : epoch + 1;
}

/* ---- hash tables ---- */

static struct kb_fs_node **bucket(const struct kb_fs_table *t, uint64_t hash)
{
    return &t->buckets[hash & (t->room - 1)];
}

/* Makes room for one more. A table that cannot grow gets slower; one that never was fails. */
static bool table_grow(struct kb_fs_table *t)
{
    if (t->len < t->room) {
        return true;
    }
    size_t room = t->room ? 2 * t->room : TABLE_MIN;
    struct kb_fs_table to = {kc_try_zalloc(room, sizeof(struct kb_fs_node *)), room, t->len};
    if (!to.buckets) {
        return t->room > 0;
    }
    for (size_t i = 0; i < t->room; i++) {
        for (struct kb_fs_node *n = t->buckets[i], *next; n; n = next) {
            next = n->next;
            struct kb_fs_node **b = bucket(&to, n->hash);
            n->next = *b;
            *b = n;
        }
    }
    kc_free(t->buckets);
    *t = to;
    return true;
}

static void table_add(struct kb_fs_table *t, struct kb_fs_node *n, uint64_t hash)
{
    struct kb_fs_node **b = bucket(t, hash);
    n->hash = hash;
    n->next = *b;
    *b = n;
    t->len++;
}

static void table_del(struct kb_fs_table *t, struct kb_fs_node *n)
{
    struct kb_fs_node **b = bucket(t, n->hash);
    while (*b != n) {
        b = &(*b)->next;
    }
    *b = n->next;
    t->len--;
}

static uint64_t topic_hash(const struct kb_fs_session *s, struct kc_str name,
                           const struct kc_uuid *id)
{
    uint8_t out[16];
    uint64_t h;
    kc_siphash128(s->hash_key, s->by_id ? (const void *)id : name.ptr,
                  s->by_id ? sizeof(*id) : (size_t)name.len, out);
    memcpy(&h, out, sizeof(h));
    return h;
}

static struct kb_fs_topic *find_topic(const struct kb_fs_session *s, uint64_t hash,
                                      struct kc_str name, const struct kc_uuid *id)
{
    struct kb_fs_node *n = s->topics.room ? *bucket(&s->topics, hash) : NULL;
    for (; n; n = n->next) {
        struct kb_fs_topic *t = KC_CONTAINER_OF(n, struct kb_fs_topic, node);
        if (n->hash != hash) {
            continue;
        }
        if (s->by_id ? memcmp(&t->id, id, sizeof(*id)) == 0
                     : kc_str_eq((struct kc_str){t->name, t->name_len}, name)) {
            return t;
        }
    }
    return NULL;
}

static struct kb_fs_part *find_part(const struct kb_fs_session *s, const struct kb_fs_topic *t,
                                    int32_t partition)
{
    uint64_t hash = kc_hash64_mix(t->node.hash, (uint64_t)partition);
    for (struct kb_fs_node *n = *bucket(&s->parts, hash); n; n = n->next) {
        struct kb_fs_part *p = KC_CONTAINER_OF(n, struct kb_fs_part, node);
        if (p->topic == t && p->partition == partition) {
            return p;
        }
    }
    return NULL;
}

/* ---- memory ---- */

/* What a session takes, its tables included. */
static size_t bytes_of(const struct kb_fs_session *s)
{
    return s->bytes + (s->parts.room + s->topics.room) * sizeof(struct kb_fs_node *);
}

static void count_bytes(struct kb_fs_session *s, size_t before)
{
    if (s->cache) {
        s->cache->bytes += bytes_of(s) - before;
    }
}

static void free_topic(struct kb_fs_session *s, struct kb_fs_topic *t)
{
    table_del(&s->topics, &t->node);
    s->bytes -= sizeof(*t) + OVERHEAD + (t->name ? (size_t)t->name_len + OVERHEAD : 0);
    kc_free(t->name);
    kc_free(t);
}

static void free_part(struct kb_fs_session *s, struct kb_fs_part *p)
{
    struct kb_fs_topic *t = p->topic;
    table_del(&s->parts, &p->node);
    kc_list_del(&p->order);
    s->bytes -= sizeof(*p) + OVERHEAD;
    kc_free(p);
    if (--t->n_parts == 0) {
        free_topic(s, t);
    }
}

static bool set_name(struct kb_fs_session *s, struct kb_fs_topic *t, struct kc_str name)
{
    t->name = kc_try_alloc((size_t)name.len + 1);
    if (!t->name) {
        return false;
    }
    memcpy(t->name, name.ptr, (size_t)name.len);
    t->name[name.len] = '\0';
    t->name_len = name.len;
    s->bytes += (size_t)name.len + OVERHEAD;
    return true;
}

static struct kb_fs_topic *add_topic(struct kb_fs_session *s, uint64_t hash, struct kc_str name,
                                     const struct kc_uuid *id)
{
    struct kb_fs_topic *t = table_grow(&s->topics) ? kc_try_zalloc(1, sizeof(*t)) : NULL;
    if (!t) {
        return NULL;
    }
    table_add(&s->topics, &t->node, hash);
    s->bytes += sizeof(*t) + OVERHEAD;
    if (s->by_id) {
        t->id = *id;
    } else if (!set_name(s, t, name)) {
        free_topic(s, t);
        return NULL;
    }
    return t;
}

/* ---- the ones that may be evicted, smallest first ---- */

static bool smaller(const struct kb_fs_session *a, const struct kb_fs_session *b)
{
    return a->size != b->size ? a->size < b->size : a->id < b->id;
}

static void heap_put(struct kb_fs_cache *c, size_t at, struct kb_fs_session *s)
{
    c->heap[at] = s;
    s->heap_at = at + 1;
}

/* Finds the place of s, for which the one at `at` is free. */
static void heap_sift(struct kb_fs_cache *c, size_t at, struct kb_fs_session *s)
{
    for (; at > 0 && smaller(s, c->heap[(at - 1) / 2]); at = (at - 1) / 2) {
        heap_put(c, at, c->heap[(at - 1) / 2]);
    }
    for (size_t child; (child = 2 * at + 1) < c->heap_len; at = child) {
        child += child + 1 < c->heap_len && smaller(c->heap[child + 1], c->heap[child]);
        if (!smaller(c->heap[child], s)) {
            break;
        }
        heap_put(c, at, c->heap[child]);
    }
    heap_put(c, at, s);
}

static void heap_del(struct kb_fs_cache *c, struct kb_fs_session *s)
{
    if (!s->heap_at) {
        return;
    }
    size_t at = s->heap_at - 1;
    struct kb_fs_session *last = c->heap[--c->heap_len];
    s->heap_at = 0;
    if (last != s) {
        heap_sift(c, at, last);
    }
}

static void heap_add(struct kb_fs_cache *c, struct kb_fs_session *s)
{
    if (c->heap_len == c->heap_room) {
        size_t room = c->heap_room ? 2 * c->heap_room : HEAP_MIN;
        struct kb_fs_session **heap = kc_try_realloc(c->heap, room * sizeof(*heap));
        if (!heap) {
            return; /* it cannot be replaced by a larger one until its next use */
        }
        c->heap = heap;
        c->heap_room = room;
    }
    heap_sift(c, c->heap_len++, s);
}

/* ---- the cache ---- */

void kb_fs_cache_init(struct kb_fs_cache *c, int32_t slots, size_t max_bytes, int32_t index,
                      int32_t n, uint64_t seed)
{
    *c = (struct kb_fs_cache){.slots = slots, .max_bytes = max_bytes, .index = index, .n = n};
    kc_rng_seed(&c->rng, seed);
    for (size_t i = 0; i < sizeof(c->hash_key); i++) {
        c->hash_key[i] = (uint8_t)kc_rng_next(&c->rng);
    }
    kc_map_init(&c->by_id);
    kc_list_init(&c->lru);
}

static void take_out(struct kb_fs_cache *c, struct kb_fs_session *s)
{
    heap_del(c, s);
    kc_list_del(&s->lru);
    kc_map_del(&c->by_id, &s->id, sizeof(s->id));
    c->bytes -= bytes_of(s);
    c->stats.sessions--;
    c->stats.partitions -= kb_fs_n_parts(s);
    s->cache = NULL;
    kb_fs_unref(s);
}

void kb_fs_cache_fini(struct kb_fs_cache *c)
{
    while (!kc_list_empty(&c->lru)) {
        take_out(c, KC_LIST_ENTRY(c->lru.next, struct kb_fs_session, lru));
    }
    kc_map_fini(&c->by_id, NULL);
    kc_free(c->heap);
}

/* FetchSessionCacheShard.touch: who is old enough by now may be replaced by a larger one. */
static void touch(struct kb_fs_session *s, int64_t now_ms)
{
    struct kb_fs_cache *c = s->cache;
    s->used_ms = now_ms;
    kc_list_del(&s->lru);
    kc_list_add_tail(&c->lru, &s->lru);
    heap_del(c, s);
    s->size = s->parts.len;
    if (now_ms - s->created_ms > KB_FS_EVICT_MS) {
        heap_add(c, s);
    }
}

static bool evict_for(struct kb_fs_cache *c, const struct kb_fs_session *newcomer, int64_t now_ms)
{
    if (kc_list_empty(&c->lru)) {
        return false;
    }
    struct kb_fs_session *victim = KC_LIST_ENTRY(c->lru.next, struct kb_fs_session, lru);
    if (now_ms - victim->used_ms <= KB_FS_EVICT_MS) {
        victim = c->heap_len > 0 ? c->heap[0] : NULL;
        if (!victim || !smaller(victim, newcomer)) { /* its id is 0: of equals the old one stays */
            return false;
        }
    }
    c->stats.evictions++;
    take_out(c, victim);
    return true;
}

static int32_t new_id(struct kb_fs_cache *c)
{
    int32_t id;
    do {
        id = (int32_t)kc_rng_below(&c->rng, (uint64_t)(INT32_MAX / c->n)) * c->n + c->index;
    } while (id == 0 || kc_map_get(&c->by_id, &id, sizeof(id)));
    return id;
}

int32_t kb_fs_admit(struct kb_fs_cache *c, struct kb_fs_session *s, int64_t now_ms)
{
    s->size = s->parts.len;
    for (int32_t i = 0; c->stats.sessions >= c->slots || c->bytes + bytes_of(s) > c->max_bytes;
         i++) {
        if (i == EVICT_AT_ONCE || bytes_of(s) > c->max_bytes || !evict_for(c, s, now_ms)) {
            return 0;
        }
    }
    s->id = new_id(c);
    s->epoch = FIRST_EPOCH;
    s->created_ms = now_ms;
    s->cache = c;
    c->bytes += bytes_of(s);
    c->stats.sessions++;
    c->stats.partitions += kb_fs_n_parts(s);
    kc_map_put(&c->by_id, &s->id, sizeof(s->id), kb_fs_ref(s));
    touch(s, now_ms);
    return s->id;
}

/* ---- sessions ---- */

struct kb_fs_session *kb_fs_draft(struct kb_fs_cache *c, bool by_id)
{
    struct kb_fs_session *s = kc_try_zalloc(1, sizeof(*s));
    if (!s) {
        return NULL;
    }
    s->by_id = by_id;
    s->refs = 1;
    s->hash_key = c->hash_key;
    s->bytes = sizeof(*s) + OVERHEAD + sizeof(struct kc_map_entry) + 2 * sizeof(void *);
    kc_list_init(&s->lru);
    kc_list_init(&s->order);
    return s;
}

struct kb_fs_session *kb_fs_ref(struct kb_fs_session *s)
{
    s->refs++;
    return s;
}

void kb_fs_unref(struct kb_fs_session *s)
{
    if (!s || --s->refs > 0) {
        return;
    }
    KC_LIST_EACH(it, nx, &s->order)
    {
        free_part(s, KC_LIST_ENTRY(it, struct kb_fs_part, order));
    }
    kc_free(s->parts.buckets);
    kc_free(s->topics.buckets);
    kc_free(s);
}

void kb_fs_close(struct kb_fs_cache *c, int32_t id)
{
    struct kb_fs_session *s = kc_map_get(&c->by_id, &id, sizeof(id));
    if (s) {
        take_out(c, s);
    }
}

struct kb_fs_session *kb_fs_find(struct kb_fs_cache *c, int32_t id, int32_t epoch, bool by_id,
                                 int16_t *ret_error)
{
    struct kb_fs_session *s = kc_map_get(&c->by_id, &id, sizeof(id));
    *ret_error = KAFKA_NONE;
    if (!s) {
        *ret_error = KAFKA_FETCH_SESSION_ID_NOT_FOUND;
    } else if (s->epoch != epoch) {
        *ret_error = KAFKA_INVALID_FETCH_SESSION_EPOCH;
    } else if (s->by_id != by_id) {
        *ret_error = KAFKA_FETCH_SESSION_TOPIC_ID_ERROR;
    }
    return *ret_error ? NULL : s;
}

bool kb_fs_go_on(struct kb_fs_session *s, int64_t now_ms)
{
    if (s->parts.len == 0) {
        take_out(s->cache, s);
        return false;
    }
    s->epoch = kb_fs_next_epoch(s->epoch);
    touch(s, now_ms);
    return true;
}

bool kb_fs_is_latest(const struct kb_fs_session *s, int32_t epoch)
{
    return s->epoch == kb_fs_next_epoch(epoch);
}

/* ---- partitions ---- */

static struct kb_fs_part *add_part(struct kb_fs_session *s, struct kb_fs_topic *t,
                                   int32_t partition)
{
    struct kb_fs_part *p = table_grow(&s->parts) ? kc_try_zalloc(1, sizeof(*p)) : NULL;
    if (!p) {
        return NULL;
    }
    p->topic = t;
    p->partition = partition;
    p->high_watermark = p->last_stable = p->log_start = -1;
    t->n_parts++;
    table_add(&s->parts, &p->node, kc_hash64_mix(t->node.hash, (uint64_t)partition));
    kc_list_add_tail(&s->order, &p->order);
    s->bytes += sizeof(*p) + OVERHEAD;
    return p;
}

/* The part, if it is there already or may be added. */
static struct kb_fs_part *part_for(struct kb_fs_session *s, struct kc_str name,
                                   const struct kc_uuid *id, int32_t partition)
{
    uint64_t hash = topic_hash(s, name, id);
    struct kb_fs_topic *t = find_topic(s, hash, name, id);
    struct kb_fs_part *p = t ? find_part(s, t, partition) : NULL;
    if (p || s->parts.len >= KB_FS_PARTS_MAX) {
        return p;
    }
    t = t ? t : add_topic(s, hash, name, id);
    p = t ? add_part(s, t, partition) : NULL;
    if (t && t->n_parts == 0) {
        free_topic(s, t);
    }
    return p;
}

struct kb_fs_part *kb_fs_put(struct kb_fs_session *s, struct kc_str name, const struct kc_uuid *id,
                             int32_t partition, const struct kb_fs_asked *asked)
{
    size_t bytes = bytes_of(s), n = s->parts.len;
    struct kb_fs_part *p = part_for(s, name, id, partition);
    count_bytes(s, bytes);
    if (s->cache) {
        s->cache->stats.partitions += (int64_t)(s->parts.len - n);
    }
    if (!p || (s->cache && s->cache->bytes > s->cache->max_bytes)) {
        return NULL;
    }
    p->asked = *asked;
    return p;
}

void kb_fs_forget(struct kb_fs_session *s, struct kc_str name, const struct kc_uuid *id,
                  int32_t partition)
{
    struct kb_fs_topic *t = find_topic(s, topic_hash(s, name, id), name, id);
    struct kb_fs_part *p = t ? find_part(s, t, partition) : NULL;
    if (!p) {
        return;
    }
    size_t bytes = bytes_of(s);
    free_part(s, p);
    count_bytes(s, bytes);
    if (s->cache) {
        s->cache->stats.partitions--;
    }
}

void kb_fs_name(struct kb_fs_session *s, struct kb_fs_part *p, struct kc_str name)
{
    size_t bytes = bytes_of(s);
    p->named = p->topic->name || set_name(s, p->topic, name);
    count_bytes(s, bytes);
}

static struct kb_fs_part *part_of(const struct kb_fs_session *s, struct kc_list *node)
{
    return node == &s->order ? NULL : KC_LIST_ENTRY(node, struct kb_fs_part, order);
}

struct kb_fs_part *kb_fs_first(const struct kb_fs_session *s)
{
    return part_of(s, s->order.next);
}

struct kb_fs_part *kb_fs_next(const struct kb_fs_session *s, const struct kb_fs_part *p)
{
    return part_of(s, p->order.next);
}

bool kb_fs_tell(struct kb_fs_session *s, struct kb_fs_part *p, const struct kb_fs_told *told)
{
    bool news = told->must || told->records || p->high_watermark != told->high_watermark ||
                p->last_stable != told->last_stable || p->log_start != told->log_start;
    p->high_watermark = told->must ? -1 : told->high_watermark; /* is told again when it is over */
    p->last_stable = told->last_stable;
    p->log_start = told->log_start;
    if (told->records) {
        kc_list_del(&p->order);
        kc_list_add_tail(&s->order, &p->order);
    }
    return news;
}
