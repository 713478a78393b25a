/* Rebalances, sessions, heartbeats, leaving, commits by state. */
#include "kt.h"
#include "step_fix.h"

static void heartbeats_are_answered_by_state(void)
{
    struct fx f;
    fx_init(&f);
    fx_join(&f, (struct fx_join){.new_id = "a"});
    KT_EQ(f.group.state, KG_COMPLETING);
    KT_EQ(fx_beat(&f, "a", 1), 0);
    fx_sync(&f, "a", 1, "a=1");
    KT_EQ(fx_beat(&f, "a", 1), 0);
    KT_EQ(fx_beat(&f, "a", 2), KAFKA_ILLEGAL_GENERATION);
    KT_EQ(fx_beat(&f, "x", 1), KAFKA_UNKNOWN_MEMBER_ID);
    fx_join(&f, (struct fx_join){.new_id = "b"});
    KT_EQ(f.group.state, KG_PREPARING);
    KT_EQ(fx_beat(&f, "a", 1), KAFKA_REBALANCE_IN_PROGRESS);
    fx_fini(&f);
}

static void a_silent_member_expires_and_the_others_rebalance(void)
{
    struct fx f;
    fx_init(&f);
    fx_two_stable(&f);
    fx_pass(&f, 6000);
    KT_EQ(fx_beat(&f, "a", 1), 0);
    fx_pass(&f, 4000); /* b is silent for its 10 s */
    KT_EQ(f.group.n_members, 1);
    KT_EQ(f.group.state, KG_PREPARING);
    KT_EQ(fx_beat(&f, "a", 1), KAFKA_REBALANCE_IN_PROGRESS);
    int a = fx_join(&f, (struct fx_join){.id = "a"});
    KT_EQ(fx_at(&f, a)->generation, 2);
    KT_EQ(fx_at(&f, a)->n_members, 1);
    fx_fini(&f);
}

static void a_group_that_loses_its_last_member_is_stored_empty(void)
{
    struct fx f;
    fx_init(&f);
    fx_two_stable(&f);
    fx_pass(&f, 10000);
    KT_EQ(f.group.state, KG_EMPTY);
    KT_EQ(f.group.generation, 2);
    KT_EQ(f.persist, KG_PERSIST_EMPTY);
    KT_EQ(f.persist_generation, 2);
    KT_TRUE(f.group.wake_ms == INT64_MAX);
    fx_fini(&f);
}

static void parked_members_do_not_expire(void)
{
    struct fx f;
    fx_init(&f);
    fx_two_stable(&f);
    int a = fx_join(&f, (struct fx_join){.id = "a"});
    for (int i = 0; i < 5; i++) { /* b goes on with heartbeats but does not rejoin yet */
        fx_pass(&f, 9000);
        KT_EQ(fx_beat(&f, "b", 1), KAFKA_REBALANCE_IN_PROGRESS);
    }
    KT_EQ(fx_at(&f, a)->count, 0);
    KT_EQ(f.group.n_members, 2);
    fx_join(&f, (struct fx_join){.id = "b"});
    KT_EQ(fx_at(&f, a)->generation, 2);
    fx_fini(&f);
}

static void whoever_does_not_rejoin_within_the_rebalance_timeout_is_out(void)
{
    struct fx f;
    fx_init(&f);
    fx_two_stable(&f);
    int a = fx_join(&f, (struct fx_join){.id = "a"});
    for (int i = 0; i < 7; i++) {
        fx_pass(&f, 9000);
        fx_beat(&f, "b", 1);
    }
    KT_EQ(fx_at(&f, a)->generation, 2);
    KT_EQ(fx_at(&f, a)->n_members, 1);
    KT_EQ(f.group.n_members, 1);
    fx_fini(&f);
}

static void another_leader_is_found_when_the_leader_does_not_rejoin(void)
{
    struct fx f;
    fx_init(&f);
    fx_two_stable(&f);
    int b = fx_join(&f, (struct fx_join){.id = "b", .protocols = "range:new"});
    KT_EQ(f.group.state, KG_PREPARING);
    fx_pass(&f, 60000);
    KT_STR(fx_at(&f, b)->leader, "b");
    KT_EQ(fx_at(&f, b)->n_members, 1);
    fx_fini(&f);
}

static void a_member_that_never_syncs_is_removed_after_the_rebalance_timeout(void)
{
    struct fx f;
    fx_init(&f);
    fx_two_joined(&f);
    int sa = fx_sync(&f, "a", 1, "a=1,b=2");
    KT_STR(fx_at(&f, sa)->assignment, "1");
    for (int i = 0; i < 7; i++) {
        fx_pass(&f, 9000);
        fx_beat(&f, "a", 1);
        fx_beat(&f, "b", 1);
    }
    KT_EQ(f.group.n_members, 1);
    KT_EQ(f.group.state, KG_PREPARING);
    fx_fini(&f);
}

static void a_rebalance_sends_waiting_syncs_back_to_join(void)
{
    struct fx f;
    fx_init(&f);
    fx_two_joined(&f);
    int sb = fx_sync(&f, "b", 1, NULL);
    fx_join(&f, (struct fx_join){.new_id = "c"});
    KT_EQ(fx_at(&f, sb)->error, KAFKA_REBALANCE_IN_PROGRESS);
    int sa = fx_sync(&f, "a", 1, "a=1");
    KT_EQ(fx_at(&f, sa)->error, KAFKA_REBALANCE_IN_PROGRESS);
    fx_fini(&f);
}

static void sync_is_checked(void)
{
    struct fx f;
    fx_init(&f);
    fx_two_stable(&f);
    KT_EQ(fx_at(&f, fx_sync(&f, "a", 7, NULL))->error, KAFKA_ILLEGAL_GENERATION);
    KT_EQ(fx_at(&f, fx_sync(&f, "x", 1, NULL))->error, KAFKA_UNKNOWN_MEMBER_ID);
    KT_STR(fx_at(&f, fx_sync(&f, "b", 1, NULL))->assignment, "2"); /* a repeat */
    fx_fini(&f);
}

static void nobody_hears_an_assignment_before_it_is_durable(void)
{
    struct fx f;
    fx_init(&f);
    f.auto_persist = false;
    fx_join(&f, (struct fx_join){.new_id = "a"});
    int s = fx_sync(&f, "a", 1, "a=1");
    KT_EQ(f.persist, KG_PERSIST_ASSIGNMENT);
    KT_EQ(fx_at(&f, s)->count, 0);
    KT_EQ(f.group.state, KG_COMPLETING);
    fx_persisted(&f, 0);
    KT_STR(fx_at(&f, s)->assignment, "1");
    KT_EQ(f.group.state, KG_STABLE);
    fx_fini(&f);
}

static void an_assignment_that_cannot_be_stored_starts_over(void)
{
    struct fx f;
    fx_init(&f);
    f.auto_persist = false;
    fx_join(&f, (struct fx_join){.new_id = "a"});
    int s = fx_sync(&f, "a", 1, "a=1");
    fx_persisted(&f, KAFKA_NOT_COORDINATOR);
    KT_EQ(fx_at(&f, s)->error, KAFKA_NOT_COORDINATOR);
    KT_EQ(f.group.state, KG_PREPARING);
    fx_fini(&f);
}

static void an_assignment_overtaken_by_a_join_is_void(void)
{
    struct fx f;
    fx_init(&f);
    f.auto_persist = false;
    fx_join(&f, (struct fx_join){.new_id = "a"});
    int s = fx_sync(&f, "a", 1, "a=1");
    fx_join(&f, (struct fx_join){.new_id = "b"});
    KT_EQ(fx_at(&f, s)->error, KAFKA_REBALANCE_IN_PROGRESS);
    fx_persisted(&f, 0);
    KT_EQ(f.group.state, KG_PREPARING);
    fx_fini(&f);
}

static void a_follower_that_rejoins_unchanged_disturbs_nobody(void)
{
    struct fx f;
    fx_init(&f);
    fx_two_stable(&f);
    int b = fx_join(&f, (struct fx_join){.id = "b"});
    KT_EQ(fx_at(&f, b)->generation, 1);
    KT_EQ(fx_at(&f, b)->n_members, 0);
    KT_EQ(f.group.state, KG_STABLE);
    fx_fini(&f);
}

static void changed_metadata_or_the_leader_rejoining_starts_a_rebalance(void)
{
    struct fx f;
    fx_init(&f);
    fx_two_stable(&f);
    fx_join(&f, (struct fx_join){.id = "b", .protocols = "range:other"});
    KT_EQ(f.group.state, KG_PREPARING);
    int a = fx_join(&f, (struct fx_join){.id = "a"});
    KT_EQ(fx_at(&f, a)->generation, 2);
    fx_sync(&f, "a", 2, "a=1,b=2");
    fx_join(&f, (struct fx_join){.id = "a"});
    KT_EQ(f.group.state, KG_PREPARING);
    fx_fini(&f);
}

/* KIP-429: what cooperative members carry is between them; bytes pass through untouched. */
static void cooperative_metadata_reaches_the_leader_unread(void)
{
    struct fx f;
    fx_init(&f);
    fx_join(&f, (struct fx_join){.new_id = "a", .protocols = "cooperative-sticky:v1 owned t-0"});
    KT_STR(fx_at(&f, 0)->first_metadata, "v1 owned t-0");
    int s = fx_sync(&f, "a", 1, "a=\x01\x02\xff");
    KT_STR(fx_at(&f, s)->assignment, "\x01\x02\xff");
    fx_fini(&f);
}

static void leaving_answers_by_member(void)
{
    struct fx f;
    fx_init(&f);
    fx_two_stable(&f);
    KT_EQ(fx_leave(&f, "x", NULL), KAFKA_UNKNOWN_MEMBER_ID);
    KT_EQ(fx_leave(&f, "", NULL), KAFKA_UNKNOWN_MEMBER_ID);
    KT_EQ(fx_leave(&f, "b", NULL), 0);
    KT_EQ(f.group.state, KG_PREPARING);
    KT_EQ(fx_leave(&f, "a", NULL), 0);
    KT_EQ(f.group.state, KG_EMPTY);
    KT_EQ(f.group.generation, 2);
    fx_fini(&f);
}

static void the_leader_that_leaves_is_succeeded(void)
{
    struct fx f;
    fx_init(&f);
    fx_two_stable(&f);
    fx_leave(&f, "a", NULL);
    int b = fx_join(&f, (struct fx_join){.id = "b"});
    KT_STR(fx_at(&f, b)->leader, "b");
    KT_EQ(fx_at(&f, b)->n_members, 1);
    fx_fini(&f);
}

static void commits_are_welcome_by_state(void)
{
    struct fx f;
    fx_init(&f);
    KT_EQ(fx_commit(&f, "", -1), 0); /* a simple consumer, an empty group */
    KT_EQ(fx_commit(&f, "a", 1), KAFKA_UNKNOWN_MEMBER_ID);
    fx_join(&f, (struct fx_join){.new_id = "a"});
    KT_EQ(fx_commit(&f, "a", 1), KAFKA_REBALANCE_IN_PROGRESS); /* no assignment yet */
    fx_sync(&f, "a", 1, "a=1");
    KT_EQ(fx_commit(&f, "a", 1), 0);
    KT_EQ(fx_commit(&f, "a", 0), KAFKA_ILLEGAL_GENERATION);
    KT_EQ(fx_commit(&f, "x", 1), KAFKA_UNKNOWN_MEMBER_ID);
    KT_EQ(fx_commit(&f, "", -1), KAFKA_UNKNOWN_MEMBER_ID); /* only members now */
    fx_join(&f, (struct fx_join){.new_id = "b"});
    KT_EQ(fx_commit(&f, "a", 1), 0); /* the last commit before rejoining */
    fx_fini(&f);
}

static void a_new_member_that_never_returns_is_dropped_after_five_minutes(void)
{
    struct fx f;
    fx_init(&f);
    fx_two_stable(&f);
    int c = fx_join(&f, (struct fx_join){.new_id = "c", .rebalance_ms = 3600000});
    for (int i = 0; i < 60 && fx_at(&f, c)->count == 0; i++) {
        fx_pass(&f, 6000);
        fx_beat(&f, "a", 1);
        fx_beat(&f, "b", 1);
    }
    KT_EQ(fx_at(&f, c)->error, KAFKA_UNKNOWN_MEMBER_ID);
    KT_EQ(f.group.n_members, 2);
    fx_fini(&f);
}

/* Whatever clients do, every request is answered exactly once and the invariants hold. */
static void random_histories_answer_every_request_once(void)
{
    uint64_t seed = kt_seed();
    static const char *const ids[] = {"a", "b", "c", "d"};
    static const char *const protos[] = {"range:1", "range:1,rr:2", "rr:2,range:3", "range:9"};
    for (int round = 0; round < 300; round++) {
        struct fx f;
        fx_init(&f);
        f.cfg.initial_delay_ms = round % 2 ? 500 : 0;
        f.cfg.max_size = round % 3 ? 100 : 3;
        while (f.n_reqs < FX_REQS) {
            seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
            uint32_t r = (uint32_t)(seed >> 33);
            const char *id = ids[r % 4], *instance = (r >> 2) % 8 == 0 ? "i1" : NULL;
            struct fx_join j = {.id = (r >> 5) % 2 ? id : NULL,
                                .new_id = id,
                                .instance = instance,
                                .protocols = protos[(r >> 6) % 4],
                                .two_step = (r >> 8) % 2};
            f.auto_persist = (r >> 9) % 4 != 0;
            switch ((r >> 11) % 8) {
            case 0:
            case 1:
            case 2:
                if (j.id || !kg_member_find(&f.group, (struct kc_str){id, 1})) {
                    fx_join(&f, j);
                }
                break;
            case 3:
            case 4:
                fx_sync(&f, id, f.group.generation, "a=1,b=2,c=3,d=4");
                break;
            case 5:
                fx_leave(&f, id, NULL);
                break;
            case 6:
                fx_persisted(&f, (r >> 14) % 3 ? 0 : KAFKA_NOT_COORDINATOR);
                break;
            default:
                fx_beat(&f, id, f.group.generation);
                fx_pass(&f, (r >> 14) % 7000);
            }
            KT_TRUE(f.group.wake_ms > f.now);
            KT_EQ(f.group.leader.ptr != NULL, f.group.n_members > 0);
        }
        fx_fini(&f);
    }
}

KT_MAIN("group rebalance", KT(heartbeats_are_answered_by_state),
        KT(a_silent_member_expires_and_the_others_rebalance),
        KT(a_group_that_loses_its_last_member_is_stored_empty), KT(parked_members_do_not_expire),
        KT(whoever_does_not_rejoin_within_the_rebalance_timeout_is_out),
        KT(another_leader_is_found_when_the_leader_does_not_rejoin),
        KT(a_member_that_never_syncs_is_removed_after_the_rebalance_timeout),
        KT(a_rebalance_sends_waiting_syncs_back_to_join), KT(sync_is_checked),
        KT(nobody_hears_an_assignment_before_it_is_durable),
        KT(an_assignment_that_cannot_be_stored_starts_over),
        KT(an_assignment_overtaken_by_a_join_is_void),
        KT(a_follower_that_rejoins_unchanged_disturbs_nobody),
        KT(changed_metadata_or_the_leader_rejoining_starts_a_rebalance),
        KT(cooperative_metadata_reaches_the_leader_unread), KT(leaving_answers_by_member),
        KT(the_leader_that_leaves_is_succeeded), KT(commits_are_welcome_by_state),
        KT(a_new_member_that_never_returns_is_dropped_after_five_minutes),
        KT(random_histories_answer_every_request_once))
