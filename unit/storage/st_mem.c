#include "st_mem.h"

#include <errno.h>
#include <stdlib.h>

#include "st_mem_int.h"

#define LOCKED(p) pthread_mutex_lock(&(p)->m->lock)
#define UNLOCK(p) pthread_mutex_unlock(&(p)->m->lock)

static int m_open(void *ctx, const char *path, enum ks_open_mode mode)
{
    struct sm_port *p = ctx;
    LOCKED(p);
    struct sm_ino *ino = sm_get(p->m, path);
    int rc = mode == KS_CREATE ? (ino                         ? -EEXIST
                                  : sm_has_parent(p->m, path) ? 0
                                                              : -ENOENT)
                               : (!ino ? -ENOENT : 0);
    int fd = 0;
    while (!rc && fd < SM_FDS && p->m->fds[fd].ino) {
        fd++;
    }
    rc = !rc && fd == SM_FDS ? -EMFILE : rc;
    if (!rc && mode == KS_CREATE) {
        ino = sm_ino_new(p->m, false);
        sm_enter(p->m, path, ino);
        sm_note(p->m, p->number, SM_CREATE, ino, path);
    }
    if (!rc) {
        p->m->fds[fd].ino = ino;
        p->m->fds[fd].writes = mode == KS_CREATE;
        p->m->n_fds++;
        ino->refs++;
    }
    UNLOCK(p);
    return rc ? rc : fd;
}

static int m_close(void *ctx, int fd)
{
    struct sm_port *p = ctx;
    LOCKED(p);
    KC_ASSERT(fd >= 0 && fd < SM_FDS && p->m->fds[fd].ino);
    sm_ino_drop(p->m->fds[fd].ino);
    p->m->fds[fd].ino = NULL;
    p->m->n_fds--;
    UNLOCK(p);
    return 0;
}

static ssize_t m_pwritev(void *ctx, int fd, const struct iovec *iov, int n, uint64_t pos)
{
    struct sm_port *p = ctx;
    ssize_t total = 0;
    LOCKED(p);
    KC_ASSERT(p->m->fds[fd].writes);
    for (int i = 0; i < n; i++) {
        struct sm_ino *ino = p->m->fds[fd].ino;
        sm_put_bytes(ino, pos, iov[i].iov_base, iov[i].iov_len);
        sm_note_bytes(p->m, p->number, ino, pos, iov[i].iov_base, iov[i].iov_len);
        pos += iov[i].iov_len;
        total += (ssize_t)iov[i].iov_len;
    }
    UNLOCK(p);
    return total;
}

static ssize_t m_pread(void *ctx, int fd, void *buf, size_t len, uint64_t pos)
{
    struct sm_port *p = ctx;
    LOCKED(p);
    const struct sm_ino *ino = p->m->fds[fd].ino;
    size_t n = pos < ino->size ? (size_t)KC_MIN((uint64_t)len, ino->size - pos) : 0;
    if (n) {
        memcpy(buf, ino->data + pos, n);
    }
    UNLOCK(p);
    return (ssize_t)n;
}

static int m_datasync(void *ctx, int fd)
{
    struct sm_port *p = ctx;
    LOCKED(p);
    sm_note(p->m, p->number, SM_SYNC, p->m->fds[fd].ino, "");
    UNLOCK(p);
    return 0;
}

static int m_syncdir(void *ctx, const char *path)
{
    struct sm_port *p = ctx;
    LOCKED(p);
    const struct sm_ino *dir = sm_get(p->m, path);
    int rc = strcmp(path, ".") == 0 || dir ? 0 : -ENOENT;
    if (!rc) {
        sm_note(p->m, p->number, SM_SYNCDIR, NULL, path);
    }
    UNLOCK(p);
    return rc;
}

static int m_link(void *ctx, const char *from, const char *to)
{
    struct sm_port *p = ctx;
    LOCKED(p);
    struct sm_ino *ino = sm_get(p->m, from);
    int rc = !ino || !sm_has_parent(p->m, to) ? -ENOENT : sm_get(p->m, to) ? -EEXIST : 0;
    if (!rc) {
        sm_enter(p->m, to, ino);
        sm_note(p->m, p->number, SM_LINK, ino, to);
    }
    UNLOCK(p);
    return rc;
}

static int remove_name(struct sm_port *p, const char *path, bool dir)
{
    LOCKED(p);
    struct sm_ino *ino = sm_get(p->m, path);
    int rc = !ino ? -ENOENT : ino->dir == dir ? 0 : dir ? -ENOTDIR : -EISDIR;
    rc = !rc && dir && sm_has_entries(p->m, path) ? -ENOTEMPTY : rc;
    if (!rc) {
        sm_note(p->m, p->number, SM_UNLINK, ino, path);
        sm_leave(p->m, path);
    }
    UNLOCK(p);
    return rc;
}

static int m_unlink(void *ctx, const char *path)
{
    return remove_name(ctx, path, false);
}

static int m_rmdir(void *ctx, const char *path)
{
    return remove_name(ctx, path, true);
}

static int m_rename(void *ctx, const char *from, const char *to)
{
    struct sm_port *p = ctx;
    LOCKED(p);
    struct sm_ino *ino = sm_get(p->m, from);
    int rc = ino && sm_has_parent(p->m, to) ? 0 : -ENOENT;
    if (!rc) {
        sm_enter(p->m, to, ino);
        sm_leave(p->m, from);
        struct st_mem_rec *r = sm_note(p->m, p->number, SM_RENAME, ino, from);
        snprintf(r->to, sizeof(r->to), "%s", to);
    }
    UNLOCK(p);
    return rc;
}

static int m_mkdir(void *ctx, const char *path)
{
    struct sm_port *p = ctx;
    LOCKED(p);
    int rc = sm_get(p->m, path) ? -EEXIST : sm_has_parent(p->m, path) ? 0 : -ENOENT;
    if (!rc) {
        struct sm_ino *ino = sm_ino_new(p->m, true);
        sm_enter(p->m, path, ino);
        sm_note(p->m, p->number, SM_MKDIR, ino, path);
    }
    UNLOCK(p);
    return rc;
}

static int m_extend(void *ctx, const char *path, uint64_t size)
{
    struct sm_port *p = ctx;
    LOCKED(p);
    struct sm_ino *ino = sm_get(p->m, path);
    if (ino) {
        sm_put_bytes(ino, size, NULL, 0);
        sm_note(p->m, p->number, SM_EXTEND, ino, path)->pos = size;
    }
    UNLOCK(p);
    return ino ? 0 : -ENOENT;
}

static int m_stat(void *ctx, int fd, struct ks_stat *ret)
{
    struct sm_port *p = ctx;
    LOCKED(p);
    const struct sm_ino *ino = p->m->fds[fd].ino;
    *ret = (struct ks_stat){.size = ino->size, .nlink = ino->nlink};
    UNLOCK(p);
    return 0;
}

static int m_list(void *ctx, const char *path, ks_list_fn fn, void *arg)
{
    struct sm_port *p = ctx;
    char(*names)[ST_MEM_PATH] = NULL;
    size_t n = 0;
    LOCKED(p);
    const struct sm_ino *dir = sm_get(p->m, path);
    int rc = !dir ? -ENOENT : dir->dir ? 0 : -ENOTDIR;
    if (!rc && p->m->names.len) {
        names = sm_grow(NULL, p->m->names.len * ST_MEM_PATH);
        struct kc_map_iter it = {0};
        for (struct kc_map_entry *e; (e = kc_map_next(&p->m->names, &it));) {
            const char *last = sm_entry_of(path, e->key);
            if (last) {
                snprintf(names[n++], ST_MEM_PATH, "%s", last);
            }
        }
    }
    UNLOCK(p);
    for (size_t i = 0; i < n && fn(arg, names[i]); i++) {
    }
    free(names);
    return rc;
}

static void m_forget(void *ctx, int fd)
{
    (void)ctx;
    (void)fd;
}

static bool m_network(void *ctx)
{
    const struct sm_port *p = ctx;
    return p->m->network;
}

static bool m_ordered(void *ctx)
{
    const struct sm_port *p = ctx;
    return p->m->ordered;
}

static void m_fini(void *ctx)
{
    free(ctx);
}

void st_mem_fs(struct st_mem *m, int port, struct ks_fs *ret)
{
    static const struct ks_fs_ops ops = {
        .open = m_open,
        .close = m_close,
        .pwritev = m_pwritev,
        .pread = m_pread,
        .datasync = m_datasync,
        .syncdir = m_syncdir,
        .link = m_link,
        .unlink = m_unlink,
        .rmdir = m_rmdir,
        .rename = m_rename,
        .mkdir = m_mkdir,
        .extend = m_extend,
        .stat = m_stat,
        .list = m_list,
        .forget = m_forget,
        .network = m_network,
        .ordered = m_ordered,
        .fini = m_fini,
    };
    struct sm_port *p = sm_grow(NULL, sizeof(*p));
    *p = (struct sm_port){.m = m, .number = port};
    ks_fs_init(ret, &ops, p);
}
