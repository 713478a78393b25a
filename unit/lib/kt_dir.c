#include "kt_dir.h"

#include <ftw.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>

#include "kt.h"

enum { FDS = 16, ROOT_MAX = 40, PATH_LEN = 512 };

void kt_dir_make(char dir[KT_DIR_MAX])
{
    const char *tmp = getenv("TMPDIR");
    bool usable = tmp && *tmp && strlen(tmp) <= ROOT_MAX;
    snprintf(dir, KT_DIR_MAX, "%s/kaas-test-XXXXXX", usable ? tmp : "/tmp");
    KT_REQUIRE(mkdtemp(dir) != NULL);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void kt_dir_remove(const char *dir)
{
    KT_EQ(nftw(dir, remove_one, FDS, FTW_DEPTH | FTW_PHYS), 0);
}

void kt_file_write(const char *path, const char *fmt, ...)
{
    char tmp[PATH_LEN];
    KT_REQUIRE(snprintf(tmp, sizeof(tmp), "%s.tmp", path) < PATH_LEN);
    FILE *f = fopen(tmp, "w");
    KT_REQUIRE(f != NULL);
    va_list ap;
    va_start(ap, fmt);
    KT_TRUE(vfprintf(f, fmt, ap) >= 0);
    va_end(ap);
    KT_EQ(fclose(f), 0);
    KT_EQ(rename(tmp, path), 0);
}
