#include "storage/ks_fsck_int.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "storage/ks_frames.h"
#include "storage/ks_hint.h"
#include "storage/ks_probe.h"
#include "storage/ks_scan.h"
#include "storage/ks_state.h"
#include "storage/ks_vol.h"

enum { PARTITIONS_MAX = 1 << 20 };

struct fsck {
    const struct ks_fsck_opts *opts;
    struct ks_fsck_result *r;
    struct ks_fs fs;
    /* the partition at hand */
    struct kc_uuid topic;
    char topic_text[KC_UUID_B64_LEN + 1];
    int32_t partition;
    struct ks_chain chain;
};

KC_PRINTF(3, 4) static void say(struct fsck *f, bool error, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(f->opts->out, "%s/%d: %s", f->topic_text, f->partition, error ? "ERROR " : "");
    vfprintf(f->opts->out, fmt, ap);
    fputc('\n', f->opts->out);
    va_end(ap);
    f->r->errors += error;
}

/* What could not be read is not called well. */
static void unreadable(struct fsck *f, const char *path, int rc)
{
    fprintf(f->opts->out, "ERROR %s: %s\n", path, kc_strerror(rc));
    f->r->errors++;
}

static int count_batch(void *arg, const struct ks_batch *b, uint64_t pos)
{
    struct fsck *f = arg;
    (void)pos;
    f->r->batches++;
    f->r->bytes += b->size;
    return 0;
}

static void leftover(struct fsck *f, const char *name, const char *why)
{
    f->r->leftovers++;
    if (f->opts->verbose) {
        say(f, false, "%s: left over, %s", name, why);
    }
}

static void check_file(struct fsck *f, const struct ks_chain_file *cf)
{
    char path[KS_PATH_MAX], name[KS_FILE_NAME_LEN];
    ks_path_file(path, &f->topic, f->partition, cf->id);
    ks_file_name(cf->id, name);
    int fd = ks_fs_open(&f->fs, path, KS_READ);
    if (cf->dropped || fd < 0) {
        if (fd >= 0) {
            ks_fs_close(&f->fs, fd);
            leftover(f, name, "a record dropped it");
        } else if (!cf->dropped && cf->end > cf->base) {
            say(f, true, "%s: %s (offsets %" PRId64 " to %" PRId64 ")", name, kc_strerror(fd),
                cf->base, cf->end - 1);
        }
        return;
    }
    struct ks_scan s = {.fd = fd,
                        .epoch = cf->last_epoch,
                        .gaps = cf->compacted,
                        .first_epoch = cf->epoch,
                        .limit = cf->len,
                        .end = cf->end,
                        .crc = true,
                        .next = cf->base};
    struct ks_stat st = {0};
    int rc = ks_scan(&f->fs, &s, count_batch, f);
    rc = rc ? rc : ks_fs_stat(&f->fs, fd, &st);
    ks_fs_close(&f->fs, fd);
    f->r->files++;
    if (rc) {
        say(f, true, "%s: %s", name, kc_strerror(rc));
    } else if (s.next != cf->end || s.pos != cf->len) {
        say(f, true,
            "%s: valid up to offset %" PRId64 " at byte %" PRIu64 ", sealed up to %" PRId64
            " at byte %" PRIu64,
            name, s.next, s.pos, cf->end, cf->len);
    } else if (cf->len && s.last_crc != cf->crc) {
        say(f, true, "%s: the last batch is not the one that was sealed", name);
    } else if (f->opts->verbose) {
        say(f, false, "%s: epoch %d, offsets %" PRId64 " to %" PRId64 ", %" PRIu64 " bytes", name,
            cf->epoch, cf->base, cf->end - 1, cf->len);
    }
    uint64_t known = cf->len + cf->rescued, late = st.size > known ? st.size - known : 0;
    f->r->zombie_bytes += late;
    if (late && f->opts->verbose) {
        say(f, false, "%s: %" PRIu64 " bytes beyond the seal, never served", name, late);
    }
}

/* The seal that a claimant would append, without the copy: that one's file does not exist. */
static int imagine_scan(struct fsck *f, const struct ks_epoch *e, struct ks_rec *ret,
                        struct kc_err *err)
{
    struct ks_epoch_scan s = {.fs = &f->fs,
                              .topic = f->topic,
                              .partition = f->partition,
                              .chain = &f->chain,
                              .epoch = e,
                              .unconfirmed = KS_UNCONFIRMED_EVER,
                              .limit = INT64_MAX};
    char inc[KC_UUID_HEX_LEN + 1];
    kc_uuid_to_hex(&e->incarnation, inc);
    int rc = ks_epoch_scan(&s, err);
    if (rc) {
        return rc;
    }
    ks_fs_close(&f->fs, s.fd);
    ks_epoch_seal(&s, ret);
    say(f, false, "takeover: fence broker %d (%s), seal epoch %d at offset %" PRId64, e->broker,
        inc, e->epoch, s.end);
    if (s.len > s.tail_pos && ks_fs_network(&f->fs)) {
        say(f, false, "takeover: copy %" PRIu64 " bytes first, from offset %" PRId64 " on",
            s.len - s.tail_pos, s.tail_base);
    } else if (s.len > s.tail_pos) {
        say(f, false, "takeover: sync the file first, it is on a file system of this machine");
    }
    return 0;
}

/* What the next claimant would do with an open epoch; the seal is applied in memory only. */
static bool imagine_seal(struct fsck *f, const struct ks_epoch *e)
{
    struct kc_err err = {0};
    struct ks_rec r = {.type = KS_SEAL, .k = f->chain.next_k, .epoch = e->epoch};
    f->r->open_epochs++;
    int rc = 0;
    if (e->never_opened) {
        r.seal.file = f->chain.files[e->first_file].id;
        r.seal.end = e->base;
        say(f, false, "takeover: seal epoch %d empty, it never opened", e->epoch);
    } else {
        rc = imagine_scan(f, e, &r, &err);
    }
    rc = rc ? rc : ks_chain_apply(&f->chain, &r, &err);
    if (rc) {
        say(f, true, "epoch %d: %s", e->epoch, err.msg);
    }
    return rc == 0;
}

static bool named(const struct ks_chain *c, const char *name)
{
    for (uint32_t i = 0; i < c->n_files; i++) {
        char known[KS_FILE_NAME_LEN];
        ks_file_name(c->files[i].id, known);
        if (strcmp(known, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Hints are never believed without a check, so a bad one is no error: it only costs time. */
static bool hint_ok(struct fsck *f, const char *name)
{
    struct ks_hint h;
    uint64_t bytes = 0;
    if (ks_hint_read(&f->fs, &f->topic, f->partition, name, &h, &bytes)) {
        return false;
    }
    bool ok = h.snap && ks_snap_fits(&f->fs, &h, &f->chain);
    for (uint32_t i = 0; !h.snap && !ok && i < f->chain.n_files; i++) {
        const struct ks_chain_file *cf = &f->chain.files[i];
        struct ks_seg seg = {.base = cf->base, .end = cf->end, .len = cf->len, .epoch = cf->epoch};
        char path[KS_PATH_MAX];
        if (!ks_file_eq(cf->id, h.file)) {
            continue;
        }
        ks_path_file(path, &f->topic, f->partition, cf->id);
        int fd = ks_fs_open(&f->fs, path, KS_READ);
        ok = fd >= 0 && ks_idx_fits(&f->fs, &h, cf->id, &seg, fd);
        if (fd >= 0) {
            ks_fs_close(&f->fs, fd);
        }
    }
    ks_hint_fini(&h);
    return ok;
}

static void check_hint(struct fsck *f, const char *name)
{
    f->r->hints++;
    if (!hint_ok(f, name)) {
        f->r->bad_hints++;
        say(f, false, "%s: does not verify; harmless, it will be ignored", name);
    }
}

static bool on_file(void *arg, const char *name)
{
    struct fsck *f = arg;
    struct ks_file_id of;
    if (ks_hint_name_parse(name, &of)) {
        check_hint(f, name);
    } else if (ks_file_parse(name, &of) && !named(&f->chain, name)) {
        leftover(f, name, "no record names it");
    }
    return true;
}

static void check_partition(struct fsck *f)
{
    struct kc_err err = {0};
    char dir[KS_PATH_MAX];
    ks_chain_init(&f->chain);
    f->r->partitions++;
    int rc = ks_chain_load(&f->fs, &f->topic, f->partition, 0, &f->chain, &err);
    if (rc) {
        say(f, true, "%s", err.msg);
        ks_chain_fini(&f->chain);
        return;
    }
    f->r->epochs += f->chain.n_epochs;
    if (f->chain.late_seals) {
        say(f, true, "%u epochs were sealed twice", f->chain.late_seals);
    }
    bool sealed = true;
    while (sealed) {
        const struct ks_epoch *open = ks_chain_unsealed(&f->chain, INT32_MAX);
        if (!open) {
            break;
        }
        sealed = imagine_seal(f, open);
    }
    for (uint32_t i = 0; i < f->chain.n_files; i++) {
        if (f->chain.files[i].base >= 0 && f->chain.files[i].end >= 0) {
            check_file(f, &f->chain.files[i]);
        }
    }
    ks_path_part(dir, &f->topic, f->partition, NULL);
    rc = ks_fs_list(&f->fs, dir, on_file, f);
    if (rc) {
        unreadable(f, dir, rc);
    }
    ks_chain_fini(&f->chain);
}

static bool on_partition(void *arg, const char *name)
{
    struct fsck *f = arg;
    int32_t n;
    if (kc_parse_i32(kc_str_of(name), &n) == 0 && n >= 0 && n < PARTITIONS_MAX) {
        f->partition = n;
        check_partition(f);
    }
    return true;
}

/* A tombstone stands: what is left of the topic is on its way out, in any order (ADR 11). */
static bool is_deleted(struct fsck *f)
{
    char grave[KS_PATH_MAX];
    snprintf(grave, sizeof(grave), "deleted/%s", f->topic_text);
    int fd = ks_fs_open(&f->fs, grave, KS_HANDLE);
    if (fd < 0) {
        return false;
    }
    ks_fs_close(&f->fs, fd);
    fprintf(f->opts->out, "topics/%s is deleted, its files are being removed\n", f->topic_text);
    return true;
}

static bool on_topic(void *arg, const char *name)
{
    struct fsck *f = arg;
    char dir[KS_PATH_MAX];
    if (kc_uuid_from_b64(kc_str_of(name), &f->topic) == 0) {
        kc_uuid_to_b64(&f->topic, f->topic_text);
        if (is_deleted(f)) {
            f->r->deleted++;
            return true;
        }
        f->r->topics++;
        ks_path_topic(dir, &f->topic, NULL);
        int rc = ks_fs_list(&f->fs, dir, on_partition, f);
        if (rc) {
            unreadable(f, dir, rc);
        }
    }
    return true;
}

struct broker_dir {
    struct fsck *f;
    int32_t broker;
};

static bool on_claim_file(void *arg, const char *name)
{
    struct broker_dir *d = arg;
    struct kc_uuid inc;
    char path[KS_PATH_MAX];
    const char *why;
    uint32_t n;
    d->f->r->journals += ks_journal_named(name, &inc, &n);
    if (kc_uuid_from_hex(kc_str_of(name), &inc)) {
        return true;
    }
    ks_path_inc(path, d->broker, &inc);
    int fd = ks_fs_open(&d->f->fs, path, KS_HANDLE);
    if (fd >= 0) {
        bool live = ks_inc_check(&d->f->fs, fd, &why) == 0;
        d->f->r->live += live;
        d->f->r->fenced += !live;
        ks_fs_close(&d->f->fs, fd);
    } else if (fd != -ENOENT) { /* gone meanwhile: fenced, and nothing to count */
        unreadable(d->f, path, fd);
    }
    return true;
}

static bool on_broker(void *arg, const char *name)
{
    struct broker_dir d = {.f = arg};
    char dir[KS_PATH_MAX];
    if (kc_parse_i32(kc_str_of(name), &d.broker) == 0) {
        snprintf(dir, sizeof(dir), "inc/%d", d.broker);
        int rc = ks_fs_list(&d.f->fs, dir, on_claim_file, &d);
        if (rc) {
            unreadable(d.f, dir, rc);
        }
    }
    return true;
}

int ks_fsck_on(const struct ks_fs *fs, const struct ks_fsck_opts *opts, struct ks_fsck_result *ret,
               struct kc_err *err)
{
    struct fsck *f = kc_zalloc(sizeof(*f));
    *ret = (struct ks_fsck_result){0};
    f->opts = opts;
    f->r = ret;
    ks_fs_init(&f->fs, fs->ops, fs->ctx);
    int rc = ks_fs_list(&f->fs, "inc", on_broker, f);
    rc = rc ? rc : ks_fs_list(&f->fs, "topics", on_topic, f);
    if (!rc) {
        ks_fsck_names(&(struct ks_fsck_names){
            .fs = &f->fs, .out = opts->out, .verbose = opts->verbose, .r = ret});
    }
    kc_free(f);
    if (rc) {
        return kc_fail(err, rc, "%s is no volume of kaas: %s", opts->dir, kc_strerror(rc));
    }
    fprintf(opts->out,
            "%" PRIu64 " topics, %" PRIu64 " partitions, %" PRIu64 " epochs (%" PRIu64
            " open), %" PRIu64 " files, %" PRIu64 " batches, %" PRIu64 " bytes; %" PRIu64
            " bytes beyond seals, %" PRIu64 " left-over files; %" PRIu64 " hints (%" PRIu64
            " unusable); claim files: %" PRIu64 " live, %" PRIu64 " fenced; %" PRIu64
            " journals, %" PRIu64 " tombstones; names: %" PRIu64 " temporary, %" PRIu64
            " strange, %" PRIu64 " not served; %" PRIu64 " errors\n",
            ret->topics, ret->partitions, ret->epochs, ret->open_epochs, ret->files, ret->batches,
            ret->bytes, ret->zombie_bytes, ret->leftovers, ret->hints, ret->bad_hints, ret->live,
            ret->fenced, ret->journals, ret->tombstones, ret->temporary, ret->strange,
            ret->unlisted, ret->errors);
    return ret->errors ? kc_fail(err, KC_E_CORRUPT, "%" PRIu64 " errors", ret->errors) : 0;
}

int ks_fsck(const struct ks_fsck_opts *opts, struct ks_fsck_result *ret, struct kc_err *err)
{
    struct ks_fs fs;
    *ret = (struct ks_fsck_result){0};
    int rc = ks_fs_posix(&fs, opts->dir, err);
    if (rc == 0) {
        rc = ks_fsck_on(&fs, opts, ret, err);
        ks_fs_fini(&fs);
    }
    return rc;
}

int ks_fsck_probe(const char *dir, FILE *out, struct kc_err *err)
{
    struct ks_fs fs;
    struct ks_probe p;
    int rc = ks_fs_posix(&fs, dir, err);
    if (rc) {
        return rc;
    }
    rc = ks_probe_run(&fs, &p, err);
    ks_fs_fini(&fs);
    if (rc == 0) {
        fprintf(out,
                "%s: exclusive links, link counts, forced attributes and directory sync hold; "
                "4 KiB written and synced in %" PRId64 " us\n",
                dir, p.sync_us);
    }
    return rc;
}
