/* Two brokers, one volume: who may write, what a new owner sees. */
#include "st.h"

#include "base/kc_mem.h"
#include "storage/ks_bytes.h"

static struct st_vol vol;
static struct st_broker b1, b2;
static struct kc_uuid topic;

static void begin(void)
{
    st_begin(&vol, &b1, 1, NULL, &topic);
    st_broker_start(&b2, &vol, 2);
}

static void end(void)
{
    st_end_pair(&vol, &b1, &b2);
}

/* b1 has partition 0. */
static struct ks_log *begin_owned(void)
{
    begin();
    return st_log(&b1, &topic, 0);
}

/* b2 has it, too. */
static void end_taken(struct ks_log *l1, struct ks_log *l2)
{
    st_close(&b1, l1);
    st_close(&b2, l2);
    end();
}

/* b's opening of partition 0 that condemns nobody. */
static struct ks_open_args peaceful(struct st_broker *b, struct st_open *o)
{
    struct ks_open_args args = st_args(b, &topic, 0, o);
    args.condemned = st_condemn_none;
    return args;
}

static bool gone_flag;

static void on_watch(void *ctx, struct ks_log *log, bool gone)
{
    (void)ctx;
    (void)log;
    gone_flag = gone_flag || gone;
}

static void a_fenced_owner_acks_nothing_more(void)
{
    struct ks_log *l1 = begin_owned();
    gone_flag = false;
    ks_log_watch(l1, on_watch, NULL);
    for (int i = 0; i < 10; i++) {
        st_put(&b1, l1, 2);
    }
    struct ks_log *l2 = st_log(&b2, &topic, 0);
    KT_EQ(ks_log_epoch(l2), 1);
    KT_EQ(ks_log_offsets(l2).high_watermark, 20);
    KT_EQ(st_put(&b1, l1, 1), -6); /* never told success, whatever is on disk */
    st_until(&b1, &gone_flag);
    st_until(&b1, &b1.fenced);
    KT_EQ(b1.n_fenced, 1);
    KT_EQ(st_put(&b2, l2, 1), 20);
    KT_EQ(st_count(&b2, l2), 21);
    /* Reads of a log that has stopped are refused, too. */
    KT_EQ(st_read(&b1, l1, 0, 20, 100).r.error, 6);
    end_taken(l1, l2);
}

static void the_late_write_of_a_fenced_owner_is_not_served(void)
{
    struct ks_log *l1 = begin_owned();
    st_put(&b1, l1, 5);
    struct ks_log *l2 = st_log(&b2, &topic, 0);
    KT_EQ(st_put(&b1, l1, 7), -6); /* its bytes are in the file, beyond the seal */
    st_close(&b1, l1);
    KT_EQ(st_put(&b2, l2, 3), 5);
    struct st_seal s;
    st_seal(&b2, l2, &s);
    KT_EQ(s.rc, 0);
    KT_EQ(s.end, 8);
    l2 = st_log(&b2, &topic, 0);
    KT_EQ(ks_log_offsets(l2).high_watermark, 8);
    KT_EQ(st_count(&b2, l2), 8);
    struct ks_metrics m;
    ks_metrics_read(b2.e, &m);
    KT_TRUE(m.zombie_bytes > 0);
    uint64_t once = m.zombie_bytes;
    st_close(&b2, l2);
    l2 = st_log(&b2, &topic, 0); /* they lie there at the next takeover, too */
    ks_metrics_read(b2.e, &m);
    KT_EQ(m.zombie_bytes, once);
    st_close(&b2, l2);
    end();
}

static void a_torn_tail_ends_the_epoch(void)
{
    char path[256];
    struct ks_log *l1 = begin_owned();
    st_put(&b1, l1, 5);
    st_data_path(&vol, l1, path);
    struct kc_slice whole = st_make(&(struct st_batch){.count = 2});
    ks_batch_place(whole.buf->data, 5, 0);
    st_file_append(path, whole.ptr, whole.len); /* durable, never acked: may count */
    struct kc_slice torn = st_make(&(struct st_batch){.count = 3, .value_len = 500});
    ks_batch_place(torn.buf->data, 7, 0);
    st_file_append(path, torn.ptr, torn.len - 100);
    struct ks_log *l2 = st_log(&b2, &topic, 0);
    KT_EQ(ks_log_offsets(l2).high_watermark, 7);
    KT_EQ(st_count(&b2, l2), 7);
    KT_EQ(st_put(&b2, l2, 1), 7);
    kc_buf_unref(whole.buf);
    kc_buf_unref(torn.buf);
    end_taken(l1, l2);
}

static void bytes_of_a_wrong_epoch_or_offset_do_not_count(void)
{
    for (int what = 0; what < 3; what++) {
        char path[256];
        struct ks_log *l1 = begin_owned();
        st_put(&b1, l1, 5);
        st_data_path(&vol, l1, path);
        struct kc_slice b = st_make(&(struct st_batch){.count = 1});
        ks_batch_place(b.buf->data, what == 0 ? 6 : 5, what == 1 ? 1 : 0);
        if (what == 2) {
            b.buf->data[70] ^= 1; /* the checksum is wrong */
        }
        st_file_append(path, b.ptr, b.len);
        kc_buf_unref(b.buf);
        struct ks_log *l2 = st_log(&b2, &topic, 0);
        KT_EQ(ks_log_offsets(l2).high_watermark, 5);
        end_taken(l1, l2);
    }
}

static void batches_larger_than_the_scan_window_are_checked(void)
{
    struct ks_log *l1 = begin_owned();
    for (int i = 0; i < 6; i++) {
        struct st_batch s = {
            .count = 2, .value_len = 50000 + 90000 * (size_t)i, .pid = 4, .seq = 2 * i};
        KT_EQ(st_append(&b1, l1, st_make(&s)).error, 0);
    }
    struct ks_log *l2 = st_log(&b2, &topic, 0);
    KT_EQ(ks_log_offsets(l2).high_watermark, 12);
    KT_EQ(st_count(&b2, l2), 12);
    end_taken(l1, l2);
}

static void a_live_incarnation_blocks_and_is_not_fenced(void)
{
    struct ks_log *l1 = begin_owned();
    st_put(&b1, l1, 1);
    struct st_open o;
    struct ks_open_args args = peaceful(&b2, &o);
    KT_EQ(st_open_rc(&b2, &args, &o), KC_E_BLOCKED);
    KT_EQ(o.blocker, 1);
    KT_TRUE(kc_uuid_eq(&o.blocker_inc, &b1.inc));
    KT_TRUE(o.log == NULL);
    KT_EQ(st_put(&b1, l1, 1), 1);
    st_close(&b1, l1);
    end();
}

static void an_older_order_yields(void)
{
    begin();
    struct st_open o;
    struct ks_open_args args = st_args(&b1, &topic, 0, &o);
    args.order = (struct kp_order){.uid = "u", .term = 2, .generation = 5};
    KT_EQ(st_open_rc(&b1, &args, &o), 0);
    struct ks_log *l1 = o.log;
    ks_log_own(l1, &b1.loop);
    args = st_args(&b2, &topic, 0, &o);
    args.order = (struct kp_order){.uid = "u", .term = 2, .generation = 4};
    KT_EQ(st_open_rc(&b2, &args, &o), KC_E_DEPOSED);
    KT_EQ(st_put(&b1, l1, 1), 0);
    args = st_args(&b2, &topic, 0, &o);
    args.order = (struct kp_order){.uid = "other", .term = 1, .generation = 1};
    KT_EQ(st_open_rc(&b2, &args, &o), 0); /* orders of different uids are not compared */
    st_close(&b1, l1);
    ks_log_own(o.log, &b2.loop);
    st_close(&b2, o.log);
    end();
}

static void the_same_incarnation_claims_again_without_fencing_itself(void)
{
    struct ks_log *l1 = begin_owned();
    struct ks_log *other = st_log(&b1, &topic, 1);
    st_put(&b1, l1, 4);
    st_close(&b1, l1);
    struct st_open o;
    struct ks_open_args args = peaceful(&b1, &o);
    KT_EQ(st_open_rc(&b1, &args, &o), 0);
    ks_log_own(o.log, &b1.loop);
    KT_EQ(ks_log_epoch(o.log), 1);
    KT_EQ(ks_log_offsets(o.log).high_watermark, 4);
    KT_EQ(st_put(&b1, o.log, 1), 4);
    KT_EQ(st_put(&b1, other, 1), 0);
    KT_EQ(b1.n_fenced, 0);
    st_close(&b1, o.log);
    st_close(&b1, other);
    end();
}

static void a_sealed_partition_needs_no_fence(void)
{
    struct ks_log *l1 = begin_owned();
    struct ks_log *kept = st_log(&b1, &topic, 1);
    st_put(&b1, l1, 4);
    struct st_seal s;
    st_seal(&b1, l1, &s);
    KT_EQ(s.rc, 0);
    KT_EQ(s.epoch, 0);
    struct st_open o;
    struct ks_open_args args = peaceful(&b2, &o);
    KT_EQ(st_open_rc(&b2, &args, &o), 0);
    KT_EQ(ks_log_epoch(o.log), 1);
    ks_log_own(o.log, &b2.loop);
    KT_EQ(st_count(&b2, o.log), 4);
    KT_EQ(st_put(&b1, kept, 1), 0); /* the old owner lives on with the rest */
    st_close(&b2, o.log);
    st_close(&b1, kept);
    end();
}

/* What the target saw before the seal: nothing yet, whole files, part of the open one, or a batch
 * that the owner then wrote over. */
static void planned_move(int64_t segment_bytes, int puts, bool mislead)
{
    begin();
    struct ks_log *l1 = st_log_small(&b1, &topic, segment_bytes);
    for (int i = 0; i < puts; i++) {
        st_append(&b1, l1, st_make(&(struct st_batch){.count = 2, .pid = 9, .seq = 2 * i}));
    }
    if (mislead) {
        char path[256];
        struct kc_slice b = st_make(&(struct st_batch){.count = 2, .value_len = 20});
        ks_batch_place(b.buf->data, 2 * puts, 0);
        st_data_path(&vol, l1, path);
        st_file_append(path, b.ptr, b.len);
        kc_buf_unref(b.buf);
    }
    struct st_open o;
    struct ks_open_args args = peaceful(&b2, &o);
    o.handle = ks_log_prepare(b2.e, &args);
    st_until(&b2, &o.done);
    KT_EQ(o.rc, 0);
    KT_TRUE(o.log == NULL);
    st_put(&b1, l1, 5); /* the owner goes on while the target is warm */
    st_put(&b1, l1, 5);
    struct st_seal s;
    st_seal(&b1, l1, &s);
    KT_EQ(s.rc, 0);
    KT_EQ(s.end, 2 * puts + 10);
    o.done = false;
    ks_open_go(o.handle, s.bytes);
    st_until(&b2, &o.done);
    KT_EQ(o.rc, 0);
    KT_REQUIRE(o.log != NULL);
    ks_log_own(o.log, &b2.loop);
    KT_EQ(ks_log_offsets(o.log).high_watermark, s.end);
    KT_EQ(st_count(&b2, o.log), s.end);
    struct ks_producer p = {0};
    KT_EQ(ks_log_producers(o.log, &p, 1), puts > 0);
    KT_EQ(p.last_sequence, puts > 0 ? 2 * puts - 1 : 0);
    KT_EQ(b1.n_fenced, 0);
    st_close(&b2, o.log);
    end();
}

static void a_planned_move_warms_then_goes(void)
{
    planned_move(1 << 30, 0, false);
    planned_move(1 << 30, 60, false);
    planned_move(2000, 60, false);
    planned_move(1 << 30, 60, true);
    planned_move(1 << 30, 0, true);
}

static void a_cancelled_move_leaves_the_owner_alone(void)
{
    struct ks_log *l1 = begin_owned();
    st_put(&b1, l1, 1);
    struct st_open o;
    struct ks_open_args args = peaceful(&b2, &o);
    o.handle = ks_log_prepare(b2.e, &args);
    st_until(&b2, &o.done);
    ks_open_cancel(o.handle);
    KT_EQ(st_put(&b1, l1, 1), 1);
    st_close(&b1, l1);
    struct ks_metrics m;
    ks_metrics_read(b2.e, &m);
    KT_EQ(m.open_logs, 0);
    end();
}

static void claimants_race_and_one_epoch_is_written(void)
{
    begin();
    struct st_open o1, o2;
    struct ks_open_args a1 = st_args(&b1, &topic, 0, &o1), a2 = st_args(&b2, &topic, 0, &o2);
    ks_log_open(b1.e, &a1);
    ks_log_open(b2.e, &a2);
    st_until(&b1, &o1.done);
    st_until(&b2, &o2.done);
    int64_t acked = 0;
    for (int i = 0; i < 2; i++) {
        struct st_broker *b = i ? &b2 : &b1;
        struct ks_log *log = i ? o2.log : o1.log;
        if (log) {
            ks_log_own(log, &b->loop);
            int64_t r = st_put(b, log, 3);
            acked += r >= 0 ? 3 : 0;
            st_close(b, log);
        }
    }
    struct st_broker b3;
    st_broker_start(&b3, &vol, 3);
    struct ks_log *log = st_log(&b3, &topic, 0);
    KT_TRUE(st_count(&b3, log) >= acked);
    st_close(&b3, log);
    st_broker_stop(&b3);
    end();
}

static void a_restart_keeps_producers_and_their_window(void)
{
    struct ks_log *l1 = begin_owned();
    for (int i = 0; i < 7; i++) {
        struct ks_append_result r =
            st_append(&b1, l1, st_make(&(struct st_batch){.pid = 77, .seq = 2 * i, .count = 2}));
        KT_EQ(r.error, 0);
    }
    struct ks_log *l2 = st_log(&b2, &topic, 0);
    struct ks_append_result r =
        st_append(&b2, l2, st_make(&(struct st_batch){.pid = 77, .seq = 8, .count = 2}));
    KT_EQ(r.error, 0);
    KT_EQ(r.base_offset, 8); /* a repeat of before the takeover */
    r = st_append(&b2, l2, st_make(&(struct st_batch){.pid = 77, .seq = 16, .count = 1}));
    KT_EQ(r.error, 45);
    r = st_append(&b2, l2, st_make(&(struct st_batch){.pid = 77, .seq = 14, .count = 1}));
    KT_EQ(r.error, 0);
    KT_EQ(r.base_offset, 14);
    struct ks_producer p[4];
    KT_EQ(ks_log_producers(l2, p, 4), 1);
    KT_EQ(p[0].producer_id, 77);
    KT_EQ(p[0].last_sequence, 14);
    end_taken(l1, l2);
}

static void epochs_and_their_ends_are_known(void)
{
    int32_t epoch;
    int64_t at;
    struct ks_log *log = begin_owned();
    st_put(&b1, log, 5);
    st_close(&b1, log);
    log = st_log(&b1, &topic, 0); /* epoch 1 stays empty */
    st_close(&b1, log);
    log = st_log(&b1, &topic, 0);
    st_put(&b1, log, 2);
    KT_EQ(ks_log_epoch(log), 2);
    ks_log_epoch_end(log, 0, &epoch, &at);
    KT_EQ(epoch, 0);
    KT_EQ(at, 5);
    ks_log_epoch_end(log, 1, &epoch, &at);
    KT_EQ(epoch, 0);
    KT_EQ(at, 5);
    ks_log_epoch_end(log, 2, &epoch, &at);
    KT_EQ(epoch, 2);
    KT_EQ(at, 7);
    ks_log_epoch_end(log, 3, &epoch, &at);
    KT_EQ(epoch, -1);
    KT_EQ(at, -1);
    st_close(&b1, log);
    end();
}

static void a_missing_directory_is_not_made_unasked(void)
{
    begin();
    struct st_open o;
    struct ks_open_args args = st_args(&b1, &topic, 0, &o);
    args.may_create = false;
    KT_EQ(st_open_rc(&b1, &args, &o), KC_E_NOT_FOUND);
    end();
}

static void a_fenced_broker_registers_anew_and_goes_on(void)
{
    struct ks_log *l1 = begin_owned();
    st_put(&b1, l1, 1);
    struct ks_log *l2 = st_log(&b2, &topic, 0);
    KT_EQ(st_put(&b1, l1, 1), -6);
    st_close(&b1, l1);
    struct kc_uuid again = kc_uuid_random();
    KT_EQ(ks_register(b1.e, &again, NULL), 0);
    struct st_seal s;
    st_seal(&b2, l2, &s);
    KT_EQ(s.rc, 0);
    l1 = st_log(&b1, &topic, 0);
    KT_EQ(ks_log_epoch(l1), 2);
    KT_EQ(st_put(&b1, l1, 1), ks_log_offsets(l1).high_watermark - 1);
    st_close(&b1, l1);
    end();
}

KT_MAIN("takeover", KT(a_fenced_owner_acks_nothing_more),
        KT(the_late_write_of_a_fenced_owner_is_not_served), KT(a_torn_tail_ends_the_epoch),
        KT(bytes_of_a_wrong_epoch_or_offset_do_not_count),
        KT(batches_larger_than_the_scan_window_are_checked),
        KT(a_live_incarnation_blocks_and_is_not_fenced), KT(an_older_order_yields),
        KT(the_same_incarnation_claims_again_without_fencing_itself),
        KT(a_sealed_partition_needs_no_fence), KT(a_planned_move_warms_then_goes),
        KT(a_cancelled_move_leaves_the_owner_alone), KT(claimants_race_and_one_epoch_is_written),
        KT(a_restart_keeps_producers_and_their_window), KT(epochs_and_their_ends_are_known),
        KT(a_missing_directory_is_not_made_unasked), KT(a_fenced_broker_registers_anew_and_goes_on))
