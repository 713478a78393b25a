#include "rig.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "cluster/kl_int.h"
#include "storage/ks_int.h"

/* broker/handlers' side of the admin seam. */
static pthread_mutex_t settled_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the two below */
static pthread_cond_t settled_changed = PTHREAD_COND_INITIALIZER;
static int n_settled;
static struct kb_admin_result settled;

void kb_admin_settle(struct kb_admin_ticket *t, const struct kb_admin_result *r)
{
    (void)t;
    pthread_mutex_lock(&settled_lock);
    n_settled++;
    settled = *r;
    settled.message = "";
    pthread_cond_broadcast(&settled_changed);
    pthread_mutex_unlock(&settled_lock);
}

struct kb_admin_result rig_settled(void)
{
    pthread_mutex_lock(&settled_lock);
    while (n_settled == 0) {
        pthread_cond_wait(&settled_changed, &settled_lock);
    }
    n_settled--;
    struct kb_admin_result r = settled;
    pthread_mutex_unlock(&settled_lock);
    return r;
}

static void write_object(const struct rig *r, const char *name, json_t *doc)
{
    json_t *cm = json_pack("{s:{s:s,s:s},s:o}", "metadata", "name", name, "uid",
                           r->cluster.order.uid, "data", ki_configmap_data(doc));
    char path[160];
    snprintf(path, sizeof(path), "%s/image/%s.json", r->dir, name);
    char *text = json_dumps(cm, JSON_COMPACT);
    kt_file_write(path, "%s", text);
    free(text);
    json_decref(cm);
    json_decref(doc);
}

/* Shards first, the root last, as the operator writes them. */
static void write_image(const struct rig *r, const struct ki_image *im)
{
    for (int i = 0; i < KP_SHARDS; i++) {
        char name[32];
        snprintf(name, sizeof(name), "demo-image-%d", i);
        write_object(r, name, ki_shard_encode(im->shards[i], NULL));
    }
    write_object(r, "demo-image", ki_root_encode(im));
}

void rig_say(struct rig *r)
{
    r->say.order = r->cluster.order;
    fop_set(&r->op, &r->say);
}

void rig_publish(struct rig *r)
{
    struct ki_image *im = clf_publish(&r->cluster);
    write_image(r, im);
    ki_image_unref(im);
    rig_say(r);
}

static void on_image(void *ctx, struct ki_image *im)
{
    struct rig *r = ctx;
    atomic_store(&r->generation, im->order.generation);
}

static void on_log_config(void *ctx, const struct ki_image *im, const struct ki_topic *topic,
                          struct ks_log_config *ret)
{
    (void)ctx;
    const char *ms = ki_topic_config(topic, "retention.ms");
    ms = ms ? ms : ki_config(im, "log.retention.ms");
    *ret = (struct ks_log_config){.segment_bytes = 1 << 20,
                                  .retention_ms = ms ? strtoll(ms, NULL, 10) : -1,
                                  .retention_bytes = -1,
                                  .segment_ms = INT64_MAX,
                                  .max_message_bytes = 1 << 20,
                                  .timestamp_before_max_ms = INT64_MAX,
                                  .timestamp_after_max_ms = INT64_MAX,
                                  .flush_messages = 1};
}

static void on_drained(void *ctx)
{
    struct rig *r = ctx;
    atomic_store(&r->drained, 1);
}

static void on_fenced(void *ctx, const char *why)
{
    struct rig *r = ctx;
    if (r->kl) {
        kl_fenced(r->kl, why);
    }
}

static void on_epoch(void *ctx, const struct kc_uuid *topic_id, int32_t partition, int32_t epoch)
{
    kl_log_epoch(((struct rig *)ctx)->kl, topic_id, partition, epoch);
}

static void start_engine(struct rig *r, char cluster_id[KC_UUID_B64_LEN + 1])
{
    char path[100];
    snprintf(path, sizeof(path), "%s/volume", r->dir);
    KC_ASSERT(mkdir(path, 0700) == 0);
    struct ks_opts o = {.dir = path,
                        .broker_id = 0,
                        .unsafe_storage = true,
                        .loop = &r->control,
                        .on_fenced = on_fenced,
                        .ctx = r};
    struct kc_err err;
    struct ks_fs fs;
    rig_fs_init(&fs, path);
    int rc = ks_engine_open_on(&fs, &o, cluster_id, &r->engine, &err);
    if (rc) {
        fprintf(stderr, "engine: %s\n", err.msg);
    }
    KC_ASSERT(rc == 0);
}

static void start_control(struct rig *r, int flags, const char *cluster_id)
{
    char image[100], token[100];
    snprintf(image, sizeof(image), "%s/image", r->dir);
    snprintf(token, sizeof(token), "%s/token", r->dir);
    mkdir(image, 0700);
    kt_file_write(token, "open sesame\n");
    struct kp_listener l = {.name = "internal", .host = "127.0.0.1", .port = 9092};
    struct kl_opts o = {.cluster = "default/demo",
                        .broker_id = 0,
                        .pod_name = "demo-0",
                        .pod_uid = "",
                        .rack = "",
                        .version = "0.1.0",
                        .n_listeners = 1,
                        .listeners = &l,
                        .volume_cluster_id = cluster_id,
                        .operator_host = "127.0.0.1",
                        .operator_port = r->op.port,
                        .token_file = token,
                        .interval_ms = flags & RIG_SLOW ? 60000 : 300,
                        .timeout_ms = flags & RIG_SLOW        ? 180000
                                      : flags & RIG_IMPATIENT ? 900
                                                              : 20000,
                        .source = KL_SOURCE_DIRECTORY,
                        .image_name = "demo-image",
                        .image_dir = image,
                        .drain_ms = flags & RIG_SLOW_DRAIN ? 60000 : 3000,
                        .leave_ms = flags & RIG_SLOW_DRAIN ? 61000 : 4000,
                        .engine = r->engine,
                        .data = r->data,
                        .on_image = on_image,
                        .log_config = on_log_config,
                        .on_drained = on_drained,
                        .ctx = r};
    struct kc_err err;
    KC_ASSERT(kl_start(&o, &r->control, &r->kl, &err) == 0);
    kd_set_epoch_hook(r->data, on_epoch, r);
    KC_ASSERT(rt_loop_start(&r->control) == 0);
}

void rig_run_data(struct rig *r)
{
    struct kc_err err;
    KC_ASSERT(kd_start(r->data, &err) == 0);
    r->data_running = true;
}

void rig_start(struct rig *r, int flags)
{
    memset(r, 0, sizeof(*r));
    kt_dir_make(r->dir);
    fop_start(&r->op, 0);
    r->say.active = true;
    fop_set(&r->op, &r->say);
    clf_init(&r->cluster, 3);
    struct kc_err err;
    KC_ASSERT(rt_loop_init(&r->control, "control") == 0);
    KC_ASSERT(kd_new(2, &r->data, &err) == 0);
    if (!(flags & RIG_DATA_LATER)) {
        rig_run_data(r);
    }
    char id[KC_UUID_B64_LEN + 1] = "";
    start_engine(r, id);
    start_control(r, flags, id);
}

/* Everything is dropped first, as after a fence, so that no log is left open. */
static void on_settled(uv_timer_t *t)
{
    struct rig *r = t->data;
    if (kl_plan_active(r->kl->plan) == 0) {
        uv_timer_stop(t);
        kl_stop(r->kl);
        rt_loop_stop(&r->control);
    }
}

static void stop_control(void *arg)
{
    struct rig *r = arg;
    if (r->data_running) {
        kl_fenced(r->kl, "the test is over");
    }
    uv_timer_init(&r->control.uv, &r->settle);
    r->settle.data = r;
    uv_timer_start(&r->settle, on_settled, 0, 2);
}

void rig_stop(struct rig *r)
{
    rt_call(&r->control, stop_control, r);
    rt_loop_join(&r->control);
    ks_engine_close(r->engine); /* first: the data loops run what it still has to tell them */
    kd_stop(r->data);
    kl_free(r->kl);
    kd_free(r->data);
    fop_stop(&r->op);
    kt_dir_remove(r->dir);
}

bool rig_wait(struct rig *r, bool (*cond)(const struct fop_heard *h, void *ctx), void *ctx,
              int64_t timeout_ms)
{
    return fop_wait(&r->op, cond, ctx, timeout_ms);
}

static bool has_hello(const struct fop_heard *h, void *ctx)
{
    const struct kc_uuid *old = ctx;
    return h->hellos > 0 && !kc_uuid_eq(&h->incarnation, old);
}

void rig_join(struct rig *r)
{
    KC_ASSERT(fop_wait(&r->op, has_hello, &r->cluster.rows[0].incarnation, 10000));
    struct fop_heard h;
    r->cluster.rows[0].incarnation = fop_copy(&r->op, &h)->incarnation;
    r->cluster.rows[0].condemned = false;
    rig_publish(r);
}

int rig_count(const struct rig *r, const char *sub)
{
    char path[200];
    snprintf(path, sizeof(path), "%s/volume/%s", r->dir, sub);
    DIR *d = opendir(path);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        n += e->d_name[0] != '.';
    }
    if (d) {
        closedir(d);
    }
    return n;
}
