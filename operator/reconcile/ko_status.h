/* ko_status.h - status of a KaasCluster from what is known. Pure but for the stamp of conditions. */
#ifndef KO_STATUS_H
#define KO_STATUS_H

#include "reconcile/ko_rec.h"

/* The new status object; old parts that nothing new is known about are kept. Updates c->rolling. */
json_t *ko_status_build(struct ko_rec *r, struct ko_rc *c, int64_t now_mono_ms,
                        int64_t now_wall_ms);

#endif
