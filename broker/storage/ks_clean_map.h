/* ks_clean_map.h - which offset is the newest of a key, in a fixed amount of memory.
 *
 * After Kafka's SkimpyOffsetMap: keys are known by 16 bytes of a hash, so memory does not depend on
 * their length. The hash is keyed with random bytes (SipHash): whoever chooses keys cannot make two
 * of them collide and so have the cleaner drop somebody else's record. One owner thread. */
#ifndef KS_CLEAN_MAP_H
#define KS_CLEAN_MAP_H

#include "base/kc_base.h"

struct ks_clean_slot {
    uint8_t hash[16];
    int64_t offset; /* -1 = free */
};
struct ks_clean_map {
    uint8_t key[16]; /* of the hash */
    struct ks_clean_slot *slots;
    size_t n_slots, used, max_used;
    int64_t latest; /* everything up to this offset is in the map; -1 = nothing */
};

/* Room for n_keys keys, or as many as max_bytes hold. -ENOMEM. */
int ks_clean_map_init(struct ks_clean_map *m, uint64_t n_keys, size_t max_bytes) KC_MUST_CHECK;
void ks_clean_map_fini(struct ks_clean_map *m);
/* False: a new key and no more room. */
bool ks_clean_map_put(struct ks_clean_map *m, const void *key, size_t len, int64_t offset);
/* The newest offset of a key, -1 if it has none. */
int64_t ks_clean_map_get(const struct ks_clean_map *m, const void *key, size_t len);

#endif
