/* kb_metrics.c - /metrics: the table of metrics.def, and series by API and by loop.
 *
 * Runs on the health thread: reads atomics, allocates nothing, takes no lock (R39). */
#include <inttypes.h>

#include "app/kb_broker.h"
#include "base/kc_clock.h"
#include "groups/kg_groups.h"
#include "handlers/kb_api.h"

#define COUNTER "counter"
#define GAUGE "gauge"
/* A line of a table. */
#define M(kind, name, help, value) kc_out_value(o, #kind, name, help, (int64_t)(value));

static void write_table(struct kb_broker *b, struct kc_out *o)
{
    struct kn_counters *n = kn_server_counters(b->app.net);
    struct kb_metrics *h = &b->app.metrics;
    struct ks_metrics sample = {0}, *k = &sample;
    struct ks_engine *engine = atomic_load(&b->engine);
    struct ks_stall stall;
    kb_stall(b, kc_mono_ms(), &stall);
    if (engine) {
        ks_metrics_read(engine, k);
    }
#include "app/metrics.def"
}

static void write_apis(struct kb_broker *b, struct kc_out *o)
{
    size_t n;
    const struct kb_api *apis = kb_apis(&n);
    kc_out_metric(o, COUNTER, "kaas_requests_total", "Requests ended, by API.");
    for (size_t i = 0; i < n; i++) {
        kc_out_printf(o, "kaas_requests_total{api=\"%s\"} %" PRIu64 "\n", apis[i].name,
                      atomic_load(&b->app.metrics.api[apis[i].key].requests));
    }
    kc_out_metric(o, COUNTER, "kaas_request_seconds_total",
                  "Time from a request's arrival to its answer, long polls included, by API.");
    for (size_t i = 0; i < n; i++) {
        uint64_t us = atomic_load(&b->app.metrics.api[apis[i].key].us);
        kc_out_printf(o, "kaas_request_seconds_total{api=\"%s\"} %" PRIu64 ".%06" PRIu64 "\n",
                      apis[i].name, us / 1000000, us % 1000000);
    }
    kc_out_metric(o, COUNTER, "kaas_requests_dropped_total",
                  "Requests that closed their connection, by API.");
    for (size_t i = 0; i < n; i++) {
        kc_out_printf(o, "kaas_requests_dropped_total{api=\"%s\"} %" PRIu64 "\n", apis[i].name,
                      atomic_load(&b->app.metrics.api[apis[i].key].dropped));
    }
}

static void write_loops(struct kb_broker *b, struct kc_out *o)
{
    int64_t now = kc_mono_ms();
    kc_out_metric(o, GAUGE, "kaas_loop_age_ms",
                  "Milliseconds since a data loop turned; -1 = never.");
    for (int32_t i = 0; i < b->source.vitals.n_loops; i++) {
        int64_t age = rt_loop_age_ms(b->loops[i], now);
        kc_out_printf(o, "kaas_loop_age_ms{loop=\"%d\"} %" PRId64 "\n", i,
                      age == INT64_MAX ? (int64_t)-1 : age);
    }
    kc_out_metric(o, COUNTER, "kaas_loop_turns_total", "Turns of a data loop.");
    for (int32_t i = 0; i < b->source.vitals.n_loops; i++) {
        kc_out_printf(o, "kaas_loop_turns_total{loop=\"%d\"} %" PRIu64 "\n", i,
                      atomic_load(&b->loops[i]->turns));
    }
}

/* Which thread waits in which file operation: a series only while there is a stall. */
static void write_stall(struct kb_broker *b, struct kc_out *o)
{
    struct kh_vitals v;
    kh_vitals_read(&b->source.vitals, kc_mono_ms(), &v);
    kc_out_metric(o, GAUGE, "kaas_storage_stall_ms",
                  "Age of a file operation that stalls the storage, by operation and thread.");
    if (!v.storage_ok) {
        kc_out_printf(o, "kaas_storage_stall_ms{operation=\"%s\",thread=\"%s\"} %" PRId64 "\n",
                      v.stall.operation, v.stall.thread, v.stall.ms);
    }
    kc_out_metric(
        o, GAUGE, "kaas_broker_healthy",
        "1 if every data loop is alive and the storage is not stalled, as heartbeats say.");
    kc_out_printf(o, "kaas_broker_healthy %d\n", kh_healthy(&v));
}

static void write_groups(struct kb_broker *b, struct kc_out *o)
{
    const struct kg_groups *groups = atomic_load(&b->app.groups);
    if (!groups) {
        return;
    }
    struct kg_metrics sample, *g = &sample;
    kg_groups_metrics(groups, g);
    kc_out_metric(o, GAUGE, "kaas_groups", "Consumer groups this broker coordinates, by state.");
    for (enum kg_state state = KG_EMPTY; state < KG_DEAD; state++) {
        kc_out_printf(o, "kaas_groups{state=\"%s\"} %" PRId64 "\n", kg_state_name(state),
                      g->groups[state]);
    }
#include "groups/kg_metrics.def"
}

static void write_control_plane(struct kb_broker *b, struct kc_out *o)
{
    const struct kl_cluster *control_plane = atomic_load(&b->control_plane);
    if (!control_plane) {
        return;
    }
    struct kl_metrics sample, *c = &sample;
    kl_metrics_read(control_plane, c);
#include "cluster/kl_metrics.def"
}

void kb_write_metrics(struct kb_broker *b, struct kc_out *out)
{
    kc_out_metric(out, GAUGE, "kaas_build_info", "The version of this broker; always 1.");
    kc_out_printf(out, "kaas_build_info{version=\"%s\",broker=\"%d\"} 1\n", KB_VERSION,
                  b->app.self_id);
    write_table(b, out);
    write_control_plane(b, out);
    write_groups(b, out);
    write_apis(b, out);
    write_loops(b, out);
    write_stall(b, out);
}
