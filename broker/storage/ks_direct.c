/* Reads that need no bytes: the answer names a range of a file that is in the page cache, and the kernel
 * sends it from there (ADR 21).
 *
 * Owner loop; nothing here waits. Where batches begin is known from the index and from where readers
 * left off, and for the rest from the headers of some batches, which are in the page cache or end the
 * attempt. Only bytes that were seen to be right (ks_sound.h) go this way, whole batches, never from the
 * limit offset on. Whatever does not fit these is read on the pool: that verifies it and brings it into
 * the page cache, for the next one to go this way. */
#include <errno.h>

#include "base/kc_mem.h"
#include "base/kc_range.h"
#include "storage/ks_read.h"

enum {
    LOOKS = 64, /* at headers, a read */
    WINDOW = 2048, /* of headers of small batches, at once */
    SMALL = 1024 /* batches below this are looked at in windows */
};

/* ---- a range ---- */

struct range {
    struct kc_range base;
    struct ks_engine *e; /* referenced */
    struct ks_file *file; /* referenced, lent */
};

static struct range *range_of(struct kc_range *r)
{
    return KC_CONTAINER_OF(r, struct range, base);
}

static size_t range_ready(struct kc_range *base, size_t at, size_t len)
{
    return ks_fs_cached(&range_of(base)->e->fs, base->fd, base->pos + at, len) ? len : 0;
}

/* ---- one that went out of the page cache before it was sent ---- */

struct load {
    struct rt_work work;
    struct rt_msg msg;
    struct range *range;
    size_t at, len;
    struct kc_load *asked;
};

static void on_loaded(struct rt_msg *msg)
{
    struct load *l = KC_CONTAINER_OF(msg, struct load, msg);
    struct kc_load *asked = l->asked;
    kc_free(l);
    asked->done(asked);
}

static void run_load(struct rt_work *w)
{
    struct load *l = KC_CONTAINER_OF(w, struct load, work);
    struct kc_range *r = &l->range->base;
    struct kc_buf *b = kc_buf_new(l->len);
    if (b &&
        ks_fs_pread(&l->range->e->fs, r->fd, b->data, l->len, r->pos + l->at) != (ssize_t)l->len) {
        kc_buf_unref(b);
        b = NULL;
    }
    l->asked->buf = b;
    l->msg.fn = on_loaded;
    rt_post(l->asked->loop, &l->msg);
}

static void range_load(struct kc_range *base, size_t at, size_t len, struct kc_load *asked)
{
    struct load *l = kc_alloc(sizeof(*l));
    *l = (struct load){
        .work.fn = run_load, .range = range_of(base), .at = at, .len = len, .asked = asked};
    atomic_fetch_add_explicit(&l->range->e->m_misses, 1, memory_order_relaxed);
    ks_engine_defer(l->range->e, &l->work);
}

static void range_end(struct kc_range *base)
{
    struct range *r = range_of(base);
    ks_file_take_back(r->file);
    ks_file_unref(r->file);
    ks_engine_unref(r->e);
}

/* Takes the lent file, also when it fails. */
static struct kc_buf *range_new(struct ks_log *log, struct ks_file *file, uint64_t pos, size_t len)
{
    static const struct kc_range_ops ops = {
        .ready = range_ready, .load = range_load, .end = range_end};
    struct kc_buf *b = kc_range_new(sizeof(struct range));
    if (!b) {
        ks_file_take_back(file);
        return NULL;
    }
    struct range *r = range_of(b->range);
    r->e = log->e;
    atomic_fetch_add(&log->e->refs, 1);
    r->file = ks_file_ref(file);
    r->base = (struct kc_range){.ops = &ops, .fd = ks_file_fd(file), .pos = pos, .len = len};
    return b;
}

/* ---- where batches begin ---- */

struct ks_cursor *ks_cursor_note(struct ks_log *log, struct ks_file_id file, int64_t offset,
                                 uint64_t pos)
{
    if (!log->cursors) {
        log->cursors = kc_try_zalloc(KS_CURSORS, sizeof(*log->cursors));
    }
    for (uint32_t i = 0; log->cursors && i < KS_CURSORS; i++) {
        struct ks_cursor *c = &log->cursors[i];
        if (c->pos == pos && ks_file_eq(c->file, file)) {
            return c; /* readers go one after another */
        }
    }
    if (!log->cursors) {
        return NULL;
    }
    struct ks_cursor *c = &log->cursors[log->next_cursor++ % KS_CURSORS];
    *c = (struct ks_cursor){.offset = offset, .file = file, .pos = pos};
    return c;
}

const struct ks_cursor *ks_cursor_at(const struct ks_log *log, struct ks_file_id file,
                                     int64_t offset)
{
    for (uint32_t i = 0; log->cursors && i < KS_CURSORS; i++) {
        const struct ks_cursor *c = &log->cursors[i];
        if (c->pos && c->offset == offset && ks_file_eq(c->file, file)) {
            return c;
        }
    }
    return NULL;
}

struct ks_mark ks_read_nearest(const struct ks_log *log, const struct ks_seg *seg, int64_t offset)
{
    struct ks_mark m = ks_seg_find(seg, offset);
    for (uint32_t i = 0; log->cursors && i < KS_CURSORS; i++) {
        const struct ks_cursor *c = &log->cursors[i];
        if (c->pos && c->offset <= offset && c->offset > m.offset && c->pos < seg->len &&
            ks_file_eq(c->file, seg->file->id)) {
            m.offset = c->offset;
            m.pos = c->pos;
        }
    }
    return m;
}

struct place {
    int64_t offset;
    uint64_t pos;
};

/* The last place known to begin a batch, behind `from`, with nothing from `limit` on and no more than
 * `most` bytes of the file before it; `from` if none is known. */
static struct place farthest(const struct ks_log *log, const struct ks_seg *seg, struct place from,
                             int64_t limit, uint64_t most)
{
    uint32_t lo = 0, hi = seg->n_marks; /* the first mark that is beyond */
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (seg->marks[mid].pos > most || seg->marks[mid].offset > limit) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    struct place best = from;
    if (lo && seg->marks[lo - 1].pos > from.pos) {
        best = (struct place){seg->marks[lo - 1].offset, seg->marks[lo - 1].pos};
    }
    for (uint32_t i = 0; log->cursors && i < KS_CURSORS; i++) {
        const struct ks_cursor *c = &log->cursors[i];
        if (c->pos > best.pos && c->pos <= most && c->offset <= limit &&
            ks_file_eq(c->file, seg->file->id)) {
            best = (struct place){c->offset, c->pos};
        }
    }
    return best;
}

/* ---- headers ---- */

struct walk {
    struct ks_fs *fs;
    struct ks_scan scan; /* what a batch at scan.pos may be */
    int looks; /* left */
    size_t want; /* bytes of a look */
    uint64_t pos; /* of window */
    size_t len;
    uint8_t window[WINDOW];
};

/* The batch at scan.pos, or false: it cannot be told without waiting, or too much was looked at. */
static bool header(struct walk *w, struct ks_batch *ret)
{
    uint64_t at = w->scan.pos;
    if (at < w->pos || at + KS_BATCH_HEADER > w->pos + w->len) {
        if (w->looks-- <= 0 || at + KS_BATCH_HEADER > w->scan.limit) {
            return false;
        }
        ssize_t n = ks_fs_peek(w->fs, w->scan.fd, w->window,
                               (size_t)KC_MIN((uint64_t)w->want, w->scan.limit - at), at);
        w->pos = at;
        w->len = n > 0 ? (size_t)n : 0;
        if (w->len < KS_BATCH_HEADER) {
            return false;
        }
    }
    if (!ks_batch_parse(w->window + (at - w->pos), ret) || !ks_scan_fits(&w->scan, ret)) {
        return false;
    }
    w->want = ret->size < SMALL ? WINDOW : KS_BATCH_HEADER;
    return true;
}

static void step(struct walk *w, const struct ks_batch *b)
{
    w->scan.pos += b->size;
    w->scan.next = ks_batch_last(b) + 1;
    w->scan.first_epoch = b->epoch;
}

static struct place here(const struct walk *w)
{
    return (struct place){w->scan.next, w->scan.pos};
}

/* To the batch that holds offset. */
static bool find_start(struct walk *w, int64_t offset)
{
    struct ks_batch b;
    while (w->scan.next < offset) {
        if (!header(w, &b)) {
            return false;
        }
        if (ks_batch_last(&b) >= offset) {
            break;
        }
        step(w, &b);
    }
    return true;
}

/* ---- a read ---- */

struct direct {
    const struct ks_seg *seg;
    const struct ks_read_args *args;
    struct place start, end;
    int64_t limit; /* no batch that reaches it */
    uint64_t room; /* bytes that may be taken */
    uint64_t sound; /* all is, up to here */
};

/* Whole batches from the start on, as many as may be taken. False: it cannot be told. */
static bool find_end(struct ks_log *log, struct walk *w, struct direct *d)
{
    const struct ks_seg *seg = d->seg;
    uint64_t most = KC_MIN(d->start.pos + d->room, d->sound);
    struct ks_batch b;
    if (seg->len <= most && d->limit >= seg->end) {
        d->end = (struct place){seg->end, seg->len};
        return true;
    }
    d->end = farthest(log, seg, d->start, d->limit, most);
    w->scan.pos = d->end.pos;
    w->scan.next = d->end.offset;
    bool more = true;
    while (more && w->scan.pos < most && header(w, &b)) {
        bool first = w->scan.pos == d->start.pos;
        uint64_t after = w->scan.pos + b.size;
        more = ks_batch_last(&b) < d->limit &&
               (after <= most || (first && d->args->at_least_one && after <= d->sound));
        if (!more && first) {
            d->end = d->start;
            return after > most && after <= d->sound; /* there is no room for it */
        }
        if (more) {
            step(w, &b);
        }
    }
    d->end = here(w);
    return d->end.pos > d->start.pos;
}

static bool find(struct ks_log *log, struct direct *d, int fd)
{
    const struct ks_seg *seg = d->seg;
    struct ks_mark m = ks_read_nearest(log, seg, d->args->offset);
    struct walk w = {.fs = &log->e->fs,
                     .looks = LOOKS,
                     .want = KS_BATCH_HEADER,
                     .scan = {.fd = fd,
                              .epoch = seg->epoch,
                              .gaps = seg->compacted,
                              .first_epoch = seg->first_epoch,
                              .limit = seg->len,
                              .end = seg->end,
                              .pos = m.pos,
                              .next = m.offset}};
    if (!find_start(&w, d->args->offset)) {
        return false;
    }
    d->start = here(&w);
    d->sound = KC_MIN(ks_sound_to(&seg->sound, d->start.pos), seg->len);
    w.scan.first_epoch = seg->first_epoch; /* marks say nothing of epochs */
    return d->sound > d->start.pos && find_end(log, &w, d);
}

bool ks_direct_read(struct ks_log *log, const struct ks_seg *seg, const struct ks_read_args *args,
                    struct ks_read_result *ret)
{
    struct ks_fs *fs = &log->e->fs;
    int64_t limit = KC_MIN(KC_MIN(args->limit_offset, seg->end), seg->damaged_from);
    if (!seg->indexed || seg->sound.n == 0 || args->offset < seg->base || args->offset >= limit ||
        !ks_fs_direct(fs)) {
        return false;
    }
    int fd = ks_file_lend(seg->file);
    if (fd < 0) {
        return false;
    }
    struct direct d = {.seg = seg, .args = args, .limit = limit};
    d.room = (uint64_t)KC_MIN(KC_MAX(args->max_bytes, 0), (int32_t)KS_READ_MAX);
    uint64_t len = 0;
    bool ok = find(log, &d, fd);
    if (ok) {
        len = d.end.pos - d.start.pos;
        ok = len == 0 || ks_fs_cached(fs, fd, d.start.pos, len);
    }
    if (!ok || len == 0) {
        ks_file_take_back(seg->file);
        return ok; /* nothing, as there is no room for a whole batch */
    }
    struct kc_buf *b = range_new(log, seg->file, d.start.pos, (size_t)len);
    if (!b) {
        return false;
    }
    ks_cursor_note(log, seg->file->id, d.end.offset, d.end.pos);
    ret->slices[0] = kc_range_slice(b);
    ret->n_slices = 1;
    ret->next_offset = d.end.offset;
    atomic_fetch_add_explicit(&log->e->m_direct, len, memory_order_relaxed);
    return true;
}
