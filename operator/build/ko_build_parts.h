/* ko_build_parts.h - pieces that several documents share. Internal to operator/build. */
#ifndef KO_BUILD_PARTS_H
#define KO_BUILD_PARTS_H

#include "build/ko_build.h"

/* apiVersion, kind, metadata {name: <cluster><suffix>, namespace, labels, ownerReferences}. */
json_t *ko_build_doc(const struct ko_cluster *c, const char *api_version, const char *kind,
                     const char *suffix, bool owned);
json_t *ko_build_labels(const struct ko_cluster *c);
json_t *ko_build_match_labels(const struct ko_cluster *c);
/* The pod template of the StatefulSet. */
json_t *ko_build_pod_template(const struct ko_cluster *c, const struct ko_build_opts *o);
/* Steals value into the object; programmer errors (no memory) abort. */
void ko_put(json_t *obj, const char *key, json_t *value);
/* json_pack that aborts on a format error or no memory: the formats are literals of this library. */
json_t *ko_pack(const char *fmt, ...);

#endif
