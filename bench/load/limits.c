/* limits.c - what the machine itself can do: the bounds that the figures of `./dev bench log` stand beside.
 *
 *   kaas-limits DIR [mem|net|disk|all] [SCALE]
 *
 * JSON lines {"what", "gb_s" | "us": {p50, p99, …}, …}. DIR lies on the volume's file system; SCALE, 1 if absent,
 * multiplies how much is done. Files in DIR are deleted. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/kc_base.h"
#include "base/kc_crc32c.h"

enum { MIB = 1 << 20, BLOCK = 64 << 10, SAMPLES = 20000 };

static char *block; /* a MiB of something */
static int64_t took[SAMPLES];
static double scale = 1;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static double cpu_s(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

static void say_rate(const char *what, double bytes, int64_t ns, double cpu)
{
    printf("{\"what\":\"%s\",\"gb_s\":%.3f,\"cpu_s_per_gb\":%.3f}\n", what, bytes / (double)ns,
           cpu / (bytes / 1e9));
    fflush(stdout);
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void say_times(const char *what, int n, double mb_s)
{
    qsort(took, (size_t)n, sizeof(*took), by_value);
    printf(
        "{\"what\":\"%s\",\"n\":%d,\"us\":{\"p50\":%.1f,\"p99\":%.1f,\"p999\":%.1f,\"max\":%.1f}",
        what, n, (double)took[n / 2] / 1e3, (double)took[n * 99 / 100] / 1e3,
        (double)took[(int64_t)n * 999 / 1000] / 1e3, (double)took[n - 1] / 1e3);
    printf(mb_s > 0 ? ",\"mb_s\":%.1f}\n" : "}\n", mb_s);
    fflush(stdout);
}

static int times(int n)
{
    return KC_MAX(1, KC_MIN(SAMPLES, (int)(n * scale)));
}

/* ---- memory and checksums ---- */

static void memory(void)
{
    size_t big = 256u * MIB;
    char *a = malloc(big), *b = malloc(big);
    if (!a || !b) {
        fail("memory");
    }
    memset(a, 1, big);
    memset(b, 2, big);
    int64_t t = now_ns();
    double c = cpu_s();
    memcpy(b, a, big);
    memcpy(a, b, big);
    say_rate("memcpy, larger than the caches", 2.0 * (double)big, now_ns() - t, cpu_s() - c);
    int n = times(10000);
    volatile uint32_t sink = 0;
    t = now_ns();
    c = cpu_s();
    for (int i = 0; i < n; i++) {
        sink += kc_crc32c(0, a, BLOCK);
    }
    say_rate("crc32c, 64 KiB, in the cache", (double)n * BLOCK, now_ns() - t, cpu_s() - c);
    t = now_ns();
    c = cpu_s();
    sink += kc_crc32c(0, a, big);
    say_rate("crc32c, larger than the caches", (double)big, now_ns() - t, cpu_s() - c);
    (void)sink;
    free(a);
    free(b);
}

/* ---- the loopback ---- */

struct pair {
    int from, to;
    bool drop;
};

static void connect_pair(struct pair *p)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    int on = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    p->from = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || p->from < 0 || bind(listener, (struct sockaddr *)&a, sizeof(a)) ||
        listen(listener, 1) || getsockname(listener, (struct sockaddr *)&a, &len) ||
        connect(p->from, (struct sockaddr *)&a, sizeof(a)) ||
        (p->to = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0) {
        fail("loopback");
    }
    setsockopt(p->from, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(p->to, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    close(listener);
}

static void *reader(void *ctx)
{
    struct pair *p = ctx;
    static char buf[256 << 10];
    while (recv(p->to, buf, sizeof(buf), p->drop ? MSG_TRUNC : 0) > 0) {
    }
    return NULL;
}

static void *echo(void *ctx)
{
    struct pair *p = ctx;
    char buf[64];
    ssize_t k;
    while ((k = recv(p->to, buf, sizeof(buf), 0)) > 0 && send(p->to, buf, (size_t)k, 0) > 0) {
    }
    return NULL;
}

/* Sends `goal` bytes, each time `size`; from a file when it is one. */
static void stream(const char *what, size_t size, bool drop, int file)
{
    struct pair p = {.drop = drop};
    pthread_t t;
    int64_t goal = (int64_t)(2048.0 * scale) * MIB, sent = 0;
    connect_pair(&p);
    if (pthread_create(&t, NULL, reader, &p)) {
        fail("thread");
    }
    double c = cpu_s();
    int64_t start = now_ns();
    while (sent < goal) {
        off_t at = sent % (256 * MIB);
        size_t n = file < 0 ? size : KC_MIN(size, (size_t)(256 * MIB - at));
        ssize_t k = file < 0 ? send(p.from, block, n, 0) : sendfile(p.from, file, &at, n);
        if (k <= 0) {
            fail("send");
        }
        sent += k;
    }
    shutdown(p.from, SHUT_WR);
    pthread_join(t, NULL);
    say_rate(what, (double)sent, now_ns() - start, cpu_s() - c);
    close(p.from);
    close(p.to);
}

static void loopback(const char *dir)
{
    char path[512];
    struct pair p = {0};
    pthread_t t;
    snprintf(path, sizeof(path), "%s/limits.sendfile", dir);
    int f = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (int i = 0; f >= 0 && i < 256; i++) {
        if (write(f, block, MIB) != MIB) {
            fail(path);
        }
    }
    stream("loopback send, 64 KiB", BLOCK, false, -1);
    stream("loopback send, 1 MiB", MIB, false, -1);
    stream("loopback send, 64 KiB, dropped by the reader", BLOCK, true, -1);
    stream("loopback sendfile, 1 MiB", MIB, false, f);
    stream("loopback sendfile, 1 MiB, dropped by the reader", MIB, true, f);
    close(f);
    unlink(path);
    connect_pair(&p);
    if (pthread_create(&t, NULL, echo, &p)) {
        fail("thread");
    }
    int n = times(SAMPLES);
    for (int i = 0; i < n; i++) {
        int64_t s = now_ns();
        if (send(p.from, block, 64, 0) != 64 || recv(p.from, block, 64, MSG_WAITALL) != 64) {
            fail("round trip");
        }
        took[i] = now_ns() - s;
    }
    shutdown(p.from, SHUT_WR);
    pthread_join(t, NULL);
    close(p.from);
    close(p.to);
    say_times("loopback round trip, 64 B", n, 0);
}

/* ---- the disk ---- */

static int create(const char *path)
{
    unlink(path);
    int f = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (f < 0) {
        fail(path);
    }
    return f;
}

static void synced(const char *path, size_t size, int n, bool over)
{
    char what[64];
    int f = create(path);
    for (int i = 0; over && i < n; i++) {
        if (pwrite(f, block, size, (off_t)i * (off_t)size) != (ssize_t)size) {
            fail(path);
        }
    }
    if (over && fsync(f)) {
        fail(path);
    }
    int64_t start = now_ns();
    for (int i = 0; i < n; i++) {
        int64_t t = now_ns();
        if (pwrite(f, block, size, (off_t)i * (off_t)size) != (ssize_t)size || fdatasync(f)) {
            fail(path);
        }
        took[i] = now_ns() - t;
    }
    double mb_s = (double)n * (double)size * 1e3 / (double)(now_ns() - start);
    snprintf(what, sizeof(what), "%s + fdatasync, %zu KiB", over ? "overwrite" : "append",
             size >> 10);
    say_times(what, n, mb_s);
    close(f);
}

static void disk(const char *dir)
{
    static const size_t sizes[] = {4 << 10, 16 << 10, 64 << 10, MIB};
    char path[512];
    snprintf(path, sizeof(path), "%s/limits.disk", dir);
    int f = create(path), n = times(512);
    int64_t t = now_ns();
    double c = cpu_s();
    for (int i = 0; i < n; i++) {
        if (write(f, block, MIB) != MIB) {
            fail(path);
        }
    }
    say_rate("write to the page cache, 1 MiB", (double)n * MIB, now_ns() - t, cpu_s() - c);
    if (fdatasync(f)) {
        fail(path);
    }
    say_rate("the same and one fdatasync", (double)n * MIB, now_ns() - t, cpu_s() - c);
    close(f);
    for (size_t i = 0; i < KC_ARRAY_LEN(sizes); i++) {
        synced(path, sizes[i], times(sizes[i] == MIB ? 200 : 1000), false);
        synced(path, sizes[i], times(sizes[i] == MIB ? 200 : 1000), true);
    }
    unlink(path);
}

int main(int argc, char **argv)
{
    const char *which = argc > 2 ? argv[2] : "all";
    bool all = !strcmp(which, "all");
    if (argc > 3) {
        scale = strtod(argv[3], NULL);
    }
    if (argc < 2 || argc > 4 || !(scale > 0 && scale <= 100)) {
        fprintf(stderr, "usage: kaas-limits DIR [mem|net|disk|all] [SCALE]\n");
        return 2;
    }
    block = malloc(MIB);
    if (!block) {
        fail("memory");
    }
    for (size_t i = 0; i < MIB; i++) {
        block[i] = (char)(i * 2654435761u >> 13);
    }
    if (all || !strcmp(which, "mem")) {
        memory();
    }
    if (all || !strcmp(which, "net")) {
        loopback(argv[1]);
    }
    if (all || !strcmp(which, "disk")) {
        disk(argv[1]);
    }
    free(block);
    return 0;
}
