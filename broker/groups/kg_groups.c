/* kg_groups.c - the coordinator's port onto storage and data loops. */
#include "groups/kg_groups.h"

#include "base/kc_clock.h"
#include "base/kc_hash.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "data/kd_timer.h"

struct alarm {
    struct kd_timer timer;
    struct kg_shard *shard;
};

struct kg_groups {
    struct kd_data *data;
    _Atomic(struct ks_engine *) engine;
    struct kg_coord *coord;
    struct kg_pids *pids;
    int32_t n_loops;
    struct alarm *alarms; /* one a loop, its own */
    struct ks_log *logs[KP_SLOTS]; /* open slots; each touched by its owner loop only */
};

/* ---- the port ---- */

static int64_t port_mono_ms(void *ctx)
{
    (void)ctx;
    return kc_mono_ms();
}

static int64_t port_wall_ms(void *ctx)
{
    (void)ctx;
    return kc_wall_ms();
}

static int64_t port_fence_age_ms(void *ctx)
{
    struct kg_groups *g = ctx;
    struct ks_engine *engine = atomic_load(&g->engine);
    return engine ? ks_fence_age_ms(engine, kc_mono_ms()) : INT64_MAX;
}

static void port_append(void *ctx, int32_t slot, struct kc_buf *batches, ks_append_done done,
                        void *done_ctx)
{
    struct kg_groups *g = ctx;
    if (!g->logs[slot]) {
        struct ks_append_result gone = {.error = KAFKA_NOT_LEADER_OR_FOLLOWER};
        done(done_ctx, &gone);
        return;
    }
    struct ks_append_args args = {.batches = {batches, batches->data, batches->len},
                                  .origin = KS_FROM_COORDINATOR,
                                  .now_wall_ms = kc_wall_ms(),
                                  .acks = -1,
                                  .done = done,
                                  .ctx = done_ctx};
    ks_log_append(g->logs[slot], &args);
}

static void port_read(void *ctx, int32_t slot, const struct ks_read_args *args, ks_read_done done,
                      void *done_ctx)
{
    struct kg_groups *g = ctx;
    KC_ASSERT(g->logs[slot]); /* a load ends with its slot */
    ks_log_read(g->logs[slot], args, done, done_ctx);
}

static struct ks_offsets port_offsets(void *ctx, int32_t slot)
{
    struct kg_groups *g = ctx;
    KC_ASSERT(g->logs[slot]);
    return ks_log_offsets(g->logs[slot]);
}

static void port_later(void *ctx, int32_t shard, struct rt_msg *msg)
{
    struct kg_groups *g = ctx;
    rt_post(kd_loop(g->data, shard), msg);
}

static void on_alarm(struct kd_timer *t)
{
    kg_shard_tick(KC_CONTAINER_OF(t, struct alarm, timer)->shard);
}

static void port_wake(void *ctx, int32_t shard, int64_t at_ms)
{
    struct kg_groups *g = ctx;
    kd_timer_arm(kd_timers_here(g->data), &g->alarms[shard].timer, at_ms);
}

static int pid_block(void *ctx, int64_t *ret_first, int32_t *ret_count, struct kc_err *err)
{
    struct kg_groups *g = ctx;
    struct ks_engine *engine = atomic_load(&g->engine);
    if (!engine) {
        return kc_fail(err, KC_E_BUSY, "the volume is not open yet");
    }
    return ks_pid_block(engine, ret_first, ret_count, err);
}

/* ---- life ---- */

struct kg_groups *kg_groups_new(const struct kg_groups_opts *opts)
{
    struct kg_groups *g = kc_zalloc(sizeof(*g));
    g->data = opts->data;
    atomic_store(&g->engine, opts->engine);
    g->n_loops = kd_n_loops(opts->data);
    struct kg_port port = {g,         port_mono_ms, port_wall_ms, port_fence_age_ms, port_append,
                           port_read, port_offsets, port_later,   port_wake};
    g->coord = kg_coord_new(&opts->config, &port, g->n_loops);
    g->alarms = kc_zalloc((size_t)g->n_loops * sizeof(*g->alarms));
    struct rt_loop **loops = kc_zalloc((size_t)g->n_loops * sizeof(struct rt_loop *));
    for (int32_t i = 0; i < g->n_loops; i++) {
        g->alarms[i].timer.fn = on_alarm;
        g->alarms[i].shard = kg_shard_at(g->coord, i);
        loops[i] = kd_loop(g->data, i);
    }
    g->pids = kg_pids_new(pid_block, g, loops, g->n_loops);
    kc_free(loops);
    return g;
}

void kg_groups_set_engine(struct kg_groups *g, struct ks_engine *engine)
{
    atomic_store(&g->engine, engine);
}

void kg_groups_free(struct kg_groups *g)
{
    if (g) {
        kg_pids_free(g->pids);
        kg_coord_free(g->coord);
        kc_free(g->alarms);
        kc_free(g);
    }
}

/* ---- slots ---- */

static void on_opened(void *ctx, int32_t slot_kind, int32_t slot, struct kd_part *part)
{
    struct kg_groups *g = ctx;
    if (slot_kind != KP_GROUP_SLOTS || slot < 0 || slot >= KP_SLOTS) {
        return;
    }
    g->logs[slot] = kd_part_log(part);
    kg_slot_opened(kg_shard_here(g), slot);
}

static void on_closing(void *ctx, int32_t slot_kind, int32_t slot)
{
    struct kg_groups *g = ctx;
    if (slot_kind != KP_GROUP_SLOTS || slot < 0 || slot >= KP_SLOTS) {
        return;
    }
    kg_slot_closing(kg_shard_here(g), slot);
    g->logs[slot] = NULL;
}

struct kd_slot_hooks kg_groups_hooks(struct kg_groups *g)
{
    return (struct kd_slot_hooks){.opened = on_opened, .closing = on_closing, .ctx = g};
}

const struct ki_topic *kg_slot_topic(const struct ki_image *im, int32_t slot_kind)
{
    const struct ki_topic *t = ki_slot_topic(im, slot_kind);
    return t && t->n_parts >= KP_SLOTS ? t : NULL;
}

int32_t kg_slot_of(struct kc_str id)
{
    return kc_coordinator_slot(id, KP_SLOTS);
}

struct rt_loop *kg_groups_loop(struct kg_groups *g, const struct ki_image *im, struct kc_str group)
{
    const struct ki_topic *t = kg_slot_topic(im, KP_GROUP_SLOTS);
    return t ? kd_loop_of(g->data, &t->id, kg_slot_of(group)) : NULL;
}

int32_t kg_loop_here(const struct kg_groups *g)
{
    for (int32_t i = 0; i < g->n_loops; i++) {
        if (rt_on_loop(kd_loop(g->data, i))) {
            return i;
        }
    }
    KC_ASSERT(false); /* not on a data loop */
}

struct kg_shard *kg_shard_here(struct kg_groups *g)
{
    return kg_shard_at(g->coord, kg_loop_here(g));
}

struct kg_pids *kg_groups_pids(struct kg_groups *g)
{
    return g->pids;
}

void kg_groups_metrics(const struct kg_groups *g, struct kg_metrics *ret)
{
    kg_metrics_read(g->coord, ret);
}

/* ---- deleted topics ---- */

struct sweep {
    struct rt_msg msg;
    struct kg_groups *groups;
    struct ki_image *image; /* a reference */
};

/* A tombstone in the image is the proof that a topic was deleted; a name that is merely missing
 * proves nothing. A topic of the same name made since has its own, newer commits: they carry its id. */
static void on_sweep(struct rt_msg *msg)
{
    struct sweep *s = KC_CONTAINER_OF(msg, struct sweep, msg);
    struct kg_shard *shard = kg_shard_here(s->groups);
    for (int32_t i = 0; i < KP_SHARDS; i++) {
        const struct ki_shard *part = s->image->shards[i];
        for (int32_t j = 0; part && j < part->n_topics; j++) {
            const struct ki_topic *t = &part->topics[j];
            if (t->deleted && !ki_topic_by_name(s->image, kc_str_of(t->name))) {
                kg_topic_deleted(shard, kc_str_of(t->name));
            }
        }
    }
    ki_image_unref(s->image);
    kc_free(s);
}

static bool has_tombstone(const struct ki_image *im)
{
    for (int32_t i = 0; i < KP_SHARDS; i++) {
        for (int32_t j = 0; im->shards[i] && j < im->shards[i]->n_topics; j++) {
            if (im->shards[i]->topics[j].deleted) {
                return true;
            }
        }
    }
    return false;
}

void kg_groups_image(struct kg_groups *g, struct ki_image *im)
{
    if (!has_tombstone(im)) {
        return;
    }
    for (int32_t i = 0; i < g->n_loops; i++) {
        struct sweep *s = kc_zalloc(sizeof(*s));
        *s = (struct sweep){{.fn = on_sweep}, g, ki_image_ref(im)};
        rt_post(kd_loop(g->data, i), &s->msg);
    }
}
