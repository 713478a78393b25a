/* synced.c - writers whose file system is about to fail (disk.py).
 *
 *   synced DIR THREADS
 *
 * Each thread appends to DIR/<n> and syncs, through the port that the log uses, until the first error;
 * then a line "n bytes errno" says how much of it a sync has promised. Byte k of file n is 'a' + n. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/kc_rng.h"
#include "base/kc_str.h"
#include "storage/ks_fs.h"

enum { THREADS_MAX = 16, PIECE_MIN = 100, PIECE_MAX = 4100 };

struct writer {
    struct ks_fs *fs;
    int n;
    uint64_t synced;
    int rc;
    pthread_t thread;
};

static void *run(void *arg)
{
    struct writer *w = arg;
    char name[16];
    uint8_t piece[PIECE_MAX];
    struct kc_rng rng;
    kc_rng_seed(&rng, (uint64_t)w->n);
    memset(piece, 'a' + w->n, sizeof(piece));
    snprintf(name, sizeof(name), "%d", w->n);
    int fd = ks_fs_open(w->fs, name, KS_CREATE);
    w->rc = fd < 0 ? fd : 0;
    while (!w->rc) {
        size_t len = PIECE_MIN + (size_t)kc_rng_below(&rng, PIECE_MAX - PIECE_MIN);
        struct iovec iov = {.iov_base = piece, .iov_len = len};
        w->rc = ks_fs_pwritev(w->fs, fd, &iov, 1, w->synced);
        w->rc = w->rc ? w->rc : ks_fs_datasync(w->fs, fd);
        w->synced += w->rc ? 0 : len;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static struct ks_fs fs;
    static struct writer w[THREADS_MAX];
    struct kc_err err = {0};
    int64_t n = 0;
    if (argc != 3 || kc_parse_i64(kc_str_of(argv[2]), &n) || n < 1 || n > THREADS_MAX ||
        ks_fs_posix(&fs, argv[1], &err)) {
        fprintf(stderr, "usage: synced DIR THREADS %s\n", err.msg);
        return 2;
    }
    for (int i = 0; i < n; i++) {
        w[i] = (struct writer){.fs = &fs, .n = i};
        if (pthread_create(&w[i].thread, NULL, run, &w[i])) {
            return 1;
        }
    }
    for (int i = 0; i < n; i++) {
        pthread_join(w[i].thread, NULL);
        printf("%d %llu %d\n", i, (unsigned long long)w[i].synced, -w[i].rc);
    }
    ks_fs_fini(&fs);
    return 0;
}
