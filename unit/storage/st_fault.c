/* A file system with faults: the real one, with hooks around every operation. */
#include "st.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { FDS = 65536 };

struct fault {
    struct ks_fs real;
    const struct st_hooks *hooks;
    _Atomic(char *) path[FDS]; /* of open descriptors */
};

static int before(struct fault *f, enum st_op op, const char *path)
{
    return f->hooks->before ? f->hooks->before(f->hooks->ctx, op, path ? path : "") : 0;
}

static int after(struct fault *f, enum st_op op, const char *path, int rc)
{
    return f->hooks->after ? f->hooks->after(f->hooks->ctx, op, path ? path : "", rc) : rc;
}

static int f_open(void *ctx, const char *path, enum ks_open_mode mode)
{
    struct fault *f = ctx;
    enum st_op op = mode == KS_CREATE ? ST_CREATE : ST_OPEN;
    int rc = before(f, op, path);
    int fd = rc ? rc : f->real.ops->open(f->real.ctx, path, mode);
    rc = after(f, op, path, fd);
    if (fd >= 0 && rc < 0) {
        f->real.ops->close(f->real.ctx, fd); /* done, but told as an error */
    }
    if (rc >= 0) {
        KT_REQUIRE(rc < FDS);
        atomic_store(&f->path[rc], strdup(path));
    }
    return rc;
}

static int f_close(void *ctx, int fd)
{
    struct fault *f = ctx;
    char *path = atomic_exchange(&f->path[fd], NULL);
    int rc = after(f, ST_CLOSE, path, f->real.ops->close(f->real.ctx, fd));
    free(path);
    return rc;
}

static ssize_t f_pwritev(void *ctx, int fd, const struct iovec *iov, int n, uint64_t pos)
{
    struct fault *f = ctx;
    int rc = before(f, ST_PWRITE, f->path[fd]);
    if (rc == ST_SHORT) {
        struct iovec part = {.iov_base = iov->iov_base, .iov_len = (iov->iov_len + 1) / 2};
        return f->real.ops->pwritev(f->real.ctx, fd, &part, 1, pos);
    }
    return rc ? rc : f->real.ops->pwritev(f->real.ctx, fd, iov, n, pos);
}

static ssize_t f_pread(void *ctx, int fd, void *buf, size_t len, uint64_t pos)
{
    struct fault *f = ctx;
    int rc = before(f, ST_PREAD, f->path[fd]);
    if (rc == ST_SHORT) {
        return f->real.ops->pread(f->real.ctx, fd, buf, KC_MIN(len, (size_t)7), pos);
    }
    return rc ? rc : f->real.ops->pread(f->real.ctx, fd, buf, len, pos);
}

static int f_datasync(void *ctx, int fd)
{
    struct fault *f = ctx;
    int rc = before(f, ST_DATASYNC, f->path[fd]);
    return after(f, ST_DATASYNC, f->path[fd], rc ? rc : f->real.ops->datasync(f->real.ctx, fd));
}

/* An operation on a name, told by `about`. */
#define NAMED(op, about, call)                                                                     \
    do {                                                                                           \
        struct fault *f = ctx;                                                                     \
        int rc_ = before(f, op, about);                                                            \
        return after(f, op, about, rc_ ? rc_ : f->real.ops->call);                                 \
    } while (0)

static int f_syncdir(void *ctx, const char *path)
{
    NAMED(ST_SYNCDIR, path, syncdir(f->real.ctx, path));
}

static int f_link(void *ctx, const char *from, const char *to)
{
    NAMED(ST_LINK, to, link(f->real.ctx, from, to));
}

static int f_unlink(void *ctx, const char *path)
{
    NAMED(ST_UNLINK, path, unlink(f->real.ctx, path));
}

static int f_rmdir(void *ctx, const char *path)
{
    NAMED(ST_RMDIR, path, rmdir(f->real.ctx, path));
}

static int f_rename(void *ctx, const char *from, const char *to)
{
    NAMED(ST_RENAME, to, rename(f->real.ctx, from, to));
}

static int f_mkdir(void *ctx, const char *path)
{
    NAMED(ST_MKDIR, path, mkdir(f->real.ctx, path));
}

static int f_extend(void *ctx, const char *path, uint64_t size)
{
    NAMED(ST_EXTEND, path, extend(f->real.ctx, path, size));
}

static int f_stat(void *ctx, int fd, struct ks_stat *ret)
{
    struct fault *f = ctx;
    int rc = before(f, ST_STAT, f->path[fd]);
    return rc ? rc : f->real.ops->stat(f->real.ctx, fd, ret);
}

/* The first names of a directory only. */
struct some {
    ks_list_fn fn;
    void *arg;
    int left;
};

static bool on_some(void *arg, const char *name)
{
    struct some *s = arg;
    return s->left-- > 0 && s->fn(s->arg, name);
}

static int f_list(void *ctx, const char *path, ks_list_fn fn, void *arg)
{
    struct fault *f = ctx;
    int rc = before(f, ST_LIST, path);
    if (rc == ST_SHORT) {
        struct some some = {.fn = fn, .arg = arg, .left = 2};
        f->real.ops->list(f->real.ctx, path, on_some, &some);
        return -EIO;
    }
    return rc ? rc : f->real.ops->list(f->real.ctx, path, fn, arg);
}

static void f_forget(void *ctx, int fd)
{
    struct fault *f = ctx;
    f->real.ops->forget(f->real.ctx, fd);
}

static bool f_network(void *ctx)
{
    struct fault *f = ctx;
    return f->hooks->network || f->real.ops->network(f->real.ctx);
}

static bool f_ordered(void *ctx)
{
    struct fault *f = ctx;
    return !f->hooks->unordered && f->real.ops->ordered && f->real.ops->ordered(f->real.ctx);
}

static void f_fini(void *ctx)
{
    struct fault *f = ctx;
    ks_fs_fini(&f->real);
    free(f);
}

void st_fault_over(struct ks_fs *fs, const struct ks_fs *base, const struct st_hooks *hooks)
{
    static const struct ks_fs_ops ops = {
        .open = f_open,
        .close = f_close,
        .pwritev = f_pwritev,
        .pread = f_pread,
        .datasync = f_datasync,
        .syncdir = f_syncdir,
        .link = f_link,
        .unlink = f_unlink,
        .rmdir = f_rmdir,
        .rename = f_rename,
        .mkdir = f_mkdir,
        .extend = f_extend,
        .stat = f_stat,
        .list = f_list,
        .forget = f_forget,
        .network = f_network,
        .ordered = f_ordered,
        .fini = f_fini,
    };
    struct fault *f = calloc(1, sizeof(*f));
    KT_REQUIRE(f != NULL);
    ks_fs_init(&f->real, base->ops, base->ctx);
    f->hooks = hooks;
    ks_fs_init(fs, &ops, f);
}

void st_fault_fs(struct ks_fs *fs, const struct st_vol *v, const struct st_hooks *hooks)
{
    struct ks_fs base;
    KT_REQUIRE(ks_fs_posix(&base, v->dir, NULL) == 0);
    st_fault_over(fs, &base, hooks);
}

bool st_ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}
