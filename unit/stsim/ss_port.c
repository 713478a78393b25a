/* The ks_fs port of a client. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ss_client.h"

/* ---- which step of the protocol a request belongs to, as far as its names tell ---- */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static bool is_log(const char *path)
{
    return ends_with(path, ".log");
}

static bool is_journal(const char *path)
{
    return strncmp(path, "inc/", 4) == 0 && strstr(path, ".j") != NULL;
}

/* Reading a data file: part of a takeover or a cleaning, or for a consumer. */
static uint32_t reading(void)
{
    static const enum ss_step others[] = {SS_S_OPEN, SS_S_GO, SS_S_RECOVER, SS_S_PREPARE,
                                          SS_S_CLEAN};
    for (size_t i = 0; i < KC_ARRAY_LEN(others); i++) {
        if (ss_inside(others[i])) {
            return 0;
        }
    }
    return SS_BIT(SS_S_READ);
}

/* Writing one: for a producer, unless it is a copy of what was written before. */
static bool copying(void)
{
    return ss_inside(SS_S_COPY) || ss_inside(SS_S_CLEAN);
}

/* ---- the port ---- */

static int fd_new(struct ss_client *c, struct cfile *f, const char *path, enum ks_open_mode mode)
{
    for (int i = 0; i < FDS; i++) {
        if (!c->fds[i].f) {
            c->fds[i] =
                (struct fd){.f = f, .mode = mode, .log = is_log(path), .journal = is_journal(path)};
            f->opens++;
            return i;
        }
    }
    return -EMFILE;
}

static int s_open(void *ctx, const char *path, enum ks_open_mode mode)
{
    struct ss_client *c = ctx;
    bool create = mode == KS_CREATE, log = is_log(path);
    SS_REQ(c, create ? SS_OP_CREATE : SS_OP_OPEN,
           !log     ? 0
           : create ? SS_BIT(SS_S_DATA_FILE)
                    : reading());
    int rc = ss_go(&req);
    if (rc) {
        return rc == IN_FLIGHT ? -EIO : rc;
    }
    struct ss_ino *ino = NULL;
    if (create) {
        rc = ss_srv_create(path, c->serial, false, &ino);
        rc = ss_reply(&req, rc, 0);
        if (ino) {
            ss_know(c, path, ino);
        }
    } else {
        ino = ss_resolve(&req, path);
        rc = ss_back(&req, ino ? 0 : -ENOENT);
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
    KC_ASSERT(fd >= 0 && fd < FDS && c->fds[fd].f); /* nobody closes what is not open */
    struct cfile *f = c->fds[fd].f;
    int rc = 0;
    if (c->fds[fd].mode == KS_CREATE && (f->n_dirty || f->n_unstable)) {
        SS_REQ(c, SS_OP_CLOSE, 0);
        rc = ss_go(&req);
        rc = rc ? -EIO : ss_flush(&req, f);
    }
    c->fds[fd].f = NULL;
    if (--f->opens == 0 && *f->silly && !c->dead) {
        ss_srv_unlink(f->silly);
        *f->silly = '\0';
    }
    return rc;
}

/* An error that waits to be told, or one that the file system has at once. */
static int write_fails(struct ss_req *r, struct cfile *f)
{
    int rc = r->fire == SS_F_WRITE_ERROR ? -EIO : r->fire == SS_F_ENOSPC ? -ENOSPC : 0;
    if (!rc && f->error && ss_chance(300)) {
        rc = f->error;
        f->error = 0;
    }
    if (rc) {
        r->fire = SS_FAULTS;
        ss_hit(rc == -ENOSPC ? SS_F_ENOSPC : SS_F_WRITE_ERROR, r->steps);
    }
    return rc;
}

static size_t put(struct ss_client *c, struct cfile *f, const uint8_t *from, size_t len,
                  uint64_t pos)
{
    for (size_t left = len; left > 0;) {
        struct page *p = ss_page_at(f, pos / SS_PAGE);
        size_t at = (size_t)(pos % SS_PAGE), n = KC_MIN(left, SS_PAGE - at);
        if (p->hi > p->lo && (at > p->hi || at + n < p->lo)) {
            ss_fill(p, f->ino, pos / SS_PAGE);
        }
        memcpy(p->b + at, from, n);
        p->lo = p->hi > p->lo ? KC_MIN(p->lo, at) : at;
        p->hi = KC_MAX(p->hi, at + n);
        ss_page_dirty(c, f, p);
        pos += n;
        from += n;
        left -= n;
    }
    return len;
}

static ssize_t s_pwritev(void *ctx, int fd, const struct iovec *iov, int n, uint64_t pos)
{
    struct ss_client *c = ctx;
    struct cfile *f = c->fds[fd].f;
    KC_ASSERT(c->fds[fd].mode == KS_CREATE);
    SS_REQ(c, SS_OP_WRITE,
           c->fds[fd].journal             ? SS_BIT(SS_S_JOURNAL)
           : c->fds[fd].log && !copying() ? SS_BIT(SS_S_WRITE)
                                          : 0);
    ss_client_stall(&req); /* of a full cache */
    int rc = c->dead ? -EIO : write_fails(&req, f);
    if (rc) {
        return rc;
    }
    size_t total = 0,
           cap = ss_chance(30) ? 1 + (size_t)ss_below(100) : SIZE_MAX; /* a short write */
    for (int i = 0; i < n && total < cap; i++) {
        size_t len = KC_MIN(iov[i].iov_len, cap - total);
        total += put(c, f, iov[i].iov_base, len, pos + total);
    }
    f->local = KC_MAX(f->local, pos + total);
    ss_strike_late(&req);
    return c->dead ? -EIO : (ssize_t)total;
}

static ssize_t s_pread(void *ctx, int fd, void *buf, size_t len, uint64_t pos)
{
    struct ss_client *c = ctx;
    struct cfile *f = c->fds[fd].f;
    uint8_t *out = buf;
    SS_REQ(c, SS_OP_READ, c->fds[fd].log ? reading() : 0);
    int rc = ss_go(&req);
    if (rc) {
        return rc == IN_FLIGHT ? -EIO : rc;
    }
    if (ss_now_us() - f->attr_us > ATTR_US) {
        ss_revalidate(f);
    }
    if (f->ino->nlink == 0) {
        return -ESTALE;
    }
    if (f->change != f->ino->change) {
        ss_hit(SS_F_STALE_READ, req.steps);
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
    return ss_back(&req, 0) ? -EIO : (ssize_t)n;
}

static int s_datasync(void *ctx, int fd)
{
    struct ss_client *c = ctx;
    struct cfile *f = c->fds[fd].f;
    bool fresh = f->ino->size == 0 && !f->n_dirty; /* of a file just made */
    SS_REQ(c, SS_OP_SYNC,
           c->fds[fd].journal                         ? SS_BIT(SS_S_JOURNAL)
           : !c->fds[fd].log || (copying() && !fresh) ? 0
           : fresh                                    ? SS_BIT(SS_S_DATA_FILE)
                                                      : SS_BIT(SS_S_SYNC));
    if (ss_srv_lie() == SS_SYNC_NOTHING && (c->fds[fd].log || c->fds[fd].journal)) {
        return ss_back(&req, 0);
    }
    int rc = ss_go(&req);
    rc = rc == IN_FLIGHT ? -EIO : rc ? rc : ss_flush(&req, f);
    return ss_reply(&req, rc, 0);
}

static int s_syncdir(void *ctx, const char *path)
{
    SS_REQ(ctx, SS_OP_SYNCDIR, SS_BIT(SS_S_DIR_SYNC));
    int rc = ss_go(&req);
    return rc == IN_FLIGHT ? -EIO : rc ? rc : ss_back(&req, ss_srv_lookup(path) ? 0 : -ENOENT);
}

static int s_link(void *ctx, const char *from, const char *to)
{
    struct ss_client *c = ctx;
    SS_REQ(c, SS_OP_LINK, 0);
    struct ss_ino *ino = ss_resolve(&req, from);
    if (!ino) {
        return -ENOENT;
    }
    int rc = ss_go(&req);
    if (rc == IN_FLIGHT) {
        ss_srv_late(SS_LATE_LINK, ino, to);
        return -EIO;
    }
    if (rc) {
        return rc;
    }
    rc = ss_srv_link(ino, to);
    if (rc == 0) {
        ss_know(c, to, ino);
    } else {
        ss_unknow(c, to);
    }
    return ss_reply(&req, rc, -EEXIST);
}

static int s_unlink(void *ctx, const char *path)
{
    struct ss_client *c = ctx;
    SS_REQ(c, SS_OP_UNLINK, is_log(path) ? SS_BIT(SS_S_UNLINK) : 0);
    int rc = ss_go(&req);
    if (rc == IN_FLIGHT) {
        ss_srv_late(SS_LATE_UNLINK, NULL, path);
        return -EIO;
    }
    if (rc) {
        return rc;
    }
    struct ss_ino *ino = ss_srv_lookup(path);
    struct cfile *f = ino && !ino->dir ? ss_file_of(c, ino) : NULL;
    const char *slash = strrchr(path, '/');
    ss_unknow(c, path);
    if (f && f->opens > 0 && ino->nlink == 1 && slash) {
        ss_srv_count(SS_E_SILLY);
        snprintf(f->silly, sizeof(f->silly), "%.*s/.nfs%d-%llu", (int)KC_MIN(slash - path, 128),
                 path, c->serial, (unsigned long long)c->n_silly++);
        return ss_reply(&req, ss_srv_rename(path, f->silly), 0);
    }
    return ss_reply(&req, ss_srv_unlink(path), -ENOENT);
}

static int s_rmdir(void *ctx, const char *path)
{
    SS_REQ(ctx, SS_OP_RMDIR, 0);
    int rc = ss_go(&req);
    if (rc) {
        return rc == IN_FLIGHT ? -EIO : rc;
    }
    ss_unknow(ctx, path);
    return ss_back(&req, ss_srv_rmdir(path));
}

static int s_rename(void *ctx, const char *from, const char *to)
{
    struct ss_client *c = ctx;
    SS_REQ(c, SS_OP_RENAME, 0);
    int rc = ss_go(&req);
    if (rc) {
        return rc == IN_FLIGHT ? -EIO : rc;
    }
    rc = ss_srv_rename(from, to);
    ss_unknow(c, from);
    ss_unknow(c, to);
    return ss_reply(&req, rc, 0);
}

static int s_mkdir(void *ctx, const char *path)
{
    struct ss_client *c = ctx;
    SS_REQ(c, SS_OP_MKDIR, 0);
    int rc = ss_go(&req);
    if (rc) {
        return rc == IN_FLIGHT ? -EIO : rc;
    }
    ss_unknow(c, path);
    return ss_reply(&req, ss_srv_create(path, c->serial, true, NULL), -EEXIST);
}

static int s_extend(void *ctx, const char *path, uint64_t size)
{
    struct ss_client *c = ctx;
    SS_REQ(c, SS_OP_EXTEND, 0);
    struct ss_ino *ino = ss_resolve(&req, path);
    int rc = ss_go(&req);
    if (rc == IN_FLIGHT) {
        if (ino) {
            ss_srv_late(SS_LATE_EXTEND, ino, path);
        }
        return -EIO;
    }
    if (rc) {
        return rc;
    }
    bool stale = req.fire == SS_F_STALE_NAME;
    if (stale) {
        req.fire = SS_FAULTS;
        ss_hit(SS_F_STALE_NAME, req.steps);
    }
    if (!ino || stale) {
        return ss_back(&req, -ENOENT);
    }
    if (ino->nlink == 0) {
        return ss_back(&req, -ESTALE);
    }
    ss_srv_extend(ino, path, size);
    return ss_reply(&req, 0, 0);
}

static int s_stat(void *ctx, int fd, struct ks_stat *ret)
{
    struct ss_client *c = ctx;
    struct cfile *f = c->fds[fd].f;
    SS_REQ(c, SS_OP_STAT, 0);
    if (ss_srv_lie() == SS_STAT_CACHED && f->attr_us && ss_now_us() - f->attr_us < NAME_US) {
        *ret = (struct ks_stat){.size = ss_size_of(f), .nlink = 1};
        return ss_back(&req, 0);
    }
    int rc = ss_go(&req);
    if (rc) {
        return rc == IN_FLIGHT ? -EIO : rc;
    }
    if (f->ino->nlink == 0) {
        return ss_back(&req, -ESTALE);
    }
    ss_revalidate(f);
    *ret = (struct ks_stat){.size = ss_size_of(f), .nlink = f->ino->nlink};
    return ss_back(&req, 0);
}

static int s_list(void *ctx, const char *path, ks_list_fn fn, void *arg)
{
    struct ss_client *c = ctx;
    struct ss_names names = {0};
    SS_REQ(c, SS_OP_LIST, strcmp(path, "deleted") == 0 ? SS_BIT(SS_S_TOMBSTONE) : 0);
    int rc = ss_go(&req);
    if (rc) {
        return rc == IN_FLIGHT ? -EIO : rc;
    }
    struct ss_ino *dir = ss_srv_lookup(path);
    if (!dir) {
        return ss_back(&req, -ENOENT);
    }
    ss_forget_absent(c, path);
    uint64_t change = dir->change;
    while (ss_srv_list(path, &names)) {
        for (int i = 0; i < names.n; i++) {
            if (!fn(arg, names.name[i])) {
                return ss_back(&req, 0);
            }
        }
        rc = ss_back(&req, 0); /* the next request */
        if (rc) {
            return rc;
        }
    }
    if (dir->change != change) {
        ss_hit(SS_F_TORN_LISTING, req.steps);
    }
    ss_strike_late(&req);
    return c->dead ? -EIO : 0;
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
