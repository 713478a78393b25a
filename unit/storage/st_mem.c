#include "st_mem.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/kc_hash.h"
#include "base/kc_map.h"
#include "base/kc_mem.h"

enum { FDS = 4096 };

struct ino {
    uint32_t refs; /* names, descriptors, and the number of a redo */
    uint32_t number;
    bool dir;
    uint64_t nlink, size;
    uint8_t *data;
    size_t room;
};

struct port {
    struct st_mem *m;
    int number;
};

struct st_mem {
    pthread_mutex_t lock; /* guards all of it */
    struct kc_map names; /* path -> struct ino; the root is not in it */
    struct {
        struct ino *ino;
        bool writes;
    } fds[FDS];
    int n_fds;
    uint32_t next_number;
    bool recording, network;
    struct st_mem_rec *recs;
    size_t n_recs, recs_room;
    struct ino **redone; /* number in the records -> file */
    uint32_t n_redone;
};

/* The tests' own memory: an injected failure is meant for the engine. */
static void *grow_to(void *p, size_t size)
{
    p = realloc(p, size);
    KC_ASSERT(p);
    return p;
}

static void ino_drop(struct ino *ino)
{
    if (--ino->refs == 0) {
        free(ino->data);
        free(ino);
    }
}

static struct ino *ino_new(struct st_mem *m, bool dir)
{
    struct ino *ino = calloc(1, sizeof(*ino));
    KC_ASSERT(ino);
    ino->number = m->next_number++;
    ino->dir = dir;
    return ino;
}

static struct ino *get(struct st_mem *m, const char *path)
{
    return kc_map_get(&m->names, path, strlen(path));
}

static bool in_root(const char *path)
{
    return strchr(path, '/') == NULL;
}

static bool has_parent(struct st_mem *m, const char *path)
{
    const char *slash = strrchr(path, '/');
    struct ino *dir = slash ? kc_map_get(&m->names, path, (size_t)(slash - path)) : NULL;
    return in_root(path) || (dir && dir->dir);
}

static void enter(struct st_mem *m, const char *path, struct ino *ino)
{
    struct ino *old = kc_map_put(&m->names, path, strlen(path), ino);
    ino->refs++;
    ino->nlink++;
    if (old) {
        old->nlink--;
        ino_drop(old);
    }
}

static void leave(struct st_mem *m, const char *path)
{
    struct ino *ino = kc_map_del(&m->names, path, strlen(path));
    ino->nlink--;
    ino_drop(ino);
}

/* Is `name` a direct entry of `dir` ("." = the root)? Returns its last part. */
static const char *entry_of(const char *dir, const char *name)
{
    size_t n = strcmp(dir, ".") == 0 ? 0 : strlen(dir) + 1;
    if (n && (strncmp(name, dir, n - 1) != 0 || name[n - 1] != '/')) {
        return NULL;
    }
    return strchr(name + n, '/') ? NULL : name + n;
}

static bool has_entries(struct st_mem *m, const char *dir)
{
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&m->names, &it));) {
        if (entry_of(dir, e->key)) {
            return true;
        }
    }
    return false;
}

static void put_bytes(struct ino *ino, uint64_t pos, const uint8_t *p, size_t len)
{
    size_t end = (size_t)pos + len;
    if (end > ino->room) {
        ino->data = grow_to(ino->data, end * 2);
        memset(ino->data + ino->room, 0, end * 2 - ino->room);
        ino->room = end * 2;
    }
    if (len && p) {
        memcpy(ino->data + pos, p, len);
    }
    ino->size = KC_MAX(ino->size, (uint64_t)end);
}

/* ---- records ---- */

static struct st_mem_rec *note(struct st_mem *m, int port, enum st_mem_op op, const struct ino *ino,
                               const char *path)
{
    static struct st_mem_rec nowhere;
    if (!m->recording) {
        return &nowhere;
    }
    if (m->n_recs == m->recs_room) {
        m->recs_room = KC_MAX(m->recs_room * 2, (size_t)256);
        m->recs = grow_to(m->recs, m->recs_room * sizeof(*m->recs));
    }
    struct st_mem_rec *r = &m->recs[m->n_recs++];
    *r = (struct st_mem_rec){.op = op, .port = port, .ino = ino ? ino->number : 0};
    snprintf(r->path, sizeof(r->path), "%s", path);
    return r;
}

static void note_bytes(struct st_mem *m, int port, const struct ino *ino, uint64_t pos,
                       const void *data, size_t len)
{
    struct st_mem_rec *r = note(m, port, SM_WRITE, ino, "");
    if (m->recording) {
        r->pos = pos;
        r->len = len;
        r->data = grow_to(NULL, len + 1);
        memcpy(r->data, data, len);
    }
}

/* ---- the port ---- */

#define LOCKED(p) pthread_mutex_lock(&(p)->m->lock)
#define UNLOCK(p) pthread_mutex_unlock(&(p)->m->lock)

static int m_open(void *ctx, const char *path, enum ks_open_mode mode)
{
    struct port *p = ctx;
    LOCKED(p);
    struct ino *ino = get(p->m, path);
    int rc = mode == KS_CREATE ? (ino                      ? -EEXIST
                                  : has_parent(p->m, path) ? 0
                                                           : -ENOENT)
                               : (!ino ? -ENOENT : 0);
    int fd = 0;
    while (!rc && fd < FDS && p->m->fds[fd].ino) {
        fd++;
    }
    rc = !rc && fd == FDS ? -EMFILE : rc;
    if (!rc && mode == KS_CREATE) {
        ino = ino_new(p->m, false);
        enter(p->m, path, ino);
        note(p->m, p->number, SM_CREATE, ino, path);
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
    struct port *p = ctx;
    LOCKED(p);
    KC_ASSERT(fd >= 0 && fd < FDS && p->m->fds[fd].ino);
    ino_drop(p->m->fds[fd].ino);
    p->m->fds[fd].ino = NULL;
    p->m->n_fds--;
    UNLOCK(p);
    return 0;
}

static ssize_t m_pwritev(void *ctx, int fd, const struct iovec *iov, int n, uint64_t pos)
{
    struct port *p = ctx;
    ssize_t total = 0;
    LOCKED(p);
    KC_ASSERT(p->m->fds[fd].writes);
    for (int i = 0; i < n; i++) {
        struct ino *ino = p->m->fds[fd].ino;
        put_bytes(ino, pos, iov[i].iov_base, iov[i].iov_len);
        note_bytes(p->m, p->number, ino, pos, iov[i].iov_base, iov[i].iov_len);
        pos += iov[i].iov_len;
        total += (ssize_t)iov[i].iov_len;
    }
    UNLOCK(p);
    return total;
}

static ssize_t m_pread(void *ctx, int fd, void *buf, size_t len, uint64_t pos)
{
    struct port *p = ctx;
    LOCKED(p);
    const struct ino *ino = p->m->fds[fd].ino;
    size_t n = pos < ino->size ? (size_t)KC_MIN((uint64_t)len, ino->size - pos) : 0;
    if (n) {
        memcpy(buf, ino->data + pos, n);
    }
    UNLOCK(p);
    return (ssize_t)n;
}

static int m_datasync(void *ctx, int fd)
{
    struct port *p = ctx;
    LOCKED(p);
    note(p->m, p->number, SM_SYNC, p->m->fds[fd].ino, "");
    UNLOCK(p);
    return 0;
}

static int m_syncdir(void *ctx, const char *path)
{
    struct port *p = ctx;
    LOCKED(p);
    const struct ino *dir = get(p->m, path);
    int rc = strcmp(path, ".") == 0 || dir ? 0 : -ENOENT;
    if (!rc) {
        note(p->m, p->number, SM_SYNCDIR, NULL, path);
    }
    UNLOCK(p);
    return rc;
}

static int m_link(void *ctx, const char *from, const char *to)
{
    struct port *p = ctx;
    LOCKED(p);
    struct ino *ino = get(p->m, from);
    int rc = !ino || !has_parent(p->m, to) ? -ENOENT : get(p->m, to) ? -EEXIST : 0;
    if (!rc) {
        enter(p->m, to, ino);
        note(p->m, p->number, SM_LINK, ino, to);
    }
    UNLOCK(p);
    return rc;
}

static int remove_name(struct port *p, const char *path, bool dir)
{
    LOCKED(p);
    struct ino *ino = get(p->m, path);
    int rc = !ino ? -ENOENT : ino->dir == dir ? 0 : dir ? -ENOTDIR : -EISDIR;
    rc = !rc && dir && has_entries(p->m, path) ? -ENOTEMPTY : rc;
    if (!rc) {
        note(p->m, p->number, SM_UNLINK, ino, path);
        leave(p->m, path);
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
    struct port *p = ctx;
    LOCKED(p);
    struct ino *ino = get(p->m, from);
    int rc = ino && has_parent(p->m, to) ? 0 : -ENOENT;
    if (!rc) {
        enter(p->m, to, ino);
        leave(p->m, from);
        struct st_mem_rec *r = note(p->m, p->number, SM_RENAME, ino, from);
        snprintf(r->to, sizeof(r->to), "%s", to);
    }
    UNLOCK(p);
    return rc;
}

static int m_mkdir(void *ctx, const char *path)
{
    struct port *p = ctx;
    LOCKED(p);
    int rc = get(p->m, path) ? -EEXIST : has_parent(p->m, path) ? 0 : -ENOENT;
    if (!rc) {
        struct ino *ino = ino_new(p->m, true);
        enter(p->m, path, ino);
        note(p->m, p->number, SM_MKDIR, ino, path);
    }
    UNLOCK(p);
    return rc;
}

static int m_extend(void *ctx, const char *path, uint64_t size)
{
    struct port *p = ctx;
    LOCKED(p);
    struct ino *ino = get(p->m, path);
    if (ino) {
        put_bytes(ino, size, NULL, 0);
        note(p->m, p->number, SM_EXTEND, ino, path)->pos = size;
    }
    UNLOCK(p);
    return ino ? 0 : -ENOENT;
}

static int m_stat(void *ctx, int fd, struct ks_stat *ret)
{
    struct port *p = ctx;
    LOCKED(p);
    const struct ino *ino = p->m->fds[fd].ino;
    *ret = (struct ks_stat){.size = ino->size, .nlink = ino->nlink};
    UNLOCK(p);
    return 0;
}

static int m_list(void *ctx, const char *path, ks_list_fn fn, void *arg)
{
    struct port *p = ctx;
    char(*names)[ST_MEM_PATH] = NULL;
    size_t n = 0;
    LOCKED(p);
    const struct ino *dir = get(p->m, path);
    int rc = !dir ? -ENOENT : dir->dir ? 0 : -ENOTDIR;
    if (!rc && p->m->names.len) {
        names = grow_to(NULL, p->m->names.len * ST_MEM_PATH);
        struct kc_map_iter it = {0};
        for (struct kc_map_entry *e; (e = kc_map_next(&p->m->names, &it));) {
            const char *last = entry_of(path, e->key);
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
    const struct port *p = ctx;
    return p->m->network;
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
        .fini = m_fini,
    };
    struct port *p = grow_to(NULL, sizeof(*p));
    *p = (struct port){.m = m, .number = port};
    ks_fs_init(ret, &ops, p);
}

/* ---- life and records ---- */

struct st_mem *st_mem_new(void)
{
    struct st_mem *m = calloc(1, sizeof(*m));
    KC_ASSERT(m);
    pthread_mutex_init(&m->lock, NULL);
    kc_map_init(&m->names);
    return m;
}

static void drop_value(void *ino)
{
    ino_drop(ino);
}

void st_mem_redo_start(struct st_mem *m)
{
    for (uint32_t i = 0; i < m->n_redone; i++) {
        if (m->redone[i]) {
            ino_drop(m->redone[i]);
        }
    }
    free(m->redone);
    m->redone = NULL;
    m->n_redone = 0;
}

void st_mem_free(struct st_mem *m)
{
    st_mem_redo_start(m);
    kc_map_fini(&m->names, drop_value);
    for (size_t i = 0; i < m->n_recs; i++) {
        free(m->recs[i].data);
    }
    free(m->recs);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

void st_mem_network(struct st_mem *m, bool network)
{
    m->network = network;
}

int st_mem_fds(struct st_mem *m)
{
    pthread_mutex_lock(&m->lock);
    int n = m->n_fds;
    pthread_mutex_unlock(&m->lock);
    return n;
}

void st_mem_record(struct st_mem *m, bool on)
{
    pthread_mutex_lock(&m->lock);
    m->recording = on;
    pthread_mutex_unlock(&m->lock);
}

void st_mem_mark(struct st_mem *m, uint64_t number)
{
    pthread_mutex_lock(&m->lock);
    note(m, 0, SM_MARK, NULL, "")->pos = number;
    pthread_mutex_unlock(&m->lock);
}

const struct st_mem_rec *st_mem_records(struct st_mem *m, size_t *ret_n)
{
    *ret_n = m->n_recs;
    return m->recs;
}

/* ---- building a volume from records ---- */

void st_mem_clear(struct st_mem *m, const char *keep)
{
    struct kc_map_iter it = {0};
    pthread_mutex_lock(&m->lock);
    for (struct kc_map_entry *e; (e = kc_map_next(&m->names, &it));) {
        size_t n = strlen(keep);
        bool stays = n && (strncmp(e->key, keep, n) == 0 ||
                           (strncmp(keep, e->key, e->key_len) == 0 && keep[e->key_len] == '/'));
        if (!stays) {
            leave(m, e->key);
        }
    }
    pthread_mutex_unlock(&m->lock);
}

static struct ino *redone(struct st_mem *m, uint32_t number)
{
    return number < m->n_redone ? m->redone[number] : NULL;
}

/* The file of a number, made when it is first heard of. */
static struct ino *redo_ino(struct st_mem *m, uint32_t number, bool dir)
{
    if (number >= m->n_redone) {
        uint32_t n = (number + 1) * 2;
        m->redone = grow_to(m->redone, n * sizeof(*m->redone));
        memset(m->redone + m->n_redone, 0, (n - m->n_redone) * sizeof(*m->redone));
        m->n_redone = n;
    }
    if (!m->redone[number]) {
        m->redone[number] = ino_new(m, dir);
        m->redone[number]->refs++;
    }
    return m->redone[number];
}

static void redo_name(struct st_mem *m, const struct st_mem_rec *r)
{
    struct ino *there = get(m, r->path);
    if (has_parent(m, r->path) && !(r->op == SM_MKDIR && there)) {
        enter(m, r->path, redo_ino(m, r->ino, r->op == SM_MKDIR));
    }
}

void st_mem_redo(struct st_mem *m, const struct st_mem_rec *r)
{
    pthread_mutex_lock(&m->lock);
    struct ino *ino = redone(m, r->ino), *there = get(m, r->path);
    switch (r->op) {
    case SM_CREATE:
    case SM_MKDIR:
    case SM_LINK:
        redo_name(m, r);
        break;
    case SM_WRITE:
        put_bytes(redo_ino(m, r->ino, false), r->pos, r->data, r->len);
        break;
    case SM_EXTEND:
        put_bytes(redo_ino(m, r->ino, false), r->pos, NULL, 0);
        break;
    case SM_UNLINK:
        if (there && there == ino && !(ino->dir && has_entries(m, r->path))) {
            leave(m, r->path);
        }
        break;
    case SM_RENAME:
        if (ino && has_parent(m, r->to)) {
            enter(m, r->to, ino);
        }
        if (there && there == ino) {
            leave(m, r->path);
        }
        break;
    case SM_SYNC:
    case SM_SYNCDIR:
    case SM_MARK:
        break;
    }
    pthread_mutex_unlock(&m->lock);
}

uint64_t st_mem_hash(struct st_mem *m)
{
    uint64_t sum = 0;
    struct kc_map_iter it = {0};
    pthread_mutex_lock(&m->lock);
    for (struct kc_map_entry *e; (e = kc_map_next(&m->names, &it));) {
        const struct ino *ino = e->value;
        if (strncmp(e->key, "topics/", 7) == 0 || strncmp(e->key, "inc/", 4) == 0) {
            uint64_t h = kc_hash64(e->key, e->key_len);
            h = kc_hash64_mix(h, ino->dir ? 1 : 2);
            h = ino->size ? kc_hash64_mix(h, kc_hash64(ino->data, (size_t)ino->size)) : h;
            sum += kc_hash64_mix(h, ino->size); /* the order of names means nothing */
        }
    }
    pthread_mutex_unlock(&m->lock);
    return sum;
}

bool st_mem_damage(struct st_mem *m, const char *path, uint64_t pos)
{
    pthread_mutex_lock(&m->lock);
    struct ino *ino = get(m, path);
    bool there = ino && pos < ino->size;
    if (there) {
        ino->data[pos] ^= 0xff;
    }
    pthread_mutex_unlock(&m->lock);
    return there;
}
