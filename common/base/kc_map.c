#include "base/kc_map.h"

#include <string.h>

#include "base/kc_hash.h"
#include "base/kc_mem.h"

void kc_map_init(struct kc_map *m)
{
    *m = (struct kc_map){0};
}

void kc_map_fini(struct kc_map *m, void (*free_value)(void *))
{
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(m, &it));) {
        if (free_value) {
            free_value(e->value);
        }
        kc_free(e);
    }
    kc_free(m->buckets);
    *m = (struct kc_map){0};
}

static struct kc_map_entry **find(const struct kc_map *m, const void *key, size_t len,
                                  uint64_t hash)
{
    if (m->n_buckets == 0) {
        return NULL;
    }
    struct kc_map_entry **at = &m->buckets[hash & (m->n_buckets - 1)];
    for (; *at; at = &(*at)->next) {
        if ((*at)->hash == hash && (*at)->key_len == len && memcmp((*at)->key, key, len) == 0) {
            return at;
        }
    }
    return NULL;
}

void *kc_map_get(const struct kc_map *m, const void *key, size_t key_len)
{
    struct kc_map_entry **at = find(m, key, key_len, kc_hash64(key, key_len));
    return at ? (*at)->value : NULL;
}

static void grow(struct kc_map *m)
{
    size_t n = m->n_buckets ? m->n_buckets * 2 : 16;
    struct kc_map_entry **fresh = kc_try_zalloc(n, sizeof(*fresh));
    if (!fresh) { /* longer chains will do, once there are any */
        if (m->n_buckets) {
            return;
        }
        fresh = kc_zalloc(n * sizeof(*fresh));
    }
    for (size_t i = 0; i < m->n_buckets; i++) {
        for (struct kc_map_entry *e = m->buckets[i], *next; e; e = next) {
            next = e->next;
            e->next = fresh[e->hash & (n - 1)];
            fresh[e->hash & (n - 1)] = e;
        }
    }
    kc_free(m->buckets);
    m->buckets = fresh;
    m->n_buckets = n;
}

void *kc_map_put(struct kc_map *m, const void *key, size_t key_len, void *value)
{
    KC_ASSERT(value != NULL);
    uint64_t hash = kc_hash64(key, key_len);
    struct kc_map_entry **at = find(m, key, key_len, hash);
    if (at) {
        void *old = (*at)->value;
        (*at)->value = value;
        return old;
    }
    if (m->len >= m->n_buckets) {
        grow(m);
    }
    struct kc_map_entry *e = kc_alloc(sizeof(*e) + key_len + 1);
    e->hash = hash;
    e->value = value;
    e->key_len = (uint32_t)key_len;
    if (key_len) {
        memcpy(e->key, key, key_len);
    }
    e->key[key_len] = '\0';
    e->next = m->buckets[hash & (m->n_buckets - 1)];
    m->buckets[hash & (m->n_buckets - 1)] = e;
    m->len++;
    return NULL;
}

void *kc_map_del(struct kc_map *m, const void *key, size_t key_len)
{
    struct kc_map_entry **at = find(m, key, key_len, kc_hash64(key, key_len));
    if (!at) {
        return NULL;
    }
    struct kc_map_entry *e = *at;
    void *value = e->value;
    *at = e->next;
    m->len--;
    kc_free(e);
    return value;
}

struct kc_map_entry *kc_map_next(const struct kc_map *m, struct kc_map_iter *it)
{
    if (!it->started) {
        it->started = true;
        it->bucket = 0;
        it->next = m->n_buckets ? m->buckets[0] : NULL;
    }
    while (!it->next && it->bucket + 1 < m->n_buckets) {
        it->next = m->buckets[++it->bucket];
    }
    struct kc_map_entry *e = it->next;
    if (e) {
        it->next = e->next;
    }
    return e;
}
