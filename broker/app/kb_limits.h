/* kb_limits.h - descriptors: who may have how many.
 *
 * Connections and the log's files share one limit of the process. A client that opens connections
 * must not take the descriptors that appends and takeovers need: those fail without one. */
#ifndef KB_LIMITS_H
#define KB_LIMITS_H

#include "base/kc_base.h"

/* How many connections may be accepted, whatever max.connections says: half of the descriptors. */
int32_t kb_connection_cap(int64_t file_limit);

#endif
