/* load_e2e.c - records at a fixed rate, from the time each was due until a consumer has it. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#include "base/kc_mem.h"
#include "load.h"

enum { EVENTS = 64, DRAIN_S = 60 };

struct run {
    struct ld *l;
    struct ld_hist acks, ages;
    struct ld_fetched read;
    uint8_t **requests; /* of each partition, its batch at its end */
    size_t request_len;
    int64_t gap_ns, next_ns, stop_ns, from_ns;
    int64_t sent, acked, late;
};

static void open_pair(struct run *r, int32_t part)
{
    struct ld *l = r->l;
    struct ld_conn *producer = &l->conns[2 * part], *consumer = producer + 1;
    struct ld_w w = {0};
    ld_conn_open(l, producer, l->parts[part].leader);
    ld_conn_open(l, consumer, l->parts[part].leader);
    ld_conn_give(l, producer, part);
    ld_conn_give(l, consumer, part);
    consumer->consumer = true;
    consumer->next[0] = l->parts[part].end;
    l->parts[part].end = INT64_MAX;
    producer->slots = kc_zalloc((size_t)l->o.inflight * sizeof(*producer->slots));
    ld_produce_head(l, &w, part, 1);
    ld_w_bytes(&w, l->batch.p, l->batch.len);
    ld_put32(w.p, (int64_t)w.len - 4);
    r->requests[part] = w.p;
    r->request_len = w.len;
}

/* All of it; a full socket is waited for, which what was due later pays for. */
static void send_all(struct ld_conn *c, const uint8_t *p, size_t len)
{
    while (len) {
        ssize_t k = send(c->fd, p, len, MSG_NOSIGNAL);
        if (k < 0 && errno == EAGAIN) {
            struct pollfd f = {.fd = c->fd, .events = POLLOUT};
            if (poll(&f, 1, 30000) <= 0) {
                ld_fail("a broker took nothing for 30 s");
            }
        } else if (k < 0 && errno != EINTR) {
            ld_fail("send: %s", strerror(errno));
        }
        p += k > 0 ? k : 0;
        len -= k > 0 ? (size_t)k : 0;
    }
}

/* Sends what is due; what finds too many on their way stays due. */
static void send_due(struct run *r)
{
    struct ld *l = r->l;
    for (int64_t now = ld_now_ns(); r->next_ns <= now && r->next_ns < r->stop_ns;
         now = ld_now_ns()) {
        int64_t part = r->sent % l->n_parts;
        struct ld_conn *c = &l->conns[2 * part];
        uint8_t *p = r->requests[part], *batch = p + r->request_len - l->batch.len;
        if (c->queued - c->acked >= (uint64_t)l->o.inflight) {
            return;
        }
        memcpy(batch + l->batch.value_at, &r->next_ns, sizeof(r->next_ns));
        ld_batch_stamp(batch, l->batch.len, (int64_t)(ld_wall_s() * 1000));
        ld_put32(p + 8, (int64_t)(c->queued & INT32_MAX));
        c->slots[c->queued % (uint64_t)l->o.inflight].due_ns = r->next_ns;
        c->queued++;
        c->sent = c->queued;
        r->late += now - r->next_ns > 1000000;
        send_all(c, p, r->request_len);
        r->next_ns += r->gap_ns;
        r->sent++;
    }
}

static void turn(struct run *r)
{
    struct ld *l = r->l;
    struct epoll_event ev[EVENTS];
    int64_t wait_ns = r->next_ns < r->stop_ns ? r->next_ns - ld_now_ns() : 10000000;
    if (wait_ns <= 0 && r->next_ns < r->stop_ns) {
        wait_ns = 1000000; /* too many on their way: an answer ends the wait */
    }
    struct timespec t = {.tv_sec = wait_ns / 1000000000, .tv_nsec = wait_ns % 1000000000};
    int n = epoll_pwait2(l->epoll, ev, EVENTS, &t, NULL);
    for (int i = 0; i < n; i++) {
        struct ld_conn *c = ev[i].data.ptr;
        if (!c->consumer) {
            r->acked += ld_drain_acks(l, c, ld_now_ns() > r->from_ns ? &r->acks : NULL);
        } else if (c->busy && ld_fetch_read(l, c, &r->read)) {
            c->busy = false;
            ld_fetch_send(l, c);
        }
    }
}

static void report(const struct run *r)
{
    const struct ld *l = r->l;
    struct ld_sums sums = {.bytes = r->read.bytes, .msgs = r->read.msgs, .reqs = r->sent};
    ld_meter_print(&l->meter, l->o.mode, ld_now_ns(), &sums);
    printf(",\"rate\":%.0f,\"parts\":%d,\"acks\":%d,\"rec\":%" PRId64 ",\"sent\":%" PRId64
           ",\"acked\":%" PRId64 ",\"read\":%" PRId64 ",\"late_1ms\":%" PRId64,
           l->o.rate, l->n_parts, (int)l->o.acks, l->o.rec, r->sent, r->acked, r->read.msgs,
           r->late);
    ld_hist_print("ack_us", &r->acks);
    ld_hist_print("e2e_us", &r->ages);
    puts("}");
}

void ld_mode_e2e(struct ld *l)
{
    static struct run r;
    double rate = l->o.rate > 0 ? l->o.rate : 1000, secs = l->o.secs > 0 ? l->o.secs : 10;
    if (l->o.drop || !l->o.acks) {
        ld_fail("e2e reads what it fetches, and wants acks");
    }
    if (!l->o.parts) {
        l->o.parts = 1;
    }
    l->o.rate = rate;
    l->o.inflight = 1 << 14;
    ld_topic_wait(l);
    ld_batch_build(&l->batch, 1, l->o.rec);
    r.l = l;
    r.read = (struct ld_fetched){.age = &r.ages};
    r.requests = kc_zalloc((size_t)l->n_parts * sizeof(*r.requests));
    l->n_conns = 2 * l->n_parts;
    l->conns = kc_zalloc((size_t)l->n_conns * sizeof(*l->conns));
    for (int32_t p = 0; p < l->n_parts; p++) {
        open_pair(&r, p);
    }
    ld_meter_start(&l->meter, &l->o);
    int64_t start = l->meter.start_ns;
    r.gap_ns = KC_MAX((int64_t)(1e9 / rate), (int64_t)1);
    r.next_ns = start + r.gap_ns;
    r.from_ns = r.read.from_ns = start + (int64_t)(l->o.warmup * 1e9);
    r.stop_ns = r.from_ns + (int64_t)(secs * 1e9);
    for (int32_t p = 0; p < l->n_parts; p++) {
        ld_fetch_send(l, &l->conns[2 * p + 1]);
    }
    int64_t end = r.stop_ns + (int64_t)DRAIN_S * 1000000000;
    while (ld_now_ns() < end &&
           (r.next_ns < r.stop_ns || r.read.msgs < r.sent || r.acked < r.sent)) {
        send_due(&r);
        turn(&r);
    }
    report(&r);
}
