/* Which addresses are dialled, and when something is said on their streams. */
#include "cluster/kl_hb_int.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_rng.h"

enum {
    TICK_MS = 50,
    SOON_MS = 2, /* changes of one burst share a status */
    RESOLVE_MS = 3000,
    RESOLVE_LOST_MS = 500, /* while no stream is up */
    BACKOFF_MIN_MS = 50
};

/* ---- names ---- */

struct resolve_job {
    struct rt_work work;
    struct rt_msg msg;
    struct kl_hb *hb;
    struct rt_loop *loop;
    char *host;
    char port[8];
    int rc; /* of getaddrinfo */
    int32_t n;
    struct sockaddr_storage addrs[KL_STREAMS_MAX];
};

static void run_resolve(struct rt_work *w)
{
    struct resolve_job *j = KC_CONTAINER_OF(w, struct resolve_job, work);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list = NULL;
    j->rc = getaddrinfo(j->host, j->port, &hints, &list);
    for (struct addrinfo *ai = list; ai && j->rc == 0 && j->n < KL_STREAMS_MAX; ai = ai->ai_next) {
        if (ai->ai_addrlen <= sizeof(j->addrs[0])) {
            memcpy(&j->addrs[j->n++], ai->ai_addr, ai->ai_addrlen);
        }
    }
    if (list) {
        freeaddrinfo(list);
    }
    rt_post(j->loop, &j->msg);
}

static void name_peer(struct kl_peer *p)
{
    char host[48] = "", serv[8] = "";
    getnameinfo((const struct sockaddr *)&p->addr, sizeof(p->addr), host, sizeof(host), serv,
                sizeof(serv), NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(p->text, sizeof(p->text), "%s:%s", host, serv);
}

static void learn_address(struct kl_hb *hb, const struct sockaddr_storage *addr)
{
    for (int32_t i = 0; i < hb->n_peers; i++) {
        if (memcmp(&hb->peers[i].addr, addr, sizeof(*addr)) == 0) {
            hb->peers[i].listed = true;
            return;
        }
    }
    if (hb->n_peers < KL_STREAMS_MAX) {
        struct kl_peer *p = &hb->peers[hb->n_peers++];
        *p = (struct kl_peer){.addr = *addr, .listed = true};
        name_peer(p);
    }
}

/* Addresses that left the name are let go once their stream has ended; an operator pod that is
 * going away may still be the active one. */
static void forget_unlisted(struct kl_hb *hb)
{
    for (int32_t i = 0; i < hb->n_peers;) {
        if (hb->peers[i].listed || hb->peers[i].conn) {
            i++;
            continue;
        }
        hb->peers[i] = hb->peers[--hb->n_peers];
        if (hb->peers[i].conn) {
            hb->peers[i].conn->slot = i;
        }
    }
}

static void on_resolved(struct rt_msg *msg)
{
    struct resolve_job *j = KC_CONTAINER_OF(msg, struct resolve_job, msg);
    struct kl_hb *hb = j->hb;
    hb->resolving = false;
    if (j->rc != hb->resolve_error && j->rc) {
        kc_log(KC_WARN, "heartbeat", "event=name_unresolved host=%s error=\"%s\"", hb->host,
               gai_strerror(j->rc));
    }
    hb->resolve_error = j->rc;
    if (j->rc == 0 && !hb->closed) {
        for (int32_t i = 0; i < hb->n_peers; i++) {
            hb->peers[i].listed = false;
        }
        for (int32_t i = 0; i < j->n; i++) {
            learn_address(hb, &j->addrs[i]);
        }
        forget_unlisted(hb);
        uv_timer_start(&hb->tick, hb->tick.timer_cb, 0, TICK_MS);
    }
    kc_free(j->host);
    kc_free(j);
    kl_hb_conn_freed(hb);
}

static void resolve(struct kl_hb *hb, int64_t now_ms)
{
    struct resolve_job *j = kc_zalloc(sizeof(*j));
    *j = (struct resolve_job){.work.fn = run_resolve,
                              .msg.fn = on_resolved,
                              .hb = hb,
                              .loop = hb->loop,
                              .host = kc_strdup(hb->host)};
    snprintf(j->port, sizeof(j->port), "%u", hb->o.port);
    hb->resolving = true;
    hb->resolve_ms = now_ms;
    rt_pool_post(hb->dns, &j->work);
}

/* ---- connections come and go ---- */

static void say(const struct kl_peer *p, const char *event, int why)
{
    kc_log(KC_WARN, "heartbeat", "event=%s operator=%s error=\"%s\"", event, p->text,
           kc_strerror(why));
}

/* A stream that was up is dialled again at once, then within a fraction of the interval: a restart
 * of the operator must not look like a lost broker (R51). */
void kl_hb_conn_closed(struct kl_hb *hb, struct kl_conn *c, int why)
{
    struct kl_peer *p = &hb->peers[c->slot];
    p->conn = NULL;
    if (hb->closed) {
        return;
    }
    int64_t cap = KC_MAX(hb->o.interval_ms, (int64_t)BACKOFF_MIN_MS);
    p->dial_ms = kc_mono_ms() + p->backoff_ms;
    p->backoff_ms = p->backoff_ms ? KC_MIN(p->backoff_ms * 2, cap) : BACKOFF_MIN_MS;
    if (why == KC_E_CANCELLED) {
        return; /* our own doing: another incarnation says hello */
    }
    if (c->state == KL_CONN_UP) {
        say(p, "stream_lost", why);
    } else if (why != p->last_error) {
        say(p, "stream_failed", why);
    }
    p->last_error = why;
}

void kl_hb_conn_freed(struct kl_hb *hb)
{
    if (hb->closed && hb->open_handles == 0 && !hb->resolving && hb->n_conns == 0) {
        kc_arena_fini(&hb->arena);
        kc_free(hb->host);
        kc_free(hb->token_file);
        kc_free(hb);
    }
}

/* ---- timing ---- */

static void on_tick(uv_timer_t *h)
{
    struct kl_hb *hb = h->data;
    int64_t now = kc_mono_ms();
    int64_t every = kl_hb_up(hb) ? RESOLVE_MS : RESOLVE_LOST_MS;
    if (!hb->resolving && (hb->resolve_ms == 0 || now - hb->resolve_ms >= every)) {
        resolve(hb, now);
    }
    int64_t silence = KC_MAX(hb->o.timeout_ms, 2 * hb->o.interval_ms);
    for (int i = 0; i < hb->n_peers; i++) {
        struct kl_conn *c = hb->peers[i].conn;
        if (!c) {
            if (now >= hb->peers[i].dial_ms && hb->peers[i].listed) {
                kl_conn_dial(hb, i);
            }
        } else if (now - c->heard_ms > silence) {
            kl_conn_close(c, KC_E_TIMEOUT);
        } else if (now - c->sent_ms >= hb->o.interval_ms) {
            kl_conn_status(c, now);
        }
    }
}

static void on_soon(uv_timer_t *h)
{
    struct kl_hb *hb = h->data;
    int64_t now = kc_mono_ms();
    for (int i = 0; i < hb->n_peers; i++) {
        if (hb->peers[i].conn) {
            kl_conn_status(hb->peers[i].conn, now);
        }
    }
}

void kl_hb_changed(struct kl_hb *hb)
{
    if (!uv_is_active((uv_handle_t *)&hb->soon)) {
        uv_timer_start(&hb->soon, on_soon, SOON_MS, 0);
    }
}

/* ---- life ---- */

struct kl_hb *kl_hb_new(struct rt_loop *loop, struct rt_pool *dns, struct rt_pool *io,
                        const struct kl_hb_opts *o)
{
    struct kl_hb *hb = kc_zalloc(sizeof(*hb));
    hb->loop = loop;
    hb->dns = dns;
    hb->io = io;
    hb->o = *o;
    hb->host = kc_strdup(o->host);
    hb->token_file = o->token_file ? kc_strdup(o->token_file) : NULL;
    kc_arena_init(&hb->arena, 16 * 1024, HB_ARENA_CAP);
    uv_timer_init(&loop->uv, &hb->tick);
    uv_timer_init(&loop->uv, &hb->soon);
    hb->tick.data = hb->soon.data = hb;
    hb->open_handles = 2;
    uv_timer_start(&hb->tick, on_tick, 0, TICK_MS);
    return hb;
}

static void on_handle_closed(uv_handle_t *h)
{
    struct kl_hb *hb = h->data;
    hb->open_handles--;
    kl_hb_conn_freed(hb);
}

static void close_all(struct kl_hb *hb)
{
    for (int i = 0; i < hb->n_peers; i++) {
        if (hb->peers[i].conn) {
            kl_conn_close(hb->peers[i].conn, KC_E_CANCELLED);
        }
    }
}

void kl_hb_free(struct kl_hb *hb)
{
    if (!hb) {
        return;
    }
    hb->closed = true;
    close_all(hb);
    uv_close((uv_handle_t *)&hb->tick, on_handle_closed);
    uv_close((uv_handle_t *)&hb->soon, on_handle_closed);
}

void kl_hb_redial(struct kl_hb *hb)
{
    close_all(hb);
    for (int i = 0; i < hb->n_peers; i++) {
        hb->peers[i].backoff_ms = 0;
        hb->peers[i].dial_ms = 0;
    }
    uv_timer_start(&hb->tick, on_tick, 0, TICK_MS);
}

/* ---- questions ---- */

static struct kl_conn *conn_of(const struct kl_hb *hb, uint64_t stream)
{
    for (int i = 0; i < hb->n_peers; i++) {
        struct kl_conn *c = hb->peers[i].conn;
        if (c && c->id == stream && c->state == KL_CONN_UP) {
            return c;
        }
    }
    return NULL;
}

int kl_hb_send(struct kl_hb *hb, uint64_t stream, const Kaas__Heartbeat__BrokerMessage *m)
{
    struct kl_conn *c = conn_of(hb, stream);
    return c ? kl_conn_send(c, m) : KC_E_NOT_FOUND;
}

uint64_t kl_hb_active(const struct kl_hb *hb)
{
    for (int i = 0; i < hb->n_peers; i++) {
        struct kl_conn *c = hb->peers[i].conn;
        if (c && c->state == KL_CONN_UP && c->active) {
            return c->id;
        }
    }
    return 0;
}

int32_t kl_hb_up(const struct kl_hb *hb)
{
    int32_t n = 0;
    for (int i = 0; i < hb->n_peers; i++) {
        n += hb->peers[i].conn && hb->peers[i].conn->state == KL_CONN_UP;
    }
    return n;
}

bool kl_hb_flushed(const struct kl_hb *hb)
{
    for (int i = 0; i < hb->n_peers; i++) {
        struct kl_conn *c = hb->peers[i].conn;
        if (c && c->state == KL_CONN_UP &&
            uv_stream_get_write_queue_size((uv_stream_t *)&c->tcp) > 0) {
            return false;
        }
    }
    return true;
}

uint64_t kl_hb_sent(const struct kl_hb *hb)
{
    return hb->sent;
}
