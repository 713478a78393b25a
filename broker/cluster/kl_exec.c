/* Carries out the plan's actions with the storage engine and the data loops. Control loop. */
#include "cluster/kl_int.h"

#include <stdio.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"

/* One attempt at a partition, from the first call to the engine until the log is gone again. */
struct exec {
    struct kl_cluster *k;
    struct kl_item *item;
    struct ks_open *open;
    struct ks_log_config config;
    bool warming;
};

static void exec_free(struct exec *e)
{
    e->item->exec = NULL;
    kc_free(e);
}

static void log_item(enum kc_level level, const struct kl_item *it, const char *event,
                     const char *more)
{
    char id[KC_UUID_B64_LEN + 1];
    kc_uuid_to_b64(&it->topic_id, id);
    kc_log(level, "takeover", "event=%s topic_id=%s partition=%d%s", event, id, it->partition,
           more);
}

/* Tells an installed log what the image says of its configs, if that is news. */
static void configure(struct exec *e, const struct ki_image *im)
{
    struct kl_cluster *k = e->k;
    const struct kl_item *it = e->item;
    const struct ki_topic *t = ki_topic_by_id(im, &it->topic_id);
    struct ks_log_config config = {0};
    if (!t) {
        return;
    }
    k->o.log_config(k->o.ctx, im, t, &config);
    if (memcmp(&config, &e->config, sizeof(config)) != 0) {
        e->config = config;
        kd_configure(k->o.data, &it->topic_id, it->partition, &config);
    }
}

static void on_installed(void *ctx)
{
    struct exec *e = ctx;
    struct kl_cluster *k = e->k;
    k->takeovers++;
    kl_plan_installed(k->plan, e->item, kc_mono_ms());
    configure(e, k->plan->image); /* it was opened with the configs of the image of that time */
    kl_wake(k);
}

static void log_failure(const struct kl_item *it, int rc, const struct kc_err *err)
{
    if (it->fail_rc == rc) {
        return; /* a retry says the same once */
    }
    struct kc_log_buf lb;
    char more[320];
    snprintf(more, sizeof(more), " error=%s",
             kc_log_str(kc_str_of(err && err->msg[0] ? err->msg : kc_strerror(rc)), &lb));
    log_item(KC_WARN, it, rc == KC_E_BLOCKED ? "takeover_blocked" : "takeover_failed", more);
}

static void on_open_done(void *ctx, int rc, struct ks_log *log, const struct kc_err *err,
                         int32_t blocker, const struct kc_uuid *blocker_incarnation)
{
    struct exec *e = ctx;
    struct kl_cluster *k = e->k;
    struct kl_item *it = e->item;
    int64_t now = kc_mono_ms();
    if (rc) {
        log_failure(it, rc, err);
    }
    if (e->warming && rc == 0 && !log) {
        e->warming = false;
        kl_plan_warm(k->plan, it, 0, now);
        kl_wake(k);
        return; /* the handle waits for go or cancel */
    }
    if (rc == 0 && k->closed) {
        ks_log_own(log, k->loop); /* too late: nobody is left to serve it */
        ks_log_close(log);
        exec_free(e);
        return;
    }
    if (rc == 0) {
        e->open = NULL;
        kl_plan_opened(k->plan, it, 0, ks_log_epoch(log), KP_NO_BROKER, NULL, now);
        kd_install(k->o.data, log, k->loop, on_installed, e);
        return;
    }
    bool warming = e->warming;
    exec_free(e);
    if (warming) {
        kl_plan_warm(k->plan, it, rc, now);
    } else {
        struct kc_uuid none = {{0}};
        kl_plan_opened(k->plan, it, rc, -1, blocker,
                       blocker_incarnation ? blocker_incarnation : &none, now);
    }
    if (rc == KC_E_FENCED) {
        kl_reg_lost(k, "a takeover found this incarnation fenced");
    }
    kl_wake(k);
}

static void begin_open(struct kl_cluster *k, struct kl_item *it, bool prepare)
{
    const struct ki_image *im = k->plan->image;
    const struct ki_topic *t = ki_topic_by_id(im, &it->topic_id);
    struct exec *e = kc_zalloc(sizeof(*e));
    *e = (struct exec){.k = k, .item = it, .warming = prepare};
    it->exec = e;
    k->o.log_config(k->o.ctx, im, t, &e->config);
    struct ks_open_args args = {.topic_id = it->topic_id,
                                .partition = it->partition,
                                .may_create = it->fresh,
                                .order = im->order,
                                .config = e->config,
                                .condemned = kl_condemned_ask,
                                .condemned_ctx = &k->condemned,
                                .loop = k->loop,
                                .done = on_open_done,
                                .ctx = e};
    e->open = prepare ? ks_log_prepare(k->o.engine, &args) : ks_log_open(k->o.engine, &args);
}

/* ---- letting go ---- */

static void on_released(void *ctx, int rc, struct kc_bytes seal, int64_t end, int32_t epoch)
{
    struct exec *e = ctx;
    struct kl_cluster *k = e->k;
    struct kl_item *it = e->item;
    if (rc == 0 && seal.ptr) {
        k->seals++;
    }
    if (rc && rc != KC_E_NOT_FOUND && rc != KC_E_DEPOSED && rc != KC_E_FENCED) {
        char more[128];
        snprintf(more, sizeof(more), " error=\"%s\"", kc_strerror(rc));
        log_item(KC_WARN, it, "seal_failed", more);
    }
    exec_free(e);
    kl_plan_released(k->plan, it, rc == 0 ? seal : KC_BYTES_NULL, end, epoch, kc_mono_ms());
    if (rc == KC_E_FENCED) {
        kl_reg_lost(k, "a seal found this incarnation fenced");
    }
    kl_wake(k);
}

void kl_exec(struct kl_cluster *k, const struct kl_action *a)
{
    struct kl_item *it = a->item;
    struct exec *e = it->exec;
    switch (a->what) {
    case KL_DO_OPEN:
    case KL_DO_PREPARE:
        begin_open(k, it, a->what == KL_DO_PREPARE);
        break;
    case KL_DO_GO:
        ks_open_go(e->open, (struct kc_bytes){it->seal, it->seal_len});
        break;
    case KL_DO_CANCEL:
        ks_open_cancel(e->open);
        exec_free(e);
        break;
    case KL_DO_RELEASE:
        kd_release(k->o.data, &it->topic_id, it->partition, a->seal, a->hint, k->loop, on_released,
                   e);
        break;
    }
}

void kl_exec_forget(struct kl_cluster *k)
{
    struct kc_map_iter iter = {0};
    for (struct kc_map_entry *entry; (entry = kc_map_next(&k->plan->items, &iter));) {
        struct kl_item *it = entry->value;
        kc_free(it->exec);
        it->exec = NULL;
    }
}

/* ---- configs of open logs ---- */

static bool same(const struct ki_config *a, int32_t n_a, const struct ki_config *b, int32_t n_b)
{
    if (n_a != n_b) {
        return false;
    }
    for (int32_t i = 0; i < n_a; i++) {
        if (strcmp(a[i].name, b[i].name) != 0 || strcmp(a[i].value, b[i].value) != 0) {
            return false;
        }
    }
    return true;
}

static bool same_of_topic(const struct ki_image *a, const struct ki_image *b,
                          const struct kc_uuid *id)
{
    const struct ki_topic *x = ki_topic_by_id(a, id), *y = ki_topic_by_id(b, id);
    return x && y && same(x->configs, x->n_configs, y->configs, y->n_configs);
}

/* Most images tell of moves: a log's configs are put together only where something about them changed. */
void kl_exec_image(struct kl_cluster *k, const struct ki_image *old, const struct ki_image *im)
{
    bool all = !old || !same(old->configs, old->n_configs, im->configs, im->n_configs);
    struct kc_map_iter iter = {0};
    for (struct kc_map_entry *entry; (entry = kc_map_next(&k->plan->items, &iter));) {
        struct kl_item *it = entry->value;
        int32_t s = kp_shard_of(&it->topic_id);
        if (it->state == KL_OPEN &&
            (all || (old->shards[s] != im->shards[s] && !same_of_topic(old, im, &it->topic_id)))) {
            configure(it->exec, im);
        }
    }
}
