/* What the linker puts between the engine's functions (--wrap): which step of the protocol a thread
 * is in, and the switches that break a rule (ss_mutant.h). */
#include <errno.h>
#include <string.h>

#include "base/kc_mem.h"
#include "ss_fs.h"
#include "ss_mutant.h"
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
int __real_ks_epoch_scan(struct ks_epoch_scan *s, struct kc_err *err);
int __real_ks_fs_datasync(struct ks_fs *fs, int fd);
int __real_ks_fs_close(struct ks_fs *fs, int fd);
bool __real_ks_fs_network(struct ks_fs *fs);
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
int __wrap_ks_epoch_scan(struct ks_epoch_scan *s, struct kc_err *err);
int __wrap_ks_fs_datasync(struct ks_fs *fs, int fd);
int __wrap_ks_fs_close(struct ks_fs *fs, int fd);
bool __wrap_ks_fs_network(struct ks_fs *fs);
void __wrap_ks_task_run(struct ks_task *t);
void __wrap_ks_ack_post(struct ks_entry *list);
void *__wrap_kc_try_alloc(size_t size);
void *__wrap_kc_try_zalloc(size_t n, size_t size);
void *__wrap_kc_try_realloc(void *ptr, size_t size);

static enum ss_mutant mutant;
static bool checked_early[SS_NODES]; /* by node: what the check before the write said */

void ss_mutate(enum ss_mutant m)
{
    mutant = m;
    memset(checked_early, 0, sizeof(checked_early));
    ss_mutant_reset();
}

enum ss_mutant ss_mutant_now(void)
{
    return mutant;
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
    if (mutant == SS_M1_SCAN_BEFORE_FENCE) {
        ss_put_off_fence(fs, broker, incarnation);
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
    if (mutant == SS_M7_GAP && r->type == KS_CLAIM) {
        r->k++;
    }
    int rc = __real_ks_chain_append(fs, topic, partition, r, out, ret_len);
    if (mutant == SS_M5_SEAL_OVERWRITTEN && rc == KC_E_EXISTS && r->type == KS_SEAL) {
        return ss_overwrite_record(fs, topic, partition, r);
    }
    bool lost = rc == KC_E_EXISTS && ((mutant == SS_M6_OWN_LENGTH && r->type == KS_SEAL) ||
                                      (mutant == SS_M13_GO_ON && r->type == KS_CLAIM));
    return lost ? 0 : rc;
}

/* M1: the fence that is due comes now, after the scan. */
static int fence_at_last(void)
{
    struct ks_fs *fs;
    int32_t broker;
    struct kc_uuid inc;
    return ss_take_fence(&fs, &broker, &inc) ? __real_ks_inc_fence(fs, broker, &inc) : 0;
}

int __wrap_ks_chain_append(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition,
                           struct ks_rec *r, uint8_t *out, size_t *ret_len)
{
    if (mutant == SS_M10_ACK_BEFORE_ROLL && r->type == KS_ROLL) {
        r->k--; /* the caller counts it, but nothing stands there */
        return 0;
    }
    if (mutant == SS_M1_SCAN_BEFORE_FENCE && r->type == KS_SEAL && fence_at_last()) {
        return -EIO;
    }
    uint32_t before = ss_enter(step_of(r->type));
    int rc = append(fs, topic, partition, r, out, ret_len);
    ss_leave(before);
    int fd = mutant == SS_C3_COPY_NOT_SYNCED && r->type == KS_SEAL ? ss_take_close() : -1;
    if (fd >= 0) {
        __real_ks_fs_close(fs, fd);
    }
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
    ss_put_off_forget();
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

/* M9D: no ROLL tells where a file ends. */
static int scan_by_size(struct ks_epoch_scan *s, struct kc_err *err)
{
    const struct ks_chain *chain = s->chain;
    struct ks_chain bare = *chain;
    bare.files = kc_alloc(chain->n_files * sizeof(*bare.files));
    memcpy(bare.files, chain->files, chain->n_files * sizeof(*bare.files));
    uint32_t end;
    for (uint32_t i = ks_chain_files(chain, s->epoch, &end); i < end; i++) {
        bare.files[i].end = bare.files[i].dropped ? bare.files[i].end : -1;
    }
    s->chain = &bare;
    int rc = __real_ks_epoch_scan(s, err);
    s->chain = chain;
    kc_free(bare.files);
    return rc;
}

int __wrap_ks_epoch_scan(struct ks_epoch_scan *s, struct kc_err *err)
{
    uint32_t before = ss_enter(SS_S_SCAN);
    int rc = mutant == SS_M9D_BY_SIZE ? scan_by_size(s, err) : __real_ks_epoch_scan(s, err);
    ss_leave(before);
    return rc;
}

int __wrap_ks_tail_copy(const struct ks_epoch_scan *s, int to, struct ks_file_id id,
                        struct ks_rec *ret)
{
    if (mutant == SS_C1_NO_COPY) {
        ks_epoch_seal(s, ret);
        return 0;
    }
    if (mutant == SS_C3_COPY_NOT_SYNCED) {
        ss_put_off_close(s->fs, to);
    }
    uint32_t before = ss_enter(SS_S_COPY);
    int rc = __real_ks_tail_copy(s, to, id, ret);
    ss_leave(before);
    return rc;
}

int __wrap_ks_fs_datasync(struct ks_fs *fs, int fd)
{
    return mutant == SS_C3_COPY_NOT_SYNCED && ss_sched_active() && ss_put_off_is(fd)
               ? 0
               : __real_ks_fs_datasync(fs, fd);
}

/* A close would sync it as well. */
int __wrap_ks_fs_close(struct ks_fs *fs, int fd)
{
    return mutant == SS_C3_COPY_NOT_SYNCED && ss_sched_active() && ss_put_off_is(fd)
               ? 0
               : __real_ks_fs_close(fs, fd);
}

bool __wrap_ks_fs_network(struct ks_fs *fs)
{
    return mutant != SS_C_SYNC_ONLY && __real_ks_fs_network(fs);
}

/* ---- group commit ---- */

void __wrap_ks_task_run(struct ks_task *t)
{
    bool failed = t->log->c_failed;
    if (mutant == SS_M2_CHECK_BEFORE_WRITE) {
        checked_early[ss_node()] = __real_ks_engine_check(t->log->e, t->log->inc);
    }
    __real_ks_task_run(t);
    bool m9 = mutant == SS_M9_NO_RECORD || mutant == SS_M9B_ISSUED || mutant == SS_M9D_BY_SIZE;
    if (m9 && !failed && t->log->c_failed && t->log->c_error == KS_K_STORAGE_ERROR) {
        ss_go_on_in_second_file(t, mutant);
    }
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
    return ss_sched_active() && ss_aim_at_memory();
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
