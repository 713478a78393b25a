#include "kt.h"

#include "policy/kp_types.h"

static struct kc_uuid uuid(uint8_t n)
{
    struct kc_uuid u = {{n, 1, 2, 3}};
    return u;
}

static void orders_compare_by_term_then_generation(void)
{
    struct kp_order a = {.term = 1, .generation = 9}, b = {.term = 2, .generation = 1};
    KT_TRUE(kp_order_cmp(&a, &b) < 0);
    KT_TRUE(kp_order_cmp(&b, &a) > 0);
    b = a;
    KT_EQ(kp_order_cmp(&a, &b), 0);
    b.generation++;
    KT_TRUE(kp_order_cmp(&a, &b) < 0);
}

static void reasons_round_trip_and_unknown_reads_as_none(void)
{
    for (int r = KP_REASON_NONE; r <= KP_REASON_NEVER_SEEN; r++) {
        KT_EQ(kp_reason_parse(kp_reason_name((enum kp_reason)r)), r);
    }
    KT_EQ(kp_reason_parse("not a reason"), KP_REASON_NONE);
    KT_EQ(kp_reason_parse(NULL), KP_REASON_NONE);
    KT_STR(kp_reason_name((enum kp_reason)99), "");
}

static void shards_are_stable_in_range_and_spread(void)
{
    int32_t count[KP_SHARDS] = {0};
    for (int i = 0; i < 4096; i++) {
        struct kc_uuid u = {{(uint8_t)i, (uint8_t)(i >> 8), 7}};
        int32_t s = kp_shard_of(&u);
        KT_REQUIRE(s >= 0 && s < KP_SHARDS);
        KT_EQ(kp_shard_of(&u), s);
        count[s]++;
    }
    for (int s = 0; s < KP_SHARDS; s++) {
        KT_TRUE(count[s] > 4096 / KP_SHARDS / 2 && count[s] < 4096 / KP_SHARDS * 2);
    }
}

/* design.md 4: no row, another incarnation, or marked: condemned. Only the row's own, unmarked
 * incarnation is safe. */
static void condemned_is_derived_from_the_row(void)
{
    struct kc_uuid one = uuid(1), two = uuid(2), never_seen = uuid(3);
    struct kp_row rows[3] = {{.id = 0, .incarnation = one},
                             {.id = 2, .incarnation = two},
                             {.id = 5, .incarnation = two, .condemned = true}};
    KT_FALSE(kp_condemned(rows, 3, 0, &one));
    KT_TRUE(kp_condemned(rows, 3, 0, &never_seen));
    KT_FALSE(kp_condemned(rows, 3, 2, &two));
    KT_TRUE(kp_condemned(rows, 3, 1, &one));
    KT_TRUE(kp_condemned(rows, 3, 9, &one));
    KT_TRUE(kp_condemned(rows, 3, 5, &two));
    KT_TRUE(kp_condemned(rows, 0, 0, &one));
}

KT_MAIN("types", KT(orders_compare_by_term_then_generation),
        KT(reasons_round_trip_and_unknown_reads_as_none), KT(shards_are_stable_in_range_and_spread),
        KT(condemned_is_derived_from_the_row))
