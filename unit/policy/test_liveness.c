#include "kpt.h"
#include "kt.h"
#include "policy/kp_drain.h"

/* Rows through the life of brokers: B, D, G (R11-R15, R25-R29, R50-R53), W4-W6, and the holds of
 * design.md, 3. */
static struct kpt w;

static void begin(int32_t n)
{
    kpt_init(&w, n);
    kpt_slot_topic(&w, KP_GROUP_SLOTS);
    kpt_topic(&w, 30);
    kpt_start_settled(&w, n);
}

static int32_t led_by(int32_t id)
{
    int32_t n = 0;
    for (int32_t t = 0; t < w.n_topics; t++) {
        for (int32_t i = 0; i < w.topics[t].n_parts; i++) {
            n += kpt_leader(&w, t, i) == id;
        }
    }
    return n;
}

static void R1_R11_R12_R14_dead_keeps_its_row_and_leads_nothing(void)
{
    begin(3);
    kpt_kill(&w, 1);
    kpt_run(&w, 3000);
    const struct kp_row *r = kpt_row(&w, 1);
    KT_REQUIRE(r != NULL);
    KT_EQ(r->health, KP_DEAD);
    KT_EQ(r->state, KP_FENCED);
    KT_EQ(r->reason, KP_REASON_LOST);
    KT_TRUE(r->condemned);
    KT_EQ(led_by(1), 0); /* R14 */
    kpt_slices(&w); /* nor does the next word of its slice clean it up */
    KT_TRUE(kpt_row(&w, 1) != NULL);
    kpt_run(&w, 600000);
    KT_TRUE(kpt_row(&w, 1) != NULL);
    kpt_fini(&w);
}

static void R13_last_seen_is_frozen_and_survives_an_operator_change(void)
{
    begin(3);
    kpt_kill(&w, 2);
    kpt_run(&w, 5000);
    int64_t seen = kpt_row(&w, 2)->last_seen_ms;
    KT_TRUE(w.now + 5000000 - seen >= 5000);
    kpt_topic(&w, 5);
    kpt_run(&w, 30000);
    KT_EQ(kpt_row(&w, 2)->last_seen_ms, seen);
    kpt_operator_change(&w);
    kpt_run(&w, 30000);
    KT_EQ(kpt_row(&w, 2)->last_seen_ms, seen);
    KT_TRUE(w.now + 5000000 - kpt_row(&w, 0)->last_seen_ms < 2000);
    kpt_fini(&w);
}

static void R13_idle_rows_are_written_no_more_than_once_in_30_s(void)
{
    begin(3);
    kpt_run(&w, 35000);
    uint64_t before = w.generation;
    kpt_run(&w, 300000);
    KT_TRUE(w.generation - before >= 5 && w.generation - before <= 10);
    kpt_fini(&w);
}

static void R51_a_closed_stream_gives_one_interval_to_redial(void)
{
    begin(3);
    kpt_kill(&w, 1);
    kpt_run(&w, 900);
    KT_EQ(kpt_row(&w, 1)->health, KP_ALIVE);
    kpt_run(&w, 300);
    KT_EQ(kpt_row(&w, 1)->health, KP_DEAD);
    KT_EQ(led_by(1), 0);
    kpt_fini(&w);
}

static void W4_a_silent_broker_is_lost_after_the_timeout_only(void)
{
    begin(3);
    w.b[1].frozen = true;
    kpt_run(&w, 2900);
    KT_EQ(kpt_row(&w, 1)->health, KP_ALIVE);
    kpt_run(&w, 300);
    KT_EQ(kpt_row(&w, 1)->health, KP_DEAD);
    KT_EQ(w.confirm_leases, 0);
    w.b[1].frozen = false; /* it wakes, learns that it is condemned, and comes back anew */
    struct kc_uuid old = w.b[1].incarnation;
    kpt_run(&w, 3000);
    KT_FALSE(kc_uuid_eq(&old, &w.b[1].incarnation));
    KT_EQ(kpt_row(&w, 1)->health, KP_ALIVE);
    kpt_fini(&w);
}

/* ADR 22: status says that a report is overdue; nothing is decided, and no image is published for it. */
static void a_silent_broker_is_told_before_it_is_lost(void)
{
    begin(3);
    kpt_run(&w, 35000);
    uint64_t before = w.generation;
    w.b[1].frozen = true;
    kpt_run(&w, 400);
    KT_FALSE(kpt_row(&w, 1)->silent);
    kpt_run(&w, 1200);
    const struct kp_row *r = kpt_row(&w, 1);
    KT_TRUE(r->silent);
    KT_EQ(r->health, KP_ALIVE);
    KT_EQ(r->state, KP_SERVING);
    KT_EQ(r->reason, KP_REASON_NONE);
    w.b[1].frozen = false;
    kpt_run(&w, 1100);
    KT_FALSE(kpt_row(&w, 1)->silent);
    KT_FALSE(kpt_row(&w, 0)->silent);
    KT_EQ(w.generation, before);
    KT_TRUE(led_by(1) > 0);
    kpt_fini(&w);
}

/* A new operator has not decided yet: it shows the row of the one before, and that it has heard nothing. */
static void a_silent_broker_is_told_by_an_operator_that_has_not_decided(void)
{
    begin(3);
    w.b[1].frozen = true;
    kpt_operator_change(&w);
    kpt_run(&w, 900);
    KT_FALSE(kpt_row(&w, 1)->silent);
    kpt_run(&w, 300);
    KT_FALSE(w.ch.active);
    KT_TRUE(kpt_row(&w, 1)->silent);
    KT_FALSE(kpt_row(&w, 0)->silent);
    KT_EQ(kpt_row(&w, 1)->health, KP_ALIVE);
    kpt_run(&w, 3000);
    KT_EQ(kpt_row(&w, 1)->health, KP_DEAD);
    KT_FALSE(kpt_row(&w, 1)->silent);
    kpt_fini(&w);
}

static void many_silent_at_once_wait_one_more_timeout_and_confirm_the_lease(void)
{
    begin(3);
    w.b[0].frozen = w.b[1].frozen = true;
    kpt_run(&w, 4000);
    KT_EQ(kpt_row(&w, 0)->health, KP_ALIVE);
    KT_EQ(kpt_row(&w, 1)->health, KP_ALIVE);
    KT_TRUE(w.confirm_leases >= 1);
    kpt_run(&w, 3000);
    KT_EQ(kpt_row(&w, 0)->health, KP_DEAD);
    KT_EQ(kpt_row(&w, 1)->health, KP_DEAD);
    KT_EQ(led_by(0) + led_by(1), 0);
    kpt_fini(&w);
}

static void many_silent_that_return_in_time_move_nothing(void)
{
    begin(3);
    uint64_t before = w.generation;
    w.b[0].frozen = w.b[1].frozen = w.b[2].frozen = true;
    kpt_run(&w, 5000);
    w.b[0].frozen = w.b[1].frozen = w.b[2].frozen = false;
    kpt_run(&w, 5000);
    KT_EQ(kpt_alive(&w), 3);
    KT_TRUE(kpt_settled(&w));
    KT_TRUE(w.generation - before <= 1);
    kpt_fini(&w);
}

static void our_own_pause_is_nobodys_death(void)
{
    begin(3);
    w.now += 20000; /* the operator was stopped */
    kp_ctl_paused(w.c, w.now);
    kpt_step(&w);
    kpt_run(&w, 2000);
    KT_EQ(kpt_alive(&w), 3);
    KT_TRUE(kpt_settled(&w));
    kpt_fini(&w);
}

static void R50_a_wedged_broker_is_out_at_its_word(void)
{
    begin(3);
    w.b[2].wedged = true;
    kpt_run(&w, 1200);
    const struct kp_row *r = kpt_row(&w, 2);
    KT_EQ(r->health, KP_DEAD);
    KT_EQ(r->reason, KP_REASON_WEDGED);
    KT_TRUE(r->condemned);
    KT_EQ(led_by(2), 0);
    kpt_fini(&w);
}

/* A rolling restart shows exactly one fenced broker at each step, though the slice's word lags behind:
 * it goes on calling the new process ready. */
static void R34_a_booting_broker_reads_as_fenced_until_it_serves(void)
{
    begin(3);
    kpt_slices(&w);
    for (int32_t id = 2; id >= 0; id--) {
        kpt_boot(&w, id);
        bool seen = false;
        const struct kp_row *r = kpt_row(&w, id);
        for (int64_t end = w.now + 30000; w.now < end && !(seen && r->state == KP_SERVING);) {
            kpt_run(&w, KPT_TICK_MS);
            bool own = kc_uuid_eq(&r->incarnation, &w.b[id].incarnation);
            KT_TRUE(r->state != KP_SERVING || !own || w.b[id].serving);
            seen = seen || (own && r->state == KP_FENCED && r->reason == KP_REASON_BOOTING);
            for (int32_t other = 0; other < 3; other++) {
                KT_TRUE(other == id || kpt_row(&w, other)->state == KP_SERVING);
            }
        }
        KT_TRUE(seen);
        KT_EQ(r->state, KP_SERVING);
        KT_TRUE(r->slice_ready);
        KT_REQUIRE(kpt_await_settled(&w, 60000));
    }
    kpt_fini(&w);
}

/* A third broker beside two that serve: played by hand, it has only said hello. */
static void newcomer_dials(void)
{
    begin(2);
    kpt_desired(&w, 3);
    w.b[2].apart = true;
    kpt_new_pod(&w, 2);
    struct kp_hello h = {.broker = 2,
                         .stream = 777,
                         .incarnation = {{5}},
                         .pod_uid = "pod-2-1",
                         .protocol_version = 1};
    KT_EQ(kp_ctl_hello(w.c, &h, w.now, NULL), 0);
}

/* Its first word: healthy, and not serving yet. */
static void newcomer_is_well(void)
{
    struct kp_status s = {.broker = 2, .stream = 777, .incarnation = {{5}}, .healthy = true};
    kp_ctl_status(w.c, &s, w.now);
    kpt_step(&w);
}

/* A booting broker is healthy and not ready, and gets what it has to open to become ready. */
static void R49_a_booting_broker_gets_partitions(void)
{
    newcomer_dials();
    newcomer_is_well();
    KT_EQ(kpt_row(&w, 2)->state, KP_FENCED);
    int32_t t = kpt_topic(&w, 9), mine = 0;
    kpt_run(&w, 500);
    for (int32_t i = 0; i < 9; i++) {
        mine += kpt_leader(&w, t, i) == 2;
    }
    KT_TRUE(mine >= 3);
    kpt_fini(&w);
}

static void one_stalled_broker_is_moved_off_after_the_window(void)
{
    begin(3);
    w.b[2].stalled = true;
    kpt_run(&w, 5000);
    KT_EQ(kpt_row(&w, 2)->reason, KP_REASON_STALLED);
    KT_TRUE(kpt_row(&w, 2)->kept);
    KT_FALSE(kpt_row(&w, 2)->condemned);
    KT_TRUE(led_by(2) > 0);
    kpt_run(&w, 7000);
    KT_EQ(led_by(2), 0);
    KT_TRUE(kpt_row(&w, 2)->condemned);
    KT_EQ(w.events[KP_EV_VOLUME_STALL], 0);
    kpt_fini(&w);
}

static void a_broker_that_cannot_write_keeps_what_it_leads(void)
{
    begin(3);
    int32_t before = led_by(2);
    w.b[2].volume = KP_VOLUME_FULL;
    kpt_run(&w, 60000);
    KT_EQ(kpt_row(&w, 2)->volume, KP_VOLUME_FULL);
    KT_EQ(kpt_row(&w, 2)->state, KP_SERVING);
    KT_EQ(led_by(2), before);
    KT_EQ(w.events[KP_EV_VOLUME_FULL], 1);
    w.b[2].volume = KP_VOLUME_WRITABLE;
    kpt_run(&w, 3000);
    KT_EQ(kpt_row(&w, 2)->volume, KP_VOLUME_WRITABLE);
    KT_EQ(w.events[KP_EV_VOLUME_WRITABLE], 1);
    w.b[2].volume = KP_VOLUME_READ_ONLY;
    kpt_run(&w, 3000);
    w.b[2].stalled = true; /* what the dead said is no news any more */
    kpt_run(&w, 30000);
    KT_EQ(kpt_row(&w, 2)->health, KP_DEAD);
    KT_EQ(kpt_row(&w, 2)->volume, KP_VOLUME_WRITABLE);
    KT_EQ(w.events[KP_EV_VOLUME_WRITABLE], 1);
    kpt_fini(&w);
}

static void half_stalled_within_the_window_is_the_volume_and_moves_nothing(void)
{
    begin(4);
    int32_t before = led_by(0);
    w.b[0].stalled = true;
    kpt_run(&w, 6000);
    w.b[1].stalled = true;
    kpt_run(&w, 120000);
    KT_EQ(w.events[KP_EV_VOLUME_STALL], 1);
    KT_EQ(led_by(0), before);
    KT_FALSE(kpt_row(&w, 0)->condemned || kpt_row(&w, 1)->condemned);
    w.b[0].stalled = w.b[1].stalled = false;
    kpt_run(&w, 3000);
    KT_EQ(kpt_alive(&w), 4);
    KT_TRUE(kpt_settled(&w));
    kpt_fini(&w);
}

static void R25_R26_R27_draining_is_its_own_state_and_hands_over_while_it_serves(void)
{
    begin(3);
    w.b[0].draining = true;
    kpt_run(&w, 200);
    const struct kp_row *r = kpt_row(&w, 0);
    KT_EQ(r->health, KP_DRAINING);
    KT_EQ(r->state, KP_STATE_DRAINING);
    KT_FALSE(r->condemned);
    kpt_run(&w, 8000);
    KT_EQ(led_by(0), 0);
    kpt_slices(&w);
    KT_REQUIRE(kpt_row(&w, 0) != NULL); /* R27: still registered, still well */
    KT_FALSE(kpt_row(&w, 0)->condemned);
    kpt_kill(&w, 0);
    kpt_run(&w, 2000);
    KT_EQ(kpt_row(&w, 0)->health, KP_DEAD);
    KT_EQ(kpt_row(&w, 0)->reason, KP_REASON_DRAINED);
    kpt_fini(&w);
}

/* It leads what is on its way to others, and gets nothing that has no leader yet. */
static void R14_a_draining_broker_is_given_nothing(void)
{
    begin(3);
    w.b[1].draining = true;
    kpt_run(&w, 200);
    int32_t t = kpt_topic(&w, 12);
    for (int i = 0; i < 50; i++) {
        kpt_run(&w, KPT_TICK_MS);
        for (int32_t p = 0; p < 12; p++) {
            KT_TRUE(kpt_leader(&w, t, p) != 1);
        }
    }
    KT_EQ(kpt_row(&w, 1)->health, KP_DRAINING);
    KT_EQ(led_by(1), 0);
    kpt_fini(&w);
}

static void R29_the_only_healthy_broker_keeps_its_partitions_while_draining(void)
{
    begin(1);
    w.b[0].draining = true;
    kpt_run(&w, 60000);
    KT_EQ(kpt_row(&w, 0)->health, KP_DRAINING);
    KT_TRUE(led_by(0) == KP_SLOTS + 30);
    KT_FALSE(kpt_row(&w, 0)->condemned);
    kpt_fini(&w);
}

static void R29_over_the_drain_deadline_a_broker_is_condemned(void)
{
    begin(3);
    w.b[0].draining = true;
    kpt_run(&w, 25000);
    KT_EQ(kpt_row(&w, 0)->health, KP_DRAINING);
    kpt_run(&w, 2000);
    KT_EQ(kpt_row(&w, 0)->health, KP_DEAD);
    KT_EQ(kpt_row(&w, 0)->reason, KP_REASON_DRAINED);
    KT_TRUE(kpt_row(&w, 0)->condemned);
    kpt_fini(&w);
}

/* Whatever the pod's grace is: at its deadline the broker seals by itself, and is condemned when it
 * has not gone soon after, with time left before the SIGKILL. */
static void R29_the_deadline_follows_the_grace_of_the_pod(void)
{
    static const int32_t graces[] = {4, 10, 12, 30, 90};
    for (size_t i = 0; i < KC_ARRAY_LEN(graces); i++) {
        begin(3);
        w.b[0].grace_s = graces[i];
        kpt_slices(&w);
        w.b[0].draining = true;
        kpt_run(&w, 2 * KPT_TICK_MS);
        KT_EQ(kpt_row(&w, 0)->health, KP_DRAINING);
        int64_t told = w.now;
        while (kpt_row(&w, 0)->health == KP_DRAINING && w.now < told + 100000) {
            kpt_run(&w, KPT_TICK_MS);
        }
        struct kp_drain d = kp_drain_of(graces[i]);
        KT_EQ(kpt_row(&w, 0)->health, KP_DEAD);
        KT_TRUE(kpt_row(&w, 0)->condemned);
        KT_TRUE(w.now - told + 2 * KPT_TICK_MS >= d.drain_ms);
        KT_TRUE(w.now - told < (int64_t)graces[i] * 1000);
        kpt_fini(&w);
    }
}

static void R15_losing_everybody_unassigns_nobody_and_condemns_nobody(void)
{
    begin(3);
    for (int32_t i = 0; i < 3; i++) {
        kpt_kill(&w, i);
    }
    kpt_run(&w, 60000);
    for (int32_t i = 0; i < 3; i++) {
        KT_TRUE(led_by(i) > 0);
        KT_EQ(kpt_row(&w, i)->health, KP_DEAD);
        KT_TRUE(kpt_row(&w, i)->kept);
        KT_FALSE(kpt_row(&w, i)->condemned);
    }
    int32_t before = led_by(1);
    for (int32_t i = 0; i < 3; i++) { /* they come back one after the other */
        kpt_boot(&w, i);
        kpt_run(&w, 1500);
    }
    KT_EQ(led_by(1), before);
    KT_TRUE(kpt_await_settled(&w, 5000));
    kpt_fini(&w);
}

static void a_total_outage_with_one_that_stays_away_ends_after_the_wait(void)
{
    begin(3);
    for (int32_t i = 0; i < 3; i++) {
        kpt_kill(&w, i);
    }
    kpt_run(&w, 20000);
    kpt_boot(&w, 0);
    kpt_boot(&w, 1);
    kpt_run(&w, 5000);
    KT_TRUE(led_by(2) > 0);
    kpt_run(&w, 8000);
    KT_EQ(led_by(2), 0);
    KT_TRUE(kpt_row(&w, 2)->condemned);
    kpt_fini(&w);
}

static void a_restart_within_the_interval_keeps_its_partitions_and_condemns_its_past(void)
{
    begin(3);
    struct kc_uuid old = w.b[1].incarnation;
    int32_t before = led_by(1), moved = w.events[KP_EV_PARTITIONS_MOVED];
    kpt_boot(&w, 1); /* 200 ms to the first dial */
    kpt_run(&w, 3000);
    KT_EQ(led_by(1), before);
    KT_EQ(w.events[KP_EV_PARTITIONS_MOVED], moved);
    KT_TRUE(kpt_condemned(&w, 1, &old));
    KT_TRUE(kpt_await_settled(&w, 5000));
    struct kp_hello h = {.broker = 1, .stream = 9999, .incarnation = old, .pod_uid = "pod-1-1"};
    KT_EQ(kp_ctl_hello(w.c, &h, w.now, NULL), KC_E_FENCED);
    kpt_fini(&w);
}

static void W6_R36_R54_a_hello_without_a_status_is_neither_alive_nor_condemned(void)
{
    newcomer_dials();
    kpt_run(&w, 4500);
    KT_EQ(kpt_row(&w, 2)->health, KP_DEAD);
    KT_EQ(kpt_row(&w, 2)->reason, KP_REASON_BOOTING);
    KT_FALSE(kpt_row(&w, 2)->condemned);
    KT_EQ(led_by(2), 0);
    newcomer_is_well();
    KT_EQ(kpt_row(&w, 2)->health, KP_ALIVE);
    KT_EQ(kpt_row(&w, 2)->state, KP_FENCED); /* R36: fenced for clients, alive for assignment */
    KT_EQ(kpt_row(&w, 2)->reason, KP_REASON_BOOTING);
    kpt_fini(&w);
}

static void W5_a_wedged_broker_stays_out_over_an_operator_change(void)
{
    begin(3);
    w.b[1].wedged = true;
    kpt_run(&w, 3000);
    KT_EQ(led_by(1), 0);
    kpt_operator_change(&w);
    kpt_run(&w, 20000);
    KT_EQ(led_by(1), 0);
    KT_EQ(kpt_row(&w, 1)->health, KP_DEAD);
    kpt_fini(&w);
}

/* What an image without a protocol version proved is kept by the cluster image, not by the operator. */
static void W5_what_an_old_image_proved_survives_an_operator_change(void)
{
    begin(3);
    kpt_crash(&w, 1, 3000);
    w.b[1].protocol_version = 0;
    kpt_run(&w, 3000);
    kpt_slices(&w); /* an old image's readiness is what its slice says */
    KT_TRUE(kpt_await_settled(&w, 60000));
    KT_EQ(kpt_row(&w, 1)->protocol_version, 0);
    w.b[1].wedged = true; /* all that the next operator ever hears of it is healthy=false */
    kpt_operator_change(&w);
    kpt_run(&w, 20000);
    KT_EQ(kpt_row(&w, 1)->health, KP_DEAD);
    KT_EQ(led_by(1), 0);
    kpt_fini(&w);
}

static void R52_old_images_that_never_say_healthy_are_kept(void)
{
    kpt_init(&w, 2);
    kpt_topic(&w, 10);
    kpt_start(&w, 2);
    w.b[1].protocol_version = 0;
    w.b[1].wedged = false;
    KT_TRUE(kpt_await_settled(&w, 30000));
    /* an image older than field 6: healthy reads as false in every status */
    struct kp_hello h = {.broker = 1, .stream = 888, .incarnation = {{6}}, .pod_uid = "pod-1-1"};
    w.b[1].apart = true;
    w.b[1].up = w.b[1].dialled = false;
    KT_EQ(kp_ctl_hello(w.c, &h, w.now, NULL), 0);
    struct kp_status s = {.broker = 1, .stream = 888, .incarnation = {{6}}};
    kp_ctl_status(w.c, &s, w.now);
    kpt_step(&w);
    KT_EQ(kpt_row(&w, 1)->health, KP_DEAD); /* this pod has said true before: W5 keys by process */
    w.b[1].pod++;
    kpt_slices(&w);
    struct kp_hello h2 = {.broker = 1, .stream = 889, .incarnation = {{7}}, .pod_uid = "pod-1-2"};
    KT_EQ(kp_ctl_hello(w.c, &h2, w.now, NULL), 0);
    s.stream = 889;
    s.incarnation = h2.incarnation;
    kp_ctl_status(w.c, &s, w.now);
    kpt_step(&w);
    KT_EQ(kpt_row(&w, 1)->health, KP_ALIVE);
    kpt_fini(&w);
}

KT_MAIN("liveness", KT(R1_R11_R12_R14_dead_keeps_its_row_and_leads_nothing),
        KT(R13_last_seen_is_frozen_and_survives_an_operator_change),
        KT(R13_idle_rows_are_written_no_more_than_once_in_30_s),
        KT(R51_a_closed_stream_gives_one_interval_to_redial),
        KT(a_silent_broker_is_told_before_it_is_lost),
        KT(a_silent_broker_is_told_by_an_operator_that_has_not_decided),
        KT(W4_a_silent_broker_is_lost_after_the_timeout_only),
        KT(many_silent_at_once_wait_one_more_timeout_and_confirm_the_lease),
        KT(many_silent_that_return_in_time_move_nothing), KT(our_own_pause_is_nobodys_death),
        KT(R50_a_wedged_broker_is_out_at_its_word),
        KT(R34_a_booting_broker_reads_as_fenced_until_it_serves),
        KT(R49_a_booting_broker_gets_partitions),
        KT(one_stalled_broker_is_moved_off_after_the_window),
        KT(a_broker_that_cannot_write_keeps_what_it_leads),
        KT(half_stalled_within_the_window_is_the_volume_and_moves_nothing),
        KT(R25_R26_R27_draining_is_its_own_state_and_hands_over_while_it_serves),
        KT(R14_a_draining_broker_is_given_nothing),
        KT(R29_the_only_healthy_broker_keeps_its_partitions_while_draining),
        KT(R29_over_the_drain_deadline_a_broker_is_condemned),
        KT(R29_the_deadline_follows_the_grace_of_the_pod),
        KT(R15_losing_everybody_unassigns_nobody_and_condemns_nobody),
        KT(a_total_outage_with_one_that_stays_away_ends_after_the_wait),
        KT(a_restart_within_the_interval_keeps_its_partitions_and_condemns_its_past),
        KT(W6_R36_R54_a_hello_without_a_status_is_neither_alive_nor_condemned),
        KT(W5_a_wedged_broker_stays_out_over_an_operator_change),
        KT(W5_what_an_old_image_proved_survives_an_operator_change),
        KT(R52_old_images_that_never_say_healthy_are_kept))
