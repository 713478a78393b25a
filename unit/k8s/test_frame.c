/* Cutting a stream of bytes into events. */
#include <stdlib.h>

#include "base/kc_dyn.h"
#include "base/kc_error.h"
#include "base/kc_rng.h"
#include "k8s/k8s_frame.h"
#include "kt.h"

static void lines_are_cut_and_empty_ones_skipped(void)
{
    struct k8s_frame f;
    struct kc_bytes l;
    k8s_frame_init(&f, 100);
    KT_EQ(k8s_frame_push(&f, "a\n\n\r\nbc\r\nd", 10), 0);
    KT_TRUE(k8s_frame_next(&f, &l));
    KT_TRUE(l.len == 1 && memcmp(l.ptr, "a", 1) == 0);
    KT_TRUE(k8s_frame_next(&f, &l));
    KT_TRUE(l.len == 2 && memcmp(l.ptr, "bc", 2) == 0);
    KT_FALSE(k8s_frame_next(&f, &l));
    KT_EQ(k8s_frame_push(&f, "e\n", 2), 0);
    KT_TRUE(k8s_frame_next(&f, &l));
    KT_TRUE(l.len == 2 && memcmp(l.ptr, "de", 2) == 0);
    KT_FALSE(k8s_frame_next(&f, &l));
    k8s_frame_fini(&f);
}

static void what_exceeds_the_cap_is_refused_until_reset(void)
{
    struct k8s_frame f;
    struct kc_bytes l;
    k8s_frame_init(&f, 8);
    KT_EQ(k8s_frame_push(&f, "12345", 5), 0);
    KT_FALSE(k8s_frame_next(&f, &l));
    KT_EQ(k8s_frame_push(&f, "67890", 5), KC_E_TOO_LARGE);
    KT_EQ(k8s_frame_push(&f, "1", 1), KC_E_TOO_LARGE);
    k8s_frame_reset(&f);
    KT_EQ(k8s_frame_push(&f, "12\n", 3), 0);
    KT_TRUE(k8s_frame_next(&f, &l));
    k8s_frame_fini(&f);
}

/* Whatever the pieces, the lines are the same. */
static void any_cut_gives_the_same_lines(void)
{
    struct kc_rng rng;
    kc_rng_seed(&rng, kt_seed());
    for (int round = 0; round < 300; round++) {
        struct k8s_frame f;
        struct kc_dyn text, want, got;
        kc_dyn_init(&text, 1 << 20);
        kc_dyn_init(&want, 1 << 20);
        kc_dyn_init(&got, 1 << 20);
        k8s_frame_init(&f, 1 << 20);
        for (int i = 0; i < 20; i++) {
            int len = (int)kc_rng_below(&rng, 40);
            for (int j = 0; j < len; j++) {
                char c = (char)('a' + kc_rng_below(&rng, 26));
                kc_dyn_add(&text, &c, 1);
                kc_dyn_add(&want, &c, 1);
            }
            kc_dyn_add(&text, "\n", 1);
            kc_dyn_add(&want, len ? "|" : "", len ? 1 : 0);
        }
        for (size_t at = 0; at < text.len;) {
            size_t piece = (size_t)kc_rng_below(&rng, 70) + 1;
            size_t n = KC_MIN(text.len - at, piece);
            KT_EQ(k8s_frame_push(&f, text.data + at, n), 0);
            struct kc_bytes l;
            while (k8s_frame_next(&f, &l)) {
                kc_dyn_add(&got, l.ptr, (size_t)l.len);
                kc_dyn_add(&got, "|", 1);
            }
            at += n;
        }
        KT_EQ(got.len, want.len);
        KT_TRUE(got.len == want.len && memcmp(got.data, want.data, got.len) == 0);
        k8s_frame_fini(&f);
        kc_dyn_fini(&text);
        kc_dyn_fini(&want);
        kc_dyn_fini(&got);
    }
}

KT_MAIN("frame", KT(lines_are_cut_and_empty_ones_skipped),
        KT(what_exceeds_the_cap_is_refused_until_reset), KT(any_cut_gives_the_same_lines))
