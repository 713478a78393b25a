/* Retention, rolling by size and time, and relaxed flushing, by the rules of Kafka's UnifiedLog. */
#include "st.h"

#include <errno.h>
#include <stdatomic.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"

enum { BATCH = 61 + 2 * 17 }; /* bytes of a batch of two records */

static struct st_vol vol;
static struct st_broker b1;
static struct kc_uuid topic;
static _Atomic int sync_error;
static _Atomic bool sync_once; /* the error is of the next sync only */

static int before(void *ctx, enum st_op op, const char *path)
{
    (void)ctx;
    if (op != ST_DATASYNC || !st_ends_with(path, ".log")) {
        return 0;
    }
    return -(atomic_load(&sync_once) ? atomic_exchange(&sync_error, 0) : atomic_load(&sync_error));
}

static void begin(void)
{
    static const struct st_hooks hooks = {.before = before};
    atomic_store(&sync_error, 0);
    atomic_store(&sync_once, false);
    st_begin(&vol, &b1, 1, &hooks, &topic);
}

static void end(void)
{
    st_end(&vol, &b1);
}

/* What Kafka's defaults say, and what a test changes of them. */
static struct ks_log_config config(struct ks_log_config c)
{
    c.max_message_bytes = 1 << 20;
    c.segment_bytes = c.segment_bytes ? c.segment_bytes : 1 << 30;
    c.retention_ms = c.retention_ms ? c.retention_ms : -1;
    c.retention_bytes = c.retention_bytes ? c.retention_bytes : -1;
    c.segment_ms = c.segment_ms ? c.segment_ms : 604800000;
    c.timestamp_before_max_ms = c.timestamp_after_max_ms = INT64_MAX;
    c.flush_messages = c.flush_messages ? c.flush_messages : 1;
    return c;
}

static struct ks_log *log_of(struct ks_log_config c)
{
    struct ks_log *log = st_log(&b1, &topic, 0);
    c = config(c);
    ks_log_configure(log, &c);
    return log;
}

static void put(struct ks_log *log, int64_t ts)
{
    struct st_batch s = {.count = 2, .ts = ts};
    KT_EQ(st_append(&b1, log, st_make(&s)).error, 0);
}

/* A round of retention, with all that it starts. */
static int64_t retained(struct ks_log *log)
{
    ks_retention_post(b1.e);
    do {
        uv_run(&b1.loop.uv, UV_RUN_ONCE);
    } while (log->trimming);
    return ks_log_offsets(log).start;
}

static uint32_t files(const struct ks_log *log)
{
    return log->st.n_segs;
}

static void an_idle_partition_goes_whole(void)
{
    begin();
    struct ks_log *log =
        log_of((struct ks_log_config){.segment_bytes = 2 * BATCH, .retention_ms = 100000});
    int64_t now = kc_wall_ms();
    for (int i = 0; i < 5; i++) {
        put(log, now - 200000);
    }
    KT_EQ(files(log), 3);
    KT_EQ(retained(log), 10);
    KT_EQ(ks_log_size_bytes(log), 0);
    KT_EQ(files(log), 1);
    KT_EQ(st_read(&b1, log, 9, 10, 100).r.error, 1);
    KT_EQ(retained(log), 10); /* an empty file is no reason for another one */
    uint64_t k = log->c_next_k;
    KT_EQ(retained(log), 10);
    KT_EQ(log->c_next_k, k);
    put(log, now);
    KT_EQ(retained(log), 10);
    KT_EQ(st_read(&b1, log, 10, 12, 100).last, 11);
    st_close(&b1, log);
    log = st_log(&b1, &topic, 0);
    KT_EQ(ks_log_offsets(log).start, 10);
    KT_EQ(st_count(&b1, log), 2);
    st_close(&b1, log);
    end();
}

static void what_is_young_keeps_what_follows_it(void)
{
    begin();
    struct ks_log *log =
        log_of((struct ks_log_config){.segment_bytes = BATCH, .retention_ms = 100000});
    int64_t now = kc_wall_ms();
    put(log, now - 200000);
    put(log, now);
    put(log, now - 200000);
    KT_EQ(retained(log), 2); /* from the front, up to the first that stays */
    st_close(&b1, log);
    end();
}

static void an_append_under_way_keeps_the_active_file(void)
{
    begin();
    struct ks_log *log =
        log_of((struct ks_log_config){.segment_bytes = 3 * BATCH, .retention_ms = 100000});
    int64_t now = kc_wall_ms();
    for (int i = 0; i < 4; i++) {
        put(log, now - 200000);
    }
    /* The TRIM is decided with nothing under way, and overtaken: it keeps what it finds. */
    struct ks_trim *tr = ks_trim_new(log, 8, true);
    KT_TRUE(tr->roll);
    KT_EQ(tr->n, 2);
    struct st_append a;
    struct st_batch s = {.count = 2, .ts = now};
    st_append_start(log, st_make(&s), KS_FROM_CLIENT, &a);
    ks_trim_start(log, tr);
    st_until(&b1, &a.done);
    KT_EQ(a.r.error, 0);
    while (log->trimming) {
        uv_run(&b1.loop.uv, UV_RUN_ONCE);
    }
    KT_EQ(ks_log_offsets(log).start, 6);
    KT_EQ(st_read(&b1, log, 6, 10, 1000).last, 9);
    KT_EQ(retained(log), 6);
    st_close(&b1, log);
    end();
}

static void files_without_timestamps_are_as_old_as_their_last_append(void)
{
    begin();
    struct ks_log *log =
        log_of((struct ks_log_config){.segment_bytes = BATCH, .retention_ms = 1000000});
    struct st_batch s = {.ts = -1};
    KT_EQ(st_append(&b1, log, st_make(&s)).error, 0);
    KT_EQ(log->st.segs[0].max_ts, -1);
    KT_EQ(retained(log), 0);
    log->st.segs[0].seen_ms -= 2000000; /* as if it had been long ago */
    KT_EQ(retained(log), 1);
    KT_EQ(st_append(&b1, log, st_make(&s)).error, 0);
    KT_EQ(retained(log), 1);
    st_close(&b1, log);
    end();
}

/* Files of many partitions that come of age together go a few at a time: acks share turns with them. */
static void many_partitions_are_trimmed_a_few_at_a_time(void)
{
    enum { LOGS = 20 };
    begin();
    struct ks_log *logs[LOGS];
    struct ks_log_config c = config((struct ks_log_config){.retention_ms = 100000});
    for (int i = 0; i < LOGS; i++) {
        logs[i] = st_log(&b1, &topic, i);
        ks_log_configure(logs[i], &c);
        put(logs[i], kc_wall_ms() - 200000);
    }
    int most = 0, left = LOGS;
    ks_retention_post(b1.e);
    while (left > 0) {
        uv_run(&b1.loop.uv, UV_RUN_ONCE);
        int under_way = 0;
        left = 0;
        for (int i = 0; i < LOGS; i++) {
            under_way += logs[i]->trimming;
            left += ks_log_offsets(logs[i]).start == 0;
        }
        most = KC_MAX(most, under_way);
    }
    KT_TRUE(most > 0 && most < LOGS / 2);
    KT_EQ(logs[0]->shard->retention_trims, 0);
    KT_EQ(logs[0]->shard->retention_left, 0);
    KT_EQ(retained(logs[0]), 2); /* and the next round looks at all of them again */
    for (int i = 0; i < LOGS; i++) {
        st_close(&b1, logs[i]);
    }
    end();
}

static void size_takes_whole_files_and_the_active_one_at_0(void)
{
    begin();
    struct ks_log *log =
        log_of((struct ks_log_config){.segment_bytes = BATCH, .retention_bytes = 2 * BATCH + 1});
    int64_t now = kc_wall_ms();
    for (int i = 0; i < 5; i++) {
        put(log, now);
    }
    KT_EQ(ks_log_size_bytes(log), 5 * BATCH);
    KT_EQ(retained(log), 4); /* three files are more than asked for, two would be less */
    struct ks_log_config c = config((struct ks_log_config){0});
    c.retention_bytes = 0;
    ks_log_configure(log, &c);
    KT_EQ(retained(log), 10);
    st_close(&b1, log);
    end();
}

static void more_files_than_a_record_names_go_in_rounds(void)
{
    begin();
    struct ks_log *log =
        log_of((struct ks_log_config){.segment_bytes = BATCH, .retention_ms = 100000});
    int64_t now = kc_wall_ms();
    for (int i = 0; i < 100; i++) {
        put(log, now - 200000);
    }
    KT_EQ(retained(log), 200);
    for (int i = 0; i < 4 && files(log) > 1; i++) {
        retained(log);
    }
    KT_EQ(files(log), 1);
    KT_EQ(ks_log_size_bytes(log), 0);
    st_close(&b1, log);
    end();
}

static void compacted_logs_keep_what_is_old(void)
{
    begin();
    struct ks_log *log = log_of((struct ks_log_config){.segment_bytes = BATCH});
    put(log, 1000);
    put(log, 1000);
    struct ks_log_config only =
        config((struct ks_log_config){.retention_ms = 1, .compact = true, .compact_only = true});
    ks_log_configure(log, &only);
    KT_EQ(retained(log), 0);
    struct ks_log_config c = config((struct ks_log_config){.retention_ms = 1, .compact = true});
    ks_log_configure(log, &c); /* compact,delete */
    KT_EQ(retained(log), 4);
    st_close(&b1, log);
    end();
}

static void files_end_by_the_time_of_their_records(void)
{
    begin();
    struct ks_log *log = log_of((struct ks_log_config){.segment_ms = 1000});
    put(log, 5000); /* max 5001: what counts */
    put(log, 6000); /* max 6001: not more than 1000 later */
    KT_EQ(files(log), 1);
    put(log, 6001);
    KT_EQ(files(log), 2);
    put(log, 100); /* back in time is no age */
    put(log, 7001);
    KT_EQ(files(log), 2);
    put(log, 7002);
    KT_EQ(files(log), 3);
    struct ks_log_config c = config((struct ks_log_config){.segment_ms = 1});
    ks_log_configure(log, &c);
    struct st_append a[3]; /* also within what one turn writes */
    for (int i = 0; i < 3; i++) {
        struct st_batch s = {.count = 2, .ts = 10000 + 10 * i};
        st_append_start(log, st_make(&s), KS_FROM_CLIENT, &a[i]);
    }
    st_until(&b1, &a[2].done);
    KT_EQ(files(log), 6);
    KT_EQ(st_count(&b1, log), 18);
    st_close(&b1, log);
    end();
}

static void jitter_makes_files_end_earlier(void)
{
    begin();
    struct ks_log *log =
        log_of((struct ks_log_config){.segment_ms = 1000, .segment_jitter_ms = 1000});
    put(log, 5000);
    log->c_jitter = UINT32_MAX; /* as if that had been drawn */
    put(log, 5010);
    KT_EQ(files(log), 2);
    log->c_jitter = 0;
    put(log, 6000);
    KT_EQ(files(log), 2);
    log->c_jitter = UINT32_MAX / 2;
    put(log, 5500);
    KT_EQ(files(log), 2);
    put(log, 5520);
    KT_EQ(files(log), 3);
    st_close(&b1, log);
    end();
}

/* ---- relaxed flushing ---- */

static uint64_t syncs(void)
{
    struct ks_metrics m;
    ks_metrics_read(b1.e, &m);
    return m.fsyncs;
}

static void relaxed_logs_sync_after_so_many_records(void)
{
    begin();
    struct ks_log *log = log_of((struct ks_log_config){.flush_messages = 5});
    uint64_t s0 = syncs();
    put(log, 1000);
    put(log, 1000);
    KT_EQ(syncs(), s0);
    KT_EQ(ks_log_offsets(log).high_watermark, 4); /* acknowledged all the same */
    put(log, 1000);
    KT_EQ(syncs(), s0 + 1);
    put(log, 1000);
    KT_EQ(syncs(), s0 + 1);
    KT_EQ(ks_inc_fence(&b1.e->fs, 1, &b1.inc), 0); /* the fence check is never given up */
    struct st_batch s = {.count = 2};
    KT_EQ(st_append(&b1, log, st_make(&s)).error, 6);
    st_close(&b1, log);
    end();
}

static void relaxed_logs_sync_by_themselves_in_time(void)
{
    begin();
    struct ks_log *log = log_of((struct ks_log_config){.flush_messages = 1000, .flush_ms = 1});
    uint64_t s0 = syncs();
    put(log, 1000);
    int64_t until = kc_mono_ms() + 20000;
    while (syncs() == s0 && kc_mono_ms() < until) { /* nothing is appended any more */
        uv_run(&b1.loop.uv, UV_RUN_NOWAIT);
    }
    KT_EQ(syncs(), s0 + 1);
    put(log, 1000);
    atomic_store(&sync_once, true);
    atomic_store(&sync_error, EIO); /* an error is found, and a recovery copies what is acked */
    while (ks_log_epoch(log) == 0 && kc_mono_ms() < until) {
        uv_run(&b1.loop.uv, UV_RUN_NOWAIT);
    }
    KT_EQ(ks_log_epoch(log), 1);
    KT_EQ(st_count(&b1, log), 4);
    st_close(&b1, log);
    end();
}

/* A data loop ends when its logs are let go, before the engine does: what comes then would never be run. */
static void nothing_is_said_to_a_loop_without_logs(void)
{
    begin();
    struct ks_log *log = st_log(&b1, &topic, 0);
    st_close(&b1, log);
    uv_run(&b1.loop.uv, UV_RUN_NOWAIT);
    ks_retention_post(b1.e);
    KT_FALSE(ks_clean_now(b1.e));
    KT_TRUE(atomic_load(&b1.loop.inbox) == NULL);
    end();
}

KT_MAIN("retention", KT(nothing_is_said_to_a_loop_without_logs), KT(an_idle_partition_goes_whole),
        KT(what_is_young_keeps_what_follows_it), KT(an_append_under_way_keeps_the_active_file),
        KT(files_without_timestamps_are_as_old_as_their_last_append),
        KT(many_partitions_are_trimmed_a_few_at_a_time),
        KT(size_takes_whole_files_and_the_active_one_at_0),
        KT(more_files_than_a_record_names_go_in_rounds), KT(compacted_logs_keep_what_is_old),
        KT(files_end_by_the_time_of_their_records), KT(jitter_makes_files_end_earlier),
        KT(relaxed_logs_sync_after_so_many_records), KT(relaxed_logs_sync_by_themselves_in_time))
