/* COMPACT: the fold of its record. One replacement file takes the place of neighbours whose content
 * is final; the entries of the others stay, empty, so that the ranges of epochs in the array of files
 * hold. The replacement lies in the range of the first one's epoch and may reach into later ones. */
#include "base/kc_error.h"
#include "storage/ks_rec.h"

/* Holds something that readers want. */
static bool live(const struct ks_chain_file *f)
{
    return !f->dropped && !f->replaced && f->base >= 0 && f->end > f->base;
}

static int refuse(const struct ks_rec *r, const char *why, struct kc_err *err)
{
    return kc_fail(err, KC_E_CORRUPT, "ctl.%llu compacts offsets %lld to %lld: %s",
                   (unsigned long long)r->k, (long long)r->drop.start, (long long)r->drop.end, why);
}

/* The entries that the record replaces are neighbours, all finished, and make up its range; *ret_first
 * and *ret_last are the outer ones. NULL, or what is wrong. */
static const char *check(const struct ks_chain *c, const struct ks_rec *r, uint32_t *ret_first,
                         uint32_t *ret_last)
{
    const struct ks_new_file *fresh = r->drop.new_files;
    uint32_t i = 0;
    uint16_t n = 0;
    if (r->drop.n_old < 1 || r->drop.n_new != 1 || fresh->len == 0 ||
        fresh->base != r->drop.start || r->drop.end <= r->drop.start) {
        return "it does not name files and the one that replaces them";
    }
    for (; i < c->n_files && ks_file_eq(c->files[i].id, fresh->file) == false; i++) {
    }
    if (i < c->n_files) {
        return "the new file has a place in the log already";
    }
    for (i = 0; i < c->n_files && !(live(&c->files[i]) && c->files[i].base == r->drop.start); i++) {
    }
    *ret_first = i;
    for (int64_t at = r->drop.start; at < r->drop.end; i++) {
        /* The newest file is the active one, whatever its epoch: it is never compacted. */
        if (i + 1 >= c->n_files || n >= r->drop.n_old) {
            return "the files do not cover it";
        }
        if (!live(&c->files[i])) {
            continue;
        }
        if (c->files[i].base != at || !ks_file_eq(c->files[i].id, r->drop.old[n++])) {
            return "the files are not the ones that hold it";
        }
        at = c->files[i].end;
        *ret_last = i;
    }
    if (n != r->drop.n_old || c->files[*ret_last].end != r->drop.end) {
        return "the files end elsewhere";
    }
    return NULL;
}

int ks_chain_compact(struct ks_chain *c, const struct ks_rec *r, struct kc_err *err)
{
    const struct ks_epoch *owner = ks_chain_last(c);
    uint32_t first = 0, last = 0;
    if (owner->base < 0) {
        return refuse(r, "older epochs are not sealed", err);
    }
    const char *why = check(c, r, &first, &last);
    if (why) {
        return refuse(r, why, err);
    }
    if (r->drop.clean < c->clean) {
        return refuse(r, "what was clean is not any more", err);
    }
    for (uint16_t i = 0; i < r->drop.n_old; i++) {
        int rc = ks_chain_gone(c, r->drop.old[i]);
        if (rc) {
            c->n_gone -= i;
            return kc_fail(err, rc, "chain: %s", kc_strerror(rc));
        }
    }
    struct ks_chain_file *f = &c->files[first];
    *f = (struct ks_chain_file){.id = r->drop.new_files->file,
                                .base = r->drop.start,
                                .end = r->drop.end,
                                .len = r->drop.new_files->len,
                                .crc = r->drop.new_files->crc,
                                .epoch = f->epoch,
                                .last_epoch = c->files[last].last_epoch,
                                .compacted = true};
    for (uint32_t i = first + 1; i <= last; i++) {
        if (live(&c->files[i])) {
            c->files[i].replaced = true;
            c->files[i].base = c->files[i].end = r->drop.end;
            c->files[i].len = 0;
            c->files[i].rescued = 0;
        }
    }
    c->clean = r->drop.clean;
    c->compactions++;
    return 0;
}
