/* 10 FindCoordinator: which broker a group or a transactional id has to talk to.
 *
 * v1 kinds of keys. v4 many keys at once (KIP-699). The coordinator is the leader of the slot's
 * partition, decided like any other leader (W2, kb_leader); nobody visible leads it: 15. An empty
 * group is a key like any other, as in Kafka. */
#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_group.h"
#include "handlers/kb_view.h"
#include "wire/kw_find_coordinator.h"

enum { KEY_GROUP = 0, KEY_TRANSACTION = 1 };

static int16_t find(struct kb_req *req, int8_t key_type, struct kc_str key, struct kb_node *ret)
{
    *ret = (struct kb_node){.id = -1, .host = {"", 0}, .port = -1};
    if (key_type != KEY_GROUP && key_type != KEY_TRANSACTION) {
        return KAFKA_INVALID_REQUEST;
    }
    const struct ki_topic *t =
        kg_slot_topic(req->image, key_type == KEY_GROUP ? KP_GROUP_SLOTS : KP_TXN_SLOTS);
    struct kb_leader leader = {.id = -1};
    if (t) {
        kb_leader(req, t, kg_slot_of(key), &leader);
    }
    struct kb_node node;
    if (leader.id < 0 || !kb_node(req, leader.id, &node)) {
        return KAFKA_COORDINATOR_NOT_AVAILABLE;
    }
    *ret = node;
    return 0;
}

static struct kc_str message_of(int16_t error)
{
    return error ? kc_str_of(kw_error_name(error)) : KC_STR_NULL;
}

static void find_one(struct kb_req *req)
{
    const struct kw_find_coordinator_request *body = req->body;
    struct kw_find_coordinator_response resp;
    struct kb_node node;
    kw_find_coordinator_response_init(&resp);
    resp.error_code = find(req, req->version >= 1 ? body->key_type : KEY_GROUP, body->key, &node);
    resp.error_message = message_of(resp.error_code);
    resp.node_id = node.id;
    resp.host = node.host;
    resp.port = node.port;
    kb_reply(req, &resp);
}

static void find_many(struct kb_req *req)
{
    const struct kw_find_coordinator_request *body = req->body;
    struct kw_find_coordinator_response resp;
    kw_find_coordinator_response_init(&resp);
    resp.coordinators = kb_alloc(req, (size_t)body->n_coordinator_keys, sizeof(*resp.coordinators));
    if (!resp.coordinators) {
        return;
    }
    resp.n_coordinators = body->n_coordinator_keys;
    for (int32_t i = 0; i < body->n_coordinator_keys; i++) {
        struct kw_find_coordinator_response_coordinator *out = &resp.coordinators[i];
        struct kb_node node;
        out->key = body->coordinator_keys[i];
        out->error_code = find(req, body->key_type, out->key, &node);
        out->error_message = message_of(out->error_code);
        out->node_id = node.id;
        out->host = node.host;
        out->port = node.port;
    }
    kb_reply(req, &resp);
}

void kb_handle_find_coordinator(struct kb_req *req)
{
    if (req->version >= 4) {
        find_many(req);
    } else {
        find_one(req);
    }
}
