/* What the linker puts between the engine's functions (--wrap): which step of the protocol a thread
 * is in, and the switches that break a rule (ss_mutant.h). */
#include <errno.h>
#include <string.h>

#include "base/kc_mem.h"
#include "ss_check.h"
#include "ss_mutant.h"
#include "storage/ks_clean.h"
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
void __real_ks_clean_work(struct ks_clean_job *job);
int64_t __real_ks_clean_map_get(const struct ks_clean_map *m, const void *key, size_t len);
int __real_ks_clean_batch(struct ks_clean_filter *f, const uint8_t *p, const struct ks_batch *b,
                          bool keep, struct ks_bytes_buf *out);
void __real_ks_task_run(struct ks_task *t);
bool __real_ks_task_far_ahead(const struct ks_log *log);
void __real_ks_task_seal(struct ks_log *log, struct ks_entry *entry);
int __real_ks_journal_write(struct ks_engine *e, struct ks_task *tasks, uint32_t n);
void __real_ks_journal_synced(struct ks_engine *e, struct ks_entry *entry);
int __real_ks_file_sync_release(struct ks_file *f);
int __real_ks_frames_read(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation,
                          struct ks_frames **ret, struct kc_err *err);
int __real_ks_framed_get(struct ks_engine *e, int32_t broker, const struct kc_uuid *incarnation,
                         uint64_t since, struct ks_frames **ret, struct kc_err *err);
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
void __wrap_ks_clean_work(struct ks_clean_job *job);
int64_t __wrap_ks_clean_map_get(const struct ks_clean_map *m, const void *key, size_t len);
int __wrap_ks_clean_batch(struct ks_clean_filter *f, const uint8_t *p, const struct ks_batch *b,
                          bool keep, struct ks_bytes_buf *out);
void __wrap_ks_task_run(struct ks_task *t);
bool __wrap_ks_task_far_ahead(const struct ks_log *log);
void __wrap_ks_task_seal(struct ks_log *log, struct ks_entry *entry);
int __wrap_ks_journal_write(struct ks_engine *e, struct ks_task *tasks, uint32_t n);
void __wrap_ks_journal_synced(struct ks_engine *e, struct ks_entry *entry);
int __wrap_ks_file_sync_release(struct ks_file *f);
int __wrap_ks_frames_read(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation,
                          struct ks_frames **ret, struct kc_err *err);
int __wrap_ks_framed_get(struct ks_engine *e, int32_t broker, const struct kc_uuid *incarnation,
                         uint64_t since, struct ks_frames **ret, struct kc_err *err);
void __wrap_ks_ack_post(struct ks_entry *list);
void *__wrap_kc_try_alloc(size_t size);
void *__wrap_kc_try_zalloc(size_t n, size_t size);
void *__wrap_kc_try_realloc(void *ptr, size_t size);

static enum ss_mutant mutant;
static bool checked_early[SS_NODES]; /* by node: what the check before the write said */
static bool lost_compact[SS_NODES]; /* K3: the next check is left out, too */
static const struct ss_thread *journal_write[SS_NODES]; /* by node: who is at it */

void ss_mutate(enum ss_mutant m)
{
    mutant = m;
    memset(checked_early, 0, sizeof(checked_early));
    memset(lost_compact, 0, sizeof(lost_compact));
    memset(journal_write, 0, sizeof(journal_write));
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
    if (mutant == SS_M3_NO_CHECK || lost_compact[ss_node()]) {
        lost_compact[ss_node()] = false;
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
    struct ks_engine *e = KC_CONTAINER_OF(fs, struct ks_engine, fs);
    struct ks_frames *early;
    if (mutant == SS_J3_EARLY && ks_framed_get(e, broker, incarnation, 0, &early, NULL) == 0) {
        ks_frames_unref(early);
    }
    if (mutant == SS_M1_SCAN_BEFORE_FENCE) {
        bool takes_over = ss_inside(SS_S_OPEN) || ss_inside(SS_S_GO) || ss_inside(SS_S_RECOVER);
        if (!takes_over) {
            return -EIO; /* old claim files stay: their fence would hide the flaw */
        }
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
    bool early = (mutant == SS_M8_UNLINK_FIRST && r->type == KS_TRIM) ||
                 (mutant == SS_K1_UNLINK_FIRST && r->type == KS_COMPACT);
    for (uint16_t i = 0; early && i < r->drop.n_old; i++) {
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
    bool compact = r->type == KS_COMPACT;
    if (mutant == SS_K4_DOUBT_IS_LOSS && compact && r->issued && (rc || ss_chance(50))) {
        return KC_E_EXISTS; /* done or not, its reply is lost, and nobody reads the name back */
    }
    lost_compact[ss_node()] = mutant == SS_K3_GO_ON && compact && rc == KC_E_EXISTS;
    bool lost = rc == KC_E_EXISTS &&
                ((mutant == SS_M6_OWN_LENGTH && r->type == KS_SEAL) ||
                 (mutant == SS_M13_GO_ON && r->type == KS_CLAIM) || lost_compact[ss_node()]);
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

int __wrap_ks_frames_read(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation,
                          struct ks_frames **ret, struct kc_err *err)
{
    uint32_t before = ss_enter(SS_S_FRAMES);
    int rc = __real_ks_frames_read(fs, broker, incarnation, ret, err);
    ss_leave(before);
    if (rc == 0 && mutant == SS_J3_NOT_READ) {
        (*ret)->n = 0;
    }
    return rc;
}

int __wrap_ks_framed_get(struct ks_engine *e, int32_t broker, const struct kc_uuid *incarnation,
                         uint64_t since, struct ks_frames **ret, struct kc_err *err)
{
    return __real_ks_framed_get(e, broker, incarnation, mutant == SS_J3_EARLY ? 0 : since, ret,
                                err);
}

/* J1, J4: of the journal, and by the commit thread. */
static int sync_journal(struct ks_fs *fs, int fd)
{
    int rc = mutant == SS_J1_ACK_FIRST ? 0 : __real_ks_fs_datasync(fs, fd);
    return rc && mutant == SS_J4_BELIEVED ? __real_ks_fs_datasync(fs, fd) : rc;
}

int __wrap_ks_fs_datasync(struct ks_fs *fs, int fd)
{
    if (mutant == SS_K2_NOT_SYNCED && ss_sched_active() && ss_inside(SS_S_CLEAN)) {
        return 0;
    }
    if (ss_sched_active() && journal_write[ss_node()] == ss_self()) {
        return sync_journal(fs, fd);
    }
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

/* ---- compaction ---- */

int64_t __wrap_ks_clean_map_get(const struct ks_clean_map *m, const void *key, size_t len)
{
    int64_t offset = __real_ks_clean_map_get(m, key, len);
    return offset + (mutant == SS_K5_LAST_OF_KEY && offset == m->latest);
}

int __wrap_ks_clean_batch(struct ks_clean_filter *f, const uint8_t *p, const struct ks_batch *b,
                          bool keep, struct ks_bytes_buf *out)
{
    size_t before = out->len;
    int rc = __real_ks_clean_batch(f, p, b, keep, out);
    if (out->len > before && out->len - before < b->size) {
        ks_batch_place(out->p + before, b->base + (mutant == SS_K7_MOVED),
                       b->epoch + (mutant == SS_K8_NEW_EPOCH));
    }
    return rc;
}

static void keep_one_of_each_producer(struct ks_clean_job *job)
{
    for (uint32_t i = 0; i < job->filter.n_producers; i++) {
        struct ks_clean_producer *p = &job->producers[i];
        p->last_offsets[0] = p->n ? p->last_offsets[p->n - 1] : 0;
        p->n = KC_MIN(p->n, 1u);
    }
}

void __wrap_ks_clean_work(struct ks_clean_job *job)
{
    const struct ks_log *log = job->log;
    uint32_t before = ss_enter(SS_S_CLEAN);
    if (mutant == SS_K6_ONE_OF_PRODUCER) {
        keep_one_of_each_producer(job);
    }
    if (!job->mapped && !job->rc) {
        ss_check_cleaning(&log->topic, log->partition, 1);
    }
    __real_ks_clean_work(job);
    if (job->finished) {
        ss_check_cleaning(&log->topic, log->partition, -1);
    }
    ss_leave(before);
}

/* ---- group commit ---- */

void __wrap_ks_task_run(struct ks_task *t)
{
    bool failed = t->log->c_failed;
    if (mutant == SS_M2_CHECK_BEFORE_WRITE) {
        checked_early[ss_node()] = __real_ks_engine_check(t->log->e, t->log->inc);
    }
    uint64_t unconfirmed = t->log->e->unconfirmed;
    if (mutant == SS_C4_UNCONFIRMED) {
        t->log->e->unconfirmed = KS_UNCONFIRMED_MAX;
    }
    __real_ks_task_run(t);
    t->log->e->unconfirmed = unconfirmed;
    bool m9 = mutant == SS_M9_NO_RECORD || mutant == SS_M9B_ISSUED || mutant == SS_M9D_BY_SIZE;
    if (m9 && !failed && t->log->c_failed && t->log->c_error == KS_K_STORAGE_ERROR) {
        ss_go_on_in_second_file(t, mutant);
    }
}

bool __wrap_ks_task_far_ahead(const struct ks_log *log)
{
    return mutant != SS_C4_UNCONFIRMED && __real_ks_task_far_ahead(log);
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

/* ---- the journal ---- */

void __wrap_ks_task_seal(struct ks_log *log, struct ks_entry *entry)
{
    if (mutant == SS_J5_OWN_SEAL && !log->c_lies) {
        log->c_synced = KC_MAX(log->c_synced, log->c_acked);
    }
    __real_ks_task_seal(log, entry);
}

int __wrap_ks_journal_write(struct ks_engine *e, struct ks_task *tasks, uint32_t n)
{
    uint32_t before = ss_enter(SS_S_JOURNAL);
    journal_write[ss_node()] = ss_self();
    int rc = __real_ks_journal_write(e, tasks, n);
    journal_write[ss_node()] = NULL;
    ss_leave(before);
    return rc;
}

void __wrap_ks_journal_synced(struct ks_engine *e, struct ks_entry *entry)
{
    entry->rc = mutant == SS_J2_ERROR ? 0 : entry->rc;
    if (mutant == SS_C4_BESIDE && entry->log->c_file == entry->file) {
        entry->pos = entry->log->c_pos;
    }
    __real_ks_journal_synced(e, entry);
}

int __wrap_ks_file_sync_release(struct ks_file *f)
{
    if (mutant == SS_J2_NOT_BEHIND) {
        ks_file_release(f);
        return 0;
    }
    uint32_t before = ss_enter(SS_S_BEHIND);
    int rc = __real_ks_file_sync_release(f);
    ss_leave(before);
    return rc;
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
