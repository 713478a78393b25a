#include "app/ko_host.h"

#include <signal.h>
#include <string.h>

#include "app/ko_metrics.h"
#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_out.h"
#include "base/kc_str.h"
#include "rt/rt_limits.h"

enum { STALE_MS = 5000, DEAD_MS = 60000 };

static size_t metrics(struct ko_host *h, char *body, size_t cap)
{
    int64_t now = kc_mono_ms();
    struct ko_metrics m = {.gauges = ko_rec_gauges(h->rec),
                           .streams = ko_control_streams(h->control),
                           .api_age_ms = rt_loop_age_ms(&h->loop, now),
                           .control_age_ms = ko_control_age_ms(h->control, now)};
    ko_rec_metrics_read(h->rec, &m.rec);
    return ko_metrics_write(&m, body, cap);
}

/* On the responder's thread: reads atomics only (R39). */
static int answer(void *ctx, struct kc_str path, char *body, size_t cap, size_t *ret_len)
{
    struct ko_host *h = ctx;
    int64_t now = kc_mono_ms();
    int64_t api = rt_loop_age_ms(&h->loop, now), control = ko_control_age_ms(h->control, now);
    struct kc_out out = {.body = body, .cap = cap};
    *ret_len = 0;
    if (kc_str_eqz(path, "/metrics")) {
        *ret_len = metrics(h, body, cap);
        return 200;
    }
    bool ready = kc_str_eqz(path, "/readyz");
    if (!ready && !kc_str_eqz(path, "/healthz")) {
        return 404;
    }
    int64_t limit = ready ? STALE_MS : DEAD_MS;
    bool synced = ko_rec_synced(h->rec);
    bool ok = api < limit && control < limit && (synced || !ready);
    kc_out_printf(&out, "%s\napi_loop=%s\ncontrol_loop=%s\nsynced=%s\n", ok ? "ready" : "not ready",
                  api < limit ? "ok" : "stale", control < limit ? "ok" : "stale",
                  synced ? "true" : "false");
    *ret_len = out.len;
    return ok ? 200 : 503;
}

static void on_signal(uv_signal_t *s, int number)
{
    struct ko_host *h = s->data;
    kc_log(KC_INFO, "operator", "event=signal number=%d", number);
    h->on_stop(h->ctx, h->signals++ > 0);
}

int ko_host_init(struct ko_host *h, struct kc_err *err)
{
    memset(h, 0, sizeof(*h));
    int rc = rt_loop_init(&h->loop, "api");
    if (rc) {
        return kc_fail(err, rc, "event loop: %s", kc_strerror(rc));
    }
    h->loop.thread = pthread_self();
    signal(SIGPIPE, SIG_IGN);
    (void)rt_raise_open_files(); /* for many streams; brokers on this machine inherit it */
    return 0;
}

int ko_host_start(struct ko_host *h, const struct ko_host_opts *o, struct kc_err *err)
{
    struct ko_rec_opts ro = o->rec;
    struct ko_control_opts co = o->control;
    ro.store = h->store;
    h->rec = ko_rec_new(&ro);
    co.store = h->store;
    co.cb = ko_rec_callbacks(h->rec);
    int rc = ko_control_start(&co, &h->loop, &h->control, err);
    rc = rc ? rc : rt_http_start(o->health_bind, o->health_port, answer, h, &h->http, err);
    if (rc) {
        return rc;
    }
    uv_signal_init(&h->loop.uv, &h->term);
    uv_signal_init(&h->loop.uv, &h->interrupt);
    h->term.data = h->interrupt.data = h;
    uv_signal_start(&h->term, on_signal, SIGTERM);
    uv_signal_start(&h->interrupt, on_signal, SIGINT);
    ko_rec_start(h->rec, h->control);
    kc_log(KC_INFO, "operator",
           "event=started version=" KO_VERSION " heartbeat_port=%u health_port=%u",
           ko_control_port(h->control), rt_http_port(h->http));
    return 0;
}

void ko_host_stop(struct ko_host *h)
{
    rt_http_stop(h->http); /* reads the others */
    h->http = NULL;
    if (h->control) {
        ko_control_stop(h->control);
    }
    if (h->rec) {
        ko_rec_stop(h->rec);
    }
    if (h->store) {
        h->store->ops->free(h->store);
    }
    rt_loop_stop(&h->loop);
}

void ko_host_run(struct ko_host *h)
{
    rt_loop_run(&h->loop);
}
