/* ko_local_apply.h - server-side apply for the local store: what a manager gives is merged, what it
 * gave before and gives no more vanishes, unless another manager gives it.
 *
 * Pure. Lists are replaced as a whole, except metadata.finalizers (a set) and
 * metadata.ownerReferences (by uid), which several parties share. Internal to operator/store. */
#ifndef KO_LOCAL_APPLY_H
#define KO_LOCAL_APPLY_H

#include <jansson.h>

/* live is changed in place; applied maps a manager to the document it applied last and gets
 * `fields` under `manager`. */
void ko_local_apply(json_t *live, json_t *applied, const char *manager, const json_t *fields);

#endif
