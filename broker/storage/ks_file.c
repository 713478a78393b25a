#include "storage/ks_file.h"

#include "base/kc_mem.h"
#include "storage/ks_vol.h"

void ks_fds_init(struct ks_fds *fds, int32_t max_idle)
{
    pthread_mutex_init(&fds->lock, NULL);
    kc_list_init(&fds->idle);
    fds->n_idle = fds->n_lent = 0;
    fds->max_idle = max_idle;
}

void ks_fds_fini(struct ks_fds *fds)
{
    KC_ASSERT(fds->n_idle == 0);
    pthread_mutex_destroy(&fds->lock);
}

struct ks_file *ks_file_new(struct ks_fs *fs, struct ks_fds *fds, const struct kc_uuid *topic,
                            int32_t partition, struct ks_file_id id, int fd)
{
    struct ks_file *f = kc_try_zalloc(1, sizeof(*f));
    if (f) {
        atomic_init(&f->refs, 1);
        f->fd = fd;
        f->users = fd >= 0;
        kc_list_init(&f->in_idle);
        f->fs = fs;
        f->fds = fds;
        f->topic = *topic;
        f->partition = partition;
        f->id = id;
    }
    return f;
}

struct ks_file *ks_file_ref(struct ks_file *f)
{
    atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    return f;
}

/* With the lock held. */
static void leave_idle(struct ks_file *f)
{
    if (f->fd >= 0 && f->users == 0) {
        kc_list_del(&f->in_idle);
        f->fds->n_idle--;
    }
}

void ks_file_unref(struct ks_file *f)
{
    if (f && atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) == 1) {
        pthread_mutex_lock(&f->fds->lock);
        leave_idle(f);
        pthread_mutex_unlock(&f->fds->lock);
        if (f->fd >= 0) {
            ks_fs_close_later(f->fs, f->fd);
        }
        kc_free(f);
    }
}

int ks_file_acquire(struct ks_file *f)
{
    pthread_mutex_lock(&f->fds->lock);
    leave_idle(f);
    int fd = f->fd;
    f->users += fd >= 0;
    pthread_mutex_unlock(&f->fds->lock);
    if (fd >= 0) {
        return fd;
    }
    char path[KS_PATH_MAX];
    ks_path_file(path, &f->topic, f->partition, f->id);
    int mine = ks_fs_open(f->fs, path, KS_READ);
    if (mine < 0) {
        return mine;
    }
    pthread_mutex_lock(&f->fds->lock);
    leave_idle(f);
    if (f->fd < 0) {
        f->fd = mine;
        mine = -1;
    }
    fd = f->fd;
    f->users++;
    pthread_mutex_unlock(&f->fds->lock);
    if (mine >= 0) {
        ks_fs_close(f->fs, mine); /* another reader was faster */
    }
    return fd;
}

/* With the lock held: one user less. Returns the descriptor of the file that has been idle longest, to
 * be closed, if there are too many; else -1. */
static int leave(struct ks_file *f)
{
    struct ks_fds *fds = f->fds;
    int old = -1;
    if (--f->users == 0) {
        kc_list_add_tail(&fds->idle, &f->in_idle);
        fds->n_idle++;
    }
    if (fds->n_idle > fds->max_idle) {
        struct ks_file *victim = KC_LIST_ENTRY(fds->idle.next, struct ks_file, in_idle);
        leave_idle(victim);
        old = victim->fd;
        victim->fd = -1;
    }
    return old;
}

void ks_file_release(struct ks_file *f)
{
    pthread_mutex_lock(&f->fds->lock);
    int old = leave(f);
    pthread_mutex_unlock(&f->fds->lock);
    if (old >= 0) {
        ks_fs_close(f->fs, old);
    }
}

int ks_file_lend(struct ks_file *f)
{
    struct ks_fds *fds = f->fds;
    int fd = -1;
    pthread_mutex_lock(&fds->lock);
    if (f->fd >= 0 && (f->lent > 0 || fds->n_lent < KS_FILES_LENT)) {
        leave_idle(f);
        fd = f->fd;
        f->users++;
        fds->n_lent += f->lent++ == 0;
    }
    pthread_mutex_unlock(&fds->lock);
    return fd;
}

void ks_file_take_back(struct ks_file *f)
{
    pthread_mutex_lock(&f->fds->lock);
    f->fds->n_lent -= --f->lent == 0;
    int old = leave(f);
    pthread_mutex_unlock(&f->fds->lock);
    if (old >= 0) {
        ks_fs_close_later(f->fs, old);
    }
}

int ks_file_sync_release(struct ks_file *f)
{
    int rc = ks_fs_datasync(f->fs, f->fd);
    ks_file_release(f);
    return rc;
}
