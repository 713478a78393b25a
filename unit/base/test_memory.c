/* Arena, growable buffer, map, slabs. */
#include "kt.h"

#include "base/kc_arena.h"
#include "base/kc_buf.h"
#include "base/kc_dyn.h"
#include "base/kc_map.h"
#include "base/kc_mem.h"
#include "base/kc_rng.h"

static void arena_respects_its_cap(void)
{
    struct kc_arena a;
    kc_arena_init(&a, 256, 1024);
    KT_TRUE(kc_arena_alloc(&a, 512) != NULL);
    KT_TRUE(kc_arena_alloc(&a, 513) == NULL);
    KT_TRUE(kc_arena_alloc(&a, 512) != NULL);
    KT_TRUE(kc_arena_alloc(&a, 1) == NULL);
    kc_arena_reset(&a);
    KT_TRUE(kc_arena_alloc(&a, 1024) != NULL);
    KT_TRUE(kc_arena_zalloc(&a, SIZE_MAX, 2) == NULL);
    KT_TRUE(kc_arena_alloc(&a, SIZE_MAX) == NULL);
    kc_arena_fini(&a);
}

static void arena_memory_does_not_overlap(void)
{
    struct kc_arena a;
    kc_arena_init(&a, 128, 0);
    struct kc_rng rng;
    kc_rng_seed(&rng, kt_seed());
    enum { N = 300 };
    uint8_t *at[N];
    size_t len[N];
    for (int i = 0; i < N; i++) {
        len[i] = 1 + kc_rng_below(&rng, 400);
        at[i] = kc_arena_alloc(&a, len[i]);
        KT_REQUIRE(at[i] != NULL);
        KT_EQ((uintptr_t)at[i] % 16, 0);
        memset(at[i], i & 0xff, len[i]);
    }
    for (int i = 0; i < N; i++) {
        KT_TRUE(at[i][0] == (i & 0xff) && at[i][len[i] - 1] == (i & 0xff));
    }
    kc_arena_fini(&a);
}

static void dyn_failure_is_sticky(void)
{
    struct kc_dyn d;
    kc_dyn_init(&d, 10);
    kc_dyn_add(&d, "12345", 5);
    kc_dyn_add(&d, "123456", 6);
    KT_FALSE(kc_dyn_ok(&d));
    kc_dyn_add(&d, "1", 1);
    KT_EQ(d.len, 5);
    kc_dyn_reset(&d);
    kc_dyn_addf(&d, "%d-%s", 42, "x");
    KT_TRUE(kc_dyn_ok(&d));
    KT_EQ(d.len, 4);
    kc_dyn_consume(&d, 3);
    KT_EQ(d.data[0], 'x');
    kc_dyn_fini(&d);
}

static void failed_allocations_are_ordinary_errors(void)
{
    struct kc_dyn d;
    struct kc_arena a;
    kc_dyn_init(&d, 1000);
    kc_arena_init(&a, 64, 0);
    kc_mem_fail_nth(1, true);
    kc_dyn_add(&d, "1", 1);
    KT_FALSE(kc_dyn_ok(&d));
    KT_TRUE(kc_arena_alloc(&a, 1) == NULL);
    KT_TRUE(kc_buf_new(8) == NULL);
    kc_mem_fail_nth(0, false);
    KT_TRUE(kc_arena_alloc(&a, 1) != NULL);
    kc_arena_fini(&a);
    kc_dyn_fini(&d);
}

static void map_agrees_with_a_plain_array(void)
{
    enum { KEYS = 500 };
    static int values[KEYS];
    bool in[KEYS] = {false};
    struct kc_map m;
    struct kc_rng rng;
    size_t n = 0;
    kc_map_init(&m);
    kc_rng_seed(&rng, kt_seed());
    for (int step = 0; step < 20000; step++) {
        int k = (int)kc_rng_below(&rng, KEYS);
        char key[16];
        size_t len = (size_t)snprintf(key, sizeof(key), "key-%d", k);
        if (kc_rng_below(&rng, 2)) {
            void *old = kc_map_put(&m, key, len, &values[k]);
            KT_TRUE((old != NULL) == in[k]);
            n += in[k] ? 0 : 1;
            in[k] = true;
        } else {
            KT_TRUE((kc_map_del(&m, key, len) != NULL) == in[k]);
            n -= in[k] ? 1 : 0;
            in[k] = false;
        }
        KT_TRUE(m.len == n);
    }
    size_t seen = 0;
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&m, &it));) {
        seen++;
        kc_map_del(&m, e->key, e->key_len);
    }
    KT_EQ(seen, n);
    KT_EQ(m.len, 0);
    kc_map_fini(&m, NULL);
}

KT_MAIN("base memory", KT(arena_respects_its_cap), KT(arena_memory_does_not_overlap),
        KT(dyn_failure_is_sticky), KT(failed_allocations_are_ordinary_errors),
        KT(map_agrees_with_a_plain_array))
