#include "kt.h"

#include "policy/kp_alive.h"
#include "policy/kp_types.h"

/* R55: decide_alive over (liveness list, fallback, self id). */
static struct kp_liveness up(int32_t id)
{
    return (struct kp_liveness){
        .id = id, .connected = true, .healthy = true, .ever_healthy = true, .protocol_version = 1};
}

static void R48_R55_connected_and_healthy_decide(void)
{
    struct kp_liveness l[3] = {up(0), up(1), up(2)};
    bool m[3] = {false, false, false};
    l[1].connected = false;
    l[2].healthy = false;
    KT_FALSE(kp_decide_alive(l, 3, KP_NO_BROKER, m));
    KT_TRUE(m[0] && !m[1] && !m[2]);
}

static void R48_no_heartbeat_at_all_leaves_the_last_set(void)
{
    struct kp_liveness l[3] = {{.id = 0}, {.id = 1}, {.id = 2}};
    bool m[3] = {true, false, true};
    KT_TRUE(kp_decide_alive(l, 3, KP_NO_BROKER, m));
    KT_TRUE(m[0] && !m[1] && m[2]);
}

static void R15_the_set_never_becomes_empty(void)
{
    struct kp_liveness l[2] = {up(0), up(1)};
    bool m[2] = {true, true};
    l[0].connected = l[1].connected = false;
    KT_TRUE(kp_decide_alive(l, 2, KP_NO_BROKER, m));
    KT_TRUE(m[0] && m[1]);
    l[1] = up(1);
    KT_FALSE(kp_decide_alive(l, 2, KP_NO_BROKER, m));
    KT_TRUE(!m[0] && m[1]);
}

static void R28_self_outranks_its_own_draining_and_health(void)
{
    struct kp_liveness l[2] = {up(0), up(1)};
    bool m[2] = {true, true};
    l[0].draining = true;
    l[0].healthy = false;
    KT_FALSE(kp_decide_alive(l, 2, 0, m));
    KT_TRUE(m[0] && m[1]);
}

static void R52_R53_an_old_image_is_evicted_only_after_it_proved_healthy(void)
{
    struct kp_liveness l = up(0);
    l.protocol_version = 0;
    l.healthy = false;
    l.ever_healthy = false;
    KT_TRUE(kp_is_alive(&l)); /* never set field 6: unknown, assume alive */
    l.ever_healthy = true;
    KT_FALSE(kp_is_alive(&l));
    l.healthy = true;
    KT_TRUE(kp_is_alive(&l));
    l.connected = false; /* ever_healthy does not delay failover of the dead */
    KT_FALSE(kp_is_alive(&l));
}

static void W5_from_protocol_1_on_unhealthy_is_definitive(void)
{
    struct kp_liveness l = up(0);
    l.healthy = false;
    l.ever_healthy = false;
    KT_FALSE(kp_is_alive(&l));
}

static void R49_a_booting_broker_is_alive_whatever_its_readiness(void)
{
    struct kp_liveness l[3] = {up(0), up(1), up(2)}; /* readiness is no input at all */
    bool m[3] = {false, false, false};
    KT_FALSE(kp_decide_alive(l, 3, KP_NO_BROKER, m));
    KT_TRUE(m[0] && m[1] && m[2]);
}

static void a_held_broker_stays_what_it_was(void)
{
    struct kp_liveness l[3] = {up(0), up(1), up(2)};
    bool m[3] = {true, true, false};
    l[1].connected = l[2].connected = false;
    l[1].held = l[2].held = true;
    KT_FALSE(kp_decide_alive(l, 3, KP_NO_BROKER, m));
    KT_TRUE(m[0] && m[1] && !m[2]);
}

static void R29_the_drainer_stands_in_when_the_last_set_is_deregistered(void)
{
    struct kp_liveness l[2] = {up(0), up(1)};
    bool m[2] = {false, false}; /* the only member was broker 2, which is gone */
    l[0].draining = true;
    l[1].connected = false;
    KT_TRUE(kp_decide_alive(l, 2, KP_NO_BROKER, m));
    KT_TRUE(m[0] && !m[1]);
}

static void draining_and_condemned_brokers_are_out(void)
{
    struct kp_liveness l[3] = {up(0), up(1), up(2)};
    bool m[3] = {true, true, true};
    l[0].draining = true;
    l[1].condemned = true;
    KT_FALSE(kp_decide_alive(l, 3, KP_NO_BROKER, m));
    KT_TRUE(!m[0] && !m[1] && m[2]);
}

KT_MAIN("alive", KT(R48_R55_connected_and_healthy_decide),
        KT(R48_no_heartbeat_at_all_leaves_the_last_set), KT(R15_the_set_never_becomes_empty),
        KT(R28_self_outranks_its_own_draining_and_health),
        KT(R52_R53_an_old_image_is_evicted_only_after_it_proved_healthy),
        KT(W5_from_protocol_1_on_unhealthy_is_definitive),
        KT(R49_a_booting_broker_is_alive_whatever_its_readiness),
        KT(a_held_broker_stays_what_it_was),
        KT(R29_the_drainer_stands_in_when_the_last_set_is_deregistered),
        KT(draining_and_condemned_brokers_are_out))
