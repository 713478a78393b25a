/* ks_file.h - data files, shared by reference, and how many of them stay open.
 *
 * A file that somebody works with is pinned and open. Files that nobody uses stay open for the next
 * reader, up to a limit, and are closed longest idle first. The maker of a file holds the first pin:
 * its descriptor stays the same from write to sync (a closed one forgets errors). */
#ifndef KS_FILE_H
#define KS_FILE_H

#include <pthread.h>

#include "base/kc_list.h"
#include "storage/ks_fs.h"
#include "storage/ks_rec.h"

/* Open files that nobody uses. */
struct ks_fds {
    pthread_mutex_t lock; /* guards the list, and fd and users of every file; never held over I/O */
    struct kc_list idle; /* struct ks_file.in_idle, longest idle first */
    int32_t n_idle, max_idle;
    int32_t n_lent; /* files that answers on their way out hold open */
};
enum { KS_FILES_LENT = 512 }; /* more files than that are not lent at once */

void ks_fds_init(struct ks_fds *fds, int32_t max_idle);
void ks_fds_fini(struct ks_fds *fds); /* no file is left */

struct ks_file {
    _Atomic uint32_t refs;
    int fd; /* -1 = closed; stable while pinned */
    uint32_t users;
    uint32_t lent; /* of these, to answers */
    struct kc_list in_idle;
    struct ks_fs *fs;
    struct ks_fds *fds;
    struct kc_uuid topic;
    int32_t partition;
    struct ks_file_id id;
};

/* fd: of a file just made, which is pinned then (ks_file_release); or -1. NULL: no memory. */
struct ks_file *ks_file_new(struct ks_fs *fs, struct ks_fds *fds, const struct kc_uuid *topic,
                            int32_t partition, struct ks_file_id id, int fd);
struct ks_file *ks_file_ref(struct ks_file *f);
void ks_file_unref(struct ks_file *f); /* NULL allowed; the last one has it closed, elsewhere */

/* Pins it, opening it for reading if need be [blocking]; the descriptor or -errno (not pinned). */
int ks_file_acquire(struct ks_file *f);
void ks_file_release(struct ks_file *f); /* [blocking: may close the longest idle one] */
int ks_file_sync_release(
    struct ks_file *f); /* datasync of a pinned file, then release [blocking] */
/* Pins it for an answer if it is open, and not too many are lent; never waits. The descriptor or -1. */
int ks_file_lend(struct ks_file *f);
void ks_file_take_back(struct ks_file *f); /* never waits */
/* The descriptor of a pinned file. */
static inline int ks_file_fd(const struct ks_file *f)
{
    return f->fd;
}

#endif
