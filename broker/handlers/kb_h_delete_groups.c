/* 42 DeleteGroups: groups without members go, with their offsets. v3 error messages. */
#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_group.h"
#include "wire/kw_delete_groups.h"

struct delete_groups {
    struct kg_admin admin; /* of the group under way */
    struct kb_req *req;
    int32_t at;
    bool inside; /* in run: an answer that comes at once is taken by its loop */
    bool waiting;
    struct kw_delete_groups_response resp;
};

static void run(struct kb_req *req);

static void take(struct delete_groups *d)
{
    struct kw_delete_groups_response_deletable_group_result *out = &d->resp.results[d->at++];
    out->error_code = d->admin.error;
    if (d->admin.error) {
        out->error_message = kc_str_of(kw_error_name(d->admin.error));
    }
    d->waiting = false;
}

static void on_done(struct kg_admin *a)
{
    struct delete_groups *d = KC_CONTAINER_OF(a, struct delete_groups, admin);
    take(d);
    if (!d->inside) {
        run(d->req);
    }
}

static void run(struct kb_req *req)
{
    const struct kw_delete_groups_request *body = req->body;
    struct delete_groups *d = req->user;
    while (d->at < body->n_groups_names) {
        struct kc_str group = body->groups_names[d->at];
        if (!kb_group_here(req, group, run)) {
            return;
        }
        kw_delete_groups_response_deletable_group_result_init(&d->resp.results[d->at]);
        d->resp.results[d->at].group_id = group;
        d->admin = (struct kg_admin){.done = on_done};
        d->inside = d->waiting = true;
        kg_request_delete(kg_shard_here(req->app->groups), group, &d->admin);
        d->inside = false;
        if (d->waiting) {
            return;
        }
    }
    kb_reply(req, &d->resp);
}

void kb_handle_delete_groups(struct kb_req *req)
{
    const struct kw_delete_groups_request *body = req->body;
    struct delete_groups *d = kb_alloc(req, 1, sizeof(*d));
    if (!d) {
        return;
    }
    d->req = req;
    kw_delete_groups_response_init(&d->resp);
    d->resp.results = kb_alloc(req, (size_t)body->n_groups_names, sizeof(*d->resp.results));
    if (!d->resp.results) {
        return;
    }
    d->resp.n_results = body->n_groups_names;
    req->user = d;
    run(req);
}
