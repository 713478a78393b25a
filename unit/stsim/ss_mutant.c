/* What the engine would do without one of its rules, where that takes more than leaving out a call. */
#include "ss_mutant.h"

#include <stdio.h>
#include <string.h>

#include "base/kc_mem.h"
#include "ss_sched.h"
#include "storage/ks_int.h"

/* ---- M1, C3: what a thread has put off until its SEAL ---- */

enum { THREADS = 512 };

static struct put_off {
    const struct ss_thread *thread; /* NULL = free */
    struct ks_fs *fs;
    bool fence;
    int32_t broker;
    struct kc_uuid incarnation;
    int fd; /* to be closed; -1 = none */
} put_off[THREADS];

static struct put_off *slot_of(bool make)
{
    struct put_off *empty = NULL;
    for (int i = 0; i < THREADS; i++) {
        if (put_off[i].thread == ss_self()) {
            return &put_off[i];
        }
        empty = !empty && !put_off[i].thread ? &put_off[i] : empty;
    }
    if (make && empty) {
        *empty = (struct put_off){.thread = ss_self(), .fd = -1};
    }
    return make ? empty : NULL;
}

void ss_mutant_reset(void)
{
    memset(put_off, 0, sizeof(put_off));
}

void ss_put_off_forget(void)
{
    struct put_off *p = slot_of(false);
    if (p) {
        p->thread = NULL;
    }
}

void ss_put_off_fence(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation)
{
    struct put_off *p = slot_of(true);
    p->fs = fs;
    p->fence = true;
    p->broker = broker;
    p->incarnation = *incarnation;
}

void ss_put_off_close(struct ks_fs *fs, int fd)
{
    struct put_off *p = slot_of(true);
    p->fs = fs;
    p->fd = fd;
}

bool ss_put_off_is(int fd)
{
    const struct put_off *p = slot_of(false);
    return p && p->fd == fd;
}

bool ss_take_fence(struct ks_fs **ret_fs, int32_t *ret_broker, struct kc_uuid *ret_incarnation)
{
    struct put_off *p = slot_of(false);
    if (!p || !p->fence) {
        return false;
    }
    *ret_fs = p->fs;
    *ret_broker = p->broker;
    *ret_incarnation = p->incarnation;
    p->thread = NULL;
    return true;
}

int ss_take_close(void)
{
    struct put_off *p = slot_of(false);
    int fd = p ? p->fd : -1;
    if (p) {
        p->thread = NULL;
    }
    return fd;
}

/* ---- M5 ---- */

int ss_overwrite_record(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition,
                        const struct ks_rec *r)
{
    char name[32], path[KS_PATH_MAX], tmp[KS_PATH_MAX];
    uint8_t *buf = kc_alloc(KS_REC_MAX);
    struct iovec iov = {.iov_base = buf, .iov_len = ks_rec_encode(r, buf)};
    snprintf(name, sizeof(name), "ctl.%llu", (unsigned long long)r->k);
    ks_path_part(path, topic, partition, name);
    snprintf(name, sizeof(name), "tmp.m5-%llu", (unsigned long long)ss_below(UINT32_MAX));
    ks_path_part(tmp, topic, partition, name);
    int fd = ks_fs_open(fs, tmp, KS_CREATE);
    int rc = fd < 0 ? fd : ks_fs_pwritev(fs, fd, &iov, 1, 0);
    rc = rc ? rc : ks_fs_datasync(fs, fd);
    if (fd >= 0) {
        ks_fs_close(fs, fd);
    }
    kc_free(buf);
    return rc ? rc : ks_fs_rename(fs, tmp, path);
}

/* ---- M9 ---- */

/* The appends of a turn once more, whole, into a fresh file. */
static int write_again(struct ks_task *t, struct ks_file *f)
{
    struct ks_fs *fs = &t->log->e->fs;
    uint64_t pos = 0;
    int rc = 0;
    for (struct ks_entry *e = t->taken; e && !rc; e = e->next) {
        struct iovec iov = {.iov_base = (void *)(uintptr_t)e->data.ptr, .iov_len = e->data.len};
        rc = e->data.len ? ks_fs_pwritev(fs, ks_file_fd(f), &iov, 1, pos) : 0;
        ks_file_unref(e->file);
        e->file = ks_file_ref(f);
        e->pos = pos;
        pos += e->data.len;
    }
    return rc ? rc : ks_fs_datasync(fs, ks_file_fd(f));
}

static int link_roll(struct ks_task *t, struct ks_file *f, enum ss_mutant m)
{
    struct ks_log *log = t->log;
    bool issued = m == SS_M9B_ISSUED;
    struct ks_rec r = {.type = KS_ROLL,
                       .k = log->c_next_k,
                       .epoch = log->c_epoch,
                       .roll = {.file = f->id,
                                .base = issued ? log->c_new_end : log->c_end,
                                .prev_len = issued ? log->c_pos : log->c_acked,
                                .prev_crc = issued ? log->c_new_crc : log->c_crc}};
    int rc = ks_chain_append(&log->e->fs, &log->topic, log->partition, &r, NULL, NULL);
    log->c_next_k += rc == 0;
    return rc;
}

void ss_go_on_in_second_file(struct ks_task *t, enum ss_mutant m)
{
    struct ks_log *log = t->log;
    struct ks_file *f = NULL;
    bool issued = m == SS_M9B_ISSUED;
    size_t len = 0;
    for (const struct ks_entry *e = t->taken; e; e = e->next) {
        if (e->kind != KS_E_APPEND) {
            return;
        }
        len += e->data.len;
        log->c_new_end = KC_MAX(log->c_new_end, e->end);
    }
    if (!len || log->c_acked == 0 || ks_data_file_new(log, &f)) {
        return;
    }
    int rc = m == SS_M9_NO_RECORD ? 0 : link_roll(t, f, m);
    rc = rc || issued ? rc : write_again(t, f);
    if (rc) {
        ks_file_unref(f);
        return;
    }
    enum { SOME_ERROR = 7 };
    for (struct ks_entry *e = t->taken; e; e = e->next) {
        e->error = issued ? SOME_ERROR : 0;
    }
    ks_file_release(log->c_file);
    ks_file_unref(log->c_file);
    log->c_file = f;
    log->c_pos = log->c_synced = log->c_durable = issued ? 0 : len;
    log->c_end = issued ? log->c_new_end : log->c_end;
    log->c_acked = 0;
    log->c_unsynced = 0;
    log->c_failed = false;
    t->issued = !issued;
}
