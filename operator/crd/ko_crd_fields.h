/* ko_crd_fields.h - reading single fields of a resource with range checks. Internal to operator/crd. */
#ifndef KO_CRD_FIELDS_H
#define KO_CRD_FIELDS_H

#include "crd/ko_crd.h"

/* The integer at a path, dflt when absent; an error (and dflt) when of another type or out of range. */
int64_t ko_field_int(const json_t *doc, const char *path, int64_t dflt, int64_t min, int64_t max,
                     struct ko_field_errors *e);
const char *ko_field_str(const json_t *doc, const char *path, const char *dflt,
                         struct ko_field_errors *e);
bool ko_field_bool(const json_t *doc, const char *path, bool dflt, struct ko_field_errors *e);
/* "500ms", "3s" */
int64_t ko_field_duration_ms(const json_t *doc, const char *path, int64_t dflt, int64_t min,
                             int64_t max, struct ko_field_errors *e);
/* A map of scalars as sorted settings; names in the arena. Returns the count. */
int32_t ko_field_settings(const json_t *doc, const char *path, struct kc_arena *a,
                          const struct ko_setting **ret, struct ko_field_errors *e);
/* A DNS-1123 subdomain, as names of objects are. */
bool ko_dns_name(const char *s, size_t len, size_t max);
/* Every key of the object at path is one of the names (terminated by NULL): catches typing errors
 * that an API server would drop silently. */
void ko_field_known(const json_t *doc, const char *path, const char *const *names,
                    struct ko_field_errors *e);

#endif
