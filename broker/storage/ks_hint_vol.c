/* Hints on the volume: finding and reading them, and what makes one believable. */
#include <errno.h>
#include <string.h>

#include "base/kc_error.h"
#include "base/kc_mem.h"
#include "storage/ks_hint.h"
#include "storage/ks_vol.h"

static bool on_name(void *arg, const char *name)
{
    struct ks_snap_name n;
    if (ks_snap_name_parse(name, &n)) {
        ks_snaps_add(arg, &n);
    }
    return true;
}

int ks_snaps_list(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition,
                  struct ks_snaps *ret)
{
    char dir[KS_PATH_MAX];
    *ret = (struct ks_snaps){0};
    ks_path_part(dir, topic, partition, NULL);
    return ks_fs_list(fs, dir, on_name, ret);
}

int ks_hint_read(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition, const char *name,
                 struct ks_hint *ret, uint64_t *bytes)
{
    char path[KS_PATH_MAX];
    struct ks_stat st;
    ks_path_part(path, topic, partition, name);
    int fd = ks_fs_open(fs, path, KS_READ);
    if (fd < 0) {
        return fd;
    }
    int rc = ks_fs_stat(fs, fd, &st);
    rc = rc ? rc : st.size > KS_HINT_MAX ? -EFBIG : 0;
    uint8_t *p = rc ? NULL : kc_try_alloc((size_t)st.size + 1);
    rc = rc || p ? rc : -ENOMEM;
    ssize_t n = rc ? 0 : ks_fs_pread(fs, fd, p, (size_t)st.size, 0);
    ks_fs_close(fs, fd);
    rc = n < 0 ? (int)n : rc;
    if (!rc) {
        *bytes += (uint64_t)n;
        rc = ks_hint_decode(p, (size_t)n, ret);
    }
    kc_free(p);
    if (!rc && (ret->partition != partition || !kc_uuid_eq(&ret->topic, topic))) {
        ks_hint_fini(ret);
        rc = KC_E_CORRUPT; /* a hint of another partition */
    }
    return rc;
}

/* The batch that a hint ends with stands in the file. */
static bool ends_there(struct ks_fs *fs, int fd, const struct ks_seg *s)
{
    uint8_t head[KS_BATCH_HEADER];
    struct ks_batch b;
    return ks_fs_pread(fs, fd, head, sizeof(head), s->last_pos) == (ssize_t)sizeof(head) &&
           ks_batch_parse(head, &b) && b.epoch == s->epoch && b.crc == s->last_crc &&
           s->last_pos + b.size == s->len && ks_batch_last(&b) + 1 == s->end;
}

/* A COMPACT replaced the file: its batches before the snapshot, or what is left of them, are elsewhere,
 * and the producers at that offset are what they were. */
static bool was_replaced(const struct ks_chain *c, struct ks_file_id id)
{
    for (uint32_t i = 0; i < c->n_gone; i++) {
        if (ks_file_eq(c->gone[i], id)) {
            return true;
        }
    }
    return false;
}

bool ks_snap_fits(struct ks_fs *fs, const struct ks_hint *h, const struct ks_chain *c)
{
    const struct ks_seg *s = &h->seg;
    const struct ks_epoch *e = ks_chain_epoch(c, s->epoch);
    if (!h->snap || !e || !kc_uuid_eq(&e->incarnation, &h->writer)) {
        return false; /* nobody else knows what is acknowledged in that epoch */
    }
    const struct ks_chain_file *f = NULL;
    for (uint32_t i = 0; i < c->n_files && !f; i++) {
        const struct ks_chain_file *at = &c->files[i];
        bool same = ks_file_eq(at->id, h->file) && at->epoch == s->epoch && !at->replaced;
        f = same ? at : NULL;
    }
    if (!f && was_replaced(c, h->file)) {
        return e->base >= 0 && s->base >= e->base && (!e->sealed || s->end <= e->end);
    }
    if (!f || f->base != s->base || (f->end >= 0 && f->len + f->rescued < s->len) ||
        (e->sealed && e->end < s->end)) {
        return false;
    }
    if (f->dropped || s->len == 0 || (f->end >= 0 && f->len < s->len)) {
        return true; /* gone, or copied from before there on (ADR 10): nothing to compare with */
    }
    if (f->end >= 0 && (f->end < s->end || (f->len == s->len) != (f->end == s->end) ||
                        (f->len == s->len && f->crc && f->crc != s->last_crc))) {
        return false;
    }
    char path[KS_PATH_MAX];
    ks_path_file(path, &h->topic, h->partition, h->file);
    int fd = ks_fs_open(fs, path, KS_READ);
    if (fd < 0) {
        return false;
    }
    bool ok = ends_there(fs, fd, s);
    ks_fs_close(fs, fd);
    return ok;
}

bool ks_idx_fits(struct ks_fs *fs, const struct ks_hint *h, struct ks_file_id file,
                 const struct ks_seg *seg, int fd)
{
    const struct ks_seg *s = &h->seg;
    return !h->snap && ks_file_eq(h->file, file) && s->epoch == seg->epoch &&
           s->base == seg->base && s->end == seg->end && s->len == seg->len && s->len > 0 &&
           ends_there(fs, fd, s);
}

int ks_snap_newest(struct ks_fs *fs, const struct ks_chain *c, const struct kc_uuid *topic,
                   int32_t partition, const struct ks_snaps *snaps, struct ks_hint *ret,
                   uint64_t *bytes)
{
    for (uint32_t i = 0; i < snaps->n; i++) {
        char name[KS_HINT_NAME];
        const struct ks_snap_name *n = &snaps->v[i];
        ks_snap_name(n, name);
        if (ks_hint_read(fs, topic, partition, name, ret, bytes)) {
            continue; /* torn, or removed by its writer */
        }
        if (ks_file_eq(ret->file, n->file) && ret->seg.end == n->offset &&
            ks_snap_fits(fs, ret, c)) {
            return 0;
        }
        ks_hint_fini(ret);
    }
    return KC_E_NOT_FOUND;
}

void ks_idx_remove(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition,
                   struct ks_file_id id)
{
    char name[KS_HINT_NAME], path[KS_PATH_MAX];
    ks_idx_name(id, name);
    ks_path_part(path, topic, partition, name);
    ks_fs_unlink(fs, path); /* most files are too small to have one */
}
