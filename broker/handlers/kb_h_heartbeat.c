/* 12 Heartbeat: a member is alive; 27 in the answer sends it back to JoinGroup. v3 static members. */
#include "handlers/kb_api.h"
#include "handlers/kb_group.h"
#include "wire/kw_heartbeat.h"

static void run(struct kb_req *req)
{
    const struct kw_heartbeat_request *body = req->body;
    struct kg_who who = {body->member_id, body->group_instance_id, body->generation_id};
    struct kw_heartbeat_response resp;
    kw_heartbeat_response_init(&resp);
    resp.error_code = kg_request_heartbeat(kg_shard_here(req->app->groups), body->group_id, &who);
    kb_reply(req, &resp);
}

void kb_handle_heartbeat(struct kb_req *req)
{
    const struct kw_heartbeat_request *body = req->body;
    kb_group_run(req, body->group_id, run);
}
