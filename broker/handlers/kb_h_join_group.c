/* 11 JoinGroup: a member enters a group, or its next generation. The answer waits for the others.
 *
 * v1 rebalance timeout. v4 a new member is given an id first (KIP-394). v5 static members. v7
 * protocol type in the answer. v8 the client's reason (KIP-800). v9 SkipAssignment (KIP-814). */
#include "handlers/kb_api.h"
#include "handlers/kb_group.h"
#include "wire/kw_join_group.h"

struct join {
    struct kg_waiter waiter;
    struct kb_req *req;
};

static bool fill_members(struct kb_req *req, const struct kg_join_out *out,
                         struct kw_join_group_response *resp)
{
    resp->members = kb_alloc(req, (size_t)out->n_members, sizeof(*resp->members));
    if (!resp->members) {
        return false;
    }
    resp->n_members = out->n_members;
    for (int32_t i = 0; i < out->n_members; i++) {
        const struct kg_join_member *m = &out->members[i];
        resp->members[i] =
            (struct kw_join_group_response_member){m->id, m->instance_id, m->metadata};
    }
    return true;
}

static void on_joined(struct kg_waiter *w, const struct kg_join_out *out)
{
    struct kb_req *req = KC_CONTAINER_OF(w, struct join, waiter)->req;
    struct kw_join_group_response resp;
    kw_join_group_response_init(&resp);
    resp.error_code = out->error;
    resp.generation_id = out->generation;
    resp.protocol_type = out->protocol_type;
    resp.protocol_name = req->version >= 7 ? out->protocol_name : kb_or_empty(out->protocol_name);
    resp.leader = kb_or_empty(out->leader);
    resp.skip_assignment = out->skip_assignment;
    resp.member_id = kb_or_empty(out->member_id);
    if (fill_members(req, out, &resp)) {
        kb_reply(req, &resp);
    }
}

static void run(struct kb_req *req)
{
    const struct kw_join_group_request *body = req->body;
    struct join *j = kb_alloc(req, 1, sizeof(*j));
    struct kg_protocol *protocols =
        j ? kb_alloc(req, (size_t)body->n_protocols, sizeof(*protocols)) : NULL;
    if (!protocols) {
        return;
    }
    for (int32_t i = 0; i < body->n_protocols; i++) {
        protocols[i] = (struct kg_protocol){body->protocols[i].name, body->protocols[i].metadata};
    }
    j->waiter.joined = on_joined;
    j->req = req;
    struct kg_join_in in = {
        .req = &j->waiter,
        .spec = {.id = body->member_id,
                 .instance_id = body->group_instance_id,
                 .client_id = kb_or_empty(req->client_id),
                 .client_host = req->client_host,
                 .session_timeout_ms = body->session_timeout_ms,
                 .rebalance_timeout_ms =
                     req->version >= 1 ? body->rebalance_timeout_ms : body->session_timeout_ms,
                 .n_protocols = body->n_protocols,
                 .protocols = protocols},
        .protocol_type = body->protocol_type,
        .require_known_id = req->version >= 4,
        .can_skip = req->version >= 9,
    };
    kg_request_join(kg_shard_here(req->app->groups), body->group_id, &in, body->reason);
}

void kb_handle_join_group(struct kb_req *req)
{
    const struct kw_join_group_request *body = req->body;
    kb_group_run(req, body->group_id, run);
}
