/* rt_limits.h - what the system lets this process have. */
#ifndef RT_LIMITS_H
#define RT_LIMITS_H

/* Raises the soft limit of open files to the hard one and logs what it is then, once: a broker holds
 * a descriptor for every connection and several for every open partition, and many systems hand out
 * 1024. At the start of a program. 0 or -errno; what was there before stays then. */
int rt_raise_open_files(void);

#endif
