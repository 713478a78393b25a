/* ko_store_k8s.h - the object store of ko_store.h on the Kubernetes API server. */
#ifndef KO_STORE_K8S_H
#define KO_STORE_K8S_H

#include "k8s/k8s_config.h"
#include "store/ko_store.h"

/* The field manager of what the operator applies. */
#define KO_FIELD_MANAGER "kaas-operator"

/* A store on `loop`, with connections of its own; several may exist (R63: the Lease has one). Watches
 * must be ended before the store is freed; calls under way are then dropped without done.
 * timeout_ms bounds each call; 0 = 10 s. NULL with err filled. */
struct ko_store *ko_store_k8s_new(struct rt_loop *loop, const struct k8s_config *cfg,
                                  int64_t timeout_ms, struct kc_err *err);

#endif
