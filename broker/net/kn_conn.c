/* kn_conn.c - one connection: frames in, answers out in the order of the requests.
 *
 * Owned by its loop. How bytes become frames is kn_in.c's, how answers leave kn_out.c's. Failure modes:
 * deadlines close the connection, as does what kn_in.c does not take; none of it costs more than this
 * connection. */
#include "net/kn_internal.h"

#include <unistd.h>

#include "base/kc_clock.h"

enum { BYTES_PER_S = 64 * 1024, SMALL = 16 * 1024 };

struct rt_loop *kn_conn_loop(const struct kn_conn *c)
{
    return c->loop->rt;
}

int32_t kn_conn_listener(const struct kn_conn *c)
{
    return c->listener;
}

bool kn_conn_open(const struct kn_conn *c)
{
    return c->open;
}

const char *kn_conn_host(const struct kn_conn *c)
{
    return c->host;
}

struct kn_conn *kn_conn_ref(struct kn_conn *c)
{
    c->refs++;
    return c;
}

void kn_conn_unref(struct kn_conn *c)
{
    KC_ASSERT(c->refs > 0);
    if (--c->refs == 0) { /* the count by address is the accepting loop's */
        c->msg.fn = kn_conn_gone;
        rt_post(c->server->loops[0].rt, &c->msg);
    }
}

/* ---- the budget ---- */

void kn_conn_charge(struct kn_conn *c, int64_t bytes)
{
    c->charged += bytes;
    atomic_fetch_add_explicit(&c->server->counters.inflight_bytes, bytes, memory_order_relaxed);
}

bool kn_conn_starving(const struct kn_conn *c)
{
    int64_t used = atomic_load_explicit(&c->server->counters.inflight_bytes, memory_order_relaxed);
    return used > c->server->limits.budget_bytes && c->charged > SMALL && c != c->loop->favoured;
}

void kn_charge(struct kn_conn *c, struct kn_place *place, size_t bytes)
{
    if (c->open) {
        place->charged += bytes;
        kn_conn_charge(c, (int64_t)bytes);
    }
}

/* ---- closing ---- */

static void on_poll_closed(uv_handle_t *h)
{
    struct kn_conn *c = h->data;
    close(c->fd);
    c->fd = -1;
    kn_conn_unref(c);
}

void kn_close(struct kn_conn *c, const char *why)
{
    if (c->open && !kc_list_empty(&c->ready_node)) { /* what was answered before is on its way */
        kc_list_del(&c->ready_node);
        kn_out_flush(c); /* may come back here */
    }
    if (!c->open) {
        return;
    }
    c->open = false;
    if (why) {
        atomic_fetch_add(&c->server->counters.protocol_errors, 1);
        kn_log_peer(c->server, "connection_closed", c->host, why);
    }
    kc_list_del(&c->node);
    kc_list_del(&c->starved_node);
    if (c->loop->favoured == c) {
        c->loop->favoured = NULL;
    }
    kn_in_drop(c);
    kn_out_drop(c);
    for (struct kn_answer *a; (a = c->parked);) {
        c->parked = a->next;
        kn_answer_free(a);
    }
    kn_conn_charge(c, -c->charged);
    atomic_fetch_sub(&c->server->counters.connections, 1);
    uv_poll_stop(&c->poll);
    uv_close((uv_handle_t *)&c->poll, on_poll_closed);
}

void kn_conn_sweep(struct kn_conn *c, int64_t now_ms)
{
    const struct kn_limits *l = &c->server->limits;
    bool waiting = c->next_in != c->next_out;
    const char *why = NULL;
    if (kn_out_wants_room(c) && now_ms - c->out_since_ms > l->stall_ms) {
        why = "the peer does not read its answers";
    } else if (c->in_len > 0 && !waiting &&
               now_ms - c->in_since_ms > l->frame_ms + (int64_t)(c->in_len / BYTES_PER_S) * 1000) {
        why = "a request was begun and not finished in time";
    } else if (!waiting && !c->out && now_ms - c->active_ms > l->idle_ms) {
        kn_close(c, NULL); /* idle is not an error: connections.max.idle.ms */
        return;
    }
    if (why) {
        atomic_fetch_add(&c->server->counters.timeouts, 1);
        kn_close(c, why);
    }
}

static void poll_for(struct kn_conn *c);

void kn_conn_resume(struct kn_conn *c)
{
    kc_list_del(&c->ready_node);
    if (!c->open || c->in_parse) {
        return;
    }
    kn_out_flush(c); /* before what comes next: it may close the connection */
    c->in_parse = true;
    if (c->open && c->in_len) {
        kn_in_parse(c);
    }
    c->in_parse = false;
    if (c->open) {
        kn_out_flush(c);
    }
    if (c->open) {
        poll_for(c);
    }
}

/* ---- sockets ---- */

static void on_ready(uv_poll_t *p, int status, int events)
{
    struct kn_conn *c = p->data;
    rt_loop_awake(c->loop->rt);
    if (status < 0) {
        kn_close(c, NULL);
        return;
    }
    if (events & UV_WRITABLE) {
        kn_out_flush(c);
    }
    if (c->open && (events & UV_READABLE)) {
        kn_in_receive(c);
    }
    kn_conn_resume(c);
}

static void poll_for(struct kn_conn *c)
{
    int want = kn_out_wants_room(c) ? UV_WRITABLE : 0;
    bool hungry = kn_in_wants(c);
    if (hungry && !kn_conn_starving(c)) {
        want |= UV_READABLE;
    } else if (kn_conn_starving(c) && kc_list_empty(&c->starved_node)) {
        kc_list_add_tail(&c->loop->starved, &c->starved_node);
        kn_loop_feed_later(c->loop);
    }
    if (want == c->events) {
        return;
    }
    c->events = want;
    if (want) {
        uv_poll_start(&c->poll, want, on_ready);
    } else {
        uv_poll_stop(&c->poll);
    }
}

/* ---- answers, in order ---- */

/* Zero-length answers stand for "no answer". */
static void settle(struct kn_conn *c, struct kn_answer *a)
{
    c->next_out++;
    c->active_ms = kc_mono_ms();
    if (a->len == 0) {
        kn_answer_free(a);
    } else {
        kn_out_add(c, a);
    }
}

void kn_send(struct kn_conn *c, struct kn_place place, struct kn_answer *a)
{
    if (!c->open) {
        kn_answer_free(a);
        return;
    }
    rt_loop_touch(c->loop->rt); /* R42: a completed request is a sign of life */
    a->seq = place.seq;
    kn_conn_charge(c, (int64_t)a->len - (int64_t)place.charged);
    struct kn_answer **at = &c->parked;
    while (*at && (*at)->seq < place.seq) {
        at = &(*at)->next;
    }
    a->next = *at;
    *at = a;
    while (c->parked && c->parked->seq == c->next_out) {
        struct kn_answer *first = c->parked;
        c->parked = first->next;
        settle(c, first);
    }
    struct kn_loop *kl = c->loop;
    if (c->in_parse || !kc_list_empty(&c->ready_node)) {
        return;
    }
    if (!kl->ready_asked) { /* what else becomes ready goes with it */
        kl->ready_asked = true;
        rt_loop_after(kl->rt, &kl->ready_end);
    }
    kc_list_add_tail(&kl->ready, &c->ready_node);
}

void kn_loop_ready_end(struct rt_after *a)
{
    struct kn_loop *kl = KC_CONTAINER_OF(a, struct kn_loop, ready_end);
    kl->ready_asked = false;
    while (!kc_list_empty(&kl->ready)) {
        kn_conn_resume(KC_LIST_ENTRY(kl->ready.next, struct kn_conn, ready_node));
    }
}

void kn_skip(struct kn_conn *c, struct kn_place place)
{
    struct kn_answer *none = kn_answer_new(0);
    if (!none) {
        kn_close(c, "no memory for an answer");
        return;
    }
    kn_send(c, place, none);
}

void kn_conn_begin(struct kn_conn *c)
{
    c->refs = 1;
    c->open = true;
    c->active_ms = kc_mono_ms();
    c->out_tail = &c->out;
    kc_list_init(&c->starved_node);
    kc_list_init(&c->ready_node);
    kc_list_add_tail(&c->loop->conns, &c->node);
    c->poll.data = c;
    int rc = uv_poll_init(&c->loop->rt->uv, &c->poll, c->fd);
    KC_ASSERT(rc == 0);
    if (atomic_load(&c->server->stop_connections)) {
        kn_close(c, NULL);
        return;
    }
    poll_for(c);
}
