/* Static membership (KIP-345, KIP-814). */
#include "kt.h"
#include "step_fix.h"

/* Leader "a" of instance i1 and follower "b" of instance i2, stable in generation 1. */
static void two_static(struct fx *f)
{
    f->cfg.initial_delay_ms = 100;
    fx_join(f, (struct fx_join){.new_id = "a", .instance = "i1", .two_step = true});
    fx_join(f, (struct fx_join){.new_id = "b", .instance = "i2", .two_step = true});
    fx_pass(f, 200);
    fx_sync(f, "b", 1, NULL);
    fx_sync(f, "a", 1, "a=1,b=2");
    KT_EQ(f->group.state, KG_STABLE);
}

static void a_static_member_needs_no_second_step(void)
{
    struct fx f;
    fx_init(&f);
    two_static(&f);
    KT_EQ(fx_at(&f, 0)->error, 0);
    KT_EQ(fx_at(&f, 0)->generation, 1);
    fx_fini(&f);
}

static void a_restarted_follower_takes_its_place_back_without_a_rebalance(void)
{
    struct fx f;
    fx_init(&f);
    two_static(&f);
    f.auto_persist = false;
    int b2 = fx_join(&f, (struct fx_join){.new_id = "b2", .instance = "i2", .can_skip = true});
    KT_EQ(fx_at(&f, b2)->count, 0); /* first the new id must be durable */
    KT_EQ(f.persist, KG_PERSIST_STATIC);
    KT_STR(f.persist_member, "b2");
    fx_persisted(&f, 0);
    KT_EQ(fx_at(&f, b2)->generation, 1);
    KT_STR(fx_at(&f, b2)->leader, "a");
    KT_FALSE(fx_at(&f, b2)->skip);
    KT_EQ(f.group.state, KG_STABLE);
    int s = fx_sync(&f, "b2", 1, NULL);
    KT_STR(fx_at(&f, s)->assignment, "2");
    fx_fini(&f);
}

static void the_replaced_process_is_fenced(void)
{
    struct fx f;
    fx_init(&f);
    two_static(&f);
    fx_join(&f, (struct fx_join){.new_id = "b2", .instance = "i2"});
    struct kg_who old = {KC_STR_LIT("b"), KC_STR_LIT("i2"), 1};
    KT_EQ(kg_heartbeat(&f.group, &f.step, &old), KAFKA_FENCED_INSTANCE_ID);
    KT_EQ(kg_may_commit(&f.group, &f.step, &old), KAFKA_FENCED_INSTANCE_ID);
    KT_EQ(kg_leave(&f.group, &f.step, &old), KAFKA_FENCED_INSTANCE_ID);
    int j = fx_join(&f, (struct fx_join){.id = "b", .instance = "i2"});
    KT_EQ(fx_at(&f, j)->error, KAFKA_FENCED_INSTANCE_ID);
    fx_fini(&f);
}

static void a_restarted_leader_is_told_to_skip_the_assignment_from_v9(void)
{
    struct fx f;
    fx_init(&f);
    two_static(&f);
    int a2 = fx_join(&f, (struct fx_join){.new_id = "a2", .instance = "i1", .can_skip = true});
    KT_TRUE(fx_at(&f, a2)->skip);
    KT_STR(fx_at(&f, a2)->leader, "a2");
    KT_EQ(fx_at(&f, a2)->n_members, 2);
    fx_fini(&f);
}

static void a_restarted_leader_below_v9_does_not_learn_that_it_leads(void)
{
    struct fx f;
    fx_init(&f);
    two_static(&f);
    int a2 = fx_join(&f, (struct fx_join){.new_id = "a2", .instance = "i1"});
    KT_STR(fx_at(&f, a2)->leader, "a");
    KT_EQ(fx_at(&f, a2)->n_members, 0);
    KT_EQ(f.group.state, KG_STABLE);
    fx_fini(&f);
}

static void a_static_member_back_with_other_protocols_that_change_the_vote_rebalances(void)
{
    struct fx f;
    fx_init(&f);
    f.cfg.initial_delay_ms = 0;
    fx_join(&f, (struct fx_join){.new_id = "a", .instance = "i1", .protocols = "range:1,rr:1"});
    fx_sync(&f, "a", 1, "a=1");
    int a2 = fx_join(
        &f, (struct fx_join){.new_id = "a2", .instance = "i1", .protocols = "rr:1,range:1"});
    KT_EQ(fx_at(&f, a2)->generation, 2);
    KT_STR(fx_at(&f, a2)->protocol, "rr");
    fx_fini(&f);
}

static void a_duplicate_of_a_parked_static_member_fences_it(void)
{
    struct fx f;
    fx_init(&f);
    f.cfg.initial_delay_ms = 1000;
    int first = fx_join(&f, (struct fx_join){.new_id = "a", .instance = "i1"});
    int twin = fx_join(&f, (struct fx_join){.new_id = "a2", .instance = "i1"});
    KT_EQ(fx_at(&f, first)->error, KAFKA_FENCED_INSTANCE_ID);
    fx_pass(&f, 2000);
    KT_STR(fx_at(&f, twin)->member, "a2");
    KT_EQ(fx_at(&f, twin)->generation, 1);
    KT_EQ(f.group.n_members, 1);
    fx_fini(&f);
}

static void a_static_member_that_is_away_survives_a_rebalance(void)
{
    struct fx f;
    fx_init(&f);
    f.cfg.initial_delay_ms = 100;
    fx_join(&f, (struct fx_join){
                    .new_id = "a", .instance = "i1", .session_ms = 120000, .rebalance_ms = 30000});
    fx_join(&f, (struct fx_join){.new_id = "b", .rebalance_ms = 30000});
    fx_pass(&f, 300);
    fx_sync(&f, "b", 1, NULL);
    fx_sync(&f, "a", 1, "a=1,b=2");
    int b = fx_join(&f, (struct fx_join){.id = "b", .protocols = "range:y", .rebalance_ms = 30000});
    fx_pass(&f, 30000); /* a never rejoined; its session goes on */
    KT_EQ(fx_at(&f, b)->generation, 2);
    KT_STR(fx_at(&f, b)->leader, "b");
    KT_EQ(fx_at(&f, b)->n_members, 2);
    fx_fini(&f);
}

static void an_administrator_removes_a_member_by_instance_id(void)
{
    struct fx f;
    fx_init(&f);
    two_static(&f);
    KT_EQ(fx_leave(&f, "", "nope"), KAFKA_UNKNOWN_MEMBER_ID);
    KT_EQ(fx_leave(&f, "", "i2"), 0);
    KT_EQ(f.group.n_members, 1);
    KT_EQ(f.group.state, KG_PREPARING);
    fx_fini(&f);
}

static void a_new_id_that_cannot_be_stored_is_not_handed_out(void)
{
    struct fx f;
    fx_init(&f);
    two_static(&f);
    f.auto_persist = false;
    int b2 = fx_join(&f, (struct fx_join){.new_id = "b2", .instance = "i2"});
    fx_persisted(&f, KAFKA_NOT_COORDINATOR);
    KT_EQ(fx_at(&f, b2)->error, KAFKA_NOT_COORDINATOR);
    KT_STR(fx_at(&f, b2)->member, "");
    f.auto_persist = true;
    int b3 = fx_join(&f, (struct fx_join){.new_id = "b3", .instance = "i2"});
    KT_EQ(fx_at(&f, b3)->generation, 1);
    fx_fini(&f);
}

KT_MAIN("static members", KT(a_static_member_needs_no_second_step),
        KT(a_restarted_follower_takes_its_place_back_without_a_rebalance),
        KT(the_replaced_process_is_fenced),
        KT(a_restarted_leader_is_told_to_skip_the_assignment_from_v9),
        KT(a_restarted_leader_below_v9_does_not_learn_that_it_leads),
        KT(a_static_member_back_with_other_protocols_that_change_the_vote_rebalances),
        KT(a_duplicate_of_a_parked_static_member_fences_it),
        KT(a_static_member_that_is_away_survives_a_rebalance),
        KT(an_administrator_removes_a_member_by_instance_id),
        KT(a_new_id_that_cannot_be_stored_is_not_handed_out))
