#include "store/ko_local_apply.h"

#include <string.h>

#include "base/kc_json.h"

enum { MANAGERS_MAX = 8 };

/* The same place in the documents of all the other managers. */
struct others {
    const json_t *at[MANAGERS_MAX];
    int n;
};

static struct others others_under(const struct others *o, const char *key)
{
    struct others r = {.n = 0};
    for (int i = 0; i < o->n; i++) {
        const json_t *v = json_object_get(o->at[i], key);
        if (v) {
            r.at[r.n++] = v;
        }
    }
    return r;
}

static bool shared_list(const char *key)
{
    return strcmp(key, "finalizers") == 0 || strcmp(key, "ownerReferences") == 0;
}

/* Elements of shared lists are the same by uid (owner references) or as a whole (finalizers). */
static bool same_element(const json_t *a, const json_t *b)
{
    const json_t *ua = json_object_get(a, "uid"), *ub = json_object_get(b, "uid");
    return ua && ub ? json_equal(ua, ub) : json_equal(a, b);
}

static bool list_has(const json_t *list, const json_t *element)
{
    size_t i;
    json_t *v;
    json_array_foreach(list, i, v)
    {
        if (same_element(v, element)) {
            return true;
        }
    }
    return false;
}

static void list_remove(json_t *list, const json_t *element)
{
    for (size_t i = json_array_size(list); i-- > 0;) {
        if (same_element(json_array_get(list, i), element)) {
            json_array_remove(list, i);
        }
    }
}

static void prune_list(json_t *live, const json_t *last, const json_t *next, const struct others *o)
{
    size_t i;
    json_t *v;
    json_array_foreach(last, i, v)
    {
        bool kept = list_has(next, v);
        for (int k = 0; k < o->n && !kept; k++) {
            kept = list_has(o->at[k], v);
        }
        if (!kept) {
            list_remove(live, v);
        }
    }
}

/* Drops from live what last has and neither next nor another manager. Documents are at most as deep
 * as our own builders make them. */
static void prune(json_t *live, const json_t *last, const json_t *next, const struct others *o)
{
    const char *key;
    json_t *was;
    json_object_foreach((json_t *)(uintptr_t)last, key, was)
    {
        json_t *have = json_object_get(live, key);
        const json_t *want = json_object_get(next, key);
        struct others below = others_under(o, key);
        if (!have) {
            continue;
        }
        if (json_is_object(was) && json_is_object(have)) {
            prune(have, was, want, &below);
            if (!want && below.n == 0 && json_object_size(have) == 0) {
                json_object_del(live, key);
            }
        } else if (shared_list(key) && json_is_array(have)) {
            prune_list(have, was, want, &below);
            if (!want && json_array_size(have) == 0) {
                json_object_del(live, key);
            }
        } else if (!want && below.n == 0) {
            json_object_del(live, key);
        }
    }
}

static void add_elements(json_t *list, const json_t *more)
{
    size_t i;
    json_t *v;
    json_array_foreach(more, i, v)
    {
        if (!list_has(list, v)) {
            json_array_append_new(list, json_deep_copy(v));
        }
    }
}

static void merge(json_t *live, const json_t *fields)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)fields, key, v)
    {
        json_t *have = json_object_get(live, key);
        if (json_is_object(v) && json_is_object(have)) {
            merge(have, v);
        } else if (shared_list(key) && json_is_array(v) && json_is_array(have)) {
            add_elements(have, v);
        } else {
            json_object_set_new(live, key, json_deep_copy(v));
        }
    }
}

void ko_local_apply(json_t *live, json_t *applied, const char *manager, const json_t *fields)
{
    struct others o = {.n = 0};
    const char *key;
    json_t *v;
    json_object_foreach(applied, key, v)
    {
        if (strcmp(key, manager) != 0 && o.n < MANAGERS_MAX) {
            o.at[o.n++] = v;
        }
    }
    prune(live, json_object_get(applied, manager), fields, &o);
    merge(live, fields);
    json_object_set_new(applied, manager, json_deep_copy(fields));
}
