/* The fold of a chain's records into epochs and files; every rule a record must obey is checked
 * here, so that readers of the volume (takeover, fsck) judge alike. */
#include <errno.h>
#include <string.h>

#include "base/kc_error.h"
#include "base/kc_mem.h"
#include "storage/ks_rec.h"

void ks_chain_init(struct ks_chain *c)
{
    *c = (struct ks_chain){0};
}

void ks_chain_fini(struct ks_chain *c)
{
    kc_free(c->epochs);
    kc_free(c->files);
    kc_free(c->gone);
    ks_chain_init(c);
}

struct ks_epoch *ks_chain_last(const struct ks_chain *c)
{
    return c->n_epochs ? &c->epochs[c->n_epochs - 1] : NULL;
}

struct ks_epoch *ks_chain_epoch(const struct ks_chain *c, int32_t epoch)
{
    return epoch >= 0 && (uint32_t)epoch < c->n_epochs ? &c->epochs[epoch] : NULL;
}

uint32_t ks_chain_files(const struct ks_chain *c, const struct ks_epoch *e, uint32_t *ret_end)
{
    uint32_t i = (uint32_t)(e - c->epochs);
    *ret_end = i + 1 < c->n_epochs ? c->epochs[i + 1].first_file : c->n_files;
    return e->first_file;
}

struct ks_epoch *ks_chain_unsealed(const struct ks_chain *c, int32_t before)
{
    for (uint32_t i = 0; i < c->n_epochs; i++) {
        if (!c->epochs[i].sealed && c->epochs[i].epoch < before) {
            return &c->epochs[i];
        }
    }
    return NULL;
}

/* Makes room for one more element; sizes are small and grow by half. */
static int grow(void **array, uint32_t *room, uint32_t used, size_t size)
{
    if (used < *room) {
        return 0;
    }
    uint32_t want = *room + KC_MAX(*room / 2, 2u);
    void *p = kc_try_realloc(*array, (size_t)want * size);
    if (!p) {
        return -ENOMEM;
    }
    *array = p;
    *room = want;
    return 0;
}

/* Once every older epoch is sealed the base of an epoch is known for good. */
static void settle(struct ks_chain *c)
{
    int64_t base = 0;
    for (uint32_t i = 0; i < c->n_epochs; i++) {
        struct ks_epoch *e = &c->epochs[i];
        if (e->base < 0) {
            e->base = base;
            uint32_t end;
            struct ks_chain_file *first = &c->files[ks_chain_files(c, e, &end)];
            first->base = base;
        }
        if (!e->sealed) {
            return;
        }
        base = e->end;
    }
}

static int reserve_file(struct ks_chain *c)
{
    void *files = c->files;
    int rc = grow(&files, &c->files_room, c->n_files, sizeof(*c->files));
    c->files = files;
    return rc;
}

static int add_file(struct ks_chain *c, struct ks_file_id id, int32_t epoch, int64_t base)
{
    int rc = reserve_file(c);
    if (!rc) {
        c->files[c->n_files++] = (struct ks_chain_file){
            .id = id, .base = base, .end = -1, .epoch = epoch, .last_epoch = epoch};
    }
    return rc;
}

/* A file in the middle; there is room for it. Later epochs' files move up by one. */
static void insert_file(struct ks_chain *c, uint32_t at, const struct ks_chain_file *f)
{
    memmove(c->files + at + 1, c->files + at, (c->n_files - at) * sizeof(*c->files));
    c->files[at] = *f;
    c->n_files++;
    for (uint32_t i = 0; i < c->n_epochs; i++) {
        c->epochs[i].first_file += c->epochs[i].first_file >= at;
    }
}

static const struct ks_chain_file *file_of(const struct ks_chain *c, struct ks_file_id id)
{
    for (uint32_t i = 0; i < c->n_files; i++) {
        if (ks_file_eq(c->files[i].id, id)) {
            return &c->files[i];
        }
    }
    return NULL;
}

static int apply_claim(struct ks_chain *c, const struct ks_rec *r, struct kc_err *err)
{
    struct ks_epoch *last = ks_chain_last(c);
    if (r->epoch != (last ? last->epoch + 1 : 0)) {
        return kc_fail(err, KC_E_CORRUPT, "ctl.%llu claims epoch %d after %d",
                       (unsigned long long)r->k, r->epoch, last ? last->epoch : -1);
    }
    void *epochs = c->epochs;
    int rc = grow(&epochs, &c->epochs_room, c->n_epochs, sizeof(*c->epochs));
    c->epochs = epochs;
    rc = rc ? rc : add_file(c, r->claim.file, r->epoch, -1);
    if (rc) {
        return kc_fail(err, rc, "chain: %s", kc_strerror(rc));
    }
    last = ks_chain_last(c);
    if (last && ks_chain_unsealed(c, last->epoch)) {
        last->never_opened = true; /* it saw no complete seal before it was superseded */
    }
    c->epochs[c->n_epochs++] = (struct ks_epoch){
        .epoch = r->epoch,
        .broker = r->claim.broker,
        .incarnation = r->claim.incarnation,
        .order = r->claim.order,
        .claim_k = r->k,
        .base = -1,
        .end = -1,
        .first_file = c->n_files - 1,
    };
    return 0;
}

static int apply_roll(struct ks_chain *c, const struct ks_rec *r, struct kc_err *err)
{
    struct ks_epoch *last = ks_chain_last(c);
    struct ks_chain_file *prev = c->n_files ? &c->files[c->n_files - 1] : NULL;
    if (!last || last->epoch != r->epoch || last->sealed || !prev || last->base < 0 ||
        r->roll.base <= prev->base) {
        return kc_fail(err, KC_E_CORRUPT, "ctl.%llu rolls epoch %d, which is not open",
                       (unsigned long long)r->k, r->epoch);
    }
    int rc = add_file(c, r->roll.file, r->epoch, r->roll.base);
    if (rc) {
        return kc_fail(err, rc, "chain: %s", kc_strerror(rc));
    }
    prev = &c->files[c->n_files - 2];
    prev->end = r->roll.base;
    prev->len = r->roll.prev_len;
    prev->crc = r->roll.prev_crc;
    return 0;
}

/* The copied tail of a seal: the rest of the epoch's last file, whole batches from `base` on, in a
 * file that nothing else names. */
static bool copy_fits(const struct ks_chain *c, const struct ks_chain_file *f,
                      const struct ks_rec *r)
{
    const struct ks_rescue *copy = &r->seal.copy;
    return copy->base >= f->base && copy->base < r->seal.end && copy->len > 0 &&
           (copy->base == f->base) == (r->seal.len == 0) && !file_of(c, copy->file);
}

/* Files of the sealed epoch end where the seal says; those after it hold nothing. Room for a copy's
 * file is there. */
static bool seal_files(struct ks_chain *c, struct ks_epoch *e, const struct ks_rec *r)
{
    uint32_t end;
    uint32_t at = ks_chain_files(c, e, &end);
    while (at < end && !ks_file_eq(c->files[at].id, r->seal.file)) {
        at++;
    }
    struct ks_chain_file *f = &c->files[at];
    if (at == end || f->base > r->seal.end || (f->end >= 0 && f->end < r->seal.end) ||
        (r->seal.rescued && !copy_fits(c, f, r))) {
        return false;
    }
    f->end = r->seal.rescued ? r->seal.copy.base : r->seal.end;
    f->len = r->seal.len;
    f->crc = r->seal.crc;
    f->rescued = r->seal.rescued ? r->seal.copy.len : 0;
    for (uint32_t j = at + 1; j < end; j++) {
        c->files[j].base = c->files[j].end = r->seal.end;
        c->files[j].len = 0;
    }
    if (r->seal.rescued) {
        struct ks_chain_file copy = {.id = r->seal.copy.file,
                                     .base = r->seal.copy.base,
                                     .end = r->seal.end,
                                     .len = r->seal.copy.len,
                                     .crc = r->seal.copy.crc,
                                     .epoch = e->epoch,
                                     .last_epoch = e->epoch};
        insert_file(c, at + 1, &copy);
    }
    return true;
}

static int apply_seal(struct ks_chain *c, const struct ks_rec *r, struct kc_err *err)
{
    struct ks_epoch *e = ks_chain_epoch(c, r->epoch);
    if (!e) {
        return kc_fail(err, KC_E_CORRUPT, "ctl.%llu seals epoch %d, which was never claimed",
                       (unsigned long long)r->k, r->epoch);
    }
    if (e->sealed) {
        c->late_seals++; /* the first one wins (I2) */
        return 0;
    }
    int rc = r->seal.rescued ? reserve_file(c) : 0;
    if (rc) {
        return kc_fail(err, rc, "chain: %s", kc_strerror(rc));
    }
    if (e->base < 0 || r->seal.end < e->base || !seal_files(c, e, r)) {
        return kc_fail(err, KC_E_CORRUPT, "ctl.%llu seals epoch %d at %lld, out of its range",
                       (unsigned long long)r->k, r->epoch, (long long)r->seal.end);
    }
    e->sealed = true;
    e->end = r->seal.end;
    return 0;
}

int ks_chain_gone(struct ks_chain *c, struct ks_file_id id)
{
    void *gone = c->gone;
    int rc = grow(&gone, &c->gone_room, c->n_gone, sizeof(*c->gone));
    c->gone = gone;
    if (!rc) {
        c->gone[c->n_gone++] = id;
    }
    return rc;
}

static void drop_file(struct ks_chain *c, struct ks_file_id id)
{
    for (uint32_t i = 0; i < c->n_files; i++) {
        if (ks_file_eq(c->files[i].id, id) && !c->files[i].replaced) {
            c->files[i].dropped = true;
        }
    }
}

static int apply_drop(struct ks_chain *c, const struct ks_rec *r, struct kc_err *err)
{
    struct ks_epoch *last = ks_chain_last(c);
    if (!last || last->epoch != r->epoch || last->sealed) {
        return kc_fail(err, KC_E_CORRUPT, "ctl.%llu: %s by epoch %d, which is not the owner",
                       (unsigned long long)r->k, ks_rec_type_name(r->type), r->epoch);
    }
    if (r->type == KS_COMPACT) {
        return ks_chain_compact(c, r, err);
    }
    for (uint16_t i = 0; i < r->drop.n_old; i++) {
        int rc = ks_chain_gone(c, r->drop.old[i]);
        if (rc) {
            return kc_fail(err, rc, "chain: %s", kc_strerror(rc));
        }
        drop_file(c, r->drop.old[i]);
    }
    c->log_start = KC_MAX(c->log_start, r->drop.start);
    return 0;
}

int ks_chain_apply(struct ks_chain *c, const struct ks_rec *r, struct kc_err *err)
{
    if (r->k != c->next_k) {
        return kc_fail(err, KC_E_CORRUPT, "ctl.%llu names itself ctl.%llu",
                       (unsigned long long)c->next_k, (unsigned long long)r->k);
    }
    int rc = 0;
    switch (r->type) {
    case KS_CLAIM:
        rc = apply_claim(c, r, err);
        break;
    case KS_ROLL:
        rc = apply_roll(c, r, err);
        break;
    case KS_SEAL:
        rc = apply_seal(c, r, err);
        break;
    case KS_COMPACT:
    case KS_TRIM:
        rc = apply_drop(c, r, err);
        break;
    }
    if (!rc) {
        c->next_k++;
        settle(c);
    }
    return rc;
}
