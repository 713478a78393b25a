#include "op_control.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/kc_mem.h"

struct op_played op_played;

void op_played_reset(void)
{
    memset(&op_played, 0, sizeof(op_played));
}

static void note(const char *fmt, ...) KC_PRINTF(1, 2);
static void note(const char *fmt, ...)
{
    size_t len = strlen(op_played.log);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(op_played.log + len, sizeof(op_played.log) - len, fmt, ap);
    va_end(ap);
}

void ko_view_unref(struct ko_view *v)
{
    if (v && atomic_fetch_sub(&v->refs, 1) == 1) {
        kc_free(v->rows);
        kc_free(v->troubles);
        kc_free(v);
    }
}

void ko_control_cluster(struct ko_control *c, const struct ko_cluster_spec *spec)
{
    (void)c;
    note("cluster %s %d|", spec->cluster, spec->desired);
}

void ko_control_cluster_removed(struct ko_control *c, const char *cluster)
{
    (void)c;
    note("removed %s|", cluster);
}

void ko_control_slice(struct ko_control *c, const char *cluster, const char *slice_key,
                      const struct kp_endpoint *eps, int32_t n)
{
    (void)c;
    note("slice %s %s %d|", cluster, slice_key, n);
    op_played.n_eps = n;
    memcpy(op_played.eps, eps, (size_t)KC_MIN(n, 8) * sizeof(*eps));
}

void ko_control_slice_deleted(struct ko_control *c, const char *cluster, const char *slice_key)
{
    (void)c;
    note("slice- %s %s|", cluster, slice_key);
}

void ko_control_synced(struct ko_control *c, const char *cluster)
{
    (void)c;
    note("synced %s|", cluster);
}

void ko_control_rollout(struct ko_control *c, const char *cluster, uint64_t rollout)
{
    (void)c;
    note("rollout%s %s|", rollout ? "" : "-", cluster);
    op_played.rollout = rollout;
}

void ko_control_topic(struct ko_control *c, const char *cluster, const struct ki_topic *t)
{
    (void)c;
    note("topic %s %s %d|", cluster, t->name, t->n_parts);
    kc_uuid_to_b64(&t->id, op_played.topic_id);
    op_played.topic_parts = t->n_parts;
    char *out = op_played.topic_config;
    size_t cap = sizeof(op_played.topic_config), len = 0;
    out[0] = '\0';
    for (int32_t i = 0; i < t->n_configs && len < cap; i++) {
        len += (size_t)snprintf(out + len, cap - len, "%s=%s;", t->configs[i].name,
                                t->configs[i].value);
    }
}

void ko_control_topic_delete(struct ko_control *c, const char *cluster, const struct kc_uuid *id)
{
    char text[KC_UUID_B64_LEN + 1];
    (void)c;
    kc_uuid_to_b64(id, text);
    note("topic- %s %s|", cluster, text);
}

void ko_control_topic_forget(struct ko_control *c, const char *cluster, const struct kc_uuid *id)
{
    char text[KC_UUID_B64_LEN + 1];
    (void)c;
    kc_uuid_to_b64(id, text);
    note("topic? %s %s|", cluster, text);
}

void ko_control_admin_done(struct ko_control *c, uint64_t ticket, int32_t error,
                           const char *message)
{
    (void)c;
    (void)message;
    op_played.done_ticket = ticket;
    op_played.done_error = error;
    op_played.done++;
}

struct ko_view *op_view(void)
{
    struct ko_view *v = kc_zalloc(sizeof(*v));
    atomic_init(&v->refs, 1);
    snprintf(v->cluster, sizeof(v->cluster), "ns/demo");
    v->active = true;
    snprintf(v->order.uid, sizeof(v->order.uid), "image-uid");
    v->order.term = 1;
    v->order.generation = 7;
    v->n_rows = 3;
    v->rows = kc_zalloc(3 * sizeof(*v->rows));
    v->partitions = 12;
    for (int32_t i = 0; i < 3; i++) {
        struct kp_row *r = &v->rows[i];
        r->id = i;
        r->health = KP_ALIVE;
        r->state = KP_SERVING;
        r->serving = r->slice_ready = true;
        r->last_seen_ms = 1700000000000;
        snprintf(r->version, sizeof(r->version), "0.1.0");
        snprintf(r->host, sizeof(r->host), "demo-%d", i);
    }
    return v;
}
