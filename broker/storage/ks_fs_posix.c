/* The port on a real file system. Every result is checked and handed on as -errno. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/kc_mem.h"
#include "storage/ks_fs.h"

#define ZFS_MAGIC 0x2fc12fc1L /* not in the kernel's own list */
#define BCACHEFS_MAGIC 0xca451a4eL

struct posix {
    int root; /* directory descriptor of the volume */
    char *path; /* of the root: truncate(2) has no *at form */
    long magic; /* of the file system */
};

/* ThreadSanitizer follows descriptors by open() and close(), but knows no openat(), and libuv closes its
 * own by system calls of its own: a number of a socket that was given to a file would still be the
 * socket for it, and the file's close a race with the socket's thread. So its builds open by a path. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KS_OPEN_BY_PATH 1
#endif
#endif

static int open_at(int root, const char *path, int flags)
{
#ifdef KS_OPEN_BY_PATH
    char full[KS_PATH_MAX + 32];
    snprintf(full, sizeof(full), "/proc/self/fd/%d/%s", root, path);
    return open(full, flags, 0640);
#else
    return openat(root, path, flags, 0640);
#endif
}

static int posix_open(void *ctx, const char *path, enum ks_open_mode mode)
{
    static const int flags[] = {
        [KS_READ] = O_RDONLY, [KS_CREATE] = O_RDWR | O_CREAT | O_EXCL, [KS_HANDLE] = O_PATH};
    struct posix *p = ctx;
    int fd;
    do {
        fd = open_at(p->root, path, flags[mode] | O_CLOEXEC | O_NOFOLLOW);
    } while (fd < 0 && errno == EINTR);
    return fd < 0 ? -errno : fd;
}

static int posix_close(void *ctx, int fd)
{
    (void)ctx;
    /* The descriptor is gone in any case; EINTR is not an error of the file (Linux). */
    return close(fd) < 0 && errno != EINTR ? -errno : 0;
}

static ssize_t posix_pwritev(void *ctx, int fd, const struct iovec *iov, int n, uint64_t pos)
{
    (void)ctx;
    ssize_t r = pwritev(fd, iov, n, (off_t)pos);
    return r < 0 ? -errno : r;
}

static ssize_t posix_pread(void *ctx, int fd, void *buf, size_t len, uint64_t pos)
{
    (void)ctx;
    ssize_t r = pread(fd, buf, len, (off_t)pos);
    return r < 0 ? -errno : r;
}

/* A sync under which the file system's own journal dies may answer 0 for bytes that nobody will see again
 * (ADR 20). What needs that journal fails from that moment on: this does, and changes nothing. */
static int journal_lives(int fd)
{
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 1) == 0 || (errno != EROFS && errno != EIO)) {
        return 0; /* ext2 and ext3 do not know it; where fd is for reading we wrote nothing */
    }
    return -errno;
}

static int posix_datasync(void *ctx, int fd)
{
    struct posix *p = ctx;
    /* Not retried on any error, EINTR included: a second call can lie (fsyncgate). */
    if (fdatasync(fd) < 0) {
        return -errno;
    }
    bool journals = p->magic == EXT4_SUPER_MAGIC || p->magic == XFS_SUPER_MAGIC;
    return journals ? journal_lives(fd) : 0;
}

static int posix_syncdir(void *ctx, const char *path)
{
    struct posix *p = ctx;
    int fd = open_at(p->root, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    int rc = fsync(fd) < 0 ? -errno : 0;
    close(fd);
    return rc;
}

static int posix_link(void *ctx, const char *from, const char *to)
{
    struct posix *p = ctx;
    return linkat(p->root, from, p->root, to, 0) < 0 ? -errno : 0;
}

static int posix_unlink(void *ctx, const char *path)
{
    struct posix *p = ctx;
    return unlinkat(p->root, path, 0) < 0 ? -errno : 0;
}

static int posix_rmdir(void *ctx, const char *path)
{
    struct posix *p = ctx;
    return unlinkat(p->root, path, AT_REMOVEDIR) < 0 ? -errno : 0;
}

static int posix_rename(void *ctx, const char *from, const char *to)
{
    struct posix *p = ctx;
    return renameat(p->root, from, p->root, to) < 0 ? -errno : 0;
}

static int posix_mkdir(void *ctx, const char *path)
{
    struct posix *p = ctx;
    return mkdirat(p->root, path, 0750) < 0 ? -errno : 0;
}

static int posix_extend(void *ctx, const char *path, uint64_t size)
{
    struct posix *p = ctx;
    size_t n = strlen(p->path) + strlen(path) + 2;
    char *full = kc_alloc(n);
    snprintf(full, n, "%s/%s", p->path, path);
    int rc = truncate(full, (off_t)size) < 0 ? -errno : 0;
    kc_free(full);
    return rc;
}

static int posix_stat(void *ctx, int fd, struct ks_stat *ret)
{
    (void)ctx;
    struct statx sx;
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_SIZE | STATX_NLINK, &sx) < 0) {
        return -errno;
    }
    if ((sx.stx_mask & (STATX_SIZE | STATX_NLINK)) != (STATX_SIZE | STATX_NLINK)) {
        return -ENOTSUP;
    }
    *ret = (struct ks_stat){.size = sx.stx_size, .nlink = sx.stx_nlink};
    return 0;
}

static int posix_list(void *ctx, const char *path, ks_list_fn fn, void *arg)
{
    struct posix *p = ctx;
    int fd = open_at(p->root, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    struct ks_stat st;
    int rc = posix_stat(ctx, fd, &st);
    DIR *d = rc ? NULL : fdopendir(fd);
    if (!d) {
        rc = rc ? rc : -errno;
        close(fd);
        return rc;
    }
    for (;;) {
        errno = 0;
        struct dirent *e = readdir(d);
        if (!e) {
            rc = -errno;
            break;
        }
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
            continue;
        }
        if (!fn(arg, e->d_name)) {
            break;
        }
    }
    closedir(d);
    return rc;
}

static void posix_forget(void *ctx, int fd)
{
    (void)ctx;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* advice: failing only costs memory */
}

static bool is_one_of(const struct posix *p, const long *magic, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p->magic == magic[i]) {
            return true;
        }
    }
    return false;
}

/* Unknown ones count as network file systems, where the longer way is taken; it is never wrong. */
static bool posix_network(void *ctx)
{
    static const long local[] = {
        EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, TMPFS_MAGIC,   OVERLAYFS_SUPER_MAGIC,
        F2FS_SUPER_MAGIC, RAMFS_MAGIC,     ZFS_MAGIC,         BCACHEFS_MAGIC};
    return !is_one_of(ctx, local, KC_ARRAY_LEN(local));
}

/* One journal for all metadata (ext4, xfs), or every name on stable storage before the answer (NFS).
 * Not those that log single inodes when they are synced (btrfs, f2fs). */
static bool posix_ordered(void *ctx)
{
    static const long ordered[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, TMPFS_MAGIC, NFS_SUPER_MAGIC};
    return is_one_of(ctx, ordered, KC_ARRAY_LEN(ordered));
}

static int posix_room(void *ctx, uint64_t *ret_free)
{
    struct posix *p = ctx;
    struct statvfs sv;
    if (fstatvfs(p->root, &sv) < 0) {
        return -errno;
    }
    *ret_free = (uint64_t)sv.f_bavail * sv.f_frsize;
    return 0;
}

static void posix_fini(void *ctx)
{
    struct posix *p = ctx;
    close(p->root);
    kc_free(p->path);
    kc_free(p);
}

int ks_fs_posix(struct ks_fs *fs, const char *dir, struct kc_err *err)
{
    static const struct ks_fs_ops ops = {
        .open = posix_open,
        .close = posix_close,
        .pwritev = posix_pwritev,
        .pread = posix_pread,
        .datasync = posix_datasync,
        .syncdir = posix_syncdir,
        .link = posix_link,
        .unlink = posix_unlink,
        .rmdir = posix_rmdir,
        .rename = posix_rename,
        .mkdir = posix_mkdir,
        .extend = posix_extend,
        .stat = posix_stat,
        .list = posix_list,
        .forget = posix_forget,
        .cached = ks_posix_cached,
        .peek = ks_posix_peek,
        .ahead = ks_posix_ahead,
        .network = posix_network,
        .ordered = posix_ordered,
        .room = posix_room,
        .fini = posix_fini,
    };
    int root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) {
        return kc_fail(err, -errno, "data directory %s: %s", dir, kc_strerror(-errno));
    }
    struct statfs sf;
    struct posix *p = kc_zalloc(sizeof(*p));
    p->root = root;
    p->magic = fstatfs(root, &sf) == 0 ? (long)sf.f_type : 0;
    p->path = kc_strdup(dir);
    ks_fs_init(fs, &ops, p);
    return 0;
}
