/* The ks_fs port of a client. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ss_client.h"

static int fd_new(struct ss_client *c, struct cfile *f, const char *path, enum ks_open_mode mode)
{
    for (int i = 0; i < FDS; i++) {
        if (!c->fds[i].f) {
            size_t n = strlen(path);
            c->fds[i] = (struct fd){
                .f = f, .mode = mode, .log = n > 4 && strcmp(path + n - 4, ".log") == 0};
            f->opens++;
            return i;
        }
    }
    return -EMFILE;
}

static int s_open(void *ctx, const char *path, enum ks_open_mode mode)
{
    struct ss_client *c = ctx;
    int rc = ss_go(c);
    if (rc) {
        return -EIO;
    }
    struct ss_ino *ino = NULL;
    if (mode == KS_CREATE) {
        rc = ss_srv_create(path, c->serial, false, &ino);
        rc = ss_reply(c, rc, 0);
        if (ino) {
            ss_know(c, path, ino);
        }
    } else {
        ino = ss_resolve(c, path);
        rc = ss_back(c, ino ? 0 : -ENOENT);
    }
    if (rc || !ino) {
        return rc ? rc : -ENOENT;
    }
    struct cfile *f = ss_file_of(c, ino);
    if (mode != KS_HANDLE) {
        ss_revalidate(f); /* close-to-open */
    }
    return fd_new(c, f, path, mode);
}

static int s_close(void *ctx, int fd)
{
    struct ss_client *c = ctx;
    struct cfile *f = c->fds[fd].f;
    int rc = 0;
    if (c->fds[fd].mode == KS_CREATE && f->n_dirty) {
        rc = ss_go(c);
        rc = rc ? -EIO : ss_flush(c, f);
    }
    c->fds[fd].f = NULL;
    if (--f->opens == 0 && *f->silly && !c->dead) {
        ss_srv_unlink(f->silly);
        *f->silly = '\0';
    }
    return rc;
}

static ssize_t s_pwritev(void *ctx, int fd, const struct iovec *iov, int n, uint64_t pos)
{
    struct ss_client *c = ctx;
    struct cfile *f = c->fds[fd].f;
    ssize_t total = 0;
    KC_ASSERT(c->fds[fd].mode == KS_CREATE);
    ss_yield();
    if (c->dead || (f->error && ss_chance(300))) {
        int rc = c->dead ? -EIO : f->error;
        f->error = 0;
        return rc;
    }
    size_t cap = ss_chance(30) ? 1 + (size_t)ss_below(100) : SIZE_MAX; /* a short write */
    for (int i = 0; i < n && cap; i++) {
        const uint8_t *from = iov[i].iov_base;
        for (size_t left = KC_MIN(iov[i].iov_len, cap); left > 0;) {
            struct page *p = ss_page_at(f, pos / SS_PAGE);
            size_t at = (size_t)(pos % SS_PAGE), len = KC_MIN(left, SS_PAGE - at);
            if (p->hi > p->lo && (at > p->hi || at + len < p->lo)) {
                ss_fill(p, f->ino, pos / SS_PAGE);
            }
            memcpy(p->b + at, from, len);
            p->lo = p->hi > p->lo ? KC_MIN(p->lo, at) : at;
            p->hi = KC_MAX(p->hi, at + len);
            ss_page_dirty(c, f, p);
            pos += len;
            from += len;
            left -= len;
            total += (ssize_t)len;
            cap -= cap == SIZE_MAX ? 0 : len;
        }
    }
    f->local = KC_MAX(f->local, pos);
    return total;
}

static ssize_t s_pread(void *ctx, int fd, void *buf, size_t len, uint64_t pos)
{
    struct ss_client *c = ctx;
    struct cfile *f = c->fds[fd].f;
    uint8_t *out = buf;
    int rc = ss_go(c);
    if (rc) {
        return -EIO;
    }
    if (ss_now_us() - f->attr_us > ATTR_US) {
        ss_revalidate(f);
    }
    if (f->ino->nlink == 0) {
        return -ESTALE;
    }
    if (f->change != f->ino->change) {
        ss_srv_count(SS_F_STALE_READ);
    }
    uint64_t size = ss_size_of(f);
    size_t n = pos < size ? (size_t)KC_MIN((uint64_t)len, size - pos) : 0;
    n = n > 1 && ss_chance(20) ? 1 + (size_t)ss_below(n - 1) : n;
    for (size_t done = 0; done < n;) {
        struct page *p = ss_page_at(f, (pos + done) / SS_PAGE);
        size_t at = (size_t)((pos + done) % SS_PAGE), want = KC_MIN(n - done, SS_PAGE - at);
        if (p->lo > at || p->hi < at + want) {
            ss_fill(p, f->ino, (pos + done) / SS_PAGE);
        }
        memcpy(out + done, p->b + at, want);
        done += want;
    }
    return ss_back(c, 0) ? -EIO : (ssize_t)n;
}

static int s_datasync(void *ctx, int fd)
{
    struct ss_client *c = ctx;
    struct cfile *f = c->fds[fd].f;
    if (ss_srv_lie() == SS_SYNC_NOTHING && c->fds[fd].log) {
        return ss_back(c, 0);
    }
    int rc = ss_go(c);
    rc = rc ? -EIO : ss_flush(c, f);
    return ss_back(c, rc);
}

static int s_syncdir(void *ctx, const char *path)
{
    struct ss_client *c = ctx;
    int rc = ss_go(c);
    return rc ? -EIO : ss_back(c, ss_srv_lookup(path) ? 0 : -ENOENT);
}

static int s_link(void *ctx, const char *from, const char *to)
{
    struct ss_client *c = ctx;
    struct ss_ino *ino = ss_resolve(c, from);
    if (!ino) {
        return -ENOENT;
    }
    int rc = ss_go(c);
    if (rc == IN_FLIGHT) {
        ss_srv_late(SS_LATE_LINK, ino, to);
    }
    if (rc) {
        return -EIO;
    }
    rc = ss_srv_link(ino, to);
    if (rc == 0) {
        ss_know(c, to, ino);
    } else {
        ss_unknow(c, to);
    }
    return ss_reply(c, rc, -EEXIST);
}

static int s_unlink(void *ctx, const char *path)
{
    struct ss_client *c = ctx;
    int rc = ss_go(c);
    if (rc == IN_FLIGHT) {
        ss_srv_late(SS_LATE_UNLINK, NULL, path);
    }
    if (rc) {
        return -EIO;
    }
    struct ss_ino *ino = ss_srv_lookup(path);
    struct cfile *f = ino ? ss_file_of(c, ino) : NULL;
    const char *slash = strrchr(path, '/');
    ss_unknow(c, path);
    if (f && f->opens > 0 && ino->nlink == 1 && slash) {
        ss_srv_count(SS_F_SILLY);
        snprintf(f->silly, sizeof(f->silly), "%.*s/.nfs%d-%llu", (int)KC_MIN(slash - path, 128),
                 path, c->serial, (unsigned long long)c->n_silly++);
        return ss_reply(c, ss_srv_rename(path, f->silly), 0);
    }
    return ss_reply(c, ss_srv_unlink(path), -ENOENT);
}

static int s_rmdir(void *ctx, const char *path)
{
    struct ss_client *c = ctx;
    (void)path;
    return ss_go(c) ? -EIO : ss_back(c, -ENOTEMPTY);
}

static int s_rename(void *ctx, const char *from, const char *to)
{
    struct ss_client *c = ctx;
    int rc = ss_go(c);
    if (rc) {
        return -EIO;
    }
    rc = ss_srv_rename(from, to);
    ss_unknow(c, from);
    ss_unknow(c, to);
    return ss_reply(c, rc, 0);
}

static int s_mkdir(void *ctx, const char *path)
{
    struct ss_client *c = ctx;
    int rc = ss_go(c);
    return rc ? -EIO : ss_reply(c, ss_srv_create(path, c->serial, true, NULL), -EEXIST);
}

static int s_extend(void *ctx, const char *path, uint64_t size)
{
    struct ss_client *c = ctx;
    struct ss_ino *ino = ss_resolve(c, path);
    int rc = ss_go(c);
    if (rc == IN_FLIGHT && ino) {
        ss_srv_late(SS_LATE_EXTEND, ino, path);
    }
    if (rc) {
        return -EIO;
    }
    if (!ino || (c->faults && ss_chance(ss_srv_get_rates()->stale_enoent))) {
        ss_srv_count(SS_F_STALE_NAME);
        return ss_back(c, -ENOENT);
    }
    if (ino->nlink == 0) {
        return ss_back(c, -ESTALE);
    }
    ss_srv_extend(ino, path, size);
    return ss_reply(c, 0, 0);
}

static int s_stat(void *ctx, int fd, struct ks_stat *ret)
{
    struct ss_client *c = ctx;
    struct cfile *f = c->fds[fd].f;
    if (ss_srv_lie() == SS_STAT_CACHED && f->attr_us && ss_now_us() - f->attr_us < NAME_US) {
        *ret = (struct ks_stat){.size = ss_size_of(f), .nlink = 1};
        return ss_back(c, 0);
    }
    int rc = ss_go_at(c, ss_srv_get_rates()->check_error);
    if (rc) {
        return -EIO;
    }
    if (f->ino->nlink == 0) {
        return ss_back(c, -ESTALE);
    }
    ss_revalidate(f);
    *ret = (struct ks_stat){.size = ss_size_of(f), .nlink = f->ino->nlink};
    return ss_back(c, 0);
}

static int s_list(void *ctx, const char *path, ks_list_fn fn, void *arg)
{
    struct ss_client *c = ctx;
    struct ss_names names = {0};
    int rc = ss_go(c);
    if (rc) {
        return -EIO;
    }
    struct ss_ino *dir = ss_srv_lookup(path);
    if (!dir) {
        return ss_back(c, -ENOENT);
    }
    ss_forget_absent(c, path);
    uint64_t change = dir->change;
    while (ss_srv_list(path, &names)) {
        for (int i = 0; i < names.n; i++) {
            if (!fn(arg, names.name[i])) {
                return ss_back(c, 0);
            }
        }
        rc = ss_back(c, 0); /* the next request */
        if (rc) {
            return rc;
        }
    }
    if (dir->change != change) {
        ss_srv_count(SS_F_TORN_LISTING);
    }
    return 0;
}

static void s_forget(void *ctx, int fd)
{
    struct ss_client *c = ctx;
    ss_drop_clean(c->fds[fd].f);
}

static void s_fini(void *ctx)
{
    (void)ctx; /* the client outlives the engine (ss_client_free) */
}

const struct ks_fs_ops ss_port_ops = {
    .open = s_open,
    .close = s_close,
    .pwritev = s_pwritev,
    .pread = s_pread,
    .datasync = s_datasync,
    .syncdir = s_syncdir,
    .link = s_link,
    .unlink = s_unlink,
    .rmdir = s_rmdir,
    .rename = s_rename,
    .mkdir = s_mkdir,
    .extend = s_extend,
    .stat = s_stat,
    .list = s_list,
    .forget = s_forget,
    .fini = s_fini,
};
