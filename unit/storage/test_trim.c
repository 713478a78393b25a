/* The log start moves: DeleteRecords at every kind of offset, what it leaves, and what it costs. */
#include "st.h"

#include <errno.h>
#include <stdatomic.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"

static struct st_vol vol;
static struct st_broker b1, b2;
static struct kc_uuid topic;
static _Atomic int link_error; /* of every chain record from now on */

static int before(void *ctx, enum st_op op, const char *path)
{
    (void)ctx;
    return op == ST_LINK && strstr(path, "ctl.") ? -atomic_load(&link_error) : 0;
}

static void begin(void)
{
    static const struct st_hooks hooks = {.before = before};
    atomic_store(&link_error, 0);
    st_begin(&vol, &b1, 1, &hooks, &topic);
    st_broker_start(&b2, &vol, 2);
}

static void end(void)
{
    st_end_pair(&vol, &b1, &b2);
}

/* A log whose files take two batches of two records each; n batches. */
static struct ks_log *log_with(int n)
{
    struct ks_log *log = st_log_small(&b1, &topic, 250);
    for (int i = 0; i < n; i++) {
        st_put(&b1, log, 2);
    }
    return log;
}

struct deletion {
    struct ks_delete d;
    bool done;
    int16_t error;
    int64_t start;
};

static void on_deleted(struct ks_delete *d, int16_t error, int64_t log_start)
{
    struct deletion *x = KC_CONTAINER_OF(d, struct deletion, d);
    KT_FALSE(x->done);
    x->done = true;
    x->error = error;
    x->start = log_start;
}

static void begin_delete(struct ks_log *log, struct deletion *x, int64_t offset)
{
    *x = (struct deletion){.d = {.offset = offset, .done = on_deleted}};
    ks_log_delete_records(log, &x->d);
}

/* The new start, or -error. */
static int64_t delete_below(struct st_broker *b, struct ks_log *log, int64_t offset)
{
    struct deletion x;
    begin_delete(log, &x, offset);
    st_until(b, &x.done);
    KT_EQ(x.start < 0, x.error != 0);
    return x.error ? -x.error : x.start;
}

static bool on_volume(const struct ks_chain_file *f)
{
    char path[KS_PATH_MAX];
    ks_path_file(path, &topic, 0, f->id);
    int fd = ks_fs_open(&b2.e->fs, path, KS_HANDLE);
    if (fd >= 0) {
        ks_fs_close(&b2.e->fs, fd);
    }
    return fd >= 0;
}

static void read_chain(struct ks_chain *c)
{
    struct kc_err err;
    ks_chain_init(c);
    KT_REQUIRE(ks_chain_load(&b2.e->fs, &topic, 0, 0, c, &err) == 0);
}

static void the_start_moves_into_a_batch_of_a_file(void)
{
    begin();
    struct ks_log *log = log_with(6);
    KT_EQ(delete_below(&b1, log, 3), 3);
    struct ks_offsets o = ks_log_offsets(log);
    KT_EQ(o.start, 3);
    KT_EQ(o.last_stable, 12);
    KT_EQ(st_read(&b1, log, 2, 12, 1000).r.error, 1);
    struct st_read r = st_read(&b1, log, 3, 12, 1000);
    KT_EQ(r.r.error, 0);
    KT_EQ(r.first, 2); /* batches are whole, as in Kafka: consumers skip what is below */
    ks_cache_drop(log);
    KT_EQ(st_read(&b1, log, 2, 12, 1000).r.error, 1);
    KT_EQ(st_read(&b1, log, 3, 12, 1000).first, 2);
    st_close(&b1, log);
    end();
}

static void files_wholly_below_the_start_go(void)
{
    begin();
    struct ks_log *log = log_with(6); /* files 0-3, 4-7, 8-11 */
    uint64_t bytes = ks_log_size_bytes(log);
    KT_EQ(delete_below(&b1, log, 9), 9);
    KT_EQ(ks_log_size_bytes(log), bytes / 3);
    struct ks_chain c;
    read_chain(&c);
    KT_EQ(c.log_start, 9);
    KT_EQ(c.n_files, 3);
    KT_TRUE(c.files[0].dropped && c.files[1].dropped && !c.files[2].dropped);
    st_close(&b1, log);
    st_broker_stop(&b1); /* what is left to do elsewhere is done */
    KT_TRUE(!on_volume(&c.files[0]) && !on_volume(&c.files[1]) && on_volume(&c.files[2]));
    ks_chain_fini(&c);
    st_broker_start(&b1, &vol, 1);
    end();
}

static void everything_goes_and_the_log_goes_on(void)
{
    begin();
    struct ks_log *log = log_with(5);
    KT_EQ(delete_below(&b1, log, -1), 10);
    KT_EQ(ks_log_offsets(log).high_watermark, 10);
    KT_EQ(st_read(&b1, log, 9, 10, 1000).r.error, 1);
    KT_EQ(st_read(&b1, log, 10, 10, 1000).r.error, 0);
    KT_EQ(st_put(&b1, log, 2), 10);
    KT_EQ(st_read(&b1, log, 10, 12, 1000).last, 11);
    st_close(&b1, log);
    log = st_log(&b2, &topic, 0);
    KT_EQ(ks_log_offsets(log).start, 10);
    KT_EQ(st_count(&b2, log), 2);
    KT_EQ(delete_below(&b2, log, 12), 12);
    st_close(&b2, log);
    struct kc_uuid again = kc_uuid_random();
    KT_EQ(ks_register(b1.e, &again, NULL), 0);
    log = st_log(&b1, &topic, 0); /* nothing is left, and offsets do not start again */
    KT_EQ(ks_log_offsets(log).start, 12);
    KT_EQ(st_put(&b1, log, 1), 12);
    st_close(&b1, log);
    end();
}

static void offsets_that_cannot_be_the_start_are_refused(void)
{
    begin();
    struct ks_log *log = log_with(3);
    KT_EQ(delete_below(&b1, log, 7), -1);
    KT_EQ(delete_below(&b1, log, -2), -1);
    KT_EQ(delete_below(&b1, log, INT64_MAX), -1);
    KT_EQ(ks_log_offsets(log).start, 0);
    KT_EQ(delete_below(&b1, log, 4), 4);
    KT_EQ(delete_below(&b1, log, 2), 4); /* below the start: fine, and nothing changes */
    KT_EQ(delete_below(&b1, log, 4), 4);
    struct ks_chain c;
    read_chain(&c);
    uint64_t k = c.next_k;
    ks_chain_fini(&c);
    KT_EQ(delete_below(&b1, log, 0), 4);
    read_chain(&c);
    KT_EQ(c.next_k, k); /* what changes nothing leaves no record */
    ks_chain_fini(&c);
    struct ks_log_config cfg = log->cfg;
    cfg.compact = cfg.compact_only = true;
    ks_log_configure(log, &cfg);
    KT_EQ(delete_below(&b1, log, 5), -44);
    cfg.compact_only = false; /* "compact,delete" */
    ks_log_configure(log, &cfg);
    KT_EQ(delete_below(&b1, log, 5), 5);
    st_close(&b1, log);
    end();
}

static void requests_that_wait_share_a_record(void)
{
    enum { N = 200 };
    static struct deletion x[N];
    begin();
    struct ks_log *log = log_with(N / 2);
    uint64_t k = log->c_next_k;
    for (int i = 0; i < N; i++) {
        begin_delete(log, &x[i], (i * 7) % (N + 1));
    }
    for (int i = 0; i < N; i++) {
        st_until(&b1, &x[i].done);
        KT_EQ(x[i].error, 0);
        KT_TRUE(x[i].start >= x[i].d.offset);
    }
    KT_EQ(ks_log_offsets(log).start, N);
    KT_EQ(log->c_next_k, k + 1); /* the first asked for 0, which is no news; all others waited */
    st_close(&b1, log);
    end();
}

static void a_fenced_owner_deletes_nothing(void)
{
    begin();
    struct ks_log *log = log_with(3);
    struct deletion old, new;
    KT_EQ(ks_inc_fence(&b2.e->fs, 1, &b1.inc), 0);
    begin_delete(log, &old, 0); /* not even what is true already is said */
    st_until(&b1, &old.done);
    KT_EQ(old.error, 6);
    begin_delete(log, &new, 2);
    st_until(&b1, &new.done);
    KT_EQ(new.error, 6);
    struct ks_log *next = st_log(&b2, &topic, 0);
    KT_EQ(ks_log_offsets(next).start, 0);
    KT_EQ(st_count(&b2, next), 6);
    st_close(&b1, log);
    st_close(&b2, next);
    end();
}

static void a_deposed_owner_is_told_so(void)
{
    begin();
    struct ks_log *log = log_with(3);
    struct ks_log *next = st_log(&b2, &topic, 0);
    KT_EQ(delete_below(&b1, log, 2), -6); /* the name of its record is taken */
    KT_EQ(ks_log_offsets(next).start, 0);
    KT_EQ(delete_below(&b2, next, 4), 4);
    st_close(&b1, log);
    st_close(&b2, next);
    end();
}

static void an_error_of_the_volume_is_answered_and_the_log_comes_back(void)
{
    begin();
    struct ks_log *log = log_with(3);
    struct deletion x, waits;
    atomic_store(&link_error, EIO);
    begin_delete(log, &x, 2);
    begin_delete(log, &waits, 3);
    st_until(&b1, &x.done);
    st_until(&b1, &waits.done);
    KT_EQ(x.error, 56);
    KT_EQ(waits.error, 56);
    KT_EQ(ks_log_offsets(log).start, 0);
    atomic_store(&link_error, 0);
    while (ks_log_epoch(log) == 0) { /* a recovery claims again */
        uv_run(&b1.loop.uv, UV_RUN_ONCE);
    }
    KT_EQ(delete_below(&b1, log, 5), 5);
    KT_EQ(st_put(&b1, log, 1), 6);
    st_close(&b1, log);
    end();
}

static void closing_answers_what_waits(void)
{
    begin();
    struct ks_log *log = log_with(3);
    struct deletion first, second;
    begin_delete(log, &first, 2);
    begin_delete(log, &second, 3);
    ks_log_close(log);
    KT_TRUE(first.done && second.done);
    KT_EQ(first.error, 6);
    KT_EQ(second.error, 6);
    log = st_log(&b2, &topic, 0); /* either happened or not, and the log is whole */
    KT_EQ(st_count(&b2, log), 6 - ks_log_offsets(log).start);
    st_close(&b2, log);
    end();
}

static void epochs_below_the_start_are_forgotten(void)
{
    begin();
    struct ks_log *log = log_with(2);
    st_close(&b1, log);
    log = st_log(&b2, &topic, 0); /* epoch 1 starts at 4 */
    st_put(&b2, log, 2);
    int32_t epoch;
    int64_t offset;
    ks_log_epoch_end(log, 0, &epoch, &offset);
    KT_EQ(epoch, 0);
    KT_EQ(offset, 4);
    KT_EQ(delete_below(&b2, log, 3), 3);
    ks_log_epoch_end(log, 0, &epoch, &offset);
    KT_EQ(offset, 4);
    KT_EQ(ks_log_start_epoch(log), 0);
    KT_EQ(delete_below(&b2, log, 5), 5);
    KT_EQ(ks_log_start_epoch(log), 1);
    ks_log_epoch_end(log, 0, &epoch, &offset); /* gone: where what is left begins */
    KT_EQ(epoch, 0);
    KT_EQ(offset, 5);
    st_close(&b2, log);
    struct kc_uuid again = kc_uuid_random();
    KT_EQ(ks_register(b1.e, &again, NULL), 0);
    log = st_log(&b1, &topic, 0); /* the same after a takeover */
    ks_log_epoch_end(log, 0, &epoch, &offset);
    KT_EQ(epoch, 0);
    KT_EQ(offset, 5);
    ks_log_epoch_end(log, 1, &epoch, &offset);
    KT_EQ(epoch, 1);
    KT_EQ(offset, 6);
    st_close(&b1, log);
    end();
}

static void producers_outlive_the_records_they_wrote(void)
{
    begin();
    struct ks_log *log = log_with(0);
    struct st_batch once = {.pid = 8, .count = 2}, other = {.pid = 9, .count = 2};
    KT_EQ(st_append(&b1, log, st_make(&once)).base_offset, 0);
    for (int i = 0; i < 5; i++) {
        KT_EQ(st_append(&b1, log, st_make(&other)).error, 0);
        other.seq += 2;
    }
    KT_EQ(delete_below(&b1, log, 9), 9);
    st_close(&b1, log);
    log = st_log(&b2, &topic, 0);
    struct ks_append_result r = st_append(&b2, log, st_make(&once));
    KT_EQ(r.error, 0);
    KT_EQ(r.base_offset, 0); /* a repeat, still */
    KT_EQ(ks_log_offsets(log).high_watermark, 12);
    KT_EQ(ks_log_offsets(log).start, 9);
    int64_t until = kc_mono_ms() + 20000;
    while (log->st.segs[0].base < 8 && kc_mono_ms() < until) { /* and the files go in time */
        ks_retention_post(b2.e);
        uv_run(&b2.loop.uv, UV_RUN_ONCE);
    }
    KT_EQ(log->st.segs[0].base, 8);
    st_close(&b2, log);
    end();
}

/* Relaxed flushing: what a crash of the machine could take must not be below the start. */
static void unsynced_records_are_synced_before_the_start_passes_them(void)
{
    begin();
    struct ks_log *log = log_with(0);
    struct ks_log_config cfg = log->cfg;
    cfg.flush_messages = 1000;
    cfg.segment_bytes = 1 << 20;
    ks_log_configure(log, &cfg);
    st_put(&b1, log, 4);
    struct ks_metrics m0, m1;
    ks_metrics_read(b1.e, &m0);
    KT_EQ(log->c_unsynced, 4);
    KT_EQ(delete_below(&b1, log, 3), 3);
    ks_metrics_read(b1.e, &m1);
    KT_EQ(log->c_unsynced, 0);
    KT_EQ(m1.fsyncs, m0.fsyncs + 1);
    st_close(&b1, log);
    end();
}

KT_MAIN("trim", KT(the_start_moves_into_a_batch_of_a_file), KT(files_wholly_below_the_start_go),
        KT(everything_goes_and_the_log_goes_on), KT(offsets_that_cannot_be_the_start_are_refused),
        KT(requests_that_wait_share_a_record), KT(a_fenced_owner_deletes_nothing),
        KT(a_deposed_owner_is_told_so),
        KT(an_error_of_the_volume_is_answered_and_the_log_comes_back),
        KT(closing_answers_what_waits), KT(epochs_below_the_start_are_forgotten),
        KT(producers_outlive_the_records_they_wrote),
        KT(unsynced_records_are_synced_before_the_start_passes_them))
