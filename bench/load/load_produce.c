/* load_produce.c - as many bytes as brokers take, or a fixed rate of them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "base/kc_mem.h"
#include "load.h"

enum { IOV = 128, EVENTS = 256, SEND_MAX = 1 << 20 };

struct run {
    struct ld *l;
    struct ld_hist acks;
    int64_t request_bytes, left, issued, acked;
    int64_t stop_ns, gap_ns; /* gap_ns: between two requests; 0: as fast as it goes */
};

static void make_slots(struct ld *l, struct ld_conn *c)
{
    struct ld_w w = {0};
    int more = (int)l->o.per_request - 1;
    c->slots = kc_zalloc((size_t)l->o.inflight * sizeof(*c->slots));
    for (int64_t i = 0; i < l->o.inflight; i++) {
        struct ld_slot *s = &c->slots[i];
        ld_produce_head(l, &w, 0, more + 1);
        s->head_len = w.len;
        s->len = w.len + l->batch.len + (size_t)more * (8 + l->batch.len);
        s->head = kc_alloc(w.len);
        memcpy(s->head, w.p, w.len);
        ld_put32(s->head, (int64_t)s->len - 4);
        s->part_heads = kc_zalloc(8 * (size_t)(more + 1));
        for (int k = 0; k < more; k++) {
            ld_put32(s->part_heads + 8 * k + 4, (int64_t)l->batch.len);
        }
    }
    kc_free(w.p);
}

/* Queues a request to the connection's next partitions. */
static void queue_one(struct ld *l, struct ld_conn *c, int64_t due_ns)
{
    struct ld_slot *s = &c->slots[c->queued % (uint64_t)l->o.inflight];
    ld_put32(s->head + 8, (int64_t)(c->queued & INT32_MAX));
    s->due_ns = due_ns;
    for (int k = 0; k < l->o.per_request; k++) {
        int32_t part = c->parts[c->turn++ % (uint32_t)c->n_parts];
        ld_put32(k ? s->part_heads + 8 * (k - 1) : s->head + s->head_len - 8, part);
    }
    c->queued++;
}

/* The pieces of what is queued and not sent, at most about SEND_MAX bytes. */
static int gather(const struct ld *l, const struct ld_conn *c, struct iovec *iov)
{
    size_t skip = c->sent_bytes, total = 0;
    int n = 0, pieces = 2 * (int)l->o.per_request;
    for (uint64_t at = c->sent; at < c->queued && n + pieces <= IOV && total < SEND_MAX; at++) {
        const struct ld_slot *s = &c->slots[at % (uint64_t)l->o.inflight];
        for (int k = 0; k < pieces; k++) {
            uint8_t *p = !k ? s->head : k & 1 ? l->batch.p : s->part_heads + 8 * (k / 2 - 1);
            size_t len = !k ? s->head_len : k & 1 ? l->batch.len : 8;
            if (skip >= len) {
                skip -= len;
                continue;
            }
            iov[n++] = (struct iovec){.iov_base = p + skip, .iov_len = len - skip};
            total += len - skip;
            skip = 0;
        }
    }
    return n;
}

static void send_queued(struct ld *l, struct ld_conn *c)
{
    while (c->sent < c->queued) {
        struct iovec iov[IOV];
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)gather(l, c, iov)};
        ssize_t k = sendmsg(c->fd, &m, MSG_NOSIGNAL);
        if (k < 0 && errno == EAGAIN) {
            ld_conn_want_out(l, c, true);
            return;
        }
        if (k < 0) {
            ld_fail("send: %s", strerror(errno));
        }
        c->sent_bytes += (size_t)k;
        while (c->sent < c->queued) {
            size_t len = c->slots[c->sent % (uint64_t)l->o.inflight].len;
            if (c->sent_bytes < len) {
                break;
            }
            c->sent_bytes -= len;
            c->sent++;
            c->acked += !l->o.acks;
        }
    }
    ld_conn_want_out(l, c, false);
}

static bool has_room(const struct ld *l, const struct ld_conn *c)
{
    return c->queued - c->acked < (uint64_t)l->o.inflight && !c->wants_out;
}

/* Queues what is due and has room, a request a connection in turn. */
static void issue(struct run *r)
{
    struct ld *l = r->l;
    int64_t now = ld_now_ns(), start = l->meter.start_ns;
    if (now >= r->stop_ns) {
        r->left = 0;
    }
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < l->n_conns && r->left; i++) {
            int64_t due = r->gap_ns ? start + r->issued * r->gap_ns : now;
            if (due > now) {
                break;
            }
            if (has_room(l, &l->conns[i])) {
                queue_one(l, &l->conns[i], due);
                r->left--;
                r->issued++;
                more = true;
            }
        }
    }
    for (int i = 0; i < l->n_conns; i++) {
        if (l->conns[i].sent < l->conns[i].queued && !l->conns[i].wants_out) {
            send_queued(l, &l->conns[i]);
        }
    }
}

/* Waits for answers, for room in sockets, and for the next request to be due. */
static void turn(struct run *r)
{
    struct ld *l = r->l;
    struct epoll_event ev[EVENTS];
    int64_t wait_ns = 100000000;
    if (r->gap_ns && r->left) {
        int64_t due = l->meter.start_ns + r->issued * r->gap_ns - ld_now_ns();
        bool room = false;
        for (int i = 0; i < l->n_conns; i++) {
            room = room || has_room(l, &l->conns[i]);
        }
        wait_ns = room ? KC_MAX((int64_t)0, KC_MIN(due, wait_ns)) : wait_ns;
    } else if (!l->o.acks && r->left) {
        bool blocked = true;
        for (int i = 0; i < l->n_conns; i++) {
            blocked = blocked && l->conns[i].wants_out;
        }
        wait_ns = blocked ? wait_ns : 0;
    }
    if (r->left) {
        wait_ns = KC_MAX((int64_t)0, KC_MIN(wait_ns, r->stop_ns - ld_now_ns()));
    }
    struct timespec t = {.tv_sec = 0, .tv_nsec = wait_ns};
    int n = epoll_pwait2(l->epoll, ev, EVENTS, &t, NULL);
    for (int i = 0; i < n; i++) {
        struct ld_conn *c = ev[i].data.ptr;
        if (ev[i].events & EPOLLOUT) {
            send_queued(l, c);
        }
        if (ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
            r->acked += ld_drain_acks(l, c, &r->acks);
        }
    }
}

static bool unanswered(const struct ld *l)
{
    for (int i = 0; i < l->n_conns; i++) {
        if (l->conns[i].acked < l->conns[i].queued) {
            return true;
        }
    }
    return false;
}

void ld_mode_produce(struct ld *l)
{
    static struct run r;
    const struct ld_opts *o = &l->o;
    ld_topic_wait(l);
    ld_batch_build(&l->batch, o->batch, o->rec);
    ld_conns_open(l);
    for (int i = 0; i < l->n_conns; i++) {
        make_slots(l, &l->conns[i]);
    }
    r.l = l;
    r.request_bytes = (int64_t)l->batch.len * o->per_request;
    r.left = o->bytes ? KC_MAX(o->bytes / r.request_bytes, (int64_t)1) : INT64_MAX;
    r.gap_ns =
        o->rate > 0 ? KC_MAX((int64_t)((double)r.request_bytes / o->rate * 1e3), (int64_t)1) : 0;
    if (!o->bytes && o->secs <= 0) {
        ld_fail("produce wants --bytes or --secs");
    }
    ld_meter_start(&l->meter, o);
    r.stop_ns = o->secs > 0 ? l->meter.start_ns + (int64_t)(o->secs * 1e9) : INT64_MAX;
    do {
        issue(&r);
        turn(&r);
    } while (r.left || unanswered(l));
    int64_t end = ld_now_ns(), acked = o->acks ? r.acked : r.issued;
    struct ld_sums sums = {.bytes = acked * r.request_bytes,
                           .msgs = acked * o->per_request * l->batch.records,
                           .reqs = acked};
    ld_meter_print(&l->meter, o->mode, end, &sums);
    printf(
        ",\"conns\":%d,\"inflight\":%d,\"acks\":%d,\"parts\":%d,\"batch_bytes\":%zu,\"records\":%d,"
        "\"rate_mb_s\":%.1f",
        l->n_conns, (int)o->inflight, (int)o->acks, l->n_parts, l->batch.len, l->batch.records,
        o->rate);
    ld_hist_print("ack_us", &r.acks);
    puts("}");
}
