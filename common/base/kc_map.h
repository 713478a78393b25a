/* kc_map.h - hash map from byte keys to pointers. One owner thread. Keys are copied. */
#ifndef KC_MAP_H
#define KC_MAP_H

#include "base/kc_base.h"

struct kc_map_entry {
    struct kc_map_entry *next; /* chain of a bucket */
    uint64_t hash;
    void *value;
    uint32_t key_len;
    char key[]; /* terminated for convenience */
};

struct kc_map {
    struct kc_map_entry **buckets;
    size_t n_buckets; /* a power of two, or 0 before the first insert */
    size_t len;
};

void kc_map_init(struct kc_map *m);
/* Frees the map; values are the caller's: pass free_value (NULL to leave them). */
void kc_map_fini(struct kc_map *m, void (*free_value)(void *));
/* NULL when absent. */
void *kc_map_get(const struct kc_map *m, const void *key, size_t key_len);
/* Inserts or replaces; returns the replaced value or NULL. value must not be NULL. */
void *kc_map_put(struct kc_map *m, const void *key, size_t key_len, void *value);
/* Removes; returns the value or NULL. */
void *kc_map_del(struct kc_map *m, const void *key, size_t key_len);
static inline void *kc_map_gets(const struct kc_map *m, struct kc_str key)
{
    return kc_map_get(m, key.ptr, (size_t)key.len);
}

/* Iteration; removing the entry just returned is allowed, inserting is not.
 *   struct kc_map_iter it = {0};
 *   for (struct kc_map_entry *e; (e = kc_map_next(&m, &it));) ... */
struct kc_map_iter {
    size_t bucket;
    struct kc_map_entry *next;
    bool started;
};
struct kc_map_entry *kc_map_next(const struct kc_map *m, struct kc_map_iter *it);

#endif
