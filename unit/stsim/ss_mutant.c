#include "ss_mutant.h"

#include "ss_fs.h"
#include "ss_world.h"
#include "storage/ks_int.h"

bool __real_ks_engine_check(struct ks_engine *e, struct ks_inc *inc);
int __real_ks_inc_fence(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation);
int __real_ks_chain_append(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition,
                           struct ks_rec *r, uint8_t *out, size_t *ret_len);
int __real_ks_chain_apply(struct ks_chain *c, const struct ks_rec *r, struct kc_err *err);
void __real_ks_task_run(struct ks_task *t);

bool __wrap_ks_engine_check(struct ks_engine *e, struct ks_inc *inc);
int __wrap_ks_inc_fence(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation);
int __wrap_ks_chain_append(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition,
                           struct ks_rec *r, uint8_t *out, size_t *ret_len);
int __wrap_ks_chain_apply(struct ks_chain *c, const struct ks_rec *r, struct kc_err *err);
void __wrap_ks_task_run(struct ks_task *t);
int __wrap_ks_fs_posix(struct ks_fs *fs, const char *dir, struct kc_err *err);

static enum ss_mutant mutant;
static bool checked_early[SS_NODES]; /* by node: what the check before the write said */

void ss_mutate(enum ss_mutant m)
{
    mutant = m;
}

int ss_chain_apply(struct ks_chain *c, const struct ks_rec *r, struct kc_err *err)
{
    return __real_ks_chain_apply(c, r, err);
}

bool __wrap_ks_engine_check(struct ks_engine *e, struct ks_inc *inc)
{
    if (mutant == SS_M3_NO_CHECK) {
        atomic_store(&e->checked_ms, ss_now_us() / 1000);
        return true;
    }
    if (mutant == SS_M2_CHECK_BEFORE_WRITE && checked_early[ss_node()]) {
        return !atomic_load(&inc->fenced);
    }
    return __real_ks_engine_check(e, inc);
}

void __wrap_ks_task_run(struct ks_task *t)
{
    if (mutant == SS_M2_CHECK_BEFORE_WRITE) {
        checked_early[ss_node()] = __real_ks_engine_check(t->log->e, t->log->inc);
    }
    __real_ks_task_run(t);
}

int __wrap_ks_inc_fence(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation)
{
    return mutant == SS_M4_NO_FENCE ? 0 : __real_ks_inc_fence(fs, broker, incarnation);
}

int __wrap_ks_chain_append(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition,
                           struct ks_rec *r, uint8_t *out, size_t *ret_len)
{
    if (mutant == SS_M10_ACK_BEFORE_ROLL && r->type == KS_ROLL) {
        r->k--; /* the caller counts it, but nothing stands there */
        return 0;
    }
    for (uint16_t i = 0; mutant == SS_M8_UNLINK_FIRST && r->type == KS_TRIM && i < r->drop.n_old;
         i++) {
        char path[KS_PATH_MAX];
        ks_path_file(path, topic, partition, r->drop.old[i]);
        ks_fs_unlink(fs, path);
    }
    int rc = __real_ks_chain_append(fs, topic, partition, r, out, ret_len);
    bool lost = rc == KC_E_EXISTS && ((mutant == SS_M6_OWN_LENGTH && r->type == KS_SEAL) ||
                                      (mutant == SS_M13_GO_ON && r->type == KS_CLAIM));
    return lost ? 0 : rc;
}

int __wrap_ks_chain_apply(struct ks_chain *c, const struct ks_rec *r, struct kc_err *err)
{
    struct ks_epoch *last = ks_chain_last(c);
    int32_t epoch = last && !last->sealed ? last->epoch : -1;
    int rc = __real_ks_chain_apply(c, r, err);
    if (mutant == SS_M12_EMPTY_SEAL && rc == 0 && r->type == KS_CLAIM && epoch >= 0) {
        ks_chain_epoch(c, epoch)->never_opened = true;
    }
    return rc;
}

/* fsck looks at the simulated volume. */
int __wrap_ks_fs_posix(struct ks_fs *fs, const char *dir, struct kc_err *err)
{
    (void)dir;
    (void)err;
    ss_client_fs(ss_world_auditor(), fs);
    return 0;
}
