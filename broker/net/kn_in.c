/* kn_in.c - bytes into frames.
 *
 * Owned by the connection's loop. Small frames are cut out of the loop's scratch buffer, many a read. A
 * frame that is not whole yet gets a buffer of its own, in which it stays: the rest is received
 * straight into it, what comes behind it into the scratch by the same call, and the buffer itself goes
 * to the handler. Room is made ahead of what was received by a factor, never by the length that a peer
 * claims, and counted in the budget as soon as it is made; when half of that is spent it only doubles.
 *
 * Failure modes: anything that is not a length between 0 and socket.request.max.bytes closes the
 * connection (HTTP and TLS read as huge lengths), as do end of stream and errors of the socket. */
#include "net/kn_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"

/* HEAD: what is read of a frame behind a large one before its length is known, and copied once. */
enum {
    FIRST_ROOM = 512,
    HEAD = 8 * 1024,
    AHEAD = 16,
    READS_A_TURN = 4,
    BYTES_A_TURN = 1024 * 1024
};

/* ---- the buffer of the frame under way ---- */

/* Its room is what counts. */
static void set_in(struct kn_conn *c, struct kc_buf *b)
{
    kn_conn_charge(c, (b ? (int64_t)b->len : 0) - (c->in ? (int64_t)c->in->len : 0));
    c->in = b;
    if (!b) {
        c->in_len = 0;
    }
}

void kn_in_drop(struct kn_conn *c)
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

static int32_t be32(const uint8_t *p)
{
    return (int32_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]);
}

/* Where the frame ends that begins with these bytes, its length included; 0 while that is unknown. Its
 * length was checked when it became known. */
static size_t end_of(const uint8_t *data, size_t len)
{
    return len < 4 ? 0 : (size_t)be32(data) + 4;
}

/* Room for a frame of which `have` bytes are here: a few steps of growth, and as few copies. */
static size_t room_for(const struct kn_conn *c, size_t end, size_t have)
{
    int64_t used = atomic_load_explicit(&c->server->counters.inflight_bytes, memory_order_relaxed);
    size_t room = have * AHEAD;
    if (used + (int64_t)room > c->server->limits.budget_bytes / 2) {
        room = have * 2;
    }
    room = end ? KC_MIN(room, end) : room;
    return KC_MAX(room, KC_MAX(have + 1, (size_t)FIRST_ROOM));
}

/* Puts what could not be worked on yet behind what is kept already. */
static void keep(struct kn_conn *c, const uint8_t *data, size_t len)
{
    size_t all = c->in_len + len;
    size_t end = c->in_len ? 0 : end_of(data, len);
    if (!c->in_len) {
        c->in_since_ms = kc_mono_ms();
    }
    size_t want = end > len ? room_for(c, end, all) : KC_MAX(all, (size_t)FIRST_ROOM);
    if ((!c->in || c->in->len < all) && !grow_in(c, want)) {
        return;
    }
    memcpy(c->in->data + c->in_len, data, len);
    c->in_len = all;
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
        c->large = n > KN_SCRATCH;
        if (len - at - 4 < (size_t)n || !may_begin(c, data + at + 4, (size_t)n) ||
            kn_conn_starving(c) || !cut(c, data + at, len - at, (size_t)n, &s)) {
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

void kn_in_parse(struct kn_conn *c)
{
    size_t len = c->in_len;
    size_t used = len ? parse(c, c->in->data, len) : 0;
    if (!c->in) { /* nothing, closed, or handed over */
        return;
    }
    if (used == len) {
        kn_in_drop(c);
    } else if (used > 0) {
        memmove(c->in->data, c->in->data + used, len - used);
        c->in_len = len - used;
        c->in_since_ms = kc_mono_ms();
    }
}

/* Works on bytes that stand in the scratch. */
static void take(struct kn_conn *c, const uint8_t *data, size_t len)
{
    size_t used = c->in_len ? 0 : parse(c, data, len);
    if (c->open && used < len) {
        keep(c, data + used, len - used);
    }
}

bool kn_in_wants(const struct kn_conn *c)
{
    return c->in_len < 4 || c->in_len < end_of(c->in->data, c->in_len);
}

/* ---- the socket ---- */

/* How much of what follows a frame may be read with the rest of it: nothing if the frame will have to
 * wait, for then its buffer could not be handed over. */
static size_t behind(struct kn_conn *c, size_t room)
{
    size_t end = end_of(c->in->data, c->in_len);
    bool goes = end && c->in_len + room == end && c->in_len > 4 + 2 &&
                may_begin(c, c->in->data + 4, c->in_len - 4) && !kn_conn_starving(c);
    return !goes ? 0 : c->large ? HEAD : KN_SCRATCH;
}

/* Receives up to *asked bytes. At most two pieces: the frame under way, and the scratch. */
static ssize_t receive_once(struct kn_conn *c, size_t *asked)
{
    struct iovec iov[2] = {{NULL, 0}, {c->loop->scratch, c->large ? HEAD : KN_SCRATCH}};
    int first = 1;
    if (c->in_len) {
        first = 0;
        size_t end = end_of(c->in->data, c->in_len);
        if (c->in_len == c->in->len && !grow_in(c, room_for(c, end, c->in_len))) {
            errno = ENOMEM;
            return -1;
        }
        size_t room = c->in->len - c->in_len;
        iov[0].iov_base = c->in->data + c->in_len;
        iov[0].iov_len = end ? KC_MIN(room, end - c->in_len) : room;
        iov[1].iov_len = behind(c, iov[0].iov_len);
    }
    *asked = iov[0].iov_len + iov[1].iov_len;
    ssize_t n = readv(c->fd, iov + first, !first && iov[1].iov_len ? 2 : 1);
    if (n <= 0) {
        return n;
    }
    size_t in = KC_MIN((size_t)n, iov[0].iov_len);
    if (in) {
        c->in_len += in;
        kn_in_parse(c);
    }
    if (c->open && (size_t)n > in) {
        take(c, c->loop->scratch, (size_t)n - in);
    }
    return n;
}

void kn_in_receive(struct kn_conn *c)
{
    if (!c->loop->scratch) {
        c->loop->scratch = kc_alloc(KN_SCRATCH);
    }
    c->in_parse = true;
    size_t bytes = 0;
    for (int i = 0; i < READS_A_TURN && bytes < BYTES_A_TURN && c->open && kn_in_wants(c) &&
                    !kn_conn_starving(c);
         i++) {
        size_t asked = 0;
        ssize_t n = receive_once(c, &asked);
        if (n > 0) {
            bytes += (size_t)n;
            if ((size_t)n < asked) {
                break; /* that was all for now */
            }
            continue;
        }
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            break;
        }
        kn_close(c, NULL); /* end of stream, or a reset; nobody is left to be answered */
    }
    c->in_parse = false;
    if (bytes) {
        c->active_ms = kc_mono_ms();
        atomic_fetch_add_explicit(&c->server->counters.bytes_in, (uint64_t)bytes,
                                  memory_order_relaxed);
    }
}
