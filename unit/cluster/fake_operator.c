#include "fake_operator.h"

#include <stdio.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "hb/hb_frame.h"
#include "rt/rt_thread.h"

struct fop_stream {
    struct fop *f;
    uv_tcp_t tcp;
    struct hb_reader reader;
    uint8_t buf[65536];
    int slot;
    bool greeted;
};

struct out {
    uv_write_t req;
    uint8_t *data;
};

static void on_written(uv_write_t *req, int status)
{
    struct out *o = KC_CONTAINER_OF(req, struct out, req);
    (void)status;
    kc_free(o->data);
    kc_free(o);
}

static void transmit(struct fop_stream *s, const Kaas__Heartbeat__OperatorMessage *m)
{
    struct kc_dyn d;
    kc_dyn_init(&d, HB_FRAME_MAX + 4);
    KC_ASSERT(hb_encode_operator(m, &d) == 0);
    struct out *o = kc_alloc(sizeof(*o));
    size_t len;
    o->data = kc_dyn_steal(&d, &len);
    uv_buf_t b = uv_buf_init((char *)o->data, (unsigned)len);
    if (uv_write(&o->req, (uv_stream_t *)&s->tcp, &b, 1, on_written)) {
        on_written(&o->req, -1);
    }
}

static void on_closed(uv_handle_t *h)
{
    struct fop_stream *s = h->data;
    hb_reader_fini(&s->reader);
    kc_free(s);
}

static void drop(struct fop_stream *s)
{
    if (!uv_is_closing((uv_handle_t *)&s->tcp)) {
        s->f->streams[s->slot] = NULL;
        uv_close((uv_handle_t *)&s->tcp, on_closed);
    }
}

/* ---- answers; with the lock held ---- */

static void answer_hello(struct fop_stream *s)
{
    const struct fop_say *say = &s->f->say;
    Kaas__Heartbeat__HelloAnswer a = KAAS__HEARTBEAT__HELLO_ANSWER__INIT;
    Kaas__Heartbeat__OperatorMessage m = KAAS__HEARTBEAT__OPERATOR_MESSAGE__INIT;
    a.accepted = say->refuse == NULL;
    a.reason = (char *)(uintptr_t)(say->refuse ? say->refuse : "");
    a.active = say->active;
    a.term = say->order.term;
    a.want_inventory = say->want_inventory;
    a.condemned = say->refuse && kc_uuid_eq(&say->condemned, &s->f->heard.incarnation);
    m.kind_case = KAAS__HEARTBEAT__OPERATOR_MESSAGE__KIND_HELLO;
    m.hello = &a;
    s->greeted = a.accepted;
    transmit(s, &m);
}

static void answer_status(struct fop_stream *s)
{
    struct fop_say *say = &s->f->say;
    if (say->mute) {
        return;
    }
    struct kc_arena arena;
    kc_arena_init(&arena, 0, 0);
    Kaas__Heartbeat__StatusAnswer a = KAAS__HEARTBEAT__STATUS_ANSWER__INIT;
    Kaas__Heartbeat__OperatorMessage m = KAAS__HEARTBEAT__OPERATOR_MESSAGE__INIT;
    Kaas__Heartbeat__Row *rows[4];
    Kaas__Heartbeat__MoveOrder *orders[8];
    for (int32_t i = 0; i < say->n_rows; i++) {
        rows[i] = hb_row_new(&arena, &say->rows[i]);
    }
    for (int32_t i = 0; i < say->n_relays; i++) {
        orders[i] = hb_order_new(&arena, &say->relays[i], NULL);
    }
    a.image_uid = say->order.uid;
    a.term = say->order.term;
    a.generation = say->order.generation;
    a.active = say->active;
    a.condemned = kc_uuid_eq(&say->condemned, &s->f->heard.incarnation);
    a.rows = rows;
    a.n_rows = (size_t)say->n_rows;
    a.orders = orders;
    a.n_orders = (size_t)say->n_relays;
    a.gone = say->gone;
    a.n_gone = (size_t)say->n_gone;
    m.kind_case = KAAS__HEARTBEAT__OPERATOR_MESSAGE__KIND_STATUS;
    m.status = &a;
    transmit(s, &m);
    kc_arena_fini(&arena);
}

/* ---- hearing; with the lock held ---- */

static void hear_hello(struct fop_stream *s, const Kaas__Heartbeat__Hello *h)
{
    struct fop_heard *d = &s->f->heard;
    d->hellos++;
    d->stream_statuses = 0;
    d->incarnation = hb_uuid(h->incarnation);
    d->process_id = hb_uuid(h->process_id);
    snprintf(d->token, sizeof(d->token), "%s", h->token);
    snprintf(d->cluster, sizeof(d->cluster), "%s", h->cluster);
    answer_hello(s);
}

static int32_t find(const struct fop_led *list, int32_t n, const struct kp_pid *p)
{
    for (int32_t i = 0; i < n; i++) {
        if (kc_uuid_eq(&list[i].p.topic_id, &p->topic_id) && list[i].p.partition == p->partition) {
            return i;
        }
    }
    return -1;
}

static void forget(struct fop_led *list, int32_t *n, const struct kp_pid *p)
{
    int32_t i = find(list, *n, p);
    if (i >= 0) {
        list[i] = list[--*n];
    }
}

static void remember(struct fop_led *list, int32_t *n, const struct fop_led *what)
{
    forget(list, n, &what->p);
    if (*n < FO_LIST_MAX) {
        list[(*n)++] = *what;
    }
}

static void forget_all(struct fop_heard *d, const struct kp_pid *p)
{
    forget(d->led, &d->n_led, p);
    forget(d->prepared, &d->n_prepared, p);
    forget(d->released, &d->n_released, p);
}

static void hear_lists(struct fop_heard *d, const Kaas__Heartbeat__BrokerStatus *s)
{
    if (s->full) {
        d->n_led = d->n_prepared = d->n_released = 0;
    }
    for (size_t i = 0; i < s->n_unled; i++) {
        struct kp_pid p = hb_pid(s->unled[i]);
        forget_all(d, &p);
        d->n_unled++;
    }
    for (size_t i = 0; i < s->n_led; i++) {
        struct fop_led l = {.p = hb_pid(s->led[i]->partition), .epoch = s->led[i]->epoch};
        forget_all(d, &l.p);
        remember(d->led, &d->n_led, &l);
    }
    for (size_t i = 0; i < s->n_prepared; i++) {
        struct fop_led l = {.p = hb_pid(s->prepared[i]->partition),
                            .move_id = s->prepared[i]->move_id};
        remember(d->prepared, &d->n_prepared, &l);
    }
    for (size_t i = 0; i < s->n_released; i++) {
        struct fop_led l = {.p = hb_pid(s->released[i]->partition),
                            .move_id = s->released[i]->move_id};
        l.seal_len = s->released[i]->seal ? (int32_t)s->released[i]->seal->record.len : 0;
        forget_all(d, &l.p);
        remember(d->released, &d->n_released, &l);
    }
    d->n_blocked += (int32_t)s->n_blocked;
    d->n_failed += (int32_t)s->n_failed;
    d->n_deleted = (int32_t)s->n_deleted;
}

static void hear_status(struct fop_stream *s, const Kaas__Heartbeat__BrokerStatus *m)
{
    struct fop_heard *d = &s->f->heard;
    if (d->statuses++ == 0) {
        d->first_healthy = m->healthy;
        d->first_full = m->full;
        d->first_status_ms = kc_mono_ms();
    }
    d->stream_statuses++;
    d->fulls += m->full;
    d->healthy = m->healthy;
    d->storage_stalled = m->storage_stalled;
    d->serving = m->serving;
    d->image_generation = m->last_seen_version;
    snprintf(d->stall, sizeof(d->stall), "%s", m->stall_reason);
    hear_lists(d, m);
    if (m->draining && !d->draining) {
        d->drained_led = d->n_led;
    }
    d->draining = m->draining;
    answer_status(s);
}

static void hear_admin(struct fop_stream *s, const Kaas__Heartbeat__AdminRequest *r)
{
    struct fop_heard *d = &s->f->heard;
    if (d->n_admin < 16) {
        d->admin_sequence[d->n_admin] = r->sequence;
        snprintf(d->admin_topic[d->n_admin++], 64, "%s", r->topic);
    }
    if (!s->f->answer_admin) {
        return;
    }
    Kaas__Heartbeat__AdminResult a = KAAS__HEARTBEAT__ADMIN_RESULT__INIT;
    Kaas__Heartbeat__OperatorMessage m = KAAS__HEARTBEAT__OPERATOR_MESSAGE__INIT;
    a.sequence = r->sequence;
    a.partitions = r->partitions;
    a.term = s->f->say.order.term;
    a.generation = s->f->say.order.generation + 1;
    m.kind_case = KAAS__HEARTBEAT__OPERATOR_MESSAGE__KIND_ADMIN;
    m.admin = &a;
    transmit(s, &m);
}

static void hear(struct fop_stream *s, const Kaas__Heartbeat__BrokerMessage *m)
{
    struct fop *f = s->f;
    pthread_mutex_lock(&f->lock);
    switch (m->kind_case) {
    case KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_HELLO:
        hear_hello(s, m->hello);
        break;
    case KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_STATUS:
        hear_status(s, m->status);
        break;
    case KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_ADMIN:
        hear_admin(s, m->admin);
        break;
    case KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_INVENTORY:
        f->heard.n_inventory++;
        f->heard.inventory_topics = (int32_t)m->inventory->n_topics;
        break;
    default:
        break;
    }
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

/* ---- sockets ---- */

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *b)
{
    struct fop_stream *s = h->data;
    (void)hint;
    *b = uv_buf_init((char *)s->buf, sizeof(s->buf));
}

static void on_read(uv_stream_t *h, ssize_t n, const uv_buf_t *b)
{
    struct fop_stream *s = h->data;
    if (n < 0) {
        drop(s);
        return;
    }
    KC_ASSERT(hb_reader_feed(&s->reader, b->base, (size_t)n) == 0);
    struct kc_bytes frame;
    while (hb_reader_next(&s->reader, &frame, NULL) == 1) {
        struct kc_arena a;
        kc_arena_init(&a, 0, HB_ARENA_CAP);
        const Kaas__Heartbeat__BrokerMessage *m;
        struct kc_err err;
        int rc = hb_decode_broker(frame, &a, &m, &err);
        if (rc) {
            fprintf(stderr, "bad frame from the broker: %s\n", err.msg);
        }
        KC_ASSERT(rc == 0);
        hear(s, m);
        kc_arena_fini(&a);
    }
}

static void on_connection(uv_stream_t *h, int status)
{
    struct fop *f = h->data;
    KC_ASSERT(status == 0);
    struct fop_stream *s = kc_zalloc(sizeof(*s));
    s->f = f;
    hb_reader_init(&s->reader, HB_FRAME_MAX);
    uv_tcp_init(&f->loop.uv, &s->tcp);
    s->tcp.data = s;
    while (s->slot < FO_STREAMS_MAX - 1 && f->streams[s->slot]) {
        s->slot++;
    }
    f->streams[s->slot] = s;
    KC_ASSERT(uv_accept(h, (uv_stream_t *)&s->tcp) == 0);
    uv_read_start((uv_stream_t *)&s->tcp, on_alloc, on_read);
}

static void listen_now(struct fop *f, uint16_t port)
{
    struct sockaddr_in a;
    uv_ip4_addr("127.0.0.1", port, &a);
    uv_tcp_init(&f->loop.uv, &f->listener);
    f->listener.data = f;
    KC_ASSERT(uv_tcp_bind(&f->listener, (const struct sockaddr *)&a, 0) == 0);
    KC_ASSERT(uv_listen((uv_stream_t *)&f->listener, 16, on_connection) == 0);
    int len = sizeof(a);
    uv_tcp_getsockname(&f->listener, (struct sockaddr *)&a, &len);
    f->port = ntohs(a.sin_port);
}

void fop_start(struct fop *f, uint16_t port)
{
    memset(f, 0, sizeof(*f));
    pthread_mutex_init(&f->lock, NULL);
    rt_cond_init(&f->changed);
    f->heard.drained_led = -1;
    KC_ASSERT(rt_loop_init(&f->loop, "operator") == 0);
    listen_now(f, port);
    KC_ASSERT(rt_loop_start(&f->loop) == 0);
}

static void drop_all(void *arg)
{
    struct fop *f = arg;
    for (int i = 0; i < FO_STREAMS_MAX; i++) {
        if (f->streams[i]) {
            drop(f->streams[i]);
        }
    }
}

void fop_drop_streams(struct fop *f)
{
    rt_call(&f->loop, drop_all, f);
}

void fop_stop(struct fop *f)
{
    rt_call(&f->loop, drop_all, f);
    rt_loop_stop(&f->loop);
    rt_loop_join(&f->loop);
}

struct push {
    struct rt_msg msg;
    struct fop *f;
};

static void answer_all(struct rt_msg *msg)
{
    struct push *p = KC_CONTAINER_OF(msg, struct push, msg);
    pthread_mutex_lock(&p->f->lock);
    for (int i = 0; i < FO_STREAMS_MAX; i++) {
        if (p->f->streams[i] && p->f->streams[i]->greeted) {
            answer_status(p->f->streams[i]);
        }
    }
    pthread_mutex_unlock(&p->f->lock);
    kc_free(p);
}

void fop_set(struct fop *f, const struct fop_say *say)
{
    pthread_mutex_lock(&f->lock);
    f->say = *say;
    pthread_mutex_unlock(&f->lock);
    struct push *p = kc_alloc(sizeof(*p)); /* said at once, as the operator does */
    *p = (struct push){.msg.fn = answer_all, .f = f};
    rt_post(&f->loop, &p->msg);
}

bool fop_wait(struct fop *f, bool (*cond)(const struct fop_heard *h, void *ctx), void *ctx,
              int64_t timeout_ms)
{
    struct timespec at = rt_in_ms(timeout_ms);
    pthread_mutex_lock(&f->lock);
    int rc = 0;
    bool yes;
    while (!(yes = cond(&f->heard, ctx)) && rc == 0) {
        rc = pthread_cond_timedwait(&f->changed, &f->lock, &at);
    }
    pthread_mutex_unlock(&f->lock);
    return yes;
}

struct fop_heard *fop_copy(struct fop *f, struct fop_heard *ret)
{
    pthread_mutex_lock(&f->lock);
    *ret = f->heard;
    pthread_mutex_unlock(&f->lock);
    return ret;
}
