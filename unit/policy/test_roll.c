#include "kt.h"

#include "policy/kp_ready.h"
#include "policy/kp_roll.h"

/* H (R57-R60) and design.md, 7; then readiness F (R37-R45). */
static const struct kp_roll_pod OLD = {false, true, true, false, 0},
                                OLD_DOWN = {false, false, false, false, 0},
                                NEW = {true, true, true, false, 0},
                                NEW_YOUNG = {true, true, false, false, 0},
                                NEW_DOWN = {true, false, false, false, 0};

static struct kp_roll_out roll(struct kp_roll_pod a, struct kp_roll_pod b, struct kp_roll_pod c,
                               int32_t partition, bool failback, bool force)
{
    struct kp_roll_pod pods[3] = {a, b, c};
    struct kp_roll_in in = {3, pods, partition, failback, force};
    struct kp_roll_out out;
    kp_roll(&in, &out);
    return out;
}

static void R57_R59_one_at_a_time_from_the_top(void)
{
    struct kp_roll_out o = roll(OLD, OLD, OLD, 3, true, false);
    KT_EQ(o.partition, 2);
    KT_EQ(o.why, KP_ROLL_OPEN);
    o = roll(OLD, OLD, OLD, 2, true, false); /* the pod is not replaced yet */
    KT_EQ(o.partition, 2);
    KT_EQ(o.why, KP_ROLL_REPLACING);
    o = roll(OLD, OLD, NEW_DOWN, 2, true, false);
    KT_EQ(o.partition, 2);
    KT_EQ(o.why, KP_ROLL_UNAVAILABLE);
    KT_EQ(o.broker, 2);
    o = roll(OLD, OLD, NEW_YOUNG, 2, true, false); /* R59: minReadySeconds */
    KT_EQ(o.partition, 2);
    o = roll(OLD, OLD, NEW, 2, false, false);
    KT_EQ(o.partition, 2);
    KT_EQ(o.why, KP_ROLL_FAILBACK);
    o = roll(OLD, OLD, NEW, 2, true, false);
    KT_EQ(o.partition, 1);
    o = roll(NEW, NEW, NEW, 0, true, false);
    KT_EQ(o.why, KP_ROLL_DONE);
    o = roll(NEW_YOUNG, NEW, NEW, 0, true, false);
    KT_EQ(o.why, KP_ROLL_UNAVAILABLE);
}

static void R60_a_pod_that_never_turns_ready_halts_the_rollout(void)
{
    for (int i = 0; i < 100; i++) {
        struct kp_roll_out o = roll(OLD, OLD, NEW_DOWN, 2, true, false);
        KT_EQ(o.partition, 2);
    }
}

/* It is told as halted after a while; sooner where the container itself says that it cannot run. */
static void R60_a_halt_is_told_after_a_bounded_time(void)
{
    struct kp_roll_pod down = NEW_DOWN;
    for (int failing = 0; failing < 2; failing++) {
        int64_t bound = failing ? KP_ROLL_FAILING_MS : KP_ROLL_HALT_MS;
        down.failing = failing;
        down.down_ms = bound - 1;
        KT_FALSE(roll(OLD, OLD, down, 2, true, false).halted);
        down.down_ms = bound;
        struct kp_roll_out o = roll(OLD, OLD, down, 2, true, false);
        KT_TRUE(o.halted);
        KT_EQ(o.broker, 2);
        KT_EQ(o.why, KP_ROLL_UNAVAILABLE);
        KT_TRUE(roll(down, NEW, NEW, 0, true, false).halted); /* the last one */
        down.updated = false; /* a corrected template takes the broken pod first: on it goes */
        KT_FALSE(roll(OLD, OLD, down, 3, true, false).halted);
        KT_TRUE(roll(OLD, OLD, down, 2, true, false).halted); /* but it is not replaced */
        down.updated = true;
    }
    struct kp_roll_pod young = NEW_YOUNG; /* it serves: minReadySeconds is no halt */
    young.down_ms = INT64_MAX;
    KT_FALSE(roll(OLD, OLD, young, 2, true, false).halted);
}

static void a_pod_that_does_not_serve_is_replaced_at_once(void)
{
    struct kp_roll_out o = roll(OLD, OLD, OLD_DOWN, 3, false, false);
    KT_EQ(o.partition, 2);
    o = roll(OLD_DOWN, OLD_DOWN, OLD_DOWN, 3, false, false); /* a bad first image */
    KT_EQ(o.partition, 2);
    o = roll(OLD_DOWN, OLD_DOWN, NEW_DOWN, 2, false,
             false); /* again a bad one: still correctable */
    KT_EQ(o.partition, 1);
}

static void an_outdated_unserving_pod_below_a_serving_one_blocks_unless_forced(void)
{
    struct kp_roll_out o = roll(OLD_DOWN, OLD, OLD, 3, true, false);
    KT_EQ(o.partition, 3);
    KT_EQ(o.why, KP_ROLL_UNSERVING);
    KT_EQ(o.broker, 0);
    o = roll(OLD_DOWN, OLD, OLD, 3, true, true);
    KT_EQ(o.partition, 2);
}

static void R37_every_term_counts(void)
{
    struct kp_ready_facts f = {
        .listeners_bound = true, .main_alive = true, .clustered = true, .serving = true};
    KT_EQ(kp_ready_terms(&f), 0);
    f.storage_stalled = true; /* each alone */
    KT_EQ(kp_ready_terms(&f), KP_UNREADY_STORAGE);
    f.storage_stalled = f.main_alive = false;
    KT_EQ(kp_ready_terms(&f), KP_UNREADY_MAIN);
    f.main_alive = true;
    f.listeners_bound = false;
    KT_EQ(kp_ready_terms(&f), KP_UNREADY_LISTENERS);
    f.listeners_bound = true;
    f.serving = false;
    KT_EQ(kp_ready_terms(&f), KP_UNREADY_SERVING);
    f = (struct kp_ready_facts){.storage_stalled = true, .clustered = true};
    KT_EQ(kp_ready_terms(&f),
          KP_UNREADY_LISTENERS | KP_UNREADY_MAIN | KP_UNREADY_STORAGE | KP_UNREADY_SERVING);
}

static void R38_R58_a_restarted_broker_with_homes_waiting_does_not_serve(void)
{
    struct kp_serving_facts f = {.unopened_ms = -1};
    KT_EQ(kp_serving_terms(&f, 0), KP_UNREADY_IMAGE);
    f.image_lists_self = true;
    f.boot_left = 3;
    KT_EQ(kp_serving_terms(&f, 0), KP_UNREADY_TAKEOVER);
    f.boot_left = 0; /* also when it is assigned none */
    KT_EQ(kp_serving_terms(&f, 0), 0);
}

static void R43_a_self_led_broker_needs_no_takeover(void)
{
    struct kp_ready_facts f = {.listeners_bound = true, .main_alive = true};
    KT_EQ(kp_ready_terms(&f), 0);
}

static void R45_after_the_latch_only_ten_seconds_unopened_count(void)
{
    struct kp_serving_facts f = {
        .image_lists_self = true, .latched = true, .boot_left = 5, .unopened_ms = 1000};
    KT_EQ(kp_serving_terms(&f, 11000), 0);
    KT_EQ(kp_serving_terms(&f, 11001), KP_UNREADY_UNOPENED);
    f.unopened_ms = -1;
    KT_EQ(kp_serving_terms(&f, 99000), 0);
}

KT_MAIN("roll", KT(R57_R59_one_at_a_time_from_the_top),
        KT(R60_a_pod_that_never_turns_ready_halts_the_rollout),
        KT(R60_a_halt_is_told_after_a_bounded_time),
        KT(a_pod_that_does_not_serve_is_replaced_at_once),
        KT(an_outdated_unserving_pod_below_a_serving_one_blocks_unless_forced),
        KT(R37_every_term_counts), KT(R38_R58_a_restarted_broker_with_homes_waiting_does_not_serve),
        KT(R43_a_self_led_broker_needs_no_takeover),
        KT(R45_after_the_latch_only_ten_seconds_unopened_count))
