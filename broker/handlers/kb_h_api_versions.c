/* 18 ApiVersions: what this broker serves.
 *
 * v0-2  keys and ranges. v3: names of client software, features as tagged fields. v4: as v3.
 * v5    says which cluster and node the client means to reach; a mismatch is answered with 129, so
 *       that a client whose broker's address was given to another pod bootstraps again (KIP-1242).
 * Later versions are answered by the dispatcher (KIP-511). No features are finalized: clients then
 * use the classic group protocol and transactions of the first kind. */
#include <ctype.h>

#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_context.h"
#include "wire/kw_api_versions.h"
#include "wire/kw_errors.h"

/* ApiVersionsRequest.isValid: [a-zA-Z0-9] at both ends, also '-' and '.' between. */
static bool software_name_valid(struct kc_str s)
{
    for (int32_t i = 0; i < s.len; i++) {
        bool inner = i > 0 && i < s.len - 1 && (s.ptr[i] == '-' || s.ptr[i] == '.');
        if (!inner && !isalnum((unsigned char)s.ptr[i])) {
            return false;
        }
    }
    return s.len > 0;
}

static int16_t check(const struct kb_req *req, const struct kw_api_versions_request *in)
{
    if (req->version >= 3 && (!software_name_valid(in->client_software_name) ||
                              !software_name_valid(in->client_software_version))) {
        return KAFKA_INVALID_REQUEST;
    }
    bool other_cluster = in->cluster_id.ptr && !kc_str_eqz(in->cluster_id, req->app->cluster_id);
    bool other_node = in->node_id >= 0 && in->node_id != req->app->self_id;
    return other_cluster || other_node ? KAFKA_REBOOTSTRAP_REQUIRED : KAFKA_NONE;
}

void kb_handle_api_versions(struct kb_req *req)
{
    struct kw_api_versions_response resp;
    kw_api_versions_response_init(&resp);
    resp.error_code = check(req, req->body);
    if (resp.error_code == KAFKA_INVALID_REQUEST) {
        kb_reply(req, &resp);
        return;
    }
    size_t n;
    const struct kb_api *apis = kb_apis(&n);
    resp.api_keys = kb_alloc(req, n, sizeof(*resp.api_keys));
    if (!resp.api_keys) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        resp.api_keys[i] = (struct kw_api_versions_response_api_version){
            apis[i].key, apis[i].advertised_min, apis[i].max};
    }
    resp.n_api_keys = (int32_t)n;
    kb_reply(req, &resp);
}
