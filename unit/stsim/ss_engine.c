/* What the linker puts between the engine's functions (--wrap): which step of the protocol a thread
 * is in, and the switches that break a rule (ss_mutant.h). */
#include <stdlib.h>

#include "ss_fs.h"
#include "ss_mutant.h"
#include "ss_world.h"
#include "storage/ks_int.h"
#include "storage/ks_scan.h"

bool __real_ks_engine_check(struct ks_engine *e, struct ks_inc *inc);
int __real_ks_inc_publish(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation,
                          struct kc_err *err);
int __real_ks_inc_fence(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation);
int __real_ks_chain_load(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition,
                         uint64_t known_k, struct ks_chain *c, struct kc_err *err);
int __real_ks_chain_append(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition,
                           struct ks_rec *r, uint8_t *out, size_t *ret_len);
int __real_ks_chain_apply(struct ks_chain *c, const struct ks_rec *r, struct kc_err *err);
int __real_ks_takeover_warm(struct ks_takeover *t, struct kc_err *err);
int __real_ks_takeover_run(struct ks_takeover *t, struct kc_err *err);
int __real_ks_build_run(struct ks_build *b, const struct ks_chain *c, struct kc_err *err);
int __real_ks_tail_copy(const struct ks_epoch_scan *s, int to, struct ks_file_id id,
                        struct ks_rec *ret);
void __real_ks_task_run(struct ks_task *t);
void __real_ks_ack_post(struct ks_entry *list);
void *__real_kc_try_alloc(size_t size);
void *__real_kc_try_zalloc(size_t n, size_t size);
void *__real_kc_try_realloc(void *ptr, size_t size);

bool __wrap_ks_engine_check(struct ks_engine *e, struct ks_inc *inc);
int __wrap_ks_inc_publish(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation,
                          struct kc_err *err);
int __wrap_ks_inc_fence(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation);
int __wrap_ks_chain_load(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition,
                         uint64_t known_k, struct ks_chain *c, struct kc_err *err);
int __wrap_ks_chain_append(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition,
                           struct ks_rec *r, uint8_t *out, size_t *ret_len);
int __wrap_ks_chain_apply(struct ks_chain *c, const struct ks_rec *r, struct kc_err *err);
int __wrap_ks_takeover_warm(struct ks_takeover *t, struct kc_err *err);
int __wrap_ks_takeover_run(struct ks_takeover *t, struct kc_err *err);
int __wrap_ks_build_run(struct ks_build *b, const struct ks_chain *c, struct kc_err *err);
int __wrap_ks_tail_copy(const struct ks_epoch_scan *s, int to, struct ks_file_id id,
                        struct ks_rec *ret);
void __wrap_ks_task_run(struct ks_task *t);
void __wrap_ks_ack_post(struct ks_entry *list);
void *__wrap_kc_try_alloc(size_t size);
void *__wrap_kc_try_zalloc(size_t n, size_t size);
void *__wrap_kc_try_realloc(void *ptr, size_t size);
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

/* ---- incarnations ---- */

bool __wrap_ks_engine_check(struct ks_engine *e, struct ks_inc *inc)
{
    if (mutant == SS_M3_NO_CHECK) {
        atomic_store(&e->checked_ms, ss_now_us() / 1000);
        return true;
    }
    if (mutant == SS_M2_CHECK_BEFORE_WRITE && checked_early[ss_node()]) {
        return !atomic_load(&inc->fenced);
    }
    uint32_t before = ss_enter(SS_S_CHECK);
    bool ok = __real_ks_engine_check(e, inc);
    ss_leave(before);
    return ok;
}

int __wrap_ks_inc_publish(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation,
                          struct kc_err *err)
{
    uint32_t before = ss_enter(SS_S_CLAIM_FILE);
    int rc = __real_ks_inc_publish(fs, broker, incarnation, err);
    ss_leave(before);
    return rc;
}

int __wrap_ks_inc_fence(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation)
{
    if (mutant == SS_M4_NO_FENCE) {
        return 0;
    }
    uint32_t before = ss_enter(SS_S_FENCE);
    int rc = __real_ks_inc_fence(fs, broker, incarnation);
    ss_leave(before);
    return rc;
}

/* ---- chains ---- */

int __wrap_ks_chain_load(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition,
                         uint64_t known_k, struct ks_chain *c, struct kc_err *err)
{
    uint32_t before = ss_enter(SS_S_CHAIN);
    int rc = __real_ks_chain_load(fs, topic, partition, known_k, c, err);
    ss_leave(before);
    return rc;
}

static enum ss_step step_of(enum ks_rec_type type)
{
    bool takeover = ss_inside(SS_S_OPEN) || ss_inside(SS_S_GO) || ss_inside(SS_S_RECOVER);
    switch (type) {
    case KS_CLAIM:
        return SS_S_CLAIM;
    case KS_ROLL:
        return SS_S_ROLL;
    case KS_SEAL:
        return takeover ? SS_S_SEAL : SS_S_OWN_SEAL;
    case KS_COMPACT:
        return SS_S_COMPACT;
    case KS_TRIM:
        return SS_S_TRIM;
    }
    return SS_S_TRIM;
}

static int append(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition,
                  struct ks_rec *r, uint8_t *out, size_t *ret_len)
{
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

int __wrap_ks_chain_append(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition,
                           struct ks_rec *r, uint8_t *out, size_t *ret_len)
{
    if (mutant == SS_M10_ACK_BEFORE_ROLL && r->type == KS_ROLL) {
        r->k--; /* the caller counts it, but nothing stands there */
        return 0;
    }
    uint32_t before = ss_enter(step_of(r->type));
    int rc = append(fs, topic, partition, r, out, ret_len);
    ss_leave(before);
    return rc;
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

/* ---- takeovers ---- */

int __wrap_ks_takeover_warm(struct ks_takeover *t, struct kc_err *err)
{
    uint32_t before = ss_enter(SS_S_PREPARE);
    const _Atomic bool *watched = ss_watch_cancel(t->cancelled);
    int rc = __real_ks_takeover_warm(t, err);
    ss_watch_cancel(watched);
    ss_leave(before);
    return rc;
}

int __wrap_ks_takeover_run(struct ks_takeover *t, struct kc_err *err)
{
    uint32_t before = ss_enter(t->recovery ? SS_S_RECOVER : t->file ? SS_S_GO : SS_S_OPEN);
    const _Atomic bool *watched = ss_watch_cancel(t->cancelled);
    int rc = __real_ks_takeover_run(t, err);
    ss_watch_cancel(watched);
    ss_leave(before);
    return rc;
}

int __wrap_ks_build_run(struct ks_build *b, const struct ks_chain *c, struct kc_err *err)
{
    uint32_t before = ss_enter(SS_S_REBUILD);
    int rc = __real_ks_build_run(b, c, err);
    ss_leave(before);
    return rc;
}

int __wrap_ks_tail_copy(const struct ks_epoch_scan *s, int to, struct ks_file_id id,
                        struct ks_rec *ret)
{
    uint32_t before = ss_enter(SS_S_COPY);
    int rc = __real_ks_tail_copy(s, to, id, ret);
    ss_leave(before);
    return rc;
}

/* ---- group commit ---- */

void __wrap_ks_task_run(struct ks_task *t)
{
    if (mutant == SS_M2_CHECK_BEFORE_WRITE) {
        checked_early[ss_node()] = __real_ks_engine_check(t->log->e, t->log->inc);
    }
    __real_ks_task_run(t);
}

void __wrap_ks_ack_post(struct ks_entry *list)
{
    struct ss_client *c = ss_client_here();
    uint32_t before = ss_enter(SS_S_ACK);
    if (c && list) {
        ss_client_point(c);
    }
    __real_ks_ack_post(list);
    ss_leave(before);
}

/* ---- memory ---- */

static bool no_memory(void)
{
    if (!ss_sched_active() || !ss_local()->no_memory) {
        return false;
    }
    bool hit = (ss_local()->no_memory & ss_local()->inside) != 0;
    ss_local()->no_memory = 0;
    if (hit) {
        ss_hit(SS_F_NO_MEMORY, ss_steps());
    }
    return hit;
}

void *__wrap_kc_try_alloc(size_t size)
{
    return no_memory() ? NULL : __real_kc_try_alloc(size);
}

void *__wrap_kc_try_zalloc(size_t n, size_t size)
{
    return no_memory() ? NULL : __real_kc_try_zalloc(n, size);
}

void *__wrap_kc_try_realloc(void *ptr, size_t size)
{
    return no_memory() ? NULL : __real_kc_try_realloc(ptr, size);
}

/* fsck looks at the simulated volume. */
int __wrap_ks_fs_posix(struct ks_fs *fs, const char *dir, struct kc_err *err)
{
    (void)dir;
    (void)err;
    ss_client_fs(ss_world_auditor(), fs);
    return 0;
}
