#include "build/ko_build_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_hash.h"
#include "base/kc_json.h"

json_t *ko_pack(const char *fmt, ...)
{
    json_error_t e;
    va_list ap;
    va_start(ap, fmt);
    json_t *v = json_vpack_ex(&e, 0, fmt, ap);
    va_end(ap);
    KC_ASSERT(v != NULL);
    return v;
}

void ko_put(json_t *obj, const char *key, json_t *value)
{
    int rc = json_object_set_new(obj, key, value);
    KC_ASSERT(rc == 0);
}

json_t *ko_build_match_labels(const struct ko_cluster *c)
{
    return ko_pack("{s:s, s:s, s:s}", "app.kubernetes.io/name", "kaas",
                   "app.kubernetes.io/instance", c->name, "app.kubernetes.io/component", "broker");
}

json_t *ko_build_labels(const struct ko_cluster *c)
{
    json_t *l = ko_build_match_labels(c);
    ko_put(l, "app.kubernetes.io/managed-by", json_string("kaas-operator"));
    ko_put(l, "kaas.dev/cluster", json_string(c->name));
    return l;
}

void ko_build_selector(const struct ko_cluster *c, char *out, size_t cap)
{
    snprintf(out, cap,
             "app.kubernetes.io/name=kaas,app.kubernetes.io/instance=%s,"
             "app.kubernetes.io/component=broker",
             c->name);
}

static json_t *owner(const struct ko_cluster *c)
{
    return ko_pack("[{s:s, s:s, s:s, s:s, s:b, s:b}]", "apiVersion", "kaas.dev/v1alpha1", "kind",
                   "KaasCluster", "name", c->name, "uid", c->uid, "controller", 1,
                   "blockOwnerDeletion", 1);
}

json_t *ko_build_doc(const struct ko_cluster *c, const char *api_version, const char *kind,
                     const char *suffix, bool owned)
{
    char name[128];
    snprintf(name, sizeof(name), "%s%s", c->name, suffix);
    json_t *meta =
        ko_pack("{s:s, s:s, s:o}", "name", name, "namespace", c->ns, "labels", ko_build_labels(c));
    if (owned) {
        ko_put(meta, "ownerReferences", owner(c));
    }
    return ko_pack("{s:s, s:s, s:o}", "apiVersion", api_version, "kind", kind, "metadata", meta);
}

void ko_doc_hash(const json_t *doc, char out[17])
{
    char *text = kc_json_canonical(doc);
    KC_ASSERT(text);
    snprintf(out, 17, "%016llx", (unsigned long long)kc_hash64(text, strlen(text)));
    free(text);
}
