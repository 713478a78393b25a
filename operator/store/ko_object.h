/* ko_object.h - what every Kubernetes document has: kind, metadata, labels.
 *
 * Pure helpers over jansson documents; getters borrow and never return NULL strings ("" instead).
 * Any thread. */
#ifndef KO_OBJECT_H
#define KO_OBJECT_H

#include "base/kc_json.h"
#include "store/ko_store.h"

struct ko_kind_info {
    const char *api_version, *plural, *kind;
    bool namespaced;
    bool has_status; /* /status is a subresource of its own, spec changes count generation up */
};
const struct ko_kind_info *ko_kind_info(enum ko_kind k);
/* KO_KIND_COUNT if unknown. */
enum ko_kind ko_kind_find(const char *api_version, const char *kind);

const char *ko_name(const json_t *doc);
const char *ko_ns(const json_t *doc);
const char *ko_uid(const json_t *doc);
const char *ko_rv(const json_t *doc);
int64_t ko_generation(const json_t *doc);
const char *ko_label(const json_t *doc, const char *key);
const char *ko_annotation(const json_t *doc, const char *key);
bool ko_deleting(const json_t *doc); /* deletionTimestamp is set */
bool ko_has_finalizer(const json_t *doc, const char *finalizer);
bool ko_owned_by(const json_t *doc, const char *owner_uid);

/* A new document with apiVersion, kind, name and (namespaced kinds) namespace. */
json_t *ko_doc_new(enum ko_kind k, const char *ns, const char *name);

/* DNS-1123 subdomain, as object names must be (<= 253, lower case, dots and dashes inside). */
bool ko_name_valid(const char *name);

/* Label selectors: "a=b", "a==b", "a!=b", "a", "!a", joined by commas (all must hold). NULL and ""
 * match everything. */
bool ko_selector_valid(const char *selector);
bool ko_selector_match(const char *selector, const json_t *doc);

#endif
