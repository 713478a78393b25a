/* ko_token.h - who may speak for a broker: TokenReview on Kubernetes, a shared secret on one
 * machine. Internal to operator/app. */
#ifndef KO_TOKEN_H
#define KO_TOKEN_H

#include "control/ko_control.h"

/* Both are ko_auth_fn. ctx: the API loop's store. The token must be of the audience kaas-heartbeat,
 * of the cluster's own ServiceAccount, and bound to the pod it claims to be. */
void ko_token_review(void *ctx, const char *cluster, const char *token, const char *pod_name,
                     const char *pod_uid, ko_auth_verdict verdict, void *verdict_ctx);
/* ctx: the secret, a string. */
void ko_token_secret(void *ctx, const char *cluster, const char *token, const char *pod_name,
                     const char *pod_uid, ko_auth_verdict verdict, void *verdict_ctx);

/* The decision about a TokenReview's answer. Pure. NULL: it is the pod's; else why not. */
const char *ko_token_check(const json_t *review, const char *cluster, const char *pod_name,
                           const char *pod_uid);

#endif
