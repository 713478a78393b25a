/* load_fetch.c - reading partitions, whole answers or with the bytes left in the kernel. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/kc_crc32c.h"
#include "base/kc_mem.h"
#include "load.h"

enum {
    EVENTS = 256,
    ONE_PART_HEAD = 70 /* and the topic's name: up to the records of one partition */
};

/* A Fetch 11 of what is next of each partition that has more; how many have. */
static int write_fetch(const struct ld *l, struct ld_conn *c)
{
    struct ld_w *w = &c->request;
    int n = 0;
    ld_w_request(w, 1, 11, 1);
    ld_w32(w, -1);
    ld_w32(w, l->o.max_wait_ms);
    ld_w32(w, l->o.min_bytes);
    ld_w32(w, l->o.max_bytes);
    ld_w8(w, 0);
    ld_w32(w, 0); /* no session */
    ld_w32(w, -1);
    ld_w32(w, 1);
    ld_w_str(w, l->o.topic);
    size_t count_at = w->len;
    ld_w32(w, 0);
    for (int k = 0; k < c->n_parts; k++) {
        int i = (int)((c->turn + (uint32_t)k) % (uint32_t)c->n_parts);
        int32_t part = c->parts[i];
        if (c->next[i] < l->parts[part].end) {
            ld_w32(w, part);
            ld_w32(w, -1);
            ld_w64(w, c->next[i]);
            ld_w64(w, -1);
            ld_w32(w, l->o.part_max);
            n++;
        }
    }
    ld_put32(w->p + count_at, n);
    ld_w32(w, 0);
    ld_w_str(w, "");
    ld_put32(w->p, (int64_t)w->len - 4);
    return n;
}

void ld_fetch_send(struct ld *l, struct ld_conn *c)
{
    c->turn++;
    if (l->stop_ns && ld_now_ns() >= l->stop_ns) {
        c->done = true;
        return;
    }
    if (!write_fetch(l, c)) {
        memset(c->next, 0, (size_t)c->n_parts * sizeof(*c->next));
        if (++c->round >= l->o.repeat || !write_fetch(l, c)) {
            c->done = true;
            return;
        }
    }
    c->asked_ns = ld_now_ns();
    c->in_len = 0;
    c->to_drop = -1;
    c->busy = true;
    if (send(c->fd, c->request.p, c->request.len, MSG_NOSIGNAL) != (ssize_t)c->request.len) {
        ld_fail("send of a fetch: %s", strerror(errno));
    }
}

/* ---- whole answers ---- */

/* The batches of one partition; the last one may be cut short, as Kafka's are. */
static void walk(const struct ld *l, struct ld_conn *c, int place, const uint8_t *p, int64_t left,
                 struct ld_fetched *f)
{
    while (left >= LD_BATCH_HEADER) {
        int64_t len = 12 + (int64_t)(uint32_t)ld_get32(p + 8);
        if (len < LD_BATCH_HEADER) {
            ld_fail("a batch of %ld bytes", (long)len);
        }
        if (len > left) {
            return;
        }
        int64_t after = ld_get64(p) + ld_get32(p + 23) + 1;
        if (after <= c->next[place]) { /* may start before what was asked for, never end there */
            ld_fail("offset %ld was asked for, a batch up to it came", (long)c->next[place]);
        }
        if (l->o.crc && kc_crc32c(0, p + 21, (size_t)len - 21) != (uint32_t)ld_get32(p + 17)) {
            ld_fail("the checksum at offset %ld is wrong", (long)ld_get64(p));
        }
        if (f->age && l->batch.value_at + 8 <= (size_t)len) {
            int64_t due;
            memcpy(&due, p + l->batch.value_at, sizeof(due));
            if (due > f->from_ns) {
                ld_hist_add(f->age, ld_now_ns() - due);
            }
        }
        c->next[place] = after;
        f->msgs += ld_get32(p + 57);
        f->bytes += len;
        p += len;
        left -= len;
    }
}

static void read_part(const struct ld *l, struct ld_conn *c, struct ld_r *r, struct ld_fetched *f)
{
    int32_t part = ld_r32(r);
    int16_t error = ld_r16(r);
    ld_r_bytes(r, 24);
    ld_r_bytes(r, (int64_t)ld_r_count(r, 16) * 16); /* aborted */
    ld_r32(r);
    int32_t len = ld_r32(r);
    const uint8_t *records = len > 0 ? ld_r_bytes(r, len) : NULL;
    if (r->bad || part < 0 || part >= l->n_parts || c->place[part] < 0) {
        ld_fail("an answer to Fetch that is none");
    }
    if (error) {
        ld_refused("fetch", error);
    }
    if (records) {
        walk(l, c, c->place[part], records, len, f);
    }
}

static void read_answer(const struct ld *l, struct ld_conn *c, size_t len, struct ld_fetched *f)
{
    struct ld_r r = {.p = c->in + 4, .end = c->in + len};
    char name[LD_HOST];
    ld_r_bytes(&r, 8); /* correlation, throttle */
    int16_t error = ld_r16(&r);
    ld_r32(&r); /* session */
    if (error) {
        ld_refused("fetch", error);
    }
    for (int32_t topics = ld_r_count(&r, 6); topics > 0; topics--) {
        ld_r_str(&r, name, sizeof(name));
        for (int32_t parts = ld_r_count(&r, 38); parts > 0; parts--) {
            read_part(l, c, &r, f);
        }
    }
    if (r.bad) {
        ld_fail("an answer to Fetch that ends early");
    }
}

static bool read_whole(const struct ld *l, struct ld_conn *c, struct ld_fetched *f)
{
    while (ld_conn_fill(c)) {
        size_t len = ld_frame_len(c, 0);
        if (len && c->in_len > len) {
            ld_fail("more than was asked for");
        }
        if (len && c->in_len == len) {
            read_answer(l, c, len, f);
            return true;
        }
        if (len > c->in_cap) { /* room for all of it at once */
            uint8_t *p = kc_try_realloc(c->in, len);
            if (!p) {
                ld_fail("no memory for an answer of %zu bytes", len);
            }
            c->in = p;
            c->in_cap = len;
        }
    }
    return false;
}

/* ---- the head only ---- */

/* What the head of an answer of one partition says; how many bytes of records follow. */
static void read_head(const struct ld *l, struct ld_conn *c, size_t head, struct ld_fetched *f)
{
    size_t len = ld_frame_len(c, 0);
    int16_t error = ld_get16(c->in + 12), part_error = ld_get16(c->in + head - 38);
    int32_t aborted = ld_get32(c->in + head - 12), records = ld_get32(c->in + head - 4);
    if (error || part_error) {
        ld_refused("fetch", error ? error : part_error);
    }
    if (aborted > 0 || (records > 0 ? (size_t)records : 0) != len - head) {
        ld_fail("an answer to Fetch of another form than of one partition");
    }
    int64_t batches = records / (int64_t)l->batch.len;
    if (records > 0 && !batches) {
        ld_fail("--drop: less than a batch came; raise --pmax, or mend --batch and --rec");
    }
    c->next[0] += batches * l->batch.records;
    f->bytes += batches * (int64_t)l->batch.len;
    f->msgs += batches * l->batch.records;
    c->to_drop = (int64_t)(len - head);
}

static bool read_dropping(const struct ld *l, struct ld_conn *c, struct ld_fetched *f)
{
    size_t head = ONE_PART_HEAD + strlen(l->o.topic);
    for (;;) {
        bool dropping = c->to_drop >= 0;
        if (dropping && !c->to_drop) {
            return true;
        }
        ssize_t k =
            recv(c->fd, dropping ? c->in : c->in + c->in_len,
                 dropping ? (size_t)c->to_drop : head - c->in_len, dropping ? MSG_TRUNC : 0);
        if (k < 0 && (errno == EAGAIN || errno == EINTR)) {
            return false;
        }
        if (k <= 0) {
            ld_fail("a broker closed its connection: %s", k ? strerror(errno) : "end");
        }
        if (dropping) {
            c->to_drop -= k;
            continue;
        }
        c->in_len += (size_t)k;
        size_t len = ld_frame_len(c, 0);
        if (len && len < head) {
            ld_fail("an answer to Fetch of %zu bytes", len);
        }
        if (c->in_len == head) {
            read_head(l, c, head, f);
        }
    }
}

bool ld_fetch_read(const struct ld *l, struct ld_conn *c, struct ld_fetched *f)
{
    return l->o.drop ? read_dropping(l, c, f) : read_whole(l, c, f);
}

void ld_mode_fetch(struct ld *l)
{
    static struct ld_hist took;
    struct ld_fetched f = {0};
    struct epoll_event ev[EVENTS];
    int64_t reqs = 0;
    int done = 0;
    ld_topic_wait(l);
    ld_batch_build(&l->batch, l->o.batch, l->o.rec);
    if (l->o.drop) { /* knows one partition a connection */
        l->o.conns = KC_MAX(l->o.conns, (int64_t)l->n_parts);
    }
    ld_conns_open(l);
    ld_meter_start(&l->meter, &l->o);
    if (l->o.secs > 0) {
        l->stop_ns = l->meter.start_ns + (int64_t)(l->o.secs * 1e9);
        l->o.repeat = INT64_MAX;
    }
    for (int i = 0; i < l->n_conns; i++) {
        ld_fetch_send(l, &l->conns[i]);
        done += l->conns[i].done;
    }
    while (done < l->n_conns) {
        int n = epoll_wait(l->epoll, ev, EVENTS, 30000);
        if (!n) {
            ld_fail("no answer for 30 s");
        }
        for (int i = 0; i < n; i++) {
            struct ld_conn *c = ev[i].data.ptr;
            if (c->busy && ld_fetch_read(l, c, &f)) {
                ld_hist_add(&took, ld_now_ns() - c->asked_ns);
                reqs++;
                c->busy = false;
                ld_fetch_send(l, c);
                done += c->done;
            }
        }
    }
    struct ld_sums sums = {.bytes = f.bytes, .msgs = f.msgs, .reqs = reqs};
    ld_meter_print(&l->meter, l->o.mode, ld_now_ns(), &sums);
    printf(",\"conns\":%d,\"parts\":%d,\"pmax\":%ld,\"drop\":%s,\"crc\":%s,\"repeat\":%ld",
           l->n_conns, l->n_parts, (long)l->o.part_max, l->o.drop ? "true" : "false",
           l->o.crc ? "true" : "false", (long)l->o.repeat);
    ld_hist_print("fetch_us", &took);
    puts("}");
}
