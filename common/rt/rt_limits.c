#include "rt/rt_limits.h"

#include <errno.h>
#include <sys/resource.h>

#include "base/kc_error.h"
#include "base/kc_log.h"

int rt_raise_open_files(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l)) {
        return -errno;
    }
    rlim_t before = l.rlim_cur;
    l.rlim_cur = l.rlim_max;
    int rc = setrlimit(RLIMIT_NOFILE, &l) ? -errno : 0;
    if (rc) {
        kc_log(KC_WARN, "limits", "event=open_files limit=%llu error=\"%s\"",
               (unsigned long long)before, kc_strerror(rc));
    } else {
        kc_log(KC_INFO, "limits", "event=open_files limit=%llu before=%llu",
               (unsigned long long)l.rlim_cur, (unsigned long long)before);
    }
    return rc;
}
