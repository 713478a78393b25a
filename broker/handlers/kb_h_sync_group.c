/* 14 SyncGroup: the leader hands in the assignment, everybody gets their part.
 *
 * v3 static members. v5 protocol type and name are mandatory and checked (KIP-559). */
#include "handlers/kb_api.h"
#include "handlers/kb_group.h"
#include "wire/kw_sync_group.h"

struct sync {
    struct kg_waiter waiter;
    struct kb_req *req;
};

static void on_synced(struct kg_waiter *w, const struct kg_sync_out *out)
{
    struct kb_req *req = KC_CONTAINER_OF(w, struct sync, waiter)->req;
    struct kw_sync_group_response resp;
    kw_sync_group_response_init(&resp);
    resp.error_code = out->error;
    resp.protocol_type = out->protocol_type;
    resp.protocol_name = out->protocol_name;
    resp.assignment = out->assignment;
    kb_reply(req, &resp);
}

static void run(struct kb_req *req)
{
    const struct kw_sync_group_request *body = req->body;
    struct sync *s = kb_alloc(req, 1, sizeof(*s));
    struct kg_assignment *list =
        s ? kb_alloc(req, (size_t)body->n_assignments, sizeof(*list)) : NULL;
    if (!list) {
        return;
    }
    for (int32_t i = 0; i < body->n_assignments; i++) {
        list[i] =
            (struct kg_assignment){body->assignments[i].member_id, body->assignments[i].assignment};
    }
    s->waiter.synced = on_synced;
    s->req = req;
    struct kg_sync_in in = {
        .req = &s->waiter,
        .who = {body->member_id, body->group_instance_id, body->generation_id},
        .protocol_type = body->protocol_type,
        .protocol_name = body->protocol_name,
        .n_assignments = body->n_assignments,
        .assignments = list,
    };
    kg_request_sync(kg_shard_here(req->app->groups), body->group_id, &in);
}

void kb_handle_sync_group(struct kb_req *req)
{
    const struct kw_sync_group_request *body = req->body;
    if (req->version >= 5 && (!body->protocol_type.ptr || !body->protocol_name.ptr)) {
        struct kw_sync_group_response resp;
        kw_sync_group_response_init(&resp);
        resp.error_code = KAFKA_INCONSISTENT_GROUP_PROTOCOL;
        resp.assignment = (struct kc_bytes){(const uint8_t *)"", 0};
        kb_reply(req, &resp);
        return;
    }
    kb_group_run(req, body->group_id, run);
}
