/* Rebuilds a log's state from its chain: reads every file that still counts, in order. What is
 * under a seal or before a ROLL is final, so its checksums are left to readers and fsck. */
#include <errno.h>

#include "base/kc_clock.h"
#include "base/kc_error.h"
#include "base/kc_log.h"
#include "storage/ks_scan.h"
#include "storage/ks_state.h"
#include "storage/ks_vol.h"

enum { RESTART = 1 };

void ks_build_init(struct ks_build *b, struct ks_fs *fs, struct ks_fds *fds,
                   const struct kc_uuid *topic, int32_t partition)
{
    *b = (struct ks_build){.fs = fs, .fds = fds, .topic = *topic, .partition = partition};
    b->now_wall_ms = kc_wall_ms();
    ks_state_init(&b->st);
}

void ks_build_fini(struct ks_build *b)
{
    ks_state_fini(&b->st);
}

static int on_batch(void *arg, const struct ks_batch *batch, uint64_t pos)
{
    struct ks_build *b = arg;
    if (b->cancelled && atomic_load_explicit(b->cancelled, memory_order_relaxed)) {
        return KC_E_CANCELLED;
    }
    ks_state_note(&b->st, batch, pos);
    return ks_prods_apply(&b->st.prods, batch, b->now_wall_ms);
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
    int rc = ks_scan(b->fs, s, on_batch, b);
    rc = rc ? rc : ks_fs_stat(b->fs, s->fd, &st);
    ks_fs_close(b->fs, s->fd);
    *ret_size = st.size;
    return rc;
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
    b->peek_pos = 0;
    int rc = peeked ? 0 : add_seg(b, c, f);
    rc = rc ? rc : walk(b, &s, &size);
    if (rc && rc != -ENOENT) {
        return rc;
    }
    if (s.next != f->end || s.pos != f->len) {
        if (peeked) {
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
    b->file = 0;
    b->last_end = -1;
    b->peek_pos = 0;
    b->zombie_bytes = 0;
    b->damaged = 0;
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
    if (!b->peek_pos && add_seg(b, c, f)) {
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
