/* Fetch from a log with transactions. No client can write any yet: the batches and markers are appended
 * as a coordinator does. */
#include "hx.h"

#include "base/kc_str.h"
#include "wire/kw_batch.h"
#include "wire/kw_fetch.h"

enum { FETCH = 1, READ_UNCOMMITTED = 0, READ_COMMITTED = 1 };

static struct hx h;
static struct hx_client c;

/* ---- appending ---- */

struct append {
    struct kc_slice batch;
    struct ks_append_result r;
    _Atomic bool done;
};

static void on_appended(void *ctx, const struct ks_append_result *r)
{
    struct append *a = ctx;
    a->r = *r;
    atomic_store(&a->done, true);
}

static void append_here(void *arg)
{
    struct append *a = arg;
    struct kd_part *p = kd_find(h.app.data, &h.topics[0].id, 0);
    KT_REQUIRE(p != NULL);
    struct ks_append_args args = {.batches = a->batch,
                                  .origin = KS_FROM_COORDINATOR,
                                  .now_wall_ms = 1000,
                                  .acks = -1,
                                  .done = on_appended,
                                  .ctx = a};
    ks_log_append(kd_part_log(p), &args);
}

static int64_t append(const struct kw_batch_args *args, struct kc_bytes key)
{
    struct kw_batch_builder b;
    struct kc_bytes bytes;
    struct append a = {.done = false};
    kw_batch_builder_init(&b, args, 1 << 20);
    kw_batch_builder_add(&b, 1000, key, (struct kc_bytes){(const uint8_t *)"123456", 6}, NULL, 0);
    KT_REQUIRE(kw_batch_builder_end(&b, &bytes) == 0);
    struct kc_buf *buf = kc_buf_new((size_t)bytes.len);
    KT_REQUIRE(buf != NULL);
    memcpy(buf->data, bytes.ptr, (size_t)bytes.len);
    kw_batch_builder_fini(&b);
    a.batch = (struct kc_slice){.buf = buf, .ptr = buf->data, .len = (size_t)bytes.len};
    hx_on_loop(&h, 0, append_here, &a);
    hx_await(&a.done);
    kc_buf_unref(buf);
    KT_EQ(a.r.error, 0);
    return a.r.base_offset;
}

static int64_t data(int64_t pid, int32_t seq)
{
    struct kw_batch_args args = {.leader_epoch = -1,
                                 .attributes = KW_BATCH_TRANSACTIONAL,
                                 .producer_id = pid,
                                 .base_sequence = seq};
    return append(&args, KC_BYTES_NULL);
}

static int64_t marker(int64_t pid, bool commit)
{
    struct kw_batch_args args = {.leader_epoch = -1,
                                 .attributes = KW_BATCH_TRANSACTIONAL | KW_BATCH_CONTROL,
                                 .producer_id = pid,
                                 .base_sequence = -1};
    const uint8_t key[4] = {0, 0, 0, commit}; /* version, type */
    return append(&args, (struct kc_bytes){key, 4});
}

static void plain(int32_t n)
{
    struct kw_batch_args args = KW_BATCH_ARGS_PLAIN;
    while (n-- > 0) {
        append(&args, KC_BYTES_NULL);
    }
}

/* ---- fetching ---- */

static const struct kw_fetch_response_partition_data *fetch(int8_t isolation, int64_t offset,
                                                            int32_t bytes)
{
    struct kw_fetch_request_partition p;
    kw_fetch_request_partition_init(&p);
    p.fetch_offset = offset;
    p.partition_max_bytes = bytes;
    struct kw_fetch_request_topic t = {
        .topic = KC_STR_LIT("t"), .partitions = &p, .n_partitions = 1};
    struct kw_fetch_request in;
    kw_fetch_request_init(&in);
    in.max_bytes = 1 << 20;
    in.isolation_level = isolation;
    in.topics = &t;
    in.n_topics = 1;
    const struct kw_fetch_response *r = hx_call(&c, FETCH, 12, &in);
    KT_REQUIRE(r != NULL);
    KT_EQ(r->responses[0].partitions[0].error_code, 0);
    return &r->responses[0].partitions[0];
}

/* Last offset of what came; -1 = nothing. */
static int64_t last_of(const struct kw_fetch_response_partition_data *p)
{
    int64_t last = -1;
    struct kw_batch b;
    for (int32_t at = 0; at < p->records.len; at += (int32_t)b.size) {
        KT_REQUIRE(kw_batch_view(p->records.ptr + at, (size_t)(p->records.len - at), &b) == 0);
        last = kw_batch_last_offset(&b);
    }
    return last;
}

static void read_committed_is_told_what_was_aborted(void)
{
    hx_up_one(&h, &c, 1);
    KT_EQ(data(1, 0), 0);
    KT_EQ(data(2, 0), 1);
    KT_EQ(marker(1, false), 2);
    KT_EQ(data(3, 0), 3);
    KT_EQ(marker(3, true), 4);
    KT_EQ(data(1, 1), 5);
    KT_EQ(marker(2, false), 6);
    KT_EQ(marker(1, false), 7);
    const struct kw_fetch_response_partition_data *p = fetch(READ_COMMITTED, 0, 1 << 20);
    KT_EQ(p->last_stable_offset, 8);
    KT_EQ(last_of(p), 7);
    KT_REQUIRE(p->n_aborted_transactions == 3); /* in the order of their markers */
    KT_EQ(p->aborted_transactions[0].producer_id, 1);
    KT_EQ(p->aborted_transactions[0].first_offset, 0);
    KT_EQ(p->aborted_transactions[1].producer_id, 2);
    KT_EQ(p->aborted_transactions[1].first_offset, 1);
    KT_EQ(p->aborted_transactions[2].producer_id, 1);
    KT_EQ(p->aborted_transactions[2].first_offset, 5);
    p = fetch(READ_COMMITTED, 3, 1 << 20); /* the first one ended before */
    KT_EQ(p->n_aborted_transactions, 2);
    p = fetch(READ_UNCOMMITTED, 0, 1 << 20);
    KT_EQ(last_of(p), 7);
    KT_EQ(p->n_aborted_transactions, -1); /* not asked for: null */
    hx_down_one(&h, &c);
}

static void only_what_was_sent_counts(void)
{
    hx_up_one(&h, &c, 1);
    KT_EQ(data(1, 0), 0);
    plain(5);
    KT_EQ(data(2, 0), 6);
    KT_EQ(marker(2, false), 7);
    KT_EQ(marker(1, false), 8);
    const struct kw_fetch_response_partition_data *p = fetch(READ_COMMITTED, 0, 1);
    KT_EQ(last_of(p), 0);
    KT_REQUIRE(p->n_aborted_transactions == 1); /* the other one begins behind it */
    KT_EQ(p->aborted_transactions[0].producer_id, 1);
    p = fetch(READ_COMMITTED, 9, 1 << 20);
    KT_EQ(last_of(p), -1);
    KT_EQ(p->n_aborted_transactions, 0); /* asked for: a list */
    hx_down_one(&h, &c);
}

static void nothing_of_an_open_transaction_is_read_committed(void)
{
    hx_up_one(&h, &c, 1);
    plain(2);
    KT_EQ(data(1, 0), 2);
    plain(2);
    const struct kw_fetch_response_partition_data *p = fetch(READ_COMMITTED, 0, 1 << 20);
    KT_EQ(p->last_stable_offset, 2);
    KT_EQ(p->high_watermark, 5);
    KT_EQ(last_of(p), 1);
    KT_EQ(p->n_aborted_transactions, 0);
    KT_EQ(last_of(fetch(READ_UNCOMMITTED, 0, 1 << 20)), 4);
    KT_EQ(marker(1, true), 5);
    p = fetch(READ_COMMITTED, 0, 1 << 20);
    KT_EQ(p->last_stable_offset, 6);
    KT_EQ(last_of(p), 5);
    KT_EQ(p->n_aborted_transactions, 0);
    hx_down_one(&h, &c);
}

KT_MAIN("fetch_txn", KT(read_committed_is_told_what_was_aborted), KT(only_what_was_sent_counts),
        KT(nothing_of_an_open_transaction_is_read_committed))
