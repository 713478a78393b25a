#include "storage/ks_scan.h"

#include <errno.h>
#include <string.h>

#include "base/kc_crc32c.h"
#include "base/kc_mem.h"

enum { WINDOW = 120 * 1024, CRC_FROM = 21 };

struct window {
    struct ks_fs *fs;
    const struct ks_scan *s;
    uint8_t *buf;
    uint64_t pos;
    size_t len;
    uint64_t read;
};

/* Bytes at pos: at least one; *ret_n how many. NULL with *ret_n == 0 at the end. */
static const uint8_t *at(struct window *w, uint64_t pos, size_t want, size_t *ret_n, int *rc)
{
    *ret_n = 0;
    if (pos >= w->pos && pos < w->pos + w->len &&
        w->pos + w->len - pos >= KC_MIN(want, (size_t)WINDOW)) {
        *ret_n = (size_t)(w->pos + w->len - pos);
        return w->buf + (pos - w->pos);
    }
    if (pos >= w->s->limit) {
        return NULL;
    }
    size_t room = (size_t)KC_MIN((uint64_t)WINDOW, w->s->limit - pos);
    ssize_t n = ks_overlay_pread(&w->s->frames, w->fs, w->s->fd, w->buf, room, pos);
    if (n < 0) {
        *rc = (int)n;
        w->len = 0;
        return NULL;
    }
    w->pos = pos;
    w->len = *ret_n = (size_t)n;
    w->read += (uint64_t)n;
    return n ? w->buf : NULL;
}

/* 1 = the whole batch is there (and its CRC is right, if asked), 0 = not, negative = error. */
static int body_ok(struct window *w, const struct ks_batch *b, uint64_t pos)
{
    uint32_t crc = 0;
    int rc = 0;
    if (!w->s->crc) { /* only presence: its last byte */
        size_t n;
        return at(w, pos + b->size - 1, 1, &n, &rc) ? 1 : rc;
    }
    for (size_t off = 0; off < b->size;) {
        size_t n;
        const uint8_t *p = at(w, pos + off, 1, &n, &rc);
        if (!p) {
            return rc;
        }
        n = KC_MIN(n, b->size - off);
        /* The first piece is the header that was parsed, from the same window. */
        size_t skip = off ? 0 : CRC_FROM;
        crc = kc_crc32c(crc, p + skip, n - skip);
        rc = w->s->sink ? w->s->sink(w->s->sink_arg, p, n) : 0;
        if (rc) {
            return rc < 0 ? rc : -EIO;
        }
        off += n;
    }
    return crc == b->crc;
}

bool ks_scan_fits(const struct ks_scan *s, const struct ks_batch *b)
{
    if (b->magic != 2 || b->size > s->limit - s->pos) {
        return false;
    }
    return s->gaps ? b->base >= s->next && b->epoch >= s->first_epoch && b->epoch <= s->epoch
                   : b->base == s->next && b->epoch == s->epoch;
}

int ks_scan(struct ks_fs *fs, struct ks_scan *s, ks_scan_fn fn, void *arg)
{
    struct window w = {.fs = fs, .s = s, .buf = kc_try_alloc(WINDOW)};
    int rc = 0;
    if (!w.buf) {
        return -ENOMEM;
    }
    while (!rc && s->next < s->end) {
        size_t n;
        struct ks_batch b;
        const uint8_t *p = at(&w, s->pos, KS_BATCH_HEADER, &n, &rc);
        if (!p || n < KS_BATCH_HEADER || !ks_batch_parse(p, &b) || !ks_scan_fits(s, &b)) {
            break;
        }
        int ok = body_ok(&w, &b, s->pos);
        if (ok <= 0) {
            rc = ok;
            break;
        }
        rc = fn ? fn(arg, &b, s->pos) : 0;
        if (!rc) {
            s->pos += b.size;
            s->next = ks_batch_last(&b) + 1;
            s->last_crc = b.crc;
            s->first_epoch = b.epoch;
        }
    }
    s->read += w.read;
    kc_free(w.buf);
    return rc;
}
