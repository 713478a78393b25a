/* What a COMPACT takes away, by the bytes on the server at the moment it is linked: only records that
 * a newer one of their key supersedes, and tombstones whose time is over. The newer one is in a file
 * that was finished by then, so that nothing which may yet be lost supersedes anything. What stays is
 * what it was, at its offset, in its batch. */
#include "ss_records.h"

#include "base/kc_hash.h"
#include "base/kc_mem.h"
#include "ss_srv.h"
#include "storage/ks_vol.h"

struct found {
    int64_t offset;
    uint64_t key, content; /* hashes */
    bool over; /* a tombstone that need not stay */
    bool replaced, stays;
};

struct content {
    struct found *rec;
    struct ks_batch *batch;
    uint32_t n_rec, rec_room, n_batch, batch_room;
};

static void content_free(struct content *c)
{
    kc_free(c->rec);
    kc_free(c->batch);
}

static void add(struct content *c, const struct ks_batch *b, const struct ks_record *r,
                const struct ks_record_kv *kv, int64_t now)
{
    if (c->n_rec == c->rec_room) {
        c->rec_room = KC_MAX(c->rec_room * 2, 64u);
        c->rec = kc_realloc(c->rec, c->rec_room * sizeof(*c->rec));
    }
    c->rec[c->n_rec++] = (struct found){
        .offset = b->base + r->offset_delta,
        .key = kc_hash64(kv->key, (size_t)kv->key_len),
        .content = kc_hash64_mix(kc_hash64(r->rest, r->rest_len), (uint64_t)r->timestamp),
        .over = !kv->value && (b->attrs & KS_ATTR_HORIZON) && b->base_ts <= now};
}

/* The batches and records in the first bytes of a file. NULL, or what is wrong with it. */
static const char *read_file(struct content *c, const char *path, uint64_t len, int64_t now)
{
    const struct ss_ino *ino = ss_srv_lookup(path);
    struct ks_batch b;
    if (!ino || ino->size < len) {
        return "a file that it names is not whole on the volume";
    }
    for (uint64_t at = 0; at < len; at += b.size) {
        const uint8_t *p = ino->data + at;
        struct ks_record_iter it;
        struct ks_record r;
        struct ks_record_kv kv;
        if (len - at < KS_BATCH_HEADER || !ks_batch_parse(p, &b) || b.size > len - at ||
            !ks_batch_crc_ok(p, &b)) {
            return "a file that it names holds no batches";
        }
        if (c->n_batch == c->batch_room) {
            c->batch_room = KC_MAX(c->batch_room * 2, 64u);
            c->batch = kc_realloc(c->batch, c->batch_room * sizeof(*c->batch));
        }
        c->batch[c->n_batch++] = b;
        ks_records_begin(&it, p, &b);
        while (ks_records_next(&it, &r) > 0) {
            if (!ks_record_kv(&r, &kv) || !kv.key) {
                return "a record has no key";
            }
            add(c, &b, &r, &kv, now);
        }
    }
    return NULL;
}

/* All of the log but its newest file, which may yet lose what is behind its last ack. */
static const char *read_log(struct content *c, const struct ss_compaction *cp)
{
    const struct ks_chain *chain = cp->chain;
    const char *wrong = NULL;
    for (uint32_t i = 0; i + 1 < chain->n_files && !wrong; i++) {
        const struct ks_chain_file *f = &chain->files[i];
        char path[KS_PATH_MAX];
        if (!f->dropped && !f->replaced && f->base >= 0 && f->end > f->base) {
            ks_path_file(path, &cp->topic, cp->partition, f->id);
            wrong = read_file(c, path, f->len, cp->now_wall_ms);
        }
    }
    return wrong;
}

/* The newest record of the key before that offset, of those that stay if stays. */
static int64_t newest(const struct content *c, uint64_t key, int64_t before, bool stays)
{
    for (uint32_t i = c->n_rec; i-- > 0;) {
        const struct found *f = &c->rec[i];
        if (f->key == key && f->offset < before && (f->stays || !stays)) {
            return f->offset;
        }
    }
    return -1;
}

/* Every batch of the replacement is one of those that it replaces, with its place, epoch, producer. */
static const char *check_batches(const struct content *log, const struct content *fresh,
                                 const struct ks_rec *r, int64_t *ret_at)
{
    uint32_t k = 0;
    int64_t last = -1;
    for (uint32_t i = 0; i < fresh->n_batch; i++) {
        const struct ks_batch *b = &fresh->batch[i];
        *ret_at = b->base;
        while (k < log->n_batch && log->batch[k].base < b->base) {
            k++;
        }
        const struct ks_batch *old = k < log->n_batch ? &log->batch[k] : NULL;
        if (!old || old->base != b->base || old->last_delta != b->last_delta ||
            old->epoch != b->epoch || old->producer_id != b->producer_id ||
            old->producer_epoch != b->producer_epoch || old->first_seq != b->first_seq) {
            return "I4: it writes a batch that was not there";
        }
        last = ks_batch_last(b);
    }
    return last + 1 == r->drop.end ? NULL : "its file ends before the files that it replaces";
}

/* Marks in log what stays. What lies before `start` is read by nobody: a tombstone there deletes
 * nothing any more. */
static const char *check_records(struct content *log, const struct content *fresh,
                                 const struct ks_rec *r, int64_t start, int64_t *ret_at)
{
    uint32_t k = 0;
    for (uint32_t i = 0; i < log->n_rec; i++) {
        struct found *f = &log->rec[i];
        *ret_at = f->offset;
        f->replaced = f->offset >= r->drop.start && f->offset < r->drop.end;
        bool there = f->replaced && k < fresh->n_rec && fresh->rec[k].offset == f->offset;
        if (there && fresh->rec[k].content != f->content) {
            return "I4: it changes a record";
        }
        k += there;
        f->stays = there || !f->replaced;
        if (!f->stays && !f->over && newest(log, f->key, INT64_MAX, false) == f->offset) {
            return "I1: it drops the last record of a key";
        }
        if (!f->stays && f->over && newest(log, f->key, f->offset, true) >= start) {
            return "it drops a tombstone before what that deletes";
        }
    }
    *ret_at = k < fresh->n_rec ? fresh->rec[k].offset : -1;
    return k < fresh->n_rec ? "I4: it writes a record that was not there" : NULL;
}

/* No key has two records before r->drop.clean, of those that can be read. */
static const char *check_clean(const struct content *log, const struct ks_rec *r, int64_t start,
                               int64_t *ret_at)
{
    for (uint32_t i = 0; i < log->n_rec; i++) {
        const struct found *f = &log->rec[i];
        *ret_at = f->offset;
        if (f->stays && f->offset >= start && f->offset < r->drop.clean &&
            newest(log, f->key, r->drop.clean, true) != f->offset) {
            return "it calls clean where a key has two records";
        }
    }
    return NULL;
}

const char *ss_compact_check(struct ss_compaction *cp, const struct ks_rec *r)
{
    struct content log = {0}, fresh = {0};
    char path[KS_PATH_MAX];
    cp->at = r->drop.start;
    const char *wrong = r->drop.n_new == 1 ? read_log(&log, cp) : "it adds nothing";
    if (!wrong) {
        ks_path_file(path, &cp->topic, cp->partition, r->drop.new_files[0].file);
        wrong = read_file(&fresh, path, r->drop.new_files[0].len, cp->now_wall_ms);
    }
    wrong = wrong ? wrong : check_batches(&log, &fresh, r, &cp->at);
    wrong = wrong ? wrong : check_records(&log, &fresh, r, cp->chain->log_start, &cp->at);
    wrong = wrong ? wrong : check_clean(&log, r, cp->chain->log_start, &cp->at);
    for (uint32_t i = 0; i < log.n_rec && !wrong; i++) {
        if (!log.rec[i].stays && log.rec[i].offset < cp->n_gone) {
            cp->gone[log.rec[i].offset] = 1;
            cp->removed++;
        }
    }
    content_free(&log);
    content_free(&fresh);
    return wrong;
}
