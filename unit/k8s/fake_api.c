#include "fake_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/kc_mem.h"
#include "kt.h"

enum { REQUEST_MAX = 1 << 20, DEADLINE_MS = 10000 };

struct fake_conn {
    uv_tcp_t tcp;
    struct fake_api *api;
    char *in;
    size_t len;
};

static void conn_closed(uv_handle_t *h)
{
    struct fake_conn *c = h->data;
    c->api->open_conns--;
    free(c->in);
    free(c);
}

void fake_drop(struct fake_conn *c)
{
    if (!uv_is_closing((uv_handle_t *)&c->tcp)) {
        uv_close((uv_handle_t *)&c->tcp, conn_closed);
    }
}

struct write {
    uv_write_t req;
    char *data;
};

static void written(uv_write_t *req, int status)
{
    struct write *w = (struct write *)req;
    (void)status;
    free(w->data);
    free(w);
}

static void send_owned(struct fake_conn *c, char *data, size_t len)
{
    struct write *w = malloc(sizeof(*w));
    w->data = data;
    uv_buf_t buf = uv_buf_init(data, (unsigned)len);
    if (uv_is_closing((uv_handle_t *)&c->tcp) ||
        uv_write(&w->req, (uv_stream_t *)&c->tcp, &buf, 1, written)) {
        free(data);
        free(w);
    }
}

void fake_reply(struct fake_conn *c, int code, const char *extra, json_t *body)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : strdup(""), *out = NULL;
    int n = asprintf(
        &out, "HTTP/1.1 %d X\r\nContent-Type: application/json\r\n%sContent-Length: %zu\r\n\r\n%s",
        code, extra ? extra : "", strlen(text), text);
    free(text);
    json_decref(body);
    send_owned(c, out, (size_t)n);
}

void fake_status(struct fake_conn *c, int code, const char *reason, const char *message)
{
    fake_reply(c, code, NULL,
               json_pack("{s:s,s:s,s:s,s:s,s:s,s:i}", "apiVersion", "v1", "kind", "Status",
                         "status", "Failure", "reason", reason, "message", message, "code", code));
}

void fake_stream(struct fake_conn *c)
{
    char *out = strdup("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                       "Transfer-Encoding: chunked\r\n\r\n");
    send_owned(c, out, strlen(out));
}

void fake_send(struct fake_conn *c, const char *text)
{
    char *out = NULL;
    int n = asprintf(&out, "%zx\r\n%s\r\n", strlen(text), text);
    send_owned(c, out, (size_t)n);
}

void fake_event(struct fake_conn *c, const char *type, json_t *object)
{
    json_t *ev = json_pack("{s:s,s:o}", "type", type, "object", object);
    char *text = json_dumps(ev, JSON_COMPACT), *line = NULL;
    KT_TRUE(asprintf(&line, "%s\n", text) > 0);
    fake_send(c, line);
    free(line);
    free(text);
    json_decref(ev);
}

void fake_end(struct fake_conn *c)
{
    char *out = strdup("0\r\n\r\n");
    send_owned(c, out, strlen(out));
}

json_t *fake_object(const char *name, const char *uid, const char *version)
{
    return json_pack("{s:s,s:s,s:{s:s,s:s,s:s,s:s,s:[]}}", "apiVersion", "v1", "kind", "ConfigMap",
                     "metadata", "namespace", "ns", "name", name, "uid", uid, "resourceVersion",
                     version, "managedFields");
}

json_t *fake_list(const char *version)
{
    return json_pack("{s:s,s:s,s:{s:s},s:[]}", "apiVersion", "v1", "kind", "ConfigMapList",
                     "metadata", "resourceVersion", version, "items");
}

static void header(const char *head, const char *name, char *out, size_t cap)
{
    out[0] = '\0';
    for (const char *l = strstr(head, "\r\n"); l && l[2]; l = strstr(l + 2, "\r\n")) {
        if (strncasecmp(l + 2, name, strlen(name)) == 0 && l[2 + strlen(name)] == ':') {
            const char *v = l + 2 + strlen(name) + 1;
            v += strspn(v, " ");
            snprintf(out, cap, "%.*s", (int)strcspn(v, "\r"), v);
            return;
        }
    }
}

/* Serves the request at the front of the buffer; false when it is not whole yet. */
static bool serve(struct fake_conn *c)
{
    c->in[c->len] = '\0';
    char *end = strstr(c->in, "\r\n\r\n");
    if (!end) {
        return false;
    }
    *end = '\0';
    struct fake_request r = {.conn = c};
    char length[32];
    header(c->in, "Content-Length", length, sizeof(length));
    header(c->in, "Authorization", r.auth, sizeof(r.auth));
    header(c->in, "Content-Type", r.type, sizeof(r.type));
    size_t head = (size_t)(end - c->in) + 4, body = strtoul(length, NULL, 10);
    KT_TRUE(sscanf(c->in, "%7s %4095s", r.method, r.target) == 2);
    *end = '\r';
    if (c->len < head + body) {
        return false;
    }
    r.body = body ? json_loadb(c->in + head, body, 0, NULL) : NULL;
    c->len -= head + body;
    memmove(c->in, c->in + head + body, c->len);
    c->api->requests++;
    c->api->handler(c->api->ctx, &r);
    json_decref(r.body);
    return true;
}

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *buf)
{
    struct fake_conn *c = h->data;
    (void)hint;
    *buf = uv_buf_init(c->in + c->len, (unsigned)(REQUEST_MAX - c->len));
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    struct fake_conn *c = s->data;
    (void)buf;
    if (n < 0) {
        fake_drop(c);
        return;
    }
    c->len += (size_t)n;
    while (!uv_is_closing((uv_handle_t *)&c->tcp) && serve(c)) {
    }
}

static void on_connection(uv_stream_t *s, int status)
{
    struct fake_api *f = s->data;
    KT_EQ(status, 0);
    struct fake_conn *c = calloc(1, sizeof(*c));
    c->api = f;
    c->in = malloc(REQUEST_MAX + 1);
    uv_tcp_init(&f->loop.uv, &c->tcp);
    c->tcp.data = c;
    f->open_conns++;
    KT_EQ(uv_accept(s, (uv_stream_t *)&c->tcp), 0);
    uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
}

void fake_api_init(struct fake_api *f, fake_handler handler, void *ctx)
{
    struct sockaddr_in addr;
    int len = sizeof(addr);
    char url[64];
    memset(f, 0, sizeof(*f));
    f->handler = handler;
    f->ctx = ctx;
    KT_REQUIRE(rt_loop_init(&f->loop, "test") == 0);
    uv_tcp_init(&f->loop.uv, &f->server);
    f->server.data = f;
    uv_timer_init(&f->loop.uv, &f->watchdog);
    f->watchdog.data = f;
    uv_ip4_addr("127.0.0.1", 0, &addr);
    KT_REQUIRE(uv_tcp_bind(&f->server, (struct sockaddr *)&addr, 0) == 0);
    KT_REQUIRE(uv_listen((uv_stream_t *)&f->server, 64, on_connection) == 0);
    uv_tcp_getsockname(&f->server, (struct sockaddr *)&addr, &len);
    snprintf(url, sizeof(url), "http://127.0.0.1:%d", ntohs(addr.sin_port));
    f->config.server = kc_strdup(url);
    f->config.namespace_ = kc_strdup("ns");
}

static void on_watchdog(uv_timer_t *h)
{
    struct fake_api *f = h->data;
    f->timed_out = true;
}

bool fake_api_until(struct fake_api *f, const int *done, int want)
{
    f->timed_out = false;
    uv_timer_start(&f->watchdog, on_watchdog, DEADLINE_MS, 0);
    while (*done < want && !f->timed_out) {
        uv_run(&f->loop.uv, UV_RUN_ONCE);
    }
    uv_timer_stop(&f->watchdog);
    return *done >= want;
}

static void close_conn(uv_handle_t *h, void *arg)
{
    struct fake_api *f = arg;
    if (h->type == UV_TCP && h != (uv_handle_t *)&f->server && !uv_is_closing(h)) {
        uv_close(h, conn_closed);
    }
}

void fake_api_fini(struct fake_api *f)
{
    uv_walk(&f->loop.uv, close_conn, f);
    rt_loop_stop(&f->loop);
    rt_loop_run(&f->loop); /* closes what is left and ends the loop */
    k8s_config_fini(&f->config);
}
