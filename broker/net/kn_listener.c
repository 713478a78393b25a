/* kn_listener.c - listening sockets, accepting, handing connections to loops.
 *
 * Accepting runs on the first loop. Failure modes: a port in use fails the start; running out of
 * descriptors pauses accepting for 100 ms; past the caps a new connection is closed at once. */
#include "net/kn_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"

enum { BACKLOG = 1024, ACCEPTS_A_TURN = 64, PAUSE_MS = 100, SWEEP_MS = 1000, FEED_MS = 20 };

void kn_log_peer(struct kn_server *s, const char *event, const char *host, const char *why)
{
    int64_t now = kc_mono_ms();
    int64_t last = atomic_load_explicit(&s->last_log_ms, memory_order_relaxed);
    if (now - last < 1000 || !atomic_compare_exchange_strong(&s->last_log_ms, &last, now)) {
        atomic_fetch_add_explicit(&s->unlogged, 1, memory_order_relaxed);
        return;
    }
    kc_log(KC_WARN, "net", "event=%s peer=%s why=\"%s\" unlogged_before=%llu", event, host, why,
           (unsigned long long)atomic_exchange(&s->unlogged, 0));
}

static int make_socket(const struct kn_listener_opts *o, struct sockaddr_storage *sa,
                       socklen_t *len, struct kc_err *err)
{
    struct sockaddr_in6 *sa6 = (struct sockaddr_in6 *)sa;
    struct sockaddr_in *sa4 = (struct sockaddr_in *)sa;
    memset(sa, 0, sizeof(*sa));
    bool any = !o->bind || !*o->bind;
    bool v4 = !any && inet_pton(AF_INET, o->bind, &sa4->sin_addr) == 1;
    if (!v4 && !any && inet_pton(AF_INET6, o->bind, &sa6->sin6_addr) != 1) {
        return kc_fail(err, -EINVAL, "listener %s: bind \"%s\" is not a numeric address", o->name,
                       o->bind);
    }
    int fd = socket(v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 && any && errno == EAFNOSUPPORT) { /* a kernel without IPv6 */
        v4 = true;
        fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    }
    if (fd < 0) {
        return kc_fail(err, -errno, "listener %s: socket: %s", o->name, kc_strerror(-errno));
    }
    if (v4) {
        sa4->sin_family = AF_INET;
        sa4->sin_port = htons(o->port);
        *len = sizeof(*sa4);
    } else {
        sa6->sin6_family = AF_INET6;
        sa6->sin6_port = htons(o->port);
        *len = sizeof(*sa6);
    }
    int on = 1, off = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (!v4) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    return fd;
}

static int listener_open(struct kn_listener *l, const struct kn_listener_opts *o,
                         struct kc_err *err)
{
    struct sockaddr_storage sa;
    socklen_t len = 0;
    int fd = make_socket(o, &sa, &len, err);
    if (fd < 0) {
        return fd;
    }
    struct sockaddr_in6 bound;
    socklen_t bound_len = sizeof(bound);
    if (bind(fd, (struct sockaddr *)&sa, len) || listen(fd, BACKLOG) ||
        getsockname(fd, (struct sockaddr *)&bound, &bound_len)) {
        int rc = kc_fail(err, -errno, "listener %s: cannot listen on port %u: %s", o->name, o->port,
                         kc_strerror(-errno));
        close(fd);
        return rc;
    }
    snprintf(l->name, sizeof(l->name), "%s", o->name);
    l->fd = fd;
    l->port = ntohs(bound.sin6_port); /* the port sits at the same place in both families */
    return 0;
}

int kn_server_new(const struct kn_opts *opts, struct kn_server **ret, struct kc_err *err)
{
    if (opts->n_listeners < 1 || opts->n_listeners > KN_LISTENERS_MAX) {
        return kc_fail(err, KC_E_CONFIG, "between 1 and %d listeners are needed", KN_LISTENERS_MAX);
    }
    struct kn_server *s = kc_zalloc(sizeof(*s));
    s->limits = opts->limits;
    kn_limit_connections(s, opts->limits.max_connections, opts->limits.max_connections_per_ip);
    s->handler = opts->handler;
    kc_map_init(&s->per_ip);
    for (int32_t i = 0; i < opts->n_listeners; i++) {
        s->listeners[i] = (struct kn_listener){.server = s, .index = i, .fd = -1};
        s->n_listeners = i + 1;
        int rc = listener_open(&s->listeners[i], &opts->listeners[i], err);
        if (rc) {
            kn_server_free(s);
            return rc;
        }
    }
    *ret = s;
    return 0;
}

uint16_t kn_listener_port(const struct kn_server *s, int32_t listener)
{
    KC_ASSERT(listener >= 0 && listener < s->n_listeners);
    return s->listeners[listener].port;
}

void kn_limit_connections(struct kn_server *s, int32_t max, int32_t max_per_ip)
{
    atomic_store(&s->max_connections, max);
    atomic_store(&s->max_connections_per_ip, max_per_ip);
}

struct kn_counters *kn_server_counters(struct kn_server *s)
{
    return &s->counters;
}

/* ---- accepting ---- */

static void peer_name(const struct sockaddr_storage *sa, struct kn_conn *c)
{
    if (sa->ss_family == AF_INET) {
        const struct sockaddr_in *a = (const struct sockaddr_in *)sa;
        memcpy(c->ip + 12, &a->sin_addr, 4);
        c->ip[10] = c->ip[11] = 0xff;
    } else {
        memcpy(c->ip, &((const struct sockaddr_in6 *)sa)->sin6_addr, 16);
    }
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    c->host[0] = '/';
    if (memcmp(c->ip, mapped, sizeof(mapped)) == 0) {
        inet_ntop(AF_INET, c->ip + 12, c->host + 1, sizeof(c->host) - 1);
    } else {
        inet_ntop(AF_INET6, c->ip, c->host + 1, sizeof(c->host) - 1);
    }
}

/* Counts are kept as the map's value itself; 0 is absence. */
static int64_t ip_add(struct kn_server *s, const uint8_t ip[16], int64_t delta)
{
    int64_t n = (int64_t)(intptr_t)kc_map_get(&s->per_ip, ip, 16) + delta;
    if (n > 0) {
        kc_map_put(&s->per_ip, ip, 16, (void *)(intptr_t)n);
    } else {
        kc_map_del(&s->per_ip, ip, 16);
    }
    return n;
}

void kn_conn_gone(struct rt_msg *msg)
{
    struct kn_conn *c = KC_CONTAINER_OF(msg, struct kn_conn, msg);
    ip_add(c->server, c->ip, -1);
    kc_free(c);
}

static void on_handed(struct rt_msg *msg)
{
    kn_conn_begin(KC_CONTAINER_OF(msg, struct kn_conn, msg));
}

/* A full send buffer of the system's own choice is some MiB of pages, gone from the processor's caches when
 * the peer takes them: answering from the page cache costs half as much again (docs/performance.md). */
static void set_options(const struct kn_server *s, int fd)
{
    int on = 1, room = s->limits.send_buffer_bytes;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    if (room > 0) {
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    }
}

static void take(struct kn_listener *l, int fd, const struct sockaddr_storage *sa)
{
    struct kn_server *s = l->server;
    struct kn_conn *c = kc_zalloc(sizeof(*c));
    c->server = s;
    c->fd = fd;
    c->listener = l->index;
    peer_name(sa, c);
    const char *full = NULL;
    if (atomic_load(&s->counters.connections) >= atomic_load(&s->max_connections)) {
        full = "max.connections is reached";
    } else if (ip_add(s, c->ip, 1) > atomic_load(&s->max_connections_per_ip)) {
        ip_add(s, c->ip, -1);
        full = "max.connections.per.ip is reached";
    }
    if (full) {
        atomic_fetch_add(&s->counters.refused, 1);
        kn_log_peer(s, "connection_refused", c->host, full);
        close(fd);
        kc_free(c);
        return;
    }
    set_options(s, fd);
    atomic_fetch_add(&s->counters.connections, 1);
    atomic_fetch_add(&s->counters.accepted, 1);
    c->loop = &s->loops[s->next_loop];
    s->next_loop = (s->next_loop + 1) % s->n_loops;
    c->msg.fn = on_handed;
    rt_post(c->loop->rt, &c->msg);
}

static void on_pause_over(uv_timer_t *t);

static void on_acceptable(uv_poll_t *p, int status, int events)
{
    struct kn_listener *l = p->data;
    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        struct sockaddr_storage sa;
        socklen_t len = sizeof(sa);
        int fd = accept4(l->fd, (struct sockaddr *)&sa, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            take(l, fd, &sa);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            kn_log_peer(l->server, "accept_paused", "-", kc_strerror(-errno));
            uv_poll_stop(&l->poll);
            uv_timer_start(&l->pause, on_pause_over, PAUSE_MS, 0);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

static void on_pause_over(uv_timer_t *t)
{
    struct kn_listener *l = t->data;
    uv_poll_start(&l->poll, UV_READABLE, on_acceptable);
}

/* ---- loops ---- */

static void on_sweep(uv_timer_t *t)
{
    struct kn_loop *kl = t->data;
    int64_t now = kc_mono_ms();
    KC_LIST_EACH(it, nx, &kl->conns)
    {
        kn_conn_sweep(KC_LIST_ENTRY(it, struct kn_conn, node), now);
    }
}

/* Tries the starved connections again. If the budget is still spent, the one that has waited longest
 * may finish its frame past it: partial frames alone could otherwise fill the budget for ever. */
static void on_feed(uv_timer_t *t)
{
    struct kn_loop *kl = t->data;
    struct kc_list again;
    kc_list_init(&again);
    while (!kc_list_empty(&kl->starved)) { /* moved aside: a connection may starve once more */
        struct kc_list *it = kl->starved.next;
        kc_list_del(it);
        kc_list_add_tail(&again, it);
    }
    while (!kc_list_empty(&again)) {
        struct kn_conn *c = KC_LIST_ENTRY(again.next, struct kn_conn, starved_node);
        kc_list_del(&c->starved_node);
        if (!kl->favoured) {
            kl->favoured = c;
        }
        kn_conn_resume(c);
    }
    if (kc_list_empty(&kl->starved)) {
        uv_timer_stop(&kl->feed);
    }
}

static void loop_begin(struct rt_msg *msg)
{
    struct kn_loop *kl = KC_CONTAINER_OF(msg, struct kn_loop, start_msg);
    struct kn_server *s = kl->server;
    uv_timer_init(&kl->rt->uv, &kl->sweep);
    uv_timer_init(&kl->rt->uv, &kl->feed);
    kl->sweep.data = kl->feed.data = kl;
    uv_timer_start(&kl->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    kl->ready_end.fn = kn_loop_ready_end;
    kl->running = true;
    if (kl != &s->loops[0]) {
        return;
    }
    for (int32_t i = 0; i < s->n_listeners; i++) {
        struct kn_listener *l = &s->listeners[i];
        uv_timer_init(&kl->rt->uv, &l->pause);
        l->poll.data = l->pause.data = l;
        int rc = uv_poll_init(&kl->rt->uv, &l->poll, l->fd);
        KC_ASSERT(rc == 0); /* a socket of our own */
        uv_poll_start(&l->poll, UV_READABLE, on_acceptable);
        l->polling = true;
    }
}

void kn_loop_feed_later(struct kn_loop *kl)
{
    if (!uv_is_active((uv_handle_t *)&kl->feed)) {
        uv_timer_start(&kl->feed, on_feed, FEED_MS, FEED_MS);
    }
}

void kn_server_start(struct kn_server *s, struct rt_loop *const *loops, int32_t n_loops)
{
    KC_ASSERT(n_loops > 0 && !s->loops);
    s->loops = kc_zalloc((size_t)n_loops * sizeof(*s->loops));
    s->n_loops = n_loops;
    for (int32_t i = n_loops - 1; i >= 0;
         i--) { /* the accepting loop last: all others are ready then */
        struct kn_loop *kl = &s->loops[i];
        kl->server = s;
        kl->rt = loops[i];
        kc_list_init(&kl->conns);
        kc_list_init(&kl->starved);
        kc_list_init(&kl->ready);
        kl->start_msg.fn = loop_begin;
        rt_post(kl->rt, &kl->start_msg);
    }
}

static void on_listener_closed(uv_handle_t *h)
{
    struct kn_listener *l = h->data;
    close(l->fd);
    l->fd = -1;
}

static void loop_stop(void *arg)
{
    struct kn_loop *kl = arg;
    struct kn_server *s = kl->server;
    for (int32_t i = 0; kl == &s->loops[0] && i < s->n_listeners; i++) {
        struct kn_listener *l = &s->listeners[i];
        if (l->polling) {
            l->polling = false;
            uv_timer_stop(&l->pause);
            uv_close((uv_handle_t *)&l->pause, NULL);
            uv_close((uv_handle_t *)&l->poll, on_listener_closed);
        }
    }
    if (!atomic_load(&s->stop_connections)) {
        return;
    }
    KC_LIST_EACH(it, nx, &kl->conns)
    {
        kn_close(KC_LIST_ENTRY(it, struct kn_conn, node), NULL);
    }
}

int64_t kn_reserve(struct kn_server *s, int64_t want)
{
    int64_t budget = s->limits.budget_bytes;
    int64_t used = atomic_load_explicit(&s->counters.inflight_bytes, memory_order_relaxed) +
                   atomic_load_explicit(&s->counters.reserved_bytes, memory_order_relaxed);
    if (used >= budget) {
        return -1;
    }
    int64_t grant = KC_MIN(want, KC_MAX((budget / 2 - used) / 2, (int64_t)KN_ANSWER_MIN));
    atomic_fetch_add_explicit(&s->counters.reserved_bytes, grant, memory_order_relaxed);
    return grant;
}

void kn_give_back(struct kn_server *s, int64_t reserved)
{
    if (reserved > 0) {
        atomic_fetch_sub_explicit(&s->counters.reserved_bytes, reserved, memory_order_relaxed);
    }
}

void kn_server_stop(struct kn_server *s, bool connections)
{
    if (connections) {
        atomic_store(&s->stop_connections, true);
    }
    for (int32_t i = 0; i < s->n_loops; i++) {
        rt_call(s->loops[i].rt, loop_stop, &s->loops[i]);
    }
}

void kn_server_free(struct kn_server *s)
{
    if (!s) {
        return;
    }
    for (int32_t i = 0; i < s->n_listeners; i++) {
        if (s->listeners[i].fd >= 0) {
            close(s->listeners[i].fd);
        }
    }
    for (int32_t i = 0; i < s->n_loops; i++) {
        kc_free(s->loops[i].scratch);
    }
    kc_map_fini(&s->per_ip, NULL);
    kc_free(s->loops);
    kc_free(s);
}
