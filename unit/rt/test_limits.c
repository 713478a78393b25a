/* The limit of open files is raised as far as it goes, and files can then be opened. */
#include "kt.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/kc_base.h"
#include "rt/rt_limits.h"

static void the_soft_limit_of_open_files_becomes_the_hard_one(void)
{
    struct rlimit l;
    KT_REQUIRE(getrlimit(RLIMIT_NOFILE, &l) == 0);
    l.rlim_cur = 20;
    l.rlim_max = KC_MIN(l.rlim_max, (rlim_t){64});
    KT_REQUIRE(setrlimit(RLIMIT_NOFILE, &l) == 0);
    KT_TRUE(dup2(0, 40) < 0);
    KT_EQ(rt_raise_open_files(), l.rlim_max);
    struct rlimit now;
    KT_REQUIRE(getrlimit(RLIMIT_NOFILE, &now) == 0);
    KT_EQ(now.rlim_cur, l.rlim_max);
    KT_EQ(dup2(0, 40), 40);
    close(40);
    KT_EQ(rt_raise_open_files(), l.rlim_max); /* again: nothing to do */
}

KT_MAIN("rt_limits", KT(the_soft_limit_of_open_files_becomes_the_hard_one))
