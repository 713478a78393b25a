/* 15 DescribeGroups: state, protocol and members of groups.
 *
 * v3 authorized operations. v4 instance ids. v6 an unknown group is an error (69, KIP-1043); below, it
 * is Dead without one. Members show their metadata and assignment in a Stable group only. */
#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_group.h"
#include "handlers/kb_view.h"
#include "wire/kw_describe_groups.h"

struct describe {
    int32_t at; /* group under way */
    struct kw_describe_groups_response resp;
};

typedef struct kw_describe_groups_response_described_group described;
typedef struct kw_describe_groups_response_described_group_member described_member;

static bool fill_member(struct kb_req *req, const struct kg_group *g, const struct kg_member *m,
                        described_member *out)
{
    bool stable = g->state == KG_STABLE;
    struct kc_bytes none = {(const uint8_t *)"", 0};
    return kb_copy_str(req, m->id, &out->member_id) &&
           kb_copy_str(req, m->instance_id, &out->group_instance_id) &&
           kb_copy_str(req, kb_or_empty(m->client_id), &out->client_id) &&
           kb_copy_str(req, kb_or_empty(m->client_host), &out->client_host) &&
           kb_copy_bytes(req, stable ? kg_member_metadata(g, m) : none, &out->member_metadata) &&
           kb_copy_bytes(req, stable ? m->assignment : none, &out->member_assignment);
}

static bool fill_group(struct kb_req *req, const struct kg_group *g, described *out)
{
    out->group_state = kc_str_of(kg_state_name(g->state));
    out->protocol_data = (struct kc_str){"", 0};
    if (!kb_copy_str(req, kb_or_empty(g->protocol_type), &out->protocol_type) ||
        (g->state == KG_STABLE &&
         !kb_copy_str(req, kb_or_empty(g->protocol_name), &out->protocol_data))) {
        return false;
    }
    out->members = kb_alloc(req, (size_t)g->n_members, sizeof(*out->members));
    if (!out->members) {
        return false;
    }
    for (int32_t i = 0; i < g->n_members; i++) {
        if (!fill_member(req, g, g->members[i], &out->members[i])) {
            return false;
        }
        out->n_members++;
    }
    return true;
}

static bool describe_one(struct kb_req *req, struct kc_str group, described *out)
{
    const struct kw_describe_groups_request *body = req->body;
    kw_describe_groups_response_described_group_init(out);
    out->group_id = group;
    const struct kg_group *g =
        kg_request_describe(kg_shard_here(req->app->groups), group, &out->error_code);
    if (out->error_code) {
        return true;
    }
    if (body->include_authorized_operations) {
        out->authorized_operations = KB_OPS_GROUP;
    }
    if (g) {
        return fill_group(req, g, out);
    }
    out->group_state = kc_str_of(kg_state_name(KG_DEAD));
    if (req->version >= 6) {
        out->error_code = KAFKA_GROUP_ID_NOT_FOUND;
        out->error_message = KC_STR_LIT("There is no such group.");
    }
    return true;
}

static void run(struct kb_req *req)
{
    const struct kw_describe_groups_request *body = req->body;
    struct describe *d = req->user;
    for (; d->at < body->n_groups; d->at++) {
        if (!kb_group_here(req, body->groups[d->at], run)) {
            return;
        }
        if (!describe_one(req, body->groups[d->at], &d->resp.groups[d->at])) {
            return;
        }
    }
    kb_reply(req, &d->resp);
}

void kb_handle_describe_groups(struct kb_req *req)
{
    const struct kw_describe_groups_request *body = req->body;
    struct describe *d = kb_alloc(req, 1, sizeof(*d));
    if (!d) {
        return;
    }
    kw_describe_groups_response_init(&d->resp);
    d->resp.groups = kb_alloc(req, (size_t)body->n_groups, sizeof(*d->resp.groups));
    if (!d->resp.groups) {
        return;
    }
    d->resp.n_groups = body->n_groups;
    req->user = d;
    run(req);
}
