/* The volume itself: names, files, records, and building it anew from records. */
#include <stdlib.h>

#include "base/kc_hash.h"
#include "st_mem_int.h"

void *sm_grow(void *p, size_t size)
{
    p = realloc(p, size);
    KC_ASSERT(p);
    return p;
}

void sm_ino_drop(struct sm_ino *ino)
{
    if (--ino->refs == 0) {
        free(ino->data);
        free(ino);
    }
}

struct sm_ino *sm_ino_new(struct st_mem *m, bool dir)
{
    struct sm_ino *ino = calloc(1, sizeof(*ino));
    KC_ASSERT(ino);
    ino->number = m->next_number++;
    ino->dir = dir;
    return ino;
}

struct sm_ino *sm_get(struct st_mem *m, const char *path)
{
    return kc_map_get(&m->names, path, strlen(path));
}

static bool in_root(const char *path)
{
    return strchr(path, '/') == NULL;
}

bool sm_has_parent(struct st_mem *m, const char *path)
{
    const char *slash = strrchr(path, '/');
    struct sm_ino *dir = slash ? kc_map_get(&m->names, path, (size_t)(slash - path)) : NULL;
    return in_root(path) || (dir && dir->dir);
}

void sm_enter(struct st_mem *m, const char *path, struct sm_ino *ino)
{
    struct sm_ino *old = kc_map_put(&m->names, path, strlen(path), ino);
    ino->refs++;
    ino->nlink++;
    if (old) {
        old->nlink--;
        sm_ino_drop(old);
    }
}

void sm_leave(struct st_mem *m, const char *path)
{
    struct sm_ino *ino = kc_map_del(&m->names, path, strlen(path));
    ino->nlink--;
    sm_ino_drop(ino);
}

/* Is `name` a direct entry of `dir` ("." = the root)? Returns its last part. */
const char *sm_entry_of(const char *dir, const char *name)
{
    size_t n = strcmp(dir, ".") == 0 ? 0 : strlen(dir) + 1;
    if (n && (strncmp(name, dir, n - 1) != 0 || name[n - 1] != '/')) {
        return NULL;
    }
    return strchr(name + n, '/') ? NULL : name + n;
}

bool sm_has_entries(struct st_mem *m, const char *dir)
{
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&m->names, &it));) {
        if (sm_entry_of(dir, e->key)) {
            return true;
        }
    }
    return false;
}

void sm_put_bytes(struct sm_ino *ino, uint64_t pos, const uint8_t *p, size_t len)
{
    size_t end = (size_t)pos + len;
    if (end > ino->room) {
        ino->data = sm_grow(ino->data, end * 2);
        memset(ino->data + ino->room, 0, end * 2 - ino->room);
        ino->room = end * 2;
    }
    if (len && p) {
        memcpy(ino->data + pos, p, len);
    }
    ino->size = KC_MAX(ino->size, (uint64_t)end);
}

/* ---- records ---- */

struct st_mem_rec *sm_note(struct st_mem *m, int port, enum st_mem_op op, const struct sm_ino *ino,
                           const char *path)
{
    static struct st_mem_rec nowhere;
    if (!m->recording) {
        return &nowhere;
    }
    if (m->n_recs == m->recs_room) {
        m->recs_room = KC_MAX(m->recs_room * 2, (size_t)256);
        m->recs = sm_grow(m->recs, m->recs_room * sizeof(*m->recs));
    }
    struct st_mem_rec *r = &m->recs[m->n_recs++];
    *r = (struct st_mem_rec){.op = op, .port = port, .ino = ino ? ino->number : 0};
    snprintf(r->path, sizeof(r->path), "%s", path);
    return r;
}

void sm_note_bytes(struct st_mem *m, int port, const struct sm_ino *ino, uint64_t pos,
                   const void *data, size_t len)
{
    struct st_mem_rec *r = sm_note(m, port, SM_WRITE, ino, "");
    if (m->recording) {
        r->pos = pos;
        r->len = len;
        r->data = sm_grow(NULL, len + 1);
        if (len) {
            memcpy(r->data, data, len);
        }
    }
}

/* ---- life ---- */

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
    sm_ino_drop(ino);
}

void st_mem_redo_start(struct st_mem *m)
{
    for (uint32_t i = 0; i < m->n_redone; i++) {
        if (m->redone[i]) {
            sm_ino_drop(m->redone[i]);
        }
    }
    free(m->redone);
    m->redone = NULL;
    m->n_redone = 0;
}

static void forget_records(struct st_mem *m)
{
    for (size_t i = 0; i < m->n_recs; i++) {
        free(m->recs[i].data);
    }
    m->n_recs = 0;
}

void st_mem_free(struct st_mem *m)
{
    st_mem_redo_start(m);
    kc_map_fini(&m->names, drop_value);
    forget_records(m);
    free(m->recs);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

void st_mem_number_from(struct st_mem *m, uint32_t number)
{
    pthread_mutex_lock(&m->lock);
    m->next_number = number;
    pthread_mutex_unlock(&m->lock);
}

void st_mem_network(struct st_mem *m, bool network)
{
    m->network = network;
}

void st_mem_ordered(struct st_mem *m, bool ordered)
{
    m->ordered = ordered;
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
    if (on) {
        forget_records(m);
    }
    m->recording = on;
    pthread_mutex_unlock(&m->lock);
}

static int depth_of(const char *path)
{
    int n = 0;
    for (; *path; path++) {
        n += *path == '/';
    }
    return n;
}

void st_mem_dump(struct st_mem *m)
{
    enum { DEPTH = 5 };
    pthread_mutex_lock(&m->lock);
    for (int depth = 0; depth < DEPTH; depth++) {
        struct kc_map_iter it = {0};
        for (struct kc_map_entry *e; (e = kc_map_next(&m->names, &it));) {
            const struct sm_ino *ino = e->value;
            if (depth_of(e->key) == depth) {
                sm_note(m, 0, ino->dir ? SM_MKDIR : SM_LINK, ino, e->key);
                sm_note_bytes(m, 0, ino, 0, ino->data, (size_t)ino->size);
            }
        }
    }
    pthread_mutex_unlock(&m->lock);
}

void st_mem_mark(struct st_mem *m, uint64_t number)
{
    pthread_mutex_lock(&m->lock);
    sm_note(m, 0, SM_MARK, NULL, "")->pos = number;
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
            sm_leave(m, e->key);
        }
    }
    pthread_mutex_unlock(&m->lock);
}

static struct sm_ino *redone(struct st_mem *m, uint32_t number)
{
    return number < m->n_redone ? m->redone[number] : NULL;
}

/* The file of a number, made when it is first heard of. */
static struct sm_ino *redo_ino(struct st_mem *m, uint32_t number, bool dir)
{
    if (number >= m->n_redone) {
        uint32_t n = (number + 1) * 2;
        m->redone = sm_grow(m->redone, n * sizeof(*m->redone));
        memset(m->redone + m->n_redone, 0, (n - m->n_redone) * sizeof(*m->redone));
        m->n_redone = n;
    }
    if (!m->redone[number]) {
        m->redone[number] = sm_ino_new(m, dir);
        m->redone[number]->number =
            number; /* so that a record of what comes then goes on from there */
        m->redone[number]->refs++;
    }
    return m->redone[number];
}

static void redo_name(struct st_mem *m, const struct st_mem_rec *r)
{
    struct sm_ino *there = sm_get(m, r->path);
    if (sm_has_parent(m, r->path) && !(r->op == SM_MKDIR && there)) {
        sm_enter(m, r->path, redo_ino(m, r->ino, r->op == SM_MKDIR));
    }
}

void st_mem_redo(struct st_mem *m, const struct st_mem_rec *r)
{
    pthread_mutex_lock(&m->lock);
    struct sm_ino *ino = redone(m, r->ino), *there = sm_get(m, r->path);
    switch (r->op) {
    case SM_CREATE:
    case SM_MKDIR:
    case SM_LINK:
        redo_name(m, r);
        break;
    case SM_WRITE:
        sm_put_bytes(redo_ino(m, r->ino, false), r->pos, r->data, r->len);
        break;
    case SM_EXTEND:
        sm_put_bytes(redo_ino(m, r->ino, false), r->pos, NULL, 0);
        break;
    case SM_UNLINK:
        if (there && there == ino && !(ino->dir && sm_has_entries(m, r->path))) {
            sm_leave(m, r->path);
        }
        break;
    case SM_RENAME:
        if (ino && sm_has_parent(m, r->to)) {
            sm_enter(m, r->to, ino);
        }
        if (there && there == ino) {
            sm_leave(m, r->path);
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
        const struct sm_ino *ino = e->value;
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
    struct sm_ino *ino = sm_get(m, path);
    bool there = ino && pos < ino->size;
    if (there) {
        ino->data[pos] ^= 0xff;
    }
    pthread_mutex_unlock(&m->lock);
    return there;
}
