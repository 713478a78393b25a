#include "kpt.h"
#include "kt.h"

#include "base/kc_hash.h"

/* Rules C: coordinators over all registered brokers (R16-R22, W2, W8). */
enum { GROUPS = 200 };
static struct kpt w;

static int32_t slot_of_group(int g)
{
    char name[32];
    int n = snprintf(name, sizeof(name), "group-%d", g);
    return kc_coordinator_slot((struct kc_str){name, n}, KP_SLOTS);
}

static void coordinators(int32_t topic, int32_t out[GROUPS])
{
    for (int g = 0; g < GROUPS; g++) {
        out[g] = kpt_leader(&w, topic, slot_of_group(g));
    }
}

static void begin(int32_t n)
{
    kpt_init(&w, n);
    kpt_slot_topic(&w, KP_GROUP_SLOTS);
    kpt_slot_topic(&w, KP_TXN_SLOTS);
    kpt_topic(&w, 12);
    kpt_start_settled(&w, n);
}

static int32_t differing(const int32_t *a, const int32_t *b)
{
    int32_t n = 0;
    for (int g = 0; g < GROUPS; g++) {
        n += a[g] != b[g];
    }
    return n;
}

static void R16_R17_first_layout_is_registered_modulo_n_for_both_kinds(void)
{
    begin(3);
    for (int32_t s = 0; s < KP_SLOTS; s++) {
        KT_EQ(kp_ctl_homes(w.c, KP_GROUP_SLOTS)[s], s % 3);
        KT_EQ(kp_ctl_homes(w.c, KP_TXN_SLOTS)[s], s % 3); /* R17 */
        KT_EQ(kpt_leader(&w, 0, s), s % 3);
        KT_EQ(kpt_leader(&w, 1, s), s % 3);
    }
    kpt_fini(&w);
}

/* R21's contrast: the coordinator as modulo of the alive count. */
static int32_t modulo_alive(int g, const int32_t *alive, int32_t n)
{
    return alive[slot_of_group(g) % n];
}

static void R18_R21_one_of_three_dies_and_only_its_third_of_200_groups_moves(void)
{
    begin(3);
    int32_t before[GROUPS], after[GROUPS];
    coordinators(0, before);
    kpt_kill(&w, 1);
    kpt_run(&w, 30000); /* beyond every hold: what would move has moved */
    coordinators(0, after);
    int32_t moved = 0;
    for (int g = 0; g < GROUPS; g++) {
        if (before[g] == 1) {
            moved++;
            KT_TRUE(after[g] == 0 || after[g] == 2);
        } else {
            KT_EQ(after[g], before[g]);
        }
    }
    static const int32_t all[] = {0, 1, 2}, left[] = {0, 2};
    int32_t old_moved = 0;
    for (int g = 0; g < GROUPS; g++) {
        old_moved += modulo_alive(g, all, 3) != modulo_alive(g, left, 2);
    }
    printf("of %d groups: %d moved by homes, %d by modulo of the alive\n", GROUPS, (int)moved,
           (int)old_moved);
    KT_TRUE(moved > GROUPS / 4 && moved < GROUPS * 2 / 5);
    KT_TRUE(old_moved > GROUPS / 2);
    kpt_fini(&w);
}

static void R19_draining_moves_only_the_drainers_groups(void)
{
    begin(3);
    int32_t before[GROUPS], after[GROUPS];
    coordinators(0, before);
    w.b[2].draining = true;
    kpt_run(&w, 24000);
    KT_EQ(kpt_row(&w, 2)->health, KP_DRAINING);
    coordinators(0, after);
    for (int g = 0; g < GROUPS; g++) {
        if (before[g] == 2) {
            KT_TRUE(after[g] != 2);
        } else {
            KT_EQ(after[g], before[g]);
        }
    }
    kpt_fini(&w);
}

static void R20_W2_the_fallback_is_stable_while_the_alive_set_is(void)
{
    begin(3);
    int32_t a[GROUPS], b[GROUPS];
    kpt_kill(&w, 0);
    kpt_run(&w, 8000);
    coordinators(0, a);
    for (int i = 0; i < 10; i++) {
        kpt_topic(&w, 7); /* W2: an unrelated recompute moves no group */
        kpt_slices(&w);
        kpt_run(&w, 1000);
        coordinators(0, b);
        KT_EQ(differing(a, b), 0);
    }
    kpt_fini(&w);
}

static void R22_the_return_moves_exactly_its_groups_back(void)
{
    begin(3);
    int32_t before[GROUPS], away[GROUPS], back[GROUPS];
    coordinators(0, before);
    kpt_kill(&w, 1);
    kpt_run(&w, 20000);
    coordinators(0, away);
    kpt_boot(&w, 1);
    kpt_run(&w, 9000);
    coordinators(0, back);
    KT_EQ(differing(away, back), 0); /* not before 10 s of serving */
    KT_TRUE(kpt_await_settled(&w, 30000));
    coordinators(0, back);
    KT_EQ(differing(before, back), 0);
    kpt_fini(&w);
}

static void W8_scale_out_moves_about_a_quarter_and_only_to_the_newcomer(void)
{
    begin(3);
    int32_t before[GROUPS], after[GROUPS];
    coordinators(0, before);
    kpt_desired(&w, 4);
    kpt_new_pod(&w, 3);
    KT_TRUE(kpt_await_settled(&w, 60000));
    coordinators(0, after);
    int32_t moved = 0, homes = 0;
    for (int g = 0; g < GROUPS; g++) {
        if (before[g] != after[g]) {
            moved++;
            KT_EQ(after[g], 3);
        }
    }
    for (int32_t s = 0; s < KP_SLOTS; s++) {
        homes += kp_ctl_homes(w.c, KP_GROUP_SLOTS)[s] == 3;
    }
    KT_EQ(homes, KP_SLOTS / 4);
    KT_TRUE(moved > GROUPS / 6 && moved < GROUPS / 3);
    kpt_fini(&w);
}

static void scale_in_moves_each_slot_once_to_its_future_home(void)
{
    begin(4);
    int32_t before[GROUPS], drained[GROUPS], after[GROUPS];
    coordinators(0, before);
    kpt_desired(&w, 3);
    w.b[3].draining = true;
    kpt_run(&w, 10000);
    coordinators(0, drained);
    kpt_kill(&w, 3);
    w.b[3].listed = false;
    kpt_slices(&w);
    kpt_run(&w, 30000);
    coordinators(0, after);
    for (int g = 0; g < GROUPS; g++) {
        KT_TRUE(before[g] == 3 || before[g] == after[g]);
    }
    KT_EQ(differing(drained, after), 0);
    KT_TRUE(kpt_settled(&w));
    kpt_fini(&w);
}

KT_MAIN("slots", KT(R16_R17_first_layout_is_registered_modulo_n_for_both_kinds),
        KT(R18_R21_one_of_three_dies_and_only_its_third_of_200_groups_moves),
        KT(R19_draining_moves_only_the_drainers_groups),
        KT(R20_W2_the_fallback_is_stable_while_the_alive_set_is),
        KT(R22_the_return_moves_exactly_its_groups_back),
        KT(W8_scale_out_moves_about_a_quarter_and_only_to_the_newcomer),
        KT(scale_in_moves_each_slot_once_to_its_future_home))
