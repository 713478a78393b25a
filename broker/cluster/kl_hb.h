/* kl_hb.h - the heartbeat streams: one to every address of the operator's host.
 *
 * Names are resolved on an own pool thread every few seconds; each stream is dialled, says hello
 * with a token read for it, and then sends a status every interval and at once on any change. A
 * stream that is silent for the timeout is closed and dialled again, with a back-off that stays
 * within the interval at first (R51). What is said comes from callbacks. Owner: the control loop. */
#ifndef KL_HB_H
#define KL_HB_H

#include "hb/hb_frame.h"
#include "rt/rt_loop.h"
#include "rt/rt_pool.h"

enum { KL_STREAMS_MAX = 16 };

struct kl_hb;

struct kl_hb_callbacks {
    /* Fills a hello; borrows from the arena or from ctx. False: nobody to say hello for yet. */
    bool (*hello)(void *ctx, struct kc_arena *a, Kaas__Heartbeat__Hello *h);
    /* Fills a status with what changed after sequence `since` (full: everything) and says up to
     * which sequence it goes. False: not yet (W6). */
    bool (*status)(void *ctx, struct kc_arena *a, bool full, uint64_t since,
                   Kaas__Heartbeat__BrokerStatus *s, uint64_t *ret_seq);
    void (*hello_answer)(void *ctx, uint64_t stream, const Kaas__Heartbeat__HelloAnswer *h);
    void (*answer)(void *ctx, uint64_t stream, const Kaas__Heartbeat__StatusAnswer *s);
    void (*admin)(void *ctx, const Kaas__Heartbeat__AdminResult *r);
    /* The active operator's stream is (again) ready for requests. */
    void (*active)(void *ctx, uint64_t stream);
    void *ctx;
};

struct kl_hb_opts {
    const char *host;
    uint16_t port;
    const char *token_file; /* NULL = none */
    int64_t interval_ms, timeout_ms;
    struct kl_hb_callbacks cb;
};

/* dns and io: pools of one thread each, not shared with slow work. They must outlive the streams:
 * free them after kl_hb_free's jobs have come back, by joining before the loop ends. */
struct kl_hb *kl_hb_new(struct rt_loop *loop, struct rt_pool *dns, struct rt_pool *io,
                        const struct kl_hb_opts *o);
void kl_hb_free(struct kl_hb *hb);

void kl_hb_changed(struct kl_hb *hb); /* a status is due on every stream, at once */
void kl_hb_redial(struct kl_hb *hb); /* closes all streams and dials: another incarnation */
/* Sends on one stream: 0, KC_E_NOT_FOUND (closed meanwhile), KC_E_TOO_LARGE, KC_E_BUSY. */
int kl_hb_send(struct kl_hb *hb, uint64_t stream, const Kaas__Heartbeat__BrokerMessage *m);
uint64_t kl_hb_active(const struct kl_hb *hb); /* the active operator's stream; 0 = none */
int32_t kl_hb_up(const struct kl_hb *hb); /* accepted streams */
bool kl_hb_flushed(const struct kl_hb *hb); /* nothing waits in a socket's queue */
uint64_t kl_hb_sent(const struct kl_hb *hb); /* statuses sent, all streams */

#endif
