/* A broker's /metrics parses, whatever of it runs. */
#include "kt.h"
#include "kt_prom.h"

#include <stdlib.h>
#include <unistd.h>

#include "app/kb_broker.h"
#include "groups/kg_groups.h"
#include "handlers/kb_api.h"
#include "handlers/kb_group.h"

static char text[256 * 1024];
static struct kb_broker b;

static bool no(void *ctx)
{
    (void)ctx;
    return false;
}

static int64_t stalled_ms;

static void stall(void *ctx, int64_t now, struct ks_stall *ret)
{
    (void)ctx;
    (void)now;
    *ret = (struct ks_stall){stalled_ms, "link", "ks-scan"};
}

static void up(bool self_led)
{
    struct kc_err err;
    static struct kb_config config;
    memset(&b, 0, sizeof(b));
    config.self_led = self_led;
    b.config = &config;
    kb_app_init(&b.app);
    KT_REQUIRE(kd_new(2, &b.app.data, &err) == 0);
    struct kn_listener_opts l = {.name = "internal", .bind = "127.0.0.1"};
    struct kn_opts o = {
        .listeners = &l, .n_listeners = 1, .handler = {kb_on_frame, kb_frame_overlaps, &b.app}};
    KT_REQUIRE(kn_server_new(&o, &b.app.net, &err) == 0);
    stalled_ms = 0;
    b.source = (struct kh_source){
        .vitals = {b.loops, 2, stall, &b}, .listening = no, .serving = no, .ctx = &b};
    for (int i = 0; i < 2; i++) {
        b.loops[i] = kd_loop(b.app.data, i);
    }
}

static void down(void)
{
    kn_server_free(b.app.net);
    kd_free(b.app.data);
}

static void write_text(void)
{
    struct kc_out out = {.body = text, .cap = sizeof(text) - 1};
    kb_write_metrics(&b, &out);
    text[out.len] = '\0';
    KT_PROM(text);
}

static double value(const char *series)
{
    return kt_prom_get(text, series);
}

static void a_broker_that_starts_says_what_it_can(void)
{
    double v;
    up(true);
    atomic_store(&b.app.metrics.fetch_sessions, 3);
    atomic_store(&b.app.metrics.fetch_session_partitions, 40);
    atomic_store(&b.app.metrics.fetch_session_evictions, 5);
    write_text();
    KT_EQ(value("kaas_fetch_sessions"), 3);
    KT_EQ(value("kaas_fetch_session_partitions"), 40);
    KT_EQ(value("kaas_fetch_session_evictions_total"), 5);
    KT_EQ(value("kaas_broker_state"), 1);
    KT_EQ(value("kaas_broker_ready"), 0);
    KT_EQ(value("kaas_requests_total{api=\"produce\"}"), 0);
    KT_EQ(value("kaas_loop_age_ms{loop=\"1\"}"), -1);
    KT_FALSE(kt_prom_value(text, "kaas_image_generation", &v)); /* self-led: no control plane */
    down();
}

static void groups_show_theirs(void)
{
    up(true);
    struct kg_groups_opts o = {.data = b.app.data, .config = kb_group_config(&b.app)};
    b.app.groups = kg_groups_new(&o);
    write_text();
    KT_EQ(value("kaas_group_members"), 0);
    kg_groups_free(b.app.groups);
    down();
}

static void on_image(void *ctx, struct ki_image *im)
{
    (void)ctx;
    (void)im;
}

static void stop_control(void *arg)
{
    kl_stop(arg);
    rt_loop_stop(&b.control);
}

/* A cluster's broker that has heard nothing yet. */
static void the_control_plane_shows_its_state(void)
{
    up(false);
    struct kl_opts o = {.cluster = "default/demo",
                        .volume_cluster_id = "",
                        .operator_host = "127.0.0.1",
                        .operator_port = 1,
                        .interval_ms = 1000,
                        .timeout_ms = 3000,
                        .source = KL_SOURCE_DIRECTORY,
                        .image_name = "demo-image",
                        .image_dir = "/nonexistent",
                        .data = b.app.data,
                        .on_image = on_image};
    struct kc_err err;
    struct kl_cluster *k;
    KT_REQUIRE(rt_loop_init(&b.control, "control") == 0);
    KT_REQUIRE(kl_start(&o, &b.control, &k, &err) == 0);
    atomic_store(&b.control_plane, k);
    atomic_store(&b.accepting, true);
    write_text();
    KT_EQ(value("kaas_heartbeat_streams"), 0);
    KT_EQ(value("kaas_image_age_ms"), -1);
    KT_EQ(value("kaas_takeovers_total"), 0);
    rt_call(&b.control, stop_control, k); /* before its timers can run */
    KT_REQUIRE(rt_loop_start(&b.control) == 0);
    rt_loop_join(&b.control);
    kl_free(k);
    down();
}

static void what_does_not_fit_is_cut_at_a_line(void)
{
    up(true);
    for (size_t cap = 1; cap < 20000; cap += 301) {
        struct kc_out out = {.body = text, .cap = cap};
        kb_write_metrics(&b, &out);
        KT_TRUE(out.len < cap || out.len == 0);
        KT_TRUE(out.len == 0 || text[out.len - 1] == '\n');
        text[out.len] = '\0';
        const char *bad = out.len ? kt_prom_check(text) : NULL;
        KT_TRUE(!bad || strstr(bad, "empty") == bad);
    }
    down();
}

/* R46: which thread waits in which operation; no series while none does. */
static void R46_a_stall_is_a_series_of_its_own(void)
{
    static const char series[] = "kaas_storage_stall_ms{operation=\"link\",thread=\"ks-scan\"}";
    double v;
    up(true);
    write_text();
    KT_FALSE(kt_prom_value(text, series, &v));
    stalled_ms = KH_STALL_MS + 1;
    write_text();
    KT_EQ(value(series), KH_STALL_MS + 1);
    KT_EQ(value("kaas_broker_healthy"), 0);
    down();
}

KT_MAIN("metrics", KT(a_broker_that_starts_says_what_it_can), KT(groups_show_theirs),
        KT(the_control_plane_shows_its_state), KT(what_does_not_fit_is_cut_at_a_line),
        KT(R46_a_stall_is_a_series_of_its_own))
