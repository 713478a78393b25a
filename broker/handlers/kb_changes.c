/* kb_changes.c - see kb_changes.h. */
#include "handlers/kb_changes.h"

#include <stdlib.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_str.h"
#include "wire/kw_errors.h"

struct kb_changes *kb_changes_new(struct kb_req *req, int32_t n)
{
    struct kb_changes *c = kb_alloc(req, 1, sizeof(*c));
    if (!c) {
        return NULL;
    }
    c->req = req;
    c->n = n;
    c->items = kb_alloc(req, (size_t)n, sizeof(*c->items));
    for (int32_t i = 0; c->items && i < n; i++) {
        c->items[i].all = c;
        c->items[i].message = "";
    }
    return c->items ? c : NULL;
}

void kb_refuse(struct kb_change *c, int16_t error, const char *message)
{
    c->error = error;
    c->message = message;
}

static void settle(struct kb_changes *c)
{
    if (--c->pending > 0) {
        return;
    }
    ki_image_unref(c->req->image);
    c->req->image = kb_image(c->req->app);
    c->done(c);
}

static void on_done(void *ctx, const struct kb_admin_result *r)
{
    struct kb_change *c = ctx;
    c->error = r->error;
    c->topic_id = r->topic_id;
    c->partitions = r->partitions;
    if (r->message && *r->message) { /* borrowed; a text that finds no room is left out */
        const char *copy = kc_arena_strndup(&c->all->req->arena, r->message, strlen(r->message));
        c->message = copy ? copy : "";
    }
    settle(c->all);
}

void kb_changes_run(struct kb_changes *c, int32_t timeout_ms, void (*done)(struct kb_changes *c))
{
    int64_t deadline = kc_mono_ms() + KC_MAX(timeout_ms, 0);
    c->done = done;
    c->pending = 1; /* our own, so that answers that come at once do not end it early */
    for (int32_t i = 0; i < c->n; i++) {
        struct kb_change *it = &c->items[i];
        if (it->error || !it->change.kind) {
            continue;
        }
        it->change.principal = c->req->principal;
        c->pending++;
        kb_admin_submit(c->req->app, &it->change, deadline, on_done, it);
    }
    settle(c);
}

struct named {
    struct kc_str name;
    int32_t at;
};

static int by_name(const void *a, const void *b)
{
    return kc_str_cmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

bool *kb_named_twice(struct kb_req *req, int32_t n,
                     struct kc_str (*name)(const void *from, int32_t i), const void *from)
{
    bool *twice = kb_alloc(req, (size_t)n, sizeof(*twice));
    struct named *list = twice ? kb_alloc(req, (size_t)n, sizeof(*list)) : NULL;
    if (!list) {
        return NULL;
    }
    for (int32_t i = 0; i < n; i++) {
        list[i] = (struct named){name(from, i), i};
    }
    qsort(list, (size_t)n, sizeof(*list), by_name);
    for (int32_t i = 1; i < n; i++) {
        if (kc_str_eq(list[i].name, list[i - 1].name)) {
            twice[list[i].at] = twice[list[i - 1].at] = true;
        }
    }
    return twice;
}

const char *kb_text(struct kb_req *req, struct kc_str s)
{
    char *z = kb_alloc(req, (size_t)s.len + 1, 1);
    if (z && s.len > 0) {
        memcpy(z, s.ptr, (size_t)s.len);
    }
    return z;
}
