/* Takeover of a partition (storage.md, steps 1 to 6): claim, fence, scan, seal, rebuild.
 *
 * The order of the steps is the safety argument: an epoch is scanned only after its owner's claim
 * file is fenced (or it is our own, or it can never have opened), so nothing can be acked in it any
 * more that the scan does not see. Whoever loses a race for a chain name reads what stands there and
 * never goes on as if it had won. */
#include "storage/ks_int.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "storage/ks_scan.h"

enum { RACES_MAX = 16 };

void ks_takeover_init(struct ks_takeover *t, struct ks_log *log)
{
    *t = (struct ks_takeover){.log = log, .epoch = -1, .blocker_broker = KP_NO_BROKER};
    ks_chain_init(&t->chain);
    ks_build_init(&t->build, &log->e->fs, &log->e->fds, &log->topic, log->partition);
    t->build.hint_worth = (uint64_t)log->e->checkpoint_bytes / KS_CKPT_WORTH_SHARE;
}

struct leftover {
    struct rt_work work;
    struct ks_file *file;
    struct ks_engine *e;
};

static void remove_leftover(struct rt_work *w)
{
    struct leftover *l = KC_CONTAINER_OF(w, struct leftover, work);
    char path[KS_PATH_MAX];
    ks_path_file(path, &l->file->topic, l->file->partition, l->file->id);
    ks_fs_unlink(&l->e->fs, path);
    ks_file_unref(l->file);
    kc_free(l);
}

void ks_takeover_fini(struct ks_takeover *t)
{
    ks_chain_fini(&t->chain);
    ks_build_fini(&t->build);
    if (t->file && !t->file_named) { /* no record names it: ours to remove, but not on a loop */
        struct leftover *l = kc_zalloc(sizeof(*l));
        l->work.fn = remove_leftover;
        l->file = t->file;
        l->e = t->log->e;
        ks_engine_defer(t->log->e, &l->work);
    } else {
        ks_file_unref(t->file);
    }
    t->file = NULL;
}

static bool cancelled(const struct ks_takeover *t)
{
    return t->cancelled && atomic_load(t->cancelled);
}

static int sync_part(struct ks_takeover *t)
{
    char dir[KS_PATH_MAX];
    ks_path_part(dir, &t->log->topic, t->log->partition, NULL);
    int rc = ks_fs_syncdir(&t->log->e->fs, dir);
    t->synced_k = rc ? t->synced_k : t->chain.next_k;
    return rc;
}

/* Before the next record is linked the names of those before it are on the disk: after a crash, a
 * file system that does not keep the order of names would show a chain with a gap (I7). Where it does,
 * the record's own name is followed by a sync, and that is enough (ADR 23). */
static int sync_chain(struct ks_takeover *t)
{
    return t->synced_k < t->chain.next_k && !ks_fs_ordered(&t->log->e->fs) ? sync_part(t) : 0;
}

static int create_dirs(const struct ks_takeover *t, struct kc_err *err)
{
    struct ks_fs *fs = &t->log->e->fs;
    char topic[KS_PATH_MAX], part[KS_PATH_MAX];
    int rc = ks_graves_look(t->log->e, &t->log->topic, err);
    if (rc) {
        return rc;
    }
    ks_path_topic(topic, &t->log->topic, NULL);
    ks_path_part(part, &t->log->topic, t->log->partition, NULL);
    rc = ks_fs_mkdir(fs, topic);
    rc = rc < 0 ? rc : ks_fs_mkdir(fs, part);
    return rc < 0 ? kc_fail(err, rc, "%s: %s", part, kc_strerror(rc)) : 0;
}

/* Before a chain begins its directory is on the disk, whoever made it: one that was there already may
 * be of somebody who ended before its name was synced. The sync behind the claim covers that, too,
 * where names keep their order (ADR 23). */
static int sync_parents(const struct ks_takeover *t)
{
    char topic[KS_PATH_MAX];
    if (ks_fs_ordered(&t->log->e->fs)) {
        return 0;
    }
    ks_path_topic(topic, &t->log->topic, NULL);
    int rc = ks_fs_syncdir(&t->log->e->fs, "topics");
    return rc ? rc : ks_fs_syncdir(&t->log->e->fs, topic);
}

static int load(struct ks_takeover *t, struct kc_err *err)
{
    struct ks_log *log = t->log;
    int rc = ks_chain_load(&log->e->fs, &log->topic, log->partition, t->known_k, &t->chain, err);
    if (rc == KC_E_NOT_FOUND && t->may_create) {
        rc = create_dirs(t, err);
    }
    return rc;
}

static bool is_ours(const struct ks_takeover *t, const struct ks_epoch *e)
{
    return kc_uuid_eq(&e->incarnation, &t->log->inc->id);
}

/* Orders of one uid are ordered by (term, generation); others are not compared. */
static bool order_older(const struct kp_order *a, const struct kp_order *b)
{
    return strcmp(a->uid, b->uid) == 0 &&
           (a->term < b->term || (a->term == b->term && a->generation < b->generation));
}

/* Step 1: may we claim at all? */
static int may_claim(struct ks_takeover *t, struct kc_err *err)
{
    const struct ks_epoch *last = ks_chain_last(&t->chain);
    if (last && order_older(&t->log->order, &last->order)) {
        return kc_fail(err, KC_E_DEPOSED, "broker %d claimed epoch %d under a newer order",
                       last->broker, last->epoch);
    }
    if (t->recovery && (!last || !is_ours(t, last))) {
        return kc_fail(err, KC_E_DEPOSED, "a newer claim stands in the chain");
    }
    for (uint32_t i = 0; i < t->chain.n_epochs; i++) {
        const struct ks_epoch *e = &t->chain.epochs[i];
        if (e->sealed || is_ours(t, e)) {
            continue;
        }
        if (!t->condemned || !t->condemned(t->condemned_ctx, e->broker, &e->incarnation)) {
            t->blocker_broker = e->broker;
            t->blocker = e->incarnation;
            return kc_fail(err, KC_E_BLOCKED, "epoch %d is open at live broker %d", e->epoch,
                           e->broker);
        }
    }
    return 0;
}

/* The first data file, before the claim that names it. */
static int make_file(struct ks_takeover *t)
{
    int rc = ks_data_file_new(t->log, &t->file);
    return rc || ks_fs_ordered(&t->log->e->fs) ? rc : sync_part(t);
}

/* Steps 1 and 2. KC_E_EXISTS: another claimant or sealer was faster; list again. */
static int claim(struct ks_takeover *t, struct kc_err *err)
{
    struct ks_log *log = t->log;
    const struct ks_epoch *last = ks_chain_last(&t->chain);
    int rc = 0;
    if (!t->file) {
        rc = make_file(t);
    }
    rc = rc ? rc : sync_chain(t);
    rc = !rc && t->chain.next_k == 0 ? sync_parents(t) : rc;
    struct ks_rec r = {
        .type = KS_CLAIM,
        .k = t->chain.next_k,
        .epoch = last ? last->epoch + 1 : 0,
    };
    if (!rc) {
        r.claim.broker = log->e->broker_id;
        r.claim.incarnation = log->inc->id;
        r.claim.order = log->order;
        r.claim.file = t->file->id;
        rc = ks_chain_append(&log->e->fs, &log->topic, log->partition, &r, NULL, NULL);
        t->file_named = r.issued && rc != KC_E_EXISTS; /* also if the outcome is unknown */
    }
    if (rc) {
        return kc_fail(err, rc, "claim of epoch %d: %s", r.epoch, kc_strerror(rc));
    }
    t->epoch = r.epoch;
    if (!atomic_exchange(&log->inc->claimed, true)) {
        ks_tidy_now(log->e);
    }
    return ks_chain_apply(&t->chain, &r, err);
}

static void remove_copy(struct ks_takeover *t, struct ks_file_id id)
{
    char path[KS_PATH_MAX];
    ks_path_file(path, &t->log->topic, t->log->partition, id);
    ks_fs_unlink(&t->log->e->fs, path); /* what stays behind only costs room */
}

/* In a new file, each time: after an error a file is not to be trusted. */
static int copy_tail(struct ks_takeover *t, const struct ks_epoch_scan *s, struct ks_rec *ret)
{
    struct ks_fs *fs = &t->log->e->fs;
    struct ks_file_id id;
    int fd = ks_data_file_create(t->log, &id);
    int rc = fd < 0 ? fd : ks_tail_copy(s, fd, id, ret);
    int closed = fd < 0 ? 0 : ks_fs_close(fs, fd);
    rc = rc ? rc : closed;
    rc = rc || !ret->seal.rescued || ks_fs_ordered(fs) ? rc : sync_part(t);
    if (fd >= 0 && (rc || !ret->seal.rescued)) {
        remove_copy(t, id); /* no record names it */
    }
    return rc;
}

/* ADR 10: what was scanned at the end of the file may be in the server's cache only. force: the file
 * had an error, so a sync of it proves nothing. */
static int rescue(struct ks_takeover *t, const struct ks_epoch_scan *s, bool force,
                  struct ks_rec *ret, struct kc_err *err)
{
    struct ks_fs *fs = &t->log->e->fs;
    int rc;
    ks_epoch_seal(s, ret);
    /* Bytes of frames are copied in any case: their owner may have been told that the file failed, and
     * what this machine's cache shows of it proves nothing (ADR 13, J6). */
    bool framed = s->overlay.n && s->overlay.first->f.pos < s->len;
    if (s->tail_pos == s->len ||
        (!force && !framed && !ks_fs_network(fs) && ks_fs_datasync(fs, s->fd) == 0)) {
        return 0;
    }
    do {
        rc = copy_tail(t, s, ret);
    } while (ks_fs_make_room(fs, rc));
    return rc ? kc_fail(err, rc, "copy of a tail: %s", kc_strerror(rc)) : 0;
}

/* Where the scan of an epoch may start: a snapshot that its owner wrote in it. Looked for after the
 * fence, and only if there is something to save. */
static bool scan_start(struct ks_takeover *t, const struct ks_epoch *e, struct ks_scan_start *ret)
{
    struct ks_log *log = t->log;
    struct ks_fs *fs = &log->e->fs;
    struct ks_snaps snaps;
    struct ks_hint h;
    uint32_t end, first = ks_chain_files(&t->chain, e, &end);
    if (end - first == 1) {
        char path[KS_PATH_MAX];
        struct ks_stat st = {0};
        ks_path_file(path, &log->topic, log->partition, t->chain.files[first].id);
        int fd = ks_fs_open(fs, path, KS_HANDLE);
        int rc = fd < 0 ? fd : ks_fs_stat(fs, fd, &st);
        if (fd >= 0) {
            ks_fs_close(fs, fd);
        }
        if (rc || st.size < t->build.hint_worth) {
            return false;
        }
    }
    if (ks_snaps_list(fs, &log->topic, log->partition, &snaps) ||
        ks_snap_newest(fs, &t->chain, &log->topic, log->partition, &snaps, &h, &t->scanned)) {
        return false;
    }
    bool found = h.seg.epoch == e->epoch;
    *ret = (struct ks_scan_start){
        .file = h.file, .pos = h.seg.len, .next = h.seg.end, .crc = h.seg.last_crc};
    ks_hint_fini(&h);
    return found;
}

/* Step 4: the longest valid prefix of an epoch's files, opened after the fence and after the journals
 * of its incarnation were read (ADR 13, J3). o: what we know of the epoch ourselves, or NULL. */
static int scan_once(struct ks_takeover *t, const struct ks_epoch *e, const struct ks_orphan *o,
                     uint64_t since, struct ks_rec *ret, struct kc_err *err)
{
    struct ks_engine *eng = t->log->e;
    struct ks_frames *frames;
    int rc = ks_framed_get(eng, e->broker, &e->incarnation, since, &frames, err);
    if (rc) {
        return rc;
    }
    struct ks_epoch_scan s = {.fs = &eng->fs,
                              .topic = t->log->topic,
                              .partition = t->log->partition,
                              .chain = &t->chain,
                              .epoch = e,
                              .unconfirmed =
                                  eng->unconfirmed + (KS_UNCONFIRMED_EVER - KS_UNCONFIRMED_MAX),
                              .frames = frames,
                              .limit = o ? o->end : INT64_MAX};
    struct ks_scan_start from;
    s.from = scan_start(t, e, &from) ? &from : NULL;
    rc = ks_epoch_scan(&s, err);
    t->scanned += s.read;
    if (!rc) {
        rc = rescue(t, &s, o != NULL, ret, err);
        ks_fs_close(&eng->fs, s.fd);
    }
    ks_frames_unref(frames);
    return rc;
}

/* since: of ks_framed_get. A journal that goes away meanwhile has done its duty (J2): all over again,
 * the listing is without it, and the file, opened anew, has its bytes (J9). */
static int scan_epoch(struct ks_takeover *t, const struct ks_epoch *e, const struct ks_orphan *o,
                      uint64_t since, struct ks_rec *ret, struct kc_err *err)
{
    int rc = -ESTALE;
    for (int i = 0; i <= KS_JOURNALS && rc == -ESTALE; i++) {
        rc = scan_once(t, e, o, since, ret, err);
        since = ks_framed_stamp(t->log->e);
    }
    return rc;
}

static bool orphan_of(struct ks_takeover *t, const struct ks_epoch *e, struct ks_orphan *ret)
{
    struct ks_engine *eng = t->log->e;
    struct ks_key key = ks_key_of(&t->log->topic, t->log->partition);
    pthread_mutex_lock(&eng->lock);
    const struct ks_orphan *o = kc_map_get(&eng->orphans, &key, sizeof(key));
    bool found = o && o->epoch == e->epoch && kc_uuid_eq(&o->incarnation, &e->incarnation);
    if (found) {
        *ret = *o;
    }
    pthread_mutex_unlock(&eng->lock);
    return found;
}

/* Our own older epoch: the acked length is known better than any file tells (a file with an error
 * lies). Without it, nothing of ours writes there any more: scan. */
static int own_end(struct ks_takeover *t, const struct ks_epoch *e, struct ks_rec *ret,
                   struct kc_err *err)
{
    struct ks_orphan o;
    if (!orphan_of(t, e, &o)) {
        return scan_epoch(t, e, NULL, ks_framed_stamp(t->log->e), ret, err);
    }
    if (!o.synced) { /* acked without a sync of the file: not before a copy is made */
        return scan_epoch(t, e, &o, o.stamp, ret, err);
    }
    ret->seal.file = o.file;
    ret->seal.end = o.end;
    ret->seal.len = o.len;
    ret->seal.crc = o.crc;
    return 0;
}

/* Step 3. A fence is for ever, so the partitions of one dead incarnation need it once. *ret_stamp: a
 * reading of its journals that began after this one began after the fence. */
static int fence(struct ks_takeover *t, const struct ks_epoch *e, uint64_t *ret_stamp)
{
    struct ks_engine *eng = t->log->e;
    const uint8_t *inc = e->incarnation.b;
    pthread_mutex_lock(&eng->lock);
    const uint64_t *done = kc_map_get(&eng->condemned, inc, sizeof(e->incarnation.b));
    *ret_stamp = done ? *done : 0;
    pthread_mutex_unlock(&eng->lock);
    int rc = done ? 0 : ks_inc_fence(&eng->fs, e->broker, &e->incarnation);
    if (!done && !rc) {
        uint64_t *stamp = kc_alloc(sizeof(*stamp));
        *stamp = *ret_stamp = ks_framed_stamp(eng);
        pthread_mutex_lock(&eng->lock);
        kc_free(kc_map_put(&eng->condemned, inc, sizeof(e->incarnation.b), stamp));
        pthread_mutex_unlock(&eng->lock);
    }
    return rc;
}

/* Steps 3 and 4 for one epoch: where does it end? */
static int find_end(struct ks_takeover *t, const struct ks_epoch *e, struct ks_rec *ret,
                    struct kc_err *err)
{
    if (e->never_opened) { /* nothing can have been acked in it: empty, without a fence (M12) */
        ret->seal.file = t->chain.files[e->first_file].id;
        ret->seal.end = e->base;
        return 0;
    }
    if (is_ours(t, e)) {
        return own_end(t, e, ret, err);
    }
    uint64_t stamp;
    int rc = fence(t, e, &stamp);
    if (rc) {
        return kc_fail(err, rc, "fence of broker %d: %s", e->broker, kc_strerror(rc));
    }
    return scan_epoch(t, e, NULL, stamp, ret, err);
}

/* Steps 3 to 5 for one epoch. */
static int seal_epoch(struct ks_takeover *t, int32_t epoch, struct kc_err *err)
{
    struct ks_log *log = t->log;
    for (int race = 0; race < RACES_MAX; race++) {
        const struct ks_epoch *e = ks_chain_epoch(&t->chain, epoch);
        if (e->sealed) {
            return 0; /* also somebody else's seal: adopted, never our own length (M6) */
        }
        struct ks_rec r = {.type = KS_SEAL, .k = t->chain.next_k, .epoch = epoch};
        int rc = find_end(t, e, &r, err);
        if (rc) {
            return rc;
        }
        rc = sync_chain(t);
        rc = rc ? rc : ks_chain_append(&log->e->fs, &log->topic, log->partition, &r, NULL, NULL);
        if (rc == 0) {
            return ks_chain_apply(&t->chain, &r, err);
        }
        /* The copy goes if no record can name it any more; after an unknown outcome it stays (ADR 12). */
        if (r.seal.rescued && (rc == KC_E_EXISTS || !r.issued)) {
            remove_copy(t, r.seal.copy.file);
        }
        if (rc != KC_E_EXISTS) {
            return kc_fail(err, rc, "seal of epoch %d: %s", epoch, kc_strerror(rc));
        }
        t->known_k = t->chain.next_k + 1;
        rc = load(t, err);
        if (rc) {
            return rc;
        }
        if (ks_chain_last(&t->chain)->epoch != t->epoch) {
            return kc_fail(err, KC_E_DEPOSED, "a newer claim stands in the chain"); /* M13 */
        }
    }
    return kc_fail(err, KC_E_BUSY, "the seal of epoch %d lost %d races", epoch, RACES_MAX);
}

int ks_takeover_warm(struct ks_takeover *t, struct kc_err *err)
{
    int rc;
    uint64_t before;
    t->build.cancelled = t->cancelled;
    do { /* the live owner may drop files under our feet, after its record says so */
        before = t->chain.next_k;
        rc = load(t, err);
        rc = rc ? rc : ks_build_run(&t->build, &t->chain, err);
    } while (rc == KC_E_CORRUPT && t->chain.next_k > before);
    if (!rc) {
        ks_build_peek(&t->build, &t->chain);
    }
    if (!rc && !t->file) {
        rc = make_file(t);
        if (rc) {
            return kc_fail(err, rc, "data file: %s", kc_strerror(rc));
        }
    }
    return rc;
}

static int claim_somehow(struct ks_takeover *t, struct kc_err *err)
{
    for (int race = 0; race < RACES_MAX; race++) {
        int rc = load(t, err);
        rc = rc ? rc : may_claim(t, err);
        if (!rc && cancelled(t)) {
            return kc_fail(err, KC_E_CANCELLED, "cancelled");
        }
        rc = rc ? rc : claim(t, err);
        if (rc != KC_E_EXISTS) {
            return rc;
        }
        t->known_k = t->chain.next_k + 1;
    }
    return kc_fail(err, KC_E_BUSY, "the claim lost %d races", RACES_MAX);
}

static int claim_and_seal(struct ks_takeover *t, struct kc_err *err)
{
    t->build.cancelled = t->cancelled;
    if (!ks_engine_current(t->log->e, t->log->inc)) {
        return kc_fail(err, KC_E_FENCED, "%s", kc_strerror(KC_E_FENCED));
    }
    int rc = claim_somehow(t, err);
    for (int32_t i = 0; !rc && i < t->epoch; i++) {
        if (!ks_chain_epoch(&t->chain, i)->sealed) {
            rc = seal_epoch(t, i, err);
        }
    }
    if (!rc && (rc = sync_part(t))) {
        kc_fail(err, rc, "directory: %s", kc_strerror(rc));
    }
    if (!rc) {
        ks_engine_sealed(t->log->e, t->log, t->epoch);
    }
    t->build.own_epoch = t->epoch;
    return rc ? rc : ks_build_run(&t->build, &t->chain, err);
}

/* Late bytes lie where they are at every later takeover, too: only what is new since ours counts. */
static void count_zombies(struct ks_takeover *t)
{
    struct ks_engine *e = t->log->e;
    struct ks_key key = ks_key_of(&t->log->topic, t->log->partition);
    if (t->build.zombie_bytes == 0) {
        return;
    }
    pthread_mutex_lock(&e->lock);
    uint64_t *known = kc_map_get(&e->zombies, &key, sizeof(key));
    if (!known) {
        known = kc_zalloc(sizeof(*known));
        kc_map_put(&e->zombies, &key, sizeof(key), known);
    }
    if (t->build.zombie_bytes > *known) {
        atomic_fetch_add(&e->m_zombie, t->build.zombie_bytes - *known);
        *known = t->build.zombie_bytes;
    }
    pthread_mutex_unlock(&e->lock);
}

/* A file is absent: has a newer owner dropped it, who deposed us meanwhile? */
static bool deposed(struct ks_takeover *t)
{
    return t->epoch >= 0 && load(t, NULL) == 0 && ks_chain_last(&t->chain)->epoch != t->epoch;
}

int ks_takeover_run(struct ks_takeover *t, struct kc_err *err)
{
    int rc = claim_and_seal(t, err);
    if (rc == KC_E_CORRUPT && deposed(t)) {
        rc = kc_fail(err, KC_E_DEPOSED, "a newer claim stands in the chain");
    }
    /* The last step, after everything was read (ADR 11): while there is no tombstone, no name and no
     * byte was missing. With one, what is missing is no damage. */
    if (rc == 0 || rc == KC_E_CORRUPT || rc == KC_E_NOT_FOUND || rc == -ENOENT) {
        struct kc_err why = {0};
        int gone = ks_graves_look(t->log->e, &t->log->topic, &why);
        if (gone == KC_E_GONE || (gone && rc == 0)) {
            rc = kc_fail(err, gone, "%s", why.msg);
        }
    }
    if (!rc) {
        count_zombies(t);
        ks_engine_note_open(t->log->e, t->build.read_bytes + t->scanned);
    }
    return rc;
}
