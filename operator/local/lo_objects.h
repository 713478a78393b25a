/* lo_objects.h - the documents that Kubernetes' controllers would write: Pods, their status, the
 * EndpointSlice of the headless Service, the StatefulSet's status. Pure; new references. */
#ifndef LO_OBJECTS_H
#define LO_OBJECTS_H

#include <jansson.h>

#include "base/kc_base.h"

/* What of a child the documents tell. */
struct lo_pod_state {
    int32_t ordinal;
    const char *uid, *created; /* of the Pod object */
    bool running, ready, terminating;
    int32_t restarts;
    int32_t exit_code; /* of its last end, 128 + signal where one ended it */
};

/* The Pod of an ordinal, from the StatefulSet's template; revision is its hash. */
json_t *lo_pod_doc(const json_t *sts, int32_t ordinal, const char *revision);
/* The program that a Pod's image names: an absolute path; "" if its image is none. */
const char *lo_pod_program(const json_t *pod);
/* Of a Pod or a pod template: it is the pod's for life, too. */
int64_t lo_pod_grace_s(const json_t *pod);
json_t *lo_pod_status_doc(const char *ns, const char *name, const struct lo_pod_state *p,
                          const char *since);
/* All pods of the StatefulSet: as with publishNotReadyAddresses, `ready` is always true and
 * `serving` tells the truth. */
json_t *lo_slice_doc(const json_t *sts, const struct lo_pod_state *pods, int32_t n);

struct lo_sts_counts {
    int32_t replicas, ready, available, updated;
};
json_t *lo_sts_status_doc(const json_t *sts, const struct lo_sts_counts *n, const char *revision);
/* 10 hex digits of the pod template. */
void lo_revision(const json_t *sts, char out[11]);

#endif
