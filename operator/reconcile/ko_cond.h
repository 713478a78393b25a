/* ko_cond.h - metav1.Conditions: lastTransitionTime moves only when a status flips.
 *
 * A flip is stamped with the wall clock. Any thread. */
#ifndef KO_COND_H
#define KO_COND_H

#include <jansson.h>

#include "base/kc_base.h"

struct ko_cond_list {
    json_t *out; /* array, appended to */
    const json_t *old; /* the conditions before, or NULL */
    int64_t generation; /* observedGeneration */
};
/* status "True", "False" or "Unknown"; reason CamelCase. */
void ko_cond_add(struct ko_cond_list *l, const char *type, const char *status, const char *reason,
                 const char *message);
/* The condition of a type in an array, or NULL. */
const json_t *ko_cond_find(const json_t *list, const char *type);
/* The status of a condition of an object, "" if it has none. */
const char *ko_cond_status(const json_t *doc, const char *type);

#endif
