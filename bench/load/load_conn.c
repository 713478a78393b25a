/* load_conn.c - the connections that carry the load, and the answers to Produce. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/kc_mem.h"
#include "load.h"

void ld_conn_open(struct ld *l, struct ld_conn *c, int32_t broker)
{
    c->fd = ld_dial_broker(l, broker, 5000);
    if (c->fd < 0) {
        ld_fail("broker %d: %s", broker, strerror(-c->fd));
    }
    fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK);
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, c->fd, &ev)) {
        ld_fail("epoll: %s", strerror(errno));
    }
    c->to_drop = -1;
    c->in_cap = 64 << 10;
    c->in = kc_alloc(c->in_cap);
    c->parts = kc_zalloc((size_t)l->n_parts * sizeof(*c->parts));
    c->next = kc_zalloc((size_t)l->n_parts * sizeof(*c->next));
    c->place = kc_alloc((size_t)l->n_parts * sizeof(*c->place));
    memset(c->place, 0xff, (size_t)l->n_parts * sizeof(*c->place));
}

void ld_conn_give(struct ld *l, struct ld_conn *c, int32_t part)
{
    if (part >= 0 && part < l->n_parts && c->place[part] < 0) {
        c->place[part] = c->n_parts;
        c->parts[c->n_parts++] = part;
    }
}

void ld_conn_want_out(struct ld *l, struct ld_conn *c, bool on)
{
    if (c->wants_out != on) {
        struct epoll_event ev = {.events = EPOLLIN | (on ? EPOLLOUT : 0u), .data.ptr = c};
        c->wants_out = on;
        epoll_ctl(l->epoll, EPOLL_CTL_MOD, c->fd, &ev);
    }
}

/* Connection `i` of `n` to the i-th leader in turn; its share of that leader's partitions. */
static void open_share(struct ld *l, const int32_t *leaders, int n_leaders, int i)
{
    struct ld_conn *c = &l->conns[i];
    int32_t leader = leaders[i % n_leaders];
    int mine = i / n_leaders; /* the how-manieth of this leader's connections, of so many: */
    int all = (l->n_conns - i % n_leaders + n_leaders - 1) / n_leaders;
    int led = 0, seen = 0;
    ld_conn_open(l, c, leader);
    for (int p = 0; p < l->n_parts; p++) {
        led += l->parts[p].leader == leader;
    }
    for (int p = 0; p < l->n_parts; p++) {
        if (l->parts[p].leader == leader) {
            if (all <= led ? seen % all == mine : seen == mine % led) {
                ld_conn_give(l, c, p);
            }
            seen++;
        }
    }
}

void ld_conns_open(struct ld *l)
{
    int32_t leaders[LD_BROKERS];
    int n = 0;
    for (int p = 0; p < l->n_parts; p++) {
        int k = 0;
        while (k < n && leaders[k] != l->parts[p].leader) {
            k++;
        }
        if (k == n && n < LD_BROKERS) {
            leaders[n++] = l->parts[p].leader;
        }
    }
    l->n_conns = (int)KC_MAX(l->o.conns, (int64_t)n);
    l->conns = kc_zalloc((size_t)l->n_conns * sizeof(*l->conns));
    for (int i = 0; i < l->n_conns; i++) {
        if (l->n_conns >= l->n_parts) { /* one partition each */
            ld_conn_open(l, &l->conns[i], l->parts[i % l->n_parts].leader);
            ld_conn_give(l, &l->conns[i], i % l->n_parts);
        } else {
            open_share(l, leaders, n, i);
        }
    }
}

void ld_produce_head(const struct ld *l, struct ld_w *w, int32_t part, int parts)
{
    ld_w_request(w, 0, 7, 0);
    ld_w16(w, -1);
    ld_w16(w, (int)l->o.acks);
    ld_w32(w, 30000);
    ld_w32(w, 1);
    ld_w_str(w, l->o.topic);
    ld_w32(w, parts);
    ld_w32(w, part);
    ld_w32(w, (int64_t)l->batch.len);
}

bool ld_conn_fill(struct ld_conn *c)
{
    if (c->in_len == c->in_cap) {
        uint8_t *p = c->in_cap < LD_FRAME_MAX ? kc_try_realloc(c->in, c->in_cap * 2) : NULL;
        if (!p) {
            ld_fail("an answer of more than %zu bytes", c->in_cap);
        }
        c->in = p;
        c->in_cap *= 2;
    }
    ssize_t k = recv(c->fd, c->in + c->in_len, c->in_cap - c->in_len, 0);
    if (k < 0 && (errno == EAGAIN || errno == EINTR)) {
        return false;
    }
    if (k <= 0) {
        ld_fail("a broker closed its connection: %s", k ? strerror(errno) : "end");
    }
    c->in_len += (size_t)k;
    return true;
}

size_t ld_frame_len(const struct ld_conn *c, size_t at)
{
    if (c->in_len - at < 4) {
        return 0;
    }
    int32_t len = ld_get32(c->in + at);
    if (len < 4 || len > LD_FRAME_MAX) {
        ld_fail("an answer of %d bytes", len);
    }
    return (size_t)len + 4;
}

static void check_produce(const uint8_t *p, size_t len, uint64_t expected)
{
    struct ld_r r = {.p = p, .end = p + len};
    char name[LD_HOST];
    int32_t correlation = ld_r32(&r);
    ld_r32(&r); /* topics */
    ld_r_str(&r, name, sizeof(name));
    int32_t n = ld_r_count(&r, 30);
    for (int32_t i = 0; i < n; i++) {
        int32_t part = ld_r32(&r);
        int16_t error = ld_r16(&r);
        ld_r_bytes(&r, 24); /* base offset, append time, log start */
        if (error) {
            ld_fail("produce to partition %d: error %d", part, error);
        }
    }
    if (r.bad || n < 1 || correlation != (int32_t)expected) {
        ld_fail("an answer to Produce that is none (correlation %d, not %d)", correlation,
                (int32_t)expected);
    }
}

int64_t ld_drain_acks(const struct ld *l, struct ld_conn *c, struct ld_hist *h)
{
    size_t at = 0, len;
    int64_t n = 0;
    ld_conn_fill(c);
    int64_t now = ld_now_ns();
    while ((len = ld_frame_len(c, at)) && c->in_len - at >= len) {
        if (c->acked == c->sent) {
            ld_fail("an answer that nobody asked for");
        }
        check_produce(c->in + at + 4, len - 4, c->acked);
        if (h) {
            ld_hist_add(h, now - c->slots[c->acked % (uint64_t)l->o.inflight].due_ns);
        }
        c->acked++;
        n++;
        at += len;
    }
    memmove(c->in, c->in + at, c->in_len - at);
    c->in_len -= at;
    return n;
}
