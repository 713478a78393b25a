#include "app/kb_cluster.h"

#include <stdio.h>

#include "groups/kg_groups.h"
#include "handlers/kb_kafka_config.h"
#include "policy/kp_drain.h"

static void on_image(void *ctx, struct ki_image *im)
{
    struct kb_cluster *c = ctx;
    kb_set_image(c->app, ki_image_ref(im));
    if (!c->imaged) {
        c->imaged = true;
        c->first_image(c->ctx);
    }
}

static void on_log_config(void *ctx, const struct ki_image *im, const struct ki_topic *topic,
                          struct ks_log_config *ret)
{
    struct kb_cluster *c = ctx;
    kb_log_config(c->app, im, topic, ret);
}

/* Groups with members; empty ones only keep offsets. */
static int32_t on_active_groups(void *ctx)
{
    struct kb_cluster *c = ctx;
    const struct kg_groups *groups = atomic_load(&c->app->groups);
    int64_t n = 0;
    if (groups) {
        struct kg_metrics m;
        kg_groups_metrics(groups, &m);
        for (enum kg_state s = KG_EMPTY + 1; s < KG_DEAD; s++) {
            n += m.groups[s];
        }
    }
    return (int32_t)KC_MIN(n, (int64_t)INT32_MAX);
}

static void on_drained(void *ctx)
{
    struct kb_cluster *c = ctx;
    c->drained(c->ctx);
}

int kb_cluster_start(struct kb_cluster *c, struct kb_app *app, const struct kb_config *config,
                     const struct kp_listener *listeners, const char *version,
                     struct rt_loop *control, struct kc_err *err)
{
    char name[sizeof(config->cluster_namespace) + sizeof(config->cluster_name) + 1];
    snprintf(name, sizeof(name), "%s/%s", config->cluster_namespace, config->cluster_name);
    struct kp_drain drain = kp_drain_of(config->termination_grace_s); /* R29 */
    c->app = app;
    struct kl_opts o = {.cluster = name,
                        .broker_id = config->id,
                        .pod_name = config->pod_name,
                        .pod_uid = config->pod_uid,
                        .rack = config->rack,
                        .version = version,
                        .n_listeners = config->n_listeners,
                        .listeners = listeners,
                        .volume_cluster_id = app->cluster_id,
                        .operator_host = config->operator_host,
                        .operator_port = config->operator_port,
                        .token_file = config->token_file,
                        .interval_ms = config->heartbeat_interval_ms,
                        .timeout_ms = config->heartbeat_timeout_ms,
                        .source = config->image_source == KB_IMAGE_KUBERNETES ? KL_SOURCE_KUBERNETES
                                                                              : KL_SOURCE_DIRECTORY,
                        .image_ns = config->cluster_namespace,
                        .image_name = config->image_name,
                        .image_dir = config->image_directory,
                        .image_mount = config->image_mount,
                        .drain_ms = drain.drain_ms,
                        .leave_ms = drain.leave_ms,
                        .engine = app->engine,
                        .data = app->data,
                        .on_image = on_image,
                        .log_config = on_log_config,
                        .active_groups = on_active_groups,
                        .on_drained = on_drained,
                        .ctx = c};
    int rc = kl_start(&o, control, &c->control, err);
    if (rc == 0) {
        app->admin = kl_admin_port(c->control);
    }
    return rc;
}
