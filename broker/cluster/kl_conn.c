/* One heartbeat connection: token, connect, hello, then statuses out and answers in. */
#include "cluster/kl_hb_int.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"

enum { QUEUE_MAX = 16 * 1024 * 1024, TOKEN_ROOM = HB_TOKEN_MAX + 1 };

/* ---- life ---- */

static void maybe_free(struct kl_conn *c, struct kl_hb *hb)
{
    if (c->state == KL_CONN_CLOSED && !c->tcp_open && !c->token_pending) {
        kc_free(c->token);
        kc_free(c);
        hb->n_conns--;
        kl_hb_conn_freed(hb);
    }
}

static void on_tcp_closed(uv_handle_t *h)
{
    struct kl_conn *c = h->data;
    c->tcp_open = false;
    hb_reader_fini(&c->reader);
    maybe_free(c, c->hb);
}

void kl_conn_close(struct kl_conn *c, int why)
{
    if (c->state == KL_CONN_CLOSED) {
        return;
    }
    kl_hb_conn_closed(c->hb, c, why);
    c->state = KL_CONN_CLOSED;
    if (c->tcp_open) {
        uv_close((uv_handle_t *)&c->tcp, on_tcp_closed);
    }
    maybe_free(c, c->hb);
}

/* ---- out ---- */

struct out {
    uv_write_t req;
    struct kl_conn *conn;
    uint8_t *data;
};

static void on_written(uv_write_t *req, int status)
{
    struct out *o = KC_CONTAINER_OF(req, struct out, req);
    struct kl_conn *c = o->conn;
    kc_free(o->data);
    kc_free(o);
    if (status) {
        kl_conn_close(c, status);
    }
}

int kl_conn_send(struct kl_conn *c, const Kaas__Heartbeat__BrokerMessage *m)
{
    if (uv_stream_get_write_queue_size((uv_stream_t *)&c->tcp) > QUEUE_MAX) {
        return KC_E_BUSY; /* it takes nothing: the silence timeout ends it */
    }
    struct kc_dyn frame;
    kc_dyn_init(&frame, HB_FRAME_MAX + 4);
    size_t len = 0;
    int rc = hb_encode_broker(m, &frame);
    uint8_t *data = rc ? NULL : kc_dyn_steal(&frame, &len);
    kc_dyn_fini(&frame);
    if (!data) {
        return rc ? rc : KC_E_TOO_LARGE;
    }
    struct out *o = kc_alloc(sizeof(*o));
    *o = (struct out){.conn = c, .data = data};
    uv_buf_t buf = uv_buf_init((char *)data, (unsigned)len);
    rc = uv_write(&o->req, (uv_stream_t *)&c->tcp, &buf, 1, on_written);
    if (rc) {
        kc_free(data);
        kc_free(o);
    }
    return rc;
}

static void send_hello(struct kl_conn *c)
{
    struct kl_hb *hb = c->hb;
    kc_arena_reset(&hb->arena);
    Kaas__Heartbeat__Hello h = KAAS__HEARTBEAT__HELLO__INIT;
    Kaas__Heartbeat__BrokerMessage m = KAAS__HEARTBEAT__BROKER_MESSAGE__INIT;
    if (!hb->o.cb.hello(hb->o.cb.ctx, &hb->arena, &h)) {
        kl_conn_close(c, KC_E_CANCELLED);
        return;
    }
    h.token = c->token ? c->token : (char *)(uintptr_t) "";
    m.kind_case = KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_HELLO;
    m.hello = &h;
    int rc = kl_conn_send(c, &m);
    c->state = KL_CONN_HELLO;
    if (rc) {
        kl_conn_close(c, rc);
    }
}

void kl_conn_status(struct kl_conn *c, int64_t now_ms)
{
    struct kl_hb *hb = c->hb;
    if (c->state != KL_CONN_UP) {
        return;
    }
    kc_arena_reset(&hb->arena);
    Kaas__Heartbeat__BrokerStatus s = KAAS__HEARTBEAT__BROKER_STATUS__INIT;
    Kaas__Heartbeat__BrokerMessage m = KAAS__HEARTBEAT__BROKER_MESSAGE__INIT;
    uint64_t seq = 0;
    if (!hb->o.cb.status(hb->o.cb.ctx, &hb->arena, !c->sent_full, c->sent_seq, &s, &seq)) {
        return;
    }
    m.kind_case = KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_STATUS;
    m.status = &s;
    int rc = kl_conn_send(c, &m);
    if (rc == KC_E_BUSY) {
        return; /* this status is lost, not its news: sent_seq stays */
    }
    if (rc) {
        kl_conn_close(c, rc);
        return;
    }
    c->sent_full = true;
    c->sent_seq = seq;
    c->sent_ms = now_ms;
    hb->sent++;
}

/* ---- in ---- */

static void on_hello_answer(struct kl_conn *c, const Kaas__Heartbeat__HelloAnswer *h)
{
    struct kl_hb *hb = c->hb;
    if (c->state != KL_CONN_HELLO) {
        kl_conn_close(c, KC_E_MALFORMED);
        return;
    }
    if (h->accepted) {
        c->state = KL_CONN_UP;
        c->active = h->active;
        hb->peers[c->slot].backoff_ms = 0;
        hb->peers[c->slot].last_error = 0;
        kc_log(KC_INFO, "heartbeat", "event=stream_up operator=%s active=%d",
               hb->peers[c->slot].text, (int)h->active);
    }
    hb->o.cb.hello_answer(hb->o.cb.ctx, c->id, h);
    if (!h->accepted) {
        struct kc_log_buf lb;
        kc_log(KC_WARN, "heartbeat", "event=hello_refused operator=%s reason=%s",
               hb->peers[c->slot].text, kc_log_str(kc_str_of(h->reason), &lb));
        kl_conn_close(c, KC_E_REFUSED);
        return;
    }
    kl_conn_status(c, kc_mono_ms());
    if (c->state == KL_CONN_UP && c->active) {
        hb->o.cb.active(hb->o.cb.ctx, c->id);
    }
}

static void on_message(struct kl_conn *c, const Kaas__Heartbeat__OperatorMessage *m)
{
    struct kl_hb *hb = c->hb;
    switch (m->kind_case) {
    case KAAS__HEARTBEAT__OPERATOR_MESSAGE__KIND_HELLO:
        on_hello_answer(c, m->hello);
        break;
    case KAAS__HEARTBEAT__OPERATOR_MESSAGE__KIND_STATUS: {
        bool became = m->status->active && !c->active;
        c->active = m->status->active;
        hb->o.cb.answer(hb->o.cb.ctx, c->id, m->status);
        if (became && c->state == KL_CONN_UP) {
            hb->o.cb.active(hb->o.cb.ctx, c->id);
        }
        break;
    }
    case KAAS__HEARTBEAT__OPERATOR_MESSAGE__KIND_ADMIN:
        hb->o.cb.admin(hb->o.cb.ctx, m->admin);
        break;
    default: /* of a newer operator */
        break;
    }
}

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *buf)
{
    struct kl_conn *c = h->data;
    (void)hint;
    *buf = uv_buf_init((char *)c->hb->read_buf, sizeof(c->hb->read_buf));
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    struct kl_conn *c = s->data;
    if (n <= 0) {
        if (n < 0) {
            kl_conn_close(c, n == UV_EOF ? KC_E_CLOSED : (int)n);
        }
        return;
    }
    struct kc_err err = {0};
    int rc = hb_reader_feed(&c->reader, buf->base, (size_t)n);
    struct kc_bytes frame;
    while (rc == 0 && c->state != KL_CONN_CLOSED &&
           (rc = hb_reader_next(&c->reader, &frame, &err)) == 1) {
        /* An arena of its own: the callbacks build messages in the shared one. */
        struct kc_arena a;
        kc_arena_init(&a, 4096, HB_ARENA_CAP);
        const Kaas__Heartbeat__OperatorMessage *m;
        rc = hb_decode_operator(frame, &a, &m, &err);
        if (rc == 0) {
            c->heard_ms = kc_mono_ms();
            on_message(c, m);
        }
        kc_arena_fini(&a);
    }
    if (rc < 0) {
        struct kc_log_buf lb;
        kc_log(KC_WARN, "heartbeat", "event=bad_frame error=%s",
               kc_log_str(kc_str_of(err.msg), &lb));
        kl_conn_close(c, rc);
    }
}

/* ---- dialling ---- */

static void on_connect(uv_connect_t *req, int status)
{
    struct kl_conn *c = KC_CONTAINER_OF(req, struct kl_conn, connect);
    if (c->state == KL_CONN_CLOSED) {
        return;
    }
    if (status) {
        kl_conn_close(c, status);
        return;
    }
    uv_tcp_nodelay(&c->tcp, 1);
    c->heard_ms = kc_mono_ms();
    int rc = uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
    if (rc) {
        kl_conn_close(c, rc);
        return;
    }
    send_hello(c);
}

static void connect_now(struct kl_conn *c)
{
    int rc = uv_tcp_init(&c->hb->loop->uv, &c->tcp);
    if (rc == 0) {
        c->tcp.data = c;
        c->tcp_open = true;
        c->state = KL_CONN_CONNECTING;
        rc = uv_tcp_connect(&c->connect, &c->tcp,
                            (const struct sockaddr *)&c->hb->peers[c->slot].addr, on_connect);
    }
    if (rc) {
        kl_conn_close(c, rc);
    }
}

/* Tokens are projected files that rotate: read on the pool, for each stream. */
struct token_job {
    struct rt_work work;
    struct rt_msg msg;
    struct kl_conn *conn;
    struct rt_loop *loop;
    char *path, *token;
    int rc;
};

static void run_token(struct rt_work *w)
{
    struct token_job *j = KC_CONTAINER_OF(w, struct token_job, work);
    char *text = kc_alloc(TOKEN_ROOM);
    int fd = open(j->path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, TOKEN_ROOM - 1);
    j->rc = n < 0 ? -errno : 0;
    if (fd >= 0) {
        close(fd);
    }
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == ' ')) {
        n--;
    }
    text[n > 0 ? n : 0] = '\0';
    j->token = text;
    rt_post(j->loop, &j->msg);
}

static void on_token(struct rt_msg *msg)
{
    struct token_job *j = KC_CONTAINER_OF(msg, struct token_job, msg);
    struct kl_conn *c = j->conn;
    int rc = j->rc;
    c->token_pending = false;
    c->token = j->token;
    kc_free(j->path);
    kc_free(j);
    if (c->state == KL_CONN_CLOSED) {
        maybe_free(c, c->hb);
    } else if (rc) {
        kc_log(KC_WARN, "heartbeat", "event=token_unreadable file=%s error=\"%s\"",
               c->hb->token_file, kc_strerror(rc));
        kl_conn_close(c, rc);
    } else {
        connect_now(c);
    }
}

void kl_conn_dial(struct kl_hb *hb, int slot)
{
    struct kl_conn *c = kc_zalloc(sizeof(*c));
    c->hb = hb;
    c->slot = slot;
    c->id = ++hb->next_id;
    c->opened_ms = c->heard_ms = kc_mono_ms();
    hb_reader_init(&c->reader, HB_FRAME_MAX);
    hb->peers[slot].conn = c;
    hb->n_conns++;
    if (!hb->token_file) {
        connect_now(c);
        return;
    }
    struct token_job *j = kc_zalloc(sizeof(*j));
    *j = (struct token_job){.work.fn = run_token,
                            .msg.fn = on_token,
                            .conn = c,
                            .loop = hb->loop,
                            .path = kc_strdup(hb->token_file)};
    c->token_pending = true;
    rt_pool_post(hb->io, &j->work);
}
