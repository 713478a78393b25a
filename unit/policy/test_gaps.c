#include "kpt.h"
#include "kt.h"

/* What a rollout costs clients (design.md, 7): partitions without an acking leader, brokers out. */
static struct kpt w;

static struct kp_measure measured(void)
{
    struct kp_measure m;
    KT_TRUE(kp_ctl_measured(w.c, w.now, &m));
    return m;
}

static void nothing_is_measured_before_it_begins_and_after_it_ends(void)
{
    struct kp_measure m;
    kpt_begin(&w, 2, 4);
    KT_FALSE(kp_ctl_measured(w.c, w.now, &m));
    kp_ctl_measure(w.c, true, w.now);
    m = measured();
    KT_EQ(m.since_ms, w.now);
    KT_EQ(m.gaps + m.partitions + m.open + m.max_ms + m.max_out, 0);
    kp_ctl_measure(w.c, false, w.now);
    KT_FALSE(kp_ctl_measured(w.c, w.now, &m));
    kpt_fini(&w);
}

/* A planned move's gap begins at the source's own word, and ends when the target says it leads. */
static void a_planned_move_counts_from_the_sources_stop(void)
{
    kpt_begin(&w, 3, 60);
    kp_ctl_measure(w.c, true, w.now);
    w.stopped_ms = 40;
    w.b[2].draining = true;
    kpt_run(&w, 8000);
    struct kp_measure m = measured();
    KT_EQ(m.gaps, 20);
    KT_EQ(m.partitions, 20);
    KT_EQ(m.open, 0);
    /* Released in one tick, led in the next. */
    KT_EQ(m.p50_ms, KPT_TICK_MS + 40);
    KT_EQ(m.max_ms, KPT_TICK_MS + 40);
    KT_EQ(m.max_out, 1);
    kpt_fini(&w);
}

/* One whose broker does not say when it stopped counts from the order: longer, never shorter; and no
 * word of a source reaches back before the order. */
static void without_the_sources_word_a_move_counts_from_the_order(void)
{
    int64_t told[] = {0, 60000, -5};
    for (int i = 0; i < 3; i++) {
        kpt_begin(&w, 3, 30);
        kp_ctl_measure(w.c, true, w.now);
        w.stopped_ms = told[i];
        w.b[2].draining = true;
        kpt_run(&w, 8000);
        KT_EQ(measured().gaps, 10);
        KT_EQ(measured().p50_ms, 2 * KPT_TICK_MS);
        kpt_fini(&w);
    }
}

/* A killed broker's partitions are gone from its last sign of life, not from the verdict. */
static void a_death_counts_from_the_last_sign_of_life(void)
{
    kpt_begin(&w, 3, 60);
    kp_ctl_measure(w.c, true, w.now);
    int64_t died = w.now;
    kpt_kill(&w, 2);
    kpt_run(&w, 500);
    KT_EQ(measured().open, 0); /* it may redial yet (R51) */
    while (measured().gaps < 20) {
        kpt_run(&w, KPT_TICK_MS);
        KT_REQUIRE(w.now - died < 10000);
    }
    struct kp_measure m = measured();
    KT_TRUE(m.max_ms > 1000);
    KT_EQ(m.max_ms, w.now - died);
    KT_EQ(m.partitions, 20);
    kpt_fini(&w);

    kpt_begin(&w, 3, 60); /* silent: its stream stays open, the verdict comes after 3 s */
    kp_ctl_measure(w.c, true, w.now);
    int64_t silent = w.now;
    w.b[1].frozen = true;
    while (measured().gaps < 20) {
        kpt_run(&w, KPT_TICK_MS);
        KT_REQUIRE(w.now - silent < 10000);
    }
    KT_EQ(measured().max_ms, w.now - silent);
    kpt_fini(&w);
}

/* What is still without a leader is part of the report while it lasts. */
static void an_open_gap_is_told_while_it_grows(void)
{
    kpt_begin(&w, 2, 2);
    kp_ctl_measure(w.c, true, w.now);
    int64_t died = w.now;
    kpt_kill(&w, 0);
    kpt_kill(&w, 1); /* the last set stands (R15): nobody leads */
    kpt_run(&w, 20000);
    kpt_boot(&w, 0);
    while (measured().open < 1) {
        kpt_run(&w, KPT_TICK_MS);
        KT_REQUIRE(w.now - died < 60000);
    }
    KT_EQ(measured().max_ms, w.now - died);
    KT_EQ(measured().max_out, 2);
    kpt_fini(&w);
}

/* Away and back: a broker that restarts moves its partitions twice, and they count once. */
static void partitions_count_once_and_gaps_each_time(void)
{
    kpt_begin(&w, 3, 60);
    kp_ctl_measure(w.c, true, w.now);
    w.stopped_ms = 1;
    w.b[2].draining = true;
    kpt_run(&w, 6000);
    kpt_kill(&w, 2);
    kpt_run(&w, 3000);
    kpt_new_pod(&w, 2);
    KT_REQUIRE(kpt_await_settled(&w, 60000));
    struct kp_measure m = measured();
    KT_EQ(m.partitions, 20);
    KT_EQ(m.gaps, 40);
    KT_EQ(m.max_out, 1);
    kp_ctl_measure(w.c, true, w.now); /* the next rollout begins from nothing */
    KT_EQ(measured().gaps + measured().partitions + measured().max_out, 0);
    kpt_fini(&w);
}

/* A new operator measures from its own beginning; what has no leader then has none since then. */
static void a_new_operator_begins_its_own(void)
{
    kpt_begin(&w, 3, 60);
    kp_ctl_measure(w.c, true, w.now);
    kpt_kill(&w, 2);
    kpt_run(&w, 500);
    kpt_operator_change(&w);
    struct kp_measure m;
    KT_FALSE(kp_ctl_measured(w.c, w.now, &m));
    int64_t since = w.now;
    kp_ctl_measure(w.c, true, since);
    kpt_run(&w, 20000);
    m = measured();
    KT_EQ(m.since_ms, since);
    KT_EQ(m.gaps, 20);
    KT_TRUE(m.max_ms >= 3000 && m.max_ms < 20000); /* the grace of a new operator, R62 */
    KT_EQ(m.open, 0);
    kpt_fini(&w);
}

/* One partition whose leader dies again and again, each time gone for as long as the list says. */
static void percentiles_are_within_one_percent_and_never_low(void)
{
    static const int64_t gone[] = {1,     7,     100,    255,    256,     257,
                                   1000,  1023,  4097,   9999,   9999,    9999,
                                   65535, 65536, 123457, 999999, 1000001, 86400000};
    for (size_t i = 0; i < KC_ARRAY_LEN(gone); i++) {
        kpt_begin(&w, 1, 1);
        struct kp_status s = kpt_status(&w, 0);
        struct kp_pid pid = {w.topics[0].id, 0};
        struct kp_led led = {pid.topic_id, 0, 1000};
        kp_ctl_measure(w.c, true, w.now);
        s.unled = &pid;
        s.n_unled = 1;
        kp_ctl_status(w.c, &s, w.now);
        s.n_unled = 0;
        s.led = &led;
        s.n_led = 1;
        kp_ctl_status(w.c, &s, w.now + gone[i]); /* it leads again: one gap */
        for (int k = 0; k < 98; k++) { /* and 98 of none, so that p99 is not the maximum's bucket */
            s.n_led = 0;
            s.n_unled = 1;
            kp_ctl_status(w.c, &s, w.now + gone[i]);
            s.n_unled = 0;
            s.n_led = 1;
            led.epoch++;
            kp_ctl_status(w.c, &s, w.now + gone[i]);
        }
        KT_EQ(measured().gaps, 99);
        KT_EQ(measured().p50_ms, 0);
        KT_EQ(measured().p99_ms, gone[i]); /* the 99th of 99; capped by the maximum */
        KT_EQ(measured().max_ms, gone[i]);
        /* A longer one takes the cap away: what is left is the bucket's own width. */
        s.n_led = 0;
        s.n_unled = 1;
        kp_ctl_status(w.c, &s, w.now);
        s.n_unled = 0;
        s.n_led = 1;
        led.epoch++;
        kp_ctl_status(w.c, &s, w.now + 4 * gone[i] + 1);
        KT_TRUE(measured().p99_ms >= gone[i]);
        KT_TRUE(measured().p99_ms * 100 <= gone[i] * 101);
        kpt_fini(&w);
    }
}

KT_MAIN("policy/gaps", KT(nothing_is_measured_before_it_begins_and_after_it_ends),
        KT(a_planned_move_counts_from_the_sources_stop),
        KT(without_the_sources_word_a_move_counts_from_the_order),
        KT(a_death_counts_from_the_last_sign_of_life), KT(an_open_gap_is_told_while_it_grows),
        KT(partitions_count_once_and_gaps_each_time), KT(a_new_operator_begins_its_own),
        KT(percentiles_are_within_one_percent_and_never_low))
