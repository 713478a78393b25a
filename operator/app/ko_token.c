#include "app/ko_token.h"

#include <stdio.h>
#include <string.h>

#include "base/kc_json.h"
#include "base/kc_mem.h"

#define AUDIENCE "kaas-heartbeat"

static bool list_has(const json_t *list, const char *want)
{
    size_t i;
    json_t *v;
    json_array_foreach(list, i, v)
    {
        if (json_is_string(v) && strcmp(json_string_value(v), want) == 0) {
            return true;
        }
    }
    return false;
}

const char *ko_token_check(const json_t *review, const char *cluster, const char *pod_name,
                           const char *pod_uid)
{
    const json_t *extra = kc_json_at(review, "status.user.extra");
    const char *slash = strchr(cluster, '/');
    char account[400];
    if (!kc_json_bool(review, "status.authenticated", false)) {
        return "the token is not valid";
    }
    if (!list_has(kc_json_at(review, "status.audiences"), AUDIENCE)) {
        return "the token is not for the audience " AUDIENCE;
    }
    if (!slash ||
        snprintf(account, sizeof(account), "system:serviceaccount:%.*s:%s-broker",
                 (int)(slash - cluster), cluster, slash + 1) >= (int)sizeof(account) ||
        strcmp(kc_json_str(review, "status.user.username", ""), account) != 0) {
        return "the token is not of the cluster's ServiceAccount";
    }
    if (!list_has(json_object_get(extra, "authentication.kubernetes.io/pod-name"), pod_name) ||
        !list_has(json_object_get(extra, "authentication.kubernetes.io/pod-uid"), pod_uid)) {
        return "the token is bound to another pod";
    }
    return NULL;
}

struct review {
    ko_auth_verdict verdict;
    void *ctx;
    char *cluster, *pod_name, *pod_uid;
};

static void on_review(void *ctx, const struct ko_result *r)
{
    struct review *v = ctx;
    const char *why = r->code == 200 || r->code == 201
                          ? ko_token_check(r->doc, v->cluster, v->pod_name, v->pod_uid)
                          : "the API server did not review the token";
    v->verdict(v->ctx, why == NULL, why ? why : "");
    kc_free(v->cluster);
    kc_free(v->pod_name);
    kc_free(v->pod_uid);
    kc_free(v);
}

void ko_token_review(void *ctx, const char *cluster, const char *token, const char *pod_name,
                     const char *pod_uid, ko_auth_verdict verdict, void *verdict_ctx)
{
    struct ko_store *store = ctx;
    struct review *v = kc_alloc(sizeof(*v));
    *v = (struct review){verdict, verdict_ctx, kc_strdup(cluster), kc_strdup(pod_name),
                         kc_strdup(pod_uid)};
    json_t *doc = json_pack("{s:s, s:s, s:{s:s, s:[s]}}", "apiVersion", "authentication.k8s.io/v1",
                            "kind", "TokenReview", "spec", "token", token, "audiences", AUDIENCE);
    if (!doc) { /* not UTF-8 */
        verdict(verdict_ctx, false, "the token is not text");
        kc_free(v->cluster);
        kc_free(v->pod_name);
        kc_free(v->pod_uid);
        kc_free(v);
        return;
    }
    store->ops->create(store, KO_TOKENREVIEW, doc, on_review, v);
    json_decref(doc);
}

void ko_token_secret(void *ctx, const char *cluster, const char *token, const char *pod_name,
                     const char *pod_uid, ko_auth_verdict verdict, void *verdict_ctx)
{
    const char *secret = ctx;
    size_t len = strlen(secret);
    /* Brokers send the file as it is: a line end does not count. */
    size_t got = strcspn(token, "\r\n");
    uint8_t diff = got != len;
    (void)cluster;
    (void)pod_name;
    (void)pod_uid;
    for (size_t i = 0; i < len; i++) { /* the same time for every wrong guess */
        diff |= (uint8_t)(secret[i] ^ (got == len ? token[i] : 0));
    }
    verdict(verdict_ctx, diff == 0, diff ? "the token is not this host's" : "");
}
