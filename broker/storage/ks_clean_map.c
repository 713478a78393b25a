#include "storage/ks_clean_map.h"

#include <errno.h>
#include <string.h>

#include "base/kc_mem.h"
#include "base/kc_rng.h"
#include "base/kc_siphash.h"

enum { SLOTS_MIN = 1024, LOAD_PERCENT = 90 };

int ks_clean_map_init(struct ks_clean_map *m, uint64_t n_keys, size_t max_bytes)
{
    *m = (struct ks_clean_map){.latest = -1};
    uint64_t most = max_bytes / sizeof(*m->slots);
    uint64_t want = n_keys < most ? n_keys * 100 / LOAD_PERCENT + 1 : most;
    m->n_slots = (size_t)KC_MAX(KC_MIN(want, most), (uint64_t)SLOTS_MIN);
    m->max_used = m->n_slots * LOAD_PERCENT / 100;
    kc_random_bytes(m->key, sizeof(m->key));
    m->slots = kc_try_zalloc(m->n_slots, sizeof(*m->slots));
    if (!m->slots) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < m->n_slots; i++) {
        m->slots[i].offset = -1;
    }
    return 0;
}

void ks_clean_map_fini(struct ks_clean_map *m)
{
    kc_free(m->slots);
    *m = (struct ks_clean_map){.latest = -1};
}

/* The place of a key: its own, or the free one where it would go. */
static struct ks_clean_slot *find(const struct ks_clean_map *m, const void *key, size_t len,
                                  uint8_t hash[16])
{
    uint64_t h;
    kc_siphash128(m->key, key, len, hash);
    memcpy(&h, hash, sizeof(h));
    size_t i = (size_t)(h % m->n_slots);
    while (m->slots[i].offset >= 0 && memcmp(m->slots[i].hash, hash, 16) != 0) {
        i = i + 1 < m->n_slots ? i + 1 : 0;
    }
    return &m->slots[i];
}

bool ks_clean_map_put(struct ks_clean_map *m, const void *key, size_t len, int64_t offset)
{
    uint8_t hash[16];
    struct ks_clean_slot *s = find(m, key, len, hash);
    if (s->offset < 0) {
        if (m->used >= m->max_used) {
            return false;
        }
        m->used++;
        memcpy(s->hash, hash, sizeof(hash));
    }
    s->offset = offset;
    return true;
}

int64_t ks_clean_map_get(const struct ks_clean_map *m, const void *key, size_t len)
{
    uint8_t hash[16];
    return find(m, key, len, hash)->offset;
}
