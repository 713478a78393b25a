#include "store/ko_local.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/kc_mem.h"
#include "store/ko_object.h"

enum { DELIVER_MAX_A_TURN = 256 };

/* One call-back to come: a result (watch NULL) or a watch event. */
struct delivery {
    struct kc_list link;
    uint64_t seq; /* not before this change is durable */
    ko_done done;
    struct ko_watch *watch;
    void *ctx;
    enum ko_event ev;
    int code;
    const char *reason; /* static */
    char message[200];
    json_t *doc;
};

static void watch_unref(struct ko_watch *w)
{
    if (--w->refs == 0) {
        kc_free(w->ns);
        kc_free(w->selector);
        kc_free(w);
    }
}

static void delivery_free(struct delivery *d)
{
    if (d->watch) {
        watch_unref(d->watch);
    }
    json_decref(d->doc);
    kc_free(d);
}

static void wake(struct ko_local *s)
{
    struct delivery *head = KC_LIST_ENTRY(s->deliveries.next, struct delivery, link);
    if (!s->waking && !kc_list_empty(&s->deliveries) && head->seq <= s->durable) {
        s->waking = true;
        rt_post(s->port.loop, &s->wake);
    }
}

static void hand_over(struct delivery *d)
{
    if (d->watch) {
        if (!d->watch->dead) {
            d->watch->fn(d->watch->ctx, d->ev, d->doc);
        }
    } else if (d->done) {
        struct ko_result r = {d->code, d->reason, d->message, d->doc};
        d->done(d->ctx, &r);
    }
}

void ko_local_on_wake(struct rt_msg *msg)
{
    struct ko_local *s = KC_CONTAINER_OF(msg, struct ko_local, wake);
    s->waking = false;
    if (s->freed) {
        kc_free(s);
        return;
    }
    s->waking = true; /* a call-back may free the store: then the memory is ours to free */
    for (int n = 0; n < DELIVER_MAX_A_TURN && !s->freed && !kc_list_empty(&s->deliveries); n++) {
        struct delivery *d = KC_LIST_ENTRY(s->deliveries.next, struct delivery, link);
        if (d->seq > s->durable) {
            break;
        }
        kc_list_del(&d->link);
        hand_over(d);
        delivery_free(d);
    }
    s->waking = false;
    if (s->freed) {
        kc_free(s);
        return;
    }
    wake(s);
}

void ko_local_on_durable(void *ctx, uint64_t seq)
{
    struct ko_local *s = ctx;
    s->durable = seq;
    wake(s);
}

static struct delivery *deliver(struct ko_local *s, json_t *doc)
{
    struct delivery *d = kc_zalloc(sizeof(*d));
    d->seq = s->rv;
    d->doc = json_incref(doc);
    d->reason = "";
    kc_list_add_tail(&s->deliveries, &d->link);
    if (!s->disk) {
        s->durable = s->rv;
    }
    wake(s);
    return d;
}

void ko_local_answer(const struct ko_local_call *c, int code, json_t *doc)
{
    struct delivery *d = deliver(c->s, doc);
    d->done = c->done;
    d->ctx = c->ctx;
    d->code = code;
}

void ko_local_refuse(const struct ko_local_call *c, int code, const char *reason, const char *fmt,
                     ...)
{
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    json_t *status =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:i}", "kind", "Status", "apiVersion", "v1", "status",
                  "Failure", "reason", reason, "message", text, "code", code);
    struct delivery *d = deliver(c->s, status);
    json_decref(status);
    d->done = c->done;
    d->ctx = c->ctx;
    d->code = code;
    d->reason = reason;
    memcpy(d->message, text, sizeof(text));
}

static bool watch_wants(const struct ko_watch *w, enum ko_kind k, const json_t *doc)
{
    return doc && w->kind == k && (!w->ns || strcmp(w->ns, ko_ns(doc)) == 0) &&
           ko_selector_match(w->selector, doc);
}

void ko_local_publish(struct ko_local *s, enum ko_kind k, json_t *before, json_t *after)
{
    KC_LIST_EACH(it, nx, &s->watches)
    {
        struct ko_watch *w = KC_LIST_ENTRY(it, struct ko_watch, link);
        bool had = watch_wants(w, k, before), has = watch_wants(w, k, after);
        if (!had && !has) {
            continue;
        }
        struct delivery *d = deliver(s, after ? after : before);
        d->watch = w;
        w->refs++;
        d->ev = !had ? KO_ADDED : has ? KO_MODIFIED : KO_DELETED;
    }
}

struct ko_watch *ko_local_watch(struct ko_local *s, const struct ko_watch *proto, json_t **docs,
                                size_t n)
{
    struct ko_watch *w = kc_alloc(sizeof(*w));
    *w = *proto;
    w->refs = 1;
    w->store = s;
    w->ns = proto->ns ? kc_strdup(proto->ns) : NULL;
    w->selector = proto->selector ? kc_strdup(proto->selector) : NULL;
    kc_list_add_tail(&s->watches, &w->link);
    for (size_t i = 0; i <= n; i++) {
        struct delivery *d = deliver(s, i < n ? docs[i] : NULL);
        d->watch = w;
        d->ev = i < n ? KO_ADDED : KO_SYNCED;
        w->refs++;
    }
    return w;
}

void ko_local_unwatch(struct ko_watch *w)
{
    w->dead = true;
    kc_list_del(&w->link);
    watch_unref(w);
}

void ko_local_drop_deliveries(struct ko_local *s)
{
    KC_LIST_EACH(it, nx, &s->deliveries)
    {
        kc_list_del(it);
        delivery_free(KC_LIST_ENTRY(it, struct delivery, link));
    }
}
