/* kb_dispatch.c - from a frame to its handler and back: header, version, decoding, answers.
 *
 * Runs on the connection's loop; handlers may end a request on another one. Failure modes: an
 * unknown key, a version out of range or a message that does not decode closes the connection, as in
 * Kafka; only ApiVersions answers a version that is too new (KIP-511). */
#include "handlers/kb_api.h"

#include <stdio.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "base/kc_log.h"
#include "base/kc_str.h"
#include "handlers/kb_context.h"
#include "wire/kw_api_versions.h"
#include "wire/kw_errors.h"

enum { ARENA_CHUNK = 1024, ARENA_MAX = 64 * 1024 * 1024, ANSWER_MAX = 512 * 1024 * 1024 };

struct request {
    struct kb_req req;
    struct kn_place place;
    const struct kb_api *api;
    const struct kw_api *wire;
    int64_t arrived_us;
    enum { ENDED_ANSWER, ENDED_SILENT, ENDED_DROP, ENDED_KEPT } end;
    struct kn_answer *answer;
    const char *why;
};

static const struct kb_api table[] = {
#define API(key, name, advertised, min, max) {key, #name, advertised, min, max, kb_handle_##name},
#include "handlers/api.def"
#undef API
};

const struct kb_api *kb_apis(size_t *ret_n)
{
    *ret_n = KC_ARRAY_LEN(table);
    return table;
}

const struct kb_api *kb_api_find(int16_t key)
{
    for (size_t i = 0; i < KC_ARRAY_LEN(table); i++) {
        if (table[i].key == key) {
            return &table[i];
        }
    }
    return NULL;
}

bool kb_frame_overlaps(const uint8_t *frame, size_t len)
{
    return len >= 2 && frame[0] == 0 && frame[1] == 0; /* Produce: key 0 */
}

/* ---- the end of a request ---- */

static void request_free(struct request *r)
{
    struct kb_req *req = &r->req;
    atomic_fetch_sub_explicit(&req->app->metrics.under_way, 1, memory_order_relaxed);
    ki_image_unref(req->image);
    kc_buf_unref(req->frame);
    kc_arena_fini(&req->arena);
    kn_conn_unref(req->conn);
    kc_free(r);
}

static void deliver(struct request *r)
{
    struct kb_api_counters *c = &r->req.app->metrics.api[r->req.api_key];
    kb_count(&c->requests, 1);
    kb_count(&c->us, (uint64_t)(kc_mono_us() - r->arrived_us));
    if (r->end == ENDED_ANSWER) {
        kn_send(r->req.conn, r->place, r->answer);
    } else if (r->end == ENDED_SILENT) {
        kn_skip(r->req.conn, r->place);
    } else if (r->end == ENDED_DROP) {
        kb_count(&c->dropped, 1);
        kn_close(r->req.conn, r->why);
    }
}

static void finish(struct kb_req *req)
{
    struct request *r = KC_CONTAINER_OF(req, struct request, req);
    deliver(r);
    request_free(r);
}

/* Segments of the answer: the writer's own bytes, stolen, and references to linked slices. */
static struct kn_answer *pack(struct kw_writer *w)
{
    struct kn_answer *a = kn_answer_new((int32_t)(2 * w->n_links + 1));
    if (!a) {
        return NULL;
    }
    a->n = 0;
    size_t own_len = w->own.len, at = 0;
    size_t stolen;
    uint8_t *own = kc_dyn_steal(&w->own, &stolen);
    a->own = own;
    for (size_t i = 0; i <= w->n_links; i++) {
        size_t until = i < w->n_links ? w->links[i].at : own_len;
        if (until > at) {
            a->segs[a->n++] = (struct kc_slice){NULL, own + at, until - at};
            a->len += until - at;
            at = until;
        }
        if (i < w->n_links && w->links[i].slice.len > 0) {
            struct kc_slice s = w->links[i].slice;
            if (s.buf) {
                kc_buf_ref(s.buf);
            }
            a->segs[a->n++] = s;
            a->len += s.len;
        }
    }
    return a;
}

/* NULL, with the reason logged, if the response cannot be written at this version. */
static struct kn_answer *encode(struct request *r, const void *response)
{
    struct kw_writer w;
    kw_writer_init(&w, ANSWER_MAX);
    struct kw_frame mark = kw_writer_begin_frame(&w);
    kw_response_header_encode(&w, r->wire, r->req.version, r->req.correlation);
    kw_api_encode_response(r->wire, &w, r->req.version, response);
    kw_writer_end_frame(&w, mark);
    struct kn_answer *a = NULL;
    if (w.error) {
        kc_log(KC_ERROR, "broker",
               "event=answer_not_encodable api=%s version=%d field=%s error=\"%s\"", r->api->name,
               r->req.version, w.error_field ? w.error_field : "-", kc_strerror(w.error));
    } else {
        a = pack(&w);
    }
    kw_writer_fini(&w);
    return a;
}

static void end_with(struct request *r, const void *response)
{
    r->answer = encode(r, response);
    r->end = r->answer ? ENDED_ANSWER : ENDED_DROP;
    r->why = "an answer could not be written";
}

void kb_reply(struct kb_req *req, const void *response)
{
    end_with(KC_CONTAINER_OF(req, struct request, req), response);
    kb_run_on(req, req->home, finish);
}

void kb_no_reply(struct kb_req *req)
{
    KC_CONTAINER_OF(req, struct request, req)->end = ENDED_SILENT;
    kb_run_on(req, req->home, finish);
}

void kb_drop(struct kb_req *req, const char *why)
{
    struct request *r = KC_CONTAINER_OF(req, struct request, req);
    r->end = ENDED_DROP;
    r->why = why;
    kb_run_on(req, req->home, finish);
}

static void run_next(struct rt_msg *msg)
{
    struct kb_req *req = KC_CONTAINER_OF(msg, struct kb_req, msg);
    req->next(req);
}

void kb_run_on(struct kb_req *req, struct rt_loop *loop, void (*fn)(struct kb_req *))
{
    if (rt_on_loop(loop)) {
        fn(req);
        return;
    }
    req->next = fn;
    req->msg.fn = run_next;
    rt_post(loop, &req->msg);
}

/* The request goes in the next turn of its loop, not now: callers store the NULL in what the arena holds. */
void *kb_alloc(struct kb_req *req, size_t n, size_t size)
{
    void *p = kc_arena_zalloc(&req->arena, n ? n : 1, size);
    if (!p) {
        struct request *r = KC_CONTAINER_OF(req, struct request, req);
        r->end = ENDED_DROP;
        r->why = "a request needs more memory than one may have";
        req->next = finish;
        req->msg.fn = run_next;
        rt_post(req->home, &req->msg);
    }
    return p;
}

/* ---- answering before the end ---- */

void kb_send(struct kb_req *req, const void *response)
{
    struct request *r = KC_CONTAINER_OF(req, struct request, req);
    KC_ASSERT(rt_on_loop(req->home));
    end_with(r, response);
    deliver(r);
    r->end = ENDED_KEPT;
}

static void forget(struct kb_req *req)
{
    request_free(KC_CONTAINER_OF(req, struct request, req));
}

void kb_end(struct kb_req *req)
{
    kb_run_on(req, req->home, forget);
}

/* ---- the beginning ---- */

void kb_charge(struct kb_req *req, size_t bytes)
{
    kn_charge(req->conn, &KC_CONTAINER_OF(req, struct request, req)->place, bytes);
}

/* KIP-511: the client learns from a version-0 answer that names only ApiVersions. */
static void refuse_api_versions(struct request *r)
{
    struct kw_api_versions_response resp;
    kw_api_versions_response_init(&resp);
    struct kw_api_versions_response_api_version self = {KW_API_VERSIONS, r->api->advertised_min,
                                                        r->api->max};
    resp.error_code = KAFKA_UNSUPPORTED_VERSION;
    resp.api_keys = &self;
    resp.n_api_keys = 1;
    r->req.version = 0;
    kb_reply(&r->req, &resp);
}

static void start(struct request *r, struct kw_cursor *c, const struct kw_request_header *h)
{
    struct kb_req *req = &r->req;
    if (h->api_version > r->api->max && h->api_key == KW_API_VERSIONS) {
        refuse_api_versions(r);
        return;
    }
    void *body = kc_arena_alloc(&req->arena, r->wire->request_size);
    if (!body || kw_api_decode_request(r->wire, c, h->api_version, &req->arena, body)) {
        kb_drop(req, "a request does not decode");
        return;
    }
    req->body = body;
    kb_charge(req, req->arena.used); /* a small frame may decode to much */
    r->api->handle(req);
}

static struct request *request_new(struct kb_app *app, struct kn_conn *c, struct kn_place place,
                                   struct kc_buf *frame)
{
    struct request *r = kc_try_zalloc(1, sizeof(*r));
    if (!r) {
        return NULL;
    }
    r->place = place;
    r->arrived_us = kc_mono_us();
    struct kb_req *req = &r->req;
    req->app = app;
    req->conn = kn_conn_ref(c);
    req->home = kn_conn_loop(c);
    req->client_host = kc_str_of(kn_conn_host(c));
    req->listener = kn_conn_listener(c);
    req->principal = "User:ANONYMOUS";
    req->arrived_ms = r->arrived_us / 1000;
    req->frame = frame;
    req->image = kb_image(app);
    kc_arena_init(&req->arena, ARENA_CHUNK, ARENA_MAX);
    atomic_fetch_add_explicit(&app->metrics.under_way, 1, memory_order_relaxed);
    return r;
}

void kb_on_frame(void *ctx, struct kn_conn *c, struct kn_place place, struct kc_slice frame)
{
    struct kb_app *app = ctx;
    struct kw_cursor cur;
    struct kw_request_header h;
    kw_cursor_init(&cur, frame.ptr, frame.len);
    int rc = kw_request_header_decode(&cur, &h);
    const struct kb_api *api = rc ? NULL : kb_api_find(h.api_key);
    bool known = api && (h.api_version >= api->min || h.api_key == KW_API_VERSIONS) &&
                 (h.api_version <= api->max || h.api_key == KW_API_VERSIONS) && h.api_version >= 0;
    struct request *r = known ? request_new(app, c, place, frame.buf) : NULL;
    if (!r) {
        char why[96];
        kb_count(&app->metrics.unsupported, 1);
        snprintf(why, sizeof(why), "api key %d version %d is not served", h.api_key, h.api_version);
        kn_close(c, rc && rc != KC_E_UNSUPPORTED ? "a request header does not decode" : why);
        kc_buf_unref(frame.buf);
        return;
    }
    r->api = api;
    r->wire = kw_api_find(api->key);
    r->req.api_key = h.api_key;
    r->req.version = h.api_version;
    r->req.correlation = h.correlation;
    r->req.client_id = h.client_id;
    start(r, &cur, &h);
}
