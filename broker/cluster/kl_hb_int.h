/* kl_hb_int.h - shared by kl_hb.c (addresses, timing) and kl_conn.c (one connection). */
#ifndef KL_HB_INT_H
#define KL_HB_INT_H

#include "cluster/kl_hb.h"

enum kl_conn_state { KL_CONN_TOKEN, KL_CONN_CONNECTING, KL_CONN_HELLO, KL_CONN_UP, KL_CONN_CLOSED };

struct kl_hb;

/* One attempt to have a stream; freed when its handle is closed and its token job is back. */
struct kl_conn {
    struct kl_hb *hb; /* NULL once closed */
    int slot; /* of hb->peers */
    uint64_t id;
    enum kl_conn_state state;
    uv_tcp_t tcp;
    bool tcp_open, token_pending;
    uv_connect_t connect;
    struct hb_reader reader;
    char *token;
    uint64_t sent_seq;
    bool sent_full;
    bool active;
    int64_t opened_ms, heard_ms, sent_ms;
};

/* An address of the operator's host. */
struct kl_peer {
    struct sockaddr_storage addr;
    char text[64];
    bool listed; /* scratch of a resolution */
    struct kl_conn *conn;
    int64_t dial_ms; /* not before */
    int64_t backoff_ms;
    int last_error; /* logged once per change */
};

struct kl_hb {
    struct rt_loop *loop;
    struct rt_pool *dns, *io;
    struct kl_hb_opts o;
    char *host, *token_file;
    int32_t n_peers;
    struct kl_peer peers[KL_STREAMS_MAX];
    uint64_t next_id;
    uint64_t sent;
    bool resolving, closed;
    int64_t resolve_ms;
    int resolve_error;
    uv_timer_t tick, soon;
    int open_handles;
    int32_t n_conns; /* alive, closed ones included */
    struct kc_arena arena; /* of the message being built or read */
    uint8_t read_buf[64 * 1024];
};

/* kl_conn.c */
void kl_conn_dial(struct kl_hb *hb, int slot);
void kl_conn_close(struct kl_conn *c, int why);
void kl_conn_status(struct kl_conn *c, int64_t now_ms);
int kl_conn_send(struct kl_conn *c, const Kaas__Heartbeat__BrokerMessage *m);
/* kl_hb.c: a connection has ended; something that outlived kl_hb_free has come back. */
void kl_hb_conn_closed(struct kl_hb *hb, struct kl_conn *c, int why);
void kl_hb_conn_freed(struct kl_hb *hb);

#endif
