/* 13 LeaveGroup: members leave, or are removed by an administrator.
 *
 * v0-2 one member, its error on top. v3 many, by member id or by instance id alone (KIP-345). v5 the
 * client's reason (KIP-800). */
#include "handlers/kb_api.h"
#include "handlers/kb_group.h"
#include "wire/kw_leave_group.h"

static void leave_one(struct kb_req *req)
{
    const struct kw_leave_group_request *body = req->body;
    struct kg_who who = {.member_id = body->member_id, .generation = -1};
    int16_t member_error = 0;
    struct kw_leave_group_response resp;
    kw_leave_group_response_init(&resp);
    int16_t error = kg_request_leave(kg_shard_here(req->app->groups), body->group_id, &who, NULL, 1,
                                     &member_error);
    resp.error_code = error ? error : member_error;
    kb_reply(req, &resp);
}

static void leave_many(struct kb_req *req)
{
    const struct kw_leave_group_request *body = req->body;
    size_t n = (size_t)body->n_members;
    struct kw_leave_group_response resp;
    kw_leave_group_response_init(&resp);
    struct kg_who *who = kb_alloc(req, n, sizeof(*who));
    struct kc_str *reasons = who ? kb_alloc(req, n, sizeof(*reasons)) : NULL;
    int16_t *errors = reasons ? kb_alloc(req, n, sizeof(*errors)) : NULL;
    resp.members = errors ? kb_alloc(req, n, sizeof(*resp.members)) : NULL;
    if (!resp.members) {
        return;
    }
    for (int32_t i = 0; i < body->n_members; i++) {
        who[i] =
            (struct kg_who){body->members[i].member_id, body->members[i].group_instance_id, -1};
        reasons[i] = body->members[i].reason;
    }
    resp.error_code = kg_request_leave(kg_shard_here(req->app->groups), body->group_id, who,
                                       reasons, body->n_members, errors);
    resp.n_members = resp.error_code ? 0 : body->n_members;
    for (int32_t i = 0; i < resp.n_members; i++) {
        resp.members[i] = (struct kw_leave_group_response_member_response){
            who[i].member_id, who[i].instance_id, errors[i]};
    }
    kb_reply(req, &resp);
}

void kb_handle_leave_group(struct kb_req *req)
{
    const struct kw_leave_group_request *body = req->body;
    kb_group_run(req, body->group_id, req->version >= 3 ? leave_many : leave_one);
}
