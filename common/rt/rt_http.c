#include "rt/rt_http.h"

#include <errno.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "rt/rt_thread.h"

enum {
    MAX_CONNS = 32,
    MAX_REQUEST = 1024,
    MAX_BODY = 256 * 1024,
    DEADLINE_MS = 2000,
    SEND_ROOM = 2 * MAX_BODY
};

struct conn {
    int fd; /* -1 = free */
    int64_t deadline_ms;
    size_t len;
    char request[MAX_REQUEST];
};

struct rt_http {
    int listener;
    int stop_event;
    uint16_t port;
    rt_http_fn fn;
    void *ctx;
    pthread_t thread;
    struct conn conns[MAX_CONNS];
    char body[MAX_BODY];
};

static int open_listener(const char *addr, uint16_t port, uint16_t *ret_port, struct kc_err *err)
{
    struct sockaddr_in6 sa6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in sa4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    bool v4 = addr && *addr && inet_pton(AF_INET, addr, &sa4.sin_addr) == 1;
    if (!v4 && addr && *addr && inet_pton(AF_INET6, addr, &sa6.sin6_addr) != 1) {
        return kc_fail(err, -EINVAL, "not an address: %s", addr);
    }
    int fd = socket(v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 && !v4 && errno == EAFNOSUPPORT) { /* a kernel without IPv6 */
        v4 = true;
        fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    }
    if (fd < 0) {
        return kc_fail(err, -errno, "socket: %s", kc_strerror(-errno));
    }
    int on = 1, off = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (!v4) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    const struct sockaddr *sa = v4 ? (const void *)&sa4 : (const void *)&sa6;
    socklen_t len = v4 ? sizeof(sa4) : sizeof(sa6);
    struct sockaddr_in6 bound;
    socklen_t bound_len = sizeof(bound);
    if (bind(fd, sa, len) || listen(fd, 64) || getsockname(fd, (void *)&bound, &bound_len)) {
        int rc = kc_fail(err, -errno, "cannot listen on port %u: %s", port, kc_strerror(-errno));
        close(fd);
        return rc;
    }
    *ret_port = ntohs(bound.sin6_port); /* the port sits at the same place in both families */
    return fd;
}

static void close_conn(struct conn *c)
{
    close(c->fd);
    c->fd = -1;
}

static void answer(struct rt_http *h, struct conn *c)
{
    int code = 400;
    size_t body_len = 0;
    if (c->len > 4 && memcmp(c->request, "GET ", 4) == 0) {
        const char *path = c->request + 4;
        const char *end = memchr(path, ' ', c->len - 4);
        if (end) {
            struct kc_str p = {path, (int32_t)(end - path)};
            code = h->fn(h->ctx, p, h->body, sizeof(h->body), &body_len);
        }
    }
    char head[160];
    int n = snprintf(head, sizeof(head),
                     "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n"
                     "Connection: close\r\n\r\n",
                     code,
                     code == 200   ? "OK"
                     : code == 503 ? "Service Unavailable"
                                   : "Error",
                     body_len);
    /* The socket's buffer holds a whole answer (SEND_ROOM): never wait for a peer, or one that does not
     * read would delay the kubelet's probe. What does not fit all the same is lost to that peer. */
    (void)!send(c->fd, head, (size_t)n, MSG_NOSIGNAL | MSG_MORE);
    for (size_t off = 0; off < body_len;) {
        ssize_t w = send(c->fd, h->body + off, body_len - off, MSG_NOSIGNAL);
        if (w <= 0) {
            break;
        }
        off += (size_t)w;
    }
    shutdown(c->fd, SHUT_WR);
    close_conn(c);
}

static void on_readable(struct rt_http *h, struct conn *c)
{
    ssize_t n = recv(c->fd, c->request + c->len, sizeof(c->request) - c->len, 0);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            close_conn(c);
        }
        return;
    }
    c->len += (size_t)n;
    if (memmem(c->request, c->len, "\r\n\r\n", 4) || c->len == sizeof(c->request)) {
        answer(h, c);
    }
}

static void on_accept(struct rt_http *h)
{
    int fd = accept4(h->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        return;
    }
    int room = SEND_ROOM;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    struct conn *oldest = &h->conns[0];
    for (size_t i = 0; i < MAX_CONNS; i++) {
        struct conn *c = &h->conns[i];
        if (c->fd < 0) {
            oldest = c;
            break;
        }
        if (c->deadline_ms < oldest->deadline_ms) {
            oldest = c;
        }
    }
    if (oldest->fd >= 0) { /* full: an idle connection must not keep the kubelet out */
        close_conn(oldest);
    }
    oldest->fd = fd;
    oldest->len = 0;
    oldest->deadline_ms = kc_mono_ms() + DEADLINE_MS;
}

static void *thread_main(void *arg)
{
    struct rt_http *h = arg;
    rt_thread_enter("health");
    struct pollfd fds[MAX_CONNS + 2];
    for (;;) {
        fds[0] = (struct pollfd){h->stop_event, POLLIN, 0};
        fds[1] = (struct pollfd){h->listener, POLLIN, 0};
        for (size_t i = 0; i < MAX_CONNS; i++) {
            fds[i + 2] = (struct pollfd){h->conns[i].fd, POLLIN, 0}; /* negative: ignored */
        }
        poll(fds, MAX_CONNS + 2, 500);
        if (fds[0].revents) {
            break;
        }
        int64_t now = kc_mono_ms();
        for (size_t i = 0; i < MAX_CONNS; i++) {
            struct conn *c = &h->conns[i];
            if (c->fd >= 0 && fds[i + 2].revents) {
                on_readable(h, c);
            }
            if (c->fd >= 0 && now > c->deadline_ms) {
                close_conn(c);
            }
        }
        if (fds[1].revents) {
            on_accept(h);
        }
    }
    return NULL;
}

int rt_http_start(const char *addr, uint16_t port, rt_http_fn fn, void *ctx, struct rt_http **ret,
                  struct kc_err *err)
{
    uint16_t bound = 0;
    int fd = open_listener(addr, port, &bound, err);
    if (fd < 0) {
        return fd;
    }
    struct rt_http *h = kc_zalloc(sizeof(*h));
    h->listener = fd;
    h->port = bound;
    h->fn = fn;
    h->ctx = ctx;
    h->stop_event = eventfd(0, EFD_CLOEXEC);
    for (size_t i = 0; i < MAX_CONNS; i++) {
        h->conns[i].fd = -1;
    }
    int rc = pthread_create(&h->thread, NULL, thread_main, h);
    if (rc) {
        close(h->listener);
        close(h->stop_event);
        kc_free(h);
        return kc_fail(err, -rc, "cannot start the health thread: %s", kc_strerror(-rc));
    }
    *ret = h;
    return 0;
}

uint16_t rt_http_port(const struct rt_http *h)
{
    return h->port;
}

void rt_http_stop(struct rt_http *h)
{
    if (!h) {
        return;
    }
    uint64_t one = 1;
    (void)!write(h->stop_event, &one, sizeof(one));
    pthread_join(h->thread, NULL);
    for (size_t i = 0; i < MAX_CONNS; i++) {
        if (h->conns[i].fd >= 0) {
            close(h->conns[i].fd);
        }
    }
    close(h->listener);
    close(h->stop_event);
    kc_free(h);
}
