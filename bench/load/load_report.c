/* load_report.c - time, histograms, and what a run cost client and brokers. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

int64_t ld_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double ld_wall_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void ld_hist_add(struct ld_hist *h, int64_t ns)
{
    uint64_t v = ns < 0 ? 0 : (uint64_t)ns;
    unsigned shift = v < 64 ? 0 : 58 - (unsigned)__builtin_clzll(v); /* leaves 32 to 63 */
    h->count[shift * 64 + (v >> shift)]++;
    h->n++;
    h->sum_ns += (double)v;
    if (ns > h->max_ns) {
        h->max_ns = ns;
    }
}

static double quantile_us(const struct ld_hist *h, double q)
{
    uint64_t want = (uint64_t)(q * (double)h->n + 0.5), seen = 0;
    for (unsigned i = 0; i < 64 * 64; i++) {
        seen += h->count[i];
        if (h->count[i] && seen >= want) {
            double step = (double)(1ull << (i >> 6));
            return ((double)(i & 63) + 0.5) * step / 1e3;
        }
    }
    return (double)h->max_ns / 1e3;
}

void ld_hist_print(const char *name, const struct ld_hist *h)
{
    printf(",\"%s\":{\"n\":%" PRIu64 ",\"mean\":%.1f,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,"
           "\"p999\":%.1f,\"max\":%.1f}",
           name, h->n, h->n ? h->sum_ns / (double)h->n / 1e3 : 0, quantile_us(h, 0.5),
           quantile_us(h, 0.9), quantile_us(h, 0.99), quantile_us(h, 0.999),
           (double)h->max_ns / 1e3);
}

/* The text of a file of /proc/PID; false when the process is gone. */
static bool slurp(long pid, const char *name, char *buf, size_t cap)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%ld/%s", pid, name);
    FILE *f = fopen(path, "re");
    if (!f) {
        return false;
    }
    size_t n = fread(buf, 1, cap - 1, f);
    buf[n] = '\0';
    fclose(f);
    return n > 0;
}

static int64_t kib_of(const char *status, const char *key)
{
    const char *at = strstr(status, key);
    return at ? strtoll(at + strlen(key), NULL, 10) : 0;
}

void ld_usage_read(const char *pids, struct ld_usage *ret_usage)
{
    double tick = (double)sysconf(_SC_CLK_TCK);
    char buf[8192];
    *ret_usage = (struct ld_usage){0};
    for (const char *at = pids; at && *at;) {
        char *end;
        long pid = strtol(at, &end, 10);
        at = *end == ',' ? end + 1 : "";
        unsigned long long user = 0, system = 0;
        if (slurp(pid, "stat", buf, sizeof(buf)) && strrchr(buf, ')') &&
            sscanf(strrchr(buf, ')') + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu",
                   &user, &system) == 2) {
            ret_usage->user_s += (double)user / tick;
            ret_usage->system_s += (double)system / tick;
        }
        if (slurp(pid, "status", buf, sizeof(buf))) {
            ret_usage->rss_kib += kib_of(buf, "VmRSS:");
            ret_usage->anon_kib += kib_of(buf, "RssAnon:");
            ret_usage->peak_kib += kib_of(buf, "VmHWM:");
        }
    }
}

void ld_meter_start(struct ld_meter *m, const struct ld_opts *o)
{
    m->pids = o->pids;
    ld_usage_read(m->pids, &m->brokers);
    getrusage(RUSAGE_SELF, &m->self);
    m->start_ns = ld_now_ns();
}

static double since(struct timeval a, struct timeval b)
{
    return (double)(a.tv_sec - b.tv_sec) + (double)(a.tv_usec - b.tv_usec) / 1e6;
}

void ld_meter_print(const struct ld_meter *m, const char *mode, int64_t end_ns,
                    const struct ld_sums *sums)
{
    struct ld_usage u;
    struct rusage self;
    ld_usage_read(m->pids, &u);
    getrusage(RUSAGE_SELF, &self);
    double secs = (double)(end_ns - m->start_ns) / 1e9, gb = (double)sums->bytes / 1e9;
    printf("{\"mode\":\"%s\",\"secs\":%.4f,\"bytes\":%" PRId64 ",\"msgs\":%" PRId64
           ",\"reqs\":%" PRId64,
           mode, secs, sums->bytes, sums->msgs, sums->reqs);
    printf(",\"mb_s\":%.2f,\"msgs_s\":%.0f,\"reqs_s\":%.0f", gb * 1e3 / secs,
           (double)sums->msgs / secs, (double)sums->reqs / secs);
    printf(",\"client_cpu_s\":%.2f",
           since(self.ru_utime, m->self.ru_utime) + since(self.ru_stime, m->self.ru_stime));
    if (m->pids) {
        double user = u.user_s - m->brokers.user_s, system = u.system_s - m->brokers.system_s;
        printf(",\"broker_cpu_s\":%.2f,\"broker_user_s\":%.2f,\"broker_system_s\":%.2f",
               user + system, user, system);
        if (gb > 0) {
            printf(",\"broker_cpu_s_per_gb\":%.3f", (user + system) / gb);
        }
        printf(",\"rss_mib\":%.1f,\"anon_mib\":%.1f,\"rss_peak_mib\":%.1f",
               (double)u.rss_kib / 1024, (double)u.anon_kib / 1024, (double)u.peak_kib / 1024);
    }
}
