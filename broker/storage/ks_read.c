/* Reads: from the cache at once, else on the read pool. Whole batches, verified when they come from
 * a file, never from the limit offset on. */
#include "storage/ks_read.h"

#include <errno.h>

#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "storage/ks_scan.h"

enum { AHEAD = 4 * 1024 * 1024 /* of a file, asked for beyond what a reader that goes on reads */ };

struct ks_read_req *ks_read_new(struct ks_log *log, struct ks_seg *seg, struct ks_mark from)
{
    struct ks_read_req *r = kc_try_zalloc(1, sizeof(*r));
    if (r) {
        r->log = ks_log_ref(log);
        r->file = ks_file_ref(seg->file);
        r->from = from;
        r->seg_end = KC_MIN(seg->end, seg->damaged_from);
        r->seg_len = seg->len;
        r->epoch = seg->epoch;
        r->want_index =
            !seg->indexed && !seg->loading; /* one at a time: others walk from the start */
        seg->loading = seg->loading || r->want_index;
        r->index = *seg;
        r->index.marks = NULL;
        r->index.n_marks = r->index.marks_room = 0;
        r->first_epoch = seg->first_epoch;
        r->compacted = seg->compacted;
        kc_list_add_tail(&log->reads, &r->in_log);
    }
    return r;
}

static void req_free(struct ks_read_req *r)
{
    for (int32_t i = 0; i < r->result.n_slices; i++) {
        kc_buf_unref(r->result.slices[i].buf);
    }
    kc_free(r->index.marks);
    ks_file_unref(r->file);
    ks_log_unref(r->log);
    kc_free(r);
}

static void on_done(struct rt_msg *msg)
{
    struct ks_read_req *r = KC_CONTAINER_OF(msg, struct ks_read_req, msg);
    if (!r->cancelled) {
        kc_list_del(&r->in_log);
        if (r->want_index) {
            ks_index_install(r);
        }
        r->finish(r);
    }
    req_free(r);
}

static void on_pool(struct rt_work *w)
{
    struct ks_read_req *r = KC_CONTAINER_OF(w, struct ks_read_req, work);
    r->run(r);
    r->msg.fn = on_done;
    rt_post(r->log->owner, &r->msg);
}

void ks_read_post(struct ks_read_req *r)
{
    r->work.fn = on_pool;
    rt_pool_post(r->log->e->read, &r->work);
}

void ks_reads_cancel(struct ks_log *log, int16_t error)
{
    while (!kc_list_empty(&log->reads)) {
        struct ks_read_req *r = KC_LIST_ENTRY(log->reads.next, struct ks_read_req, in_log);
        kc_list_del(&r->in_log);
        r->cancelled = true;
        r->fail(r, error);
    }
}

void ks_read_corrupt(const struct ks_read_req *r, int64_t offset)
{
    char path[KS_PATH_MAX];
    ks_path_file(path, &r->file->topic, r->file->partition, r->file->id);
    kc_log(KC_ERROR, "storage", "event=corrupt_batch file=%s offset=%lld", path, (long long)offset);
    atomic_fetch_add(&r->log->e->m_errors, 1);
}

struct finder {
    int64_t offset;
    struct ks_batch batch;
};

static int stop_at(void *arg, const struct ks_batch *b, uint64_t pos)
{
    struct finder *f = arg;
    (void)pos;
    f->batch = *b;
    return ks_batch_last(b) >= f->offset;
}

struct ks_scan ks_read_scan(const struct ks_read_req *r)
{
    return (struct ks_scan){.fd = ks_file_fd(r->file),
                            .epoch = r->epoch,
                            .gaps = r->compacted,
                            .first_epoch = r->first_epoch,
                            .limit = r->seg_len,
                            .end = r->seg_end,
                            .pos = r->from.pos,
                            .next = r->from.offset};
}

bool ks_read_replaced(const struct ks_read_req *r)
{
    const struct ks_state *st = &r->log->st;
    for (uint32_t i = 0; i < st->n_segs; i++) {
        if (st->segs[i].file == r->file) {
            return false;
        }
    }
    return r->log->state != KS_STOPPED && !r->log->closed;
}

int ks_read_find(struct ks_read_req *r, int64_t offset, struct ks_batch *ret, uint64_t *ret_pos)
{
    struct finder f = {.offset = offset};
    struct ks_scan s = ks_read_scan(r);
    int rc = ks_scan(&r->log->e->fs, &s, stop_at, &f);
    if (rc == 1) {
        *ret = f.batch;
        *ret_pos = s.pos;
        return 0;
    }
    return rc < 0 ? rc : KC_E_CORRUPT;
}

/* Length of the verified whole batches at p that the request may have. */
static size_t usable(const struct ks_read_req *r, const uint8_t *p, size_t len, int64_t first,
                     int64_t *ret_next)
{
    struct ks_scan s = ks_read_scan(r);
    struct ks_batch b;
    s.pos = 0;
    s.limit = len;
    s.next = first;
    while (len - s.pos >= KS_BATCH_HEADER && ks_batch_parse(p + s.pos, &b) &&
           b.size <= len - s.pos) {
        if (!ks_scan_fits(&s, &b) || !ks_batch_crc_ok(p + s.pos, &b)) {
            ks_read_corrupt(r, s.next);
            break;
        }
        if (ks_batch_last(&b) >= r->args.limit_offset) {
            break;
        }
        s.pos += b.size;
        s.next = ks_batch_last(&b) + 1;
    }
    *ret_next = s.next;
    return (size_t)s.pos;
}

/* A reader that goes through cold data finds the next window on its way, so that it waits for the volume's
 * speed and not for one round trip a read. Half windows at once, and no farther than the file. */
static void read_ahead(struct ks_read_req *r, uint64_t pos, size_t want)
{
    uint64_t from = KC_MAX(pos, r->ahead), to = KC_MIN(pos + want + AHEAD, r->seg_len);
    if (r->sequential && from < to && (to - from >= AHEAD / 2 || to == r->seg_len)) {
        ks_fs_ahead(&r->log->e->fs, ks_file_fd(r->file), from, to - from);
        r->ahead = to;
    }
}

static int16_t read_file(struct ks_read_req *r)
{
    struct ks_batch first;
    uint64_t pos;
    int rc = ks_read_find(r, r->args.offset, &first, &pos);
    if (rc) {
        return KS_K_STORAGE_ERROR;
    }
    size_t max = (size_t)KC_MIN(KC_MAX(r->args.max_bytes, 0), (int32_t)KS_READ_MAX);
    if (first.size > max && !r->args.at_least_one) {
        return 0;
    }
    size_t want = (size_t)KC_MIN((uint64_t)KC_MAX(max, first.size), r->seg_len - pos);
    struct kc_buf *buf = kc_buf_new(want);
    if (!buf) {
        return KS_K_STORAGE_ERROR;
    }
    read_ahead(r, pos, want);
    ssize_t n = ks_fs_pread(&r->log->e->fs, ks_file_fd(r->file), buf->data, want, pos);
    int64_t next = first.base;
    size_t len = n > 0 ? usable(r, buf->data, (size_t)n, first.base, &next) : 0;
    if (len == 0) {
        kc_buf_unref(buf);
        return n < 0 || ks_batch_last(&first) < r->args.limit_offset ? KS_K_STORAGE_ERROR : 0;
    }
    r->result.slices[0] = (struct kc_slice){.buf = buf, .ptr = buf->data, .len = len};
    r->result.n_slices = 1;
    r->result.next_offset = next;
    r->next_pos = pos + len;
    r->verified = len;
    atomic_fetch_add_explicit(&r->log->e->m_read, len, memory_order_relaxed);
    return 0;
}

int ks_read_pin(struct ks_read_req *r)
{
    int fd = ks_file_acquire(r->file);
    r->missing = fd == -ENOENT || fd == -ESTALE;
    if (fd >= 0 && r->want_index && ks_index_load(r) == 0) {
        r->seg_end = KC_MIN(r->seg_end, r->index.damaged_from);
    }
    return fd;
}

static void run_read(struct ks_read_req *r)
{
    r->result.next_offset = r->args.offset;
    if (ks_read_pin(r) < 0) {
        r->result.error = KS_K_STORAGE_ERROR;
        return;
    }
    r->result.error = read_file(r);
    ks_file_release(r->file);
}

/* Another file may hold the offset now (compaction). */
static bool read_again(struct ks_read_req *r);

static void note_sound(const struct ks_read_req *r)
{
    struct ks_seg *seg = ks_state_seg(&r->log->st, r->index.base);
    if (seg && seg->file == r->file) { /* else it was trimmed or replaced meanwhile */
        ks_sound_add(&seg->sound, r->next_pos - r->verified, r->next_pos);
    }
}

static void finish_read(struct ks_read_req *r)
{
    struct ks_log *log = r->log;
    if (!r->result.error && r->next_pos) {
        struct ks_cursor *c = ks_cursor_note(log, r->file->id, r->result.next_offset, r->next_pos);
        if (c) {
            c->ahead = KC_MAX(c->ahead, r->ahead);
        }
        note_sound(r);
    }
    if (r->result.error && r->args.offset < log->st.start) {
        r->result.error = KS_K_OFFSET_OUT_OF_RANGE; /* trimmed away meanwhile */
    } else if (r->missing && !r->again && read_again(r)) {
        return;
    }
    struct ks_read_result result = r->result;
    r->result.n_slices = 0; /* the references are the receiver's */
    r->done(r->ctx, &result);
}

static void fail_read(struct ks_read_req *r, int16_t error)
{
    struct ks_read_result result = {.error = error, .next_offset = r->args.offset};
    r->done(r->ctx, &result);
}

static bool start(struct ks_log *log, struct ks_seg *seg, const struct ks_read_args *args,
                  ks_read_done done, void *ctx)
{
    struct ks_read_req *r = ks_read_new(log, seg, ks_read_nearest(log, seg, args->offset));
    if (!r) {
        return false;
    }
    atomic_fetch_add_explicit(&log->e->m_misses, 1, memory_order_relaxed);
    const struct ks_cursor *c = ks_cursor_at(log, seg->file->id, args->offset);
    r->sequential = c != NULL;
    r->ahead = c ? c->ahead : 0;
    r->args = *args;
    r->done = done;
    r->ctx = ctx;
    r->run = run_read;
    r->finish = finish_read;
    r->fail = fail_read;
    ks_read_post(r);
    return true;
}

static bool read_again(struct ks_read_req *r)
{
    struct ks_log *log = r->log;
    struct ks_seg *seg = ks_state_seg(&log->st, r->args.offset);
    if (!seg || log->state == KS_STOPPED || ks_file_eq(seg->file->id, r->file->id) ||
        r->args.offset >= seg->damaged_from || !start(log, seg, &r->args, r->done, r->ctx)) {
        return false;
    }
    KC_LIST_ENTRY(log->reads.prev, struct ks_read_req, in_log)->again = true;
    return true;
}

/* From memory or from a file in the page cache, at once. Bytes that were written lately are in the
 * processor's cache, too: copying them costs less than handing over pages, at any size (ADR 21). */
static bool read_now(struct ks_log *log, const struct ks_seg *seg, const struct ks_read_args *args,
                     struct ks_read_result *ret)
{
    if (ks_cache_read(log, args, ret)) {
        atomic_fetch_add_explicit(&log->e->m_hits, 1, memory_order_relaxed);
        return true;
    }
    return seg && args->ranges && ks_direct_read(log, seg, args, ret);
}

bool ks_log_read(struct ks_log *log, const struct ks_read_args *args, ks_read_done done, void *ctx)
{
    struct ks_read_result now = {.next_offset = args->offset};
    struct ks_read_args a = *args;
    a.limit_offset = KC_MIN(a.limit_offset, log->st.end);
    struct ks_seg *seg = NULL;
    if (log->state == KS_STOPPED || log->closed) {
        now.error = KS_K_NOT_LEADER;
    } else if (a.offset < log->st.start || a.offset > KC_MAX(log->end, log->st.end)) {
        now.error = KS_K_OFFSET_OUT_OF_RANGE;
    } else if (a.offset < a.limit_offset) { /* else: nothing yet */
        seg = ks_state_seg(&log->st, a.offset);
        if (read_now(log, seg, &a, &now)) {
            seg = NULL;
        } else if (!seg || a.offset >= seg->damaged_from) {
            now.error = KS_K_STORAGE_ERROR;
            seg = NULL;
        }
    }
    bool posted = seg && start(log, seg, &a, done, ctx);
    if (!posted) {
        now.error = seg ? KS_K_STORAGE_ERROR : now.error;
        done(ctx, &now);
    }
    return !posted;
}
