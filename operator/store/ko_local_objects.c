#include "store/ko_local.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "base/kc_uuid.h"
#include "store/ko_object.h"
#include "store/ko_store_local.h"

static struct kc_str object_key(const char *ns, const char *name, char buf[520])
{
    int n = snprintf(buf, 520, "%s/%s", ns ? ns : "", name);
    return (struct kc_str){buf, KC_MIN(n, 519)};
}

struct ko_local_object *ko_local_find(struct ko_local *s, enum ko_kind k, const char *ns,
                                      const char *name)
{
    char buf[520];
    return kc_map_gets(&s->objects[k], object_key(ns, name, buf));
}

static void persist(struct ko_local *s, const struct ko_local_object *o)
{
    if (!s->disk) {
        return;
    }
    json_t *file = json_copy(o->doc), *meta = json_copy(json_object_get(o->doc, "metadata"));
    if (json_object_size(o->applied) > 0) {
        json_object_set(meta, "managedFields", o->applied);
    }
    json_object_set_new(file, "metadata", meta);
    char *text = json_dumps(file, JSON_INDENT(1));
    json_decref(file);
    KC_ASSERT(text);
    ko_disk_put(s->disk, o->kind, ko_ns(o->doc), ko_name(o->doc), text, s->rv);
}

static void set_meta(json_t *doc, const char *key, const char *value)
{
    json_object_set_new(json_object_get(doc, "metadata"), key, json_string(value));
}

static void stamp_rv(struct ko_local *s, json_t *doc)
{
    char rv[24];
    snprintf(rv, sizeof(rv), "%llu", (unsigned long long)++s->rv);
    set_meta(doc, "resourceVersion", rv);
}

void ko_local_object_free(void *arg)
{
    struct ko_local_object *o = arg;
    json_decref(o->doc);
    json_decref(o->applied);
    kc_free(o);
}

/* Takes the object out; its dependents go with their last owner (garbage collection). */
static void erase(struct ko_local *s, struct ko_local_object *o)
{
    char buf[520];
    json_t *last = json_copy(o->doc);
    json_object_set_new(last, "metadata", json_copy(json_object_get(o->doc, "metadata")));
    stamp_rv(s, last);
    struct kc_str key = object_key(ko_ns(last), ko_name(last), buf);
    kc_map_del(&s->objects[o->kind], key.ptr, (size_t)key.len);
    kc_map_del(&s->by_uid, ko_uid(last), strlen(ko_uid(last)));
    if (s->disk) {
        ko_disk_put(s->disk, o->kind, ko_ns(last), ko_name(last), NULL, s->rv);
    }
    ko_local_publish(s, o->kind, last, NULL);
    ko_local_object_free(o);
    json_decref(last);
}

static bool has_live_owner(struct ko_local *s, const json_t *doc)
{
    size_t i;
    json_t *ref;
    json_array_foreach(kc_json_at(doc, "metadata.ownerReferences"), i, ref)
    {
        const char *uid = kc_json_str(ref, "uid", "");
        if (kc_map_get(&s->by_uid, uid, strlen(uid))) {
            return true;
        }
    }
    return false;
}

static struct ko_local_object *find_orphan(struct ko_local *s)
{
    for (int k = 0; k < KO_KIND_COUNT; k++) {
        struct kc_map_iter it = {0};
        for (struct kc_map_entry *e; (e = kc_map_next(&s->objects[k], &it));) {
            struct ko_local_object *o = e->value;
            if (json_array_size(kc_json_at(o->doc, "metadata.ownerReferences")) > 0 &&
                !ko_deleting(o->doc) && !has_live_owner(s, o->doc)) {
                return o;
            }
        }
    }
    return NULL;
}

void ko_local_collect_garbage(struct ko_local *s)
{
    for (struct ko_local_object *o; (o = find_orphan(s));) {
        ko_local_remove(s, o);
    }
}

/* Puts a changed document in place of the old one. Takes doc. */
static void commit(struct ko_local *s, struct ko_local_object *o, json_t *doc)
{
    json_t *before = o->doc;
    stamp_rv(s, doc);
    o->doc = doc;
    persist(s, o);
    ko_local_publish(s, o->kind, before, doc);
    json_decref(before);
}

void ko_local_remove(struct ko_local *s, struct ko_local_object *o)
{
    if (json_array_size(kc_json_at(o->doc, "metadata.finalizers")) == 0) {
        erase(s, o);
        return;
    }
    if (!ko_deleting(o->doc)) {
        char now[32];
        json_t *doc = json_deep_copy(o->doc);
        kc_rfc3339(kc_wall_ms(), false, now);
        set_meta(doc, "deletionTimestamp", now);
        commit(s, o, doc);
    }
}

static bool same_but_meta_and_status(const json_t *a, const json_t *b)
{
    const char *key;
    json_t *v;
    size_t n = 0, m = 0;
    json_object_foreach((json_t *)(uintptr_t)a, key, v)
    {
        if (strcmp(key, "metadata") != 0 && strcmp(key, "status") != 0) {
            n++;
            if (!json_equal(v, json_object_get(b, key))) {
                return false;
            }
        }
    }
    json_object_foreach((json_t *)(uintptr_t)b, key, v)
    {
        m += strcmp(key, "metadata") != 0 && strcmp(key, "status") != 0;
    }
    return n == m;
}

/* What of the metadata only the store writes once an object is there; and managedFields, which is kept
 * beside the document. */
static const char *const system_fields[] = {
    "name",           "namespace", "uid", "creationTimestamp", "generation", "deletionTimestamp",
    "resourceVersion"};

void ko_local_drop_system_fields(json_t *doc)
{
    json_t *meta = json_object_get(doc, "metadata");
    for (size_t i = 0; i < KC_ARRAY_LEN(system_fields); i++) {
        json_object_del(meta, system_fields[i]);
    }
    json_object_del(meta, "managedFields");
}

void ko_local_keep_system_fields(const struct ko_local_object *o, json_t *doc, bool keep_status)
{
    const json_t *old = json_object_get(o->doc, "metadata");
    json_t *meta = json_object_get(doc, "metadata");
    for (size_t i = 0; i < KC_ARRAY_LEN(system_fields); i++) {
        json_t *v = json_object_get(old, system_fields[i]);
        if (v) {
            json_object_set(meta, system_fields[i], v);
        } else {
            json_object_del(meta, system_fields[i]);
        }
    }
    json_object_del(meta, "managedFields");
    if (keep_status) {
        json_t *status = json_object_get(o->doc, "status");
        if (status) {
            json_object_set(doc, "status", status);
        } else {
            json_object_del(doc, "status");
        }
    }
}

void ko_local_write(const struct ko_local_call *c, struct ko_local_object *o, json_t *doc)
{
    struct ko_local *s = c->s;
    if (json_equal(doc, o->doc)) {
        json_decref(doc);
        ko_local_answer(c, 200, o->doc);
        return;
    }
    if (ko_kind_info(o->kind)->has_status && !same_but_meta_and_status(doc, o->doc)) {
        json_object_set_new(json_object_get(doc, "metadata"), "generation",
                            json_integer(ko_generation(o->doc) + 1));
    }
    if (ko_deleting(doc) && json_array_size(kc_json_at(doc, "metadata.finalizers")) == 0) {
        commit(s, o, doc);
        json_incref(doc);
        ko_local_answer(c, 200, doc);
        erase(s, o);
        json_decref(doc);
        ko_local_collect_garbage(s);
        return;
    }
    commit(s, o, doc);
    ko_local_answer(c, 200, doc);
}

static void random_uid(char out[37])
{
    struct kc_uuid u = kc_uuid_random();
    char h[KC_UUID_HEX_LEN + 1];
    kc_uuid_to_hex(&u, h);
    snprintf(out, 37, "%.8s-%.4s-%.4s-%.4s-%.12s", h, h + 8, h + 12, h + 16, h + 20);
}

/* Keeps the newest events only: nobody else ever deletes them here. */
static void cap_events(struct ko_local *s)
{
    if (s->objects[KO_EVENT].len < KO_LOCAL_EVENTS_MAX) {
        return;
    }
    struct ko_local_object *oldest = NULL;
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&s->objects[KO_EVENT], &it));) {
        struct ko_local_object *o = e->value;
        if (!oldest || strtoull(ko_rv(o->doc), NULL, 10) < strtoull(ko_rv(oldest->doc), NULL, 10)) {
            oldest = o;
        }
    }
    erase(s, oldest);
}

struct ko_local_object *ko_local_insert(struct ko_local *s, enum ko_kind k, json_t *doc,
                                        json_t *applied)
{
    char buf[520];
    struct ko_local_object *o = kc_alloc(sizeof(*o));
    *o = (struct ko_local_object){k, doc, applied};
    struct kc_str key = object_key(ko_ns(o->doc), ko_name(o->doc), buf);
    kc_map_put(&s->objects[o->kind], key.ptr, (size_t)key.len, o);
    kc_map_put(&s->by_uid, ko_uid(o->doc), strlen(ko_uid(o->doc)), o);
    return o;
}

void ko_local_create(const struct ko_local_call *c, enum ko_kind k, json_t *doc, json_t *applied)
{
    struct ko_local *s = c->s;
    json_t *meta = json_object_get(doc, "metadata");
    char uid[37], now[32];
    if (k == KO_EVENT) {
        cap_events(s);
    }
    random_uid(uid);
    kc_rfc3339(kc_wall_ms(), false, now);
    set_meta(doc, "uid", uid);
    set_meta(doc, "creationTimestamp", now);
    json_object_del(meta, "managedFields");
    json_object_del(meta, "deletionTimestamp");
    if (ko_kind_info(k)->has_status) {
        json_object_set_new(meta, "generation", json_integer(1));
        json_object_del(doc, "status");
    }
    stamp_rv(s, doc);
    struct ko_local_object *o = ko_local_insert(s, k, doc, applied);
    persist(s, o);
    json_incref(doc);
    ko_local_answer(c, 201, doc);
    ko_local_publish(s, k, NULL, doc);
    if (json_array_size(kc_json_at(doc, "metadata.ownerReferences")) > 0 &&
        !has_live_owner(s, doc)) {
        ko_local_remove(s, o); /* made after its owner went */
    }
    json_decref(doc);
}
