/* Names of topics: Kafka's rule, collisions, and the two that mean something. */
#include "kt.h"

#include "base/kc_str.h"
#include "image/ki_names.h"

static void names_are_judged_as_kafka_judges_them(void)
{
    static const char longest[] =
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    static const char *const good[] = {"a", "a.b_c-D9", "...", "__consumer_offsets"};
    static const char *const bad[] = {"", ".", "..", "a b", "a/b", "\xc3\xa9", "a\n", "a:b", "a+"};
    for (size_t i = 0; i < KC_ARRAY_LEN(good); i++) {
        KT_TRUE(ki_topic_name_valid(kc_str_of(good[i])));
    }
    for (size_t i = 0; i < KC_ARRAY_LEN(bad); i++) {
        KT_FALSE(ki_topic_name_valid(kc_str_of(bad[i])));
    }
    KT_FALSE(ki_topic_name_valid(KC_STR_NULL));
    KT_FALSE(ki_topic_name_valid((struct kc_str){"a\0b", 3}));
    struct kc_str most = {longest, KP_NAME_MAX};
    KT_TRUE(strlen(longest) > KP_NAME_MAX);
    KT_TRUE(ki_topic_name_valid(most));
    most.len++;
    KT_STR(ki_topic_name_fault(most), "it is longer than the max allowed length 249");
}

static void names_collide_in_dots_and_underscores_alone(void)
{
    KT_TRUE(ki_topic_names_collide(KC_STR_LIT("a.b_c"), KC_STR_LIT("a_b.c")));
    KT_TRUE(ki_topic_names_collide(KC_STR_LIT("same"), KC_STR_LIT("same")));
    KT_FALSE(ki_topic_names_collide(KC_STR_LIT("a.b"), KC_STR_LIT("a-b")));
    KT_FALSE(ki_topic_names_collide(KC_STR_LIT("a.b"), KC_STR_LIT("a.bc")));
    KT_FALSE(ki_topic_names_collide(KC_STR_LIT("a.b"), KC_STR_LIT("A.b")));
}

static void two_names_are_of_slots(void)
{
    for (int32_t kind = KP_GROUP_SLOTS; kind <= KP_TXN_SLOTS; kind++) {
        KT_EQ(ki_slot_kind(kc_str_of(ki_slot_topic_name(kind))), kind);
    }
    KT_EQ(ki_slot_kind(KC_STR_LIT("__consumer_offset")), KP_NOT_SLOTS);
    KT_EQ(ki_slot_kind(KC_STR_NULL), KP_NOT_SLOTS);
}

KT_MAIN("names", KT(names_are_judged_as_kafka_judges_them),
        KT(names_collide_in_dots_and_underscores_alone), KT(two_names_are_of_slots))
