#include "app/kb_limits.h"

#include <errno.h>
#include <sys/resource.h>

#include "base/kc_error.h"
#include "base/kc_log.h"

int64_t kb_raise_file_limit(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r)) {
        return INT64_MAX; /* cannot happen; then nothing is known, and nothing is capped */
    }
    rlim_t soft = r.rlim_cur;
    r.rlim_cur = r.rlim_max;
    if (soft != r.rlim_max && setrlimit(RLIMIT_NOFILE, &r)) {
        kc_log(KC_WARN, "broker", "event=file_limit_not_raised limit=%llu text=\"%s\"",
               (unsigned long long)soft, kc_strerror(-errno));
        r.rlim_cur = soft;
    }
    return r.rlim_cur > (rlim_t)INT64_MAX ? INT64_MAX : (int64_t)r.rlim_cur;
}

int32_t kb_connection_cap(int32_t wanted, int64_t file_limit)
{
    int64_t half = KC_MAX(file_limit / 2, (int64_t)1);
    return half < wanted ? (int32_t)half : wanted;
}
