/* 22 InitProducerId: an id for an idempotent producer.
 *
 * A producer without a transactional id gets a new id and epoch 0 every time, whatever id it names
 * (v3, KIP-360): such producers raise their epoch by themselves. Transactions are not served by this
 * version of kaas, and the APIs they need are not advertised; a transactional id is answered
 * UNSUPPORTED_VERSION, which clients report at once instead of retrying for a minute. */
#include "handlers/kb_api.h"
#include "handlers/kb_group.h"
#include "wire/kw_init_producer_id.h"

struct init_pid {
    struct kg_pid_waiter waiter;
    struct kb_req *req;
};

static void reply(struct kb_req *req, int16_t error, int64_t producer_id)
{
    struct kw_init_producer_id_response resp;
    kw_init_producer_id_response_init(&resp);
    resp.error_code = error;
    resp.producer_id = producer_id;
    resp.producer_epoch = error ? -1 : 0;
    kb_reply(req, &resp);
}

/* No block of ids now is like a coordinator that is still loading: 14 makes every client try again. */
static void on_id(struct kg_pid_waiter *w, int64_t producer_id)
{
    struct kb_req *req = KC_CONTAINER_OF(w, struct init_pid, waiter)->req;
    reply(req, producer_id < 0 ? KAFKA_COORDINATOR_LOAD_IN_PROGRESS : KAFKA_NONE, producer_id);
}

void kb_handle_init_producer_id(struct kb_req *req)
{
    const struct kw_init_producer_id_request *body = req->body;
    if ((body->producer_id < 0) != (body->producer_epoch < 0) ||
        (body->transactional_id.ptr && body->transactional_id.len == 0)) {
        reply(req, KAFKA_INVALID_REQUEST, -1);
        return;
    }
    if (body->transactional_id.ptr) {
        reply(req, KAFKA_UNSUPPORTED_VERSION, -1);
        return;
    }
    struct init_pid *p = kb_alloc(req, 1, sizeof(*p));
    if (!p) {
        return;
    }
    p->waiter.fn = on_id;
    p->req = req;
    kg_pid_next(kg_groups_pids(req->app->groups), kg_loop_here(req->app->groups), &p->waiter);
}
