/* Rebuilds a log's state from its chain: the newest snapshot that fits, then every file behind it, in
 * order. Files before it are known by the chain; their indexes are loaded when a reader needs them.
 * What is under a seal or before a ROLL is final, so its checksums are left to readers and fsck. */
#include <errno.h>

#include "base/kc_clock.h"
#include "base/kc_error.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "storage/ks_hint.h"
#include "storage/ks_scan.h"
#include "storage/ks_state.h"
#include "storage/ks_vol.h"

enum { RESTART = 1, MARKER_MAX = 256 };

void ks_build_init(struct ks_build *b, struct ks_fs *fs, struct ks_fds *fds,
                   const struct kc_uuid *topic, int32_t partition)
{
    *b = (struct ks_build){
        .fs = fs, .fds = fds, .topic = *topic, .partition = partition, .own_epoch = -1};
    b->now_wall_ms = kc_wall_ms();
    ks_state_init(&b->st);
}

static void drop_hint(struct ks_build *b)
{
    if (b->hint) {
        ks_hint_fini(b->hint);
        kc_free(b->hint);
        b->hint = NULL;
    }
    b->hint_end = 0;
}

void ks_build_fini(struct ks_build *b)
{
    ks_state_fini(&b->st);
    drop_hint(b);
    kc_free(b->snaps);
    b->snaps = NULL;
}

/* A marker batch is small; what cannot be read as one ends no transaction as aborted. */
static int marker_at(struct ks_build *b, const struct ks_batch *batch, uint64_t pos,
                     enum ks_marker *ret)
{
    uint8_t p[MARKER_MAX];
    *ret = KS_MARK_NONE;
    if (!(batch->attrs & KS_ATTR_CONTROL) || batch->size > sizeof(p)) {
        return 0;
    }
    ssize_t n = ks_fs_pread(b->fs, b->walk_fd, p, batch->size, pos);
    if (n == (ssize_t)batch->size) {
        *ret = ks_batch_marker(p, batch);
    }
    return n < 0 ? (int)n : 0;
}

static int on_batch(void *arg, const struct ks_batch *batch, uint64_t pos)
{
    struct ks_build *b = arg;
    if (b->cancelled && atomic_load_explicit(b->cancelled, memory_order_relaxed)) {
        return KC_E_CANCELLED;
    }
    ks_state_note(&b->st, batch, pos);
    if (batch->base < b->hint_end) {
        return 0; /* its producer is in the snapshot */
    }
    b->since_hint += batch->size;
    enum ks_marker marker;
    int rc = marker_at(b, batch, pos, &marker);
    return rc ? rc : ks_state_produced(&b->st, batch, marker, b->now_wall_ms);
}

/* A bad batch under a seal is corruption: that range answers KAFKA_STORAGE_ERROR, it is never
 * silently cut (storage.md, Durability). */
static void quarantine(struct ks_build *b, const struct ks_chain_file *f)
{
    char path[KS_PATH_MAX];
    struct ks_seg *s = &b->st.segs[b->st.n_segs - 1];
    ks_path_file(path, &b->topic, b->partition, f->id);
    kc_log(KC_ERROR, "storage", "event=corrupt_file file=%s from_offset=%lld to_offset=%lld", path,
           (long long)s->end, (long long)f->end);
    s->damaged_from = s->end;
    s->end = f->end;
    s->len = f->len;
    b->st.end = f->end;
    b->damaged++;
}

/* The epochs that a file holds batches of, or did before it was compacted. */
static int add_epochs(struct ks_build *b, const struct ks_chain *c, const struct ks_chain_file *f)
{
    int rc = 0;
    for (int32_t n = f->epoch; !rc && n <= f->last_epoch; n++) {
        const struct ks_epoch *e = &c->epochs[n];
        if (n == f->epoch || !e->sealed || e->end > e->base) {
            rc = ks_state_add_epoch(&b->st, n, KC_MAX(e->base, f->base));
        }
    }
    return rc;
}

/* A segment for a file that is read from its start. */
static int add_seg(struct ks_build *b, const struct ks_chain *c, const struct ks_chain_file *f)
{
    struct ks_file *file = ks_file_new(b->fs, b->fds, &b->topic, b->partition, f->id, -1);
    int rc = file ? add_epochs(b, c, f) : -ENOMEM;
    rc = rc ? rc : ks_state_add_seg(&b->st, file, f->base, f->last_epoch);
    if (rc) {
        ks_file_unref(file);
        return rc;
    }
    struct ks_seg *s = &b->st.segs[b->st.n_segs - 1];
    s->compacted = f->compacted;
    s->first_epoch = f->epoch;
    return 0;
}

/* Walks the last segment's file from pos and next on, through a descriptor of its own: only a fresh
 * open makes a network file system show what the file holds now. */
static int walk(struct ks_build *b, struct ks_scan *s, uint64_t *ret_size)
{
    const struct ks_file *file = b->st.segs[b->st.n_segs - 1].file;
    struct ks_stat st = {0};
    char path[KS_PATH_MAX];
    ks_path_file(path, &b->topic, b->partition, file->id);
    s->fd = ks_fs_open(b->fs, path, KS_READ);
    if (s->fd < 0) {
        return s->fd;
    }
    b->walk_fd = s->fd;
    int rc = ks_scan(b->fs, s, on_batch, b);
    b->read_bytes += s->read;
    rc = rc ? rc : ks_fs_stat(b->fs, s->fd, &st);
    ks_fs_close(b->fs, s->fd);
    *ret_size = st.size;
    return rc;
}

/* The file that the snapshot stands in, if the chain has it up to there: its index comes with it. */
static bool hinted(const struct ks_build *b, const struct ks_chain_file *f)
{
    return b->hint && b->hint->seg.len > 0 && ks_file_eq(b->hint->file, f->id) &&
           (f->end < 0 || (f->end >= b->hint_end && f->len >= b->hint->seg.len));
}

/* Begins the segment of a file, where the snapshot left off if it stands in it. */
static int begin_file(struct ks_build *b, const struct ks_chain *c, const struct ks_chain_file *f,
                      struct ks_scan *s)
{
    int rc = add_seg(b, c, f);
    if (rc || !hinted(b, f)) {
        return rc;
    }
    struct ks_seg *to = &b->st.segs[b->st.n_segs - 1];
    struct ks_file *file = to->file;
    *to = b->hint->seg;
    to->file = file;
    to->first_epoch = f->epoch;
    b->hint->seg.marks = NULL; /* they moved */
    b->hint->seg.n_marks = b->hint->seg.marks_room = 0;
    b->st.end = to->end;
    b->st.bytes += to->len;
    s->pos = to->len;
    s->next = to->end;
    return 0;
}

/* All of it is before the snapshot: it is not read. */
static int skip_file(struct ks_build *b, const struct ks_chain *c, const struct ks_chain_file *f)
{
    int rc = add_seg(b, c, f);
    if (rc) {
        return rc;
    }
    ks_state_skip(&b->st, f->end, f->len);
    struct ks_seg *s = &b->st.segs[b->st.n_segs - 1];
    for (uint32_t i = 0; i < b->hint->n_files && !s->ts_known; i++) {
        const struct ks_hint_file *h = &b->hint->files[i];
        if (ks_file_eq(h->id, f->id) && h->len == f->len) {
            s->max_ts = h->max_ts;
            s->max_ts_base = h->max_ts_base;
            s->ts_known = true;
        }
    }
    return 0;
}

static int read_file(struct ks_build *b, const struct ks_chain *c, const struct ks_chain_file *f)
{
    uint64_t size = 0;
    struct ks_scan s = {.epoch = f->last_epoch,
                        .gaps = f->compacted,
                        .first_epoch = f->epoch,
                        .limit = f->len,
                        .end = f->end,
                        .pos = b->peek_pos,
                        .next = b->peek_pos ? b->peek_next : f->base};
    bool peeked = b->peek_pos > 0;
    if (peeked && (s.pos > f->len || s.next > f->end)) {
        return RESTART; /* the seal is below what we saw */
    }
    if (!peeked && f->end <= b->hint_end && !hinted(b, f)) {
        return skip_file(b, c, f);
    }
    b->peek_pos = 0;
    int rc = peeked ? 0 : begin_file(b, c, f, &s);
    bool trusted = peeked || s.pos > 0;
    rc = rc ? rc : walk(b, &s, &size);
    if (rc) {
        return rc;
    }
    if (s.next != f->end || s.pos != f->len) {
        if (trusted) {
            b->no_hints = b->no_hints || !peeked;
            return RESTART; /* without the doubt that an early look could have misled us */
        }
        quarantine(b, f);
        return 0;
    }
    uint64_t known = f->len + f->rescued;
    b->zombie_bytes += size > known ? size - known : 0; /* late bytes: normal, never served */
    return 0;
}

/* Forgets everything: a half-read file must not count twice. */
static void restart(struct ks_build *b)
{
    ks_state_fini(&b->st);
    drop_hint(b);
    b->hints_read = false;
    b->since_hint = 0;
    b->file = 0;
    b->last_end = -1;
    b->peek_pos = 0;
    b->zombie_bytes = 0;
    b->damaged = 0;
}

/* Little data costs less to read than a listing; but where files were dropped, only a snapshot knows
 * the producers that were in them. */
static bool worth_a_hint(const struct ks_build *b, const struct ks_chain *c)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < c->n_files; i++) {
        const struct ks_chain_file *f = &c->files[i];
        if (f->dropped || (f->end < 0 && f->epoch != b->own_epoch)) {
            return true; /* (how much an open one holds, nobody knows yet) */
        }
        bytes += f->end < 0 ? 0 : f->len;
    }
    return bytes > b->hint_worth;
}

/* Starts from the newest snapshot that fits. */
static void look_for_hint(struct ks_build *b, const struct ks_chain *c)
{
    b->hints_read = true;
    if (b->no_hints || !worth_a_hint(b, c)) {
        return;
    }
    b->snaps = b->snaps ? b->snaps : kc_try_zalloc(1, sizeof(*b->snaps));
    b->hint = b->snaps ? kc_try_zalloc(1, sizeof(*b->hint)) : NULL;
    if (!b->hint || ks_snaps_list(b->fs, &b->topic, b->partition, b->snaps) ||
        ks_snap_newest(b->fs, c, &b->topic, b->partition, b->snaps, b->hint, &b->read_bytes)) {
        drop_hint(b);
        return;
    }
    b->hint_end = b->hint->seg.end;
    b->st.prods = b->hint->prods;
    b->st.aborts = b->hint->aborts;
    ks_prods_init(&b->hint->prods);
    b->hint->aborts = (struct ks_aborts){0};
}

int ks_build_run(struct ks_build *b, const struct ks_chain *c, struct kc_err *err)
{
    bool resealed = b->file > 0 && c->files[b->file - 1].end != b->last_end;
    if (resealed || c->compactions != b->compactions) {
        restart(
            b); /* an epoch was sealed below a ROLL that was read already; files were compacted */
    }
    b->compactions = c->compactions;
    while (b->file < c->n_files) {
        if (!b->hints_read) {
            look_for_hint(b, c);
        }
        const struct ks_chain_file *f = &c->files[b->file];
        if (f->base < 0 || f->end < 0) {
            break; /* open: a seal decides where it ends */
        }
        if (!b->peek_pos && (f->dropped || f->end == f->base)) {
            b->st.start = f->dropped ? KC_MAX(b->st.start, f->end) : b->st.start;
            b->st.end = KC_MAX(b->st.end, f->end);
            b->last_end = f->end;
            b->file++;
            continue;
        }
        int rc = f->dropped ? RESTART : read_file(b, c, f);
        if (rc == 0) {
            b->last_end = f->end;
            b->file++;
            continue;
        }
        restart(b); /* from the first file on */
        if (rc != RESTART) {
            char path[KS_PATH_MAX];
            ks_path_file(path, &b->topic, b->partition, f->id);
            if (rc == -ENOENT) { /* never an empty or a damaged file: the partition is not whole */
                return kc_fail(err, KC_E_CORRUPT, "%s is gone, and the chain names it", path);
            }
            return kc_fail(err, rc, "%s: %s", path, kc_strerror(rc));
        }
    }
    ks_state_trim(&b->st, c->log_start, 0);
    return 0;
}

void ks_build_peek(struct ks_build *b, const struct ks_chain *c)
{
    if (b->file >= c->n_files || c->files[b->file].base < 0 || c->files[b->file].end >= 0) {
        return;
    }
    const struct ks_chain_file *f = &c->files[b->file];
    struct ks_scan s = {.epoch = f->epoch,
                        .limit = UINT64_MAX,
                        .end = INT64_MAX,
                        .crc = true,
                        .pos = b->peek_pos,
                        .next = b->peek_pos ? b->peek_next : f->base};
    uint64_t size;
    if (!b->peek_pos && begin_file(b, c, f, &s)) {
        return;
    }
    int rc = walk(b, &s, &size);
    b->peek_pos = s.pos;
    b->peek_next = s.next;
    if (rc) {
        restart(b); /* the run at the takeover reads it all, and tells its error */
    } else if (s.pos == 0) {
        ks_state_pop_seg(&b->st);
    }
}
