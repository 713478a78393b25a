#include "local/lo_probe.h"

#include <string.h>

#include "base/kc_mem.h"

enum { UNREADY_MS = 100, READY_MS = 500, TIMEOUT_MS = 1000 };

struct attempt;

struct lo_probe {
    struct rt_loop *loop;
    uv_timer_t timer; /* the next attempt, or the end of this one's time */
    uint16_t port;
    bool ready;
    struct attempt *now;
    void (*fn)(void *ctx, bool ready);
    void *ctx;
};

/* One connection. It may outlive the probe while libuv closes it; probe is NULL then. */
struct attempt {
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_write_t write;
    struct lo_probe *probe;
    size_t len;
    char answer[64]; /* the status line is enough */
};

static void on_timer(uv_timer_t *t);

static void attempt_closed(uv_handle_t *h)
{
    kc_free(h->data);
}

static void attempt_drop(struct attempt *a)
{
    if (a->probe) {
        a->probe->now = NULL;
        a->probe = NULL;
        uv_close((uv_handle_t *)&a->tcp, attempt_closed);
    }
}

static void finish(struct attempt *a, bool ready)
{
    struct lo_probe *p = a->probe;
    if (!p) {
        return;
    }
    attempt_drop(a);
    uv_timer_start(&p->timer, on_timer, ready ? READY_MS : UNREADY_MS, 0);
    if (ready != p->ready) {
        p->ready = ready;
        p->fn(p->ctx, ready);
    }
}

static void on_alloc(uv_handle_t *h, size_t want, uv_buf_t *buf)
{
    struct attempt *a = h->data;
    (void)want;
    *buf = uv_buf_init(a->answer + a->len, (unsigned)(sizeof(a->answer) - 1 - a->len));
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    struct attempt *a = s->data;
    (void)buf;
    if (n > 0) {
        a->len += (size_t)n;
    }
    a->answer[a->len] = '\0';
    const char *code = strchr(a->answer, ' ');
    if (code && strlen(code) >= 4) {
        finish(a, strncmp(code, " 200", 4) == 0);
    } else if (n < 0 || a->len == sizeof(a->answer) - 1) {
        finish(a, false);
    }
}

static void on_written(uv_write_t *w, int status)
{
    struct attempt *a = w->handle->data;
    if (status) {
        finish(a, false);
    }
}

static void on_connected(uv_connect_t *c, int status)
{
    struct attempt *a = c->handle->data;
    static char request[] = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    if (!a->probe) {
        return;
    }
    uv_buf_t buf = uv_buf_init(request, sizeof(request) - 1);
    if (status || uv_write(&a->write, (uv_stream_t *)&a->tcp, &buf, 1, on_written) ||
        uv_read_start((uv_stream_t *)&a->tcp, on_alloc, on_read)) {
        finish(a, false);
    }
}

static void on_timer(uv_timer_t *t)
{
    struct lo_probe *p = t->data;
    struct sockaddr_in to;
    if (p->now) {
        finish(p->now, false);
        return;
    }
    struct attempt *a = kc_zalloc(sizeof(*a));
    a->probe = p;
    uv_tcp_init(&p->loop->uv, &a->tcp);
    a->tcp.data = a;
    p->now = a;
    uv_timer_start(&p->timer, on_timer, TIMEOUT_MS, 0);
    uv_ip4_addr("127.0.0.1", p->port, &to);
    if (uv_tcp_connect(&a->connect, &a->tcp, (struct sockaddr *)&to, on_connected)) {
        finish(a, false);
    }
}

struct lo_probe *lo_probe_start(struct rt_loop *loop, uint16_t port,
                                void (*fn)(void *ctx, bool ready), void *ctx)
{
    struct lo_probe *p = kc_zalloc(sizeof(*p));
    p->loop = loop;
    p->port = port;
    p->fn = fn;
    p->ctx = ctx;
    uv_timer_init(&loop->uv, &p->timer);
    p->timer.data = p;
    uv_timer_start(&p->timer, on_timer, UNREADY_MS, 0);
    return p;
}

void lo_probe_reset(struct lo_probe *p)
{
    if (p->now) {
        attempt_drop(p->now);
    }
    p->ready = false;
    uv_timer_start(&p->timer, on_timer, UNREADY_MS, 0);
}

static void probe_closed(uv_handle_t *h)
{
    kc_free(h->data);
}

void lo_probe_stop(struct lo_probe *p)
{
    if (!p) {
        return;
    }
    if (p->now) {
        attempt_drop(p->now);
    }
    uv_close((uv_handle_t *)&p->timer, probe_closed);
}
