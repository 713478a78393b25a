/* kb_view.c - see kb_view.h. */
#include "handlers/kb_view.h"

#include <string.h>

#include "base/kc_str.h"
#include "handlers/kb_context.h"
#include "wire/kw_errors.h"

static struct kc_str rack_of(const char *rack)
{
    return *rack ? kc_str_of(rack) : KC_STR_NULL;
}

static void self_node(const struct kb_req *req, struct kb_node *ret)
{
    const struct kb_app *app = req->app;
    const struct kb_endpoint *e = &app->endpoints[req->listener];
    *ret = (struct kb_node){app->self_id, kc_str_of(e->host), e->port, rack_of(app->rack), false};
}

static bool row_node(const struct kb_req *req, const struct kp_row *row, struct kb_node *ret)
{
    const char *name = req->app->endpoints[req->listener].name;
    for (int32_t i = 0; i < row->n_listeners; i++) {
        const struct kp_listener *l = &row->listeners[i];
        if (strcmp(l->name, name) == 0) {
            *ret = (struct kb_node){row->id, kc_str_of(l->host), l->port, rack_of(row->rack),
                                    row->state == KP_FENCED};
            return true;
        }
    }
    return false;
}

static bool visible(const struct kb_req *req, const struct kp_row *row)
{
    return row && (row->id == req->app->self_id || row->state != KP_FENCED);
}

int32_t kb_nodes(struct kb_req *req, bool include_fenced, struct kb_node **ret)
{
    const struct ki_image *im = req->image;
    int32_t self = req->app->self_id, n = 0;
    bool self_done = false;
    struct kb_node *nodes = kb_alloc(req, (size_t)im->n_rows + 1, sizeof(*nodes));
    if (!nodes) {
        return -1;
    }
    for (int32_t i = 0; i <= im->n_rows; i++) {
        const struct kp_row *row = i < im->n_rows ? &im->rows[i] : NULL;
        if (!self_done && (!row || row->id >= self)) {
            self_node(req, &nodes[n++]); /* with or without a row (R32) */
            self_done = true;
        }
        if (row && row->id != self && (include_fenced || row->state != KP_FENCED)) {
            n += row_node(req, row, &nodes[n]);
        }
    }
    *ret = nodes;
    return n;
}

bool kb_node(const struct kb_req *req, int32_t broker, struct kb_node *ret)
{
    if (broker == req->app->self_id) {
        self_node(req, ret);
        return true;
    }
    const struct kp_row *row = ki_row(req->image, broker);
    return visible(req, row) && row_node(req, row, ret);
}

int32_t kb_controller(const struct kb_req *req)
{
    const struct ki_image *im = req->image;
    for (int32_t i = 0; i < im->n_rows; i++) {
        struct kb_node node;
        if (im->rows[i].state == KP_SERVING && kb_node(req, im->rows[i].id, &node)) {
            return im->rows[i].id;
        }
    }
    return req->app->self_id;
}

void kb_leader(const struct kb_req *req, const struct ki_topic *t, int32_t p, struct kb_leader *ret)
{
    struct kp_lead lead = ki_leader(req->image, t, p);
    int32_t epoch = kd_open_epoch(req->app->data, &t->id, p);
    if (epoch >= 0) {
        *ret = (struct kb_leader){0, req->app->self_id, epoch};
        return;
    }
    struct kb_node node;
    if (lead.broker == req->app->self_id) {
        /* Released a moment ago, and not yet in the image: the next claim counts one up. */
        int32_t hint = kd_hint(req->app->data, &t->id, p);
        if (hint != KP_NO_BROKER && kb_node(req, hint, &node)) {
            *ret = (struct kb_leader){0, hint, lead.epoch + 1};
            return;
        }
    }
    const struct kp_row *row = ki_row(req->image, lead.broker);
    bool led = lead.broker != KP_NO_BROKER && lead.broker != req->app->self_id && row &&
               kc_uuid_eq(&row->incarnation, &lead.incarnation);
    if (led && kb_node(req, lead.broker, &node)) {
        *ret = (struct kb_leader){0, lead.broker, lead.epoch};
    } else {
        *ret = (struct kb_leader){KAFKA_LEADER_NOT_AVAILABLE, -1, lead.epoch};
    }
}

void kb_replicas(const struct ki_topic *t, int32_t p, const struct kb_leader *leader,
                 struct kb_replicas *ret)
{
    *ret = (struct kb_replicas){0};
    int32_t holder = leader->id >= 0 ? leader->id : t->parts[p].assigned;
    if (holder < 0) {
        return;
    }
    ret->all[ret->n_all++] = holder;
    if (leader->id >= 0) {
        ret->isr[ret->n_isr++] = holder;
    } else {
        ret->offline[ret->n_offline++] = holder;
    }
}

const struct ki_topic *kb_topic(const struct kb_req *req, struct kc_str name,
                                const struct kc_uuid *id, int16_t *ret_error)
{
    *ret_error = 0;
    const struct ki_topic *t;
    if (!kc_uuid_is_zero(id)) {
        t = ki_topic_by_id(req->image, id);
        *ret_error = t && !t->deleted ? KAFKA_NONE : KAFKA_UNKNOWN_TOPIC_ID;
    } else if (name.ptr) {
        t = ki_topic_by_name(req->image, name);
        *ret_error = t ? KAFKA_NONE : KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
    } else {
        t = NULL;
        *ret_error = KAFKA_UNKNOWN_TOPIC_ID;
    }
    return *ret_error ? NULL : t;
}
