/* kb_req.h - one request on its way through the broker.
 *
 * Born on the connection's data loop (its home), decoded there; a handler may send it to the loop
 * that owns a partition or slot with kb_run_on and answer from there. Exactly one of kb_reply,
 * kb_no_reply, kb_drop ends it, on any loop. Answers leave a connection in request order. */
#ifndef KB_REQ_H
#define KB_REQ_H

#include "base/kc_arena.h"
#include "base/kc_buf.h"
#include "image/ki_image.h"
#include "rt/rt_loop.h"

struct kb_app;
struct kn_conn;

struct kb_req {
    struct kb_app *app;
    struct kn_conn *conn; /* a reference */
    struct rt_loop *home;
    int16_t api_key;
    int16_t version;
    int32_t correlation;
    struct kc_str client_id; /* borrows from frame */
    struct kc_str client_host; /* "/10.0.0.1", as Kafka shows it */
    int32_t listener; /* index of the listener it came through */
    const char *principal; /* "User:ANONYMOUS" on PLAINTEXT */
    int64_t arrived_ms; /* monotonic */
    struct kc_arena arena; /* everything that lives as long as the request */
    struct kc_buf *frame; /* the bytes read; decoded strings and records borrow from it */
    const void *body; /* decoded struct kw_<api>_request */
    struct ki_image *image; /* the image current at arrival; a reference */
    struct rt_msg msg; /* for kb_run_on */
    void (*next)(struct kb_req *);
    void *user; /* the handler's own, in the arena */
};

/* Handlers: one a file, `void kb_handle_<api>(struct kb_req *req)`; runs on the home loop. */
typedef void (*kb_handler)(struct kb_req *req);

/* Encodes response (a struct kw_<api>_response) at the request's version, sends it, ends req. */
void kb_reply(struct kb_req *req, const void *response);
/* Ends req without an answer: Produce with acks=0. */
void kb_no_reply(struct kb_req *req);
/* Ends req and closes its connection; why is logged. */
void kb_drop(struct kb_req *req, const char *why);
/* Continues with fn(req) on another loop (directly if this is it). */
void kb_run_on(struct kb_req *req, struct rt_loop *loop, void (*fn)(struct kb_req *));
/* Zeroed memory that lives as long as req; aborts the request's connection and returns NULL when
 * the arena's cap is hit: callers just return. */
void *kb_alloc(struct kb_req *req, size_t n, size_t size);

/* The broker's current image; a reference (ki_image_unref). Never NULL after start. [any thread] */
struct ki_image *kb_image(struct kb_app *app);

#endif
