#include "store/ko_store_local.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_mem.h"
#include "base/kc_rng.h"
#include "base/kc_str.h"
#include "store/ko_local.h"
#include "store/ko_local_apply.h"
#include "store/ko_object.h"

enum { NAME_ON_DISK_MAX = 240 };

static struct ko_local *of(struct ko_store *s)
{
    return KC_CONTAINER_OF(s, struct ko_local, port);
}

/* 409 unless the versions a document names are the object's. True: refused. */
static bool stale(const struct ko_local_call *c, const struct ko_local_object *o, const json_t *doc)
{
    const char *rv = ko_rv(doc), *uid = ko_uid(doc);
    if ((*rv && strcmp(rv, ko_rv(o->doc)) != 0) || (*uid && strcmp(uid, ko_uid(o->doc)) != 0)) {
        ko_local_refuse(c, 409, "Conflict", "%s \"%s\": the object has been modified",
                        ko_kind_info(o->kind)->plural, ko_name(o->doc));
        return true;
    }
    return false;
}

/* The object; NULL: refused, there is none. */
static struct ko_local_object *find(const struct ko_local_call *c, enum ko_kind k, const char *ns,
                                    const char *name)
{
    struct ko_local_object *o = ko_local_find(c->s, k, ns, name);
    if (!o) {
        ko_local_refuse(c, 404, "NotFound", "%s \"%.100s\" not found", ko_kind_info(k)->plural,
                        name);
    }
    return o;
}

static const char *ns_of(const json_t *given)
{
    return *ko_ns(given) ? ko_ns(given) : "default";
}

/* The object that a document is about; NULL: refused, there is none, or it is not the one meant. */
static struct ko_local_object *find_current(const struct ko_local_call *c, enum ko_kind k,
                                            const json_t *given)
{
    struct ko_local_object *o = find(c, k, ns_of(given), ko_name(given));
    return o && !stale(c, o, given) ? o : NULL;
}

/* ---- the port ---- */

static void op_get(struct ko_store *st, enum ko_kind k, const char *ns, const char *name,
                   ko_done done, void *ctx)
{
    struct ko_local_call c = {of(st), done, ctx};
    struct ko_local_object *o = find(&c, k, ns, name);
    if (o) {
        ko_local_answer(&c, 200, o->doc);
    }
}

static int by_place(const void *a, const void *b)
{
    const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    int c = strcmp(ko_ns(x), ko_ns(y));
    return c ? c : strcmp(ko_name(x), ko_name(y));
}

/* The matching documents, sorted by namespace and name; kc_free the array. */
static json_t **collect(struct ko_local *s, enum ko_kind k, const char *ns, const char *selector,
                        size_t *ret_n)
{
    json_t **docs = kc_alloc((s->objects[k].len + 1) * sizeof(*docs));
    size_t n = 0;
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&s->objects[k], &it));) {
        struct ko_local_object *o = e->value;
        if ((!ns || strcmp(ns, ko_ns(o->doc)) == 0) && ko_selector_match(selector, o->doc)) {
            docs[n++] = o->doc;
        }
    }
    qsort(docs, n, sizeof(*docs), by_place);
    *ret_n = n;
    return docs;
}

static void op_list(struct ko_store *st, enum ko_kind k, const char *ns, const char *selector,
                    ko_done done, void *ctx)
{
    struct ko_local_call c = {of(st), done, ctx};
    char kind[64], rv[24];
    size_t n;
    if (!ko_selector_valid(selector)) {
        ko_local_refuse(&c, 400, "BadRequest", "label selector \"%.100s\" does not parse",
                        selector);
        return;
    }
    snprintf(kind, sizeof(kind), "%sList", ko_kind_info(k)->kind);
    snprintf(rv, sizeof(rv), "%llu", (unsigned long long)c.s->rv);
    json_t *items = json_array(), **docs = collect(c.s, k, ns, selector, &n);
    for (size_t i = 0; i < n; i++) {
        json_array_append(items, docs[i]);
    }
    kc_free(docs);
    json_t *list = json_pack("{s:s, s:s, s:{s:s}, s:o}", "apiVersion", ko_kind_info(k)->api_version,
                             "kind", kind, "metadata", "resourceVersion", rv, "items", items);
    ko_local_answer(&c, 200, list);
    json_decref(list);
}

/* Fills in the name (generateName) and namespace. False: refused. */
static bool place(const struct ko_local_call *c, enum ko_kind k, json_t *doc)
{
    json_t *meta = json_object_get(doc, "metadata");
    const char *prefix = kc_json_str(meta, "generateName", NULL);
    if (!*ko_name(doc) && prefix) {
        char name[300];
        uint32_t r;
        kc_random_bytes(&r, sizeof(r));
        snprintf(name, sizeof(name), "%.245s%05x", prefix, r & 0xfffff);
        json_object_set_new(meta, "name", json_string(name));
    }
    if (!*ko_ns(doc)) {
        json_object_set_new(meta, "namespace", json_string("default"));
    }
    if (!json_is_object(meta) || !ko_name_valid(ko_name(doc)) || !ko_name_valid(ko_ns(doc)) ||
        (c->s->disk && strlen(ko_name(doc)) > NAME_ON_DISK_MAX)) {
        ko_local_refuse(c, 422, "Invalid", "%s: metadata.name \"%.100s\" is not a DNS name",
                        ko_kind_info(k)->plural, ko_name(doc));
        return false;
    }
    return true;
}

static void op_create(struct ko_store *st, enum ko_kind k, json_t *given, ko_done done, void *ctx)
{
    struct ko_local_call c = {of(st), done, ctx};
    if (!ko_kind_info(k)->namespaced) {
        ko_local_refuse(&c, 405, "MethodNotAllowed", "%s are not served here",
                        ko_kind_info(k)->plural);
        return;
    }
    json_t *doc = json_deep_copy(given);
    if (!place(&c, k, doc)) {
        json_decref(doc);
        return;
    }
    if (ko_local_find(c.s, k, ko_ns(doc), ko_name(doc))) {
        ko_local_refuse(&c, 409, "AlreadyExists", "%s \"%.100s\" already exists",
                        ko_kind_info(k)->plural, ko_name(doc));
        json_decref(doc);
        return;
    }
    ko_local_create(&c, k, doc, json_object());
}

static void op_update(struct ko_store *st, enum ko_kind k, json_t *given, ko_done done, void *ctx)
{
    struct ko_local_call c = {of(st), done, ctx};
    struct ko_local_object *o = find_current(&c, k, given);
    if (!o) {
        return;
    }
    json_t *doc = json_deep_copy(given);
    ko_local_keep_system_fields(o, doc, ko_kind_info(k)->has_status);
    ko_local_write(&c, o, doc);
}

/* What of a document an apply speaks about. */
static json_t *applied_fields(enum ko_kind k, const json_t *given)
{
    json_t *fields = json_deep_copy(given);
    ko_local_drop_system_fields(fields);
    json_object_del(fields, "apiVersion");
    json_object_del(fields, "kind");
    if (ko_kind_info(k)->has_status) {
        json_object_del(fields, "status");
    }
    return fields;
}

static void op_apply(struct ko_store *st, enum ko_kind k, json_t *given, const char *manager,
                     ko_done done, void *ctx)
{
    struct ko_local_call c = {of(st), done, ctx};
    manager = manager ? manager : "kaas-operator";
    struct ko_local_object *o = ko_local_find(c.s, k, ns_of(given), ko_name(given));
    json_t *fields = applied_fields(k, given);
    if (o) {
        if (!stale(&c, o, given)) {
            json_t *doc = json_deep_copy(o->doc);
            ko_local_apply(doc, o->applied, manager, fields);
            ko_local_write(&c, o, doc);
        }
    } else if (!ko_kind_info(k)->namespaced) {
        ko_local_refuse(&c, 405, "MethodNotAllowed", "%s are not served here",
                        ko_kind_info(k)->plural);
    } else if (*ko_rv(given) || *ko_uid(given)) {
        ko_local_refuse(&c, 409, "Conflict", "%s \"%.100s\" is gone", ko_kind_info(k)->plural,
                        ko_name(given));
    } else {
        json_t *doc = json_deep_copy(given);
        if (place(&c, k, doc)) {
            ko_local_create(&c, k, doc, json_pack("{s:O}", manager, fields));
        } else {
            json_decref(doc);
        }
    }
    json_decref(fields);
}

static void op_apply_status(struct ko_store *st, enum ko_kind k, json_t *given, ko_done done,
                            void *ctx)
{
    struct ko_local_call c = {of(st), done, ctx};
    struct ko_local_object *o = find_current(&c, k, given);
    if (!o) {
        return;
    }
    json_t *status = json_object_get(given, "status");
    json_t *doc = json_deep_copy(o->doc);
    json_t *fields = json_pack("{s:O}", "status", status ? status : json_null());
    ko_local_apply(doc, o->applied, "kaas-operator/status", fields);
    json_decref(fields);
    ko_local_write(&c, o, doc);
}

static void op_merge(struct ko_store *st, enum ko_kind k, const char *ns, const char *name,
                     json_t *patch, ko_done done, void *ctx)
{
    struct ko_local_call c = {of(st), done, ctx};
    struct ko_local_object *o = find(&c, k, ns, name);
    if (!o || stale(&c, o, patch)) {
        return;
    }
    json_t *doc = json_deep_copy(o->doc);
    kc_json_merge(doc, patch);
    if (!json_is_object(json_object_get(doc, "metadata"))) {
        json_object_set_new(doc, "metadata", json_object());
    }
    ko_local_keep_system_fields(o, doc, ko_kind_info(k)->has_status);
    ko_local_write(&c, o, doc);
}

static void op_remove(struct ko_store *st, enum ko_kind k, const char *ns, const char *name,
                      const char *uid, ko_done done, void *ctx)
{
    struct ko_local_call c = {of(st), done, ctx};
    struct ko_local_object *o = find(&c, k, ns, name);
    if (!o) {
        return;
    }
    if (uid && strcmp(uid, ko_uid(o->doc)) != 0) {
        ko_local_refuse(&c, 409, "Conflict", "%s \"%.100s\": the uid is another one",
                        ko_kind_info(k)->plural, name);
        return;
    }
    json_t *doc = json_incref(o->doc);
    ko_local_remove(c.s, o);
    ko_local_answer(&c, 200, doc);
    json_decref(doc);
    ko_local_collect_garbage(c.s);
}

static struct ko_watch *op_watch(struct ko_store *st, enum ko_kind k, const char *ns,
                                 const char *selector, ko_watch_fn fn, void *ctx)
{
    struct ko_local *s = of(st);
    struct ko_watch proto = {.kind = k, .fn = fn, .ctx = ctx};
    size_t n;
    proto.ns = (char *)(uintptr_t)ns;
    proto.selector = (char *)(uintptr_t)selector;
    json_t **docs = collect(s, k, ns, selector, &n);
    struct ko_watch *w = ko_local_watch(s, &proto, docs, n);
    kc_free(docs);
    return w;
}

static void op_unwatch(struct ko_watch *w)
{
    if (w) {
        ko_local_unwatch(w);
    }
}

static void op_free(struct ko_store *st)
{
    struct ko_local *s = of(st);
    ko_disk_close(s->disk);
    ko_local_drop_deliveries(s);
    KC_LIST_EACH(it, nx, &s->watches)
    {
        ko_local_unwatch(KC_LIST_ENTRY(it, struct ko_watch, link));
    }
    kc_map_fini(&s->by_uid, NULL);
    for (int k = 0; k < KO_KIND_COUNT; k++) {
        kc_map_fini(&s->objects[k], ko_local_object_free);
    }
    s->freed = true; /* a message on its way to itself frees the memory then */
    if (!s->waking) {
        kc_free(s);
    }
}

/* ---- opening ---- */

static int on_loaded(void *ctx, enum ko_kind k, json_t *doc, struct kc_err *err)
{
    struct ko_local *s = ctx;
    json_t *meta = json_object_get(doc, "metadata");
    int64_t rv;
    if (kc_parse_i64(kc_str_of(ko_rv(doc)), &rv) || rv <= 0 || !*ko_uid(doc)) {
        int rc = kc_fail(err, KC_E_CORRUPT, "%s %s/%s has no resourceVersion or uid",
                         ko_kind_info(k)->plural, ko_ns(doc), ko_name(doc));
        json_decref(doc);
        return rc;
    }
    s->rv = KC_MAX(s->rv, (uint64_t)rv);
    json_t *applied = json_object_get(meta, "managedFields");
    applied = json_is_object(applied) ? json_incref(applied) : json_object();
    json_object_del(meta, "managedFields");
    ko_local_insert(s, k, doc, applied);
    return 0;
}

int ko_store_local_open(struct rt_loop *loop, const char *dir, struct ko_store **ret,
                        struct kc_err *err)
{
    static const struct ko_store_ops ops = {.get = op_get,
                                            .list = op_list,
                                            .create = op_create,
                                            .update = op_update,
                                            .apply = op_apply,
                                            .apply_status = op_apply_status,
                                            .merge = op_merge,
                                            .remove = op_remove,
                                            .watch = op_watch,
                                            .unwatch = op_unwatch,
                                            .free = op_free};
    struct ko_local *s = kc_zalloc(sizeof(*s));
    s->port = (struct ko_store){&ops, loop};
    s->wake.fn = ko_local_on_wake;
    kc_list_init(&s->watches);
    kc_list_init(&s->deliveries);
    kc_map_init(&s->by_uid);
    for (int k = 0; k < KO_KIND_COUNT; k++) {
        kc_map_init(&s->objects[k]);
    }
    int rc = 0;
    if (dir) {
        rc = ko_disk_open(loop, dir, ko_local_on_durable, s, &s->disk, err);
        rc = rc ? rc : ko_disk_load(s->disk, on_loaded, s, err);
    }
    if (rc) {
        op_free(&s->port);
        return rc;
    }
    s->durable = s->rv;
    *ret = &s->port;
    return 0;
}
