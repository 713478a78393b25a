/* kn_conn.c - one connection: frames in, answers out in the order of the requests.
 *
 * Owned by its loop. Small frames are cut out of the loop's scratch buffer; a frame that is not yet
 * whole gets a buffer of its own, which doubles as bytes arrive. Failure modes: anything that is not
 * a length between 0 and socket.request.max.bytes closes the connection (HTTP and TLS read as huge
 * lengths), as do deadlines; none of it costs more than this connection. */
#include "net/kn_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"

enum { FIRST_ROOM = 512, READS_A_TURN = 4, BYTES_PER_S = 64 * 1024, SMALL = 16 * 1024 };

static void receive(struct kn_conn *c);

struct rt_loop *kn_conn_loop(const struct kn_conn *c)
{
    return c->loop->rt;
}

int32_t kn_conn_listener(const struct kn_conn *c)
{
    return c->listener;
}

bool kn_conn_open(const struct kn_conn *c)
{
    return c->open;
}

const char *kn_conn_host(const struct kn_conn *c)
{
    return c->host;
}

struct kn_conn *kn_conn_ref(struct kn_conn *c)
{
    c->refs++;
    return c;
}

void kn_conn_unref(struct kn_conn *c)
{
    KC_ASSERT(c->refs > 0);
    if (--c->refs == 0) { /* the count by address is the accepting loop's */
        c->msg.fn = kn_conn_gone;
        rt_post(c->server->loops[0].rt, &c->msg);
    }
}

/* ---- the budget ---- */

void kn_conn_charge(struct kn_conn *c, int64_t bytes)
{
    c->charged += bytes;
    atomic_fetch_add_explicit(&c->server->counters.inflight_bytes, bytes, memory_order_relaxed);
}

static bool starving(const struct kn_conn *c)
{
    int64_t used = atomic_load_explicit(&c->server->counters.inflight_bytes, memory_order_relaxed);
    return used > c->server->limits.budget_bytes && c->charged > SMALL && c != c->loop->favoured;
}

void kn_charge(struct kn_conn *c, struct kn_place *place, size_t bytes)
{
    if (c->open) {
        place->charged += bytes;
        kn_conn_charge(c, (int64_t)bytes);
    }
}

/* Replaces the buffer of the frame under way; its room is what counts. */
static void set_in(struct kn_conn *c, struct kc_buf *b)
{
    kn_conn_charge(c, (b ? (int64_t)b->len : 0) - (c->in ? (int64_t)c->in->len : 0));
    c->in = b;
    if (!b) {
        c->in_len = 0;
    }
}

static void drop_in(struct kn_conn *c)
{
    struct kc_buf *b = c->in;
    set_in(c, NULL);
    kc_buf_unref(b);
}

/* Moves what was received to a buffer of `want` bytes. */
static bool grow_in(struct kn_conn *c, size_t want)
{
    struct kc_buf *b = kc_buf_new(want);
    if (!b) {
        kn_close(c, "no memory for a request");
        return false;
    }
    struct kc_buf *old = c->in;
    if (c->in_len) {
        memcpy(b->data, old->data, c->in_len);
    }
    set_in(c, b);
    kc_buf_unref(old);
    return true;
}

/* ---- closing ---- */

static void on_poll_closed(uv_handle_t *h)
{
    struct kn_conn *c = h->data;
    close(c->fd);
    c->fd = -1;
    kn_conn_unref(c);
}

void kn_close(struct kn_conn *c, const char *why)
{
    if (c->open && !kc_list_empty(&c->ready_node)) { /* what was answered before is on its way */
        kc_list_del(&c->ready_node);
        kn_out_flush(c); /* may come back here */
    }
    if (!c->open) {
        return;
    }
    c->open = false;
    if (why) {
        atomic_fetch_add(&c->server->counters.protocol_errors, 1);
        kn_log_peer(c->server, "connection_closed", c->host, why);
    }
    kc_list_del(&c->node);
    kc_list_del(&c->starved_node);
    if (c->loop->favoured == c) {
        c->loop->favoured = NULL;
    }
    drop_in(c);
    kn_out_drop(c);
    for (struct kn_answer *a; (a = c->parked);) {
        c->parked = a->next;
        kn_answer_free(a);
    }
    kn_conn_charge(c, -c->charged);
    atomic_fetch_sub(&c->server->counters.connections, 1);
    uv_poll_stop(&c->poll);
    uv_close((uv_handle_t *)&c->poll, on_poll_closed);
}

void kn_conn_sweep(struct kn_conn *c, int64_t now_ms)
{
    const struct kn_limits *l = &c->server->limits;
    bool waiting = c->next_in != c->next_out;
    const char *why = NULL;
    if (c->out && now_ms - c->out_since_ms > l->stall_ms) {
        why = "the peer does not read its answers";
    } else if (c->in_len > 0 && !waiting &&
               now_ms - c->in_since_ms > l->frame_ms + (int64_t)(c->in_len / BYTES_PER_S) * 1000) {
        why = "a request was begun and not finished in time";
    } else if (!waiting && !c->out && now_ms - c->active_ms > l->idle_ms) {
        kn_close(c, NULL); /* idle is not an error: connections.max.idle.ms */
        return;
    }
    if (why) {
        atomic_fetch_add(&c->server->counters.timeouts, 1);
        kn_close(c, why);
    }
}

/* ---- frames ---- */

static const char *bad_length(const uint8_t *p)
{
    if (memcmp(p, "GET ", 4) == 0 || memcmp(p, "POST", 4) == 0 || memcmp(p, "HEAD", 4) == 0 ||
        memcmp(p, "PUT ", 4) == 0 || memcmp(p, "OPTI", 4) == 0) {
        return "HTTP on a Kafka port";
    }
    if (p[0] == 0x16 && p[1] == 0x03) {
        return "TLS on a plaintext port";
    }
    return p[0] & 0x80 ? "negative frame length" : "frame length exceeds socket.request.max.bytes";
}

static int32_t be32(const uint8_t *p)
{
    return (int32_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]);
}

static bool may_begin(struct kn_conn *c, const uint8_t *frame, size_t len)
{
    uint64_t under_way = c->next_in - c->next_out;
    if (under_way == 0) {
        return true;
    }
    return c->overlap && under_way < (uint64_t)c->server->limits.max_pipelined &&
           c->server->handler.overlaps(frame, len);
}

/* Cuts the first frame, of n bytes, out of data (len bytes). If it is all that the buffer of the
 * connection holds, the buffer itself changes hands. */
static bool cut(struct kn_conn *c, const uint8_t *data, size_t len, size_t n, struct kc_slice *ret)
{
    *ret = (struct kc_slice){c->in, data + 4, n};
    if (c->in && data == c->in->data && len == n + 4) {
        set_in(c, NULL);
        return true;
    }
    ret->buf = kc_buf_new(n);
    if (!ret->buf) {
        kn_close(c, "no memory for a request");
        return false;
    }
    memcpy(ret->buf->data, data + 4, n);
    ret->ptr = ret->buf->data;
    return true;
}

/* Hands frames to the handler from the front of data, as many as are whole and may begin. Returns
 * the bytes consumed. */
static size_t parse(struct kn_conn *c, const uint8_t *data, size_t len)
{
    size_t at = 0;
    while (c->open && len - at >= 4) {
        int32_t n = be32(data + at);
        if (n < 0 || n > c->server->limits.max_frame_bytes) {
            kn_close(c, bad_length(data + at));
            break;
        }
        struct kc_slice s;
        if (len - at - 4 < (size_t)n || !may_begin(c, data + at + 4, (size_t)n) || starving(c) ||
            !cut(c, data + at, len - at, (size_t)n, &s)) {
            break;
        }
        at += (size_t)n + 4;
        struct kn_place place = {c->next_in++, (size_t)n};
        if (place.seq == c->next_out) {
            c->overlap = c->server->handler.overlaps(s.ptr, s.len);
        }
        kn_conn_charge(c, n);
        if (c->loop->favoured == c) {
            c->loop->favoured = NULL; /* one frame was its due */
        }
        c->server->handler.frame(c->server->handler.ctx, c, place, s);
    }
    return at;
}

/* Keeps what could not be worked on yet. */
static void keep(struct kn_conn *c, const uint8_t *data, size_t len)
{
    KC_ASSERT(!c->in);
    if (grow_in(c, KC_MAX(len, (size_t)FIRST_ROOM))) {
        memcpy(c->in->data, data, len);
        c->in_len = len;
        c->in_since_ms = kc_mono_ms();
    }
}

static void parse_kept(struct kn_conn *c)
{
    size_t len = c->in_len;
    size_t used = parse(c, c->in->data, len);
    if (!c->in) { /* closed, or handed over */
        return;
    }
    if (used == len) {
        drop_in(c);
    } else if (used > 0) {
        memmove(c->in->data, c->in->data + used, len - used);
        c->in_len = len - used;
        c->in_since_ms = kc_mono_ms();
    }
}

/* Whether more bytes would be of use: not while a whole frame waits for its turn. */
static bool wants_bytes(struct kn_conn *c)
{
    if (c->in_len < 4) {
        return true;
    }
    return c->in_len - 4 < (size_t)be32(c->in->data);
}

static void poll_for(struct kn_conn *c);

void kn_conn_resume(struct kn_conn *c)
{
    kc_list_del(&c->ready_node);
    if (!c->open || c->in_parse) {
        return;
    }
    kn_out_flush(c); /* before what comes next: it may close the connection */
    c->in_parse = true;
    if (c->open && c->in_len) {
        parse_kept(c);
    }
    c->in_parse = false;
    if (c->open) {
        kn_out_flush(c);
    }
    if (c->open) {
        poll_for(c);
    }
}

/* ---- sockets ---- */

static void on_ready(uv_poll_t *p, int status, int events)
{
    struct kn_conn *c = p->data;
    rt_loop_awake(c->loop->rt);
    if (status < 0) {
        kn_close(c, NULL);
        return;
    }
    if (events & UV_WRITABLE) {
        kn_out_flush(c);
    }
    if (c->open && (events & UV_READABLE)) {
        receive(c);
    }
    kn_conn_resume(c);
}

static void poll_for(struct kn_conn *c)
{
    int want = c->out ? UV_WRITABLE : 0;
    bool hungry = wants_bytes(c);
    if (hungry && !starving(c)) {
        want |= UV_READABLE;
    } else if (starving(c) && kc_list_empty(&c->starved_node)) {
        kc_list_add_tail(&c->loop->starved, &c->starved_node);
        kn_loop_feed_later(c->loop);
    }
    if (want == c->events) {
        return;
    }
    c->events = want;
    if (want) {
        uv_poll_start(&c->poll, want, on_ready);
    } else {
        uv_poll_stop(&c->poll);
    }
}

/* Room at the end of the frame under way: doubles with what was received, up to the frame's end. */
static bool make_room(struct kn_conn *c)
{
    if (c->in_len < c->in->len) {
        return true;
    }
    size_t want = c->in->len * 2;
    if (c->in_len >= 4) {
        want = KC_MIN(want, (size_t)be32(c->in->data) + 4);
    }
    return grow_in(c, KC_MAX(want, c->in_len + 1));
}

static ssize_t receive_once(struct kn_conn *c)
{
    ssize_t n;
    if (!c->in_len) {
        if (!c->loop->scratch) {
            c->loop->scratch = kc_alloc(KN_SCRATCH);
        }
        n = recv(c->fd, c->loop->scratch, KN_SCRATCH, 0);
        if (n > 0) {
            size_t used = parse(c, c->loop->scratch, (size_t)n);
            if (c->open && used < (size_t)n) {
                keep(c, c->loop->scratch + used, (size_t)n - used);
            }
        }
        return n;
    }
    if (!make_room(c)) {
        errno = ENOMEM;
        return -1;
    }
    size_t room = c->in->len - c->in_len;
    if (c->in_len >= 4) { /* not past the frame's end, so that its buffer can be handed over */
        room = KC_MIN(room, (size_t)be32(c->in->data) + 4 - c->in_len);
    }
    n = recv(c->fd, c->in->data + c->in_len, room, 0);
    if (n > 0) {
        c->in_len += (size_t)n;
        parse_kept(c);
    }
    return n;
}

static void receive(struct kn_conn *c)
{
    c->in_parse = true;
    for (int i = 0; i < READS_A_TURN && c->open && wants_bytes(c) && !starving(c); i++) {
        ssize_t n = receive_once(c);
        if (n > 0) {
            c->active_ms = kc_mono_ms();
            atomic_fetch_add_explicit(&c->server->counters.bytes_in, (uint64_t)n,
                                      memory_order_relaxed);
            continue;
        }
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            break;
        }
        kn_close(c, NULL); /* end of stream, or a reset; nobody is left to be answered */
    }
    c->in_parse = false;
}

/* ---- answers, in order ---- */

/* Zero-length answers stand for "no answer". */
static void settle(struct kn_conn *c, struct kn_answer *a)
{
    c->next_out++;
    c->active_ms = kc_mono_ms();
    if (a->len == 0) {
        kn_answer_free(a);
    } else {
        kn_out_add(c, a);
    }
}

void kn_send(struct kn_conn *c, struct kn_place place, struct kn_answer *a)
{
    if (!c->open) {
        kn_answer_free(a);
        return;
    }
    rt_loop_touch(c->loop->rt); /* R42: a completed request is a sign of life */
    a->seq = place.seq;
    kn_conn_charge(c, (int64_t)a->len - (int64_t)place.charged);
    struct kn_answer **at = &c->parked;
    while (*at && (*at)->seq < place.seq) {
        at = &(*at)->next;
    }
    a->next = *at;
    *at = a;
    while (c->parked && c->parked->seq == c->next_out) {
        struct kn_answer *first = c->parked;
        c->parked = first->next;
        settle(c, first);
    }
    struct kn_loop *kl = c->loop;
    if (c->in_parse || !kc_list_empty(&c->ready_node)) {
        return;
    }
    if (!kl->ready_asked) { /* what else becomes ready goes with it */
        kl->ready_asked = true;
        rt_loop_after(kl->rt, &kl->ready_end);
    }
    kc_list_add_tail(&kl->ready, &c->ready_node);
}

void kn_loop_ready_end(struct rt_after *a)
{
    struct kn_loop *kl = KC_CONTAINER_OF(a, struct kn_loop, ready_end);
    kl->ready_asked = false;
    while (!kc_list_empty(&kl->ready)) {
        kn_conn_resume(KC_LIST_ENTRY(kl->ready.next, struct kn_conn, ready_node));
    }
}

void kn_skip(struct kn_conn *c, struct kn_place place)
{
    struct kn_answer *none = kn_answer_new(0);
    if (!none) {
        kn_close(c, "no memory for an answer");
        return;
    }
    kn_send(c, place, none);
}

void kn_conn_begin(struct kn_conn *c)
{
    c->refs = 1;
    c->open = true;
    c->active_ms = kc_mono_ms();
    c->out_tail = &c->out;
    kc_list_init(&c->starved_node);
    kc_list_init(&c->ready_node);
    kc_list_add_tail(&c->loop->conns, &c->node);
    c->poll.data = c;
    int rc = uv_poll_init(&c->loop->rt->uv, &c->poll, c->fd);
    KC_ASSERT(rc == 0);
    if (atomic_load(&c->server->stop_connections)) {
        kn_close(c, NULL);
        return;
    }
    poll_for(c);
}
