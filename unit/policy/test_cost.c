#include "kt.h"

#include "base/kc_clock.h"
#include "policy/kp_ctl.h"

/* 20,000 partitions on 10 brokers: an idle step costs next to nothing, a death far less than a
 * heartbeat interval. The best of a few runs, so that a busy machine does not fail it. */
enum { TOPICS = 2000, PARTS = 10, BROKERS = 10 };

static struct kp_ctl *c;
static struct kc_uuid ids[TOPICS], incarnations[BROKERS];
static struct kp_led led[TOPICS * PARTS];
static int64_t now;

static void say(int32_t broker, bool full)
{
    int32_t n = 0;
    for (int32_t t = 0; t < TOPICS && full; t++) {
        int32_t parts;
        const struct kp_part *p = kp_ctl_parts(c, &ids[t], &parts);
        for (int32_t i = 0; i < parts; i++) {
            if (p[i].assigned == broker) {
                led[n++] = (struct kp_led){ids[t], i, p[i].led_epoch < 0 ? 0 : p[i].led_epoch};
            }
        }
    }
    struct kp_status s = {.broker = broker,
                          .stream = (uint64_t)broker + 1,
                          .incarnation = incarnations[broker],
                          .healthy = true,
                          .serving = true,
                          .full = full,
                          .led = led,
                          .n_led = n};
    kp_ctl_status(c, &s, now);
}

static double step(void)
{
    struct kp_changes ch;
    int64_t start = kc_mono_us();
    kp_ctl_step(c, now, 1, &ch);
    return (double)(kc_mono_us() - start) / 1e3;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

static void begin(void)
{
    struct kp_ctl_opts o = {.max_brokers = BROKERS,
                            .max_topics = TOPICS,
                            .max_partitions = TOPICS * PARTS,
                            .interval_ms = 1000,
                            .timeout_ms = 3000,
                            .self_id = KP_NO_BROKER};
    struct kp_endpoint eps[BROKERS];
    memset(eps, 0, sizeof(eps));
    now = 1000;
    c = kp_ctl_new(&o);
    for (int32_t t = 0; t < TOPICS; t++) {
        memcpy(ids[t].b, &t, sizeof(t));
        ids[t].b[15] = 1;
        KT_EQ(kp_ctl_topic(c, &ids[t], false, KP_NOT_SLOTS, PARTS, true), 0);
    }
    for (int32_t b = 0; b < BROKERS; b++) {
        eps[b].ordinal = b;
        snprintf(eps[b].pod_uid, sizeof(eps[b].pod_uid), "p%d", (int)b);
    }
    kp_ctl_set_desired(c, BROKERS);
    kp_ctl_slice(c, "s", eps, BROKERS, now);
    kp_ctl_activate(c, now);
    for (int32_t b = 0; b < BROKERS; b++) {
        incarnations[b].b[0] = (uint8_t)(b + 1);
        struct kp_hello h = {.broker = b,
                             .stream = (uint64_t)b + 1,
                             .incarnation = incarnations[b],
                             .protocol_version = 1};
        snprintf(h.pod_uid, sizeof(h.pod_uid), "p%d", (int)b);
        KT_EQ(kp_ctl_hello(c, &h, now, NULL), 0);
        say(b, false);
    }
}

static void costs_stay_within_their_budgets(void)
{
    double first = 1e9, death = 1e9, idle = 1e9;
    for (int run = 0; run < 3; run++) {
        begin();
        first = least(first, step());
        for (int32_t b = 0; b < BROKERS; b++) {
            say(b, true);
        }
        step();
        for (int i = 0; i < 100; i++) {
            now += 10;
            say(i % BROKERS, false);
            idle = least(idle, step());
        }
        kp_ctl_stream_closed(c, 3, 4, now);
        for (int32_t b = 0; b < BROKERS; b++) {
            say(b, false);
        }
        now += 1001;
        death = least(death, step());
        KT_EQ(kp_ctl_row(c, 3)->health, KP_DEAD);
        kp_ctl_free(c);
    }
    printf("first layout %.2f ms, idle step %.4f ms, a death %.2f ms\n", first, idle, death);
    KT_TRUE(idle < 0.1);
    KT_TRUE(death < 20);
    KT_TRUE(first < 200);
}

KT_MAIN("cost", KT(costs_stay_within_their_budgets))
