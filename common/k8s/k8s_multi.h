/* k8s_multi.h - libcurl's multi interface on a libuv loop (internal to common/k8s).
 *
 * turn(ctx) runs after every step of libcurl, outside of its callbacks: there results may be handed
 * out, and transfers added and removed. */
#ifndef K8S_MULTI_H
#define K8S_MULTI_H

#include <curl/curl.h>

#include "base/kc_error.h"
#include "rt/rt_loop.h"

struct k8s_multi {
    struct rt_loop *loop;
    CURLM *curl;
    uv_timer_t timer; /* libcurl's */
    uv_timer_t kick;
    int open_handles;
    void (*turn)(void *ctx);
    void (*gone)(void *ctx);
    void *ctx;
};

int k8s_multi_init(struct k8s_multi *m, struct rt_loop *loop, void (*turn)(void *ctx), void *ctx,
                   struct kc_err *err) KC_MUST_CHECK;
/* A turn soon, though libcurl has nothing to do. */
void k8s_multi_kick(struct k8s_multi *m);
/* All transfers must have been removed. gone(ctx) runs in a later turn of the loop: only then the
 * memory may go. */
void k8s_multi_close(struct k8s_multi *m, void (*gone)(void *ctx));
/* CURLOPT_SOCKOPTFUNCTION: gives a dead peer up within seconds. */
int k8s_multi_socket_made(void *ctx, curl_socket_t fd, curlsocktype purpose);

#endif
