/* kn_out.c - answers on their way out of a connection.
 *
 * Owned by the connection's loop. Segments go to the socket without a copy of our own: those in memory
 * with sendmsg, ranges of files with sendfile (ADR 21); what it does not take waits for poll_for to find
 * room. Whether a range is in the page cache is asked before each piece of it; one that is not is read
 * into memory elsewhere, a piece at a time, as the answer's length is promised already. Failure modes:
 * any error of the socket but EAGAIN closes the connection, as does a file that cannot be read. */
#include "net/kn_internal.h"

#include <errno.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "base/kc_range.h"

enum {
    IOVS = 64,
    PIECE = 1024 * 1024, /* of a range, between two looks at the page cache */
    TURN = 4 * 1024 * 1024, /* of ranges, in one go */
    LOAD = 512 * 1024 /* read at once of what is not in the page cache */
};

struct kn_answer *kn_answer_new(int32_t n)
{
    struct kn_answer *a = kc_try_zalloc(1, sizeof(*a) + (size_t)n * sizeof(a->segs[0]));
    if (a) {
        a->n = n;
    }
    return a;
}

void kn_answer_free(struct kn_answer *a)
{
    if (!a) {
        return;
    }
    for (int32_t i = 0; i < a->n; i++) {
        kc_buf_unref(a->segs[i].buf);
    }
    kc_free(a->own);
    kc_free(a);
}

void kn_out_add(struct kn_conn *c, struct kn_answer *a)
{
    if (!c->out) {
        c->out_tail = &c->out;
        c->out_since_ms = kc_mono_ms();
    }
    a->next = NULL;
    *c->out_tail = a;
    c->out_tail = &a->next;
}

void kn_out_drop(struct kn_conn *c)
{
    for (struct kn_answer *a; (a = c->out);) {
        c->out = a->next;
        kn_answer_free(a);
    }
    kc_buf_unref(c->warm);
    c->warm = NULL;
}

bool kn_out_wants_room(const struct kn_conn *c)
{
    return c->out && !c->load;
}

/* ---- bytes of a file that are not in the page cache ---- */

struct kn_load {
    struct kc_load load;
    struct kn_conn *conn; /* referenced */
    struct kc_buf *range; /* referenced */
    size_t at;
};

static void on_loaded(struct kc_load *load)
{
    struct kn_load *l = KC_CONTAINER_OF(load, struct kn_load, load);
    struct kn_conn *c = l->conn;
    c->load = NULL;
    if (!c->open) {
        kc_buf_unref(load->buf);
    } else if (!load->buf) {
        kn_close(c, "a file could not be read"); /* half of the answer may be out */
    } else {
        c->warm = load->buf;
        c->warm_at = l->at;
        c->out_since_ms = kc_mono_ms();
        kn_conn_resume(c);
    }
    kc_buf_unref(l->range);
    kn_conn_unref(c);
    kc_free(l);
}

/* Has the next bytes of the first segment, a range, read by somebody who may wait. */
static void load(struct kn_conn *c)
{
    const struct kn_answer *a = c->out;
    struct kc_buf *b = a->segs[a->at].buf;
    struct kn_load *l = kc_try_zalloc(1, sizeof(*l));
    if (!l) {
        kn_close(c, "no memory for an answer");
        return;
    }
    *l = (struct kn_load){.load = {.loop = c->loop->rt, .done = on_loaded},
                          .conn = kn_conn_ref(c),
                          .range = kc_buf_ref(b),
                          .at = a->off};
    c->load = l;
    size_t len = KC_MIN(a->segs[a->at].len - a->off, (size_t)LOAD);
    b->range->ops->load(b->range, a->off, len, &l->load);
}

/* ---- sending ---- */

static void sent(struct kn_conn *c, size_t n)
{
    while (c->out) {
        struct kn_answer *a = c->out;
        size_t left = a->segs[a->at].len - a->off;
        size_t take = KC_MIN(left, n);
        a->off += take;
        n -= take;
        if (c->warm && a->off == c->warm_at + c->warm->len) {
            kc_buf_unref(c->warm);
            c->warm = NULL;
        }
        if (take < left) { /* empty segments are passed over even when n is 0 */
            return;
        }
        a->off = 0;
        if (++a->at == a->n) {
            c->out = a->next;
            kn_conn_charge(c, -(int64_t)a->len);
            kn_answer_free(a);
        }
    }
}

/* After a call that wanted to send `want` bytes and sent w. False: enough for now. */
static bool went(struct kn_conn *c, ssize_t w, size_t want)
{
    if (w < 0 && errno == EINTR) {
        return true;
    }
    if (w < 0 && errno != EAGAIN) {
        kn_close(c, NULL);
        return false;
    }
    if (w > 0) {
        c->active_ms = c->out_since_ms = kc_mono_ms();
        atomic_fetch_add_explicit(&c->server->counters.bytes_out, (uint64_t)w,
                                  memory_order_relaxed);
    }
    if (w >= 0) {
        sent(c, (size_t)w);
    }
    return w >= 0 && (size_t)w == want; /* else poll_for waits for room */
}

/* What was loaded of the first segment, from where it is sent on. */
static struct iovec warm_part(const struct kn_conn *c)
{
    size_t skip = c->out->off - c->warm_at;
    return (struct iovec){.iov_base = c->warm->data + skip, .iov_len = c->warm->len - skip};
}

/* Sends segments up to the next range that is not loaded. */
static bool send_memory(struct kn_conn *c)
{
    struct iovec iov[IOVS];
    int n = 0, more = 0;
    size_t want = 0;
    for (struct kn_answer *a = c->out; a && n < IOVS && !more; a = a->next) {
        size_t off = a->off;
        for (int32_t i = a->at; i < a->n && n < IOVS && !more; i++, off = 0) {
            bool range = kc_range_of(a->segs[i].buf) != NULL;
            if (range && n == 0) {
                iov[n] = warm_part(c);
                more = off + iov[n].iov_len < a->segs[i].len ? MSG_MORE : 0;
            } else if (range) {
                more = MSG_MORE;
                break;
            } else {
                iov[n].iov_base = (void *)(uintptr_t)(a->segs[i].ptr + off);
                iov[n].iov_len = a->segs[i].len - off;
            }
            want += iov[n++].iov_len;
        }
    }
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)n};
    return went(c, sendmsg(c->fd, &m, MSG_NOSIGNAL | more), want);
}

/* Sends of the first segment, a range, what is in the page cache. */
static bool send_range(struct kn_conn *c, size_t *left)
{
    const struct kn_answer *a = c->out;
    struct kc_range *r = a->segs[a->at].buf->range;
    size_t n = r->ops->ready(r, a->off, KC_MIN(KC_MIN(r->len - a->off, (size_t)PIECE), *left));
    if (n == 0) {
        load(c);
        return false;
    }
    *left -= n;
    off_t from = (off_t)(r->pos + a->off);
    ssize_t w = sendfile(c->fd, r->fd, &from, n);
    if (w == 0) {
        kn_close(c, "a file is shorter than what was promised of it");
        return false;
    }
    return went(c, w, n);
}

void kn_out_flush(struct kn_conn *c)
{
    size_t left = TURN; /* of ranges; a peer that takes all there is must not have the loop alone */
    while (c->out && !c->load && left > 0) {
        const struct kn_answer *a = c->out;
        bool range = a->at < a->n && kc_range_of(a->segs[a->at].buf) && !c->warm;
        if (!(range ? send_range(c, &left) : send_memory(c))) {
            break;
        }
    }
    if (!c->out) {
        c->out_tail = &c->out;
    }
}
