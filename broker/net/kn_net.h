/* kn_net.h - listeners and connections of the Kafka protocol: bytes in, whole frames out.
 *
 * This layer knows the 4-byte length prefix and nothing else of the protocol. One server a process;
 * a connection belongs to one data loop from accept to close. Listening sockets are opened early
 * (R57), so that a probe or a client finds the port before the broker is ready.
 *
 * Accepting is done on the first loop alone, which hands connections to all loops in turn.
 * SO_REUSEPORT with a socket a loop was the alternative: the kernel spreads by hash, which with the
 * few, long-lived connections of Kafka clients leaves loops idle, and a second process that binds
 * the same port by mistake would take half of the clients instead of failing.
 *
 * What a peer can cost: a connection is a few hundred bytes while it is idle; its buffer grows with
 * the bytes received (at most 16 times them), never by the length it claims; a frame must arrive within a deadline; frames
 * and answers under way are counted against one budget for the process. Past it only small requests
 * are read, and one larger one a loop, so that it slows everybody and stops nobody. */
#ifndef KN_NET_H
#define KN_NET_H

#include "base/kc_buf.h"
#include "base/kc_error.h"
#include "rt/rt_loop.h"

struct kn_server;
struct kn_conn;

struct kn_listener_opts {
    const char *name;
    const char *bind; /* a numeric address; "" = every address, IPv4 and IPv6 */
    uint16_t port; /* 0 picks one (kn_listener_port tells) */
};

struct kn_limits {
    int32_t max_frame_bytes; /* socket.request.max.bytes */
    int32_t send_buffer_bytes; /* socket.send.buffer.bytes; <= 0: the system decides */
    int32_t max_connections; /* max.connections, at first (kn_limit_connections) */
    int32_t max_connections_per_ip; /* max.connections.per.ip, likewise */
    int64_t idle_ms; /* connections.max.idle.ms */
    int64_t frame_ms; /* a frame once begun must be whole by then, plus 1 s per 64 KiB */
    int64_t stall_ms; /* a peer that does not take an answer for so long is closed */
    int64_t budget_bytes; /* frames and answers under way, all connections */
    int32_t max_pipelined; /* requests under way on one connection */
};

/* Where an answer belongs: answers leave a connection in the order of its requests. */
struct kn_place {
    uint64_t seq;
    size_t charged; /* bytes of the request counted in the budget until it is answered */
};

struct kn_handler {
    /* A whole frame without its length prefix; takes the reference frame.buf. Exactly one kn_send or
     * kn_skip follows for its place, or a kn_close. */
    void (*frame)(void *ctx, struct kn_conn *c, struct kn_place place, struct kc_slice frame);
    /* Whether a frame may be worked on while earlier ones of the same kind are under way. Others
     * wait until every earlier request is answered, as in Kafka, where a connection has one request
     * under way: a client that pipelines CreateTopics and Metadata may rely on that. Goes by the frame's
     * beginning, of which it may get only 2 bytes. */
    bool (*overlaps)(const uint8_t *frame, size_t len);
    void *ctx;
};

struct kn_counters { /* relaxed atomics; any thread reads */
    _Atomic int64_t connections;
    _Atomic uint64_t accepted, refused, protocol_errors, timeouts;
    _Atomic uint64_t bytes_in, bytes_out;
    _Atomic int64_t inflight_bytes;
    _Atomic int64_t reserved_bytes; /* for answers that are being made (kn_reserve) */
};

struct kn_opts {
    const struct kn_listener_opts *listeners;
    int32_t n_listeners;
    struct kn_limits limits;
    struct kn_handler handler;
};

/* Binds and listens; no loop is needed yet. Returns 0, or -errno with the listener named in err. */
int kn_server_new(const struct kn_opts *opts, struct kn_server **ret, struct kc_err *err);
uint16_t kn_listener_port(const struct kn_server *s, int32_t listener);
struct kn_counters *kn_server_counters(struct kn_server *s);
/* Other limits from the next connection on; those that are open stay, as in Kafka (KIP-308, KIP-402).
 * [any] */
void kn_limit_connections(struct kn_server *s, int32_t max, int32_t max_per_ip);

/* What an answer of up to `want` bytes may take of the budget: half of what is left of its first half,
 * so that answers to peers that do not read never fill it, but at least what a small answer needs; -1
 * when the whole is spent: wait. To be given back when the answer was sent or let go. [any] */
int64_t kn_reserve(struct kn_server *s, int64_t want);
void kn_give_back(struct kn_server *s, int64_t reserved); /* 0 and -1: nothing happens */

/* Begins to accept: loops[0] accepts, all loops serve. Called before the loops run, or on loops[0]. */
void kn_server_start(struct kn_server *s, struct rt_loop *const *loops, int32_t n_loops);
/* Closes the listening sockets and, when connections too is set, every connection; posts to the
 * loops and returns. [any] */
void kn_server_stop(struct kn_server *s, bool connections);
/* After the loops have ended. */
void kn_server_free(struct kn_server *s);

/* ---- connections: on the connection's loop ---- */

struct rt_loop *kn_conn_loop(const struct kn_conn *c);
int32_t kn_conn_listener(const struct kn_conn *c);
bool kn_conn_open(const struct kn_conn *c); /* false: nobody will read an answer */
const char *kn_conn_host(const struct kn_conn *c); /* "/10.0.0.1", as Kafka shows it */
struct kn_conn *kn_conn_ref(struct kn_conn *c);
void kn_conn_unref(struct kn_conn *c);

/* One answer: segments sent one after the other without copying. */
struct kn_answer {
    struct kn_answer *next;
    uint64_t seq;
    size_t len; /* of all segments */
    int32_t n, at;
    size_t off; /* sent of segs[at] */
    void *own; /* memory that segments without a buf point into; kc_freed with the answer */
    struct kc_slice segs[];
};
/* n segments, to be filled by the caller with references of their own. NULL: no memory. */
struct kn_answer *kn_answer_new(int32_t n) KC_MUST_CHECK;
void kn_answer_free(struct kn_answer *a);
/* Takes a. It leaves with what else becomes ready in the same turn of the loop, before the loop waits.
 * After a close answers are dropped. */
void kn_send(struct kn_conn *c, struct kn_place place, struct kn_answer *a);
/* Counts memory that the request at place holds besides its frame, until it is answered. */
void kn_charge(struct kn_conn *c, struct kn_place *place, size_t bytes);
/* There is no answer at this place. */
void kn_skip(struct kn_conn *c, struct kn_place place);
/* Closes at once; why is logged, at a limited rate (NULL: not logged). */
void kn_close(struct kn_conn *c, const char *why);

#endif
