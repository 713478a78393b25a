/* Deadlines on a loop: order, disarming, arming anew from within. */
#include "kt.h"

#include "base/kc_clock.h"
#include "base/kc_rng.h"
#include "data/kd_timer.h"

enum { N = 500 };

static struct {
    struct rt_loop loop;
    struct kd_timers timers;
    struct kd_timer t[N];
    int64_t fired_due[N];
    int n_fired, n_wanted;
} fx;

static void on_fire(struct kd_timer *t)
{
    KT_TRUE(kc_mono_ms() >= t->due_ms);
    KT_EQ(t->at, 0);
    fx.fired_due[fx.n_fired++] = t->due_ms;
    if (fx.n_fired == fx.n_wanted) {
        rt_loop_stop(&fx.loop);
    }
}

static void up(int wanted)
{
    memset(&fx, 0, sizeof(fx));
    fx.n_wanted = wanted;
    KT_REQUIRE(rt_loop_init(&fx.loop, "timers") == 0);
    kd_timers_init(&fx.timers, &fx.loop);
}

static void random_deadlines_fire_in_order_and_disarmed_ones_never(void)
{
    struct kc_rng r;
    kc_rng_seed(&r, kt_seed());
    up(N / 2);
    int64_t now = kc_mono_ms();
    for (int i = 0; i < N; i++) {
        fx.t[i].fn = on_fire;
        kd_timer_arm(&fx.timers, &fx.t[i], now + (int64_t)kc_rng_below(&r, 1000));
        kd_timer_arm(&fx.timers, &fx.t[i], now + (int64_t)kc_rng_below(&r, 60)); /* moved */
    }
    for (int i = 0; i < N; i += 2) {
        kd_timer_disarm(&fx.timers, &fx.t[i]);
        kd_timer_disarm(&fx.timers, &fx.t[i]); /* twice is fine */
    }
    rt_loop_run(&fx.loop);
    KT_EQ(fx.n_fired, N / 2);
    for (int i = 1; i < fx.n_fired; i++) {
        KT_TRUE(fx.fired_due[i] >= fx.fired_due[i - 1]);
    }
    for (int i = 0; i < N; i++) {
        KT_EQ(fx.t[i].at, 0);
    }
    kd_timers_fini(&fx.timers);
}

static void on_again(struct kd_timer *t)
{
    if (++fx.n_fired < 3) {
        kd_timer_arm(&fx.timers, t, kc_mono_ms()); /* already due: fires without a wait */
        kd_timer_disarm(&fx.timers, &fx.t[1]);
    } else {
        rt_loop_stop(&fx.loop);
    }
}

static void a_deadline_may_arm_and_disarm_from_within(void)
{
    up(3);
    fx.t[0].fn = on_again;
    fx.t[1].fn = on_fire; /* would stop the run too early */
    kd_timer_arm(&fx.timers, &fx.t[0], kc_mono_ms());
    kd_timer_arm(&fx.timers, &fx.t[1], kc_mono_ms() + 50);
    rt_loop_run(&fx.loop);
    KT_EQ(fx.n_fired, 3);
    kd_timers_fini(&fx.timers);
}

KT_MAIN("timer", KT(random_deadlines_fire_in_order_and_disarmed_ones_never),
        KT(a_deadline_may_arm_and_disarm_from_within))
