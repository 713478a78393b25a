/* 16 ListGroups: the groups this broker coordinates. v4 a filter by state, v5 by type.
 *
 * The request visits every data loop in turn and collects what its slots hold. A slot that is still
 * loading makes the answer COORDINATOR_LOAD_IN_PROGRESS, with what there is. */
#include <strings.h>

#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_group.h"
#include "wire/kw_list_groups.h"

typedef struct kw_list_groups_response_listed_group listed;

struct list {
    struct kb_req *req;
    int32_t loop; /* under way */
    bool loading;
    int32_t room;
    struct kw_list_groups_response resp;
};

/* No filter lets everything through; names are compared without regard to case (KIP-518). */
static bool passes(const struct kc_str *filter, int32_t n, const char *name)
{
    for (int32_t i = 0; i < n; i++) {
        struct kc_str want = kc_str_of(name);
        if (filter[i].len == want.len && strncasecmp(filter[i].ptr, name, (size_t)want.len) == 0) {
            return true;
        }
    }
    return n == 0;
}

static listed *add(struct list *l)
{
    if (l->resp.n_groups == l->room) {
        int32_t room = l->room ? l->room * 2 : 64;
        listed *more = kb_alloc(l->req, (size_t)room, sizeof(*more));
        if (!more) {
            return NULL;
        }
        for (int32_t i = 0; i < l->resp.n_groups; i++) {
            more[i] = l->resp.groups[i];
        }
        l->resp.groups = more;
        l->room = room;
    }
    return &l->resp.groups[l->resp.n_groups];
}

/* The groups of one loop. A request that finds no memory is given up by its own loop, maybe at once: it is
 * not looked at any more, nor is the list, which is the request's. */
struct part {
    struct list *l;
    bool dropped;
};

static void collect(void *ctx, const struct kg_group *g)
{
    struct part *part = ctx;
    if (part->dropped) {
        return;
    }
    struct list *l = part->l;
    const struct kw_list_groups_request *body = l->req->body;
    if (!passes(body->states_filter, body->n_states_filter, kg_state_name(g->state)) ||
        !passes(body->types_filter, body->n_types_filter, "classic")) {
        return;
    }
    listed *out = add(l);
    if (!out || !kb_copy_str(l->req, g->id, &out->group_id) ||
        !kb_copy_str(l->req, kb_or_empty(g->protocol_type), &out->protocol_type)) {
        part->dropped = true;
        return;
    }
    out->group_state = kc_str_of(kg_state_name(g->state));
    out->group_type = KC_STR_LIT("classic");
    l->resp.n_groups++;
}

static void run(struct kb_req *req)
{
    struct list *l = req->user;
    struct kd_data *data = req->app->data;
    for (; l->loop < kd_n_loops(data); l->loop++) {
        if (!rt_on_loop(kd_loop(data, l->loop))) {
            kb_run_on(req, kd_loop(data, l->loop), run);
            return;
        }
        struct part part = {.l = l};
        bool loaded = kg_shard_list(kg_shard_here(req->app->groups), collect, &part);
        if (part.dropped) {
            return;
        }
        l->loading |= !loaded;
    }
    l->resp.error_code = l->loading ? KAFKA_COORDINATOR_LOAD_IN_PROGRESS : 0;
    kb_reply(req, &l->resp);
}

void kb_handle_list_groups(struct kb_req *req)
{
    struct list *l = kb_alloc(req, 1, sizeof(*l));
    if (!l) {
        return;
    }
    l->req = req;
    kw_list_groups_response_init(&l->resp);
    req->user = l;
    run(req);
}
