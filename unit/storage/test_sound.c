/* Which bytes of a file are known to be right. */
#include "kt.h"

#include <stdbool.h>

#include "base/kc_rng.h"
#include "storage/ks_sound.h"

static void sound_ranges_meet_and_the_smallest_is_forgotten(void)
{
    struct ks_sound s = {0};
    KT_EQ(ks_sound_to(&s, 0), 0);
    ks_sound_add(&s, 10, 10);
    KT_EQ(s.n, 0);
    ks_sound_add(&s, 100, 200);
    ks_sound_add(&s, 300, 400);
    KT_EQ(ks_sound_to(&s, 99), 99);
    KT_EQ(ks_sound_to(&s, 100), 200);
    KT_EQ(ks_sound_to(&s, 200), 200);
    ks_sound_add(&s, 200, 250);
    KT_EQ(ks_sound_to(&s, 150), 250);
    ks_sound_add(&s, 240, 300);
    KT_EQ(s.n, 1);
    KT_EQ(ks_sound_to(&s, 100), 400);
    ks_sound_add(&s, 0, 20);
    ks_sound_add(&s, 500, 540);
    ks_sound_add(&s, 600, 690);
    ks_sound_add(&s, 700, 710); /* smaller than all there are */
    KT_EQ(ks_sound_to(&s, 700), 700);
    KT_EQ(s.n, 4);
    ks_sound_add(&s, 700, 800); /* in place of 0 to 20 */
    KT_EQ(ks_sound_to(&s, 0), 0);
    KT_EQ(ks_sound_to(&s, 100), 400);
    KT_EQ(ks_sound_to(&s, 500), 540);
    KT_EQ(ks_sound_to(&s, 600), 690);
    KT_EQ(ks_sound_to(&s, 700), 800);
    ks_sound_add(&s, 0, 1000);
    KT_EQ(s.n, 1);
    KT_EQ(ks_sound_to(&s, 999), 1000);
}

/* Against a byte for a byte; what is forgotten is told as not sound, never the other way. */
static void sound_never_says_more_than_was_added(void)
{
    enum { BYTES = 300 };
    struct kc_rng rng;
    kc_rng_seed(&rng, kt_seed());
    for (int round = 0; round < 200; round++) {
        bool added[BYTES] = {0};
        struct ks_sound s = {0};
        for (int i = 0; i < 30; i++) {
            uint64_t a = kc_rng_below(&rng, BYTES), b = a + kc_rng_below(&rng, BYTES - a);
            b = KC_MIN(b, a + 20);
            ks_sound_add(&s, a, b);
            memset(added + a, true, b - a);
            for (uint64_t at = 0; at < BYTES; at++) {
                for (uint64_t x = at; x < ks_sound_to(&s, at); x++) {
                    KT_REQUIRE(added[x]);
                }
            }
        }
    }
}

KT_MAIN("storage/sound", KT(sound_ranges_meet_and_the_smallest_is_forgotten),
        KT(sound_never_says_more_than_was_added))
