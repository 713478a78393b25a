/* kaas-history [--compacted TOPIC]... [--deleting TOPIC]... [--stale-ms N] [--partial] FILE...: see README.md. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/kc_str.h"
#include "history/hist.h"

enum { CLEAN = 0, VIOLATIONS = 1, UNUSABLE = 2 };

static int load_file(struct hist *h, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) {
        fprintf(stderr, "%s: %s\n", path, kc_strerror(-errno));
        return -1;
    }
    size_t len = (size_t)st.st_size;
    void *map = len ? mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    close(fd);
    if (map == MAP_FAILED) {
        fprintf(stderr, "%s: %s\n", path, kc_strerror(-errno));
        return -1;
    }
    struct kc_err err = {0};
    int rc = hist_load(h, len ? map : "", len, &err);
    if (rc) {
        fprintf(stderr, "%s: %s\n", path, err.msg);
    }
    if (len) {
        munmap(map, len);
    }
    return rc;
}

/* The option's effect; false: no such option, or its value is bad. */
static bool option(struct hist *h, const char *name, const char *value, bool *ret_used_value)
{
    struct hist_topic *t;
    int64_t ms;
    *ret_used_value = strcmp(name, "--partial") != 0;
    if (!*ret_used_value) {
        h->partial = true;
        return true;
    }
    if (!value) {
        return false;
    }
    if (strcmp(name, "--stale-ms") == 0) {
        if (kc_parse_i64(kc_str_of(value), &ms) || ms < 0) {
            return false;
        }
        h->stale_us = ms * 1000;
        return true;
    }
    bool compacted = strcmp(name, "--compacted") == 0;
    if ((!compacted && strcmp(name, "--deleting") != 0) ||
        !(t = hist_topic(h, value, strlen(value)))) {
        return false;
    }
    t->compacted = t->compacted || compacted;
    t->deleting = t->deleting || !compacted;
    return true;
}

int main(int argc, char **argv)
{
    struct hist *h = hist_new();
    int rc = CLEAN, files = 0;
    for (int i = 1; i < argc && rc == CLEAN; i++) {
        bool used_value = false;
        if (strncmp(argv[i], "--", 2) == 0) {
            rc = option(h, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &used_value) ? CLEAN
                                                                                    : UNUSABLE;
            i += used_value;
        } else {
            files++;
            rc = load_file(h, argv[i]) ? UNUSABLE : CLEAN;
        }
    }
    if (rc || files == 0) {
        fprintf(stderr, "usage: kaas-history [--compacted TOPIC]... [--deleting TOPIC]... "
                        "[--stale-ms N] [--partial] FILE...\n");
        hist_free(h);
        return UNUSABLE;
    }
    hist_check(h);
    hist_report(h, stdout);
    rc = hist_violations(h) ? VIOLATIONS : CLEAN;
    hist_free(h);
    return rc;
}
