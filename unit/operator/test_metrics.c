/* The operator's /metrics parses, and says what is known of each cluster. */
#include "kt.h"
#include "kt_prom.h"

#include <pthread.h>

#include "app/ko_metrics.h"
#include "reconcile/ko_gauges.h"

static char text[64 * 1024];
static struct ko_gauges gauges;

static void tell(const char *cluster, uint64_t generation)
{
    struct kp_row rows[4] = {{.state = KP_SERVING},
                             {.state = KP_SERVING},
                             {.state = KP_FENCED},
                             {.state = KP_STATE_DRAINING}};
    struct ko_view v = {.order = {.term = 3, .generation = generation},
                        .n_rows = 4,
                        .rows = rows,
                        .partitions = 48,
                        .offline = 1,
                        .leaderless = 2,
                        .away = 5};
    snprintf(v.cluster, sizeof(v.cluster), "%s", cluster);
    ko_gauges_set(&gauges, &v);
}

static void write_text(void)
{
    struct ko_metrics m = {.gauges = &gauges,
                           .streams = 6,
                           .api_age_ms = INT64_MAX,
                           .rec = {.leader = true, .failures = 4, .clusters = 2}};
    text[ko_metrics_write(&m, text, sizeof(text) - 1)] = '\0';
    KT_PROM(text);
}

static double value(const char *series)
{
    return kt_prom_get(text, series);
}

static void every_line_parses_and_the_numbers_are_there(void)
{
    ko_gauges_clear(&gauges);
    write_text();
    KT_EQ(value("kaas_operator_leader"), 1);
    KT_EQ(value("kaas_operator_reconcile_failures_total"), 4);
    KT_EQ(value("kaas_operator_heartbeat_streams"), 6);
    KT_EQ(value("kaas_operator_api_loop_age_ms"), -1);
    tell("default/demo", 17);
    tell("team-a/events", 2);
    tell("default/demo", 18);
    write_text();
    KT_EQ(value("kaas_cluster_brokers{cluster=\"default/demo\",state=\"serving\"}"), 2);
    KT_EQ(value("kaas_cluster_brokers{cluster=\"default/demo\",state=\"fenced\"}"), 1);
    KT_EQ(value("kaas_cluster_brokers{cluster=\"default/demo\",state=\"draining\"}"), 1);
    KT_EQ(value("kaas_cluster_image_generation{cluster=\"default/demo\"}"), 18);
    KT_EQ(value("kaas_cluster_image_generation{cluster=\"team-a/events\"}"), 2);
    KT_EQ(value("kaas_cluster_partitions_offline{cluster=\"team-a/events\"}"), 1);
}

static void a_cluster_that_goes_takes_its_series_along(void)
{
    double v;
    ko_gauges_clear(&gauges);
    tell("default/demo", 1);
    tell("default/other", 1);
    ko_gauges_drop(&gauges, "default/demo");
    ko_gauges_drop(&gauges, "default/unknown");
    write_text();
    KT_FALSE(kt_prom_value(text, "kaas_cluster_partitions{cluster=\"default/demo\"}", &v));
    KT_EQ(value("kaas_cluster_partitions{cluster=\"default/other\"}"), 48);
    for (int i = 0; i < 2 * KO_GAUGE_SLOTS; i++) { /* more than there is room for */
        char name[32];
        snprintf(name, sizeof(name), "default/c%d", i);
        tell(name, 1);
    }
    write_text();
    ko_gauges_clear(&gauges);
    write_text();
    KT_TRUE(strstr(text, "{cluster=") == NULL);
}

static void what_does_not_fit_is_cut_at_a_line(void)
{
    tell("default/demo", 1);
    struct ko_metrics m = {.gauges = &gauges};
    for (size_t cap = 1; cap < 3000; cap += 37) {
        size_t n = ko_metrics_write(&m, text, cap);
        KT_TRUE(n < cap);
        KT_TRUE(n == 0 || text[n - 1] == '\n');
    }
}

static void *write_many(void *arg)
{
    (void)arg;
    for (uint64_t i = 0; i < 20000; i++) {
        struct ko_view v = {.order = {.term = i, .generation = i}};
        snprintf(v.cluster, sizeof(v.cluster), "default/demo");
        ko_gauges_set(&gauges, &v);
    }
    return NULL;
}

/* The values of a sample are of one moment. */
static void a_reader_never_sees_half_of_a_change(void)
{
    pthread_t t;
    struct ko_gauge_sample s;
    int64_t last = 0;
    ko_gauges_clear(&gauges);
    KT_REQUIRE(pthread_create(&t, NULL, write_many, NULL) == 0);
    while (last < 19999) {
        for (int i = 0; i < KO_GAUGE_SLOTS; i++) {
            if (ko_gauges_read(&gauges, i, &s)) {
                KT_REQUIRE(s.values[KO_G_TERM] == s.values[KO_G_GENERATION]);
                KT_REQUIRE(strcmp(s.cluster, "default/demo") == 0);
                last = s.values[KO_G_TERM];
            }
        }
    }
    pthread_join(t, NULL);
}

KT_MAIN("metrics", KT(every_line_parses_and_the_numbers_are_there),
        KT(a_cluster_that_goes_takes_its_series_along), KT(what_does_not_fit_is_cut_at_a_line),
        KT(a_reader_never_sees_half_of_a_change))
