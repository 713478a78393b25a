#include "hx.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "groups/kg_groups.h"
#include "handlers/kb_group.h"
#include "handlers/kb_kafka_config.h"
#include "kt_net.h"

enum { WAIT_S = 20, FRAME_MAX = 4 << 20 };

static const struct kn_limits limits = {.max_frame_bytes = FRAME_MAX,
                                        .max_connections = 100,
                                        .max_connections_per_ip = 100,
                                        .idle_ms = 60000,
                                        .frame_ms = 60000,
                                        .stall_ms = 60000,
                                        .budget_bytes = 64 << 20,
                                        .max_pipelined = 32};

struct kc_uuid hx_uuid(uint8_t n)
{
    struct kc_uuid u = {{0}};
    u.b[0] = n; /* spreads topics over shards */
    u.b[15] = n;
    return u;
}

void hx_up(struct hx *h, int32_t self, int32_t n_loops)
{
    memset(h, 0, sizeof(*h));
    struct kc_err err;
    struct kb_app *app = &h->app;
    kb_app_init(app);
    app->self_id = self;
    app->rack = "";
    snprintf(app->cluster_id, sizeof(app->cluster_id), "AAAAAAAAAAAAAAAAAAAAAA");
    KT_REQUIRE(kd_new(n_loops, &app->data, &err) == 0);
    struct kg_groups_opts go = {.data = app->data, .config = kb_group_config(app)};
    app->groups = kg_groups_new(&go);
    struct kd_slot_hooks hooks = kg_groups_hooks(app->groups);
    kd_set_slot_hooks(app->data, &hooks);
    app->fetch_sessions = kb_fetch_sessions_new(app);
    struct kn_listener_opts lo[2] = {{"internal", "127.0.0.1", 0}, {"external", "127.0.0.1", 0}};
    struct kn_opts o = {lo, 2, limits, {kb_on_frame, kb_frame_overlaps, app}};
    KT_REQUIRE(kn_server_new(&o, &app->net, &err) == 0);
    app->n_endpoints = 2;
    app->endpoints[0] = (struct kb_endpoint){"internal", "self-in", 19000};
    app->endpoints[1] = (struct kb_endpoint){"external", "self-ex", 19100};
    struct rt_loop *loops[KD_LOOPS_MAX];
    for (int32_t i = 0; i < kd_n_loops(app->data); i++) {
        loops[i] = kd_loop(app->data, i);
    }
    KT_REQUIRE(kd_start(app->data, &err) == 0);
    hx_publish(h);
    kn_server_start(app->net, loops, kd_n_loops(app->data));
}

static void on_submit(void *ctx, struct kb_admin_ticket *t, const struct kb_admin_change *change,
                      int64_t deadline_ms)
{
    struct hx *h = ctx;
    (void)deadline_ms;
    h->submitted++;
    h->answer(t, change);
}

void hx_up_admin(struct hx *h, int32_t n_loops, hx_answer answer)
{
    hx_up(h, 1, n_loops);
    hx_row(h, 1);
    h->answer = answer;
    h->app.admin = (struct kb_admin_port){on_submit, h};
}

static void engine_fenced(void *ctx, const char *why)
{
    (void)ctx;
    fprintf(stderr, "fenced: %s\n", why);
}

void hx_up_engine(struct hx *h, int32_t self, int32_t n_loops)
{
    hx_up(h, self, n_loops);
    kt_dir_make(h->dir);
    struct kc_err err;
    struct ks_opts o = {.dir = h->dir,
                        .broker_id = self,
                        .unsafe_storage = true,
                        .loop = kd_loop(h->app.data, 0),
                        .on_fenced = engine_fenced};
    KT_REQUIRE(ks_engine_open(&o, h->app.cluster_id, &h->app.engine, &err) == 0);
    struct kc_uuid inc = hx_uuid(200);
    KT_REQUIRE(ks_register(h->app.engine, &inc, &err) == 0);
    kg_groups_set_engine(h->app.groups, h->app.engine);
}

void hx_down(struct hx *h)
{
    kn_server_stop(h->app.net, true);
    int64_t until = kc_mono_ms() + WAIT_S * 1000;
    while (atomic_load(&h->app.metrics.under_way) > 0 && kc_mono_ms() < until) {
        poll(NULL, 0, 1);
    }
    KT_EQ(atomic_load(&h->app.metrics.under_way), 0);
    if (h->app.engine) { /* first: the data loops run what it still has to tell them */
        ks_engine_close(h->app.engine);
        kt_dir_remove(h->dir);
    }
    kd_stop(h->app.data);
    kn_server_free(h->app.net);
    kg_groups_free(h->app.groups);
    kb_fetch_sessions_free(h->app.fetch_sessions);
    kb_set_image(&h->app, NULL);
    kd_free(h->app.data);
}

/* ---- partitions: opened on the pool, installed on their loops ---- */

struct opening {
    struct kb_app *app;
    struct ks_open_args args;
    int rc;
    _Atomic bool done;
};

static void on_installed(void *ctx)
{
    struct opening *o = ctx;
    atomic_store(&o->done, true);
}

static void on_opened(void *ctx, int rc, struct ks_log *log, const struct kc_err *err,
                      int32_t blocker, const struct kc_uuid *blocker_inc)
{
    struct opening *o = ctx;
    (void)err;
    (void)blocker;
    (void)blocker_inc;
    o->rc = rc;
    if (rc) {
        atomic_store(&o->done, true);
    } else {
        kd_install(o->app->data, log, o->args.loop, on_installed, o);
    }
}

static bool condemn_all(void *ctx, int32_t broker, const struct kc_uuid *inc)
{
    (void)ctx;
    (void)broker;
    (void)inc;
    return true;
}

void hx_await(_Atomic bool *flag)
{
    int64_t until = kc_mono_ms() + WAIT_S * 1000;
    while (!atomic_load(flag) && kc_mono_ms() < until) {
        poll(NULL, 0, 1);
    }
    KT_REQUIRE(atomic_load(flag));
}

void hx_open_part(struct hx *h, const struct hx_topic *t, int32_t p)
{
    struct opening o = {.app = &h->app};
    o.args = (struct ks_open_args){.topic_id = t->id,
                                   .partition = p,
                                   .may_create = true,
                                   .order = {"uid", 1, 1},
                                   .condemned = condemn_all,
                                   .loop = kd_loop(h->app.data, 0),
                                   .done = on_opened,
                                   .ctx = &o};
    struct ki_image *im = kb_image(&h->app);
    kb_log_config(&h->app, im, ki_topic_by_id(im, &t->id), &o.args.config);
    o.args.config.retention_ms = -1; /* the records of tests are of 1970 */
    ki_image_unref(im);
    KT_REQUIRE(ks_log_open(h->app.engine, &o.args) != NULL);
    hx_await(&o.done);
    KT_EQ(o.rc, 0);
}

static void on_released(void *ctx, int rc, struct kc_bytes seal, int64_t end, int32_t epoch)
{
    (void)rc;
    (void)seal;
    (void)end;
    (void)epoch;
    atomic_store((_Atomic bool *)ctx, true);
}

void hx_close_part(struct hx *h, const struct hx_topic *t, int32_t p, int32_t new_leader)
{
    _Atomic bool done = false;
    kd_release(h->app.data, &t->id, p, true, new_leader, kd_loop(h->app.data, 0), on_released,
               &done);
    hx_await(&done);
}

/* ---- images ---- */

struct kp_row *hx_row(struct hx *h, int32_t id)
{
    struct kp_row *r = &h->rows[h->n_rows++];
    *r = (struct kp_row){.id = id,
                         .health = KP_ALIVE,
                         .state = KP_SERVING,
                         .serving = true,
                         .incarnation = hx_uuid((uint8_t)(100 + id)),
                         .n_listeners = 2};
    static const char *const names[] = {"internal", "external"};
    for (int i = 0; i < 2; i++) {
        snprintf(r->listeners[i].name, sizeof(r->listeners[i].name), "%s", names[i]);
        snprintf(r->listeners[i].host, sizeof(r->listeners[i].host), "b%d", id);
        r->listeners[i].port = (uint16_t)(9000 + 100 * i + id);
    }
    return r;
}

struct hx_topic *hx_topic(struct hx *h, const char *name, int32_t n_parts, int32_t leader)
{
    struct hx_topic *t = &h->topics[h->n_topics];
    memset(t, 0, sizeof(*t));
    t->id = hx_uuid((uint8_t)(1 + h->n_topics++));
    snprintf(t->name, sizeof(t->name), "%s", name);
    t->n_parts = n_parts;
    for (int32_t p = 0; p < n_parts; p++) {
        t->parts[p] =
            (struct kp_part){.assigned = leader, .led = leader, .led_epoch = leader < 0 ? -1 : 3};
        t->parts[p].led_incarnation = hx_uuid((uint8_t)(100 + leader));
    }
    return t;
}

void hx_publish(struct hx *h)
{
    struct ki_shard *shards[KP_SHARDS];
    h->generation++;
    for (int32_t s = 0; s < KP_SHARDS; s++) {
        struct ki_topic topics[HX_TOPICS_MAX];
        int32_t n = 0;
        for (int32_t i = 0; i < h->n_topics; i++) {
            struct hx_topic *t = &h->topics[i];
            if (kp_shard_of(&t->id) == s) {
                topics[n++] = (struct ki_topic){.id = t->id,
                                                .name = t->name,
                                                .internal = t->internal,
                                                .deleted = t->deleted,
                                                .n_configs = t->n_configs,
                                                .configs = t->configs,
                                                .n_parts = t->n_parts,
                                                .parts = t->parts,
                                                .replication_factor = 1};
            }
        }
        shards[s] = ki_shard_build(s, 1, h->generation, topics, n);
    }
    struct ki_image proto = {
        .order = {"uid", 1, h->generation}, .n_rows = h->n_rows, .rows = h->rows};
    proto.n_leads = h->n_leads;
    proto.leads = h->leads;
    proto.n_configs = h->n_configs;
    proto.configs = h->configs;
    memcpy(proto.cluster_id, h->app.cluster_id, sizeof(proto.cluster_id));
    kb_set_image(&h->app, ki_image_build(&proto, shards));
}

/* ---- the client ---- */

void hx_dial(struct hx *h, struct hx_client *c, int32_t listener)
{
    *c = (struct hx_client){.fd = kt_dial(kn_listener_port(h->app.net, listener), WAIT_S)};
    KT_REQUIRE(c->fd >= 0);
    kc_arena_init(&c->arena, 4096, 0);
}

void hx_hang_up(struct hx_client *c)
{
    close(c->fd);
    free(c->buf);
    kc_arena_fini(&c->arena);
}

void hx_send_raw(struct hx_client *c, const void *data, size_t len)
{
    KT_REQUIRE(kt_send(c->fd, data, len));
}

void hx_send(struct hx_client *c, int16_t key, int16_t version, const void *request)
{
    struct kw_writer w;
    kw_writer_init(&w, FRAME_MAX);
    struct kw_frame frame = kw_writer_begin_frame(&w);
    struct kw_request_header head = {key, version, ++c->correlation, KC_STR_LIT("hx")};
    kw_request_header_encode(&w, &head);
    kw_api_encode_request(kw_api_find(key), &w, version, request);
    kw_writer_end_frame(&w, frame);
    KT_EQ(w.error, 0);
    struct kw_piece_iter it = {0};
    const uint8_t *p;
    size_t len;
    while (kw_writer_next(&w, &it, &p, &len)) {
        hx_send_raw(c, p, len);
    }
    kw_writer_fini(&w);
}

int32_t hx_receive_raw(struct hx_client *c)
{
    uint32_t n;
    if (!kt_recv(c->fd, &n, 4)) {
        return -1;
    }
    n = ntohl(n);
    free(c->buf);
    c->buf = malloc(n + 1);
    return kt_recv(c->fd, c->buf, n) ? (int32_t)n : -1;
}

const void *hx_receive(struct hx_client *c, int16_t key, int16_t version)
{
    const struct kw_api *api = kw_api_find(key);
    int32_t n = hx_receive_raw(c), correlation = -1;
    if (n < 0) {
        return NULL;
    }
    kc_arena_reset(&c->arena);
    void *out = kc_arena_zalloc(&c->arena, 1, api->response_size);
    struct kw_cursor cur;
    kw_cursor_init(&cur, c->buf, (size_t)n);
    KT_EQ(kw_response_header_decode(&cur, api, version, &correlation), 0);
    KT_EQ(kw_api_decode_response(api, &cur, version, &c->arena, out), 0);
    KT_EQ(kw_cursor_left(&cur), 0);
    return out;
}

const void *hx_call(struct hx_client *c, int16_t key, int16_t version, const void *request)
{
    hx_send(c, key, version, request);
    return hx_receive(c, key, version);
}

void hx_end(struct hx *h, struct hx_client *c)
{
    hx_hang_up(c);
    hx_down(h);
}

struct on_loop {
    void (*fn)(void *);
    void *arg;
    _Atomic bool done;
};

static void run_on_loop(void *arg)
{
    struct on_loop *o = arg;
    o->fn(o->arg);
    atomic_store(&o->done, true);
}

void hx_on_loop(struct hx *h, int32_t i, void (*fn)(void *arg), void *arg)
{
    struct on_loop o = {fn, arg, false};
    rt_call(kd_loop(h->app.data, i), run_on_loop, &o);
    while (!atomic_load(&o.done)) {
        poll(NULL, 0, 1);
    }
}

void hx_up_one(struct hx *h, struct hx_client *c, int32_t n_loops)
{
    hx_up_engine(h, 1, n_loops);
    hx_row(h, 1);
    hx_row(h, 2);
    hx_topic(h, "t", 1, 1);
    hx_publish(h);
    hx_open_part(h, &h->topics[0], 0);
    hx_dial(h, c, 0);
}

void hx_down_one(struct hx *h, struct hx_client *c)
{
    hx_close_part(h, &h->topics[0], 0, -1);
    hx_end(h, c);
}
