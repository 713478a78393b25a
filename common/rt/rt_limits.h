/* rt_limits.h - what the system lets this process have. */
#ifndef RT_LIMITS_H
#define RT_LIMITS_H

#include "base/kc_base.h"

/* Raises the soft limit of open files to the hard one and says so in the log: a broker holds a
 * descriptor for every connection and several for every open partition, and many systems hand out
 * 1024. Once, at the start of a program. Returns what is in force then; INT64_MAX = no limit. */
int64_t rt_raise_open_files(void);

#endif
