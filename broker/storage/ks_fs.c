/* The port's common half: short transfers, EINTR, and the clock that names a storage stall. */
#include "storage/ks_fs.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/kc_clock.h"

void ks_fs_init(struct ks_fs *fs, const struct ks_fs_ops *ops, void *ctx)
{
    memset(fs, 0, sizeof(*fs));
    fs->ops = ops;
    fs->ctx = ctx;
}

void ks_fs_fini(struct ks_fs *fs)
{
    if (fs->ops && fs->ops->fini) {
        fs->ops->fini(fs->ctx);
    }
    fs->ops = NULL;
}

/* Takes a slot for the calling thread's operation; NULL when all are taken (then it is simply not
 * watched: more than KS_FS_SLOTS operations at once do not hide a stall of the others). */
static _Atomic int64_t *begin(struct ks_fs *fs)
{
    size_t start = ((size_t)pthread_self() >> 12) % KS_FS_SLOTS;
    int64_t now = kc_mono_ms() | 1; /* never 0 */
    for (size_t i = 0; i < KS_FS_SLOTS; i++) {
        _Atomic int64_t *slot = &fs->busy[(start + i) % KS_FS_SLOTS];
        int64_t free_mark = 0;
        if (atomic_compare_exchange_strong(slot, &free_mark, now)) {
            return slot;
        }
    }
    return NULL;
}

static void end(_Atomic int64_t *slot)
{
    if (slot) {
        atomic_store(slot, 0);
    }
}

static int heard(struct ks_fs *fs, int rc)
{
    if (fs->refused && (rc == -ENOSPC || rc == -EDQUOT || rc == -EROFS)) {
        fs->refused(fs->room_ctx, rc);
    }
    return rc;
}

/* What changes the volume may be refused. */
#define CHANGING(fs, call)                                                                         \
    do {                                                                                           \
        _Atomic int64_t *slot_ = begin(fs);                                                        \
        int rc_ = (call);                                                                          \
        end(slot_);                                                                                \
        return heard(fs, rc_);                                                                     \
    } while (0)

#define WATCHED(fs, type, call)                                                                    \
    do {                                                                                           \
        _Atomic int64_t *slot_ = begin(fs);                                                        \
        type rc_ = (call);                                                                         \
        end(slot_);                                                                                \
        return rc_;                                                                                \
    } while (0)

int64_t ks_fs_oldest_ms(struct ks_fs *fs, int64_t now_mono_ms)
{
    int64_t oldest = 0;
    for (size_t i = 0; i < KS_FS_SLOTS; i++) {
        int64_t since = atomic_load_explicit(&fs->busy[i], memory_order_relaxed);
        if (since) {
            oldest = KC_MAX(oldest, now_mono_ms - since);
        }
    }
    return oldest;
}

int ks_fs_open(struct ks_fs *fs, const char *path, enum ks_open_mode mode)
{
    CHANGING(fs, fs->ops->open(fs->ctx, path, mode));
}

int ks_fs_close(struct ks_fs *fs, int fd)
{
    WATCHED(fs, int, fs->ops->close(fs->ctx, fd));
}

void ks_fs_close_later(struct ks_fs *fs, int fd)
{
    if (fs->bury) {
        fs->bury(fs->bury_ctx, fd);
    } else {
        ks_fs_close(fs, fd);
    }
}

int ks_fs_pwritev(struct ks_fs *fs, int fd, struct iovec *iov, int n, uint64_t pos)
{
    while (n > 0) {
        _Atomic int64_t *slot = begin(fs);
        ssize_t done = fs->ops->pwritev(fs->ctx, fd, iov, KC_MIN(n, 1024), pos);
        end(slot);
        if (done == -EINTR) {
            continue;
        }
        if (done < 0) {
            return heard(fs, (int)done);
        }
        if (done == 0) {
            return -EIO;
        }
        pos += (uint64_t)done;
        size_t left = (size_t)done;
        while (n > 0 && left >= iov->iov_len) {
            left -= iov->iov_len;
            iov++;
            n--;
        }
        if (left) {
            iov->iov_base = (uint8_t *)iov->iov_base + left;
            iov->iov_len -= left;
        }
    }
    return 0;
}

ssize_t ks_fs_pread(struct ks_fs *fs, int fd, void *buf, size_t len, uint64_t pos)
{
    size_t got = 0;
    while (got < len) {
        _Atomic int64_t *slot = begin(fs);
        ssize_t n = fs->ops->pread(fs->ctx, fd, (uint8_t *)buf + got, len - got, pos + got);
        end(slot);
        if (n == -EINTR) {
            continue;
        }
        if (n < 0) {
            return n;
        }
        if (n == 0) {
            break;
        }
        got += (size_t)n;
    }
    return (ssize_t)got;
}

int ks_fs_datasync(struct ks_fs *fs, int fd)
{
    CHANGING(fs, fs->ops->datasync(fs->ctx, fd));
}

int ks_fs_syncdir(struct ks_fs *fs, const char *path)
{
    CHANGING(fs, fs->ops->syncdir(fs->ctx, path));
}

int ks_fs_link(struct ks_fs *fs, const char *from, const char *to)
{
    CHANGING(fs, fs->ops->link(fs->ctx, from, to));
}

int ks_fs_unlink(struct ks_fs *fs, const char *path)
{
    CHANGING(fs, fs->ops->unlink(fs->ctx, path));
}

int ks_fs_rmdir(struct ks_fs *fs, const char *path)
{
    CHANGING(fs, fs->ops->rmdir(fs->ctx, path));
}

int ks_fs_rename(struct ks_fs *fs, const char *from, const char *to)
{
    CHANGING(fs, fs->ops->rename(fs->ctx, from, to));
}

int ks_fs_mkdir(struct ks_fs *fs, const char *path)
{
    _Atomic int64_t *slot = begin(fs);
    int rc = fs->ops->mkdir(fs->ctx, path);
    end(slot);
    return rc == -EEXIST ? 1 : heard(fs, rc);
}

int ks_fs_extend(struct ks_fs *fs, const char *path, uint64_t size)
{
    CHANGING(fs, fs->ops->extend(fs->ctx, path, size));
}

int ks_fs_stat(struct ks_fs *fs, int fd, struct ks_stat *ret)
{
    WATCHED(fs, int, fs->ops->stat(fs->ctx, fd, ret));
}

int ks_fs_list(struct ks_fs *fs, const char *path, ks_list_fn fn, void *arg)
{
    WATCHED(fs, int, fs->ops->list(fs->ctx, path, fn, arg));
}

void ks_fs_forget(struct ks_fs *fs, int fd)
{
    fs->ops->forget(fs->ctx, fd);
}

int ks_fs_room(struct ks_fs *fs, uint64_t *ret_free)
{
    if (!fs->ops->room) {
        return -ENOTSUP;
    }
    WATCHED(fs, int, fs->ops->room(fs->ctx, ret_free));
}

bool ks_fs_make_room(struct ks_fs *fs, int rc)
{
    return (rc == -ENOSPC || rc == -EDQUOT) && fs->make_room && fs->make_room(fs->room_ctx);
}

bool ks_fs_network(struct ks_fs *fs)
{
    return !fs->ops->network || fs->ops->network(fs->ctx);
}

bool ks_fs_ordered(struct ks_fs *fs)
{
    return fs->ops->ordered && fs->ops->ordered(fs->ctx);
}
