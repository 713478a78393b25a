/* The port's common half: short transfers, EINTR, and the clock that names a storage stall. */
#include "storage/ks_fs.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/kc_clock.h"
#include "storage/ks_engine.h"

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

/* The calling thread's name: asked for once, as threads are named before they work. */
static void name_thread(struct ks_fs_slot *slot)
{
    static _Thread_local uint64_t name[2];
    if (!name[0]) {
        prctl(PR_GET_NAME, name);
    }
    for (int i = 0; i < 2; i++) {
        atomic_store_explicit(&slot->thread[i], name[i], memory_order_relaxed);
    }
}

/* Takes a slot for the calling thread's operation; NULL when all are taken (then it is simply not
 * watched: more than KS_FS_SLOTS operations at once do not hide a stall of the others). */
static struct ks_fs_slot *begin(struct ks_fs *fs, const char *operation)
{
    size_t start = ((size_t)pthread_self() >> 12) % KS_FS_SLOTS;
    int64_t now = kc_mono_ms() | 1; /* never 0 */
    for (size_t i = 0; i < KS_FS_SLOTS; i++) {
        struct ks_fs_slot *slot = &fs->busy[(start + i) % KS_FS_SLOTS];
        int64_t free_mark = 0;
        if (atomic_compare_exchange_strong(&slot->since_ms, &free_mark, now)) {
            atomic_store_explicit(&slot->operation, operation, memory_order_relaxed);
            name_thread(slot);
            return slot;
        }
    }
    return NULL;
}

static void end(struct ks_fs_slot *slot)
{
    if (slot) {
        atomic_store(&slot->since_ms, 0);
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
#define CHANGING(fs, name, call)                                                                   \
    do {                                                                                           \
        struct ks_fs_slot *slot_ = begin(fs, name);                                                \
        int rc_ = (call);                                                                          \
        end(slot_);                                                                                \
        return heard(fs, rc_);                                                                     \
    } while (0)

#define WATCHED(fs, type, name, call)                                                              \
    do {                                                                                           \
        struct ks_fs_slot *slot_ = begin(fs, name);                                                \
        type rc_ = (call);                                                                         \
        end(slot_);                                                                                \
        return rc_;                                                                                \
    } while (0)

/* Names may be a moment younger than the age; an operation that is stuck does not change them. */
void ks_fs_oldest(struct ks_fs *fs, int64_t now_mono_ms, struct ks_stall *ret)
{
    *ret = (struct ks_stall){.operation = ""};
    for (size_t i = 0; i < KS_FS_SLOTS; i++) {
        struct ks_fs_slot *slot = &fs->busy[i];
        int64_t since = atomic_load_explicit(&slot->since_ms, memory_order_relaxed);
        if (!since || now_mono_ms - since <= ret->ms) {
            continue;
        }
        uint64_t name[2] = {atomic_load_explicit(&slot->thread[0], memory_order_relaxed),
                            atomic_load_explicit(&slot->thread[1], memory_order_relaxed)};
        const char *operation = atomic_load_explicit(&slot->operation, memory_order_relaxed);
        ret->ms = now_mono_ms - since;
        ret->operation = operation ? operation : "";
        memcpy(ret->thread, name, sizeof(name));
        ret->thread[sizeof(ret->thread) - 1] = '\0';
    }
}

int ks_fs_open(struct ks_fs *fs, const char *path, enum ks_open_mode mode)
{
    CHANGING(fs, "open", fs->ops->open(fs->ctx, path, mode));
}

int ks_fs_close(struct ks_fs *fs, int fd)
{
    WATCHED(fs, int, "close", fs->ops->close(fs->ctx, fd));
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
        struct ks_fs_slot *slot = begin(fs, "pwritev");
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
        struct ks_fs_slot *slot = begin(fs, "pread");
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
    CHANGING(fs, "datasync", fs->ops->datasync(fs->ctx, fd));
}

int ks_fs_syncdir(struct ks_fs *fs, const char *path)
{
    CHANGING(fs, "syncdir", fs->ops->syncdir(fs->ctx, path));
}

int ks_fs_link(struct ks_fs *fs, const char *from, const char *to)
{
    CHANGING(fs, "link", fs->ops->link(fs->ctx, from, to));
}

int ks_fs_unlink(struct ks_fs *fs, const char *path)
{
    CHANGING(fs, "unlink", fs->ops->unlink(fs->ctx, path));
}

int ks_fs_rmdir(struct ks_fs *fs, const char *path)
{
    CHANGING(fs, "rmdir", fs->ops->rmdir(fs->ctx, path));
}

int ks_fs_rename(struct ks_fs *fs, const char *from, const char *to)
{
    CHANGING(fs, "rename", fs->ops->rename(fs->ctx, from, to));
}

int ks_fs_mkdir(struct ks_fs *fs, const char *path)
{
    struct ks_fs_slot *slot = begin(fs, "mkdir");
    int rc = fs->ops->mkdir(fs->ctx, path);
    end(slot);
    return rc == -EEXIST ? 1 : heard(fs, rc);
}

int ks_fs_extend(struct ks_fs *fs, const char *path, uint64_t size)
{
    CHANGING(fs, "extend", fs->ops->extend(fs->ctx, path, size));
}

int ks_fs_stat(struct ks_fs *fs, int fd, struct ks_stat *ret)
{
    WATCHED(fs, int, "stat", fs->ops->stat(fs->ctx, fd, ret));
}

int ks_fs_list(struct ks_fs *fs, const char *path, ks_list_fn fn, void *arg)
{
    WATCHED(fs, int, "list", fs->ops->list(fs->ctx, path, fn, arg));
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
    WATCHED(fs, int, "room", fs->ops->room(fs->ctx, ret_free));
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
