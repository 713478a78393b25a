/* Readiness and liveness from their own thread (R37 to R41), and the one judgement behind them. */
#include "kt.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "health/kh_health.h"
#include "kt_net.h"

static struct {
    struct rt_loop loops[2];
    struct rt_loop *list[2];
    struct kh_health *health;
    _Atomic bool listening, serving, wedged;
    _Atomic int64_t stalled_ms;
    _Atomic bool refuses;
} fx;

static bool listening(void *ctx)
{
    (void)ctx;
    return atomic_load(&fx.listening);
}

static bool serving(void *ctx)
{
    (void)ctx;
    return atomic_load(&fx.serving);
}

static const char *volume(void *ctx)
{
    (void)ctx;
    return atomic_load(&fx.refuses) ? "the volume is full" : NULL;
}

static void stall(void *ctx, int64_t now, struct ks_stall *ret)
{
    (void)ctx;
    (void)now;
    *ret = (struct ks_stall){atomic_load(&fx.stalled_ms), "datasync", "ks-sync"};
}

static void metrics(void *ctx, struct kc_out *out)
{
    (void)ctx;
    kc_out_metric(out, "gauge", "kaas_test", "A test.");
    kc_out_printf(out, "kaas_test 7\n");
}

static void up(bool cluster)
{
    memset(&fx, 0, sizeof(fx));
    fx.listening = fx.serving = true;
    for (int i = 0; i < 2; i++) {
        fx.list[i] = &fx.loops[i];
        KT_REQUIRE(rt_loop_init(&fx.loops[i], i ? "hl-1" : "hl-0") == 0);
        KT_REQUIRE(rt_loop_start(&fx.loops[i]) == 0);
    }
    struct kh_source src = {.vitals = {fx.list, 2, stall, NULL},
                            .listening = listening,
                            .volume = volume,
                            .cluster = cluster,
                            .serving = serving,
                            .metrics = metrics};
    struct kc_err err;
    KT_REQUIRE(kh_start("127.0.0.1", 0, &src, &fx.health, &err) == 0);
    struct kh_vitals v;
    int64_t until = kc_mono_ms() + 5000;
    do {
        poll(NULL, 0, 1);
        kh_vitals_read(&src.vitals, kc_mono_ms(), &v);
    } while (v.loop_ms == INT64_MAX && kc_mono_ms() < until);
}

static void down(void)
{
    kh_stop(fx.health);
    for (int i = 0; i < 2; i++) {
        rt_loop_stop(&fx.loops[i]);
        rt_loop_join(&fx.loops[i]);
    }
}

/* The status code; the answer is in body. -1: none within the kubelet's patience, and more. */
static char body[4096];
static int get(const char *path)
{
    int fd = kt_dial(kh_port(fx.health), 3);
    KT_REQUIRE(fd >= 0);
    dprintf(fd, "GET %s HTTP/1.1\r\n\r\n", path);
    size_t n = 0;
    for (ssize_t r;
         n < sizeof(body) - 1 && (r = recv(fd, body + n, sizeof(body) - 1 - n, 0)) > 0;) {
        n += (size_t)r;
    }
    body[n] = '\0';
    close(fd);
    return n > 12 ? (int)strtol(body + 9, NULL, 10) : -1;
}

static void R37_R46_every_term_can_make_it_not_ready_and_is_named(void)
{
    up(true);
    KT_EQ(get("/readyz"), 200);
    KT_TRUE(strstr(body, "\r\n\r\nready\n") != NULL);
    fx.serving = false;
    KT_EQ(get("/readyz"), 503);
    KT_TRUE(strstr(body, "not ready\n") && strstr(body, "serving: no"));
    fx.serving = true;
    fx.listening = false;
    KT_EQ(get("/readyz"), 503);
    KT_TRUE(strstr(body, "listening: no") != NULL);
    fx.listening = true;
    fx.stalled_ms = KH_STALL_MS + 1;
    KT_EQ(get("/readyz"), 503);
    KT_TRUE(strstr(body, "storage: stalled for 5001 ms in datasync on ks-sync\n") != NULL);
    KT_EQ(get("/healthz"), 200); /* a stall never restarts the pod */
    fx.stalled_ms = 0;
    KT_EQ(get("/readyz"), 200);
    atomic_store(&fx.refuses, true);
    KT_EQ(get("/readyz"), 200); /* a full volume makes nobody unready: reads are served */
    KT_TRUE(strstr(body, "storage: the volume is full: records are refused") != NULL);
    atomic_store(&fx.refuses, false);
    KT_EQ(get("/nothing"), 404);
    KT_EQ(get("/metrics"), 200);
    KT_TRUE(strstr(body, "kaas_test 7\n") != NULL);
    down();
}

static void R43_outside_a_cluster_serving_is_not_asked_for(void)
{
    up(false);
    fx.serving = false;
    KT_EQ(get("/readyz"), 200);
    KT_TRUE(strstr(body, "serving: not asked for") != NULL);
    down();
}

static void stand_still(void *arg)
{
    (void)arg;
    while (atomic_load(&fx.wedged)) {
        poll(NULL, 0, 5);
    }
}

static void R39_R40_one_wedged_loop_makes_it_not_ready_and_probes_are_answered(void)
{
    up(true);
    fx.wedged = true;
    rt_call(&fx.loops[1], stand_still, NULL);
    int64_t until = kc_mono_ms() + KH_LOOP_STALE_MS + 5000, slowest = 0;
    int code = 200;
    while (code == 200 && kc_mono_ms() < until) {
        int64_t start = kc_mono_ms();
        code = get("/readyz");
        int64_t took = kc_mono_ms() - start;
        slowest = took > slowest ? took : slowest;
        poll(NULL, 0, 50);
    }
    KT_EQ(code, 503);
    KT_TRUE(strstr(body, "main alive: no") && strstr(body, "loop 1: no tick"));
    KT_TRUE(strstr(body, "loop 0") == NULL);
    KT_EQ(get("/healthz"), 200); /* not for a minute yet */
    KT_TRUE(slowest < 1000); /* the kubelet's default timeoutSeconds */
    fx.wedged = false;
    until = kc_mono_ms() + 5000;
    while ((code = get("/readyz")) != 200 && kc_mono_ms() < until) {
        poll(NULL, 0, 10);
    }
    KT_EQ(code, 200);
    down();
}

static void R40_a_loop_that_never_ticked_is_not_alive(void)
{
    struct rt_loop idle;
    struct rt_loop *list[1] = {&idle};
    fx.listening = fx.serving = true;
    fx.stalled_ms = 0;
    KT_REQUIRE(rt_loop_init(&idle, "hl-2") == 0);
    struct kh_source src = {.vitals = {list, 1, stall, NULL},
                            .listening = listening,
                            .serving = serving,
                            .metrics = metrics};
    struct kh_terms t;
    char why[96];
    kh_terms(&src, kc_mono_ms(), &t);
    KT_FALSE(t.vitals.main_alive);
    KT_FALSE(kh_ready(&t));
    kh_vitals_text(&t.vitals, why, sizeof(why));
    KT_STR(why, "loop 0 has not started");
    rt_loop_stop(&idle);
    rt_loop_run(&idle);
}

/* Busy, stalled and wedged are three things, and readiness and heartbeat hear of them from one place. */
static void R40_R46_what_is_wrong_is_named_and_bounded(void)
{
    struct rt_loop *list[2] = {&fx.loops[0], &fx.loops[1]};
    struct kh_vitals_source src = {list, 2, stall, NULL};
    struct kh_vitals v;
    char why[96];
    int64_t now = 1000000;
    fx.loops[0].tick_ms = now;
    fx.loops[1].tick_ms = now - KH_LOOP_STALE_MS;
    fx.stalled_ms = KH_STALL_MS;
    kh_vitals_read(&src, now, &v);
    KT_TRUE(kh_healthy(&v)); /* at the bounds */
    kh_vitals_text(&v, why, sizeof(why));
    KT_STR(why, "");
    fx.stalled_ms = KH_STALL_MS + 2000;
    kh_vitals_read(&src, now, &v);
    KT_TRUE(v.main_alive && !v.storage_ok && !kh_healthy(&v));
    kh_vitals_text(&v, why, sizeof(why));
    KT_STR(why, "storage stalled 7 s: datasync on ks-sync");
    fx.stalled_ms = 0;
    kh_vitals_read(&src, now + 1, &v);
    KT_TRUE(!v.main_alive && v.storage_ok && !kh_healthy(&v));
    KT_EQ(v.loop, 1);
    kh_vitals_text(&v, why, sizeof(why));
    KT_STR(why, "wedged loop 1, 5 s");
}

KT_MAIN("health", KT(R37_R46_every_term_can_make_it_not_ready_and_is_named),
        KT(R43_outside_a_cluster_serving_is_not_asked_for),
        KT(R39_R40_one_wedged_loop_makes_it_not_ready_and_probes_are_answered),
        KT(R40_a_loop_that_never_ticked_is_not_alive),
        KT(R40_R46_what_is_wrong_is_named_and_bounded))
