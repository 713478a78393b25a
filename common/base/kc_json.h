/* kc_json.h - typed, path-addressed access to jansson documents; YAML text to jansson.
 *
 * Paths are dotted ("spec.listeners"); a segment may be an array index. Getters borrow. */
#ifndef KC_JSON_H
#define KC_JSON_H

#include <jansson.h>

#include "base/kc_base.h"
#include "base/kc_error.h"

/* Once, before the first document and before there are threads. jansson's reader loses what its buffer cannot
 * grow for, and then runs past the end of that string: its allocations end the process instead (ADR 16). */
void kc_json_setup(void);

json_t *kc_json_at(const json_t *doc, const char *path); /* borrowed or NULL */
const char *kc_json_str(const json_t *doc, const char *path, const char *dflt);
int64_t kc_json_int(const json_t *doc, const char *path, int64_t dflt);
bool kc_json_bool(const json_t *doc, const char *path, bool dflt);
/* Sets a value at a path, making objects on the way; steals `value`. Returns 0 or -ENOMEM/-EINVAL. */
int kc_json_set(json_t *doc, const char *path, json_t *value);
/* Deep merge after RFC 7386 (JSON merge patch): objects merge, null deletes, the rest replaces. */
int kc_json_merge(json_t *into, const json_t *patch);
/* Compact, key-sorted text: equal documents give equal text. Returns owned (free with free()). */
char *kc_json_canonical(const json_t *doc);

/* First document of a YAML text as jansson (YAML 1.2 core scalars). Depth <= 64, nodes <= 100,000,
 * aliases refused. Returns a new reference or NULL with err filled. */
json_t *kc_yaml_load(const char *text, size_t len, struct kc_err *err);
/* All documents of a YAML stream, as a JSON array. */
json_t *kc_yaml_load_all(const char *text, size_t len, struct kc_err *err);

#endif
