/* kb_changes.c - see kb_changes.h. */
#include "handlers/kb_changes.h"

#include <stdlib.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_str.h"
#include "wire/kw_errors.h"

#define TWICE "The topic is named twice."

void kb_refuse(struct kb_change *c, int16_t error, const char *message)
{
    c->error = error;
    c->message = message;
}

struct kc_str kb_change_message(const struct kb_change *c)
{
    return c->error && *c->message ? kc_str_of(c->message) : KC_STR_NULL;
}

/* ---- submitting ---- */

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

static void settle(struct kb_changes *c)
{
    if (--c->pending > 0) {
        return;
    }
    ki_image_unref(c->req->image);
    c->req->image = kb_image(c->req->app);
    c->answer(c);
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

void kb_changes_submit(struct kb_changes *c, int32_t timeout_ms,
                       void (*answer)(struct kb_changes *c))
{
    c->answer = answer;
    int64_t deadline = kc_mono_ms() + KC_MAX(timeout_ms, 0);
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

/* ---- preparing ---- */

struct named {
    struct kc_str name;
    int32_t at;
};

static int by_name(const void *a, const void *b)
{
    return kc_str_cmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

/* Refuses every topic that comes more than once; false when the request was dropped. Not by comparing
 * all with all: n is the client's choice, and the loop is everybody's. */
static bool refuse_repeats(struct kb_changes *c, const struct kb_changes_api *api)
{
    struct named *list = kb_alloc(c->req, (size_t)c->n, sizeof(*list));
    if (!list) {
        return false;
    }
    for (int32_t i = 0; i < c->n; i++) {
        list[i] = (struct named){api->topic(c->req->body, i), i};
    }
    qsort(list, (size_t)c->n, sizeof(*list), by_name);
    for (int32_t i = 1; i < c->n; i++) {
        if (kc_str_eq(list[i].name, list[i - 1].name)) {
            kb_refuse(&c->items[list[i].at], KAFKA_INVALID_REQUEST, TWICE);
            kb_refuse(&c->items[list[i - 1].at], KAFKA_INVALID_REQUEST, TWICE);
        }
    }
    return true;
}

static bool prepare(struct kb_changes *c, const struct kb_changes_api *api)
{
    if (c->n <= KB_CHANGES_MAX && api->topic && !refuse_repeats(c, api)) {
        return false;
    }
    for (int32_t i = 0; i < c->n; i++) {
        struct kb_change *it = &c->items[i];
        if (c->n > KB_CHANGES_MAX) {
            kb_refuse(it, KAFKA_POLICY_VIOLATION, "A request may have at most 10000 changes.");
        } else if (!it->error && !api->prepare(c->req, i, it)) {
            return false;
        }
    }
    return !api->check || api->check(c);
}

/* ---- answering ---- */

static void answer(struct kb_changes *c)
{
    const struct kb_changes_api *api = c->api;
    uint8_t *results = kb_alloc(c->req, (size_t)c->n, api->result_size);
    if (!results) {
        return;
    }
    for (int32_t i = 0; i < c->n; i++) {
        if (!api->result(c->req, i, &c->items[i], results + (size_t)i * api->result_size)) {
            return;
        }
    }
    api->reply(c->req, results, c->n);
}

void kb_changes_run(struct kb_req *req, int32_t n, int32_t timeout_ms,
                    const struct kb_changes_api *api)
{
    struct kb_changes *c = kb_changes_new(req, n);
    if (c && prepare(c, api)) {
        c->api = api;
        kb_changes_submit(c, timeout_ms, answer);
    }
}

const char *kb_text(struct kb_req *req, struct kc_str s)
{
    char *z = kb_alloc(req, (size_t)s.len + 1, 1);
    if (z && s.len > 0) {
        memcpy(z, s.ptr, (size_t)s.len);
    }
    return z;
}
