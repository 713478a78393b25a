#include "storage/ks_probe.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_rng.h"

enum { RACES = 8, TEXT = 4096 };

struct racer {
    struct ks_fs *fs;
    char tmp[KS_PATH_MAX];
    const char *prefix;
    int won[RACES];
    int error;
};

static void race_name(char out[KS_PATH_MAX], const char *prefix, int i)
{
    snprintf(out, KS_PATH_MAX, "%s.race%d", prefix, i);
}

static void *race(void *arg)
{
    struct racer *r = arg;
    for (int i = 0; i < RACES; i++) {
        char name[KS_PATH_MAX];
        race_name(name, r->prefix, i);
        int rc = ks_fs_link(r->fs, r->tmp, name);
        r->won[i] = rc == 0;
        r->error = rc && rc != -EEXIST ? rc : r->error;
    }
    return NULL;
}

static int make(struct ks_fs *fs, const char *name, const void *data, size_t len)
{
    int fd = ks_fs_open(fs, name, KS_CREATE);
    if (fd < 0) {
        return fd;
    }
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    int rc = ks_fs_pwritev(fs, fd, &iov, 1, 0);
    rc = rc ? rc : ks_fs_datasync(fs, fd);
    int closed = ks_fs_close(fs, fd);
    return rc ? rc : closed;
}

/* Two threads link two files to the same names: every name must have exactly one winner. */
static int probe_links(struct ks_fs *fs, const char *prefix, struct kc_err *err)
{
    struct racer a = {.fs = fs, .prefix = prefix}, b = {.fs = fs, .prefix = prefix};
    snprintf(a.tmp, sizeof(a.tmp), "%s.a", prefix);
    snprintf(b.tmp, sizeof(b.tmp), "%s.b", prefix);
    int rc = make(fs, a.tmp, "a", 1);
    rc = rc ? rc : make(fs, b.tmp, "b", 1);
    pthread_t helper;
    rc = rc ? rc : -pthread_create(&helper, NULL, race, &b);
    if (!rc) {
        race(&a);
        pthread_join(helper, NULL);
        rc = a.error ? a.error : b.error;
        for (int i = 0; i < RACES; i++) {
            char name[KS_PATH_MAX];
            race_name(name, prefix, i);
            ks_fs_unlink(fs, name);
            if (!rc && a.won[i] + b.won[i] != 1) {
                rc = kc_fail(err, KC_E_UNSUPPORTED, "link is not exclusive: %d winners of one name",
                             a.won[i] + b.won[i]);
            }
        }
    }
    ks_fs_unlink(fs, a.tmp);
    ks_fs_unlink(fs, b.tmp);
    return rc < 0 && rc > -1000 ? kc_fail(err, rc, "hard links: %s", kc_strerror(rc)) : rc;
}

/* What another client did to a file must be seen at once through a handle we hold. */
static int probe_attributes(struct ks_fs *fs, const char *prefix, struct kc_err *err)
{
    char name[KS_PATH_MAX], other[KS_PATH_MAX];
    struct ks_stat st = {0};
    snprintf(name, sizeof(name), "%s.attr", prefix);
    snprintf(other, sizeof(other), "%s.link", prefix);
    int rc = make(fs, name, "x", 1);
    int fd = rc ? rc : ks_fs_open(fs, name, KS_HANDLE);
    rc = fd < 0 ? fd : ks_fs_stat(fs, fd, &st);
    rc = rc ? rc : ks_fs_link(fs, name, other);
    rc = rc ? rc : ks_fs_extend(fs, other, 4096);
    rc = rc ? rc : ks_fs_stat(fs, fd, &st);
    if (!rc && (st.size != 4096 || st.nlink != 2)) {
        rc = kc_fail(err, KC_E_UNSUPPORTED,
                     "forced attributes are stale: size %llu, links %llu instead of 4096, 2",
                     (unsigned long long)st.size, (unsigned long long)st.nlink);
    }
    ks_fs_unlink(fs, other);
    ks_fs_unlink(fs, name);
    /* The link count after our own unlink proves nothing: an NFS client that still holds the file
     * open renames it instead of removing it, and one link stays. */
    if (fd >= 0) {
        ks_fs_close(fs, fd);
    }
    if (rc == -ESTALE) {
        rc = 0; /* gone is gone, too: the check treats any error as fenced */
    }
    return rc < 0 && rc > -1000 ? kc_fail(err, rc, "attributes: %s", kc_strerror(rc)) : rc;
}

static int probe_sync(struct ks_fs *fs, const char *prefix, struct ks_probe *ret,
                      struct kc_err *err)
{
    char name[KS_PATH_MAX];
    uint8_t text[TEXT];
    memset(text, 'k', sizeof(text));
    snprintf(name, sizeof(name), "%s.sync", prefix);
    int64_t before = kc_mono_us();
    int rc = make(fs, name, text, sizeof(text));
    ret->sync_us = kc_mono_us() - before;
    rc = rc ? rc : ks_fs_syncdir(fs, ".");
    ks_fs_unlink(fs, name);
    return rc ? kc_fail(err, rc, "sync: %s", kc_strerror(rc)) : 0;
}

int ks_probe_run(struct ks_fs *fs, struct ks_probe *ret, struct kc_err *err)
{
    char prefix[64];
    uint64_t random;
    kc_random_bytes(&random, sizeof(random));
    snprintf(prefix, sizeof(prefix), ".probe-%016" PRIx64, random);
    *ret = (struct ks_probe){0};
    int rc = probe_links(fs, prefix, err);
    rc = rc ? rc : probe_attributes(fs, prefix, err);
    return rc ? rc : probe_sync(fs, prefix, ret, err);
}
