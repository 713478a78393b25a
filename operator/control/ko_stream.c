/* ko_stream.c - the brokers' streams: sockets, frames, and what bounds them. */
#include <errno.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "control/ko_int.h"

static void on_closed(uv_handle_t *h)
{
    struct ko_stream *s = h->data;
    hb_reader_fini(&s->reader);
    kc_free(s);
}

void ko_stream_close(struct ko_stream *s, const char *why)
{
    if (s->state == KO_ST_CLOSED) {
        return;
    }
    struct kc_log_buf cluster, reason;
    kc_log(KC_INFO, "control", "event=stream_closed stream=%llu cluster=%s broker=%d reason=%s",
           (unsigned long long)s->id, kc_log_str(kc_str_of(s->cluster), &cluster),
           (int)s->hello.broker, kc_log_str(kc_str_of(why), &reason));
    ko_session_closed(s);
    s->state = KO_ST_CLOSED;
    kc_list_del(&s->link);
    s->c->n_streams--;
    uv_close((uv_handle_t *)&s->tcp, on_closed);
}

struct ko_stream *ko_stream_find(struct ko_control *c, uint64_t id)
{
    KC_LIST_EACH(it, nx, &c->streams)
    {
        struct ko_stream *s = KC_LIST_ENTRY(it, struct ko_stream, link);
        if (s->id == id) {
            return s;
        }
    }
    return NULL;
}

struct out {
    uv_write_t req;
    uint8_t *data;
};

static void on_written(uv_write_t *req, int status)
{
    struct out *w = KC_CONTAINER_OF(req, struct out, req);
    struct ko_stream *s = req->handle->data;
    bool last = s->close_after_write && uv_stream_get_write_queue_size(req->handle) == 0;
    if (s->state != KO_ST_CLOSED && (status < 0 || last)) {
        ko_stream_close(s, status < 0 ? uv_strerror(status) : "refused");
    }
    kc_free(w->data);
    kc_free(w);
}

int ko_stream_send(struct ko_stream *s, const Kaas__Heartbeat__OperatorMessage *m)
{
    if (s->state == KO_ST_CLOSED) {
        return KC_E_CLOSED;
    }
    if (uv_stream_get_write_queue_size((uv_stream_t *)&s->tcp) > KO_QUEUE_MAX) {
        ko_stream_close(s, "does not read");
        return KC_E_BUSY;
    }
    struct kc_dyn d;
    kc_dyn_init(&d, HB_FRAME_MAX + 4);
    int rc = hb_encode_operator(m, &d);
    struct out *w = rc ? NULL : kc_zalloc(sizeof(*w));
    size_t len = 0;
    if (w) {
        w->data = kc_dyn_steal(&d, &len);
    }
    kc_dyn_fini(&d);
    if (!w || !w->data) {
        kc_free(w);
        ko_stream_close(s, "answer too large");
        return KC_E_TOO_LARGE;
    }
    uv_buf_t buf = uv_buf_init((char *)w->data, (unsigned)len);
    rc = uv_write(&w->req, (uv_stream_t *)&s->tcp, &buf, 1, on_written);
    if (rc) {
        kc_free(w->data);
        kc_free(w);
        ko_stream_close(s, uv_strerror(rc));
    }
    return rc;
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    struct ko_stream *s = h->data;
    (void)suggested;
    *buf = uv_buf_init((char *)s->c->read_buf, sizeof(s->c->read_buf));
}

/* Handles whole frames that have arrived; stops while an identity is being checked. */
static void pump(struct ko_stream *s)
{
    struct kc_err err = {0};
    struct kc_bytes frame;
    int rc = 0;
    while (s->state == KO_ST_HELLO || s->state == KO_ST_UP) {
        rc = hb_reader_next(&s->reader, &frame, &err);
        if (rc <= 0) {
            break;
        }
        rc = ko_session_frame(s, frame, &err);
        if (rc < 0) {
            break;
        }
    }
    if (rc < 0 && s->state != KO_ST_CLOSED) {
        ko_stream_close(s, err.msg[0] ? err.msg : kc_strerror(rc));
    }
}

static void on_read(uv_stream_t *h, ssize_t n, const uv_buf_t *buf)
{
    struct ko_stream *s = h->data;
    if (n < 0) {
        ko_stream_close(s, n == UV_EOF ? "closed by the broker" : uv_strerror((int)n));
        return;
    }
    s->heard_ms = ko_now(s->c);
    int rc = hb_reader_feed(&s->reader, buf->base, (size_t)n);
    if (rc) {
        ko_stream_close(s, kc_strerror(rc));
        return;
    }
    pump(s);
}

void ko_stream_pause(struct ko_stream *s)
{
    uv_read_stop((uv_stream_t *)&s->tcp);
}

void ko_stream_resume(struct ko_stream *s)
{
    hb_reader_limit(&s->reader, HB_FRAME_MAX);
    uv_read_start((uv_stream_t *)&s->tcp, on_alloc, on_read);
    pump(s);
}

static void on_connection(uv_stream_t *server, int status)
{
    struct ko_control *c = server->data;
    if (status < 0 || c->closing) {
        return;
    }
    struct ko_stream *s = kc_zalloc(sizeof(*s));
    s->c = c;
    s->id = ++c->next_stream;
    s->hello.broker = KP_NO_BROKER;
    s->opened_ms = s->heard_ms = ko_now(c);
    hb_reader_init(&s->reader, HB_HELLO_MAX);
    kc_list_add_tail(&c->streams, &s->link);
    c->n_streams++;
    uv_tcp_init(&c->loop.uv, &s->tcp);
    s->tcp.data = s;
    if (uv_accept(server, (uv_stream_t *)&s->tcp) || c->n_streams > KO_STREAMS_MAX) {
        ko_stream_close(s, "too many streams");
        return;
    }
    uv_tcp_nodelay(&s->tcp, 1);
    uv_tcp_keepalive(&s->tcp, 1, 10);
    uv_read_start((uv_stream_t *)&s->tcp, on_alloc, on_read);
}

void ko_streams_sweep(struct ko_control *c, int64_t now_ms)
{
    KC_LIST_EACH(it, nx, &c->streams)
    {
        struct ko_stream *s = KC_LIST_ENTRY(it, struct ko_stream, link);
        if (s->state != KO_ST_UP && now_ms - s->opened_ms > KO_HELLO_MS) {
            ko_stream_close(s, "no hello in time");
        } else if (s->state == KO_ST_UP && now_ms - s->heard_ms > KO_IDLE_MS) {
            ko_stream_close(s, "silent");
        }
    }
}

static int bind_all(struct ko_control *c)
{
    struct sockaddr_in6 any6;
    struct sockaddr_in four;
    int port = c->o.port;
    if (c->o.bind[0] == '\0') {
        int rc = uv_ip6_addr("::", port, &any6);
        rc = rc ? rc : uv_tcp_bind(&c->server, (const struct sockaddr *)&any6, 0);
        if (rc != UV_EAFNOSUPPORT && rc != UV_EADDRNOTAVAIL) {
            return rc;
        }
        uv_ip4_addr("0.0.0.0", port, &four); /* a host without IPv6 */
        return uv_tcp_bind(&c->server, (const struct sockaddr *)&four, 0);
    }
    if (uv_ip4_addr(c->o.bind, port, &four) == 0) {
        return uv_tcp_bind(&c->server, (const struct sockaddr *)&four, 0);
    }
    int rc = uv_ip6_addr(c->o.bind, port, &any6);
    return rc ? rc : uv_tcp_bind(&c->server, (const struct sockaddr *)&any6, 0);
}

int ko_streams_listen(struct ko_control *c, struct kc_err *err)
{
    struct sockaddr_storage at;
    int len = sizeof(at);
    uv_tcp_init(&c->loop.uv, &c->server);
    c->server.data = c;
    int rc = bind_all(c);
    rc = rc ? rc : uv_listen((uv_stream_t *)&c->server, 128, on_connection);
    rc = rc ? rc : uv_tcp_getsockname(&c->server, (struct sockaddr *)&at, &len);
    if (rc) {
        return kc_fail(err, rc, "heartbeats on %s:%u: %s", c->o.bind, c->o.port, uv_strerror(rc));
    }
    uint16_t port = at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&at)->sin6_port
                                             : ((struct sockaddr_in *)(void *)&at)->sin_port;
    c->port = ntohs(port);
    return 0;
}
