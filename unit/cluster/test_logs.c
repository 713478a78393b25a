/* What the image and the volume do to logs that are open: configs, more partitions, a new epoch. */
#include "kt.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_clock.h"
#include "rig.h"
#include "storage/ks_int.h"
#include "wire/kw_batch.h"

static bool leads(const struct fop_heard *h, void *ctx)
{
    return h->n_led == *(int *)ctx;
}
static bool applied(const struct fop_heard *h, void *ctx)
{
    return h->image_generation == *(uint64_t *)ctx;
}

static struct clf_topic *up(struct rig *r, int parts, int led)
{
    rig_start(r, 0);
    struct clf_topic *t = clf_topic(&r->cluster, "t", parts);
    for (int i = 0; i < led; i++) {
        t->parts[i].assigned = 0;
    }
    rig_join(r);
    RIG_WAIT(r, leads, &led);
    return t;
}

/* ---- on the loop of a partition ---- */

struct visit {
    struct rig *r;
    struct kc_uuid topic_id;
    int32_t partition;
    struct kc_slice batch;
    int64_t retention_ms; /* -2 = not open */
    int32_t epoch;
    _Atomic int error; /* of an append; -1 = none yet */
    _Atomic bool done;
};

static struct visit visit_of(struct rig *r, const struct clf_topic *t, int32_t partition)
{
    return (struct visit){.r = r, .topic_id = t->id, .partition = partition};
}

static void ask(struct visit *v, void (*fn)(void *))
{
    atomic_store(&v->done, false);
    rt_call(kd_loop_of(v->r->data, &v->topic_id, v->partition), fn, v);
}

static void await(struct visit *v)
{
    int64_t until = kc_mono_ms() + 10000;
    while (!atomic_load(&v->done) && kc_mono_ms() < until) {
        poll(NULL, 0, 1);
    }
    KT_REQUIRE(atomic_load(&v->done));
}

static void go(struct visit *v, void (*fn)(void *))
{
    ask(v, fn);
    await(v);
}

static void look(void *arg)
{
    struct visit *v = arg;
    struct kd_part *p = kd_find(v->r->data, &v->topic_id, v->partition);
    v->retention_ms = p ? kd_part_log(p)->cfg.retention_ms : -2;
    v->epoch = kd_open_epoch(v->r->data, &v->topic_id, v->partition);
    atomic_store(&v->done, true);
}

/* The configs come by a message of their own, soon after the image. */
static bool retention_becomes(struct rig *r, const struct clf_topic *t, int32_t partition,
                              int64_t want)
{
    struct visit v = visit_of(r, t, partition);
    int64_t until = kc_mono_ms() + 5000;
    do {
        go(&v, look);
    } while (v.retention_ms != want && kc_mono_ms() < until);
    return v.retention_ms == want;
}

static void on_appended(void *ctx, const struct ks_append_result *res)
{
    struct visit *v = ctx;
    atomic_store(&v->error, res->error);
    atomic_store(&v->done, true);
}

static void append(void *arg)
{
    struct visit *v = arg;
    struct kd_part *p = kd_find(v->r->data, &v->topic_id, v->partition);
    KT_REQUIRE(p != NULL);
    struct ks_append_args a = {.batches = v->batch,
                               .now_wall_ms = kc_wall_ms(),
                               .acks = -1,
                               .done = on_appended,
                               .ctx = v};
    ks_log_append(kd_part_log(p), &a);
}

/* The append of one record is on its way; await tells of its answer. */
static void start_put(struct visit *v)
{
    struct kw_batch_builder b;
    kw_batch_builder_init(&b, &KW_BATCH_ARGS_PLAIN, 1024);
    struct kc_bytes value = {(const uint8_t *)"x", 1}, bytes;
    kw_batch_builder_add(&b, kc_wall_ms(), KC_BYTES_NULL, value, NULL, 0);
    KT_REQUIRE(kw_batch_builder_end(&b, &bytes) == 0);
    struct kc_buf *buf = kc_buf_new((size_t)bytes.len);
    memcpy(buf->data, bytes.ptr, (size_t)bytes.len);
    kw_batch_builder_fini(&b);
    v->batch = (struct kc_slice){.buf = buf, .ptr = buf->data, .len = (size_t)bytes.len};
    ask(v, append);
}

/* Appends one record; Kafka's error. */
static int put(struct visit *v)
{
    start_put(v);
    await(v);
    kc_buf_unref(v->batch.buf);
    return atomic_load(&v->error);
}

/* ---- configs ---- */

static void a_changed_topic_config_reaches_open_logs(void)
{
    struct rig r;
    struct clf_topic *t = up(&r, 2, 2);
    KT_TRUE(retention_becomes(&r, t, 0, -1));
    t->config = (struct ki_config){"retention.ms", "5000"};
    rig_publish(&r);
    KT_TRUE(retention_becomes(&r, t, 0, 5000));
    KT_TRUE(retention_becomes(&r, t, 1, 5000));
    t->config.name = NULL;
    rig_publish(&r);
    KT_TRUE(retention_becomes(&r, t, 0, -1));
    rig_stop(&r);
}

static void a_changed_cluster_config_reaches_open_logs(void)
{
    struct rig r;
    struct clf_topic *t = up(&r, 2, 2);
    r.cluster.config = (struct ki_config){"log.retention.ms", "7000"};
    rig_publish(&r);
    KT_TRUE(retention_becomes(&r, t, 1, 7000));
    r.cluster.config.value = "8000";
    rig_publish(&r);
    KT_TRUE(retention_becomes(&r, t, 1, 8000));
    r.cluster.config.name = NULL;
    rig_publish(&r);
    KT_TRUE(retention_becomes(&r, t, 1, -1));
    rig_stop(&r);
}

/* The log was asked for under an older image than the one it is installed under. */
static void a_config_that_changes_during_a_takeover_is_not_lost(void)
{
    struct rig r;
    struct clf_topic *t = up(&r, 2, 1);
    rig_hold_claims(true);
    t->parts[1].assigned = 0;
    rig_publish(&r);
    uint64_t generation = r.cluster.order.generation;
    RIG_WAIT(&r, applied, &generation);
    t->config = (struct ki_config){"retention.ms", "5000"};
    rig_publish(&r);
    generation = r.cluster.order.generation;
    RIG_WAIT(&r, applied, &generation);
    rig_hold_claims(false);
    int two = 2;
    RIG_WAIT(&r, leads, &two);
    KT_TRUE(retention_becomes(&r, t, 1, 5000));
    rig_stop(&r);
}

/* ---- partitions ---- */

static void added_partitions_are_opened(void)
{
    struct rig r;
    struct clf_topic *t = up(&r, 2, 2);
    for (int i = 2; i < 6; i++) {
        t->parts[i] = (struct kp_part){.home = 0, .assigned = 0, .led = -1, .led_epoch = -1};
    }
    t->n_parts = 6;
    rig_publish(&r);
    int six = 6;
    RIG_WAIT(&r, leads, &six);
    KT_EQ(kd_n_open(r.data), 6);
    rig_stop(&r);
}

/* ---- epochs ---- */

static bool leads_under(const struct fop_heard *h, void *ctx)
{
    return h->n_led == 1 && h->led[0].epoch == *(int *)ctx;
}

/* storage.md: after an error on a file the engine claims again; clients must hear of the epoch that
 * their requests are checked against (KIP-320), and the image only knows what is reported. */
static void a_log_that_claims_again_is_reported_under_the_new_epoch(void)
{
    struct rig r;
    struct clf_topic *t = up(&r, 1, 1);
    struct visit v = visit_of(&r, t, 0);
    KT_EQ(put(&v), 0);
    int epoch = 0;
    RIG_WAIT(&r, leads_under, &epoch);
    rig_fail_sync();
    KT_EQ(put(&v), 56); /* KAFKA_STORAGE_ERROR: clients retry */
    epoch = 1;
    RIG_WAIT(&r, leads_under, &epoch);
    go(&v, look);
    KT_EQ(v.epoch, 1);
    KT_EQ(put(&v), 0);
    rig_stop(&r);
}

/* ---- a volume that hangs ---- */

/* A stalled broker is condemned, and others go on with what it led. Whoever it had accepted records from
 * must hear of that now, not when the volume answers: also where a move waits for a seal. */
static void a_condemned_broker_answers_what_waits_for_a_volume_that_hangs(void)
{
    enum { NOT_LEADER = 6 };
    struct rig r;
    struct clf_topic *t = up(&r, 2, 2);
    struct visit stays = visit_of(&r, t, 0), moves = visit_of(&r, t, 1);
    rig_hold_syncs(true);
    start_put(&stays);
    rig_await_held();
    start_put(&moves);
    t->parts[1].assigned = 1;
    rig_publish(&r);
    struct visit behind = visit_of(&r, t, 1);
    int64_t until = kc_mono_ms() + 5000;
    do {
        go(&behind, look);
    } while (behind.epoch >= 0 && kc_mono_ms() < until);
    KT_EQ(behind.epoch, -1); /* closed to clients; its seal waits for the append */
    KT_FALSE(atomic_load(&stays.done) || atomic_load(&moves.done));
    r.say.condemned = r.cluster.rows[0].incarnation;
    r.cluster.rows[0].condemned = true;
    r.cluster.rows[0].health = KP_DEAD;
    rig_say(&r);
    await(&stays);
    await(&moves);
    KT_EQ(atomic_load(&stays.error), NOT_LEADER);
    KT_EQ(atomic_load(&moves.error), NOT_LEADER);
    rig_hold_syncs(false);
    kc_buf_unref(stays.batch.buf);
    kc_buf_unref(moves.batch.buf);
    rig_stop(&r);
}

KT_MAIN("kl_logs", KT(a_changed_topic_config_reaches_open_logs),
        KT(a_changed_cluster_config_reaches_open_logs),
        KT(a_config_that_changes_during_a_takeover_is_not_lost), KT(added_partitions_are_opened),
        KT(a_log_that_claims_again_is_reported_under_the_new_epoch),
        KT(a_condemned_broker_answers_what_waits_for_a_volume_that_hangs))
