/* kb_fetch_ask.c - which partitions a Fetch is about: those it lists, or those of its session (KIP-227).
 *
 * Each data loop has a cache of sessions (kb_fetch_session.h), for the connections it serves. A client
 * that comes back on a connection of another loop is told that its session is unknown, and begins a
 * new one; clients do so by themselves when they reconnect. As kafka.server.FetchManager and
 * FetchContext; on the home loop. Failure modes: without memory a session is not made, or is closed. */
#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_fetch.h"
#include "handlers/kb_kafka_config.h"
#include "handlers/kb_view.h"
#include "wire/kw_errors.h"

enum {
    BY_ID = 13, /* the version from which on topics are given by their id */
    SESSIONS_BYTES = 64 * 1024 * 1024 /* most memory of all sessions of a broker */
};

struct shard {
    struct kb_fs_cache cache;
    struct kb_fs_stats shown; /* in the metrics */
};

struct kb_fetch_sessions {
    struct kb_app *app;
    int32_t n;
    struct shard shards[]; /* one a data loop, its own */
};

struct kb_fetch_sessions *kb_fetch_sessions_new(struct kb_app *app)
{
    int32_t n = kd_n_loops(app->data);
    int32_t slots = (int32_t)kb_start_i64(app, "max.incremental.fetch.session.cache.slots");
    struct kb_fetch_sessions *all = kc_zalloc(sizeof(*all) + (size_t)n * sizeof(all->shards[0]));
    all->app = app;
    all->n = n;
    for (int32_t i = 0; i < n; i++) {
        uint64_t seed;
        kc_random_bytes(&seed, sizeof(seed));
        kb_fs_cache_init(&all->shards[i].cache, slots / n + (i < slots % n),
                         (size_t)(SESSIONS_BYTES / n), i, n, seed);
    }
    return all;
}

void kb_fetch_sessions_free(struct kb_fetch_sessions *all)
{
    for (int32_t i = 0; all && i < all->n; i++) {
        kb_fs_cache_fini(&all->shards[i].cache);
    }
    kc_free(all);
}

static struct shard *shard_here(struct kb_app *app)
{
    return &app->fetch_sessions->shards[kd_here_index(app->data)];
}

static void show(struct kb_app *app, struct shard *sh)
{
    struct kb_fs_stats now = sh->cache.stats;
    atomic_fetch_add_explicit(&app->metrics.fetch_sessions, now.sessions - sh->shown.sessions,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&app->metrics.fetch_session_partitions,
                              now.partitions - sh->shown.partitions, memory_order_relaxed);
    kb_count(&app->metrics.fetch_session_evictions, now.evictions - sh->shown.evictions);
    sh->shown = now;
}

/* ---- the request's session ---- */

struct closing {
    struct kb_app *app;
    int32_t id;
};

static void close_here(void *arg)
{
    struct closing *c = arg;
    struct shard *sh = shard_here(c->app);
    kb_fs_close(&sh->cache, c->id);
    show(c->app, sh);
    kc_free(c);
}

/* On the loop that has it. */
static void close_session(struct kb_app *app, int32_t id)
{
    if (id <= 0) {
        return;
    }
    struct closing *c = kc_alloc(sizeof(*c));
    *c = (struct closing){app, id};
    int32_t owner = kb_fs_index_of(id, app->fetch_sessions->n);
    if (owner == kd_here_index(app->data)) {
        close_here(c);
    } else {
        rt_call(kd_loop(app->data, owner), close_here, c);
    }
}

static bool put_all(struct kb_fs_session *s, const struct kw_fetch_request *in)
{
    for (int32_t t = 0; t < in->n_topics; t++) {
        const struct kw_fetch_request_topic *topic = &in->topics[t];
        for (int32_t i = 0; i < topic->n_partitions; i++) {
            const struct kw_fetch_request_partition *p = &topic->partitions[i];
            struct kb_fs_asked asked = {p->fetch_offset, p->partition_max_bytes,
                                        p->current_leader_epoch, p->last_fetched_epoch};
            if (!kb_fs_put(s, topic->topic, &topic->topic_id, p->partition, &asked)) {
                return false;
            }
        }
    }
    return true;
}

static int16_t go_on(struct kb_fetch *f, struct kb_fs_cache *cache)
{
    const struct kw_fetch_request *in = f->fan.req->body;
    int16_t error;
    struct kb_fs_session *s =
        kb_fs_find(cache, in->session_id, in->session_epoch, f->fan.req->version >= BY_ID, &error);
    if (!s) {
        return error;
    }
    if (!put_all(s, in)) {
        kb_fs_close(cache, in->session_id);
        return KAFKA_FETCH_SESSION_ID_NOT_FOUND; /* as if it had been evicted before */
    }
    for (int32_t t = 0; t < in->n_forgotten_topics_data; t++) {
        const struct kw_fetch_request_forgotten_topic *topic = &in->forgotten_topics_data[t];
        for (int32_t i = 0; i < topic->n_partitions; i++) {
            kb_fs_forget(s, topic->topic, &topic->topic_id, topic->partitions[i]);
        }
    }
    if (kb_fs_go_on(s, kc_mono_ms())) {
        f->session = kb_fs_ref(s);
    } /* else it had its last partition forgotten: FetchManager goes on without one */
    return KAFKA_NONE;
}

int16_t kb_fetch_begin(struct kb_fetch *f)
{
    struct kb_req *req = f->fan.req;
    const struct kw_fetch_request *in = req->body;
    if (in->session_epoch == 0 || in->session_epoch == -1) { /* FetchMetadata.isFull */
        close_session(req->app, in->session_id);
        f->wants_session = in->session_epoch == 0;
        return KAFKA_NONE;
    }
    struct shard *sh = shard_here(req->app);
    int16_t error = go_on(f, &sh->cache);
    show(req->app, sh);
    return error;
}

/* ---- its partitions ---- */

static void set_item(struct kb_fetch *f, struct kb_fetch_part *p, int32_t partition)
{
    static const struct kc_uuid none;
    bool by_id = f->fan.req->version >= BY_ID;
    p->diverging_epoch = -1;
    kb_item_set(&p->item, by_id ? KC_STR_NULL : p->topic, by_id ? &p->topic_id : &none, partition);
}

static void list_request(struct kb_fetch *f)
{
    const struct kw_fetch_request *in = f->fan.req->body;
    int32_t at = 0;
    for (int32_t t = 0; t < in->n_topics; t++) {
        const struct kw_fetch_request_topic *topic = &in->topics[t];
        for (int32_t i = 0; i < topic->n_partitions; i++) {
            struct kb_fetch_part *p = kb_fetch_part_at(f, at++);
            p->in = &topic->partitions[i];
            p->topic = topic->topic;
            p->topic_id = topic->topic_id;
            set_item(f, p, p->in->partition);
            p->unresolved = p->item.error;
        }
    }
}

/* As CachedPartition.maybeResolveUnknownName: a part keeps the name that its id had, so an id that is not
 * known yet is told from one whose topic is gone, or was made anew (KafkaApis, ReplicaManager). */
static int16_t resolve(struct kb_fetch *f, struct kb_fs_session *s, struct kb_fs_part *c,
                       int16_t error)
{
    const struct ki_image *im = f->fan.req->image;
    const struct kb_fs_topic *t = c->topic;
    if (!s->by_id) {
        return error;
    }
    if (error == KAFKA_UNKNOWN_TOPIC_ID && c->named) {
        return ki_topic_by_name(im, (struct kc_str){t->name, t->name_len})
                   ? KAFKA_INCONSISTENT_TOPIC_ID
                   : KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
    }
    const struct ki_topic *known =
        c->named || error == KAFKA_UNKNOWN_TOPIC_ID ? NULL : ki_topic_by_id(im, &t->id);
    if (known) {
        kb_fs_name(s, c, kc_str_of(known->name));
    }
    return error;
}

static bool list_session(struct kb_fetch *f)
{
    struct kb_fs_session *s = f->session;
    size_t n = (size_t)f->fan.n;
    struct kw_fetch_request_partition *in = kb_alloc(f->fan.req, n, sizeof(*in));
    if (in) {
        kb_charge(f->fan.req, n * sizeof(*in)); /* as if the request had listed them */
    }
    int32_t at = 0;
    for (struct kb_fs_part *c = kb_fs_first(s); in && c; c = kb_fs_next(s, c)) {
        struct kb_fetch_part *p = kb_fetch_part_at(f, at);
        kw_fetch_request_partition_init(&in[at]);
        in[at].partition = c->partition;
        in[at].fetch_offset = c->asked.fetch_offset;
        in[at].partition_max_bytes = c->asked.max_bytes;
        in[at].current_leader_epoch = c->asked.leader_epoch;
        in[at].last_fetched_epoch = c->asked.last_fetched_epoch;
        p->in = &in[at++];
        p->cached = c;
        p->topic = s->by_id ? KC_STR_NULL : (struct kc_str){c->topic->name, c->topic->name_len};
        p->topic_id = c->topic->id;
        set_item(f, p, c->partition);
        p->unresolved = p->item.error = resolve(f, s, c, p->item.error);
    }
    return in != NULL;
}

static int32_t count(const struct kb_fetch *f)
{
    const struct kw_fetch_request *in = f->fan.req->body;
    int64_t n = 0;
    for (int32_t t = 0; t < in->n_topics; t++) {
        n += in->topics[t].n_partitions;
    }
    return f->session ? kb_fs_n_parts(f->session) : (int32_t)n; /* bounded by the frame's size */
}

bool kb_fetch_list(struct kb_fetch *f)
{
    struct kb_req *req = f->fan.req;
    bool listed = kb_fan_init(&f->fan, req, count(f), sizeof(struct kb_fetch_part));
    if (listed && f->session) {
        listed = list_session(f);
    } else if (listed) {
        list_request(f);
    }
    if (!listed) {
        kb_fetch_end(f);
    }
    return listed;
}

/* ---- the answer's ---- */

static struct kb_fs_told told(const struct kw_fetch_response_partition_data *out)
{
    return (struct kb_fs_told){.high_watermark = out->high_watermark,
                               .last_stable = out->last_stable_offset,
                               .log_start = out->log_start_offset,
                               .records = out->n_records_slices > 0,
                               .must = out->error_code != 0 || out->diverging_epoch.epoch >= 0};
}

bool kb_fetch_overtaken(const struct kb_fetch *f)
{
    const struct kw_fetch_request *in = f->fan.req->body;
    return f->session && !kb_fs_is_latest(f->session, in->session_epoch);
}

bool kb_fetch_is_news(struct kb_fetch *f, struct kb_fetch_part *p,
                      const struct kw_fetch_response_partition_data *out)
{
    struct kb_fs_told t = told(out);
    return !f->session || kb_fs_tell(f->session, p->cached, &t);
}

/* With what the answer says: out has one entry a part. */
static bool draft(struct kb_fetch *f, struct kb_fs_session *s,
                  const struct kw_fetch_response_partition_data *out)
{
    for (int32_t i = 0; i < f->fan.n; i++) {
        struct kb_fetch_part *p = kb_fetch_part_at(f, i);
        struct kb_fs_asked asked = {p->in->fetch_offset, p->in->partition_max_bytes,
                                    p->in->current_leader_epoch, p->in->last_fetched_epoch};
        struct kb_fs_told t = told(&out[i]);
        struct kb_fs_part *c = kb_fs_put(s, p->topic, &p->topic_id, p->in->partition, &asked);
        if (!c) {
            return false;
        }
        kb_fs_tell(s, c, &t);
        resolve(f, s, c, p->unresolved);
    }
    return true;
}

int32_t kb_fetch_session_id(struct kb_fetch *f, const struct kw_fetch_response_partition_data *out)
{
    if (f->session || !f->wants_session) {
        return f->session ? f->session->id : 0;
    }
    struct kb_req *req = f->fan.req;
    struct shard *sh = shard_here(req->app);
    int32_t id = 0;
    struct kb_fs_session *s =
        sh->cache.slots > 0 ? kb_fs_draft(&sh->cache, req->version >= BY_ID) : NULL;
    if (s && draft(f, s, out)) {
        id = kb_fs_admit(&sh->cache, s, kc_mono_ms());
    }
    kb_fs_unref(s);
    show(req->app, sh);
    return id;
}

void kb_fetch_end(struct kb_fetch *f)
{
    kb_fs_unref(f->session);
    f->session = NULL;
}
