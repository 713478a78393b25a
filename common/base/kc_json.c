#include "base/kc_json.h"

#include <errno.h>
#include <string.h>

#include "base/kc_mem.h"
#include "base/kc_str.h"

/* The child of node named by a path segment. */
static json_t *child(const json_t *node, struct kc_str seg)
{
    if (json_is_object(node)) {
        return json_object_getn(node, seg.ptr, (size_t)seg.len);
    }
    int32_t i;
    if (json_is_array(node) && kc_parse_i32(seg, &i) == 0 && i >= 0) {
        return json_array_get(node, (size_t)i);
    }
    return NULL;
}

void kc_json_setup(void)
{
    json_set_alloc_funcs(kc_alloc, kc_free);
}

json_t *kc_json_at(const json_t *doc, const char *path)
{
    const json_t *node = doc;
    while (node && *path) {
        const char *dot = strchrnul(path, '.');
        node = child(node, (struct kc_str){path, (int32_t)(dot - path)});
        path = *dot ? dot + 1 : dot;
    }
    return (json_t *)(uintptr_t)node;
}

const char *kc_json_str(const json_t *doc, const char *path, const char *dflt)
{
    const char *s = json_string_value(kc_json_at(doc, path));
    return s ? s : dflt;
}

int64_t kc_json_int(const json_t *doc, const char *path, int64_t dflt)
{
    const json_t *v = kc_json_at(doc, path);
    return json_is_integer(v) ? json_integer_value(v) : dflt;
}

bool kc_json_bool(const json_t *doc, const char *path, bool dflt)
{
    const json_t *v = kc_json_at(doc, path);
    return json_is_boolean(v) ? json_is_true(v) : dflt;
}

int kc_json_set(json_t *doc, const char *path, json_t *value)
{
    json_t *node = doc;
    if (!value) {
        return -ENOMEM;
    }
    for (;;) {
        const char *dot = strchrnul(path, '.');
        size_t len = (size_t)(dot - path);
        if (!json_is_object(node)) {
            json_decref(value);
            return -EINVAL;
        }
        if (!*dot) {
            return json_object_setn_new(node, path, len, value) ? -ENOMEM : 0;
        }
        json_t *next = json_object_getn(node, path, len);
        if (!next) {
            next = json_object();
            if (json_object_setn_new(node, path, len, next)) {
                json_decref(value);
                return -ENOMEM;
            }
        }
        node = next;
        path = dot + 1;
    }
}

int kc_json_merge(json_t *into, const json_t *patch)
{
    const char *key;
    json_t *v;
    if (!json_is_object(into) || !json_is_object(patch)) {
        return -EINVAL;
    }
    json_object_foreach((json_t *)(uintptr_t)patch, key, v)
    {
        json_t *old = json_object_get(into, key);
        int rc = 0;
        if (json_is_null(v)) {
            json_object_del(into, key);
        } else if (json_is_object(v) && json_is_object(old)) {
            rc = kc_json_merge(old, v);
        } else {
            rc = json_object_set_new(into, key, json_deep_copy(v)) ? -ENOMEM : 0;
        }
        if (rc) {
            return rc;
        }
    }
    return 0;
}

char *kc_json_canonical(const json_t *doc)
{
    return json_dumps(doc, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
}
