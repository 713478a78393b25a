/* Descriptors: connections leave half of them to the log. */
#include "kt.h"

#include <sys/resource.h>

#include "app/kb_limits.h"

static void connections_take_at_most_half_of_the_descriptors(void)
{
    KT_EQ(kb_connection_cap(10000, INT64_MAX), 10000);
    KT_EQ(kb_connection_cap(10000, 20001), 10000);
    KT_EQ(kb_connection_cap(10000, 1024), 512);
    KT_EQ(kb_connection_cap(100, 1024), 100);
    KT_EQ(kb_connection_cap(10000, 0), 1);
}

static void the_soft_limit_is_raised_to_the_hard_one(void)
{
    struct rlimit was, now;
    KT_EQ(getrlimit(RLIMIT_NOFILE, &was), 0);
    struct rlimit low = {.rlim_cur = KC_MIN(was.rlim_cur, (rlim_t)128), .rlim_max = was.rlim_max};
    KT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    KT_TRUE(kb_raise_file_limit() >= (int64_t)low.rlim_cur);
    KT_EQ(getrlimit(RLIMIT_NOFILE, &now), 0);
    KT_EQ(now.rlim_cur, was.rlim_max);
    setrlimit(RLIMIT_NOFILE, &was);
}

KT_MAIN("limits", KT(connections_take_at_most_half_of_the_descriptors),
        KT(the_soft_limit_is_raised_to_the_hard_one))
