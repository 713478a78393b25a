/* Offsets by timestamp inside batches: plain and compressed ones answer alike. */
#include "sk.h"
#include "st_one.h"

#include "storage/ks_bytes.h"
#include "storage/ks_codec.h"

static void finds(struct ks_log *log, int64_t ts, int64_t offset, int64_t found_ts)
{
    struct st_lookup l = st_lookup(&one_b, log, ts);
    KT_EQ(l.error, 0);
    KT_EQ(l.offset, offset);
    KT_EQ(l.ts, found_ts);
    KT_EQ(l.epoch, offset < 0 ? -1 : 0);
}

static struct kc_slice batch(uint16_t attrs, int64_t base_ts)
{
    struct sk_record r[] = {{.key = 1, .value = 1, .ts = base_ts},
                            {.key = 2, .value = 2, .ts = base_ts + 30},
                            {.key = 3, .value = 3, .ts = base_ts + 10},
                            {.key = 4, .value = 4, .ts = base_ts + 30},
                            {.key = 5, .value = 5, .ts = base_ts + 20}};
    return sk_make(&(struct sk_batch){.n = 5, .records = r, .attrs = attrs, .padding = 50});
}

static void the_record_is_found_whatever_the_codec(void)
{
    for (uint16_t codec = KS_CODEC_NONE; codec <= KS_CODEC_ZSTD; codec++) {
        struct ks_log *log = one_open();
        for (int i = 0; i < 3; i++) {
            KT_EQ(sk_append(&one_b, log, batch(codec, 1000 * (i + 1))), 5 * i);
        }
        finds(log, 0, 0, 1000);
        finds(log, 1001, 1, 1030);
        finds(log, 1031, 5, 2000);
        finds(log, 2005, 6, 2030);
        finds(log, 3030, 11, 3030);
        finds(log, 3031, -1, -1);
        finds(log, KS_TS_MAX, 11, 3030); /* the first of those with the largest */
        one_close(log);
    }
}

struct deleted {
    struct ks_delete d;
    bool done;
};

static void on_deleted(struct ks_delete *d, int16_t error, int64_t start)
{
    KT_EQ(error, 0);
    KT_EQ(start, d->offset);
    KC_CONTAINER_OF(d, struct deleted, d)->done = true;
}

static void what_lies_below_the_start_is_not_found(void)
{
    struct ks_log *log = one_open();
    KT_EQ(sk_append(&one_b, log, batch(KS_CODEC_LZ4, 1000)), 0);
    KT_EQ(sk_append(&one_b, log, batch(KS_CODEC_LZ4, 2000)), 5);
    struct deleted d = {.d = {.offset = 2, .done = on_deleted}};
    ks_log_delete_records(log, &d.d);
    st_until(&one_b, &d.done);
    finds(log, 0, 2, 1010);
    finds(log, 1011, 3, 1030);
    one_close(log);
}

static void more_than_may_be_unpacked_answers_the_batch(void)
{
    enum { LARGE = 20 * 1024 * 1024 };
    struct ks_log *log = one_open();
    struct sk_record r[] = {{.key = 1, .value = 1, .ts = 1000}, {.key = 2, .value = 2, .ts = 1005}};
    struct sk_batch bomb = {.n = 2, .records = r, .attrs = KS_CODEC_ZSTD, .padding = LARGE};
    KT_EQ(sk_append(&one_b, log, batch(KS_CODEC_ZSTD, 500)), 0);
    KT_EQ(sk_append(&one_b, log, sk_make(&bomb)), 5);
    finds(log, 500, 0, 500);
    finds(log, 1005, 5, 1005);
    finds(log, KS_TS_MAX, 6, 1005);
    one_close(log);
}

/* A producer may claim what it likes of records that nobody opens. */
static void a_claimed_timestamp_that_no_record_has_is_passed_over(void)
{
    struct ks_log *log = one_open();
    struct kc_slice liar = batch(KS_CODEC_GZIP, 1000);
    ks_put64(liar.buf->data + 35, 9000);
    st_fix_crc(liar);
    KT_EQ(sk_append(&one_b, log, liar), 0);
    KT_EQ(sk_append(&one_b, log, batch(KS_CODEC_GZIP, 2000)), 5);
    finds(log, 1500, 5, 2000);
    finds(log, 5000, -1, -1);
    finds(log, KS_TS_MAX, 1, 1030);
    one_close(log);
}

static void a_batch_that_does_not_open_is_told(void)
{
    struct ks_log *log = one_open();
    struct kc_slice bad = batch(KS_CODEC_GZIP, 2000);
    memset(bad.buf->data + KS_BATCH_HEADER + 2, 0xee, 20); /* behind the magic number */
    st_fix_crc(bad);
    KT_EQ(sk_append(&one_b, log, batch(KS_CODEC_GZIP, 1000)), 0);
    KT_EQ(sk_append(&one_b, log, bad), 5);
    KT_EQ(sk_append(&one_b, log, batch(KS_CODEC_GZIP, 3000)), 10);
    finds(log, 1005, 1, 1030);
    KT_EQ(st_lookup(&one_b, log, 1500).error, KS_K_CORRUPT_MESSAGE);
    finds(log, 3000, 10, 3000); /* others are found as ever */
    one_close(log);
}

KT_MAIN("lookup", KT(the_record_is_found_whatever_the_codec),
        KT(what_lies_below_the_start_is_not_found), KT(more_than_may_be_unpacked_answers_the_batch),
        KT(a_claimed_timestamp_that_no_record_has_is_passed_over),
        KT(a_batch_that_does_not_open_is_told))
