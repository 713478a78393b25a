/* A file system with faults: the real one, with hooks around every operation. */
#include "st.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/kc_mem.h"

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
    int rc = before(f, ST_OPEN, path);
    rc = rc ? rc : f->real.ops->open(f->real.ctx, path, mode);
    if (rc >= 0) {
        KT_REQUIRE(rc < FDS);
        atomic_store(&f->path[rc], kc_strdup(path));
    }
    return rc;
}

static int f_close(void *ctx, int fd)
{
    struct fault *f = ctx;
    kc_free(atomic_exchange(&f->path[fd], NULL));
    return f->real.ops->close(f->real.ctx, fd);
}

static ssize_t f_pwritev(void *ctx, int fd, const struct iovec *iov, int n, uint64_t pos)
{
    struct fault *f = ctx;
    int rc = before(f, ST_PWRITE, f->path[fd]);
    return rc ? rc : f->real.ops->pwritev(f->real.ctx, fd, iov, n, pos);
}

static ssize_t f_pread(void *ctx, int fd, void *buf, size_t len, uint64_t pos)
{
    struct fault *f = ctx;
    int rc = before(f, ST_PREAD, f->path[fd]);
    return rc ? rc : f->real.ops->pread(f->real.ctx, fd, buf, len, pos);
}

static int f_datasync(void *ctx, int fd)
{
    struct fault *f = ctx;
    int rc = before(f, ST_DATASYNC, f->path[fd]);
    return after(f, ST_DATASYNC, f->path[fd], rc ? rc : f->real.ops->datasync(f->real.ctx, fd));
}

static int f_syncdir(void *ctx, const char *path)
{
    struct fault *f = ctx;
    int rc = before(f, ST_SYNCDIR, path);
    return after(f, ST_SYNCDIR, path, rc ? rc : f->real.ops->syncdir(f->real.ctx, path));
}

static int f_link(void *ctx, const char *from, const char *to)
{
    struct fault *f = ctx;
    int rc = before(f, ST_LINK, to);
    return after(f, ST_LINK, to, rc ? rc : f->real.ops->link(f->real.ctx, from, to));
}

static int f_unlink(void *ctx, const char *path)
{
    struct fault *f = ctx;
    int rc = before(f, ST_UNLINK, path);
    return after(f, ST_UNLINK, path, rc ? rc : f->real.ops->unlink(f->real.ctx, path));
}

static int f_rmdir(void *ctx, const char *path)
{
    struct fault *f = ctx;
    return f->real.ops->rmdir(f->real.ctx, path);
}

static int f_rename(void *ctx, const char *from, const char *to)
{
    struct fault *f = ctx;
    int rc = before(f, ST_RENAME, to);
    return rc ? rc : f->real.ops->rename(f->real.ctx, from, to);
}

static int f_mkdir(void *ctx, const char *path)
{
    struct fault *f = ctx;
    int rc = before(f, ST_MKDIR, path);
    return rc ? rc : f->real.ops->mkdir(f->real.ctx, path);
}

static int f_extend(void *ctx, const char *path, uint64_t size)
{
    struct fault *f = ctx;
    int rc = before(f, ST_EXTEND, path);
    return after(f, ST_EXTEND, path, rc ? rc : f->real.ops->extend(f->real.ctx, path, size));
}

static int f_stat(void *ctx, int fd, struct ks_stat *ret)
{
    struct fault *f = ctx;
    int rc = before(f, ST_STAT, f->path[fd]);
    return rc ? rc : f->real.ops->stat(f->real.ctx, fd, ret);
}

static int f_list(void *ctx, const char *path, ks_list_fn fn, void *arg)
{
    struct fault *f = ctx;
    int rc = before(f, ST_LIST, path);
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

static void f_fini(void *ctx)
{
    struct fault *f = ctx;
    ks_fs_fini(&f->real);
    free(f);
}

void st_fault_fs(struct ks_fs *fs, const struct st_vol *v, const struct st_hooks *hooks)
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
        .fini = f_fini,
    };
    struct fault *f = calloc(1, sizeof(*f));
    KT_REQUIRE(f != NULL);
    KT_REQUIRE(ks_fs_posix(&f->real, v->dir, NULL) == 0);
    f->hooks = hooks;
    ks_fs_init(fs, &ops, f);
}

bool st_ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}
