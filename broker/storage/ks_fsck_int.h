/* ks_fsck_int.h - the two passes of fsck: partitions (ks_fsck.c) and names (ks_fsck_names.c). */
#ifndef KS_FSCK_INT_H
#define KS_FSCK_INT_H

#include "storage/ks_fsck.h"
#include "storage/ks_int.h"

struct ks_fsck_names {
    struct ks_fs *fs;
    FILE *out;
    bool verbose;
    struct ks_fsck_result *r;
    struct ks_ids deleted;
};
/* Every name on the volume, cluster.json and the topics' meta: what is damaged, what no broker makes,
 * what is there and nobody would serve. */
void ks_fsck_names(struct ks_fsck_names *n);

#endif
