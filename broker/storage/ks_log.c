/* The upper half of a log: what the owner's loop calls. */
#include "storage/ks_int.h"

#include <string.h>

#include "base/kc_log.h"
#include "base/kc_mem.h"

struct ks_log *ks_log_ref(struct ks_log *log)
{
    atomic_fetch_add_explicit(&log->refs, 1, memory_order_relaxed);
    return log;
}

void ks_log_unref(struct ks_log *log)
{
    if (log && atomic_fetch_sub_explicit(&log->refs, 1, memory_order_acq_rel) == 1) {
        KC_ASSERT(kc_list_empty(&log->chunks) && kc_list_empty(&log->reads) && !log->pend_head);
        ks_state_fini(&log->st);
        ks_ckpt_fini(&log->ckpt);
        ks_file_unref(log->c_file);
        ks_clean_forgive(log);
        kc_free(log->sweep);
        kc_free(log->cursors);
        ks_inc_unref(log->inc);
        struct ks_engine *e = log->e;
        kc_free(log);
        ks_engine_unref(e);
    }
}

static void set_config(struct ks_log *log, const struct ks_log_config *cfg)
{
    log->cfg = *cfg;
    atomic_store(&log->c_segment_bytes, cfg->segment_bytes);
    atomic_store(&log->c_segment_ms, cfg->segment_ms > 0 ? cfg->segment_ms : INT64_MAX);
    atomic_store(&log->c_jitter_ms, cfg->segment_jitter_ms);
    atomic_store(&log->c_flush_messages, cfg->flush_messages);
    atomic_store(&log->c_flush_ms, cfg->flush_ms);
    if (cfg->flush_messages > 1) {
        atomic_store(&log->e->relaxed, true);
    }
    if (cfg->retention_check_ms > 0) {
        atomic_store(&log->e->retention_check_ms, cfg->retention_check_ms);
    }
}

struct ks_log *ks_log_new(struct ks_engine *e, struct ks_inc *inc, const struct ks_open_args *args)
{
    struct ks_log *log = kc_try_zalloc(1, sizeof(*log));
    if (!log) {
        return NULL;
    }
    atomic_init(&log->refs, 1);
    log->e = e;
    atomic_fetch_add(&e->refs, 1);
    log->topic = args->topic_id;
    log->partition = args->partition;
    log->inc = ks_inc_ref(inc);
    log->order = args->order;
    set_config(log, &args->config);
    ks_state_init(&log->st);
    kc_list_init(&log->chunks);
    kc_list_init(&log->reads);
    kc_list_init(&log->in_shard);
    log->state = KS_OPENING;
    return log;
}

void ks_log_install_lower(struct ks_log *log, struct ks_takeover *t)
{
    if (log->c_file) {
        ks_file_release(log->c_file);
        ks_file_unref(log->c_file);
    }
    log->c_file = ks_file_ref(t->file);
    log->c_epoch = t->epoch;
    log->c_next_k = t->chain.next_k;
    log->c_pos = log->c_acked = log->c_synced = log->c_durable = 0;
    log->c_end = log->c_new_end = t->build.st.end;
    log->c_crc = log->c_new_crc = 0;
    log->c_unsynced = 0;
    log->c_lies = false;
    atomic_store(&log->c_flush_at_ms, 0);
    ks_log_file_begins(log);
    log->c_failed = false;
    log->c_error = 0;
}

int ks_log_install_upper(struct ks_log *log, struct ks_takeover *t)
{
    struct ks_state *st = &t->build.st;
    int rc = ks_state_add_epoch(st, t->epoch, st->end);
    rc = rc ? rc : ks_state_add_seg(st, t->file, st->end, t->epoch);
    if (rc) {
        return rc;
    }
    t->file = NULL; /* the state has it now */
    ks_state_fini(&log->st);
    log->st = *st;
    ks_state_init(st);
    log->epoch = t->epoch;
    log->end = log->st.end;
    ks_clean_opened(log, &t->chain);
    log->state = KS_OPEN;
    ks_ckpt_opened(log, &t->build);
    ks_index_recount(log);
    return 0;
}

static struct ks_shard *shard_of(struct ks_engine *e, struct rt_loop *loop)
{
    struct ks_shard *s = e->shards;
    while (s && s->loop != loop) {
        s = s->next;
    }
    if (!s) {
        s = kc_zalloc(sizeof(*s));
        atomic_init(&s->refs, 1);
        s->e = e;
        s->loop = loop;
        kc_list_init(&s->chunks);
        kc_list_init(&s->logs);
        s->next = e->shards;
        e->shards = s;
        atomic_fetch_add_explicit(&e->n_shards, 1, memory_order_relaxed);
    }
    return s;
}

int64_t ks_shard_part(const struct ks_engine *e, int64_t bytes)
{
    int32_t n = atomic_load_explicit(&e->n_shards, memory_order_relaxed);
    return bytes / KC_MAX(n, 1);
}

void ks_shard_unref(struct ks_shard *s)
{
    if (atomic_fetch_sub(&s->refs, 1) == 1) {
        for (struct ks_entry *entry; (entry = s->spare);) {
            s->spare = entry->next;
            kc_free(entry);
        }
        kc_free(s);
    }
}

struct own_msg {
    struct rt_msg msg;
    struct ks_log *log;
};

static void on_own(struct rt_msg *msg)
{
    struct own_msg *m = KC_CONTAINER_OF(msg, struct own_msg, msg);
    struct ks_log *log = m->log;
    if (!log->closed) {
        kc_list_add_tail(&log->shard->logs, &log->in_shard);
        ks_index_recount(log);
        if (atomic_load(&log->inc->fenced)) {
            ks_log_stop(log); /* fenced between open and here: nobody else will tell */
        }
    }
    ks_log_unref(log);
    kc_free(m);
}

void ks_log_own(struct ks_log *log, struct rt_loop *owner)
{
    struct ks_engine *e = log->e;
    struct own_msg *m = kc_zalloc(sizeof(*m));
    m->msg.fn = on_own;
    m->log = ks_log_ref(log);
    pthread_mutex_lock(&e->lock);
    log->shard = shard_of(e, owner);
    log->shard->n_open++;
    log->owner = owner;
    pthread_mutex_unlock(&e->lock);
    rt_post(owner, &m->msg);
}

const struct kc_uuid *ks_log_topic(const struct ks_log *log)
{
    return &log->topic;
}

int32_t ks_log_partition(const struct ks_log *log)
{
    return log->partition;
}

int32_t ks_log_epoch(const struct ks_log *log)
{
    return log->epoch;
}

int32_t ks_log_start_epoch(const struct ks_log *log)
{
    const struct ks_state *st = &log->st;
    return st->n_epochs && st->epochs[0].start <= st->start ? st->epochs[0].epoch : -1;
}

void ks_log_configure(struct ks_log *log, const struct ks_log_config *cfg)
{
    if (cfg->compact != log->cfg.compact) {
        ks_clean_forgive(log); /* switched off and on: the cleaner tries again */
    }
    set_config(log, cfg);
}

struct ks_offsets ks_log_offsets(const struct ks_log *log)
{
    int64_t hw = log->st.end;
    return (struct ks_offsets){
        .start = log->st.start,
        .high_watermark = hw,
        /* A transaction whose records were deleted holds nobody back below the start. */
        .last_stable = KC_MAX(KC_MIN(hw, ks_prods_first_open(&log->st.prods)), log->st.start),
        .end = KC_MAX(log->end, hw),
    };
}

uint64_t ks_log_size_bytes(const struct ks_log *log)
{
    return log->st.bytes;
}

void ks_log_watch(struct ks_log *log, ks_watch_fn fn, void *ctx)
{
    log->watch = fn;
    log->watch_ctx = ctx;
}

void ks_log_epoch_end(struct ks_log *log, int32_t epoch, int32_t *ret_epoch, int64_t *ret_end)
{
    const struct ks_state *st = &log->st;
    *ret_epoch = -1;
    *ret_end = -1;
    if (epoch < 0 || epoch > log->epoch) {
        return; /* unknown to us (KIP-320: UNDEFINED_EPOCH) */
    }
    if (epoch == log->epoch) {
        *ret_epoch = epoch;
        *ret_end = st->end;
        return;
    }
    /* The largest epoch <= the asked one, and where the next one starts. */
    uint32_t lo = 0, hi = st->n_epochs;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (st->epochs[mid].epoch > epoch) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    if (lo < st->n_epochs) {
        *ret_epoch = lo ? st->epochs[lo - 1].epoch : epoch;
        *ret_end = st->epochs[lo].start;
    }
}

int32_t ks_log_aborted(const struct ks_log *log, int64_t from, int64_t to, struct ks_aborted *ret,
                       int32_t cap)
{
    struct ks_abort some[64];
    const struct ks_aborts *a = &log->st.aborts;
    uint32_t want = (uint32_t)KC_MAX(cap, 0);
    struct ks_abort *v = want <= KC_ARRAY_LEN(some) ? some : kc_try_zalloc(want, sizeof(*v));
    if (!v) {
        return -1;
    }
    uint32_t n = ks_aborts_find(a, from, to, v, want);
    for (uint32_t i = 0; i < KC_MIN(n, want); i++) {
        ret[i] = (struct ks_aborted){.producer_id = v[i].producer_id, .first_offset = v[i].first};
    }
    if (v != some) {
        kc_free(v);
    }
    return (int32_t)n;
}

int32_t ks_log_producers(struct ks_log *log, struct ks_producer *ret, int32_t cap)
{
    const struct ks_prods *t = &log->st.prods;
    int32_t n = 0;
    for (uint32_t i = 0; i < t->n_slots; i++) {
        const struct ks_prod_entry *p = &t->slots[i];
        if (p->producer_id < 0) {
            continue;
        }
        if (n < cap) {
            ret[n] = (struct ks_producer){
                .producer_id = p->producer_id,
                .epoch = p->epoch,
                .last_sequence = p->n ? p->batches[p->n - 1].last_seq : -1,
                .last_timestamp_ms = p->last_ts,
                .txn_first_offset = p->txn_first,
            };
        }
        n++;
    }
    return n;
}

/* The owner lets go: no callback of this log comes any more, the rest is the commit thread's. */
static void let_go(struct ks_log *log, int16_t error)
{
    log->closed = true;
    log->watch = NULL;
    ks_clean_cancel(log);
    ks_fail_appends(log, error);
    ks_deletes_fail(log, error);
    ks_reads_cancel(log, error);
    ks_ckpt_forget(log);
    if (log->shard) {
        ks_cache_drop(log);
        ks_index_leave(log);
        kc_list_del(&log->in_shard);
    }
}

void ks_log_close(struct ks_log *log)
{
    struct ks_entry *entry = ks_entry_new(log, KS_E_CLOSE);
    let_go(log, KS_K_NOT_LEADER);
    atomic_store(&log->leaving, true);
    ks_commit_push(log->e, entry);
}

void ks_log_abandon(struct ks_log *log)
{
    log->closed = true;
    ks_engine_forget(log->e, log, false);
}

void ks_log_seal(struct ks_log *log, struct rt_loop *loop, ks_seal_done done, void *ctx)
{
    struct ks_entry *entry = ks_entry_new(log, KS_E_SEAL);
    entry->seal_loop = loop;
    entry->seal_done = done;
    entry->ctx = ctx;
    ks_clean_cancel(log);
    log->state = KS_STOPPED; /* queued appends are acked before the seal and answered */
    atomic_store(&log->leaving, true);
    ks_commit_push(log->e, entry);
}
