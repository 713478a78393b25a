/* The log start moves: DeleteRecords, and the upper half of every TRIM.
 *
 * One TRIM a log at a time. Requests that come while one is under way wait and share the next one, at
 * the highest offset any of them asks for: the chain grows by one record a turn of the commit thread,
 * however many clients ask. An answer comes after the record is synced and the fence check passed,
 * also where the start is high enough already: a deposed owner must not speak for the partition.
 *
 * Owner: the log's loop. The files go when this loop knows the new start, so no reader meets a name
 * that is gone. */
#include "storage/ks_int.h"

#include "base/kc_mem.h"

/* ---- starting one ---- */

struct ks_trim *ks_trim_new(const struct ks_log *log, int64_t start, bool all)
{
    const struct ks_state *st = &log->st;
    struct ks_trim *tr = kc_zalloc(sizeof(*tr));
    tr->start = start;
    for (uint32_t i = 0; i < st->n_segs && tr->n < KC_ARRAY_LEN(tr->files); i++) {
        const struct ks_seg *s = &st->segs[i];
        bool last = i + 1 == st->n_segs;
        if (s->end > start || (last && (!all || s->len == 0))) {
            break;
        }
        tr->files[tr->n++] = s->file->id;
        tr->roll = last;
        tr->active_base = s->base;
    }
    return tr;
}

void ks_trim_start(struct ks_log *log, struct ks_trim *tr)
{
    struct ks_entry *entry = ks_entry_new(log, KS_E_TRIM);
    entry->trim = tr;
    tr->known = tr->n == 0 && tr->start <= log->st.start;
    log->trimming = true;
    ks_commit_push(log->e, entry);
}

void ks_deletes_start(struct ks_log *log)
{
    if (!log->more_deletes || log->trimming || log->compacting || log->state != KS_OPEN) {
        return;
    }
    int64_t start = log->st.start;
    log->deletes = log->more_deletes;
    log->more_deletes = NULL;
    for (const struct ks_delete *d = log->deletes; d; d = d->next) {
        start = KC_MAX(start, d->offset);
    }
    struct ks_trim *tr = ks_trim_new(log, start, false);
    if (!ks_ckpt_covers(log, start)) {
        tr->n = 0; /* the start moves at once; a round of retention has the files go when their
                    * producers are kept elsewhere */
    }
    ks_trim_start(log, tr);
}

static void answer(struct ks_delete **list, int16_t error, int64_t log_start)
{
    struct ks_delete *d = *list;
    *list = NULL;
    while (d) {
        struct ks_delete *next = d->next; /* done may free it */
        d->done(d, error, error ? -1 : log_start);
        d = next;
    }
}

void ks_deletes_fail(struct ks_log *log, int16_t error)
{
    answer(&log->deletes, error, -1);
    answer(&log->more_deletes, error, -1);
}

void ks_log_delete_records(struct ks_log *log, struct ks_delete *d)
{
    enum { TO_HIGH_WATERMARK = -1 };
    int16_t error = log->state == KS_SUSPENDED      ? KS_K_STORAGE_ERROR
                    : log->state != KS_OPEN         ? KS_K_NOT_LEADER
                    : log->cfg.compact_only         ? KS_K_POLICY_VIOLATION
                    : d->offset < TO_HIGH_WATERMARK ? KS_K_OFFSET_OUT_OF_RANGE
                    : d->offset > log->st.end       ? KS_K_OFFSET_OUT_OF_RANGE
                                                    : KS_K_NONE;
    if (error) {
        d->done(d, error, -1);
        return;
    }
    if (d->offset == TO_HIGH_WATERMARK) {
        d->offset = log->st.end;
    }
    d->next = log->more_deletes;
    log->more_deletes = d;
    ks_deletes_start(log);
}

/* ---- ending one ---- */

struct removal {
    struct rt_work work;
    struct ks_log *log; /* referenced */
    uint16_t n;
    struct ks_file_id files[];
};

static void remove_files(struct rt_work *w)
{
    struct removal *r = KC_CONTAINER_OF(w, struct removal, work);
    for (uint16_t i = 0; i < r->n; i++) {
        char path[KS_PATH_MAX];
        ks_path_file(path, &r->log->topic, r->log->partition, r->files[i]);
        ks_fs_unlink(&r->log->e->fs, path); /* what stays behind only costs room */
        ks_idx_remove(&r->log->e->fs, &r->log->topic, r->log->partition, r->files[i]);
    }
    ks_log_unref(r->log);
    kc_free(r);
}

/* The record stands in the chain: its files may go (M8). */
static void remove_later(struct ks_log *log, const struct ks_trim *tr)
{
    if (tr->n == 0) {
        return;
    }
    struct removal *r = kc_zalloc(sizeof(*r) + tr->n * sizeof(r->files[0]));
    r->work.fn = remove_files;
    r->log = ks_log_ref(log);
    r->n = tr->n;
    __builtin_memcpy(r->files, tr->files, tr->n * sizeof(r->files[0]));
    ks_engine_defer(log->e, &r->work);
}

/* The owner's state follows the record. */
static void forget(struct ks_log *log, struct ks_entry *entry)
{
    uint32_t n = entry->trim->n;
    if (entry->file) { /* the active file went, too */
        struct ks_file *next = ks_file_ref(entry->file);
        if (ks_state_add_seg(&log->st, next, entry->trim->start, log->epoch)) {
            ks_file_unref(next); /* no memory: an empty segment stands in for the one that goes */
            n--;
        }
    }
    ks_state_trim(&log->st, entry->trim->start, n);
}

void ks_trim_done(struct ks_entry *entry)
{
    struct ks_log *log = entry->log;
    log->trimming = false;
    if (!entry->rc && !entry->error) { /* a fenced incarnation touches nothing any more */
        forget(log, entry);
        ks_index_recount(log);
        remove_later(log, entry->trim);
    }
    int16_t error = entry->error                ? entry->error
                    : entry->rc == KC_E_DEPOSED ? KS_K_NOT_LEADER
                    : entry->rc                 ? KS_K_STORAGE_ERROR
                                                : KS_K_NONE;
    answer(&log->deletes, error, log->st.start);
    ks_deletes_start(log);
    if (entry->trim->retained) {
        ks_retention_trimmed(log->shard);
    }
}
