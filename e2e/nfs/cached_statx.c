/* cached_statx.c - the naive broker: every forced attribute read becomes a cached one. Linked into kaas-fight-cached
 * only (--wrap=statx), to show that the fight finds what the fence check prevents. */
#include <fcntl.h>
#include <sys/stat.h>

int __real_statx(int fd, const char *path, int flags, unsigned mask, struct statx *ret);
int __wrap_statx(int fd, const char *path, int flags, unsigned mask, struct statx *ret);

int __wrap_statx(int fd, const char *path, int flags, unsigned mask, struct statx *ret)
{
    int rc = __real_statx(fd, path, flags & ~AT_STATX_FORCE_SYNC, mask, ret);
    return rc || S_ISREG(ret->stx_mode) ? rc : __real_statx(fd, path, flags, mask, ret);
}
