#include "kpt.h"
#include "kt.h"

/* R62: a new active operator; what it restores, when it decides, and that it moves nothing. */
static struct kpt w;

static void begin(int32_t n)
{
    kpt_init(&w, n);
    kpt_slot_topic(&w, KP_GROUP_SLOTS);
    kpt_topic(&w, 60);
    kpt_start_settled(&w, n);
}

static int32_t leaders[2][60];

static void remember(int k)
{
    for (int i = 0; i < 60; i++) {
        leaders[k][i] = kpt_leader(&w, 1, i);
    }
}

static int32_t moved(void)
{
    int32_t n = 0;
    for (int i = 0; i < 60; i++) {
        n += leaders[0][i] != leaders[1][i];
    }
    return n;
}

static void R62_a_change_with_everybody_there_moves_nothing(void)
{
    begin(3);
    remember(0);
    int32_t fenced = w.events[KP_EV_FENCED];
    kpt_operator_change(&w);
    kpt_run(&w, 20000);
    remember(1);
    KT_EQ(moved(), 0);
    KT_EQ(w.events[KP_EV_FENCED], fenced);
    KT_EQ(w.events[KP_EV_REGISTERED], 3); /* only at the beginning */
    KT_TRUE(kpt_settled(&w));
    kpt_fini(&w);
}

/* R2: rows come from the image, not from the slices, which are told one by one: nobody is lost in
 * between, and neither is who is absent for a moment (W1) or already dead (R13). */
static void R2_W1_rows_survive_an_operator_change(void)
{
    begin(3);
    int32_t homes[KP_SLOTS];
    memcpy(homes, kp_ctl_homes(w.c, KP_GROUP_SLOTS), sizeof(homes));
    for (int32_t id = 0; id < 3; id++) {
        w.b[id].slice = id % 2;
    }
    kpt_slices(&w);
    kpt_kill(&w, 1);
    w.b[1].listed = false; /* its pod is being made again */
    kpt_slices(&w);
    kpt_run(&w, 5000);
    struct kp_row dead = *kpt_row(&w, 1);
    int32_t registered = w.events[KP_EV_REGISTERED];
    kpt_operator_change(&w);
    kpt_run(&w, 5000);
    KT_REQUIRE(kpt_row(&w, 1) != NULL);
    KT_EQ(kpt_row(&w, 1)->last_seen_ms, dead.last_seen_ms);
    KT_TRUE(kc_uuid_eq(&kpt_row(&w, 1)->incarnation, &dead.incarnation));
    KT_TRUE(kpt_row(&w, 1)->condemned);
    KT_EQ(w.events[KP_EV_REGISTERED], registered);
    KT_EQ(w.events[KP_EV_DEREGISTERED], 0);
    KT_EQ(memcmp(homes, kp_ctl_homes(w.c, KP_GROUP_SLOTS), sizeof(homes)), 0);
    kpt_fini(&w);
}

static void R62_it_decides_when_all_of_the_last_set_are_back(void)
{
    begin(3);
    kpt_operator_change(&w);
    kpt_step(&w);
    KT_FALSE(w.ch.active);
    kpt_run(&w, 500);
    KT_TRUE(w.ch.active); /* long before the 3 s */
    kpt_fini(&w);
}

static void R62_one_that_stays_away_is_replaced_after_three_seconds(void)
{
    begin(3);
    kpt_operator_change(&w);
    kpt_kill(&w, 2);
    kpt_run(&w, 2500);
    KT_FALSE(w.ch.active);
    kpt_run(&w, 1000);
    KT_TRUE(w.ch.active);
    KT_EQ(kpt_row(&w, 2)->health, KP_DEAD);
    for (int i = 0; i < 60; i++) {
        KT_TRUE(kpt_leader(&w, 1, i) != 2);
    }
    kpt_fini(&w);
}

static void R62_a_minority_does_not_get_everything(void)
{
    begin(3);
    remember(0);
    kpt_operator_change(&w);
    kpt_kill(&w, 1);
    kpt_kill(&w, 2);
    kpt_run(&w, 8000);
    KT_FALSE(w.ch.active);
    kpt_boot(&w, 1);
    kpt_boot(&w, 2);
    kpt_run(&w, 3000);
    KT_TRUE(w.ch.active);
    remember(1);
    KT_EQ(moved(), 0);
    kpt_fini(&w);
}

static void R62_and_gets_it_ten_seconds_after_the_first_heartbeat(void)
{
    begin(3);
    kpt_operator_change(&w);
    kpt_kill(&w, 1);
    kpt_kill(&w, 2);
    kpt_run(&w, 11000);
    KT_TRUE(w.ch.active);
    for (int i = 0; i < 60; i++) {
        KT_EQ(kpt_leader(&w, 1, i), 0);
    }
    kpt_fini(&w);
}

static void R62_the_first_assignment_waits_for_every_wanted_ordinal(void)
{
    kpt_init(&w, 3);
    kpt_topic(&w, 9);
    kpt_start(&w, 2);
    kpt_run(&w, 20000);
    KT_EQ(kpt_leader(&w, 0, 0), KP_NO_BROKER);
    kpt_new_pod(&w, 2);
    kpt_run(&w, 1000);
    int32_t n[3] = {0};
    for (int i = 0; i < 9; i++) {
        KT_REQUIRE(kpt_leader(&w, 0, i) >= 0);
        n[kpt_leader(&w, 0, i)]++;
    }
    KT_TRUE(n[0] == 3 && n[1] == 3 && n[2] == 3);
    kpt_fini(&w);
}

static void R62_or_thirty_seconds(void)
{
    kpt_init(&w, 3);
    kpt_topic(&w, 9);
    kpt_start(&w, 2);
    kpt_run(&w, 31000);
    KT_TRUE(kpt_leader(&w, 0, 0) >= 0);
    kpt_fini(&w);
}

static void R48_without_any_heartbeat_the_last_image_stands(void)
{
    begin(3);
    remember(0);
    for (int32_t i = 0; i < 3; i++) {
        w.b[i].apart = true; /* heartbeats are blocked, brokers serve on */
    }
    uint64_t generation = w.generation;
    kpt_operator_change(&w);
    generation++;
    kpt_run(&w, 120000);
    KT_FALSE(w.ch.active);
    KT_EQ(w.generation, generation);
    remember(1);
    KT_EQ(moved(), 0);
    KT_EQ(kpt_row(&w, 1)->health, KP_ALIVE);
    kpt_fini(&w);
}

static void a_move_in_every_phase_survives_the_change(void)
{
    for (int ticks = 0; ticks < 12; ticks++) {
        begin(2);
        w.b[1].draining = true;
        kpt_run(&w, (int64_t)ticks * KPT_TICK_MS + 1);
        kpt_operator_change(&w);
        kpt_run(&w, 15000);
        for (int i = 0; i < 60; i++) {
            KT_EQ(kpt_leader(&w, 1, i), 0);
            KT_EQ(w.topics[1].owner[i].broker, 0);
        }
        KT_FALSE(kpt_row(&w, 1)->condemned);
        KT_FALSE(kpt_row(&w, 0)->condemned);
        kpt_fini(&w);
    }
}

/* The predecessor sent `go` and died before the image with the new assignment stood. */
static void what_is_led_already_is_not_taken_back(void)
{
    begin(3);
    struct kpt_image old = w.image;
    kpt_kill(&w, 2);
    kpt_run(&w, 8000);
    remember(0);
    for (int t = 0; t < 2; t++) { /* the image never heard of the failover, but of its rows */
        memcpy(w.image.parts[t], old.parts[t], sizeof(old.parts[t]));
    }
    kpt_operator_change(&w);
    w.image = old;
    w.step_only = true;
    for (int id = 0; id < 2; id++) {
        struct kp_led led[120];
        struct kp_hello h = {.broker = id,
                             .stream = 5000 + (uint64_t)id,
                             .incarnation = w.b[id].incarnation,
                             .protocol_version = 1};
        snprintf(h.pod_uid, sizeof(h.pod_uid), "pod-%d-1", id);
        KT_EQ(kp_ctl_hello(w.c, &h, w.now, NULL), 0);
        struct kp_status s = {.broker = id,
                              .stream = h.stream,
                              .incarnation = h.incarnation,
                              .healthy = true,
                              .serving = true,
                              .full = true,
                              .led = led};
        for (int i = 0; i < 60; i++) {
            if (w.topics[1].owner[i].broker == id) {
                led[s.n_led++] = (struct kp_led){w.topics[1].id, i, w.topics[1].owner[i].epoch};
            }
        }
        kp_ctl_status(w.c, &s, w.now);
    }
    for (int k = 0; k < 35; k++) {
        w.now += 100;
        kp_ctl_paused(w.c, w.now); /* both stay fresh */
        kpt_step(&w);
    }
    KT_TRUE(w.ch.active);
    remember(1);
    KT_EQ(moved(), 0);
    kpt_fini(&w);
}

static void an_operator_that_only_holds_takes_facts_and_decides_nothing(void)
{
    begin(3);
    kpt_operator_holds(&w);
    kpt_kill(&w, 2);
    remember(0);
    uint64_t generation = w.generation;
    kpt_run(&w, 10000);
    remember(1);
    KT_EQ(moved(), 0);
    KT_EQ(w.generation, generation);
    kp_ctl_activate(w.c, w.now);
    kpt_run(&w, 10000);
    remember(1);
    KT_EQ(moved(), 20); /* what the dead one led */
    kpt_fini(&w);
}

KT_MAIN("takeover", KT(R62_a_change_with_everybody_there_moves_nothing),
        KT(R2_W1_rows_survive_an_operator_change),
        KT(R62_it_decides_when_all_of_the_last_set_are_back),
        KT(R62_one_that_stays_away_is_replaced_after_three_seconds),
        KT(R62_a_minority_does_not_get_everything),
        KT(R62_and_gets_it_ten_seconds_after_the_first_heartbeat),
        KT(R62_the_first_assignment_waits_for_every_wanted_ordinal), KT(R62_or_thirty_seconds),
        KT(R48_without_any_heartbeat_the_last_image_stands),
        KT(a_move_in_every_phase_survives_the_change), KT(what_is_led_already_is_not_taken_back),
        KT(an_operator_that_only_holds_takes_facts_and_decides_nothing))
