/* What the log answers to produced batches: the measured answers of Kafka's broker. */
#include "st_one.h"

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "storage/ks_bytes.h"

static struct kc_slice plain(void)
{
    return st_make(&(struct st_batch){.count = 3});
}

static struct kc_slice cut(struct kc_slice s, size_t by)
{
    s.len -= by;
    return s;
}

static struct kc_slice keep(struct kc_slice s, size_t len)
{
    s.len = len;
    return s;
}

/* Changes one field of a good batch. */
static struct kc_slice set(size_t at, uint32_t v, size_t width, bool crc)
{
    struct kc_slice s = plain();
    switch (width) {
    case 1:
        s.buf->data[at] = (uint8_t)v;
        break;
    case 2:
        ks_put16(s.buf->data + at, (uint16_t)v);
        break;
    default:
        ks_put32(s.buf->data + at, v);
    }
    if (crc) {
        st_fix_crc(s);
    }
    return s;
}

static struct kc_slice twice(void)
{
    struct kc_slice a = plain();
    struct kc_buf *buf = kc_buf_new(a.len * 2);
    memcpy(buf->data, a.ptr, a.len);
    memcpy(buf->data + a.len, a.ptr, a.len);
    struct kc_slice s = {.buf = buf, .ptr = buf->data, .len = a.len * 2};
    kc_buf_unref(a.buf);
    return s;
}

static void malformed_batches_are_refused_as_kafka_does(void)
{
    struct ks_log *log = one_open();
    struct {
        const char *what;
        struct kc_slice batch;
        int16_t error;
    } t[] = {
        {"checksum", set(70, 0xff, 1, false), 2},
        {"magic 1", set(16, 1, 1, false), 87},
        {"magic 3", set(16, 3, 1, false), 2},
        {"two batches", twice(), 87},
        {"empty", keep(plain(), 0), 87},
        {"truncated", cut(plain(), 1), 87},
        {"header only", keep(plain(), 20), 87},
        {"count", set(57, 2, 4, true), 87},
        {"count 0", set(57, 0, 4, true), 87},
        {"last offset delta", set(23, 9, 4, true), 87},
        {"control bit", set(21, 0x20, 2, true), 87},
        {"base offset", set(4, 5, 4, false), 87},
        {"length beyond", set(8, 4000, 4, false), 87},
        {"length negative", set(8, 0xffffff00, 4, false), 87},
        {"codec 5", set(21, 5, 2, true), 87},
        {"gzip that is none", set(21, 1, 2, true), 87},
        {"zstd that is none", set(21, 4, 2, true), 87},
        {"record length", set(61, 0x7f, 1, true), 87},
        {"producer id without sequence", st_make(&(struct st_batch){.pid = 9, .seq = -1}), 87},
        {"too large", st_make(&(struct st_batch){.value_len = 1100000}), 10},
        {"2 h in the future", st_make(&(struct st_batch){.ts = kc_wall_ms() + 7200000}), 32},
    };
    for (size_t i = 0; i < KC_ARRAY_LEN(t); i++) {
        struct ks_append_result r = st_append(&one_b, log, t[i].batch);
        if (r.error != t[i].error) {
            fprintf(stderr, "%s: got %d, want %d\n", t[i].what, r.error, t[i].error);
        }
        KT_EQ(r.error, t[i].error);
        KT_EQ(r.base_offset, -1);
    }
    KT_EQ(ks_log_offsets(log).end, 0);
    KT_EQ(st_put(&one_b, log, 1), 0);
    one_close(log);
}

static void a_wrong_max_timestamp_is_set_right(void)
{
    struct ks_log *log = one_open();
    struct kc_slice s = st_make(&(struct st_batch){.count = 3, .ts = 5000});
    ks_put64(s.buf->data + 35, 1);
    st_fix_crc(s);
    KT_EQ(st_append(&one_b, log, s).error, 0);
    KT_EQ(log->st.segs[0].max_ts, 5002);
    KT_EQ(st_count(&one_b, log), 3); /* the checksum was made anew */
    one_close(log);
}

static void log_append_time_stamps_the_batch(void)
{
    one_begin();
    struct st_open o;
    struct ks_open_args args = st_args(&one_b, &one_topic, 0, &o);
    args.config.log_append_time = true;
    KT_REQUIRE(st_open_rc(&one_b, &args, &o) == 0);
    ks_log_own(o.log, &one_b.loop);
    struct ks_append_result r = st_append(&one_b, o.log, st_make(&(struct st_batch){.ts = 5000}));
    KT_EQ(r.error, 0);
    KT_TRUE(r.append_time_ms > 5000);
    KT_EQ(o.log->st.segs[0].max_ts, r.append_time_ms);
    KT_EQ(st_count(&one_b, o.log), 1);
    st_close(&one_b, o.log);
    one_end();
}

/* One step of a producer's life. */
struct step {
    int16_t epoch;
    int32_t seq, count;
    int16_t error;
    int64_t base;
};

static void run_steps(struct ks_log *log, int64_t pid, const struct step *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct ks_append_result r =
            st_append(&one_b, log,
                      st_make(&(struct st_batch){
                          .pid = pid, .epoch = s[i].epoch, .seq = s[i].seq, .count = s[i].count}));
        if (r.error != s[i].error || r.base_offset != s[i].base) {
            fprintf(stderr, "step %zu: error %d, base %lld\n", i, r.error,
                    (long long)r.base_offset);
        }
        KT_EQ(r.error, s[i].error);
        KT_EQ(r.base_offset, s[i].base);
    }
}

static void idempotent_producers_get_kafkas_answers(void)
{
    struct ks_log *log = one_open();
    static const struct step steps[] = {
        {0, 5, 1, 0, 0}, /* never seen: any first sequence */
        {0, 6, 2, 0, 1}, /* */
        {0, 8, 1, 0, 3}, /* */
        {0, 9, 1, 0, 4}, /* */
        {0, 10, 1, 0, 5}, /* five batches remembered */
        {0, 5, 1, 0, 0}, /* repeat of the fifth last: original offset */
        {0, 10, 1, 0, 5}, /* repeat of the last */
        {0, 6, 1, 45, -1}, /* same first, other last sequence: no repeat */
        {0, 11, 1, 0, 6}, /* pushes sequence 5 out */
        {0, 5, 1, 45, -1}, /* repeat of the sixth last */
        {0, 13, 1, 45, -1}, /* gap */
        {1, 3, 1, 45, -1}, /* new epoch must start at 0 */
        {1, 0, 1, 0, 7}, /* */
        {0, 12, 1, 47, -1}, /* older epoch */
        {1, 1, 1, 0, 8},
    };
    run_steps(log, 4711, steps, KC_ARRAY_LEN(steps));
    one_close(log);
}

static void sequences_wrap_to_zero(void)
{
    struct ks_log *log = one_open();
    static const struct step steps[] = {
        {0, INT32_MAX - 1, 1, 0, 0},
        {0, INT32_MAX, 2, 0, 1}, /* INT32_MAX and 0 */
        {0, 1, 1, 0, 3},
        {0, INT32_MAX, 2, 0, 1},
        {0, 0, 1, 45, -1},
    };
    run_steps(log, 1, steps, KC_ARRAY_LEN(steps));
    one_close(log);
}

static void a_repeat_is_not_acked_before_its_original(void)
{
    struct ks_log *log = one_open();
    struct st_append a[2];
    for (int i = 0; i < 2; i++) {
        st_append_start(log, st_make(&(struct st_batch){.pid = 5, .seq = 0}), KS_FROM_CLIENT,
                        &a[i]);
    }
    KT_FALSE(a[1].done);
    st_until(&one_b, &a[1].done);
    KT_TRUE(a[0].done);
    KT_EQ(a[0].r.base_offset, 0);
    KT_EQ(a[1].r.base_offset, 0);
    KT_EQ(ks_log_offsets(log).end, 1);
    one_close(log);
}

static void coordinators_write_several_batches_and_control_batches(void)
{
    struct ks_log *log = one_open();
    struct st_append a;
    st_append_start(log, twice(), KS_FROM_COORDINATOR, &a);
    st_until(&one_b, &a.done);
    KT_EQ(a.r.error, 0);
    KT_EQ(a.r.base_offset, 0);
    KT_EQ(ks_log_offsets(log).high_watermark, 6);
    st_append_start(log, set(21, 0x20, 2, true), KS_FROM_COORDINATOR, &a);
    st_until(&one_b, &a.done);
    KT_EQ(a.r.error, 0);
    KT_EQ(a.r.base_offset, 6);
    KT_EQ(st_count(&one_b, log), 9);
    one_close(log);
}

static void an_open_transaction_holds_the_last_stable_offset(void)
{
    struct ks_log *log = one_open();
    st_put(&one_b, log, 2);
    struct st_batch txn = {.pid = 8, .seq = 0, .count = 2, .attrs = KS_ATTR_TRANSACTIONAL};
    KT_EQ(st_append(&one_b, log, st_make(&txn)).error, 0);
    st_put(&one_b, log, 1);
    KT_EQ(ks_log_offsets(log).high_watermark, 5);
    KT_EQ(ks_log_offsets(log).last_stable, 2);
    struct st_batch plain_seq = {.pid = 8, .seq = 2};
    KT_EQ(st_append(&one_b, log, st_make(&plain_seq)).error, 48);
    struct st_append a;
    struct st_batch marker = {
        .pid = 8, .seq = -1, .attrs = KS_ATTR_TRANSACTIONAL | KS_ATTR_CONTROL};
    st_append_start(log, st_make(&marker), KS_FROM_COORDINATOR, &a);
    st_until(&one_b, &a.done);
    KT_EQ(a.r.error, 0);
    KT_EQ(ks_log_offsets(log).last_stable, 6);
    one_close(log);
}

static void on_done(void *ctx, const struct ks_append_result *r)
{
    *(struct ks_append_result *)ctx = *r;
}

static void acks_0_does_not_wait_for_the_volume(void)
{
    struct ks_log *log = one_open();
    struct ks_append_result r = {.error = -1};
    struct kc_slice s = plain();
    struct ks_append_args args = {
        .batches = s, .now_wall_ms = kc_wall_ms(), .acks = 0, .done = on_done, .ctx = &r};
    ks_log_append(log, &args);
    KT_EQ(r.error, 0);
    KT_EQ(r.base_offset, 0);
    kc_buf_unref(s.buf);
    KT_EQ(st_put(&one_b, log, 1), 3);
    one_close(log);
}

static void closing_fails_what_is_queued(void)
{
    one_begin();
    struct ks_log *log = st_log(&one_b, &one_topic, 0);
    struct st_append a;
    st_append_start(log, plain(), KS_FROM_CLIENT, &a);
    st_close(&one_b, log);
    KT_TRUE(a.done);
    KT_EQ(a.r.error, 6);
    one_end();
}

/* A log with Kafka's defaults but for what the test sets in c. */
static struct ks_log *log_of(struct ks_log_config c)
{
    struct ks_log *log = st_log(&one_b, &one_topic, 0);
    struct ks_log_config cfg = log->cfg;
    cfg.log_append_time = c.log_append_time;
    cfg.compact = c.compact;
    cfg.segment_bytes = c.segment_bytes ? c.segment_bytes : cfg.segment_bytes;
    cfg.timestamp_before_max_ms = INT64_MAX;
    ks_log_configure(log, &cfg);
    return log;
}

static uint16_t stored_attributes(struct ks_log *log, int64_t offset)
{
    struct ks_read_args args = {
        .offset = offset, .limit_offset = INT64_MAX, .max_bytes = 1, .at_least_one = true};
    struct ks_read_result ret = {0};
    KT_REQUIRE(ks_cache_read(log, &args, &ret));
    uint16_t attrs = ks_get16(ret.slices[0].ptr + 21);
    kc_buf_unref(ret.slices[0].buf);
    return attrs;
}

static void a_producers_own_append_time_is_not_believed(void)
{
    one_begin();
    struct ks_log *log = log_of((struct ks_log_config){0});
    KT_EQ(st_append(&one_b, log, set(21, 8, 2, true)).error, 0);
    KT_EQ(stored_attributes(log, 0), 0);
    KT_EQ(st_count(&one_b, log), 3); /* the checksum was made anew */
    struct kc_slice s = set(21, 8, 2, false);
    ks_put64(s.buf->data + 35, UINT64_MAX); /* no timestamp at all */
    st_fix_crc(s);
    KT_EQ(st_append(&one_b, log, s).error, 32);
    struct ks_log_config cfg = log->cfg;
    cfg.log_append_time = true;
    ks_log_configure(log, &cfg);
    KT_EQ(st_append(&one_b, log, set(21, 8, 2, true)).error, 32);
    KT_EQ(st_append(&one_b, log, plain()).error, 0);
    KT_EQ(stored_attributes(log, 3), 8);
    st_close(&one_b, log);
    one_end();
}

static void a_repeat_is_told_when_its_original_came(void)
{
    one_begin();
    struct ks_log *log = log_of((struct ks_log_config){0});
    struct st_batch s = {.pid = 7, .count = 2, .ts = 5000};
    struct ks_append_result first = st_append(&one_b, log, st_make(&s));
    KT_EQ(first.append_time_ms, -1);
    KT_EQ(st_append(&one_b, log, st_make(&s)).append_time_ms, 5001); /* as Kafka: of the batch */
    struct ks_log_config cfg = log->cfg;
    cfg.log_append_time = true;
    ks_log_configure(log, &cfg);
    s.seq = 2;
    first = st_append(&one_b, log, st_make(&s));
    struct ks_append_result again = st_append(&one_b, log, st_make(&s));
    KT_EQ(again.append_time_ms, first.append_time_ms);
    KT_EQ(again.base_offset, first.base_offset);
    st_close(&one_b, log);
    log = st_log(&one_b, &one_topic, 0); /* and after a takeover */
    again = st_append(&one_b, log, st_make(&s));
    KT_EQ(again.append_time_ms, first.append_time_ms);
    st_close(&one_b, log);
    one_end();
}

static void records_of_compacted_topics_need_keys(void)
{
    one_begin();
    struct ks_log *log = log_of((struct ks_log_config){.compact = true});
    KT_EQ(st_append(&one_b, log, plain()).error, 87);
    struct kc_slice s = plain();
    size_t at = 61 + 4; /* the key's length behind length, attributes and two deltas */
    KT_EQ(s.buf->data[at], 1); /* -1 */
    for (int i = 0; i < 3; i++) { /* an empty key is a key */
        s.buf->data[at + (size_t)i * 17] = 0;
    }
    st_fix_crc(s);
    KT_EQ(st_append(&one_b, log, s).error, 0);
    s = st_make(&(struct st_batch){.ts = kc_wall_ms() + 7200000});
    KT_EQ(st_append(&one_b, log, s).error,
          87); /* a record without a key: its time is not looked at */
    st_close(&one_b, log);
    one_end();
}

static void times_before_1970_are_times(void)
{
    one_begin();
    struct ks_log *log = log_of((struct ks_log_config){0});
    struct st_batch s = {.ts = -5000};
    KT_EQ(st_append(&one_b, log, st_make(&s)).error, 0);
    struct ks_log_config cfg = log->cfg;
    cfg.timestamp_before_max_ms = 1000;
    ks_log_configure(log, &cfg);
    KT_EQ(st_append(&one_b, log, st_make(&s)).error, 32);
    s.ts = -1; /* none */
    KT_EQ(st_append(&one_b, log, st_make(&s)).error, 0);
    st_close(&one_b, log);
    one_end();
}

static void ids_without_an_epoch_have_no_order(void)
{
    static const struct step steps[] = {
        {-1, 0, 1, 0, 0}, {-1, 7, 1, 0, 1}, {-1, 0, 1, 0, 0}, {2, 9, 1, 0, 2}, {2, 11, 1, 45, -1}};
    struct ks_log *log = one_open();
    run_steps(log, 99, steps, KC_ARRAY_LEN(steps));
    one_close(log);
}

static void the_log_start_is_told_of_what_the_log_refused(void)
{
    one_begin();
    struct ks_log *log = log_of((struct ks_log_config){.segment_bytes = 300});
    struct st_batch s = {.pid = 7};
    KT_EQ(st_append(&one_b, log, st_make(&s)).log_start, 0);
    s.seq = 5;
    KT_EQ(st_append(&one_b, log, st_make(&s)).log_start, 0); /* 45 */
    KT_EQ(st_append(&one_b, log, set(57, 0, 4, true)).log_start, 0); /* 87 by the log */
    KT_EQ(st_append(&one_b, log, set(16, 1, 1, false)).log_start, -1); /* 87 before it */
    KT_EQ(st_append(&one_b, log, set(70, 0xff, 1, false)).log_start, -1); /* 2 */
    struct ks_append_result r =
        st_append(&one_b, log, st_make(&(struct st_batch){.value_len = 400}));
    KT_EQ(r.error, 18);
    KT_EQ(r.log_start, -1);
    r = st_append(&one_b, log, st_make(&(struct st_batch){.value_len = 400, .pid = 8, .seq = -1}));
    KT_EQ(r.error, 87); /* a batch must be sound before its size counts */
    st_close(&one_b, log);
    one_end();
}

KT_MAIN("append", KT(malformed_batches_are_refused_as_kafka_does),
        KT(a_wrong_max_timestamp_is_set_right), KT(log_append_time_stamps_the_batch),
        KT(idempotent_producers_get_kafkas_answers), KT(sequences_wrap_to_zero),
        KT(a_repeat_is_not_acked_before_its_original),
        KT(coordinators_write_several_batches_and_control_batches),
        KT(an_open_transaction_holds_the_last_stable_offset),
        KT(acks_0_does_not_wait_for_the_volume), KT(closing_fails_what_is_queued),
        KT(a_producers_own_append_time_is_not_believed),
        KT(a_repeat_is_told_when_its_original_came), KT(records_of_compacted_topics_need_keys),
        KT(times_before_1970_are_times), KT(ids_without_an_epoch_have_no_order),
        KT(the_log_start_is_told_of_what_the_log_refused))
