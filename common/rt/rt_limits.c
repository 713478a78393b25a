#include "rt/rt_limits.h"

#include <errno.h>
#include <sys/resource.h>

#include "base/kc_error.h"
#include "base/kc_log.h"

int64_t rt_raise_open_files(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l)) {
        return INT64_MAX; /* cannot happen; then nothing is known, and nothing is capped */
    }
    rlim_t before = l.rlim_cur;
    l.rlim_cur = l.rlim_max;
    if (before != l.rlim_max && setrlimit(RLIMIT_NOFILE, &l)) {
        kc_log(KC_WARN, "limits", "event=open_files_not_raised limit=%llu error=\"%s\"",
               (unsigned long long)before, kc_strerror(-errno));
        l.rlim_cur = before;
    } else {
        kc_log(KC_INFO, "limits", "event=open_files limit=%llu before=%llu",
               (unsigned long long)l.rlim_cur, (unsigned long long)before);
    }
    return l.rlim_cur > (rlim_t)INT64_MAX ? INT64_MAX : (int64_t)l.rlim_cur;
}
