/* The volume of the rig: the real file system, with claims and syncs that can be held back, and a sync
 * that can be made to fail. */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "rig.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the three below */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool held_claims, held_syncs;
static int waiting; /* threads held */
static _Atomic bool fail_sync;
static struct ks_fs_ops ops;
static const struct ks_fs_ops *real;

static void hold(bool *what, bool on)
{
    pthread_mutex_lock(&lock);
    *what = on;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void rig_hold_claims(bool on)
{
    hold(&held_claims, on);
}

void rig_hold_syncs(bool on)
{
    hold(&held_syncs, on);
}

void rig_await_held(void)
{
    pthread_mutex_lock(&lock);
    while (waiting == 0) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

/* On a thread of the engine: waits while *what. */
static void pass(const bool *what)
{
    pthread_mutex_lock(&lock);
    waiting++;
    while (*what) {
        pthread_cond_broadcast(&changed);
        pthread_cond_wait(&changed, &lock);
    }
    waiting--;
    pthread_mutex_unlock(&lock);
}

void rig_fail_sync(void)
{
    atomic_store(&fail_sync, true);
}

static int fs_link(void *ctx, const char *from, const char *to)
{
    if (strstr(to, "/ctl.")) {
        pass(&held_claims);
    }
    return real->link(ctx, from, to);
}

static int fs_datasync(void *ctx, int fd)
{
    pass(&held_syncs);
    pass(&held_syncs);
    return atomic_exchange(&fail_sync, false) ? -EIO : real->datasync(ctx, fd);
}

void rig_fs_init(struct ks_fs *fs, const char *dir)
{
    struct kc_err err;
    struct ks_fs under;
    KC_ASSERT(ks_fs_posix(&under, dir, &err) == 0);
    atomic_store(&fail_sync, false);
    rig_hold_claims(false);
    rig_hold_syncs(false);
    real = under.ops;
    ops = *real;
    ops.link = fs_link;
    ops.datasync = fs_datasync;
    ks_fs_init(fs, &ops, under.ctx);
}
