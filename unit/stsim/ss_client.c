/* A client of the simulated file system: pages, attributes and names that may be old, and the port. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_mem.h"
#include "ss_client.h"

/* ---- names ---- */

static void dentry_free(struct ss_client *c, struct dentry *d)
{
    c->n_absent -= d && !d->ino;
    kc_free(d);
}

void ss_know(struct ss_client *c, const char *path, struct ss_ino *ino)
{
    struct dentry *d = kc_zalloc(sizeof(*d));
    d->ino = ino;
    d->until_us = ss_now_us() + NAME_US;
    c->n_absent += !ino;
    dentry_free(c, kc_map_put(&c->names, path, strlen(path), d));
}

void ss_unknow(struct ss_client *c, const char *path)
{
    dentry_free(c, kc_map_del(&c->names, path, strlen(path)));
}

/* From the cache, else from the server. */
struct ss_ino *ss_resolve(struct ss_req *r, const char *path)
{
    struct ss_client *c = r->c;
    const struct dentry *d = kc_map_get(&c->names, path, strlen(path));
    struct ss_ino *there = ss_srv_lookup(path);
    if (d && d->until_us > ss_now_us() && (!d->ino || d->ino->nlink > 0)) {
        if (d->ino != there) {
            ss_hit(SS_F_STALE_NAME, r->steps);
        }
        return d->ino;
    }
    ss_know(c, path, there);
    return there;
}

/* A directory that was read anew tells which names have appeared. */
void ss_forget_absent(struct ss_client *c, const char *dir)
{
    struct kc_map_iter it = {0};
    size_t n = strlen(dir);
    for (struct kc_map_entry *e; c->n_absent && (e = kc_map_next(&c->names, &it));) {
        struct dentry *d = e->value;
        if (!d->ino && e->key_len > n && strncmp(e->key, dir, n) == 0) {
            dentry_free(c, kc_map_del(&c->names, e->key, e->key_len));
        }
    }
}

/* ---- pages ---- */

struct cfile *ss_file_of(struct ss_client *c, struct ss_ino *ino)
{
    if (ino->index >= c->n_files) {
        uint32_t n = ino->index + 256;
        c->files = kc_realloc(c->files, n * sizeof(struct cfile *));
        memset(c->files + c->n_files, 0, (n - c->n_files) * sizeof(struct cfile *));
        c->n_files = n;
    }
    struct cfile *f = c->files[ino->index];
    if (!f) {
        f = c->files[ino->index] = kc_zalloc(sizeof(*f));
        f->ino = ino;
    }
    return f;
}

void ss_drop_clean(struct cfile *f)
{
    for (uint32_t i = 0; i < f->n_pages; i++) {
        if (f->pages[i] && !f->pages[i]->dirty && !f->pages[i]->unstable) {
            kc_free(f->pages[i]);
            f->pages[i] = NULL;
        }
    }
}

void ss_revalidate(struct cfile *f)
{
    if (f->change != f->ino->change) {
        ss_drop_clean(f);
    }
    f->change = f->ino->change;
    f->size = f->ino->size;
    f->attr_us = ss_now_us();
}

struct page *ss_page_at(struct cfile *f, uint64_t i)
{
    if (i >= f->n_pages) {
        uint32_t n = (uint32_t)i + 8;
        f->pages = kc_realloc(f->pages, n * sizeof(struct page *));
        memset(f->pages + f->n_pages, 0, (n - f->n_pages) * sizeof(struct page *));
        f->n_pages = n;
    }
    if (!f->pages[i]) {
        f->pages[i] = kc_zalloc(sizeof(struct page));
    }
    return f->pages[i];
}

/* Reads the rest of a page from the server around what is known of it. */
void ss_fill(struct page *p, const struct ss_ino *ino, uint64_t i)
{
    uint64_t at = i * SS_PAGE;
    size_t n = ino->size > at ? (size_t)KC_MIN((uint64_t)SS_PAGE, ino->size - at) : 0;
    bool ours = p->dirty || p->unstable;
    size_t lo = ours ? KC_MIN(p->lo, n) : n, hi = ours ? KC_MIN(p->hi, n) : n;
    if (lo > 0) {
        memcpy(p->b, ino->data + at, lo);
    }
    if (hi < n) {
        memcpy(p->b + hi, ino->data + at + hi, n - hi);
    }
    p->lo = 0;
    p->hi = ours ? KC_MAX(p->hi, n) : n;
}

void ss_page_dirty(struct ss_client *c, struct cfile *f, struct page *p)
{
    if (p->unstable) {
        p->unstable = false; /* it goes again, whole */
        f->n_unstable--;
    }
    if (p->dirty) {
        return;
    }
    p->dirty = true;
    if (f->n_dirty++) {
        return;
    }
    if (c->n_dirty == c->dirty_room) {
        c->dirty_room += 16;
        c->dirty = kc_realloc(c->dirty, c->dirty_room * sizeof(struct cfile *));
    }
    f->dirty_at = c->n_dirty;
    c->dirty[c->n_dirty++] = f;
}

static void page_clean(struct ss_client *c, struct cfile *f, struct page *p)
{
    p->dirty = false;
    if (--f->n_dirty == 0) {
        struct cfile *last = c->dirty[--c->n_dirty];
        c->dirty[f->dirty_at] = last;
        last->dirty_at = f->dirty_at;
    }
}

/* One page goes to the server; on an error it counts as clean, and the error waits to be told. */
static void write_back(struct ss_client *c, struct cfile *f, uint32_t i, int error)
{
    struct page *p = f->pages[i];
    page_clean(c, f, p);
    if (!error) {
        bool seen = f->change == f->ino->change;
        error = ss_srv_write(f->ino, c->serial, (uint64_t)i * SS_PAGE + p->lo, p->b + p->lo,
                             p->hi - p->lo);
        f->change = seen ? f->ino->change : f->change;
    }
    if (!error) {
        p->unstable = true;
        p->boot = ss_srv_boot();
        f->n_unstable++;
        return;
    }
    f->error = error;
    if (ss_chance(500)) {
        kc_free(p); /* some kernels drop the page, others keep showing it */
        f->pages[i] = NULL;
    }
}

/* Some dirty page of a file: which one is the seed's choice. */
static bool write_back_one(struct ss_client *c, struct cfile *f, int error)
{
    if (!f->n_dirty) {
        return false;
    }
    if (!error && c->faults) {
        error = ss_srv_is_full() ? -ENOSPC : ss_chance(ss_srv_get_rates()->write_error) ? -EIO : 0;
    }
    uint64_t nth = f->n_dirty > 1 ? ss_below(f->n_dirty) : 0;
    for (uint32_t i = 0; i < f->n_pages; i++) {
        if (f->pages[i] && f->pages[i]->dirty && nth-- == 0) {
            write_back(c, f, i, error);
            return true;
        }
    }
    return false;
}

bool ss_client_is_dirty(const struct ss_client *c)
{
    return c->n_dirty > 0;
}

void ss_client_write_back(struct ss_client *c)
{
    if (!c->dead && c->n_dirty && c->cut_until_us <= ss_now_us() &&
        ss_srv_up_at_us() <= ss_now_us()) {
        write_back_one(c, c->dirty[ss_below(c->n_dirty)], 0);
    }
}

/* What the server has is durable now, unless it crashed since it got some of it. */
static bool commit(struct ss_client *c, struct cfile *f)
{
    for (uint32_t i = 0; i < f->n_pages && f->n_unstable; i++) {
        struct page *p = f->pages[i];
        if (p && p->unstable && p->boot != ss_srv_boot()) {
            ss_page_dirty(c, f, p);
            ss_srv_count(SS_E_SENT_AGAIN);
        }
    }
    if (f->n_dirty) {
        return false;
    }
    ss_srv_commit(f->ino, c->serial);
    for (uint32_t i = 0; i < f->n_pages && f->n_unstable; i++) {
        if (f->pages[i] && f->pages[i]->unstable) {
            f->pages[i]->unstable = false;
            f->n_unstable--;
        }
    }
    return true;
}

int ss_flush(struct ss_req *r, struct cfile *f)
{
    struct ss_client *c = r->c;
    int error = r->fire == SS_F_WRITE_ERROR ? -EIO : r->fire == SS_F_ENOSPC ? -ENOSPC : 0;
    if (error) {
        r->fire = SS_FAULTS;
        f->error = f->n_dirty ? f->error : error;
    }
    do {
        for (; !c->dead && write_back_one(c, f, error); error = 0) {
            if (ss_chance(300)) {
                ss_back(r, 0);
            }
        }
        ss_back(r, 0); /* the commit is a request of its own */
    } while (!c->dead && !commit(c, f));
    int rc = f->error;
    f->error = 0;
    if (rc) {
        ss_hit(rc == -ENOSPC ? SS_F_ENOSPC : SS_F_WRITE_ERROR, r->steps);
    }
    return c->dead ? -EIO : rc;
}

/* ---- life ---- */

struct ss_client *ss_client_new(int node, void (*struck)(void *ctx, enum ss_fault f), void *ctx)
{
    struct ss_client *c = kc_zalloc(sizeof(*c));
    c->node = node;
    c->serial = ss_srv_serial();
    c->struck = struck;
    c->ctx = ctx;
    ss_client_set_here(node, c);
    kc_map_init(&c->names);
    return c;
}

void ss_client_fs(struct ss_client *c, struct ks_fs *ret)
{
    ks_fs_init(ret, &ss_port_ops, c);
}

void ss_client_faults(struct ss_client *c, bool on)
{
    c->faults = on;
}

void ss_client_crash(struct ss_client *c, bool kill)
{
    while (c->n_dirty) {
        struct cfile *f = c->dirty[c->n_dirty - 1];
        for (uint32_t j = 0; j < f->n_pages; j++) {
            struct page *p = f->pages[j];
            if (!p || !p->dirty) {
                continue;
            }
            page_clean(c, f, p);
            if (!kill && ss_chance(400)) {
                ss_srv_count(SS_E_LOST_PAGE);
            } else {
                ss_srv_late_write(f->ino, c->serial, (uint64_t)j * SS_PAGE + p->lo, p->b + p->lo,
                                  p->hi - p->lo);
            }
        }
    }
    c->dead = true;
    ss_wake(c, true); /* whoever waits for an answer */
}

void ss_client_cut(struct ss_client *c, int64_t until_us)
{
    c->cut_until_us = until_us;
}

void ss_client_free(struct ss_client *c)
{
    ss_client_set_here(c->node, NULL);
    for (uint32_t i = 0; i < c->n_files; i++) {
        struct cfile *f = c->files[i];
        for (uint32_t j = 0; f && j < f->n_pages; j++) {
            kc_free(f->pages[j]);
        }
        if (f) {
            kc_free(f->pages);
            kc_free(f);
        }
    }
    kc_free(c->files);
    kc_free(c->dirty);
    kc_map_fini(&c->names, kc_free);
    kc_free(c);
}
