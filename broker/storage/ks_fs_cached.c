/* What of a file can be had without waiting for the volume (ADR 21).
 *
 * cachestat(2) counts the pages of a range that are in the page cache, in one call. It also counts those
 * that a read-ahead has only begun to fill, so a look with RWF_NOWAIT, which takes none of these, follows
 * at both ends and every PROBE_GAP between; where the call is not there (before Linux 6.5), at every
 * page. Nothing here waits. */
#include "storage/ks_fs.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    CACHESTAT = 451, /* the same number on all architectures of Linux */
    PAGE = 4096, /* at least: larger pages are looked at more than once */
    PROBE_GAP = 128 * 1024, /* a read-ahead completes in pieces about as large */
    AHEAD_PIECE = 128 * 1024 /* posix_fadvise reads no more than the device's window a call */
};

struct cachestat_range {
    uint64_t off, len;
};
struct cachestat {
    uint64_t cache, dirty, writeback, evicted, recently_evicted;
};

static bool look(int fd, uint64_t pos)
{
    uint8_t b;
    struct iovec iov = {&b, 1};
    return preadv2(fd, &iov, 1, (off_t)pos, RWF_NOWAIT) == 1;
}

/* 1 = all in the cache, 0 = not, -errno = it cannot be asked. */
static int count(int fd, uint64_t pos, uint64_t len)
{
    static _Atomic int lacking; /* the error of a kernel that does not have it */
    int rc = atomic_load_explicit(&lacking, memory_order_relaxed);
    if (rc) {
        return rc;
    }
    long page = sysconf(_SC_PAGESIZE);
    struct cachestat_range range = {pos, len};
    struct cachestat st = {0};
    if (syscall(CACHESTAT, fd, &range, &st, 0) < 0) {
        rc = -errno;
        if (rc == -ENOSYS || rc == -EPERM) {
            atomic_store_explicit(&lacking, rc, memory_order_relaxed);
        }
        return rc;
    }
    uint64_t first = pos / (uint64_t)page, last = (pos + len - 1) / (uint64_t)page;
    return st.cache >= last - first + 1;
}

bool ks_posix_cached(void *ctx, int fd, uint64_t pos, uint64_t len)
{
    (void)ctx;
    if (len == 0) {
        return true;
    }
    int rc = count(fd, pos, len);
    if (rc == 0) {
        return false;
    }
    uint64_t gap = rc > 0 ? PROBE_GAP : PAGE;
    for (uint64_t at = 0; at < len; at += gap) {
        if (!look(fd, pos + at)) {
            return false;
        }
    }
    return look(fd, pos + len - 1);
}

ssize_t ks_posix_peek(void *ctx, int fd, void *buf, size_t len, uint64_t pos)
{
    (void)ctx;
    struct iovec iov = {buf, len};
    ssize_t n = preadv2(fd, &iov, 1, (off_t)pos, RWF_NOWAIT);
    return n < 0 ? -errno : n;
}

void ks_posix_ahead(void *ctx, int fd, uint64_t pos, uint64_t len)
{
    (void)ctx;
    for (uint64_t at = 0; at < len; at += AHEAD_PIECE) {
        uint64_t n = KC_MIN(len - at, (uint64_t)AHEAD_PIECE);
        if (posix_fadvise(fd, (off_t)(pos + at), (off_t)n, POSIX_FADV_WILLNEED) != 0) {
            return; /* advice: failing only costs time */
        }
    }
}

bool ks_fs_direct(struct ks_fs *fs)
{
    return fs->ops->cached && fs->ops->peek && !ks_fs_network(fs);
}

bool ks_fs_cached(struct ks_fs *fs, int fd, uint64_t pos, uint64_t len)
{
    return fs->ops->cached && fs->ops->cached(fs->ctx, fd, pos, len);
}

ssize_t ks_fs_peek(struct ks_fs *fs, int fd, void *buf, size_t len, uint64_t pos)
{
    return fs->ops->peek ? fs->ops->peek(fs->ctx, fd, buf, len, pos) : -ENOTSUP;
}

void ks_fs_ahead(struct ks_fs *fs, int fd, uint64_t pos, uint64_t len)
{
    if (fs->ops->ahead) {
        fs->ops->ahead(fs->ctx, fd, pos, len);
    }
}
