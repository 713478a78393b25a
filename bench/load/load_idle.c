/* load_idle.c - connections that do nothing, and single produces: how long none is acknowledged. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/kc_mem.h"
#include "load.h"

/* A connection that was answered ApiVersions 0. */
static int open_idle(const struct ld *l)
{
    struct ld_w w = {0}, a = {0};
    int fd = ld_bootstrap(l, 0, 30000);
    if (fd < 0) {
        ld_fail("%s: %s", l->o.bootstrap, strerror(-fd));
    }
    ld_w_request(&w, 18, 0, 1);
    int rc = ld_call(fd, &w, &a);
    if (rc) {
        ld_fail("ApiVersions: %s", strerror(-rc));
    }
    kc_free(w.p);
    kc_free(a.p);
    return fd;
}

void ld_mode_idle(struct ld *l)
{
    struct ld_usage opened, held;
    int64_t n = l->o.n, worst = 0;
    int *fds = kc_zalloc((size_t)n * sizeof(*fds));
    int first = open_idle(l);
    ld_meter_start(&l->meter, &l->o);
    for (int64_t i = 0; i < n; i++) {
        int64_t t = ld_now_ns();
        fds[i] = open_idle(l);
        worst = KC_MAX(worst, ld_now_ns() - t);
    }
    int64_t end = ld_now_ns();
    ld_usage_read(l->o.pids, &opened);
    usleep((useconds_t)(l->o.hold * 1e6));
    ld_usage_read(l->o.pids, &held);
    const struct ld_usage *before = &l->meter.brokers;
    struct ld_sums sums = {.reqs = n};
    ld_meter_print(&l->meter, l->o.mode, end, &sums);
    printf(",\"n\":%ld,\"worst_ms\":%.1f,\"rss_kib_each\":%.2f,\"anon_kib_each\":%.2f,"
           "\"rss_before_mib\":%.1f,\"hold_s\":%.1f,\"idle_cpu_s\":%.2f}\n",
           (long)n, (double)worst / 1e6, (double)(held.rss_kib - before->rss_kib) / (double)n,
           (double)(held.anon_kib - before->anon_kib) / (double)n, (double)before->rss_kib / 1024,
           l->o.hold, held.user_s + held.system_s - opened.user_s - opened.system_s);
    for (int64_t i = 0; i < n; i++) {
        close(fds[i]);
    }
    close(first);
    kc_free(fds);
}

/* ---- one produce at a time ---- */

struct probe {
    struct ld *l;
    int fd, turn;
    struct ld_w request, answer;
};

/* One produce to the first partition; false: not acknowledged, the leader is asked for again. */
static bool produce_one(struct probe *p)
{
    struct ld *l = p->l;
    char name[LD_HOST];
    if (p->fd < 0) {
        int boot = ld_bootstrap(l, p->turn++, l->o.timeout_ms);
        if (boot >= 0) {
            if (!ld_metadata(l, boot)) {
                p->fd = ld_dial_broker(l, l->parts[0].leader, l->o.timeout_ms);
            }
            close(boot);
        }
        if (p->fd < 0) {
            return false;
        }
    }
    ld_produce_head(l, &p->request, 0, 1);
    ld_w_bytes(&p->request, l->batch.p, l->batch.len);
    if (!ld_call(p->fd, &p->request, &p->answer)) {
        struct ld_r r = {.p = p->answer.p, .end = p->answer.p + p->answer.len};
        ld_r_bytes(&r, 8);
        ld_r_str(&r, name, sizeof(name));
        ld_r_bytes(&r, 8);
        int16_t error = ld_r16(&r);
        if (!r.bad && !error) {
            return true;
        }
    }
    close(p->fd);
    p->fd = -1;
    return false;
}

static void probe_fini(struct probe *p)
{
    if (p->fd >= 0) {
        close(p->fd);
    }
    kc_free(p->request.p);
    kc_free(p->answer.p);
}

void ld_mode_probe(struct ld *l)
{
    static struct ld_hist took;
    struct probe p = {.l = l, .fd = -1};
    struct ld_sums sums = {0};
    int64_t fails = 0, last = 0, longest = 0, longest_at = 0;
    ld_batch_build(&l->batch, 1, KC_MIN(l->o.rec, (int64_t)100));
    ld_meter_start(&l->meter, &l->o);
    int64_t start = l->meter.start_ns;
    int64_t stop = start + (int64_t)((l->o.secs > 0 ? l->o.secs : 30) * 1e9);
    for (int64_t t; (t = ld_now_ns()) < stop;) {
        if (!produce_one(&p)) {
            fails++;
            usleep(5000);
            continue;
        }
        int64_t now = ld_now_ns();
        ld_hist_add(&took, now - t);
        sums.msgs++;
        if (last && now - last > longest) {
            longest = now - last;
            longest_at = now;
        }
        if (last && now - last > l->o.gap_ms * 1000000) {
            fprintf(stderr, "gap %.3f s until +%.3f s\n", (double)(now - last) / 1e9,
                    (double)(now - start) / 1e9);
        }
        last = now;
        usleep(1000);
    }
    sums.reqs = sums.msgs;
    ld_meter_print(&l->meter, l->o.mode, ld_now_ns(), &sums);
    printf(",\"fails\":%ld,\"gap_max_s\":%.3f,\"gap_at_s\":%.3f", (long)fails,
           (double)longest / 1e9, longest_at ? (double)(longest_at - start) / 1e9 : 0);
    ld_hist_print("ack_us", &took);
    puts("}");
    probe_fini(&p);
}

void ld_mode_first(struct ld *l)
{
    struct probe p = {.l = l, .fd = -1};
    int64_t fails = 0, stop = ld_now_ns() + (int64_t)((l->o.secs > 0 ? l->o.secs : 120) * 1e9);
    ld_batch_build(&l->batch, 1, KC_MIN(l->o.rec, (int64_t)100));
    while (!produce_one(&p)) {
        fails++;
        if (ld_now_ns() > stop) {
            ld_fail("nothing was acknowledged");
        }
        usleep(1000);
    }
    printf("{\"mode\":\"first\",\"since_t0_s\":%.4f,\"fails\":%ld}\n", ld_wall_s() - l->o.t0,
           (long)fails);
    probe_fini(&p);
}
