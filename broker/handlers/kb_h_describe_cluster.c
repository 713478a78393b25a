/* 60 DescribeCluster: brokers and who takes admin changes (R31 to R36).
 *
 * v0      brokers. v1: endpoint type; only brokers are served here, as on a Kafka broker's listener.
 * v2      IncludeFencedBrokers shows registered brokers that do not serve, with IsFenced (KIP-1073);
 *         it is served although the rest follows 3.7 (R35).
 * The answering broker is always listed and never fenced (R32); what is gone is absent (R33). */
#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_context.h"
#include "handlers/kb_view.h"
#include "wire/kw_describe_cluster.h"
#include "wire/kw_errors.h"

enum { BROKERS = 1, CONTROLLERS = 2 };

static void refuse(struct kb_req *req, int8_t type)
{
    struct kw_describe_cluster_response resp;
    kw_describe_cluster_response_init(&resp);
    resp.endpoint_type = type;
    resp.cluster_id = KC_STR_LIT("");
    if (type == CONTROLLERS) {
        resp.error_code = KAFKA_MISMATCHED_ENDPOINT_TYPE;
        resp.error_message = KC_STR_LIT("This is a broker's endpoint, not a controller's.");
    } else {
        resp.error_code = KAFKA_UNSUPPORTED_ENDPOINT_TYPE;
        resp.error_message = KC_STR_LIT("Endpoint types are 1, brokers, and 2, controllers.");
    }
    kb_reply(req, &resp);
}

void kb_handle_describe_cluster(struct kb_req *req)
{
    const struct kw_describe_cluster_request *in = req->body;
    if (in->endpoint_type != BROKERS) {
        refuse(req, in->endpoint_type);
        return;
    }
    struct kw_describe_cluster_response resp;
    kw_describe_cluster_response_init(&resp);
    struct kb_node *nodes;
    int32_t n = kb_nodes(req, in->include_fenced_brokers, &nodes);
    resp.brokers = n < 0 ? NULL : kb_alloc(req, (size_t)n, sizeof(*resp.brokers));
    if (!resp.brokers) {
        return;
    }
    resp.n_brokers = n;
    for (int32_t i = 0; i < n; i++) {
        resp.brokers[i] = (struct kw_describe_cluster_response_broker){
            nodes[i].id, nodes[i].host, nodes[i].port, nodes[i].rack, nodes[i].fenced};
    }
    resp.endpoint_type = BROKERS;
    resp.cluster_id = kc_str_of(req->app->cluster_id);
    resp.controller_id = kb_controller(req);
    if (in->include_cluster_authorized_operations) {
        resp.cluster_authorized_operations = KB_OPS_CLUSTER;
    }
    kb_reply(req, &resp);
}
