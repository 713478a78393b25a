#include "store/ko_object.h"

#include <string.h>

#include "base/kc_str.h"

static bool kind_has_status(enum ko_kind k)
{
    switch (k) {
    case KO_KAASCLUSTER:
    case KO_KAASBROKER:
    case KO_KAASTOPIC:
    case KO_KAASUSER:
    case KO_STATEFULSET:
    case KO_POD:
    case KO_PDB:
        return true;
    default:
        return false;
    }
}

const struct ko_kind_info *ko_kind_info(enum ko_kind k)
{
#define X(id, gv, plural, kind, ns) {gv, plural, kind, ns, false},
    static const struct ko_kind_info plain[] = {KO_KINDS(X)};
#undef X
#define X(id, gv, plural, kind, ns) {gv, plural, kind, ns, true},
    static const struct ko_kind_info with_status[] = {KO_KINDS(X)};
#undef X
    KC_ASSERT((int)k >= 0 && k < KO_KIND_COUNT);
    return kind_has_status(k) ? &with_status[k] : &plain[k];
}

enum ko_kind ko_kind_find(const char *api_version, const char *kind)
{
    for (int k = 0; k < KO_KIND_COUNT; k++) {
        const struct ko_kind_info *i = ko_kind_info((enum ko_kind)k);
        if (strcmp(i->api_version, api_version) == 0 && strcmp(i->kind, kind) == 0) {
            return (enum ko_kind)k;
        }
    }
    return KO_KIND_COUNT;
}

const char *ko_name(const json_t *doc)
{
    return kc_json_str(doc, "metadata.name", "");
}

const char *ko_ns(const json_t *doc)
{
    return kc_json_str(doc, "metadata.namespace", "");
}

const char *ko_uid(const json_t *doc)
{
    return kc_json_str(doc, "metadata.uid", "");
}

const char *ko_rv(const json_t *doc)
{
    return kc_json_str(doc, "metadata.resourceVersion", "");
}

int64_t ko_generation(const json_t *doc)
{
    return kc_json_int(doc, "metadata.generation", 0);
}

/* Keys hold dots ("kaas.dev/cluster"), so they are no paths. */
static const char *map_str(const json_t *map, const char *key)
{
    const char *s = json_string_value(json_object_get(map, key));
    return s ? s : "";
}

const char *ko_label(const json_t *doc, const char *key)
{
    return map_str(kc_json_at(doc, "metadata.labels"), key);
}

const char *ko_annotation(const json_t *doc, const char *key)
{
    return map_str(kc_json_at(doc, "metadata.annotations"), key);
}

bool ko_deleting(const json_t *doc)
{
    return kc_json_str(doc, "metadata.deletionTimestamp", NULL) != NULL;
}

bool ko_has_finalizer(const json_t *doc, const char *finalizer)
{
    size_t i;
    json_t *v;
    json_array_foreach(kc_json_at(doc, "metadata.finalizers"), i, v)
    {
        const char *s = json_string_value(v);
        if (s && strcmp(s, finalizer) == 0) {
            return true;
        }
    }
    return false;
}

bool ko_owned_by(const json_t *doc, const char *owner_uid)
{
    size_t i;
    json_t *v;
    json_array_foreach(kc_json_at(doc, "metadata.ownerReferences"), i, v)
    {
        if (strcmp(map_str(v, "uid"), owner_uid) == 0) {
            return true;
        }
    }
    return false;
}

json_t *ko_doc_new(enum ko_kind k, const char *ns, const char *name)
{
    const struct ko_kind_info *i = ko_kind_info(k);
    json_t *doc = json_pack("{s:s, s:s, s:{s:s}}", "apiVersion", i->api_version, "kind", i->kind,
                            "metadata", "name", name);
    KC_ASSERT(doc);
    if (i->namespaced) {
        json_object_set_new(json_object_get(doc, "metadata"), "namespace", json_string(ns));
    }
    return doc;
}

static bool alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool ko_name_valid(const char *name)
{
    size_t len = strlen(name);
    if (len == 0 || len > 253) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        bool edge = i == 0 || i + 1 == len || name[i - 1] == '.' || name[i + 1] == '.';
        if (!alnum(name[i]) && (edge || (name[i] != '-' && name[i] != '.'))) {
            return false;
        }
    }
    return true;
}

/* One requirement of a selector. */
struct term {
    struct kc_str key, value;
    bool negated, exists; /* exists: the key alone counts */
};

static struct kc_str trim(struct kc_str s)
{
    while (s.len > 0 && s.ptr[0] == ' ') {
        s.ptr++;
        s.len--;
    }
    while (s.len > 0 && s.ptr[s.len - 1] == ' ') {
        s.len--;
    }
    return s;
}

static bool parse_term(struct kc_str s, struct term *ret)
{
    *ret = (struct term){0};
    s = trim(s);
    const char *eq = s.len > 0 ? memchr(s.ptr, '=', (size_t)s.len) : NULL;
    if (!eq) {
        ret->exists = true;
        ret->negated = s.len > 0 && s.ptr[0] == '!';
        ret->key = trim(ret->negated ? (struct kc_str){s.ptr + 1, s.len - 1} : s);
        return ret->key.len > 0 && !memchr(ret->key.ptr, ' ', (size_t)ret->key.len);
    }
    int32_t key_len = (int32_t)(eq - s.ptr);
    const char *value = eq + 1;
    if (key_len > 0 && s.ptr[key_len - 1] == '!') {
        ret->negated = true;
        key_len--;
    } else if (value < s.ptr + s.len && *value == '=') {
        value++;
    }
    ret->key = trim((struct kc_str){s.ptr, key_len});
    ret->value = trim((struct kc_str){value, (int32_t)(s.ptr + s.len - value)});
    return ret->key.len > 0;
}

static bool term_holds(const struct term *t, const json_t *labels)
{
    const json_t *v = labels ? json_object_getn(labels, t->key.ptr, (size_t)t->key.len) : NULL;
    if (t->exists) {
        return (v != NULL) != t->negated;
    }
    const char *s = json_string_value(v);
    bool equal = s && kc_str_eqz(t->value, s);
    return equal != t->negated;
}

/* Every term is well formed and, if a document is given, holds for it. */
static bool selector_check(const char *selector, const json_t *doc)
{
    const json_t *labels = doc ? kc_json_at(doc, "metadata.labels") : NULL;
    while (selector && *selector) {
        const char *comma = strchrnul(selector, ',');
        struct term t;
        if (!parse_term((struct kc_str){selector, (int32_t)(comma - selector)}, &t)) {
            return false;
        }
        if (doc && !term_holds(&t, labels)) {
            return false;
        }
        selector = *comma ? comma + 1 : comma;
    }
    return true;
}

bool ko_selector_valid(const char *selector)
{
    return selector_check(selector, NULL);
}

bool ko_selector_match(const char *selector, const json_t *doc)
{
    return selector_check(selector, doc);
}
