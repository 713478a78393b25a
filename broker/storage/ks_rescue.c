/* Where an unsealed epoch ends, and a copy of the bytes there that a crash of the server could still
 * take (ADR 10). Everything here reads files of other incarnations and writes none of them (I8). */
#include <errno.h>

#include "base/kc_error.h"
#include "base/kc_mem.h"
#include "storage/ks_scan.h"
#include "storage/ks_vol.h"

enum { STOP = 1, COPY_BYTES = 128 * 1024 };

/* ---- the scan ---- */

struct spot {
    uint64_t pos;
    int64_t next;
    uint32_t crc; /* of the batch before it */
};

/* Two batches at least `unconfirmed` bytes apart, and the newer one within that of the end or
 * behind it: the tail is looked for from one of them on. */
struct spots {
    uint64_t gap;
    uint64_t frame_pos; /* of the first frame; UINT64_MAX = there is none */
    struct spot older, newer, framed;
    uint32_t crc; /* of the batch before the one at hand */
};

static int on_scanned(void *arg, const struct ks_batch *b, uint64_t pos)
{
    struct spots *s = arg;
    if (pos - s->newer.pos >= s->gap) {
        s->older = s->newer;
        s->newer = (struct spot){.pos = pos, .next = b->base, .crc = s->crc};
    }
    if (pos == s->frame_pos) {
        s->framed = (struct spot){.pos = pos, .next = b->base, .crc = s->crc};
    }
    s->crc = b->crc;
    return 0;
}

static int at_tail(void *arg, const struct ks_batch *b, uint64_t pos)
{
    const uint64_t *cut = arg;
    return pos + b->size > *cut ? STOP : 0;
}

/* What lies before is durable in the file itself: no crash takes it, no error was told of it. */
static uint64_t safe_len(const struct ks_epoch_scan *r)
{
    uint64_t cut = r->len > r->unconfirmed ? r->len - r->unconfirmed : 0;
    return r->overlay.n ? KC_MIN(cut, r->overlay.first->f.pos) : cut;
}

/* The first batch of the tail. */
static int find_tail(struct ks_epoch_scan *r, const struct ks_scan *scan, const struct spots *spots)
{
    uint64_t cut = safe_len(r);
    const struct spot *from = spots->newer.pos <= cut   ? &spots->newer
                              : spots->older.pos <= cut ? &spots->older
                                                        : &spots->framed;
    struct ks_scan s = {.fd = scan->fd,
                        .frames = r->overlay,
                        .epoch = scan->epoch,
                        .limit = r->len,
                        .end = r->end,
                        .pos = from->pos,
                        .next = from->next,
                        .last_crc = from->crc};
    int rc = ks_scan(r->fs, &s, at_tail, &cut);
    r->read += s.read;
    r->tail_pos = s.pos;
    r->tail_base = s.next;
    r->tail_crc = s.last_crc;
    return rc == STOP ? 0 : rc;
}

/* One file. *ret_short: it ends before the ROLL says, so the epoch ends in it. */
static int scan_file(struct ks_epoch_scan *r, const struct ks_chain_file *f,
                     const struct ks_scan_start *from, bool *ret_short)
{
    bool rolled = f->end >= 0;
    struct spot at = {.pos = from->pos, .next = from->next, .crc = from->crc};
    /* A file before a ROLL was synced whole before the ROLL was linked: its frames say nothing. */
    r->overlay =
        rolled ? (struct ks_overlay){0} : ks_frames_of(r->frames, &r->topic, r->partition, f->id);
    struct spots spots = {.gap = r->unconfirmed,
                          .frame_pos = r->overlay.n ? r->overlay.first->f.pos : UINT64_MAX,
                          .older = at,
                          .newer = at,
                          .framed = at,
                          .crc = from->crc};
    struct ks_scan s = {
        .fd = r->fd,
        .frames = r->overlay,
        .epoch = r->epoch->epoch,
        .limit = rolled ? f->len : UINT64_MAX, /* up to a ROLL's base, never by size */
        .end = KC_MIN(rolled ? f->end : INT64_MAX, r->limit),
        .crc = true,
        .pos = from->pos,
        .next = from->next,
        .last_crc = from->crc,
    };
    int rc = ks_scan(r->fs, &s, on_scanned, &spots);
    r->read += s.read;
    r->file = f->id;
    r->end = s.next;
    r->len = r->tail_pos = s.pos;
    r->crc = s.last_crc;
    *ret_short = rolled && s.next < f->end;
    if (!rc && (!rolled || *ret_short) && s.pos > 0) {
        rc = find_tail(r, &s, &spots);
    }
    return rc;
}

/* The first file to look at, and where in it. */
static uint32_t first_file(const struct ks_epoch_scan *r, uint32_t first, uint32_t end,
                           struct ks_scan_start *ret)
{
    *ret = (struct ks_scan_start){.next = r->epoch->base};
    for (uint32_t i = first; r->from && i < end; i++) {
        if (ks_file_eq(r->chain->files[i].id, r->from->file) && !r->chain->files[i].dropped &&
            !r->chain->files[i].replaced && !r->chain->files[i].compacted) {
            *ret = *r->from;
            return i;
        }
    }
    return first;
}

int ks_epoch_scan(struct ks_epoch_scan *r, struct kc_err *err)
{
    uint32_t end;
    bool is_short = false;
    struct ks_scan_start from;
    uint32_t first = ks_chain_files(r->chain, r->epoch, &end);
    r->fd = -1;
    for (uint32_t i = first_file(r, first, end, &from); i < end && !is_short; i++) {
        const struct ks_chain_file *f = &r->chain->files[i];
        char path[KS_PATH_MAX];
        /* Trimmed away or compacted while the epoch was open; never its last file. What a COMPACT
         * names is whole and durable. */
        if (f->dropped || f->replaced || f->compacted) {
            from = (struct ks_scan_start){.next = f->end};
            continue;
        }
        if (r->fd >= 0) {
            ks_fs_close(r->fs, r->fd);
        }
        ks_path_file(path, &r->topic, r->partition, f->id);
        r->fd = ks_fs_open(r->fs, path, KS_READ);
        if (r->fd < 0) {
            int rc = r->fd == -ENOENT ? KC_E_CORRUPT : r->fd;
            return kc_fail(err, rc, "%s: %s", path, kc_strerror(r->fd));
        }
        ks_fs_forget(r->fs, r->fd);
        int rc = scan_file(r, f, &from, &is_short);
        if (rc) {
            ks_fs_close(r->fs, r->fd);
            r->fd = -1;
            return kc_fail(err, rc, "%s: %s", path, kc_strerror(rc));
        }
        from = (struct ks_scan_start){.next = r->end};
    }
    return 0;
}

void ks_epoch_seal(const struct ks_epoch_scan *s, struct ks_rec *ret)
{
    ret->seal.file = s->file;
    ret->seal.end = s->end;
    ret->seal.len = s->len;
    ret->seal.crc = s->crc;
    ret->seal.rescued = false;
}

/* ---- the copy ---- */

struct copier {
    struct ks_fs *fs;
    int fd;
    uint64_t pos; /* of the next byte */
    size_t used;
    uint8_t *buf;
};

static int flush(struct copier *c)
{
    struct iovec iov = {.iov_base = c->buf, .iov_len = c->used};
    int rc = c->used ? ks_fs_pwritev(c->fs, c->fd, &iov, 1, c->pos) : 0;
    c->pos += c->used;
    c->used = 0;
    return rc;
}

static int on_bytes(void *arg, const uint8_t *p, size_t n)
{
    struct copier *c = arg;
    while (n > 0) {
        size_t len = KC_MIN(n, (size_t)COPY_BYTES - c->used);
        __builtin_memcpy(c->buf + c->used, p, len);
        c->used += len;
        p += len;
        n -= len;
        int rc = c->used == COPY_BYTES ? flush(c) : 0;
        if (rc) {
            return rc;
        }
    }
    return 0;
}

int ks_tail_copy(const struct ks_epoch_scan *s, int to, struct ks_file_id id, struct ks_rec *ret)
{
    struct copier c = {.fs = s->fs, .fd = to, .buf = kc_try_alloc(COPY_BYTES)};
    if (!c.buf) {
        return -ENOMEM;
    }
    struct ks_scan walk = {.fd = s->fd,
                           .frames = s->overlay,
                           .epoch = s->epoch->epoch,
                           .limit = s->len,
                           .end = s->end,
                           .crc = true,
                           .sink = on_bytes,
                           .sink_arg = &c,
                           .pos = s->tail_pos,
                           .next = s->tail_base,
                           .last_crc = s->tail_crc};
    int rc = ks_scan(s->fs, &walk, NULL, NULL);
    rc = rc ? rc : flush(&c);
    rc = rc ? rc : ks_fs_datasync(s->fs, to);
    kc_free(c.buf);
    if (rc) {
        return rc;
    }
    /* The tail may have become shorter since it was scanned: the server has crashed, nobody was told
     * of what is gone. What lies before the tail cannot be gone. */
    if (walk.pos < safe_len(s)) {
        return -EIO;
    }
    ks_epoch_seal(s, ret);
    ret->seal.len = s->tail_pos;
    ret->seal.crc = s->tail_crc;
    ret->seal.end = walk.next;
    ret->seal.rescued = walk.pos > s->tail_pos;
    if (ret->seal.rescued) {
        ret->seal.copy = (struct ks_rescue){
            .file = id, .base = s->tail_base, .len = walk.pos - s->tail_pos, .crc = walk.last_crc};
    }
    return 0;
}
