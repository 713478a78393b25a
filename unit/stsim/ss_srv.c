#include "ss_srv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_hash.h"
#include "base/kc_map.h"
#include "base/kc_mem.h"
#include "storage/ks_vol.h"

struct late {
    struct late *next;
    enum ss_late kind;
    int64_t due_us;
    struct ss_ino *ino;
    char path[KS_PATH_MAX];
    int writer;
    uint64_t pos;
    size_t len;
    uint8_t bytes[SS_PAGE];
};

static struct {
    struct kc_map names; /* path -> struct ss_ino */
    struct ss_ino **inos;
    uint32_t n_inos, room;
    struct late *late;
    struct ss_watch watch;
    struct ss_rates rates;
    enum ss_lie lie;
    int64_t full_until_us;
    uint64_t effects[SS_EFFECTS];
    int serial;
    uint64_t boot;
    int64_t up_at_us;
} V;

const char *ss_effect_name(enum ss_effect e)
{
    static const char *const names[SS_EFFECTS] = {
        [SS_E_LOST_PAGE] = "lost pages",        [SS_E_LATE_PAGE] = "late pages",
        [SS_E_LATE_REQUEST] = "late requests",  [SS_E_FORGOTTEN] = "forgotten writes",
        [SS_E_SENT_AGAIN] = "pages sent again", [SS_E_SILLY] = "silly renames",
    };
    return names[e];
}

uint64_t ss_srv_counted(enum ss_effect e)
{
    return V.effects[e];
}

void ss_srv_count(enum ss_effect e)
{
    V.effects[e]++;
}

void ss_srv_rates(const struct ss_rates *rates)
{
    V.rates = *rates;
}

const struct ss_rates *ss_srv_get_rates(void)
{
    return &V.rates;
}

void ss_srv_full_until(int64_t us)
{
    V.full_until_us = us;
}

bool ss_srv_is_full(void)
{
    return ss_now_us() < V.full_until_us;
}

enum ss_lie ss_srv_lie(void)
{
    return V.lie;
}

int ss_srv_serial(void)
{
    return ++V.serial;
}

/* ---- names ---- */

static struct ss_ino *get(const char *path)
{
    return kc_map_get(&V.names, path, strlen(path));
}

struct ss_ino *ss_srv_lookup(const char *path)
{
    return get(strcmp(path, ".") == 0 ? "" : path);
}

static struct ss_ino *parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    struct ss_ino *dir = kc_map_get(&V.names, path, slash ? (size_t)(slash - path) : 0);
    return dir && dir->dir ? dir : NULL;
}

static struct ss_ino *ino_new(int maker, bool dir)
{
    struct ss_ino *ino = kc_zalloc(sizeof(*ino));
    if (V.n_inos == V.room) {
        V.room = KC_MAX(V.room * 2, 256u);
        V.inos = kc_realloc(V.inos, V.room * sizeof(struct ss_ino *));
    }
    ino->index = V.n_inos;
    V.inos[V.n_inos++] = ino;
    ino->maker = maker;
    ino->dir = dir;
    return ino;
}

static uint64_t cookie_of(const char *leaf)
{
    return kc_hash64(leaf, strlen(leaf)) | 1;
}

static const char *leaf_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The first name of a directory behind a cookie. */
static uint32_t behind(const struct ss_ino *dir, uint64_t cookie)
{
    uint32_t lo = 0;
    for (uint32_t hi = dir->n_names; lo < hi;) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (dir->names[mid].cookie <= cookie) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

static void name_add(struct ss_ino *dir, const char *leaf)
{
    if (dir->n_names == dir->names_room) {
        dir->names_room += KC_MAX(dir->names_room, 16u);
        dir->names = kc_realloc(dir->names, dir->names_room * sizeof(*dir->names));
    }
    uint64_t cookie = cookie_of(leaf);
    uint32_t at = behind(dir, cookie);
    memmove(dir->names + at + 1, dir->names + at, (dir->n_names - at) * sizeof(*dir->names));
    dir->names[at] = (struct ss_name){.cookie = cookie, .name = kc_strdup(leaf)};
    dir->n_names++;
}

static void name_del(struct ss_ino *dir, const char *leaf)
{
    uint32_t at = behind(dir, cookie_of(leaf));
    do { /* names of one cookie are neighbours */
        KC_ASSERT(at > 0);
        at--;
    } while (strcmp(dir->names[at].name, leaf) != 0);
    kc_free(dir->names[at].name);
    dir->n_names--;
    memmove(dir->names + at, dir->names + at + 1, (dir->n_names - at) * sizeof(*dir->names));
}

static void enter(const char *path, struct ss_ino *ino)
{
    struct ss_ino *old = kc_map_put(&V.names, path, strlen(path), ino);
    if (old) {
        old->nlink--;
        old->change++;
    } else if (*path) {
        name_add(parent(path), leaf_of(path));
    }
    ino->nlink++;
    ino->change++;
}

static struct ss_ino *leave(const char *path)
{
    struct ss_ino *ino = kc_map_del(&V.names, path, strlen(path));
    if (ino) {
        ino->nlink--;
        ino->change++;
        name_del(parent(path), leaf_of(path));
        parent(path)->change++;
    }
    return ino;
}

int ss_srv_create(const char *path, int maker, bool dir, struct ss_ino **ret)
{
    struct ss_ino *in = parent(path);
    if (!in) {
        return -ENOENT;
    }
    if (get(path)) {
        return -EEXIST;
    }
    struct ss_ino *ino = ino_new(maker, dir);
    enter(path, ino);
    in->change++;
    if (ret) {
        *ret = ino;
    }
    return 0;
}

int ss_srv_link(struct ss_ino *ino, const char *to)
{
    struct ss_ino *in = parent(to);
    if (!in) {
        return -ENOENT;
    }
    if (get(to) && V.lie != SS_LINK_OVERWRITES) {
        return -EEXIST;
    }
    if (ino->nlink == 0) {
        return -ESTALE;
    }
    enter(to, ino);
    in->change++;
    V.watch.linked(V.watch.ctx, to, ino->data, ino->size);
    return 0;
}

int ss_srv_unlink(const char *path)
{
    struct ss_ino *ino = get(path);
    if (!ino || ino->dir) {
        return ino ? -EISDIR : -ENOENT;
    }
    leave(path);
    V.watch.unlinked(V.watch.ctx, path);
    return 0;
}

int ss_srv_rmdir(const char *path)
{
    struct ss_ino *ino = get(path);
    if (!ino) {
        return -ENOENT;
    }
    if (!ino->dir) {
        return -ENOTDIR;
    }
    if (ino->n_names) {
        return -ENOTEMPTY;
    }
    leave(path);
    return 0;
}

int ss_srv_rename(const char *from, const char *to)
{
    struct ss_ino *in = parent(to), *ino = get(from);
    if (!in || !ino) {
        return -ENOENT;
    }
    enter(to, ino);
    leave(from);
    in->change++;
    V.watch.linked(V.watch.ctx, to, ino->data, ino->size);
    V.watch.unlinked(V.watch.ctx, from);
    return 0;
}

bool ss_srv_list(const char *path, struct ss_names *it)
{
    const struct ss_ino *dir = ss_srv_lookup(path);
    it->n = 0;
    for (uint32_t at = dir ? behind(dir, it->cookie) : 0;
         dir && at < dir->n_names && it->n < (int)KC_ARRAY_LEN(it->name); at++) {
        snprintf(it->name[it->n++], KS_PATH_MAX, "%s", dir->names[at].name);
        it->cookie = dir->names[at].cookie;
    }
    return it->n > 0;
}

/* ---- contents ---- */

static void grow(struct ss_ino *ino, uint64_t size)
{
    if (size > ino->room) {
        size_t room = KC_MAX((size_t)size, ino->room * 2);
        ino->data = kc_realloc(ino->data, room);
        memset(ino->data + ino->room, 0, room - ino->room);
        ino->room = room;
    }
    ino->size = KC_MAX(ino->size, size);
}

void ss_srv_extend(struct ss_ino *ino, const char *path, uint64_t size)
{
    if (strncmp(path, "inc/", 4) != 0 && strncmp(path, ".probe-", 7) != 0) {
        V.watch.broken(V.watch.ctx, "I8: truncates a file that is no claim file", path);
    }
    grow(ino, size);
    ino->change++;
}

static void remember(struct ss_ino *ino, int writer, uint64_t pos, size_t len)
{
    if (ino->n_writes == ino->writes_room) {
        ino->writes_room += KC_MAX(ino->writes_room, 4u);
        ino->writes = kc_realloc(ino->writes, ino->writes_room * sizeof(*ino->writes));
    }
    struct ss_write *w = &ino->writes[ino->n_writes++];
    *w = (struct ss_write){.writer = writer, .pos = pos, .len = len, .size = ino->size};
    if (pos < ino->size) {
        w->n_old = (size_t)KC_MIN((uint64_t)len, ino->size - pos);
        w->old = kc_alloc(w->n_old);
        memcpy(w->old, ino->data + pos, w->n_old);
    }
}

int ss_srv_write(struct ss_ino *ino, int writer, uint64_t pos, const uint8_t *p, size_t len)
{
    if (ino->nlink == 0) {
        return -ESTALE;
    }
    if (ino->maker != writer) {
        V.watch.broken(V.watch.ctx, "I8: writes a file that it did not make", "");
    }
    remember(ino, writer, pos, len);
    grow(ino, pos + len);
    memcpy(ino->data + pos, p, len);
    ino->change++;
    return 0;
}

/* ---- what is not committed ---- */

void ss_srv_commit(struct ss_ino *ino, int writer)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < ino->n_writes; i++) {
        if (ino->writes[i].writer == writer) {
            kc_free(ino->writes[i].old);
        } else {
            ino->writes[kept++] = ino->writes[i];
        }
    }
    ino->n_writes = kept;
}

uint64_t ss_srv_boot(void)
{
    return V.boot;
}

int64_t ss_srv_up_at_us(void)
{
    return V.up_at_us;
}

static void undo(struct ss_ino *ino, struct ss_write *w)
{
    memset(ino->data + w->pos, 0, w->len);
    if (w->n_old) {
        memcpy(ino->data + w->pos, w->old, w->n_old);
    }
    kc_free(w->old);
}

/* The file as it was before the oldest write, and then what the server happened to have written to
 * its disk by itself. */
static void forget(struct ss_ino *ino)
{
    uint32_t n = ino->n_writes;
    if (!n) {
        return;
    }
    uint64_t size = ino->writes[0].size;
    uint8_t *was = kc_alloc(ino->size + 1);
    memcpy(was, ino->data, ino->size);
    for (uint32_t i = n; i-- > 0;) {
        undo(ino, &ino->writes[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct ss_write *w = &ino->writes[i];
        if (ss_chance(300)) {
            memcpy(ino->data + w->pos, was + w->pos, w->len);
            size = KC_MAX(size, w->pos + w->len);
        } else {
            ss_srv_count(SS_E_FORGOTTEN);
        }
    }
    kc_free(was);
    ino->size = size;
    ino->change++;
    ino->n_writes = 0;
}

void ss_srv_crash(void)
{
    for (uint32_t i = 0; i < V.n_inos; i++) {
        forget(V.inos[i]);
    }
    V.boot++;
    V.up_at_us = ss_now_us() + 1000 + (int64_t)ss_below(ss_chance(300) ? 5000000 : 200000);
}

uint64_t ss_srv_digest(const char *path, uint64_t len)
{
    const struct ss_ino *ino = get(path);
    if (!ino || ino->size < len) {
        return 0;
    }
    return kc_hash64(ino->data ? ino->data : (const uint8_t *)"", (size_t)len) | 1;
}

/* ---- what is still on its way ---- */

static struct late *late_new(enum ss_late kind, struct ss_ino *ino, const char *path)
{
    struct late *l = kc_zalloc(sizeof(*l));
    l->kind = kind;
    l->ino = ino;
    l->due_us = ss_now_us() + (int64_t)ss_below(ss_chance(500) ? 200000 : 30000000);
    snprintf(l->path, sizeof(l->path), "%s", path);
    l->next = V.late;
    V.late = l;
    return l;
}

void ss_srv_late_write(struct ss_ino *ino, int writer, uint64_t pos, const uint8_t *p, size_t len)
{
    struct late *l = late_new(SS_LATE_WRITE, ino, "");
    l->writer = writer;
    l->pos = pos;
    l->len = len;
    memcpy(l->bytes, p, len);
    ss_srv_count(SS_E_LATE_PAGE);
}

void ss_srv_late(enum ss_late kind, struct ss_ino *ino, const char *path)
{
    late_new(kind, ino, path);
    ss_srv_count(SS_E_LATE_REQUEST);
}

static void land(const struct late *l)
{
    switch (l->kind) {
    case SS_LATE_WRITE:
        ss_srv_write(l->ino, l->writer, l->pos, l->bytes, l->len);
        break;
    case SS_LATE_LINK:
        ss_srv_link(l->ino, l->path);
        break;
    case SS_LATE_UNLINK:
        ss_srv_unlink(l->path);
        break;
    case SS_LATE_EXTEND:
        ss_srv_extend(l->ino, l->path, KS_FENCE_SIZE);
        break;
    }
}

void ss_srv_land(bool all)
{
    for (struct late **at = &V.late; *at;) {
        struct late *l = *at;
        if (all || l->due_us <= ss_now_us()) {
            *at = l->next;
            land(l);
            kc_free(l);
        } else {
            at = &l->next;
        }
    }
}

void ss_srv_start(const struct ss_watch *watch, enum ss_lie lie)
{
    memset(&V, 0, sizeof(V));
    V.watch = *watch;
    V.lie = lie;
    kc_map_init(&V.names);
    struct ss_ino *root = ino_new(0, true);
    enter("", root);
}

void ss_srv_stop(void)
{
    for (uint32_t i = 0; i < V.n_inos; i++) {
        for (uint32_t j = 0; j < V.inos[i]->n_names; j++) {
            kc_free(V.inos[i]->names[j].name);
        }
        for (uint32_t j = 0; j < V.inos[i]->n_writes; j++) {
            kc_free(V.inos[i]->writes[j].old);
        }
        kc_free(V.inos[i]->writes);
        kc_free(V.inos[i]->names);
        kc_free(V.inos[i]->data);
        kc_free(V.inos[i]);
    }
    kc_free(V.inos);
    while (V.late) {
        struct late *l = V.late;
        V.late = l->next;
        kc_free(l);
    }
    kc_map_fini(&V.names, NULL);
}
