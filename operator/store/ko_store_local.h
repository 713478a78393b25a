/* ko_store_local.h - the object store of one machine: Kubernetes' semantics in memory, with files.
 *
 * Objects live in memory; with a directory each one also is a file DIR/<plural>/<ns>/<name>.json
 * (replaced by rename, mode 0600), written by a pool thread in the order of the changes. A call's
 * result and its watch events are delivered only after its files are in place, so what has been
 * answered survives the process (not a power cut: nothing is fsynced; the volume describes itself).
 *
 * What it has of the API server: resourceVersion (one counter), uid, creationTimestamp, generation,
 * 409 on a stale resourceVersion or uid, 409 AlreadyExists, writes without a change are no writes,
 * apply with one last-applied document a manager (fields that a manager drops vanish, unless
 * another manager applies them), the status subresource, deletionTimestamp with finalizers, removal
 * of dependents with their last owner, label selectors, watches. It checks names, not schemas:
 * resources are checked by operator/crd. Events are capped at KO_LOCAL_EVENTS_MAX, oldest out.
 *
 * Owner: the loop it is given. Results come in order of calls, never from within the call. */
#ifndef KO_STORE_LOCAL_H
#define KO_STORE_LOCAL_H

#include "store/ko_store.h"

enum { KO_LOCAL_EVENTS_MAX = 1000 };

/* dir NULL: memory alone (tests, the Lease of a single process). Loads what the directory holds,
 * blocking; an unreadable object is an error that names the file, for a partial state must not
 * become the whole. Returns 0, -errno or KC_E_CORRUPT. Free by ret->ops->free, on the loop. */
int ko_store_local_open(struct rt_loop *loop, const char *dir, struct ko_store **ret,
                        struct kc_err *err);

#endif
