#include "storage/ks_frames.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_crc32c.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "storage/ks_bytes.h"
#include "storage/ks_vol.h"

/* JOURNALS_MAX bounds what a directory from outside can make us open; an incarnation has a handful. */
enum { MAGIC = 0x4b4a4631, WINDOW = 256 * 1024, JOURNALS_MAX = 256, LISTINGS_MAX = 8 };

/* ---- the format ---- */

void ks_frame_encode(const struct ks_frame *f, uint8_t out[KS_FRAME_HEADER])
{
    ks_put32(out, MAGIC);
    ks_put32(out + 8, f->crc);
    ks_put32(out + 12, f->len);
    ks_put32(out + 16, f->file.inc8);
    ks_put32(out + 20, f->file.seq);
    ks_put32(out + 24, (uint32_t)f->partition);
    ks_put32(out + 28, 0);
    ks_put64(out + 32, f->pos);
    memcpy(out + 40, f->topic.b, sizeof(f->topic.b));
    ks_put32(out + 4, kc_crc32c(0, out + 8, KS_FRAME_HEADER - 8));
}

bool ks_frame_decode(const uint8_t p[KS_FRAME_HEADER], struct ks_frame *ret)
{
    if (ks_get32(p) != MAGIC || ks_get32(p + 4) != kc_crc32c(0, p + 8, KS_FRAME_HEADER - 8)) {
        return false;
    }
    *ret = (struct ks_frame){
        .partition = (int32_t)ks_get32(p + 24),
        .file = {.inc8 = ks_get32(p + 16), .seq = ks_get32(p + 20)},
        .pos = ks_get64(p + 32),
        .len = ks_get32(p + 12),
        .crc = ks_get32(p + 8),
    };
    memcpy(ret->topic.b, p + 40, sizeof(ret->topic.b));
    return ret->len > 0 && ret->pos < UINT64_MAX / 2;
}

void ks_path_journal(char out[KS_PATH_MAX], int32_t broker, const struct kc_uuid *incarnation,
                     uint32_t n)
{
    char hex[KC_UUID_HEX_LEN + 1];
    kc_uuid_to_hex(incarnation, hex);
    snprintf(out, KS_PATH_MAX, "inc/%d/%s.j%" PRIu32, broker, hex, n);
}

/* ---- reading ---- */

struct names {
    struct kc_uuid incarnation;
    bool too_many;
    uint32_t n;
    uint32_t numbers[JOURNALS_MAX];
};

bool ks_journal_named(const char *name, struct kc_uuid *ret_incarnation, uint32_t *ret_n)
{
    char hex[KC_UUID_HEX_LEN + 1];
    int64_t n;
    if (strlen(name) < KC_UUID_HEX_LEN + 3 || strncmp(name + KC_UUID_HEX_LEN, ".j", 2) != 0 ||
        kc_parse_i64(kc_str_of(name + KC_UUID_HEX_LEN + 2), &n) || n < 0 || n > UINT32_MAX) {
        return false;
    }
    memcpy(hex, name, KC_UUID_HEX_LEN);
    hex[KC_UUID_HEX_LEN] = 0;
    *ret_n = (uint32_t)n;
    return kc_uuid_from_hex(kc_str_of(hex), ret_incarnation) == 0;
}

static bool on_name(void *arg, const char *name)
{
    struct names *l = arg;
    struct kc_uuid inc;
    uint32_t n;
    if (!ks_journal_named(name, &inc, &n) || !kc_uuid_eq(&inc, &l->incarnation)) {
        return true;
    }
    for (uint32_t i = 0; i < l->n; i++) {
        if (l->numbers[i] == n) {
            return true; /* told twice */
        }
    }
    l->too_many = l->n == JOURNALS_MAX;
    if (!l->too_many) {
        l->numbers[l->n++] = n;
    }
    return !l->too_many;
}

/* The numbers of an incarnation's journals. */
static int list(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation,
                struct names *ret)
{
    char dir[KS_PATH_MAX];
    *ret = (struct names){.incarnation = *incarnation};
    ks_path_inc_dir(dir, broker);
    int rc = ks_fs_list(fs, dir, on_name, ret);
    return !rc && ret->too_many ? KC_E_CORRUPT : rc;
}

struct reader {
    struct ks_frames *to;
    uint32_t room;
    int fd;
    uint8_t *win; /* WINDOW bytes of the journal, from win_pos on */
    uint64_t win_pos;
    size_t have;
};

/* Makes the window start at pos. */
static int load(struct reader *r, uint64_t pos)
{
    ssize_t n = ks_fs_pread(r->to->fs, r->fd, r->win, WINDOW, pos);
    r->have = n < 0 ? 0 : (size_t)n;
    r->win_pos = pos;
    return n < 0 ? (int)n : 0;
}

/* 1 = len bytes at pos have this CRC; 0 = they have not, or they are not all there. */
static int payload_ok(struct reader *r, uint64_t pos, uint32_t len, uint32_t want)
{
    uint32_t crc = 0;
    while (len > 0) {
        size_t off = (size_t)(pos - r->win_pos);
        if (off >= r->have) {
            int rc = load(r, pos);
            if (rc || r->have == 0) {
                return rc;
            }
            off = 0;
        }
        size_t n = KC_MIN(r->have - off, (size_t)len);
        crc = kc_crc32c(crc, r->win + off, n);
        pos += n;
        len -= (uint32_t)n;
    }
    return crc == want;
}

static int add(struct reader *r, const struct ks_frame *f, uint64_t at)
{
    struct ks_frames *to = r->to;
    if (to->n == r->room) {
        uint32_t room = KC_MAX(r->room * 2, 256u);
        void *p = kc_try_realloc(to->frames, (size_t)room * sizeof(*to->frames));
        if (!p) {
            return -ENOMEM;
        }
        to->frames = p;
        r->room = room;
    }
    to->frames[to->n++] = (struct ks_frame_at){.f = *f, .journal = to->n_journals, .at = at};
    return 0;
}

/* The next frame's header. 1, 0 = there is none, or -errno. */
static int header(struct reader *r, uint64_t pos, struct ks_frame *ret)
{
    if (pos < r->win_pos || pos - r->win_pos + KS_FRAME_HEADER > r->have) {
        int rc = load(r, pos);
        if (rc || r->have < KS_FRAME_HEADER) {
            return rc;
        }
    }
    return ks_frame_decode(r->win + (pos - r->win_pos), ret);
}

static int walk(struct reader *r)
{
    struct ks_frame f;
    uint64_t pos = 0;
    int rc = load(r, 0);
    while (!rc) {
        int ok = header(r, pos, &f);
        ok = ok > 0 ? payload_ok(r, pos + KS_FRAME_HEADER, f.len, f.crc) : ok;
        if (ok <= 0) {
            return ok;
        }
        rc = add(r, &f, pos + KS_FRAME_HEADER);
        pos += KS_FRAME_HEADER + (uint64_t)f.len;
    }
    return rc;
}

static int read_one(struct reader *r, const char *path)
{
    struct ks_frames *to = r->to;
    uint32_t before = to->n;
    int fd = ks_fs_open(to->fs, path, KS_READ);
    if (fd < 0) {
        return fd;
    }
    ks_fs_forget(to->fs, fd);
    r->fd = fd;
    int rc = walk(r);
    if (rc || to->n == before) {
        ks_fs_close(to->fs, fd);
        return rc;
    }
    to->fds[to->n_journals++] = fd;
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct ks_frame_at *x = a, *y = b;
    int c = memcmp(x->f.topic.b, y->f.topic.b, sizeof(x->f.topic.b));
    c = c ? c : (x->f.partition > y->f.partition) - (x->f.partition < y->f.partition);
    c = c ? c : (x->f.file.inc8 > y->f.file.inc8) - (x->f.file.inc8 < y->f.file.inc8);
    c = c ? c : (x->f.file.seq > y->f.file.seq) - (x->f.file.seq < y->f.file.seq);
    return c ? c : (x->f.pos > y->f.pos) - (x->f.pos < y->f.pos);
}

static struct ks_frames *new_frames(struct ks_fs *fs, uint32_t journals)
{
    struct ks_frames *f = kc_zalloc(sizeof(*f));
    atomic_init(&f->refs, 1);
    f->fs = fs;
    f->fds = kc_zalloc(KC_MAX(journals, 1u) * sizeof(*f->fds));
    return f;
}

/* By one listing. -ENOENT, -ESTALE: a journal that it named is gone. */
static int read_listed(struct ks_fs *fs, int32_t broker, const struct names *l,
                       struct ks_frames **ret)
{
    struct ks_frames *f = new_frames(fs, l->n);
    struct reader r = {.to = f, .win = l->n ? kc_try_alloc(WINDOW) : NULL};
    int rc = l->n && !r.win ? -ENOMEM : 0;
    for (uint32_t i = 0; !rc && i < l->n; i++) {
        char path[KS_PATH_MAX];
        ks_path_journal(path, broker, &l->incarnation, l->numbers[i]);
        rc = read_one(&r, path);
    }
    kc_free(r.win);
    if (rc) {
        ks_frames_unref(f);
        return rc;
    }
    if (f->n) {
        qsort(f->frames, f->n, sizeof(*f->frames), by_place);
    }
    *ret = f;
    return 0;
}

int ks_frames_read(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation,
                   struct ks_frames **ret, struct kc_err *err)
{
    struct names l;
    int rc = -ESTALE;
    /* What is gone by now has done its duty, if it is: only a listing without it tells (J9). */
    for (int i = 0; i < LISTINGS_MAX && (rc == -ESTALE || rc == -ENOENT); i++) {
        rc = list(fs, broker, incarnation, &l);
        rc = rc ? rc : read_listed(fs, broker, &l, ret);
    }
    if (rc) {
        char hex[KC_UUID_HEX_LEN + 1];
        kc_uuid_to_hex(incarnation, hex);
        return kc_fail(err, rc, "journals of incarnation %s: %s", hex, kc_strerror(rc));
    }
    return 0;
}

int ks_frames_remove(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation)
{
    struct names l;
    int rc = list(fs, broker, incarnation, &l);
    for (uint32_t i = 0; !rc && i < l.n; i++) {
        char path[KS_PATH_MAX];
        ks_path_journal(path, broker, incarnation, l.numbers[i]);
        rc = ks_fs_unlink(fs, path);
        rc = rc == -ENOENT ? 0 : rc;
    }
    return rc;
}

struct ks_frames *ks_frames_ref(struct ks_frames *f)
{
    atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    return f;
}

void ks_frames_unref(struct ks_frames *f)
{
    if (f && atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) == 1) {
        for (uint32_t i = 0; i < f->n_journals; i++) {
            ks_fs_close(f->fs, f->fds[i]);
        }
        kc_free(f->fds);
        kc_free(f->frames);
        kc_free(f);
    }
}

/* ---- the overlay ---- */

struct ks_overlay ks_frames_of(const struct ks_frames *f, const struct kc_uuid *topic,
                               int32_t partition, struct ks_file_id file)
{
    struct ks_overlay o = {.of = f};
    struct ks_frame_at key = {.f = {.topic = *topic, .partition = partition, .file = file}};
    uint32_t lo = 0, hi = f ? f->n : 0;
    while (lo < hi) { /* the first one not before (file, position 0) */
        uint32_t mid = lo + (hi - lo) / 2;
        if (by_place(&f->frames[mid], &key) < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    o.first = f && f->n ? f->frames + lo : NULL;
    while (f && lo + o.n < f->n && o.first[o.n].f.partition == partition &&
           ks_file_eq(o.first[o.n].f.file, file) && kc_uuid_eq(&o.first[o.n].f.topic, topic)) {
        o.n++;
    }
    return o;
}

/* The first frame that ends behind pos: frames of a file do not overlap. */
static uint32_t first_after(const struct ks_overlay *o, uint64_t pos)
{
    uint32_t lo = 0, hi = o->n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (o->first[mid].f.pos + o->first[mid].f.len <= pos) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

ssize_t ks_overlay_pread(const struct ks_overlay *o, struct ks_fs *fs, int fd, void *buf,
                         size_t len, uint64_t pos)
{
    ssize_t got = ks_fs_pread(fs, fd, buf, len, pos);
    if (got < 0 || o->n == 0) {
        return got;
    }
    memset((uint8_t *)buf + got, 0, len - (size_t)got);
    for (uint32_t i = first_after(o, pos); i < o->n && o->first[i].f.pos < pos + len; i++) {
        const struct ks_frame_at *f = &o->first[i];
        uint64_t from = KC_MAX(f->f.pos, pos), to = KC_MIN(f->f.pos + f->f.len, pos + len);
        if (to <= from) {
            continue; /* frames that overlap, which no owner makes: the search may begin too early */
        }
        size_t n = (size_t)(to - from);
        ssize_t rc = ks_fs_pread(fs, o->of->fds[f->journal], (uint8_t *)buf + (from - pos), n,
                                 f->at + (from - f->f.pos));
        if (rc != (ssize_t)n) {
            return rc < 0 && rc != -ENOENT ? rc : -ESTALE;
        }
        got = KC_MAX(got, (ssize_t)(to - pos));
    }
    return got;
}
