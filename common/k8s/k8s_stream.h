/* k8s_stream.h - requests whose answer is read while it comes (internal to common/k8s: watches).
 */
#ifndef K8S_STREAM_H
#define K8S_STREAM_H

#include "k8s/k8s_client.h"

/* Bytes of a 200 answer, and once, with len 0, that it has begun; the callee may cancel the call. Answers of any other code are gathered and
 * come with done, as for an ordinary request. done's doc is NULL after a 200. */
typedef void (*k8s_data_fn)(void *ctx, const void *data, size_t len);

/* As k8s_send, without a deadline for the whole of it (timeout_ms bounds only the connection). */
struct k8s_call *k8s_send_stream(struct k8s_client *c, const struct k8s_request *req,
                                 k8s_data_fn data, k8s_done done, void *ctx);

struct rt_loop *k8s_client_loop(struct k8s_client *c);
/* Watches hold the client: counts them, so that freeing too early is caught. */
void k8s_client_hold(struct k8s_client *c, int delta);

#endif
