/* fake_operator.h - an operator's heartbeat port on loopback, for the tests of broker/cluster.
 *
 * It accepts streams, answers hellos and statuses with what the test told it to say, and remembers
 * what it heard. Everything is behind one lock; fop_wait waits for a condition on what was heard. */
#ifndef FAKE_OPERATOR_H
#define FAKE_OPERATOR_H

#include <pthread.h>

#include "hb/hb_convert.h"
#include "rt/rt_loop.h"

enum { FO_LIST_MAX = 256, FO_STREAMS_MAX = 8 };

/* What it answers. */
struct fop_say {
    bool active, want_inventory, mute; /* mute: hears, answers nothing */
    struct kc_uuid condemned;
    const char *refuse; /* a hello is refused with this reason */
    struct kp_order order;
    int32_t n_rows;
    struct kp_row rows[4];
    int32_t n_relays;
    struct kp_relay relays[8];
    int32_t n_gone;
    int32_t gone[4];
};

struct fop_led {
    struct kp_pid p;
    int32_t epoch;
    uint64_t move_id; /* prepared, released */
    int32_t seal_len;
};

/* What it heard, of the last stream that spoke. */
struct fop_heard {
    int32_t hellos, statuses, fulls, stream_statuses; /* stream_statuses: on the current stream */
    struct kc_uuid incarnation, process_id;
    char token[64], cluster[64];
    bool healthy, storage_stalled, draining, serving, first_healthy, first_full;
    char stall[96];
    uint64_t image_generation;
    int64_t first_status_ms;
    int32_t n_led, n_prepared, n_released, n_blocked, n_failed, n_unled, n_deleted;
    struct fop_led led[FO_LIST_MAX], prepared[FO_LIST_MAX], released[FO_LIST_MAX];
    int32_t n_admin;
    uint64_t admin_sequence[16];
    char admin_topic[16][64];
    int32_t n_inventory; /* inventories received */
    int32_t inventory_topics;
    int32_t drained_led; /* led when draining was first heard; -1 = not heard */
};

struct fop {
    struct rt_loop loop;
    pthread_mutex_t lock; /* guards say, heard and answer_admin */
    pthread_cond_t changed;
    struct fop_say say;
    struct fop_heard heard;
    bool answer_admin;
    uv_tcp_t listener;
    struct fop_stream *streams[FO_STREAMS_MAX];
    uint16_t port;
};

void fop_start(struct fop *f, uint16_t port); /* 0 picks one: f->port */
void fop_stop(struct fop *f); /* closes everything */
void fop_drop_streams(struct fop *f); /* closes streams, goes on listening */
void fop_set(struct fop *f, const struct fop_say *say);
/* True when cond(heard) became true within the time. */
bool fop_wait(struct fop *f, bool (*cond)(const struct fop_heard *h, void *ctx), void *ctx,
              int64_t timeout_ms);
struct fop_heard *fop_copy(struct fop *f, struct fop_heard *ret);

#endif
