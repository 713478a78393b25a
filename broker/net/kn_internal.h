/* kn_internal.h - what the files of broker/net share. */
#ifndef KN_INTERNAL_H
#define KN_INTERNAL_H

#include <netinet/in.h>

#include "base/kc_list.h"
#include "base/kc_map.h"
#include "net/kn_net.h"

enum { KN_LISTENERS_MAX = 8, KN_SCRATCH = 32 * 1024, KN_HOST_LEN = 48, KN_ANSWER_MIN = 64 * 1024 };

struct kn_listener {
    struct kn_server *server;
    int32_t index;
    char name[32];
    int fd;
    uint16_t port;
    uv_poll_t poll;
    uv_timer_t pause; /* after EMFILE: accepting rests, or the loop would spin */
    bool polling;
};

/* The part of the server that lives on one loop. */
struct kn_loop {
    struct kn_server *server;
    struct rt_loop *rt;
    struct kc_list conns;
    struct kc_list starved; /* connections that wait for the budget */
    struct kc_list ready; /* connections with answers that leave before the loop waits */
    struct rt_after ready_end; /* sends them */
    bool ready_asked;
    uv_timer_t sweep; /* deadlines, once a second */
    uv_timer_t feed; /* retries starved connections; runs only while there are any */
    struct kn_conn *favoured; /* the one starved connection that may go on past the budget */
    uint8_t *scratch; /* KN_SCRATCH bytes, made with the first connection */
    bool running;
    struct rt_msg start_msg;
};

struct kn_server {
    struct kn_limits limits;
    _Atomic int32_t max_connections, max_connections_per_ip; /* in force (kn_limit_connections) */
    struct kn_handler handler;
    struct kn_counters counters;
    int32_t n_listeners;
    struct kn_listener listeners[KN_LISTENERS_MAX];
    int32_t n_loops;
    struct kn_loop *loops;
    int32_t next_loop; /* accepting loop */
    struct kc_map per_ip; /* accepting loop: address -> count, as a pointer-sized number */
    _Atomic bool stop_connections;
    _Atomic int64_t last_log_ms; /* of protocol errors */
    _Atomic uint64_t unlogged;
};

struct kn_conn {
    struct rt_msg msg; /* hand-over to its loop, and the news of its end to the accepting loop */
    struct kn_server *server;
    struct kn_loop *loop;
    struct kc_list node;
    struct kc_list starved_node;
    struct kc_list ready_node;
    uv_poll_t poll;
    int fd;
    int events; /* what poll waits for */
    int32_t refs;
    int32_t listener;
    bool open;
    bool in_parse; /* guards against parsing from within a handler */
    uint8_t ip[16];
    char host[KN_HOST_LEN];

    struct kc_buf *in; /* bytes of the frame under way (and what came behind it), or NULL */
    size_t in_len;
    bool large; /* the newest frame did not fit the scratch: the next one's head is read alone */
    int64_t in_since_ms; /* when the frame under way began */

    uint64_t next_in; /* seq of the next frame */
    uint64_t next_out; /* seq whose answer leaves next */
    bool overlap; /* the requests under way may overlap */
    struct kn_answer *parked; /* answers that wait for earlier ones, by seq */
    struct kn_answer *out, **out_tail;
    struct kn_load *load; /* bytes of a file that out waits for, or NULL */
    struct kc_buf *warm; /* some of the segment that is being sent, loaded: from warm_at of it on */
    size_t warm_at;
    int64_t active_ms; /* last byte in or out, or answer */
    int64_t out_since_ms; /* last progress of a blocked write */
    int64_t charged; /* bytes of this connection counted in the budget */
};

/* Sends what became ready since the last time. */
void kn_loop_ready_end(struct rt_after *a);
/* Starts the timer that feeds starved connections. */
void kn_loop_feed_later(struct kn_loop *kl);

/* On the connection's loop, with an accepted socket. */
void kn_conn_begin(struct kn_conn *c);
void kn_conn_sweep(struct kn_conn *c, int64_t now_ms);
/* Works on what has been received; reads again if it may. */
void kn_conn_resume(struct kn_conn *c);
void kn_conn_gone(struct rt_msg *msg); /* on the accepting loop: counts down, frees */
/* Counts bytes under way against the budget; negative ones give them back. */
void kn_conn_charge(struct kn_conn *c, int64_t bytes);

/* Whether it must leave memory to others before more is read. */
bool kn_conn_starving(const struct kn_conn *c);

/* kn_in.c */
void kn_in_receive(
    struct kn_conn *c); /* reads, and works on what is whole; may close the connection */
void kn_in_parse(struct kn_conn *c); /* works on what was received before */
/* Whether more bytes would be of use: not while a whole frame waits for its turn. */
bool kn_in_wants(const struct kn_conn *c);
void kn_in_drop(struct kn_conn *c);

/* kn_out.c */
void kn_out_add(struct kn_conn *c, struct kn_answer *a); /* takes a, behind those that wait */
/* Sends what the socket takes; what is left (c->out) waits for room. May close the connection. */
void kn_out_flush(struct kn_conn *c);
void kn_out_drop(struct kn_conn *c); /* lets go of what waits */
/* Whether there is something that waits for nothing but room in the socket. */
bool kn_out_wants_room(const struct kn_conn *c);

/* One line a second at most; the rest is counted and reported with the next line. */
void kn_log_peer(struct kn_server *s, const char *event, const char *host, const char *why);

#endif
