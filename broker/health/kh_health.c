/* kh_health.c - see kh_health.h. */
#include "health/kh_health.h"

#include <inttypes.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "rt/rt_http.h"

struct kh_health {
    struct kh_source src;
    struct rt_http *http;
};

void kh_terms(const struct kh_source *src, int64_t now_mono_ms, struct kh_terms *ret)
{
    *ret = (struct kh_terms){
        .listening = src->listening(src->ctx),
        .cluster = src->cluster,
        .serving = src->serving(src->ctx),
    };
    kh_vitals_read(&src->vitals, now_mono_ms, &ret->vitals);
}

static void say_loops(const struct kh_vitals_source *src, int64_t now_mono_ms, struct kc_out *o)
{
    for (int32_t i = 0; i < src->n_loops; i++) {
        int64_t age = rt_loop_age_ms(src->loops[i], now_mono_ms);
        if (age == INT64_MAX) {
            kc_out_printf(o, "  loop %d: never ticked\n", i);
        } else if (age > KH_LOOP_STALE_MS) {
            kc_out_printf(o, "  loop %d: no tick for %" PRId64 " ms\n", i, age);
        }
    }
}

static int readyz(const struct kh_source *src, struct kc_out *o)
{
    int64_t now = kc_mono_ms();
    struct kh_terms t;
    kh_terms(src, now, &t);
    kc_out_printf(o, "%s\n", kh_ready(&t) ? "ready" : "not ready");
    kc_out_printf(o, "listening: %s\n", t.listening ? "yes" : "no");
    kc_out_printf(o, "main alive: %s\n", t.vitals.main_alive ? "yes" : "no");
    if (!t.vitals.main_alive) {
        say_loops(&src->vitals, now, o);
    }
    const struct ks_stall *stall = &t.vitals.stall;
    const char *refuses = src->volume ? src->volume(src->ctx) : NULL;
    if (t.vitals.storage_ok && refuses) {
        kc_out_printf(o, "storage: %s: records are refused, reads are served\n", refuses);
    } else if (t.vitals.storage_ok) {
        kc_out_printf(o, "storage: ok\n");
    } else {
        kc_out_printf(o, "storage: stalled for %" PRId64 " ms in %s on %s\n", stall->ms,
                      stall->operation, stall->thread);
    }
    kc_out_printf(o, "serving: %s\n", !t.cluster ? "not asked for" : t.serving ? "yes" : "no");
    return kh_ready(&t) ? 200 : 503;
}

static int healthz(const struct kh_source *src, struct kc_out *o)
{
    struct kh_vitals v;
    kh_vitals_read(&src->vitals, kc_mono_ms(), &v);
    /* A loop that never ticked may be starting: the startup of a broker is bounded elsewhere. */
    bool dead = v.loop_ms > KH_LOOP_DEAD_MS && v.loop_ms != INT64_MAX;
    kc_out_printf(o, "%s\n", dead ? "dead" : "alive");
    return dead ? 503 : 200;
}

static int on_get(void *ctx, struct kc_str path, char *body, size_t cap, size_t *ret_len)
{
    struct kh_health *h = ctx;
    struct kc_out o = {body, cap, 0};
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
