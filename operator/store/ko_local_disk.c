#include "store/ko_local_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/kc_list.h"
#include "base/kc_log.h"
#include "base/kc_map.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "rt/rt_pool.h"
#include "store/ko_object.h"

enum { RETRY_MS = 1000, FILE_MAX_BYTES = 64 * 1024 * 1024 };

struct entry {
    struct kc_list link;
    char *path; /* of the file; its folder is made on demand */
    char *text; /* NULL: unlink */
};

/* What one pool work writes; stays the disk's until its message came back. */
struct batch {
    struct rt_work work;
    struct rt_msg msg;
    struct ko_disk *disk;
    struct kc_list entries;
    uint64_t seq;
    int rc; /* 0 or -errno of the first failure; written entries are gone from the list */
};

struct ko_disk {
    struct rt_loop *loop;
    struct rt_pool *pool;
    char *dir;
    struct kc_list pending; /* struct entry, oldest change first */
    struct kc_map by_path; /* the pending entry of a path */
    uint64_t seq; /* of the newest change */
    struct batch *inflight;
    uv_timer_t *retry; /* only while a batch waits for its next try */
    bool closed;
    ko_disk_durable fn;
    void *ctx;
};

static void entry_free(struct entry *e)
{
    kc_list_del(&e->link);
    kc_free(e->path);
    free(e->text);
    kc_free(e);
}

static int mkdirs(const char *dir)
{
    char path[PATH_MAX];
    size_t len = strlen(dir);
    if (len >= sizeof(path)) {
        return -ENAMETOOLONG;
    }
    memcpy(path, dir, len + 1);
    for (char *p = path + 1;; p++) {
        if (*p != '/' && *p != '\0') {
            continue;
        }
        char c = *p;
        *p = '\0';
        if (mkdir(path, 0700) && errno != EEXIST) {
            return -errno;
        }
        *p = c;
        if (!c) {
            return 0;
        }
    }
}

static int write_all(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, text, len);
        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        if (n > 0) {
            text += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

/* The old file or the new one, never a part: written beside and renamed over. */
static int replace_file(const char *path, const char *text)
{
    char tmp[PATH_MAX];
    if ((size_t)snprintf(tmp, sizeof(tmp), "%s.tmp", path) >= sizeof(tmp)) {
        return -ENAMETOOLONG;
    }
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 && errno == ENOENT) {
        char *slash = strrchr(tmp, '/');
        *slash = '\0';
        int rc = mkdirs(tmp);
        *slash = '/';
        if (rc) {
            return rc;
        }
        fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    }
    if (fd < 0) {
        return -errno;
    }
    int rc = write_all(fd, text, strlen(text));
    if (close(fd) && !rc) {
        rc = -errno;
    }
    if (!rc && rename(tmp, path)) {
        rc = -errno;
    }
    return rc;
}

static int write_entry(const struct entry *e)
{
    if (e->text) {
        return replace_file(e->path, e->text);
    }
    return unlink(e->path) && errno != ENOENT ? -errno : 0;
}

/* Writes in order, stops at the first failure. */
static int write_entries(struct kc_list *entries)
{
    KC_LIST_EACH(it, nx, entries)
    {
        struct entry *e = KC_LIST_ENTRY(it, struct entry, link);
        int rc = write_entry(e);
        if (rc) {
            struct kc_log_buf lb;
            kc_log(KC_ERROR, "store", "event=object_write_failed path=%s error=\"%s\"",
                   kc_log_str(kc_str_of(e->path), &lb), kc_strerror(rc));
            return rc;
        }
        entry_free(e);
    }
    return 0;
}

static void batch_run(struct rt_work *w)
{
    struct batch *b = KC_CONTAINER_OF(w, struct batch, work);
    b->rc = write_entries(&b->entries);
    rt_post(b->disk->loop, &b->msg);
}

static void batch_back(struct rt_msg *msg);

static void batch_start(struct ko_disk *d)
{
    if (d->inflight || kc_list_empty(&d->pending)) {
        return;
    }
    struct batch *b = kc_zalloc(sizeof(*b));
    b->work.fn = batch_run;
    b->msg.fn = batch_back;
    b->disk = d;
    b->seq = d->seq;
    kc_list_init(&b->entries);
    KC_LIST_EACH(it, nx, &d->pending)
    {
        kc_list_del(it);
        kc_list_add_tail(&b->entries, it);
    }
    kc_map_fini(&d->by_path, NULL);
    kc_map_init(&d->by_path);
    d->inflight = b;
    rt_pool_post(d->pool, &b->work);
}

static void timer_free(uv_handle_t *h)
{
    kc_free(h);
}

static void on_retry(uv_timer_t *t)
{
    struct ko_disk *d = t->data;
    uv_close((uv_handle_t *)t, timer_free);
    d->retry = NULL;
    rt_pool_post(d->pool, &d->inflight->work);
}

static void disk_free(struct ko_disk *d)
{
    kc_map_fini(&d->by_path, NULL);
    kc_free(d->dir);
    kc_free(d);
}

static void batch_back(struct rt_msg *msg)
{
    struct batch *b = KC_CONTAINER_OF(msg, struct batch, msg);
    struct ko_disk *d = b->disk;
    if (d->closed) {
        kc_free(b);
        disk_free(d);
        return;
    }
    if (b->rc) {
        d->retry = kc_alloc(sizeof(*d->retry));
        uv_timer_init(&d->loop->uv, d->retry);
        d->retry->data = d;
        uv_timer_start(d->retry, on_retry, RETRY_MS, 0);
        return;
    }
    uint64_t seq = b->seq;
    kc_free(b);
    d->inflight = NULL;
    batch_start(d);
    d->fn(d->ctx, seq);
}

int ko_disk_open(struct rt_loop *loop, const char *dir, ko_disk_durable fn, void *ctx,
                 struct ko_disk **ret, struct kc_err *err)
{
    /* Leaves room for "/<plural>/<namespace>/<name>.json.tmp". */
    int rc = strlen(dir) > PATH_MAX - 600 ? -ENAMETOOLONG : mkdirs(dir);
    if (rc) {
        return kc_fail(err, rc, "%s: %s", dir, kc_strerror(rc));
    }
    struct ko_disk *d = kc_zalloc(sizeof(*d));
    d->loop = loop;
    d->pool = rt_pool_new("objects", 1);
    d->dir = kc_strdup(dir);
    kc_list_init(&d->pending);
    kc_map_init(&d->by_path);
    d->fn = fn;
    d->ctx = ctx;
    *ret = d;
    return 0;
}

static json_t *load_file(const char *path, struct kc_err *err)
{
    struct stat st;
    json_error_t je;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st)) {
        kc_fail(err, -errno, "%s: %s", path, kc_strerror(-errno));
        if (fd >= 0) {
            close(fd);
        }
        return NULL;
    }
    json_t *doc = NULL;
    if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX_BYTES) {
        kc_fail(err, KC_E_CORRUPT, "%s: not a file of an object", path);
    } else {
        doc = json_loadfd(fd, JSON_REJECT_DUPLICATES, &je);
        if (!doc) {
            kc_fail(err, KC_E_CORRUPT, "%s: %s", path, je.text);
        }
    }
    close(fd);
    return doc;
}

/* A file must hold the object its path names. */
static int load_object(const char *path, enum ko_kind k, const char *ns, struct kc_str stem,
                       ko_disk_loaded fn, void *ctx, struct kc_err *err)
{
    json_t *doc = load_file(path, err);
    if (!doc) {
        return err ? err->code : KC_E_CORRUPT;
    }
    enum ko_kind got =
        ko_kind_find(kc_json_str(doc, "apiVersion", ""), kc_json_str(doc, "kind", ""));
    if (got != k || !kc_str_eqz(stem, ko_name(doc)) || strcmp(ko_ns(doc), ns) != 0 ||
        !ko_name_valid(ko_name(doc)) || !ko_name_valid(ns)) {
        json_decref(doc);
        return kc_fail(err, KC_E_CORRUPT, "%s: kind, namespace or name is not the path's", path);
    }
    return fn(ctx, k, doc, err);
}

static int load_folder(const char *dir, enum ko_kind k, const char *ns, ko_disk_loaded fn,
                       void *ctx, struct kc_err *err)
{
    DIR *h = opendir(dir);
    int rc = 0;
    if (!h) {
        return errno == ENOENT ? 0 : kc_fail(err, -errno, "%s: %s", dir, kc_strerror(-errno));
    }
    for (struct dirent *e; !rc && (e = readdir(h));) {
        struct kc_str stem = kc_str_of(e->d_name);
        char path[PATH_MAX];
        if (stem.len <= 5 || strcmp(e->d_name + stem.len - 5, ".json") != 0) {
            continue; /* ".", "..", what a crash left half-written (.tmp) */
        }
        stem.len -= 5;
        if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) >= sizeof(path)) {
            rc = kc_fail(err, -ENAMETOOLONG, "%s: path too long", dir);
        } else {
            rc = load_object(path, k, ns, stem, fn, ctx, err);
        }
    }
    closedir(h);
    return rc;
}

static int load_kind(struct ko_disk *d, enum ko_kind k, ko_disk_loaded fn, void *ctx,
                     struct kc_err *err)
{
    char dir[PATH_MAX], sub[PATH_MAX];
    int rc = 0;
    if ((size_t)snprintf(dir, sizeof(dir), "%s/%s", d->dir, ko_kind_info(k)->plural) >=
        sizeof(dir)) {
        return kc_fail(err, -ENAMETOOLONG, "%s: path too long", d->dir);
    }
    DIR *h = opendir(dir);
    if (!h) {
        return errno == ENOENT ? 0 : kc_fail(err, -errno, "%s: %s", dir, kc_strerror(-errno));
    }
    for (struct dirent *e; !rc && (e = readdir(h));) {
        if (e->d_name[0] == '.') {
            continue;
        }
        if ((size_t)snprintf(sub, sizeof(sub), "%s/%s", dir, e->d_name) >= sizeof(sub)) {
            rc = kc_fail(err, -ENAMETOOLONG, "%s: path too long", dir);
        } else {
            rc = load_folder(sub, k, e->d_name, fn, ctx, err);
        }
    }
    closedir(h);
    return rc;
}

int ko_disk_load(struct ko_disk *d, ko_disk_loaded fn, void *ctx, struct kc_err *err)
{
    int rc = 0;
    for (int k = 0; !rc && k < KO_KIND_COUNT; k++) {
        if (ko_kind_info((enum ko_kind)k)->namespaced) {
            rc = load_kind(d, (enum ko_kind)k, fn, ctx, err);
        }
    }
    return rc;
}

void ko_disk_put(struct ko_disk *d, enum ko_kind k, const char *ns, const char *name, char *text,
                 uint64_t seq)
{
    char path[PATH_MAX];
    int n =
        snprintf(path, sizeof(path), "%s/%s/%s/%s.json", d->dir, ko_kind_info(k)->plural, ns, name);
    KC_ASSERT(n > 0 && (size_t)n < sizeof(path)); /* the store checked names, open() the folder */
    struct entry *e = kc_map_get(&d->by_path, path, (size_t)n);
    if (e) {
        kc_map_del(&d->by_path, path, (size_t)n);
        entry_free(e);
    }
    e = kc_zalloc(sizeof(*e));
    e->path = kc_strdup(path);
    e->text = text;
    kc_list_add_tail(&d->pending, &e->link);
    kc_map_put(&d->by_path, path, (size_t)n, e);
    d->seq = seq;
    batch_start(d);
}

void ko_disk_close(struct ko_disk *d)
{
    if (!d) {
        return;
    }
    rt_pool_free(d->pool);
    if (d->inflight) {
        write_entries(&d->inflight->entries);
    }
    write_entries(&d->pending);
    KC_LIST_EACH(it, nx, &d->pending)
    {
        entry_free(KC_LIST_ENTRY(it, struct entry, link));
    }
    if (d->inflight) {
        KC_LIST_EACH(it, nx, &d->inflight->entries)
        {
            entry_free(KC_LIST_ENTRY(it, struct entry, link));
        }
    }
    if (d->retry) { /* no message is on its way then */
        uv_close((uv_handle_t *)d->retry, timer_free);
        kc_free(d->inflight);
        d->inflight = NULL;
    }
    if (d->inflight) {
        d->closed = true; /* its message frees the rest */
    } else {
        disk_free(d);
    }
}
