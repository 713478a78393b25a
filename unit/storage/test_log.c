/* An open log on a real directory: append, ack, read, roll, restart. */
#include "st_one.h"

#include <sched.h>
#include <string.h>

#include "base/kc_mem.h"

static void acked_batches_are_read_back(void)
{
    struct ks_log *log = one_open();
    KT_EQ(ks_log_epoch(log), 0);
    KT_EQ(st_put(&one_b, log, 1), 0);
    KT_EQ(st_put(&one_b, log, 3), 1);
    KT_EQ(st_put(&one_b, log, 1), 4);
    struct ks_offsets o = ks_log_offsets(log);
    KT_EQ(o.start, 0);
    KT_EQ(o.high_watermark, 5);
    KT_EQ(o.end, 5);
    KT_EQ(o.last_stable, 5);
    struct st_read r = st_read(&one_b, log, 2, 5, 1000);
    KT_EQ(r.r.error, 0);
    KT_EQ(r.first, 1); /* the batch that holds offset 2 starts before it */
    KT_EQ(r.last, 4);
    KT_EQ(r.r.next_offset, 5);
    KT_EQ(st_count(&one_b, log), 5);
    one_close(log);
}

static void reads_stop_before_the_limit(void)
{
    struct ks_log *log = one_open();
    for (int i = 0; i < 3; i++) {
        st_put(&one_b, log, 2);
    }
    for (int cached = 1; cached >= 0; cached--) {
        struct st_read r = st_read(&one_b, log, 0, 4, 100000);
        KT_EQ(r.last, 3);
        r = st_read(&one_b, log, 0, 3, 100000);
        KT_EQ(r.last, 1); /* half a batch is never served */
        r = st_read(&one_b, log, 0, 1, 100000);
        KT_EQ(r.batches, 0);
        KT_EQ(r.r.error, 0);
        r = st_read(&one_b, log, 0, 6, 1); /* soft: one whole batch comes in any case */
        KT_EQ(r.batches, 1);
        ks_cache_drop(log);
    }
    one_close(log);
}

static void offsets_out_of_range_are_refused(void)
{
    struct ks_log *log = one_open();
    st_put(&one_b, log, 2);
    KT_EQ(st_read(&one_b, log, -1, 2, 100).r.error, 1);
    KT_EQ(st_read(&one_b, log, 3, 2, 100).r.error, 1);
    struct st_read r = st_read(&one_b, log, 2, 2, 100);
    KT_EQ(r.r.error, 0);
    KT_EQ(r.batches, 0);
    one_close(log);
}

static void small_segments_roll_and_survive_a_restart(void)
{
    one_begin();
    struct ks_log *log = st_log_small(&one_b, &one_topic, 1000);
    for (int i = 0; i < 100; i++) {
        KT_EQ(st_put(&one_b, log, 3), i * 3);
    }
    KT_TRUE(log->st.n_segs > 10);
    KT_EQ(st_count(&one_b, log), 300);
    ks_cache_drop(log);
    KT_EQ(st_count(&one_b, log), 300);
    st_close(&one_b, log);
    st_broker_stop(&one_b);
    st_broker_start(&one_b, &one_vol, 1);
    log = st_log(&one_b, &one_topic, 0);
    KT_EQ(ks_log_epoch(log), 1);
    KT_EQ(ks_log_offsets(log).high_watermark, 300);
    one_b.e->fds.max_idle = 2;
    KT_EQ(st_count(&one_b, log), 300);
    KT_TRUE(one_b.e->fds.n_idle <= 2); /* files of long ago do not stay open */
    KT_EQ(st_put(&one_b, log, 1), 300);
    st_close(&one_b, log);
    one_end();
}

static void many_appends_share_a_commit(void)
{
    struct ks_log *log = one_open();
    enum { N = 500 };
    static struct st_append a[N];
    for (int i = 0; i < N; i++) {
        st_append_start(log, st_make(&(struct st_batch){.count = 1}), KS_FROM_CLIENT, &a[i]);
    }
    for (int i = 0; i < N; i++) {
        st_until(&one_b, &a[i].done);
        KT_EQ(a[i].r.error, 0);
        KT_EQ(a[i].r.base_offset, i);
    }
    struct ks_metrics m;
    ks_metrics_read(one_b.e, &m);
    KT_TRUE(m.commits < N / 2);
    KT_EQ(m.open_logs, 1);
    KT_EQ(st_count(&one_b, log), N);
    one_close(log);
}

/* What one turn of the loop appends wakes the commit thread once, when the turn ends; and at once if
 * somebody else wakes it. */
static void a_turn_of_the_loop_is_one_commit(void)
{
    struct ks_log *log = one_open();
    enum { N = 100 };
    static struct st_append a[N];
    st_put(&one_b, log, 1); /* nothing is under way */
    for (int round = 0; round < 3; round++) {
        uint64_t before = one_b.e->m_commits;
        memset(a, 0, sizeof(a));
        pthread_mutex_lock(&one_b.e->q_lock); /* it sleeps, or cannot look before all are there */
        for (int i = 0; i < N; i++) {
            st_append_start(log, st_make(&(struct st_batch){.count = 1}), KS_FROM_CLIENT, &a[i]);
        }
        pthread_mutex_unlock(&one_b.e->q_lock);
        if (round == 2) {
            ks_commit_wake(one_b.e);
            while (one_b.e->m_commits == before) {
                sched_yield(); /* the loop does not turn */
            }
        }
        for (int i = 0; i < N; i++) {
            st_until(&one_b, &a[i].done);
            KT_EQ(a[i].r.error, 0);
        }
        KT_EQ(one_b.e->m_commits, before + 1);
    }
    KT_FALSE(log->shard->waking);
    one_close(log);
}

/* What an append needs besides its bytes comes back with its answer, and serves the next one. */
static void an_append_takes_the_entry_of_the_one_before(void)
{
    struct ks_log *log = one_open();
    enum { N = 300 };
    static struct st_append a[N];
    st_put(&one_b, log, 1);
    KT_EQ(log->shard->n_spare, 1);
    const struct ks_entry *spare = log->shard->spare;
    struct st_append one;
    st_append_start(log, st_make(&(struct st_batch){.count = 2}), KS_FROM_CLIENT, &one);
    KT_TRUE(log->pend_head == spare);
    KT_EQ(log->shard->n_spare, 0);
    st_until(&one_b, &one.done);
    for (int i = 0; i < N; i++) {
        st_append_start(log, st_make(&(struct st_batch){.count = 1}), KS_FROM_CLIENT, &a[i]);
    }
    for (int i = 0; i < N; i++) {
        st_until(&one_b, &a[i].done);
        KT_EQ(a[i].r.base_offset, 3 + i);
    }
    KT_TRUE(log->shard->n_spare <= 256); /* not without bound */
    KT_EQ(st_count(&one_b, log), 3 + N);
    one_close(log);
}

/* A thread is woken for what waits for the volume, not for what goes into memory. */
static void only_what_waits_for_the_volume_gets_a_helper(void)
{
    struct ks_log *log = one_open();
    struct ks_engine *e = log->e;
    st_put(&one_b, log, 1); /* and nothing is under way from here on */
    struct ks_entry *entry = ks_entry_append(log);
    struct ks_task now = {.log = log}, later = {.log = log, .later = true};
    int64_t segment_bytes = log->c_segment_bytes;
    entry->data.len = 64 * 1024;
    log->c_head = entry;
    e->sync_us = 10000;
    KT_TRUE(ks_task_may_wait(&now, false)); /* it is synced in its task */
    KT_FALSE(ks_task_may_wait(&later, false)); /* by the turn */
    KT_TRUE(ks_task_may_wait(&later, true)); /* so much may wait for a server */
    entry->data.len--;
    KT_FALSE(ks_task_may_wait(&later, true));
    e->sync_us = 1; /* memory */
    KT_FALSE(ks_task_may_wait(&now, false));
    e->sync_us = 10000;
    log->c_flush_messages = 1000;
    KT_FALSE(ks_task_may_wait(&now, false));
    entry->data.len = e->unconfirmed; /* together with the first one: more than may be unsynced */
    log->c_durable = 0;
    KT_TRUE(ks_task_may_wait(&now, false));
    log->c_segment_bytes = 100;
    KT_TRUE(ks_task_may_wait(&later, false)); /* a roll */
    log->c_failed = true;
    KT_FALSE(ks_task_may_wait(&now, false)); /* only refused */
    log->c_failed = false;
    entry->kind = KS_E_TRIM;
    KT_TRUE(ks_task_may_wait(&later, false));
    log->c_head = NULL;
    log->c_segment_bytes = segment_bytes;
    log->c_flush_messages = 1;
    log->c_durable = log->c_synced;
    ks_entry_free(entry);
    one_close(log);
}

/* A slow sync is noticed at once, and remembered for some fast ones. */
static void a_volume_that_is_slow_now_and_then_is_slow(void)
{
    struct ks_log *log = one_open();
    log->e->sync_us = 100000000;
    st_put(&one_b, log, 1);
    KT_TRUE(ks_task_sync_waits(log->e));
    KT_TRUE(log->e->sync_us < 100000000);
    one_close(log);
}

static void a_large_batch_of_one_holder_is_not_copied(void)
{
    struct ks_log *log = one_open();
    struct kc_slice big = st_make(&(struct st_batch){.value_len = 100000});
    struct kc_buf *slab = kc_buf_ref(big.buf);
    kc_buf_unref(slab); /* one holder again */
    struct ks_append_result r = st_append(&one_b, log, big);
    KT_EQ(r.error, 0);
    struct ks_chunk *c = KC_LIST_ENTRY(log->chunks.prev, struct ks_chunk, in_log);
    KT_TRUE(c->buf == slab);
    KT_EQ(st_count(&one_b, log), 1);
    one_close(log);
}

static struct st_lookup lookup(struct ks_log *log, int64_t ts)
{
    struct st_lookup l = st_lookup(&one_b, log, ts);
    KT_EQ(l.error, 0);
    return l;
}

static void timestamps_find_the_record(void)
{
    struct ks_log *log = one_open();
    KT_EQ(lookup(log, 0).offset, -1);
    for (int i = 0; i < 5; i++) { /* batch i: offsets 4i.., timestamps 1000(i+1) .. +3 */
        st_append(&one_b, log, st_make(&(struct st_batch){.count = 4, .ts = 1000 * (i + 1)}));
    }
    KT_EQ(lookup(log, 0).offset, 0);
    KT_EQ(lookup(log, 1000).offset, 0);
    KT_EQ(lookup(log, 1002).offset, 2);
    KT_EQ(lookup(log, 1004).offset, 4);
    KT_EQ(lookup(log, 1004).ts, 2000);
    KT_EQ(lookup(log, 5003).offset, 19);
    KT_EQ(lookup(log, 5004).offset, -1);
    struct st_lookup l = lookup(log, KS_TS_MAX);
    KT_EQ(l.offset, 19);
    KT_EQ(l.ts, 5003);
    KT_EQ(l.epoch, 0);
    one_close(log);
}

static void where_no_record_has_a_timestamp_the_largest_is_the_first(void)
{
    struct ks_log *log = one_open();
    KT_EQ(lookup(log, KS_TS_MAX).offset, -1);
    for (int i = 0; i < 2; i++) {
        st_append(&one_b, log, st_make(&(struct st_batch){.ts = -1}));
    }
    struct st_lookup l = lookup(log, KS_TS_MAX);
    KT_EQ(l.offset, 0);
    KT_EQ(l.ts, -1);
    KT_EQ(l.epoch, 0);
    KT_EQ(lookup(log, 0).offset, -1);
    one_close(log);
}

static void the_memory_of_an_idle_log_is_small(void)
{
    KT_TRUE(sizeof(struct ks_log) + sizeof(struct ks_seg) + sizeof(struct ks_file) <= 2048);
    printf("  log %zu + segment %zu + file %zu bytes\n", sizeof(struct ks_log),
           sizeof(struct ks_seg), sizeof(struct ks_file));
}

KT_MAIN("log", KT(acked_batches_are_read_back), KT(reads_stop_before_the_limit),
        KT(offsets_out_of_range_are_refused), KT(small_segments_roll_and_survive_a_restart),
        KT(many_appends_share_a_commit), KT(a_turn_of_the_loop_is_one_commit),
        KT(an_append_takes_the_entry_of_the_one_before),
        KT(only_what_waits_for_the_volume_gets_a_helper),
        KT(a_volume_that_is_slow_now_and_then_is_slow),
        KT(a_large_batch_of_one_holder_is_not_copied), KT(timestamps_find_the_record),
        KT(where_no_record_has_a_timestamp_the_largest_is_the_first),
        KT(the_memory_of_an_idle_log_is_small))
