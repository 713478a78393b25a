/* ko_view.c - what status and events are made of, sent to the API loop. */
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "control/ko_int.h"

void ko_view_unref(struct ko_view *v)
{
    if (v && atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) == 1) {
        kc_free(v->rows);
        kc_free(v->troubles);
        kc_free(v);
    }
}

static void drop_view(void *v)
{
    ko_view_unref(v);
}

static void tell_view(struct ko_control *c, void *arg)
{
    if (c->o.cb.view) {
        c->o.cb.view(c->o.cb.ctx, arg);
    } else {
        ko_view_unref(arg);
    }
}

static bool alive_row(const struct ko_view *v, int32_t broker)
{
    for (int32_t i = 0; i < v->n_rows; i++) {
        if (v->rows[i].id == broker) {
            return v->rows[i].health != KP_DEAD;
        }
    }
    return false;
}

static void count(struct ko_cc *cc, struct ko_view *v)
{
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&cc->topics.by_id, &it));) {
        const struct ko_ct *t = e->value;
        int32_t n;
        const struct kp_part *p = t->deleted ? NULL : kp_ctl_parts(cc->ctl, &t->id, &n);
        for (int32_t i = 0; p && i < n; i++) {
            bool led = p[i].led >= 0 && p[i].led == p[i].assigned;
            bool gone = p[i].led < 0 && !alive_row(v, p[i].assigned);
            v->offline += p[i].offline || gone;
            v->leaderless += !led && p[i].move.id == 0;
            v->partitions += !t->internal;
            v->away += p[i].home >= 0 && p[i].led != p[i].home && !p[i].offline;
        }
    }
}

void ko_view_send(struct ko_cc *cc, int64_t now_ms)
{
    cc->view_due = false;
    cc->view_ms = now_ms;
    if (!ko_cc_held(cc)) {
        return;
    }
    struct ko_view *v = kc_zalloc(sizeof(*v));
    const struct kp_row *rows;
    atomic_init(&v->refs, 1);
    memcpy(v->cluster, cc->key, sizeof(v->cluster));
    v->active = ko_cc_decides(cc);
    v->order = cc->order;
    v->n_rows = kp_ctl_rows(cc->ctl, &rows);
    v->rows = kc_alloc((size_t)v->n_rows * sizeof(*rows) + 1);
    memcpy(v->rows, rows, (size_t)v->n_rows * sizeof(*rows));
    v->troubles = kc_zalloc((size_t)v->n_rows * sizeof(v->troubles[0]) + 1);
    for (int32_t i = 0; i < v->n_rows; i++) {
        memcpy(v->troubles[i], cc->trouble[rows[i].id], sizeof(v->troubles[i]));
    }
    v->connected_ms = cc->connected_wall_ms;
    count(cc, v);
    v->rollout = kp_ctl_measured(cc->ctl, now_ms, &v->measure) ? cc->measured : 0;
    v->measured_wall_ms = cc->measured_wall_ms;
    ko_to_api(cc->c, tell_view, v, drop_view);
}

struct events {
    char key[KO_CLUSTER_KEY_MAX];
    int32_t n;
    struct kp_event list[];
};

static void tell_events(struct ko_control *c, void *arg)
{
    struct events *e = arg;
    for (int32_t i = 0; i < e->n && c->o.cb.event; i++) {
        c->o.cb.event(c->o.cb.ctx, e->key, &e->list[i]);
    }
    kc_free(e);
}

void ko_events_send(struct ko_cc *cc, const struct kp_changes *ch)
{
    struct events *e = kc_zalloc(sizeof(*e) + (size_t)ch->n_events * sizeof(e->list[0]));
    memcpy(e->key, cc->key, sizeof(e->key));
    e->n = ch->n_events;
    memcpy(e->list, ch->events, (size_t)ch->n_events * sizeof(e->list[0]));
    ko_to_api(cc->c, tell_events, e, NULL);
}
