/* kh_health.c - see kh_health.h. */
#include "health/kh_health.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "rt/rt_http.h"

struct kh_health {
    struct kh_source src;
    struct rt_http *http;
};

void kh_printf(struct kh_out *o, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(o->body + o->len, o->cap - o->len, fmt, ap);
    va_end(ap);
    if (n > 0 && (size_t)n < o->cap - o->len) {
        o->len += (size_t)n;
    } else {
        o->cap = o->len; /* nor does anything after it: a sample without its head says nothing */
    }
}

void kh_metric(struct kh_out *o, const char *kind, const char *name, const char *help)
{
    kh_printf(o, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

void kh_terms(const struct kh_source *src, int64_t now_mono_ms, struct kh_terms *ret)
{
    *ret = (struct kh_terms){
        .listening = src->listening(src->ctx),
        .cluster = src->cluster,
        .serving = src->serving(src->ctx),
    };
    kh_vitals_read(&src->vitals, now_mono_ms, &ret->vitals);
}

static void say_loops(const struct kh_vitals_source *src, int64_t now_mono_ms, struct kh_out *o)
{
    for (int32_t i = 0; i < src->n_loops; i++) {
        int64_t age = rt_loop_age_ms(src->loops[i], now_mono_ms);
        if (age == INT64_MAX) {
            kh_printf(o, "  loop %d: never ticked\n", i);
        } else if (age > KH_LOOP_STALE_MS) {
            kh_printf(o, "  loop %d: no tick for %" PRId64 " ms\n", i, age);
        }
    }
}

static int readyz(const struct kh_source *src, struct kh_out *o)
{
    int64_t now = kc_mono_ms();
    struct kh_terms t;
    kh_terms(src, now, &t);
    kh_printf(o, "%s\n", kh_ready(&t) ? "ready" : "not ready");
    kh_printf(o, "listening: %s\n", t.listening ? "yes" : "no");
    kh_printf(o, "main alive: %s\n", t.vitals.main_alive ? "yes" : "no");
    if (!t.vitals.main_alive) {
        say_loops(&src->vitals, now, o);
    }
    const struct ks_stall *stall = &t.vitals.stall;
    const char *refuses = src->volume ? src->volume(src->ctx) : NULL;
    if (t.vitals.storage_ok && refuses) {
        kh_printf(o, "storage: %s: records are refused, reads are served\n", refuses);
    } else if (t.vitals.storage_ok) {
        kh_printf(o, "storage: ok\n");
    } else {
        kh_printf(o, "storage: stalled for %" PRId64 " ms in %s on %s\n", stall->ms,
                  stall->operation, stall->thread);
    }
    kh_printf(o, "serving: %s\n", !t.cluster ? "not asked for" : t.serving ? "yes" : "no");
    return kh_ready(&t) ? 200 : 503;
}

static int healthz(const struct kh_source *src, struct kh_out *o)
{
    struct kh_vitals v;
    kh_vitals_read(&src->vitals, kc_mono_ms(), &v);
    /* A loop that never ticked may be starting: the startup of a broker is bounded elsewhere. */
    bool dead = v.loop_ms > KH_LOOP_DEAD_MS && v.loop_ms != INT64_MAX;
    kh_printf(o, "%s\n", dead ? "dead" : "alive");
    return dead ? 503 : 200;
}

static int on_get(void *ctx, struct kc_str path, char *body, size_t cap, size_t *ret_len)
{
    struct kh_health *h = ctx;
    struct kh_out o = {body, cap, 0};
    int status = 404;
    if (kc_str_eqz(path, "/readyz")) {
        status = readyz(&h->src, &o);
    } else if (kc_str_eqz(path, "/healthz")) {
        status = healthz(&h->src, &o);
    } else if (kc_str_eqz(path, "/metrics")) {
        h->src.metrics(h->src.ctx, &o);
        status = 200;
    }
    *ret_len = o.len;
    return status;
}

int kh_start(const char *bind, uint16_t port, const struct kh_source *src, struct kh_health **ret,
             struct kc_err *err)
{
    struct kh_health *h = kc_zalloc(sizeof(*h));
    h->src = *src;
    int rc = rt_http_start(bind, port, on_get, h, &h->http, err);
    if (rc) {
        kc_free(h);
        return rc;
    }
    *ret = h;
    return 0;
}

uint16_t kh_port(const struct kh_health *h)
{
    return rt_http_port(h->http);
}

void kh_stop(struct kh_health *h)
{
    if (h) {
        rt_http_stop(h->http);
        kc_free(h);
    }
}
