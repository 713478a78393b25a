/* kn_out.c - answers on their way out of a connection.
 *
 * Owned by the connection's loop. Segments go to the socket without a copy of our own; what it does
 * not take waits for poll_for to find room. Failure modes: any error of the socket but EAGAIN closes
 * the connection. */
#include "net/kn_internal.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"

enum { IOVS = 64 };

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
}

static void sent(struct kn_conn *c, size_t n)
{
    while (c->out) {
        struct kn_answer *a = c->out;
        size_t left = a->segs[a->at].len - a->off;
        size_t take = KC_MIN(left, n);
        a->off += take;
        n -= take;
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

void kn_out_flush(struct kn_conn *c)
{
    while (c->out) {
        struct iovec iov[IOVS];
        int n = 0;
        size_t want = 0;
        for (struct kn_answer *a = c->out; a && n < IOVS; a = a->next) {
            size_t off = a->off;
            for (int32_t i = a->at; i < a->n && n < IOVS; i++, off = 0) {
                iov[n].iov_base = (void *)(uintptr_t)(a->segs[i].ptr + off);
                iov[n].iov_len = a->segs[i].len - off;
                want += iov[n++].iov_len;
            }
        }
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)n};
        ssize_t w = sendmsg(c->fd, &m, MSG_NOSIGNAL);
        if (w < 0 && errno == EINTR) {
            continue;
        }
        if (w < 0 && errno != EAGAIN) {
            kn_close(c, NULL);
            return;
        }
        if (w > 0) {
            c->active_ms = c->out_since_ms = kc_mono_ms();
            atomic_fetch_add_explicit(&c->server->counters.bytes_out, (uint64_t)w,
                                      memory_order_relaxed);
            sent(c, (size_t)w);
        }
        if (w < 0 || (size_t)w < want) {
            break; /* poll_for waits for room */
        }
    }
    if (!c->out) {
        c->out_tail = &c->out;
    }
}
