/* Indexes of finished files: loaded from their hint, or made by reading the file, when a reader needs
 * them, and forgotten when all of them take too much memory. */
#include "base/kc_error.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "storage/ks_read.h"
#include "storage/ks_scan.h"

/* ---- on the read pool ---- */

static int on_batch(void *arg, const struct ks_batch *b, uint64_t pos)
{
    ks_seg_note(arg, b, pos);
    return 0;
}

static void begin(struct ks_seg *s, const struct ks_seg *of)
{
    *s = *of;
    s->marks = NULL;
    s->n_marks = s->marks_room = 0;
    s->gap = KS_MARK_GAP;
    s->first_ts = s->max_ts = s->max_ts_base = -1;
    s->damaged_from = INT64_MAX;
}

static int rebuild(struct ks_read_req *r)
{
    struct ks_seg made;
    begin(&made, &r->index);
    struct ks_scan s = {.fd = ks_file_fd(r->file),
                        .epoch = r->index.epoch,
                        .gaps = r->compacted,
                        .first_epoch = r->first_epoch,
                        .limit = r->index.len,
                        .end = r->index.end,
                        .next = r->index.base};
    int rc = ks_scan(&r->log->e->fs, &s, on_batch, &made);
    if (rc) {
        kc_free(made.marks);
        return rc;
    }
    if (s.next != r->index.end || s.pos != r->index.len) {
        made.damaged_from = s.next; /* what is before it can still be read */
        ks_read_corrupt(r, s.next);
    }
    made.end = r->index.end;
    made.len = r->index.len;
    r->index = made;
    r->rebuilt = true;
    return 0;
}

static bool load(struct ks_read_req *r)
{
    struct ks_log *log = r->log;
    struct ks_hint h;
    char name[KS_HINT_NAME];
    uint64_t bytes = 0;
    ks_idx_name(r->file->id, name);
    if (ks_hint_read(&log->e->fs, &log->topic, log->partition, name, &h, &bytes)) {
        return false;
    }
    bool ok = ks_idx_fits(&log->e->fs, &h, r->file->id, &r->index, ks_file_fd(r->file));
    if (ok) {
        r->index = h.seg;
        h.seg.marks = NULL;
    }
    ks_hint_fini(&h);
    return ok;
}

int ks_index_load(struct ks_read_req *r)
{
    int rc = load(r) ? 0 : rebuild(r);
    r->index.indexed = rc == 0;
    return rc;
}

/* ---- on the owner's loop ---- */

static struct ks_seg *find(struct ks_log *log, const struct ks_read_req *r)
{
    struct ks_seg *s = ks_state_seg(&log->st, r->index.base);
    return s && s->file == r->file ? s : NULL;
}

void ks_index_install(struct ks_read_req *r)
{
    struct ks_log *log = r->log;
    struct ks_seg *s = find(log, r), *got = &r->index;
    if (!s) {
        return; /* trimmed or replaced meanwhile */
    }
    s->loading = false;
    if (s->indexed || !got->indexed) {
        return;
    }
    kc_free(s->marks);
    s->marks = got->marks;
    s->n_marks = got->n_marks;
    s->marks_room = got->marks_room;
    got->marks = NULL;
    s->gap = got->gap;
    s->first_ts = got->first_ts > 0 ? got->first_ts : s->first_ts;
    s->max_ts = got->max_ts;
    s->max_ts_base = got->max_ts_base;
    s->damaged_from = KC_MIN(s->damaged_from, got->damaged_from);
    s->last_pos = got->last_pos;
    s->last_crc = got->last_crc;
    s->indexed = s->ts_known = true;
    if (r->rebuilt) {
        ks_ckpt_index(log, s);
    }
    ks_index_recount(log);
}

/* ---- memory ---- */

static int64_t count(const struct ks_log *log)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i + 1 < log->st.n_segs; i++) {
        bytes += (int64_t)(log->st.segs[i].marks_room * sizeof(struct ks_mark));
    }
    return bytes;
}

static void forget(struct ks_log *log)
{
    for (uint32_t i = 0; i + 1 < log->st.n_segs; i++) {
        struct ks_seg *s = &log->st.segs[i];
        if (s->marks) {
            kc_free(s->marks);
            s->marks = NULL;
            s->n_marks = s->marks_room = 0;
            s->indexed = false;
        }
    }
    log->shard->marks_bytes -= log->marks_bytes;
    log->marks_bytes = 0;
}

void ks_index_recount(struct ks_log *log)
{
    struct ks_shard *sh = log->shard;
    if (!sh || log->closed) {
        return;
    }
    int64_t bytes = count(log);
    sh->marks_bytes += bytes - log->marks_bytes;
    log->marks_bytes = bytes;
    int64_t budget = ks_shard_part(log->e, log->e->index_bytes);
    /* The logs go round: one that is at the end was counted last. */
    kc_list_del(&log->in_shard);
    kc_list_add_tail(&sh->logs, &log->in_shard);
    for (struct kc_list *it = sh->logs.next; sh->marks_bytes > budget && it != &log->in_shard;
         it = it->next) {
        forget(KC_LIST_ENTRY(it, struct ks_log, in_shard));
    }
}

void ks_index_leave(struct ks_log *log)
{
    log->shard->marks_bytes -= log->marks_bytes;
    log->marks_bytes = 0;
}

/* ---- for its own sake ---- */

static void run_want(struct ks_read_req *r)
{
    if (ks_read_pin(r) >= 0) {
        ks_file_release(r->file);
    }
}

static void finish_want(struct ks_read_req *r)
{
    (void)r; /* installed before */
}

static void fail_want(struct ks_read_req *r, int16_t error)
{
    (void)r;
    (void)error;
}

void ks_index_want(struct ks_log *log, uint32_t i)
{
    struct ks_seg *s = &log->st.segs[i];
    if (s->loading || s->indexed) {
        return;
    }
    struct ks_read_req *r = ks_read_new(log, s, (struct ks_mark){.offset = s->base});
    if (r) {
        r->run = run_want;
        r->finish = finish_want;
        r->fail = fail_want;
        ks_read_post(r);
    }
}
