/* layout.c - what a turn of group commit costs for N active partitions, by layout (ADR 13).
 *
 *   kaas-layout DIR LAYOUT PARTITIONS BYTES THREADS SECONDS
 *
 * LAYOUT: files    a batch into each partition's own file, THREADS threads sync them, one check
 *         journal  all batches into one journal, one sync, one check
 *         split    as journal, then each batch into its partition's file too, not synced; the files are
 *                  synced in the background by THREADS threads each 64 MiB of journal
 * Prints one JSON line: turns and batches a second, milliseconds a turn (p50, p99). */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { TURNS_MAX = 1 << 20, IOV = 1024, CHECKPOINT = 64 << 20 };

struct bench {
    const char *dir;
    int n, bytes, threads;
    int claim, journal;
    int *fds;
    uint64_t pos, journal_pos, since;
    char *batch;
    _Atomic int next;
    pthread_barrier_t start, end;
    _Atomic bool stop;
    pthread_mutex_t lock;
    pthread_cond_t more;
    bool checkpoint;
};

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int make(const struct bench *b, const char *name, int i)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s.%d", b->dir, name, i);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        fail(path);
    }
    return fd;
}

static void check(struct bench *b)
{
    struct statx st;
    if (statx(b->claim, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_SIZE | STATX_NLINK, &st)) {
        fail("statx");
    }
}

static void sync_some(struct bench *b)
{
    for (int i; (i = atomic_fetch_add(&b->next, 1)) < b->n;) {
        if (fdatasync(b->fds[i])) {
            fail("fdatasync");
        }
    }
}

static void *syncer(void *arg)
{
    struct bench *b = arg;
    for (;;) {
        pthread_barrier_wait(&b->start);
        if (atomic_load(&b->stop)) {
            return NULL;
        }
        sync_some(b);
        pthread_barrier_wait(&b->end);
    }
}

static void *checkpointer(void *arg)
{
    struct bench *b = arg;
    for (;;) {
        pthread_mutex_lock(&b->lock);
        while (!b->checkpoint && !atomic_load(&b->stop)) {
            pthread_cond_wait(&b->more, &b->lock);
        }
        b->checkpoint = false;
        pthread_mutex_unlock(&b->lock);
        if (atomic_load(&b->stop)) {
            return NULL;
        }
        atomic_store(&b->next, 0);
        pthread_barrier_wait(&b->start);
        sync_some(b);
        pthread_barrier_wait(&b->end);
    }
}

static void write_files(struct bench *b)
{
    for (int i = 0; i < b->n; i++) {
        if (pwrite(b->fds[i], b->batch, (size_t)b->bytes, (off_t)b->pos) != b->bytes) {
            fail("pwrite");
        }
    }
    b->pos += (uint64_t)b->bytes;
}

static void write_journal(struct bench *b, size_t piece, int n)
{
    struct iovec iov[IOV];
    for (int i = 0; i < n;) {
        int k = 0;
        for (; k < IOV && i < n; k++, i++) {
            iov[k] = (struct iovec){b->batch, piece};
        }
        ssize_t want = (ssize_t)piece * k;
        if (pwritev(b->journal, iov, k, (off_t)b->journal_pos) != want) {
            fail("pwritev");
        }
        b->journal_pos += (uint64_t)want;
    }
    if (fdatasync(b->journal)) {
        fail("fdatasync");
    }
}

static void turn_files(struct bench *b)
{
    write_files(b);
    atomic_store(&b->next, 0);
    if (b->threads > 1) {
        pthread_barrier_wait(&b->start);
    }
    sync_some(b);
    if (b->threads > 1) {
        pthread_barrier_wait(&b->end);
    }
    check(b);
}

static void turn_split(struct bench *b)
{
    write_journal(b, (size_t)b->bytes, b->n);
    check(b);
    write_files(b);
    b->since += (uint64_t)b->bytes * (uint64_t)b->n;
    if (b->since >= CHECKPOINT) {
        b->since = 0;
        pthread_mutex_lock(&b->lock);
        b->checkpoint = true;
        pthread_cond_signal(&b->more);
        pthread_mutex_unlock(&b->lock);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr,
                "usage: kaas-layout DIR files|journal|split PARTITIONS BYTES THREADS SECONDS\n");
        return 2;
    }
    struct bench b = {.dir = argv[1],
                      .n = (int)strtol(argv[3], NULL, 10),
                      .bytes = (int)strtol(argv[4], NULL, 10),
                      .threads = (int)strtol(argv[5], NULL, 10),
                      .lock = PTHREAD_MUTEX_INITIALIZER,
                      .more = PTHREAD_COND_INITIALIZER};
    const char *layout = argv[2];
    double seconds = atof(argv[6]);
    bool files = !strcmp(layout, "files"), split = !strcmp(layout, "split");
    struct rlimit lim = {16384, 16384};
    setrlimit(RLIMIT_NOFILE, &lim);
    b.batch = malloc((size_t)b.bytes);
    memset(b.batch, 'k', (size_t)b.bytes);
    b.claim = make(&b, "claim", 0);
    b.journal = make(&b, "journal", 0);
    b.fds = calloc((size_t)b.n, sizeof(*b.fds));
    for (int i = 0; (files || split) && i < b.n; i++) {
        b.fds[i] = make(&b, "part", i);
    }
    int helpers = files ? b.threads - 1 : split ? b.threads : 0;
    pthread_t th;
    pthread_barrier_init(&b.start, NULL, (unsigned)(files ? b.threads : b.threads));
    pthread_barrier_init(&b.end, NULL, (unsigned)(files ? b.threads : b.threads));
    for (int i = 0; i < helpers; i++) {
        pthread_create(&th, NULL, split && i == 0 ? checkpointer : syncer, &b);
    }
    double *ms = malloc(TURNS_MAX * sizeof(*ms)), t0 = now(), t = t0;
    int turns = 0;
    while (turns < TURNS_MAX && (t - t0 < seconds || turns < 3)) {
        if (files) {
            turn_files(&b);
        } else if (split) {
            turn_split(&b);
        } else {
            write_journal(&b, (size_t)b.bytes, b.n);
            check(&b);
        }
        double t1 = now();
        ms[turns++] = (t1 - t) * 1e3;
        t = t1;
    }
    qsort(ms, (size_t)turns, sizeof(*ms), by_value);
    printf("{\"layout\":\"%s\",\"partitions\":%d,\"bytes\":%d,\"threads\":%d,\"turns_s\":%.1f,"
           "\"batches_s\":%.0f,"
           "\"mb_s\":%.1f,\"ms_p50\":%.2f,\"ms_p99\":%.2f}\n",
           layout, b.n, b.bytes, b.threads, turns / (t - t0), turns * (double)b.n / (t - t0),
           turns * (double)b.n * b.bytes / 1e6 / (t - t0), ms[turns / 2], ms[turns * 99 / 100]);
    fflush(stdout);
    _exit(0);
}
