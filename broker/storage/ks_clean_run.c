/* The cleaner's thread: a survey of transactions, the map of keys, then group by group the copy of
 * what stays. Everything read is checked first; what does not verify ends the cleaning of the
 * partition, and nothing of it is replaced. */
#include <errno.h>

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "storage/ks_clean.h"
#include "storage/ks_scan.h"

enum { WINDOW = 256 * 1024, FLUSH = 1024 * 1024 };

static bool cancelled(const struct ks_clean_job *job)
{
    return atomic_load(&job->cancelled) || atomic_load(&job->log->e->cleaner.stop) ||
           atomic_load(&job->log->inc->fenced);
}

/* Stays within the bytes a second: waits where the work is ahead of them. */
static void pace(struct ks_clean_job *job, uint64_t bytes)
{
    struct ks_cleaner *c = &job->log->e->cleaner;
    int64_t rate = job->cfg.io_bytes_per_s;
    job->moved_bytes += bytes;
    if (rate <= 0) {
        return;
    }
    int64_t due = job->paced_from_ms + (int64_t)((double)job->moved_bytes * 1000 / (double)rate);
    pthread_mutex_lock(&c->lock);
    while (!cancelled(job) && kc_mono_ms() < due) {
        struct timespec until = {.tv_sec = due / 1000, .tv_nsec = due % 1000 * 1000000L};
        pthread_cond_timedwait(&c->more, &c->lock, &until);
    }
    pthread_mutex_unlock(&c->lock);
}

/* ---- reading ---- */

typedef int (*batch_fn)(struct ks_clean_job *job, const uint8_t *p, const struct ks_batch *b,
                        bool last);

/* Bytes of the file from pos on, at least want of them, in job->in. */
static int fill(struct ks_clean_job *job, const struct ks_clean_seg *seg, uint64_t pos, size_t want)
{
    size_t room = (size_t)KC_MIN((uint64_t)KC_MAX(want, (size_t)WINDOW), seg->len - pos);
    job->in.len = 0;
    if (room < want) {
        return KC_E_CORRUPT;
    }
    int rc = ks_bytes_reserve(&job->in, room, KS_BATCH_MAX + KS_BATCH_HEADER);
    if (rc) {
        return rc;
    }
    ssize_t n = ks_fs_pread(&job->log->e->fs, ks_file_fd(seg->file), job->in.p, room, pos);
    if (n < 0) {
        return (int)n;
    }
    job->in.len = (size_t)n;
    atomic_fetch_add_explicit(&job->log->e->m_clean_read, (uint64_t)n, memory_order_relaxed);
    pace(job, (uint64_t)n);
    return (size_t)n < want ? KC_E_CORRUPT : 0;
}

/* Calls fn with every batch of a pinned file, verified. fn: 0 = go on, else stop with it. */
static int walk_pinned(struct ks_clean_job *job, const struct ks_clean_seg *seg, batch_fn fn)
{
    struct ks_scan s = {.epoch = seg->epoch,
                        .gaps = seg->compacted,
                        .first_epoch = seg->first_epoch,
                        .limit = seg->len,
                        .next = seg->base};
    size_t at = 0; /* of the next batch in job->in */
    int rc = 0;
    job->in.len = 0;
    while (!rc && s.pos < seg->len) {
        struct ks_batch b;
        if (cancelled(job)) {
            return KC_E_CANCELLED;
        }
        if (job->in.len - at < KS_BATCH_HEADER) {
            rc = fill(job, seg, s.pos, KS_BATCH_HEADER);
            at = 0;
        }
        if (!rc && (!ks_batch_parse(job->in.p + at, &b) || !ks_scan_fits(&s, &b))) {
            rc = KC_E_CORRUPT;
        }
        if (!rc && job->in.len - at < b.size) {
            rc = fill(job, seg, s.pos, b.size);
            at = 0;
        }
        if (!rc && !ks_batch_crc_ok(job->in.p + at, &b)) {
            rc = KC_E_CORRUPT;
        }
        if (rc) {
            break;
        }
        s.pos += b.size;
        s.next = ks_batch_last(&b) + 1;
        s.first_epoch = b.epoch;
        rc = fn(job, job->in.p + at, &b, s.pos == seg->len);
        at += b.size;
    }
    return rc ? rc : s.next == seg->end ? 0 : KC_E_CORRUPT;
}

static int walk(struct ks_clean_job *job, uint32_t i, batch_fn fn)
{
    const struct ks_clean_seg *seg = &job->segs[i];
    int rc = ks_file_acquire(seg->file);
    if (rc < 0) {
        return rc;
    }
    rc = walk_pinned(job, seg, fn);
    ks_file_release(seg->file);
    if (rc == KC_E_CORRUPT || rc == KC_E_TOO_LARGE) {
        char path[KS_PATH_MAX];
        ks_path_file(path, &seg->file->topic, seg->file->partition, seg->file->id);
        kc_log(KC_ERROR, "storage", "event=uncleanable file=%s error=%d text=\"%s\"", path, rc,
               kc_strerror(rc));
    }
    return rc;
}

/* ---- survey: aborted transactions, how many keys there may be ---- */

struct survey {
    struct ks_clean_job *job;
    int fd;
    uint64_t records; /* in the dirty part */
};

static int survey_batch(void *arg, const struct ks_batch *b, uint64_t pos)
{
    struct survey *sv = arg;
    struct ks_clean_job *job = sv->job;
    enum ks_marker marker = KS_MARK_NONE;
    if (cancelled(job)) {
        return KC_E_CANCELLED;
    }
    if ((b->attrs & KS_ATTR_CONTROL) && b->size <= WINDOW) {
        job->in.len = 0;
        int rc = ks_bytes_reserve(&job->in, b->size, WINDOW);
        ssize_t n = rc ? rc : ks_fs_pread(&job->log->e->fs, sv->fd, job->in.p, b->size, pos);
        if (n < (ssize_t)b->size) {
            return n < 0 ? (int)n : KC_E_CORRUPT;
        }
        marker = ks_batch_marker(job->in.p, b);
    }
    sv->records += ks_batch_last(b) >= job->dirty_from ? (uint64_t)KC_MAX(b->count, 0) : 0;
    return ks_clean_survey_note(&job->survey, b, marker);
}

/* Goes on behind what is cleaned only to learn how transactions ended that began there: the last
 * stable offset tells that they did. */
static int survey(struct ks_clean_job *job, uint64_t *ret_records)
{
    struct survey sv = {.job = job};
    int rc = 0;
    for (uint32_t i = 0; !rc && i < job->n_segs; i++) {
        const struct ks_clean_seg *seg = &job->segs[i];
        if (i >= job->n && ks_clean_survey_open(&job->survey) == 0) {
            break;
        }
        sv.fd = ks_file_acquire(seg->file);
        if (sv.fd < 0) {
            return sv.fd;
        }
        struct ks_scan s = {.fd = sv.fd,
                            .epoch = seg->epoch,
                            .gaps = seg->compacted,
                            .first_epoch = seg->first_epoch,
                            .limit = seg->len,
                            .end = seg->end,
                            .next = seg->base};
        rc = ks_scan(&job->log->e->fs, &s, survey_batch, &sv);
        ks_file_release(seg->file);
        *ret_records = i < job->n ? sv.records : *ret_records;
    }
    ks_clean_survey_end(&job->survey);
    return rc;
}

/* ---- the map ---- */

static int map_batch(struct ks_clean_job *job, const uint8_t *p, const struct ks_batch *b,
                     bool last)
{
    (void)last;
    enum ks_marker marker = ks_batch_marker(p, b);
    bool is_void = ks_clean_txns_read(&job->filter.txns, b, marker);
    if (is_void || (b->attrs & KS_ATTR_CONTROL)) {
        job->map.latest = KC_MAX(job->map.latest, ks_batch_last(b));
        return 0;
    }
    return ks_clean_map_batch(&job->map, p, b, job->dirty_from, &job->filter.plain);
}

/* Keys of the dirty part, as far as the memory reaches. */
static int make_map(struct ks_clean_job *job)
{
    uint64_t records = 0;
    int rc = survey(job, &records);
    rc = rc ? rc : ks_clean_map_init(&job->map, records, (size_t)job->cfg.dedupe_bytes);
    if (rc) {
        return rc;
    }
    ks_clean_txns_init(&job->filter.txns, &job->survey);
    for (uint32_t i = 0; rc == 0 && i < job->n; i++) {
        if (job->segs[i].end > job->dirty_from) {
            rc = walk(job, i, map_batch);
        }
    }
    ks_clean_txns_fini(&job->filter.txns);
    if (rc == 1) {
        rc = job->map.latest >= job->dirty_from ? 0 : KC_E_TOO_LARGE; /* full: the rest next time */
    }
    ks_clean_txns_init(&job->filter.txns, &job->survey);
    job->filter.map = &job->map;
    return rc;
}

/* ---- a group ---- */

static int flush(struct ks_clean_job *job)
{
    struct ks_seg *seg = &job->fresh.segs[0];
    struct iovec iov = {.iov_base = job->out.p, .iov_len = job->out.len};
    int rc = job->out.len
                 ? ks_fs_pwritev(&job->log->e->fs, ks_file_fd(seg->file), &iov, 1, job->swap.len)
                 : 0;
    if (!rc) {
        job->swap.len += job->out.len;
        atomic_fetch_add_explicit(&job->log->e->m_clean_written, job->out.len,
                                  memory_order_relaxed);
        pace(job, job->out.len);
        job->out.len = 0;
    }
    return rc;
}

static int clean_batch(struct ks_clean_job *job, const uint8_t *p, const struct ks_batch *b,
                       bool last)
{
    size_t at = job->out.len;
    /* Every replacement ends where the files did that it replaces: its last batch stays. */
    bool keep = last && ks_batch_last(b) + 1 == job->swap.end;
    int rc = ks_clean_batch(&job->filter, p, b, keep, &job->out);
    struct ks_batch kept;
    if (rc || job->out.len == at) {
        return rc;
    }
    if (!ks_batch_parse(job->out.p + at, &kept)) {
        return KC_E_CORRUPT;
    }
    ks_state_note(&job->fresh, &kept, job->swap.len + at);
    job->swap.crc = kept.crc;
    return job->out.len >= FLUSH ? flush(job) : 0;
}

/* Chooses the neighbours that become one file of at most segment.bytes. */
static void choose_group(struct ks_clean_job *job)
{
    uint64_t bytes = 0;
    struct ks_swap *sw = &job->swap;
    uint32_t i = job->next;
    *sw = (struct ks_swap){.start = job->segs[i].base, .clean = job->clean};
    job->first = i;
    while (i < job->n && job->segs[i].base <= job->map.latest && sw->n_old < KS_REC_FILES_MAX &&
           (sw->n_old == 0 || bytes + job->segs[i].len <= job->group_bytes)) {
        bytes += job->segs[i].len;
        sw->end = job->segs[i].end;
        sw->old[sw->n_old++] = job->segs[i].file->id;
        i++;
    }
    job->n_group = i - job->first;
    job->next = i;
    if (i >= job->n || job->segs[i].base > job->map.latest) {
        sw->clean = job->map.latest + 1; /* the last group */
    }
}

static int make_file(struct ks_clean_job *job)
{
    const struct ks_clean_seg *first = &job->segs[job->first];
    const struct ks_clean_seg *last = &job->segs[job->first + job->n_group - 1];
    struct ks_file *file = NULL;
    ks_state_fini(&job->fresh); /* the owner took the last one's segment, not the room for it */
    int rc = ks_data_file_new(job->log, &file);
    if (rc) {
        return rc;
    }
    rc = ks_state_add_seg(&job->fresh, file, first->base, last->epoch);
    if (rc) { /* no memory: the file, which nothing names, goes at once */
        char path[KS_PATH_MAX];
        ks_path_file(path, &file->topic, file->partition, file->id);
        ks_fs_unlink(&job->log->e->fs, path);
        ks_file_release(file);
        ks_file_unref(file);
        return rc;
    }
    job->fresh.segs[0].first_epoch = first->first_epoch;
    job->fresh.segs[0].compacted = true;
    job->swap.file = file->id;
    return 0;
}

/* True: job->fresh is whole and durable, and differs from what it replaces. */
static bool clean_group(struct ks_clean_job *job)
{
    struct ks_clean_stats before = job->filter.stats;
    choose_group(job);
    int rc = make_file(job);
    if (rc) {
        job->rc = rc;
        return false;
    }
    job->out.len = 0;
    for (uint32_t i = job->first; !rc && i < job->first + job->n_group; i++) {
        rc = walk(job, i, clean_batch);
    }
    rc = rc ? rc : flush(job);
    const struct ks_clean_stats *st = &job->filter.stats;
    bool same = job->n_group == 1 &&
                st->batches_read - before.batches_read == st->batches_whole - before.batches_whole;
    if (!rc && !same) {
        char dir[KS_PATH_MAX];
        ks_path_part(dir, &job->log->topic, job->log->partition, NULL);
        rc = ks_fs_datasync(&job->log->e->fs, ks_file_fd(job->fresh.segs[0].file));
        rc = rc ? rc : ks_fs_syncdir(&job->log->e->fs, dir);
    }
    ks_file_release(job->fresh.segs[0].file); /* written: readers open it themselves */
    if (rc || same) {
        ks_clean_discard(job);
        job->rc = rc;
        return false;
    }
    return true;
}

static void unlink_file(struct ks_clean_job *job, struct ks_file_id id)
{
    char path[KS_PATH_MAX];
    ks_path_file(path, &job->log->topic, job->log->partition, id);
    ks_fs_unlink(&job->log->e->fs, path); /* what stays behind only costs room */
}

void ks_clean_discard(struct ks_clean_job *job)
{
    if (job->fresh.n_segs) {
        unlink_file(job, job->swap.file);
        ks_state_fini(&job->fresh);
    }
}

void ks_clean_work(struct ks_clean_job *job)
{
    ks_clean_discard(job); /* what the owner did not want */
    if (job->swapped) {
        for (uint16_t i = 0; i < job->swap.n_old; i++) {
            unlink_file(job, job->swap.old[i]);
            ks_idx_remove(&job->log->e->fs, &job->log->topic, job->log->partition,
                          job->swap.old[i]);
        }
        job->swapped = false;
    }
    if (!job->rc && cancelled(job)) {
        job->rc = KC_E_CANCELLED;
    }
    if (!job->rc && !job->mapped) {
        job->rc = make_map(job);
        job->mapped = true;
    }
    while (!job->rc && job->next < job->n && job->segs[job->next].base <= job->map.latest) {
        if (clean_group(job)) {
            return;
        }
        job->clean = job->rc ? job->clean : KC_MAX(job->clean, job->swap.clean);
    }
    job->finished = true;
}

void ks_clean_free(struct ks_clean_job *job)
{
    for (uint32_t i = 0; i < job->n_segs; i++) {
        ks_file_unref(job->segs[i].file);
    }
    kc_free(job->segs);
    kc_free(job->producers);
    ks_clean_survey_fini(&job->survey);
    ks_clean_map_fini(&job->map);
    ks_clean_filter_fini(&job->filter);
    ks_bytes_free(&job->in);
    ks_bytes_free(&job->out);
    ks_state_fini(&job->fresh);
    ks_log_unref(job->log);
    kc_free(job);
}
