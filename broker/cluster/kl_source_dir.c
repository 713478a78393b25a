/* The image as files of the local host, replaced by rename.
 *
 * inotify says when to look; a slow poll is the belt (a missed event, a directory that is not there
 * yet). Looking is one job on the pool at a time: a stat of the root, and a read if it changed. */
#include "cluster/kl_source.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"

enum { POLL_MS = 500, AGAIN_MS = 20 };

struct dir_source;

/* One look; goes to the pool and comes back. */
struct look {
    struct rt_work work;
    struct rt_msg msg;
    struct dir_source *source;
    struct ki_image *previous; /* a reference */
    struct stat seen; /* of the root when it was read last */
    struct ki_image *found; /* NULL: nothing new, or rc */
    int rc;
    struct kc_err err;
};

struct dir_source {
    struct kl_source base;
    struct rt_pool *io;
    char dir[PATH_MAX], name[256];
    uv_fs_event_t watch;
    uv_timer_t poll;
    bool watching, looking, again, closed;
    int open_handles;
    struct ki_image *last;
    struct stat seen;
    int last_rc;
};

static void maybe_free(struct dir_source *s)
{
    if (s->closed && !s->looking && s->open_handles == 0) {
        ki_image_unref(s->last);
        kc_free(s);
    }
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void run_look(struct rt_work *w)
{
    struct look *l = KC_CONTAINER_OF(w, struct look, work);
    struct dir_source *s = l->source;
    char path[PATH_MAX + 300];
    snprintf(path, sizeof(path), "%s/%s.json", s->dir, s->name);
    struct stat st;
    if (stat(path, &st)) {
        l->rc = errno == ENOENT ? 0 : kc_fail(&l->err, -errno, "%s: %s", path, kc_strerror(-errno));
    } else if (!l->previous || !same_file(&st, &l->seen)) {
        l->rc = kl_read_files(s->dir, s->name, false, l->previous, &l->found, &l->err);
        l->seen = st;
    }
    rt_post(s->base.loop, &l->msg);
}

static void look(struct dir_source *s);

static void on_looked(struct rt_msg *msg)
{
    struct look *l = KC_CONTAINER_OF(msg, struct look, msg);
    struct dir_source *s = l->source;
    s->looking = false;
    ki_image_unref(l->previous);
    if (s->closed) {
        ki_image_unref(l->found);
        kc_free(l);
        maybe_free(s);
        return;
    }
    if (l->found) {
        ki_image_unref(s->last);
        s->last = ki_image_ref(l->found);
        s->seen = l->seen;
        s->base.fn(s->base.ctx, l->found, true);
    }
    /* NOT_FOUND: shards of a root that is being written; it is there in a moment. */
    if (l->rc && l->rc != s->last_rc && l->rc != KC_E_NOT_FOUND) {
        struct kc_log_buf lb;
        kc_log(KC_WARN, "image", "event=image_unreadable error=%s",
               kc_log_str(kc_str_of(l->err.msg), &lb));
    }
    s->last_rc = l->rc;
    bool again = s->again;
    s->again = false;
    kc_free(l);
    if (s->closed) {
        maybe_free(s);
    } else if (again) {
        look(s);
    } else if (s->last_rc) {
        uv_timer_start(&s->poll, s->poll.timer_cb, AGAIN_MS, POLL_MS);
    }
}

static void look(struct dir_source *s)
{
    if (s->looking) {
        s->again = true;
        return;
    }
    struct look *l = kc_zalloc(sizeof(*l));
    *l = (struct look){.work.fn = run_look, .msg.fn = on_looked, .source = s, .seen = s->seen};
    l->previous = s->last ? ki_image_ref(s->last) : NULL;
    s->looking = true;
    rt_pool_post(s->io, &l->work);
}

static void on_event(uv_fs_event_t *h, const char *file, int events, int status)
{
    struct dir_source *s = h->data;
    (void)events;
    if (status) {
        uv_fs_event_stop(h);
        s->watching = false; /* the poll starts it again */
    } else if (!file || strncmp(file, s->name, strlen(s->name)) == 0) {
        look(s);
    }
}

static void on_poll(uv_timer_t *h)
{
    struct dir_source *s = h->data;
    if (!s->watching) {
        s->watching = uv_fs_event_start(&s->watch, on_event, s->dir, 0) == 0;
    }
    look(s);
}

static void on_closed(uv_handle_t *h)
{
    struct dir_source *s = h->data;
    s->open_handles--;
    maybe_free(s);
}

static void dir_free(struct kl_source *base)
{
    struct dir_source *s = KC_CONTAINER_OF(base, struct dir_source, base);
    s->closed = true;
    uv_close((uv_handle_t *)&s->watch, on_closed);
    uv_close((uv_handle_t *)&s->poll, on_closed);
}

struct kl_source *kl_source_directory(struct rt_loop *loop, struct rt_pool *io, const char *dir,
                                      const char *name, kl_source_fn fn, void *ctx)
{
    static const struct kl_source_ops ops = {.free = dir_free};
    struct dir_source *s = kc_zalloc(sizeof(*s));
    s->base = (struct kl_source){.ops = &ops, .loop = loop, .fn = fn, .ctx = ctx};
    s->io = io;
    if (strlen(dir) >= sizeof(s->dir) || strlen(name) >= sizeof(s->name)) {
        kc_free(s);
        return NULL;
    }
    memcpy(s->dir, dir, strlen(dir) + 1);
    memcpy(s->name, name, strlen(name) + 1);
    uv_fs_event_init(&loop->uv, &s->watch);
    uv_timer_init(&loop->uv, &s->poll);
    s->watch.data = s->poll.data = s;
    s->open_handles = 2;
    uv_timer_start(&s->poll, on_poll, 0, POLL_MS);
    return &s->base;
}
