#include "kpt.h"
#include "kt.h"

/* Planned moves (design.md, 4), assignment, R14, R22, R26, and the blocked rule. */
static struct kpt w;

static const struct kp_part *part(int32_t t, int32_t i)
{
    int32_t n;
    return &kp_ctl_parts(w.c, &w.topics[t].id, &n)[i];
}

static int32_t count_assigned(int32_t id)
{
    int32_t n = 0;
    for (int32_t t = 0; t < w.n_topics; t++) {
        for (int32_t i = 0; i < w.topics[t].n_parts; i++) {
            n += part(t, i)->assigned == id;
        }
    }
    return n;
}

static int32_t count_phase(enum kp_phase phase)
{
    int32_t n = 0;
    for (int32_t t = 0; t < w.n_topics; t++) {
        for (int32_t i = 0; i < w.topics[t].n_parts; i++) {
            n += part(t, i)->move.id && part(t, i)->move.phase == phase;
        }
    }
    return n;
}

static void homes_are_even_and_each_topic_is_spread(void)
{
    kpt_init(&w, 4);
    for (int i = 0; i < 20; i++) {
        kpt_topic(&w, 1 + i % 9);
    }
    kpt_start_settled(&w, 4);
    int32_t total[4] = {0};
    for (int32_t t = 0; t < w.n_topics; t++) {
        int32_t in[4] = {0};
        for (int32_t i = 0; i < w.topics[t].n_parts; i++) {
            in[part(t, i)->home]++;
            total[part(t, i)->home]++;
        }
        for (int a = 0; a < 4; a++) {
            for (int b = 0; b < 4; b++) {
                KT_TRUE(in[a] - in[b] <= 1);
            }
        }
    }
    for (int a = 0; a < 4; a++) {
        for (int b = 0; b < 4; b++) {
            KT_TRUE(total[a] - total[b] <= 2);
        }
    }
    kpt_fini(&w);
}

static void death_moves_only_the_dead_brokers_partitions_and_spreads_them(void)
{
    kpt_begin(&w, 4, 200);
    int32_t before[200];
    for (int i = 0; i < 200; i++) {
        before[i] = part(0, i)->assigned;
    }
    kpt_kill(&w, 3);
    kpt_run(&w, 3000);
    for (int i = 0; i < 200; i++) {
        KT_TRUE(before[i] == 3 ? part(0, i)->assigned != 3 : part(0, i)->assigned == before[i]);
        KT_EQ(part(0, i)->home, before[i]); /* homes do not follow death */
    }
    for (int id = 0; id < 3; id++) {
        KT_TRUE(count_assigned(id) >= 66 && count_assigned(id) <= 67);
    }
    kpt_fini(&w);
}

static void scale_out_moves_its_share_and_keeps_the_rest(void)
{
    kpt_begin(&w, 3, 120);
    kpt_topic(&w, 1);
    KT_TRUE(kpt_await_settled(&w, 10000));
    int32_t before[120], moved = 0;
    for (int i = 0; i < 120; i++) {
        before[i] = part(0, i)->assigned;
    }
    kpt_desired(&w, 4);
    kpt_new_pod(&w, 3);
    KT_TRUE(kpt_await_settled(&w, 60000));
    for (int i = 0; i < 120; i++) {
        if (part(0, i)->assigned != before[i]) {
            moved++;
            KT_EQ(part(0, i)->assigned, 3);
        }
    }
    KT_EQ(moved, 30);
    kpt_fini(&w);
}

static void failback_prepares_at_once_and_releases_after_ten_seconds_of_serving(void)
{
    kpt_begin(&w, 3, 60);
    kpt_crash(&w, 2, 5000);
    kpt_run(&w, 1500);
    KT_EQ(count_phase(KP_MOVE_PREPARE), 20);
    for (int i = 0; i < 60; i++) {
        KT_TRUE(part(0, i)->move.id == 0 || part(0, i)->move.deadline_ms == 0);
    }
    kpt_run(&w, 8000);
    KT_EQ(count_phase(KP_MOVE_PREPARE), 20);
    KT_EQ(count_assigned(2), 0);
    kpt_run(&w, 5000);
    KT_EQ(count_assigned(2), 20);
    KT_TRUE(kpt_await_settled(&w, 5000));
    kpt_fini(&w);
}

static void hold_down_doubles_with_each_crash(void)
{
    kpt_begin(&w, 2, 10);
    int64_t hold[4];
    for (int k = 0; k < 4; k++) {
        kpt_crash(&w, 1, 3000);
        int64_t start = w.now;
        KT_TRUE(kpt_await_settled(&w, 200000));
        hold[k] = w.now - start;
    }
    KT_TRUE(hold[0] >= 10000 && hold[0] < 13000);
    for (int k = 1; k < 4; k++) {
        KT_TRUE(hold[k] > 10000 * (1 << k) && hold[k] < 10000 * (1 << k) + 3000);
    }
    kpt_fini(&w);
}

static void who_leaves_in_order_is_forgiven_its_crashes(void)
{
    int64_t start = 0;
    kpt_begin(&w, 2, 10);
    for (int k = 0; k < 4; k++) {
        kpt_crash(&w, 1, 3000);
        start = w.now;
        KT_TRUE(kpt_await_settled(&w, 200000));
    }
    KT_TRUE(w.now - start > 80000);
    w.b[1].draining = true;
    kpt_run(&w, 20000);
    KT_EQ(count_assigned(1), 0);
    kpt_crash(&w, 1, 3000); /* its process ends, and another begins */
    start = w.now;
    KT_TRUE(kpt_await_settled(&w, 200000));
    KT_TRUE(w.now - start < 15000);
    kpt_fini(&w);
}

/* Lets broker 1 drain for so long; the most moves that were under way at once. */
static int32_t most_under_way(int64_t ms)
{
    int32_t most = 0;
    for (int64_t until = w.now + ms; w.now < until;) {
        kpt_run(&w, KPT_TICK_MS);
        int32_t now = count_phase(KP_MOVE_RELEASE) + count_phase(KP_MOVE_GO);
        most = KC_MAX(most, now);
    }
    return most;
}

static void at_most_a_wave_per_pair_is_released_at_once(void)
{
    kpt_begin(&w, 2, 200);
    w.b[1].draining = true;
    KT_EQ(most_under_way(20000), 8);
    KT_EQ(count_assigned(1), 0);
    kpt_fini(&w);
}

static void waves_grow_where_a_drain_would_take_too_long(void)
{
    kpt_begin(&w, 2, 200);
    for (int i = 0; i < 5; i++) {
        kpt_topic(&w, 200);
    }
    KT_REQUIRE(kpt_await_settled(&w, 30000));
    KT_EQ(count_assigned(1), 600);
    w.b[1].draining = true;
    KT_EQ(most_under_way(9000), 8); /* there is time */
    KT_TRUE(count_assigned(1) > 200); /* the brokers of this world are slow */
    KT_EQ(most_under_way(6000), 16);
    KT_TRUE(most_under_way(9000) <= 16);
    KT_EQ(count_assigned(1), 0);
    kpt_fini(&w);
}

/* With less time, larger waves from the beginning. */
static void R29_a_short_grace_hurries_the_drain(void)
{
    kpt_begin(&w, 2, 200);
    for (int i = 0; i < 5; i++) {
        kpt_topic(&w, 200);
    }
    KT_REQUIRE(kpt_await_settled(&w, 30000));
    w.b[1].grace_s = 10;
    kpt_slices(&w);
    w.b[1].draining = true;
    KT_TRUE(most_under_way(2500) > 8);
    kpt_fini(&w);
}

/* A target that does not get warm is not waited for until the source is killed. */
static void R29_a_short_grace_shortens_the_wait_for_the_target(void)
{
    kpt_begin(&w, 2, 8);
    w.step_only = true; /* nobody prepares anything */
    w.b[1].grace_s = 10;
    kpt_slices(&w);
    for (int k = 0; k * KPT_TICK_MS < 2600; k++) {
        KT_EQ(count_phase(KP_MOVE_RELEASE), 0);
        for (int id = 0; id < 2; id++) {
            struct kp_status s = {.broker = id,
                                  .stream = w.b[id].stream,
                                  .incarnation = w.b[id].incarnation,
                                  .healthy = true,
                                  .draining = id == 1,
                                  .serving = true};
            kp_ctl_status(w.c, &s, w.now);
        }
        kpt_run(&w, KPT_TICK_MS);
    }
    kpt_run(&w, KPT_TICK_MS);
    KT_TRUE(count_phase(KP_MOVE_RELEASE) > 0);
    kpt_fini(&w);
}

static void R26_draining_hands_over_at_once_and_every_move_was_led_throughout(void)
{
    kpt_begin(&w, 3, 90);
    w.b[0].draining = true;
    for (int k = 0; k < 60; k++) {
        kpt_run(&w, KPT_TICK_MS);
        for (int i = 0; i < 90; i++) {
            KT_TRUE(part(0, i)->led >= 0); /* make before break: a name throughout */
            KT_TRUE(part(0, i)->assigned == part(0, i)->led || part(0, i)->move.id != 0);
        }
    }
    KT_EQ(count_assigned(0), 0);
    kpt_fini(&w);
}

static void a_move_is_relayed_only_after_it_is_published(void)
{
    kpt_begin(&w, 2, 4);
    w.publish_delay_ms = 1000;
    w.b[1].draining = true;
    struct kp_relay r[16];
    kpt_run(&w, 300);
    KT_TRUE(count_phase(KP_MOVE_PREPARE) > 0);
    KT_EQ(kp_ctl_relays(w.c, 0, r, 16), 0);
    kpt_run(&w, 1000);
    KT_TRUE(kpt_await_settled(&w, 1) || count_assigned(1) < 2);
    kpt_fini(&w);
}

static void a_source_that_never_releases_keeps_its_partition(void)
{
    kpt_begin(&w, 2, 8);
    kpt_crash(&w, 1, 3000);
    kpt_run(&w, 9000);
    w.step_only = true; /* nobody answers any order from here; streams stay fresh by hand */
    int32_t cancelled = 0;
    for (int k = 0; k < 100; k++) {
        for (int id = 0; id < 2; id++) {
            struct kp_status s = kpt_status(&w, id);
            kp_ctl_status(w.c, &s, w.now);
        }
        kpt_run(&w, KPT_TICK_MS);
        cancelled += count_phase(KP_MOVE_CANCEL);
    }
    KT_TRUE(cancelled > 0);
    KT_EQ(count_assigned(0), 8);
    KT_EQ(kpt_alive(&w), 2); /* a slow move fences nobody */
    w.step_only = false;
    KT_TRUE(kpt_await_settled(&w, 60000));
    kpt_fini(&w);
}

static void a_target_that_dies_after_go_gives_back_to_the_source(void)
{
    kpt_begin(&w, 2, 8);
    kpt_crash(&w, 1, 3000);
    for (int k = 0; k < 300 && count_phase(KP_MOVE_RELEASE) == 0; k++) {
        kpt_run(&w, KPT_TICK_MS);
    }
    KT_TRUE(count_phase(KP_MOVE_RELEASE) > 0);
    kpt_kill(&w, 1);
    kpt_run(&w, 5000);
    KT_EQ(count_assigned(0), 8);
    for (int i = 0; i < 8; i++) {
        KT_EQ(part(0, i)->led, 0);
    }
    kpt_fini(&w);
}

static void the_warm_target_takes_over_when_the_source_dies_in_prepare(void)
{
    kpt_begin(&w, 3, 60);
    kpt_crash(&w, 2, 3000);
    kpt_run(&w, 3000);
    KT_TRUE(count_phase(KP_MOVE_PREPARE) > 0);
    kpt_kill(&w, 0);
    kpt_run(&w, 2000);
    for (int i = 0; i < 60; i++) {
        if (part(0, i)->home == 2 && part(0, i)->assigned != 1) {
            KT_EQ(part(0, i)->assigned, 2);
        }
        KT_TRUE(part(0, i)->assigned != 0);
    }
    kpt_fini(&w);
}

static void blocked_by_a_live_owner_returns_the_partition_then_condemns_it(void)
{
    kpt_begin(&w, 2, 2);
    w.step_only = true;
    int32_t i = part(0, 0)->assigned == 1 ? 0 : 1; /* broker 1's, reported blocked by broker 0 */
    struct kp_blocked b = {{w.topics[0].id, i}, 0, w.b[0].incarnation};
    bool handed = false;
    int64_t start = w.now;
    while (w.now - start < 9000 && !kpt_row(&w, 0)->condemned) {
        for (int id = 0; id < 2; id++) {
            struct kp_status s = kpt_status(&w, id);
            if (id == 1 && !handed) {
                s.unled = &b.p;
                s.n_unled = 1;
                s.blocked = &b;
                s.n_blocked = 1;
            }
            kp_ctl_status(w.c, &s, w.now);
        }
        kpt_run(&w, KPT_TICK_MS);
        if (part(0, i)->assigned == 0 && !handed) {
            handed = true;
            KT_TRUE(w.now - start >= 3000 && w.now - start < 3500);
        }
    }
    KT_TRUE(handed);
    KT_TRUE(kpt_row(&w, 0)->condemned);
    KT_TRUE(w.now - start >= 6000 && w.now - start < 7000);
    kpt_fini(&w);
}

static void stale_and_foreign_reports_change_nothing(void)
{
    kpt_begin(&w, 2, 4);
    const struct kp_part before = *part(0, 0);
    struct kp_led old = {w.topics[0].id, 0, before.led_epoch - 1};
    struct kp_led wild[3] = {{{{99}}, 0, 5}, {w.topics[0].id, -1, 5}, {w.topics[0].id, 9999, 5}};
    struct kp_moved m = {{w.topics[0].id, 0}, 424242, 0};
    struct kp_status s = {.broker = 1 - before.led,
                          .stream = w.b[1 - before.led].stream,
                          .incarnation = w.b[1 - before.led].incarnation,
                          .healthy = true,
                          .led = &old,
                          .n_led = 1,
                          .prepared = &m,
                          .n_prepared = 1,
                          .released = &m,
                          .n_released = 1};
    kp_ctl_status(w.c, &s, w.now);
    KT_EQ(part(0, 0)->led, before.led);
    s.led = wild;
    s.n_led = 3;
    kp_ctl_status(w.c, &s, w.now);
    s.stream += 1000; /* not its stream */
    old.epoch = 50;
    s.led = &old;
    s.n_led = 1;
    kp_ctl_status(w.c, &s, w.now);
    KT_EQ(part(0, 0)->led, before.led);
    KT_EQ(part(0, 0)->led_epoch, before.led_epoch);
    kpt_fini(&w);
}

/* storage.md: after an error on a file the same incarnation claims again; the image follows. */
static void an_owner_that_claims_again_moves_the_led_epoch_on(void)
{
    kpt_begin(&w, 2, 4);
    const struct kp_part before = *part(0, 0);
    uint64_t generation = w.image.generation;
    w.topics[0].owner[0].epoch++;
    kpt_run(&w, 2000);
    KT_EQ(part(0, 0)->led, before.led);
    KT_EQ(part(0, 0)->led_epoch, before.led_epoch + 1);
    KT_EQ(w.image.parts[0][0].led_epoch, before.led_epoch + 1);
    KT_TRUE(w.image.generation > generation);
    KT_EQ(part(0, 0)->assigned, before.assigned);
    KT_EQ(part(0, 0)->move.id, 0);
    kpt_fini(&w);
}

static void the_fresh_mark_goes_when_every_partition_was_led(void)
{
    kpt_begin(&w, 2, 4);
    KT_FALSE(kp_ctl_topic_fresh(w.c, &w.topics[0].id));
    w.step_only = true;
    int32_t t = kpt_topic(&w, 3);
    kpt_run(&w, 200);
    KT_TRUE(kp_ctl_topic_fresh(w.c, &w.topics[t].id));
    w.step_only = false;
    kpt_run(&w, 2000);
    KT_FALSE(kp_ctl_topic_fresh(w.c, &w.topics[t].id));
    KT_EQ(kp_ctl_topic(w.c, &w.topics[t].id, false, KP_NOT_SLOTS, 5, true), 0);
    KT_TRUE(kp_ctl_topic_fresh(w.c, &w.topics[t].id));
    w.topics[t].n_parts = 5;
    KT_TRUE(kpt_await_settled(&w, 5000));
    KT_FALSE(kp_ctl_topic_fresh(w.c, &w.topics[t].id));
    KT_EQ(kp_ctl_topic(w.c, &w.topics[t].id, false, KP_NOT_SLOTS, 4, true), KC_E_REFUSED);
    kpt_fini(&w);
}

static void limits_refuse_and_deletion_gives_room_back(void)
{
    kpt_init(&w, 1);
    struct kc_uuid id = {{1}};
    KT_EQ(kp_ctl_topic(w.c, &id, false, KP_NOT_SLOTS, KPT_TOPICS * KPT_PARTS + 1, true),
          KC_E_TOO_LARGE);
    KT_EQ(kp_ctl_topic(w.c, &id, false, KP_NOT_SLOTS, KPT_TOPICS * KPT_PARTS, true), 0);
    struct kc_uuid other = {{2}};
    KT_EQ(kp_ctl_topic(w.c, &other, false, KP_NOT_SLOTS, 1, true), KC_E_TOO_LARGE);
    kp_ctl_topic_delete(w.c, &id);
    KT_EQ(kp_ctl_topic(w.c, &other, false, KP_NOT_SLOTS, 1, true), 0);
    KT_EQ(kp_ctl_topic(w.c, &id, false, KP_NOT_SLOTS, 1, true), KC_E_REFUSED); /* tombstone */
    kp_ctl_topic_forget(w.c, &id);
    int32_t n;
    KT_TRUE(kp_ctl_parts(w.c, &id, &n) == NULL);
    KT_EQ(n, 0);
    kpt_fini(&w);
}

static void a_tombstone_keeps_an_alive_assignee(void)
{
    kpt_begin(&w, 2, 2);
    int32_t first = part(0, 0)->assigned;
    kp_ctl_topic_delete(w.c, &w.topics[0].id);
    w.topics[0].deleted = true;
    kpt_run(&w, 1000);
    KT_EQ(part(0, 0)->assigned, first);
    kpt_kill(&w, first);
    kpt_run(&w, 2000);
    KT_EQ(part(0, 0)->assigned, 1 - first);
    kpt_fini(&w);
}

KT_MAIN("moves", KT(homes_are_even_and_each_topic_is_spread),
        KT(death_moves_only_the_dead_brokers_partitions_and_spreads_them),
        KT(scale_out_moves_its_share_and_keeps_the_rest),
        KT(failback_prepares_at_once_and_releases_after_ten_seconds_of_serving),
        KT(hold_down_doubles_with_each_crash), KT(who_leaves_in_order_is_forgiven_its_crashes),
        KT(at_most_a_wave_per_pair_is_released_at_once),
        KT(waves_grow_where_a_drain_would_take_too_long), KT(R29_a_short_grace_hurries_the_drain),
        KT(R29_a_short_grace_shortens_the_wait_for_the_target),
        KT(R26_draining_hands_over_at_once_and_every_move_was_led_throughout),
        KT(a_move_is_relayed_only_after_it_is_published),
        KT(a_source_that_never_releases_keeps_its_partition),
        KT(a_target_that_dies_after_go_gives_back_to_the_source),
        KT(the_warm_target_takes_over_when_the_source_dies_in_prepare),
        KT(blocked_by_a_live_owner_returns_the_partition_then_condemns_it),
        KT(stale_and_foreign_reports_change_nothing),
        KT(an_owner_that_claims_again_moves_the_led_epoch_on),
        KT(the_fresh_mark_goes_when_every_partition_was_led),
        KT(limits_refuse_and_deletion_gives_room_back), KT(a_tombstone_keeps_an_alive_assignee))
