/* Results of a turn of the commit thread, on the loops of the logs' owners. */
#include "storage/ks_int.h"

#include "base/kc_log.h"
#include "base/kc_mem.h"

void ks_fail_appends(struct ks_log *log, int16_t error)
{
    struct ks_append_result r = {
        .error = error, .base_offset = -1, .append_time_ms = -1, .log_start = -1};
    struct ks_entry *entry = log->pend_head;
    log->pend_head = log->pend_tail = NULL;
    while (entry) {
        struct ks_entry *next = entry->onext;
        ks_append_done done = entry->done;
        entry->done = NULL;
        entry->abandoned = true;
        if (done) {
            done(entry->ctx, &r);
        }
        entry = next;
    }
}

void ks_log_stop(struct ks_log *log)
{
    if (log->closed || log->gone) {
        return;
    }
    log->gone = true;
    log->state = KS_STOPPED;
    ks_log_ref(log);
    ks_clean_cancel(log);
    ks_fail_appends(log, KS_K_NOT_LEADER);
    ks_deletes_fail(log, KS_K_NOT_LEADER);
    ks_reads_cancel(log, KS_K_NOT_LEADER);
    if (log->watch && !log->closed) {
        log->watch(log->watch_ctx, log, true);
    }
    ks_log_unref(log);
}

struct stop_msg {
    struct rt_msg msg;
    struct ks_log *log;
};

static void on_stop(struct rt_msg *msg)
{
    struct stop_msg *m = KC_CONTAINER_OF(msg, struct stop_msg, msg);
    ks_log_stop(m->log);
    ks_log_unref(m->log);
    kc_free(m);
}

void ks_log_post_stop(struct ks_log *log)
{
    if (log->owner) {
        struct stop_msg *m = kc_zalloc(sizeof(*m));
        m->msg.fn = on_stop;
        m->log = ks_log_ref(log);
        rt_post(log->owner, &m->msg);
    }
}

/* Acked batches join the state: index, timestamps, high watermark. */
static bool note(struct ks_log *log, const struct ks_entry *entry)
{
    struct ks_state *st = &log->st;
    if (st->segs[st->n_segs - 1].file != entry->file) {
        struct ks_file *file = ks_file_ref(entry->file); /* a ROLL came before it */
        ks_ckpt_finished(log);
        if (ks_state_add_seg(st, file, entry->base, log->epoch)) {
            ks_file_unref(file);
            return false;
        }
        ks_index_recount(log);
    }
    struct ks_batch b;
    for (size_t at = 0; at < entry->data.len && ks_batch_parse(entry->data.ptr + at, &b);
         at += b.size) {
        ks_state_note(st, &b, entry->pos + at);
    }
    ks_sound_add(&st->segs[st->n_segs - 1].sound, entry->pos, entry->pos + entry->data.len);
    ks_ckpt_noted(log, entry);
    return true;
}

static void ack_append(struct ks_entry *entry)
{
    struct ks_log *log = entry->log;
    if (entry->abandoned) {
        return; /* failed already; whether it is on the volume is for the next owner to see */
    }
    KC_ASSERT(log->pend_head == entry);
    log->pend_head = entry->onext;
    if (!log->pend_head) {
        log->pend_tail = NULL;
    }
    if (!entry->error && entry->data.len && !note(log, entry)) {
        entry->error = KS_K_NOT_LEADER; /* no memory: let the log go rather than lose count */
    }
    if (entry->error == KS_K_STORAGE_ERROR && log->state == KS_OPEN) {
        log->state = KS_SUSPENDED;
        ks_ckpt_forget(log);
        ks_cache_drop(log); /* what follows the high watermark is not part of the log */
        log->end = log->st.end;
    }
    int16_t error = entry->error ? entry->error : entry->refusal;
    struct ks_append_result r = {
        .error = error,
        .base_offset = error                        ? -1
                       : entry->duplicate_base >= 0 ? entry->duplicate_base
                                                    : entry->base,
        .append_time_ms = error ? -1 : entry->append_time_ms,
        .log_start = entry->error ? -1 : log->st.start,
    };
    if (entry->done) {
        entry->done(entry->ctx, &r);
    }
    if (entry->error == KS_K_NOT_LEADER) {
        ks_log_stop(log);
    }
}

static void let_go_sealed(struct ks_log *log)
{
    if (log->closed) {
        return;
    }
    ks_log_stop(log);
    log->closed = true;
    log->watch = NULL;
    ks_ckpt_forget(log);
    ks_cache_drop(log);
    ks_index_leave(log);
    kc_list_del(&log->in_shard);
}

struct seal_msg {
    struct rt_msg msg;
    struct ks_entry *entry;
    int64_t end;
};

static void on_seal(struct rt_msg *msg)
{
    struct seal_msg *m = KC_CONTAINER_OF(msg, struct seal_msg, msg);
    struct ks_entry *entry = m->entry;
    struct kc_bytes record = KC_BYTES_NULL;
    if (entry->rc == 0) {
        record = (struct kc_bytes){entry->record, (int32_t)entry->record_len};
    }
    entry->seal_done(entry->ctx, entry->rc, record, m->end, entry->epoch);
    ks_entry_free(entry);
    kc_free(m);
}

static void after_seal(struct ks_entry *entry)
{
    struct seal_msg *m = kc_zalloc(sizeof(*m));
    m->msg.fn = on_seal;
    m->entry = entry;
    m->end = entry->end;
    if (entry->rc == 0) {
        ks_ckpt_sealed(entry->log);
    }
    let_go_sealed(entry->log);
    rt_post(entry->seal_loop, &m->msg);
}

static void after_recovery(struct ks_entry *entry)
{
    struct ks_log *log = entry->log;
    if (entry->rc || log->closed || log->state == KS_STOPPED) {
        return;
    }
    log->state = KS_SUSPENDED; /* nothing comes in from within the callbacks */
    ks_clean_cancel(log);
    ks_fail_appends(log, KS_K_STORAGE_ERROR);
    ks_deletes_fail(log, KS_K_STORAGE_ERROR);
    ks_cache_drop(log); /* what was just refused must not be read at the offsets it had */
    if (ks_log_install_upper(log, entry->takeover)) {
        ks_log_stop(log);
        return;
    }
    kc_log(KC_INFO, "storage", "event=log_resumed epoch=%d offset=%lld", log->epoch,
           (long long)log->end);
}

/* True: the entry went on to somebody else. */
static bool deliver(struct ks_entry *entry)
{
    switch (entry->kind) {
    case KS_E_APPEND:
        ack_append(entry);
        break;
    case KS_E_SEALED:
        after_seal(entry);
        return true;
    case KS_E_RECOVERED:
        after_recovery(entry);
        break;
    case KS_E_TRIM:
        ks_trim_done(entry);
        break;
    case KS_E_FLUSH:
        ks_ckpt_noted(entry->log, entry);
        break;
    case KS_E_SYNCED:
        if (!entry->log->closed) {
            ks_ckpt_synced(entry->log, entry->file, entry->pos);
        }
        break;
    case KS_E_COMPACT:
        ks_clean_after(entry);
        break;
    case KS_E_SEAL:
    case KS_E_CLOSE:
    case KS_E_RETRY:
        break;
    }
    return false;
}

/* Entries of one log are neighbours in a tick, so its watcher is called once, after the last. */
static void deliver_all(struct ks_entry *head)
{
    while (head) {
        struct ks_log *log = ks_log_ref(head->log);
        bool appended = false;
        while (head && head->log == log) {
            struct ks_entry *next = head->next;
            /* A recovery changes the epoch; nobody waits for the others. */
            appended = appended || (head->kind != KS_E_CLOSE && head->kind != KS_E_SYNCED);
            if (!deliver(head)) {
                ks_entry_spare(head);
            }
            head = next;
        }
        if (appended && log->watch && !log->closed && !log->gone) {
            log->watch(log->watch_ctx, log, false);
        }
        ks_log_unref(log);
    }
}

static void on_tick(struct rt_msg *msg)
{
    deliver_all(KC_CONTAINER_OF(msg, struct ks_entry, tick));
}

void ks_ack_post(struct ks_entry *list)
{
    enum { LOOPS = 64 };
    struct {
        struct rt_loop *loop;
        struct ks_entry *head, *tail;
    } ticks[LOOPS];
    int n = 0;
    while (list) {
        struct ks_entry *entry = list;
        list = entry->next;
        entry->next = NULL;
        struct rt_loop *loop = entry->log->owner;
        if (!loop) {
            ks_entry_free(entry); /* closed before anybody owned it */
            continue;
        }
        int i = 0;
        while (i < n && ticks[i].loop != loop) {
            i++;
        }
        if (i < n) {
            ticks[i].tail->next = entry;
            ticks[i].tail = entry;
            continue;
        }
        KC_ASSERT(n < LOOPS); /* more data loops than rt_pool has threads */
        ticks[n].loop = loop;
        ticks[n].head = ticks[n].tail = entry;
        n++;
    }
    for (int i = 0; i < n; i++) {
        ticks[i].head->tick.fn = on_tick;
        rt_post(ticks[i].loop, &ticks[i].head->tick);
    }
}
