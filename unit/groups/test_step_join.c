/* Joining: the initial delay, the leader, the vote, KIP-394, limits, who is refused. */
#include "kt.h"
#include "step_fix.h"

#include <stdio.h>

#include "base/kc_clock.h"
#include "base/kc_str.h"

static void the_first_member_waits_out_the_initial_delay(void)
{
    struct fx f;
    fx_init(&f);
    f.cfg.initial_delay_ms = 3000;
    int a = fx_join(&f, (struct fx_join){.new_id = "a"});
    fx_pass(&f, 2999);
    KT_EQ(fx_at(&f, a)->count, 0);
    fx_pass(&f, 1);
    KT_EQ(fx_at(&f, a)->count, 1);
    KT_EQ(fx_at(&f, a)->generation, 1);
    KT_STR(fx_at(&f, a)->leader, "a");
    KT_EQ(fx_at(&f, a)->n_members, 1);
    KT_EQ(f.group.state, KG_COMPLETING);
    fx_fini(&f);
}

static void a_member_that_arrives_during_the_delay_extends_it(void)
{
    struct fx f;
    fx_init(&f);
    f.cfg.initial_delay_ms = 3000;
    int a = fx_join(&f, (struct fx_join){.new_id = "a"});
    fx_pass(&f, 2000);
    int b = fx_join(&f, (struct fx_join){.new_id = "b"});
    fx_pass(&f, 3999);
    KT_EQ(fx_at(&f, a)->count, 0);
    fx_pass(&f, 1);
    KT_EQ(fx_at(&f, a)->n_members, 2);
    KT_EQ(fx_at(&f, b)->n_members, 0); /* only the leader is told of the others */
    KT_STR(fx_at(&f, b)->leader, "a");
    fx_fini(&f);
}

static void the_extended_delay_never_exceeds_the_rebalance_timeout(void)
{
    struct fx f;
    fx_init(&f);
    f.cfg.initial_delay_ms = 3000;
    char ids[16][8];
    int first = fx_join(&f, (struct fx_join){.new_id = "m", .rebalance_ms = 10000});
    for (int i = 0; i < 12 && fx_at(&f, first)->count == 0; i++) {
        snprintf(ids[i], sizeof(ids[i]), "m%d", i);
        fx_join(&f, (struct fx_join){.new_id = ids[i], .rebalance_ms = 10000});
        fx_pass(&f, 1000);
    }
    KT_EQ(f.now, 11000);
    KT_EQ(fx_at(&f, first)->count, 1);
    fx_fini(&f);
}

static void two_members_get_what_the_leader_assigned(void)
{
    struct fx f;
    fx_init(&f);
    fx_two_stable(&f);
    fx_fini(&f);
}

static void a_follower_that_syncs_late_gets_its_assignment(void)
{
    struct fx f;
    fx_init(&f);
    fx_join(&f, (struct fx_join){.new_id = "a"});
    fx_join(&f, (struct fx_join){.new_id = "b"});
    fx_join(&f, (struct fx_join){.id = "a"});
    fx_sync(&f, "a", 2, "a=1,b=2");
    int b = fx_sync(&f, "b", 2, NULL);
    KT_STR(fx_at(&f, b)->assignment, "2");
    KT_EQ(fx_at(&f, b)->error, 0);
    fx_fini(&f);
}

static void members_the_leader_left_out_get_nothing(void)
{
    struct fx f;
    fx_init(&f);
    fx_join(&f, (struct fx_join){.new_id = "a"});
    int s = fx_sync(&f, "a", 1, "ghost=9");
    KT_EQ(fx_at(&f, s)->error, 0);
    KT_STR(fx_at(&f, s)->assignment, "");
    KT_EQ(f.group.state, KG_STABLE);
    fx_fini(&f);
}

static void the_protocol_all_support_with_most_votes_wins(void)
{
    struct fx f;
    fx_init(&f);
    f.cfg.initial_delay_ms = 100;
    fx_join(&f, (struct fx_join){.new_id = "a", .protocols = "x:1,range:2,rr:3"});
    fx_join(&f, (struct fx_join){.new_id = "b", .protocols = "rr:4,range:5"});
    int c = fx_join(&f, (struct fx_join){.new_id = "c", .protocols = "rr:6,range:7,y:8"});
    fx_pass(&f, 300);
    KT_STR(fx_at(&f, 0)->protocol, "rr");
    KT_STR(fx_at(&f, c)->protocol, "rr");
    KT_STR(fx_at(&f, 0)->first_metadata, "3");
    fx_fini(&f);
}

static void protocols_nobody_shares_are_inconsistent(void)
{
    struct fx f;
    fx_init(&f);
    fx_two_stable(&f);
    int c = fx_join(&f, (struct fx_join){.new_id = "c", .protocols = "sticky:1"});
    KT_EQ(fx_at(&f, c)->error, KAFKA_INCONSISTENT_GROUP_PROTOCOL);
    int d = fx_join(&f, (struct fx_join){.new_id = "d", .type = "connect"});
    KT_EQ(fx_at(&f, d)->error, KAFKA_INCONSISTENT_GROUP_PROTOCOL);
    int e = fx_join(&f, (struct fx_join){.new_id = "e", .type = ""});
    KT_EQ(fx_at(&f, e)->error, KAFKA_INCONSISTENT_GROUP_PROTOCOL);
    KT_EQ(f.group.state, KG_STABLE);
    fx_fini(&f);
}

static void from_v4_a_new_member_is_given_an_id_first(void)
{
    struct fx f;
    fx_init(&f);
    int first = fx_join(&f, (struct fx_join){.new_id = "a", .two_step = true});
    KT_EQ(fx_at(&f, first)->error, KAFKA_MEMBER_ID_REQUIRED);
    KT_STR(fx_at(&f, first)->member, "a");
    KT_EQ(f.group.state, KG_EMPTY);
    int second = fx_join(&f, (struct fx_join){.id = "a", .two_step = true});
    KT_EQ(fx_at(&f, second)->error, 0);
    KT_EQ(fx_at(&f, second)->generation, 1);
    KT_EQ(f.group.n_pending, 0);
    fx_fini(&f);
}

static void an_id_that_is_never_used_is_forgotten_after_the_session_timeout(void)
{
    struct fx f;
    fx_init(&f);
    fx_join(&f, (struct fx_join){.new_id = "a", .two_step = true});
    fx_pass(&f, 10000);
    KT_EQ(f.group.n_pending, 0);
    int late = fx_join(&f, (struct fx_join){.id = "a", .two_step = true});
    KT_EQ(fx_at(&f, late)->error, KAFKA_UNKNOWN_MEMBER_ID);
    fx_fini(&f);
}

static void a_rebalance_waits_for_ids_given_out(void)
{
    struct fx f;
    fx_init(&f);
    fx_two_stable(&f);
    fx_join(&f, (struct fx_join){.new_id = "c", .two_step = true});
    fx_join(&f, (struct fx_join){.id = "a"}); /* the leader rejoins: rebalance */
    int b = fx_join(&f, (struct fx_join){.id = "b"});
    KT_EQ(fx_at(&f, b)->count, 0);
    int c = fx_join(&f, (struct fx_join){.id = "c", .two_step = true});
    KT_EQ(fx_at(&f, b)->generation, 2);
    KT_EQ(fx_at(&f, c)->generation, 2);
    fx_fini(&f);
}

static void a_pending_id_that_leaves_ends_the_wait(void)
{
    struct fx f;
    fx_init(&f);
    fx_two_stable(&f);
    fx_join(&f, (struct fx_join){.new_id = "c", .two_step = true});
    fx_join(&f, (struct fx_join){.id = "a"});
    int b = fx_join(&f, (struct fx_join){.id = "b"});
    KT_EQ(fx_leave(&f, "c", NULL), 0);
    KT_EQ(fx_at(&f, b)->generation, 2);
    fx_fini(&f);
}

/* A LeaveGroup may name hundreds of thousands of members, and a group may have given out thousands of
 * ids: looking through all for each blocked the loop for minutes. */
static void ids_given_out_are_found_without_looking_through_all(void)
{
    struct kg_group g;
    char id[32];
    kg_group_init(&g, KC_STR_LIT("g"), 0);
    for (int i = 0; i < KG_PENDING_MAX; i++) {
        snprintf(id, sizeof(id), "id-%010d", i);
        KT_TRUE(kg_pending_add(&g, kc_str_of(id), i));
    }
    KT_FALSE(kg_pending_add(&g, KC_STR_LIT("one more"), 0));
    int64_t before = kc_mono_ms();
    for (int i = 0; i < 300000; i++) {
        snprintf(id, sizeof(id), "no-%010d", i);
        KT_FALSE(kg_pending_remove(&g, kc_str_of(id)));
    }
    KT_TRUE(kc_mono_ms() - before < 3000);
    for (int i = 0; i < KG_PENDING_MAX; i += 2) { /* the last takes the place of the one removed */
        snprintf(id, sizeof(id), "id-%010d", i);
        KT_TRUE(kg_pending_remove(&g, kc_str_of(id)));
        KT_FALSE(kg_pending_has(&g, kc_str_of(id)));
    }
    for (int i = 1; i < KG_PENDING_MAX; i += 2) {
        snprintf(id, sizeof(id), "id-%010d", i);
        KT_TRUE(kg_pending_has(&g, kc_str_of(id)));
    }
    while (g.n_pending) {
        KT_TRUE(kg_pending_remove(&g, g.pending[g.n_pending / 2].id));
    }
    kg_group_fini(&g);
}

static void an_unknown_member_id_is_refused(void)
{
    struct fx f;
    fx_init(&f);
    fx_two_stable(&f);
    int x = fx_join(&f, (struct fx_join){.id = "nobody"});
    KT_EQ(fx_at(&f, x)->error, KAFKA_UNKNOWN_MEMBER_ID);
    KT_EQ(fx_at(&f, x)->generation, -1);
    fx_fini(&f);
}

static void a_full_group_refuses_the_next_member(void)
{
    struct fx f;
    fx_init(&f);
    f.cfg.max_size = 2;
    fx_two_stable(&f);
    int c = fx_join(&f, (struct fx_join){.new_id = "c"});
    KT_EQ(fx_at(&f, c)->error, KAFKA_GROUP_MAX_SIZE_REACHED);
    int a = fx_join(&f, (struct fx_join){.id = "b"});
    KT_EQ(fx_at(&f, a)->error, 0); /* an existing member may come back */
    fx_fini(&f);
}

static void a_group_above_a_lowered_limit_loses_the_last_to_rejoin(void)
{
    struct fx f;
    fx_init(&f);
    fx_two_stable(&f);
    f.cfg.max_size = 1;
    int a = fx_join(&f, (struct fx_join){.id = "a"});
    int b = fx_join(&f, (struct fx_join){.id = "b"});
    KT_EQ(fx_at(&f, b)->error, KAFKA_GROUP_MAX_SIZE_REACHED);
    KT_EQ(fx_at(&f, a)->generation, 2);
    KT_EQ(f.group.n_members, 1);
    fx_fini(&f);
}

static void a_join_repeated_while_parked_ends_the_older_request(void)
{
    struct fx f;
    fx_init(&f);
    fx_two_stable(&f);
    int first = fx_join(&f, (struct fx_join){.id = "a"});
    int again = fx_join(&f, (struct fx_join){.id = "a"});
    KT_EQ(fx_at(&f, first)->error, KAFKA_REBALANCE_IN_PROGRESS);
    KT_EQ(fx_at(&f, again)->count, 0);
    fx_fini(&f);
}

KT_MAIN("group join", KT(the_first_member_waits_out_the_initial_delay),
        KT(a_member_that_arrives_during_the_delay_extends_it),
        KT(the_extended_delay_never_exceeds_the_rebalance_timeout),
        KT(two_members_get_what_the_leader_assigned),
        KT(a_follower_that_syncs_late_gets_its_assignment),
        KT(members_the_leader_left_out_get_nothing),
        KT(the_protocol_all_support_with_most_votes_wins),
        KT(protocols_nobody_shares_are_inconsistent), KT(from_v4_a_new_member_is_given_an_id_first),
        KT(an_id_that_is_never_used_is_forgotten_after_the_session_timeout),
        KT(a_rebalance_waits_for_ids_given_out), KT(a_pending_id_that_leaves_ends_the_wait),
        KT(ids_given_out_are_found_without_looking_through_all),
        KT(an_unknown_member_id_is_refused), KT(a_full_group_refuses_the_next_member),
        KT(a_group_above_a_lowered_limit_loses_the_last_to_rejoin),
        KT(a_join_repeated_while_parked_ends_the_older_request))
