/* kb_broker.c - wiring, start and stop; see kb_broker.h. Everything runs on the main thread, which
 * is the control loop, unless a comment says otherwise. */
#include "app/kb_broker.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "app/kb_limits.h"
#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "groups/kg_groups.h"
#include "handlers/kb_api.h"
#include "handlers/kb_group.h"
#include "handlers/kb_kafka_config.h"
#include "policy/kp_drain.h"
#include "rt/rt_limits.h"

enum {
    LINGER_MS = 2000,
    LINGER_STEP_MS = 10,
    FRAME_MS = 30000,
    STALLED_PEER_MS = 60000,
    PIPELINE = 64
};

/* ---- what the health thread asks; atomics only ---- */

static bool is_listening(void *ctx)
{
    struct kb_broker *b = ctx;
    return atomic_load(&b->listening);
}

void kb_stall(struct kb_broker *b, int64_t now_mono_ms, struct ks_stall *ret)
{
    struct ks_engine *e = atomic_load(&b->engine);
    *ret = (struct ks_stall){.operation = ""};
    if (e) {
        ks_stall_read(e, now_mono_ms, ret);
    }
}

static void stall(void *ctx, int64_t now_mono_ms, struct ks_stall *ret)
{
    kb_stall(ctx, now_mono_ms, ret);
}

static const char *volume(void *ctx)
{
    struct kb_broker *b = ctx;
    struct ks_engine *e = atomic_load(&b->engine);
    enum ks_volume v = e ? ks_volume_state(e) : KS_VOLUME_OK;
    return v == KS_VOLUME_FULL        ? "the volume is full"
           : v == KS_VOLUME_READ_ONLY ? "the volume is read-only"
                                      : NULL;
}

static bool serving(struct kb_broker *b)
{
    if (!atomic_load(&b->accepting)) {
        return false;
    }
    return b->config->self_led ? kb_self_serving(b->self) : kl_serving(b->cluster.control);
}

static bool is_serving(void *ctx)
{
    return serving(ctx);
}

static void write_metrics(void *ctx, struct kc_out *out)
{
    kb_write_metrics(ctx, out);
}

bool kb_broker_ready(struct kb_broker *b)
{
    struct kh_terms t;
    kh_terms(&b->source, kc_mono_ms(), &t);
    return kh_ready(&t);
}

int kb_broker_state(struct kb_broker *b)
{
    static const int kafka[] = {[KB_STARTING] = 1,
                                [KB_TAKING_OVER] = 2,
                                [KB_RUNNING] = 3,
                                [KB_DRAINING] = 6,
                                [KB_ENDING] = 7};
    int phase = atomic_load(&b->phase);
    return kafka[phase == KB_TAKING_OVER && serving(b) ? KB_RUNNING : phase];
}

/* ---- the end ---- */

static void stop_control(struct kb_broker *b)
{
    if (b->cluster.control) {
        kl_stop(b->cluster.control);
    }
    rt_loop_stop(&b->control);
}

static void on_linger(uv_timer_t *t)
{
    struct kb_broker *b = t->data;
    if (atomic_load(&b->app.metrics.under_way) == 0 || kc_mono_ms() >= b->linger_until_ms) {
        stop_control(b);
    }
}

/* Nothing is led any more: the listeners close, answers under way leave. */
static void end(struct kb_broker *b, int exit_code)
{
    if (atomic_load(&b->phase) == KB_ENDING) {
        stop_control(b);
        return;
    }
    atomic_store(&b->phase, KB_ENDING);
    b->exit_code = exit_code;
    atomic_store(&b->listening, false);
    kn_server_stop(b->app.net, true);
    int64_t now = kc_mono_ms();
    b->linger_until_ms = now + LINGER_MS;
    if (b->terminated_ms) { /* the SIGKILL is near, where the drain has taken all of its time */
        int64_t last = b->terminated_ms + kp_drain_of(b->config->termination_grace_s).exit_ms;
        b->linger_until_ms = KC_MIN(b->linger_until_ms, last);
    }
    uv_timer_start(&b->linger, on_linger, 0, LINGER_STEP_MS);
}

static void on_drained(void *ctx)
{
    struct kb_broker *b = ctx;
    kc_log(KC_INFO, "broker", "event=drained");
    end(b, 0);
}

static void on_terminate(uv_signal_t *s, int signum)
{
    struct kb_broker *b = s->data;
    int phase = atomic_load(&b->phase);
    kc_log(KC_INFO, "broker", "event=signal signal=%d", signum);
    if (phase >= KB_DRAINING || (!b->self && !b->cluster.control)) {
        end(b, phase >= KB_DRAINING ? 1 : 0); /* asked twice, or nothing to hand over yet */
        return;
    }
    b->terminated_ms = kc_mono_ms();
    atomic_store(&b->phase, KB_DRAINING);
    atomic_store(&b->app.draining, true);
    if (b->self) {
        kb_self_drain(b->self, on_drained, b);
    } else {
        kl_drain(b->cluster.control);
    }
}

#if !defined(NDEBUG) || defined(KAAS_TEST_HOOKS)
static void on_wedge(uv_signal_t *s, int signum)
{
    struct kb_broker *b = s->data;
    static bool on;
    (void)signum;
    on = !on;
    kc_log(KC_WARN, "broker", "event=test_wedge on=%d", on);
    kd_test_wedge(b->app.data, on);
}
#endif

/* ---- the start, second part: with the volume ---- */

static void on_fenced(void *ctx, const char *why)
{
    struct kb_broker *b = ctx;
    if (b->self) {
        kb_self_fenced(b->self, why);
    } else if (b->cluster.control) {
        kl_fenced(b->cluster.control, why);
    }
}

/* [data loop] */
static void on_log_stopped(void *ctx, const struct kc_uuid *topic_id, int32_t partition)
{
    struct kb_broker *b = ctx;
    if (b->self) {
        kb_self_stopped(b->self, topic_id, partition);
    } else {
        kl_log_stopped(b->cluster.control, topic_id, partition);
    }
}

/* [data loop] */
static void on_log_epoch(void *ctx, const struct kc_uuid *topic_id, int32_t partition,
                         int32_t epoch)
{
    struct kb_broker *b = ctx;
    if (b->self) {
        kb_self_epoch(b->self, topic_id, partition, epoch);
    } else {
        kl_log_epoch(b->cluster.control, topic_id, partition, epoch);
    }
}

static void on_first_image(void *ctx)
{
    struct kb_broker *b = ctx;
    if (!atomic_exchange(&b->accepting, true)) {
        kn_server_start(b->app.net, b->loops, b->source.vitals.n_loops);
    }
}

static void start_self(struct kb_broker *b)
{
    struct kb_self_opts o = {.app = &b->app,
                             .loop = &b->control,
                             .pool = b->pool,
                             .listeners = b->advertised,
                             .n_listeners = b->config->n_listeners,
                             .version = KB_VERSION,
                             .vitals = &b->source.vitals,
                             .first_image = on_first_image,
                             .ctx = b};
    o.groups = true;
    b->self = kb_self_start(&o, &b->boot);
    if (!b->self) {
        kc_log(KC_ERROR, "broker", "event=start_failed error=\"out of memory\"");
        end(b, 1);
        return;
    }
    b->app.admin = kb_self_admin_port(b->self);
}

static void start_cluster(struct kb_broker *b)
{
    b->cluster =
        (struct kb_cluster){.first_image = on_first_image, .drained = on_drained, .ctx = b};
    struct kc_err err;
    if (kb_cluster_start(&b->cluster, &b->app, b->config, b->advertised, KB_VERSION, &b->control,
                         &err)) {
        kc_log(KC_ERROR, "broker", "event=start_failed error=\"%s\"", err.msg);
        end(b, 1);
        return;
    }
    atomic_store(&b->control_plane, b->cluster.control);
}

static void on_booted(struct rt_msg *msg)
{
    struct kb_broker *b = KC_CONTAINER_OF(msg, struct kb_broker, boot_msg);
    if (b->boot_rc) {
        kc_log(KC_ERROR, "broker", "event=start_failed error=\"%s\"", b->boot_err.msg);
        end(b, 1);
        return;
    }
    if (atomic_load(&b->phase) != KB_STARTING) {
        ks_inventory_free(b->boot.inventory);
        return; /* terminated meanwhile */
    }
    atomic_store(&b->phase, KB_TAKING_OVER);
    kc_log(KC_INFO, "broker", "event=volume_open dir=%s cluster_id=%s", b->config->data_dir,
           b->app.cluster_id);
    kg_groups_set_engine(b->app.groups, b->app.engine);
    if (b->config->self_led) {
        start_self(b);
    } else {
        start_cluster(b);
    }
}

/* [pool] The volume may be slow or hang: signals and health are served meanwhile. */
static void boot_work(struct rt_work *w)
{
    struct kb_broker *b = KC_CONTAINER_OF(w, struct kb_broker, boot_work);
    struct ks_opts o = {.dir = b->config->data_dir,
                        .broker_id = b->config->id,
                        .unsafe_storage = b->config->unsafe_storage,
                        .reserve_bytes = -1,
                        .loop = &b->control,
                        .on_fenced = on_fenced,
                        .ctx = b};
    b->boot_rc = ks_engine_open(&o, b->app.cluster_id, &b->app.engine, &b->boot_err);
    if (!b->boot_rc) {
        atomic_store(&b->engine, b->app.engine);
    }
    if (!b->boot_rc && b->config->self_led) {
        b->boot_rc = kb_self_prepare(b->app.engine, &b->boot, &b->boot_err);
    }
    b->boot_msg.fn = on_booted;
    rt_post(&b->control, &b->boot_msg);
}

/* ---- the start, first part: without the volume ---- */

static void set_listeners(struct kb_broker *b)
{
    const struct kb_config *c = b->config;
    b->app.n_endpoints = c->n_listeners;
    for (int32_t i = 0; i < c->n_listeners; i++) {
        const struct kb_listener *l = &c->listeners[i];
        uint16_t port = l->advertised_port ? l->advertised_port : kn_listener_port(b->app.net, i);
        b->app.endpoints[i] = (struct kb_endpoint){l->name, l->advertised_host, port};
        snprintf(b->advertised[i].name, sizeof(b->advertised[i].name), "%s", l->name);
        snprintf(b->advertised[i].host, sizeof(b->advertised[i].host), "%s", l->advertised_host);
        b->advertised[i].port = port;
        kc_log(KC_INFO, "broker", "event=listening listener=%s port=%u advertised=%s:%u", l->name,
               kn_listener_port(b->app.net, i), l->advertised_host, port);
    }
}

static int open_net(struct kb_broker *b, struct kc_err *err)
{
    const struct kb_config *c = b->config;
    const struct kb_app *app = &b->app;
    struct kn_listener_opts opts[KP_LISTENERS_MAX];
    b->app.connection_cap = kb_connection_cap(rt_raise_open_files());
    for (int32_t i = 0; i < c->n_listeners; i++) {
        opts[i] = (struct kn_listener_opts){c->listeners[i].name, c->listeners[i].bind,
                                            c->listeners[i].port};
    }
    struct kn_opts o = {
        .listeners = opts,
        .n_listeners = c->n_listeners,
        .limits = {.max_frame_bytes = (int32_t)kb_start_i64(app, "socket.request.max.bytes"),
                   .send_buffer_bytes = (int32_t)kb_start_i64(app, "socket.send.buffer.bytes"),
                   .max_connections = app->connection_cap, /* until the first image */
                   .max_connections_per_ip = app->connection_cap,
                   .idle_ms = kb_start_i64(app, "connections.max.idle.ms"),
                   .frame_ms = FRAME_MS,
                   .stall_ms = STALLED_PEER_MS,
                   .budget_bytes = kb_start_i64(app, "queued.max.request.bytes"),
                   .max_pipelined = PIPELINE},
        .handler = {kb_on_frame, kb_frame_overlaps, &b->app}};
    int rc = kn_server_new(&o, &b->app.net, err);
    if (!rc) {
        set_listeners(b);
        atomic_store(&b->listening, true);
    }
    return rc;
}

static void start_groups(struct kb_broker *b)
{
    struct kg_groups_opts o = {.data = b->app.data, .config = kb_group_config(&b->app)};
    b->app.groups = kg_groups_new(&o);
    struct kd_slot_hooks hooks = kg_groups_hooks(b->app.groups);
    kd_set_slot_hooks(b->app.data, &hooks);
}

static int start_threads(struct kb_broker *b, struct kc_err *err)
{
    b->source = (struct kh_source){.vitals = {b->loops, kd_n_loops(b->app.data), stall, b},
                                   .listening = is_listening,
                                   .volume = volume,
                                   .cluster = !b->config->self_led,
                                   .serving = is_serving,
                                   .metrics = write_metrics,
                                   .ctx = b};
    for (int32_t i = 0; i < b->source.vitals.n_loops; i++) {
        b->loops[i] = kd_loop(b->app.data, i);
    }
    kd_set_stopped_hook(b->app.data, on_log_stopped, b);
    kd_set_epoch_hook(b->app.data, on_log_epoch, b);
    start_groups(b);
    b->app.fetch_sessions = kb_fetch_sessions_new(&b->app);
    int rc = kd_start(b->app.data, err);
    return rc ? rc
              : kh_start(b->config->health_bind, b->config->health_port, &b->source, &b->health,
                         err);
}

static void watch_signals(struct kb_broker *b)
{
    static const int terminate[] = {SIGTERM, SIGINT};
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < 2; i++) {
        uv_signal_init(&b->control.uv, &b->signals[i]);
        b->signals[i].data = b;
        uv_signal_start(&b->signals[i], on_terminate, terminate[i]);
    }
#if !defined(NDEBUG) || defined(KAAS_TEST_HOOKS)
    const char *wedge = getenv("KAAS_TEST_WEDGE");
    if (wedge && strcmp(wedge, "1") == 0) {
        uv_signal_init(&b->control.uv, &b->signals[2]);
        b->signals[2].data = b;
        uv_signal_start(&b->signals[2], on_wedge, SIGUSR2);
    }
#endif
    uv_timer_init(&b->control.uv, &b->linger);
    b->linger.data = b;
}

static int start(struct kb_broker *b, struct kc_err *err)
{
    struct kb_config *c = b->config;
    kb_app_init(&b->app);
    b->app.self_id = c->id;
    b->app.rack = c->rack;
    b->app.configs = c->configs;
    b->app.n_configs = c->n_configs;
    int rc = kd_new(c->data_loops, &b->app.data, err);
    rc = rc ? rc : open_net(b, err);
    rc = rc ? rc : start_threads(b, err);
    if (rc) {
        return rc;
    }
    b->pool = rt_pool_new("broker", 2);
    b->boot_work.fn = boot_work;
    rt_pool_post(b->pool, &b->boot_work);
    return 0;
}

static void stop(struct kb_broker *b)
{
    kh_stop(b->health);
    rt_pool_free(b->pool);
    if (b->app.engine) { /* first: the data loops run what it still has to tell them */
        ks_engine_close(b->app.engine);
    }
    if (b->app.data) {
        kd_stop(b->app.data);
    }
    kn_server_free(b->app.net);
    kg_groups_free(b->app.groups);
    kb_fetch_sessions_free(b->app.fetch_sessions);
    kb_self_free(b->self);
    kl_free(b->cluster.control);
    kb_set_image(&b->app, NULL);
    kd_free(b->app.data);
    kb_config_free(b->config);
}

int kb_broker_run(struct kb_config *config)
{
    struct kb_broker *b = kc_zalloc(sizeof(*b));
    struct kc_err err;
    b->config = config;
    int rc = rt_loop_init(&b->control, "control");
    KC_ASSERT(rc == 0);
    watch_signals(b);
    kc_log(KC_INFO, "broker", "event=start version=%s id=%d mode=%s", KB_VERSION, config->id,
           config->self_led ? "self-led" : "cluster");
    rc = start(b, &err);
    if (rc) {
        kc_log(KC_ERROR, "broker", "event=start_failed error=\"%s\"", err.msg);
        b->exit_code = 1;
        rt_loop_stop(&b->control);
    }
    rt_loop_run(&b->control);
    stop(b);
    kc_log(KC_INFO, "broker", "event=exit code=%d", b->exit_code);
    int code = b->exit_code;
    kc_free(b);
    return code;
}
