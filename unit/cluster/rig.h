/* rig.h - one broker's control plane for tests: real engine and data loops on a directory of its own, an
 * image directory the test writes, and a fake operator. */
#ifndef RIG_H
#define RIG_H

#include "cl_fixture.h"
#include "cluster/kl_cluster.h"
#include "fake_operator.h"
#include "kt_dir.h"
#include "storage/ks_fs.h"

struct rig {
    char dir[KT_DIR_MAX];
    struct fop op;
    struct clf cluster; /* what the image says; row 0 is the broker under test */
    struct fop_say say;
    struct ks_engine *engine;
    struct kd_data *data;
    struct rt_loop control;
    struct kl_cluster *kl;
    _Atomic int drained;
    _Atomic uint64_t generation; /* of the image told to on_image */
    bool data_running;
    uv_timer_t settle;
};

/* DATA_LATER: the data loops do not run yet. IMPATIENT: an operator silent for 0.9 s is given up, not for 20 s.
 * SLOW, SLOW_DRAIN: a minute between heartbeats, or to the deadline of a drain, so that what is awaited sooner
 * did not wait for it. */
enum { RIG_DATA_LATER = 1, RIG_IMPATIENT = 2, RIG_SLOW = 4, RIG_SLOW_DRAIN = 8 };
void rig_start(struct rig *r, int flags);
void rig_run_data(struct rig *r);
void rig_stop(struct rig *r);
/* Waits for the hello, names its incarnation in the image and publishes. */
void rig_join(struct rig *r);
/* Writes the image files and lets the operator say its order. */
void rig_publish(struct rig *r);
/* Only the operator's answer changes. */
void rig_say(struct rig *r);
/* Claims, or syncs of files, wait on a thread of the engine until they are let go. */
void rig_hold_claims(bool on);
void rig_hold_syncs(bool on);
void rig_await_held(void); /* until one does */
/* The next sync of a file fails with EIO. */
void rig_fail_sync(void);
/* The file system of the volume at dir, which does these things. */
void rig_fs_init(struct ks_fs *fs, const char *dir);
/* Waits until expr about `h` holds; fails the test otherwise. */
bool rig_wait(struct rig *r, bool (*cond)(const struct fop_heard *h, void *ctx), void *ctx,
              int64_t timeout_ms);
int rig_count(const struct rig *r, const char *sub); /* entries of a folder of the volume */

/* Waits for the next admin change that was settled; its message is not kept. */
struct kb_admin_result rig_settled(void);

#define RIG_WAIT(r, cond, ctx) KT_TRUE(rig_wait((r), (cond), (ctx), 20000))

#endif
