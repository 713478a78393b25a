#include "kt.h"
#include "policy/kp_drain.h"

/* How a grace period is spent (R29). */

static void R29_a_drain_takes_five_seconds_less_than_the_grace_and_25_at_most(void)
{
    for (int64_t s = 10; s <= 3600; s++) {
        int64_t want = s - 5 < 25 ? s - 5 : 25;
        KT_EQ(kp_drain_of(s).drain_ms, want * 1000);
    }
}

/* Handing over, sealing, lingering: one after the other, and each is over before the SIGKILL. The
 * operator waits until the broker would have begun to seal by itself, and condemns it in time, too. */
static void R29_every_part_of_a_drain_ends_below_the_grace(void)
{
    for (int64_t s = 1; s <= 3600; s++) {
        struct kp_drain d = kp_drain_of(s);
        int64_t kill_ms = s * 1000;
        KT_TRUE(d.drain_ms > 0 && d.leave_ms > 0);
        KT_TRUE(d.condemn_ms > d.drain_ms && d.condemn_ms < kill_ms);
        KT_TRUE(d.drain_ms + d.leave_ms < d.exit_ms);
        KT_TRUE(d.exit_ms <= kill_ms - kill_ms / 10 || d.exit_ms <= kill_ms - 1000);
    }
}

static void no_grace_is_no_drain(void)
{
    struct kp_drain none = kp_drain_of(0), negative = kp_drain_of(-7);
    KT_EQ(none.drain_ms + none.leave_ms + none.condemn_ms + none.exit_ms, 0);
    KT_EQ(negative.exit_ms, 0);
    KT_EQ(kp_drain_of(INT64_MAX).drain_ms, 25000);
}

KT_MAIN("drain", KT(R29_a_drain_takes_five_seconds_less_than_the_grace_and_25_at_most),
        KT(R29_every_part_of_a_drain_ends_below_the_grace), KT(no_grace_is_no_drain))
