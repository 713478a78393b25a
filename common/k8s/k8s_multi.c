#include "k8s/k8s_multi.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>

#include "base/kc_mem.h"

enum {
    CONNECTIONS_MAX = 128, /* to the server; further transfers wait in libcurl */
    DEAD_PEER_MS = 20000 /* unanswered bytes or probes: the connection is given up */
};

struct sock {
    uv_poll_t poll;
    struct k8s_multi *multi;
    curl_socket_t fd;
};

static void sock_closed(uv_handle_t *h)
{
    kc_free(KC_CONTAINER_OF(h, struct sock, poll));
}

static void on_socket(uv_poll_t *h, int status, int events)
{
    struct sock *s = KC_CONTAINER_OF(h, struct sock, poll);
    struct k8s_multi *m = s->multi;
    int flags = (events & UV_READABLE ? CURL_CSELECT_IN : 0) |
                (events & UV_WRITABLE ? CURL_CSELECT_OUT : 0) | (status < 0 ? CURL_CSELECT_ERR : 0);
    int running;
    curl_multi_socket_action(m->curl, s->fd, flags, &running);
    m->turn(m->ctx);
}

static int socket_changed(CURL *easy, curl_socket_t fd, int what, void *ctx, void *sock_ctx)
{
    struct k8s_multi *m = ctx;
    struct sock *s = sock_ctx;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (s) {
            uv_poll_stop(&s->poll);
            curl_multi_assign(m->curl, fd, NULL);
            uv_close((uv_handle_t *)&s->poll, sock_closed);
        }
        return 0;
    }
    if (!s) {
        s = kc_zalloc(sizeof(*s));
        s->multi = m;
        s->fd = fd;
        if (uv_poll_init_socket(&m->loop->uv, &s->poll, fd)) {
            kc_free(s);
            return -1;
        }
        curl_multi_assign(m->curl, fd, s);
    }
    int events = (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0);
    uv_poll_start(&s->poll, events, on_socket);
    return 0;
}

static void on_timer(uv_timer_t *h)
{
    struct k8s_multi *m = h->data;
    int running;
    curl_multi_socket_action(m->curl, CURL_SOCKET_TIMEOUT, 0, &running);
    m->turn(m->ctx);
}

static int timer_changed(CURLM *curl, long timeout_ms, void *ctx)
{
    struct k8s_multi *m = ctx;
    (void)curl;
    if (timeout_ms < 0) {
        uv_timer_stop(&m->timer);
        return 0;
    }
    /* libcurl does not arm its timer again for one that fires early, so it must not: the loop's
     * clock is brought up to date, and its truncation to milliseconds made good. */
    uv_update_time(&m->loop->uv);
    uv_timer_start(&m->timer, on_timer, (uint64_t)timeout_ms + (timeout_ms > 0), 0);
    return 0;
}

static void on_kick(uv_timer_t *h)
{
    struct k8s_multi *m = h->data;
    m->turn(m->ctx);
}

void k8s_multi_kick(struct k8s_multi *m)
{
    uv_timer_start(&m->kick, on_kick, 0, 0);
}

int k8s_multi_socket_made(void *ctx, curl_socket_t fd, curlsocktype purpose)
{
    (void)ctx;
    (void)purpose;
    int on = 1, idle = 10, interval = 5, count = 3, user_ms = DEAD_PEER_MS;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_ms, sizeof(user_ms));
    return CURL_SOCKOPT_OK;
}

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_rc;

static void curl_start(void)
{
    curl_rc = curl_global_init(CURL_GLOBAL_DEFAULT);
}

int k8s_multi_init(struct k8s_multi *m, struct rt_loop *loop, void (*turn)(void *ctx), void *ctx,
                   struct kc_err *err)
{
    pthread_once(&curl_once, curl_start);
    CURLM *curl = curl_rc == CURLE_OK ? curl_multi_init() : NULL;
    if (!curl) {
        return kc_fail(err, KC_E_UNSUPPORTED, "libcurl cannot start");
    }
    *m =
        (struct k8s_multi){.loop = loop, .curl = curl, .turn = turn, .ctx = ctx, .open_handles = 2};
    uv_timer_init(&loop->uv, &m->timer);
    uv_timer_init(&loop->uv, &m->kick);
    m->timer.data = m->kick.data = m;
    curl_multi_setopt(curl, CURLMOPT_SOCKETFUNCTION, socket_changed);
    curl_multi_setopt(curl, CURLMOPT_SOCKETDATA, m);
    curl_multi_setopt(curl, CURLMOPT_TIMERFUNCTION, timer_changed);
    curl_multi_setopt(curl, CURLMOPT_TIMERDATA, m);
    curl_multi_setopt(curl, CURLMOPT_MAX_HOST_CONNECTIONS, (long)CONNECTIONS_MAX);
    curl_multi_setopt(curl, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    return 0;
}

static void closed(uv_handle_t *h)
{
    struct k8s_multi *m = h->data;
    if (--m->open_handles == 0) {
        m->gone(m->ctx);
    }
}

void k8s_multi_close(struct k8s_multi *m, void (*gone)(void *ctx))
{
    m->gone = gone;
    curl_multi_cleanup(m->curl);
    m->curl = NULL;
    uv_close((uv_handle_t *)&m->timer, closed);
    uv_close((uv_handle_t *)&m->kick, closed);
}
