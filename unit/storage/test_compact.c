/* Log compaction by a whole engine: what a consumer finds afterwards, across takeovers, with
 * transactions, producers, tombstones, codecs. */
#include "base/kc_mem.h"
#include "base/kc_rng.h"
#include "sk.h"

static struct st_vol vol;
static struct st_broker br;
static struct kc_uuid topic;

static void begin(void)
{
    st_begin(&vol, &br, 0, NULL, &topic);
}

static void end(void)
{
    st_end_checked(&vol, &br);
}

static struct ks_log *open_log(void (*change)(struct ks_log_config *))
{
    struct st_open o;
    struct ks_open_args a = sk_args(&br, &topic, &o);
    if (change) {
        change(&a.config);
    }
    return sk_log(&br, &topic, &a, &o);
}

static void newest_value_of_each_key_stays(void)
{
    begin();
    struct ks_log *log = open_log(NULL);
    struct sk_view v;
    for (int32_t i = 0; i < 200; i++) {
        KT_EQ(sk_put(&br, log, i % 7, i), i);
    }
    uint64_t before = ks_log_size_bytes(log);
    sk_clean(&br);
    sk_read_all(&br, log, &v);
    KT_TRUE(v.n >= 7 && v.n < 60); /* the active file is not cleaned */
    KT_EQ(v.next, 200);
    KT_TRUE(ks_log_size_bytes(log) < before / 2);
    for (size_t i = 0; i < v.n; i++) {
        KT_EQ(v.v[i].offset, v.v[i].value); /* offsets never change */
        KT_EQ(v.v[i].key, v.v[i].value % 7);
    }
    for (size_t i = v.n - 7; i < v.n; i++) {
        KT_TRUE(v.v[i].value >= 193);
    }
    sk_view_free(&v);
    st_close(&br, log);
    end();
}

/* Reads at every offset, cleaned away or not: the next batch comes. */
static void reads_at_cleaned_offsets_find_the_next_batch(void)
{
    begin();
    struct ks_log *log = open_log(NULL);
    for (int32_t i = 0; i < 100; i++) {
        KT_EQ(sk_put(&br, log, i % 3, i), i);
    }
    sk_clean(&br);
    struct sk_view v;
    sk_read_all(&br, log, &v);
    for (int64_t at = 0; at < 100; at++) {
        struct st_read r = st_read(&br, log, at, 100, 1);
        KT_EQ(r.r.error, 0);
        KT_TRUE(r.first >= 0 && r.last >= at);
        for (size_t i = 0; i < v.n; i++) { /* nothing between was skipped */
            KT_FALSE(v.v[i].offset >= at && v.v[i].offset < r.first);
        }
    }
    sk_view_free(&v);
    st_close(&br, log);
    end();
}

static void a_takeover_reads_what_the_cleaner_left(void)
{
    begin();
    struct ks_log *log = open_log(NULL);
    struct sk_view a, b;
    for (int32_t i = 0; i < 60; i++) {
        sk_put(&br, log, i % 5, i);
    }
    st_close(&br, log);
    log = open_log(NULL);
    for (int32_t i = 60; i < 120; i++) {
        sk_put(&br, log, i % 5, i);
    }
    sk_clean(&br);
    int32_t e0, e1;
    int64_t end0, end1;
    ks_log_epoch_end(log, 0, &e0, &end0);
    ks_log_epoch_end(log, 1, &e1, &end1);
    sk_read_all(&br, log, &a);
    int64_t clean = log->clean;
    KT_TRUE(clean > 60);
    st_close(&br, log);
    log = open_log(NULL);
    KT_EQ(log->clean, clean);
    sk_read_all(&br, log, &b);
    KT_EQ(a.n, b.n);
    for (size_t i = 0; i < KC_MIN(a.n, b.n); i++) {
        KT_EQ(a.v[i].offset, b.v[i].offset);
        KT_EQ(a.v[i].value, b.v[i].value);
        KT_EQ(a.v[i].epoch, b.v[i].epoch);
        KT_EQ(a.v[i].ts, b.v[i].ts);
    }
    KT_EQ(ks_log_epoch(log), 2);
    int32_t e;
    int64_t at;
    ks_log_epoch_end(log, 0, &e, &at);
    KT_EQ(e, e0);
    KT_EQ(at, end0);
    KT_EQ(at, 60);
    ks_log_epoch_end(log, 1, &e, &at);
    KT_EQ(e, e1);
    KT_EQ(at, end1);
    KT_EQ(sk_put(&br, log, 1, 120), 120);
    sk_view_free(&a);
    sk_view_free(&b);
    st_close(&br, log);
    end();
}

static void no_retention(struct ks_log_config *c)
{
    c->delete_retention_ms = 0;
}

static void tombstones_go_once_their_horizon_passed(void)
{
    for (int keep = 0; keep < 2; keep++) {
        begin();
        struct ks_log *log = open_log(keep ? NULL : no_retention);
        struct sk_view v;
        for (int32_t i = 0; i < 40; i++) {
            sk_put(&br, log, i, i);
        }
        for (int32_t i = 0; i < 40; i++) {
            sk_put(&br, log, i, -1);
        }
        for (int round = 0; round < 3; round++) {
            for (int32_t i = 0; i < 60; i++) {
                sk_put(&br, log, 1000 + i, i);
            }
            sk_clean(&br);
        }
        sk_read_all(&br, log, &v);
        size_t tombstones = 0, values = 0;
        for (size_t i = 0; i < v.n; i++) {
            tombstones += v.v[i].key < 40 && v.v[i].value < 0;
            values += v.v[i].key < 40 && v.v[i].value >= 0;
        }
        KT_EQ(values, 0);
        KT_EQ(tombstones, keep ? 40 : 0);
        KT_EQ(v.horizons > 0, keep == 1);
        sk_view_free(&v);
        st_close(&br, log);
        end();
    }
}

static void transactions_leave_only_what_was_committed(void)
{
    begin();
    struct ks_log *log = open_log(no_retention);
    struct sk_view v;
    int32_t seq = 0;
    for (int32_t t = 0; t < 30; t++) {
        struct sk_record r[2] = {{.key = 1, .value = t}, {.key = 100 + t, .value = t}};
        struct sk_batch b = {.n = 2,
                             .records = r,
                             .attrs = KS_ATTR_TRANSACTIONAL,
                             .pid = 7,
                             .seq = seq,
                             .padding = 100};
        KT_TRUE(sk_append(&br, log, sk_make(&b)) >= 0);
        seq += 2;
        KT_TRUE(sk_append(&br, log, sk_marker(7, 0, t % 2 == 0)) >= 0);
    }
    struct sk_record r = {.key = 999, .value = 1};
    struct sk_batch open = {
        .n = 1, .records = &r, .attrs = KS_ATTR_TRANSACTIONAL, .pid = 8, .padding = 100};
    int64_t first_open = sk_append(&br, log, sk_make(&open));
    for (int32_t i = 0; i < 60; i++) {
        sk_put(&br, log, 2, i);
    }
    sk_clean(&br);
    KT_TRUE(log->clean <= first_open); /* nothing at or above the last stable offset */
    sk_read_all(&br, log, &v);
    size_t of_clean_part = 0;
    for (size_t i = 0; i < v.n && v.v[i].offset < log->clean; i++) {
        KT_TRUE(v.v[i].control || v.v[i].value % 2 == 0);
        KT_TRUE(v.v[i].control || v.v[i].key != 1 || v.v[i].value >= 24);
        of_clean_part += !v.v[i].control;
    }
    KT_TRUE(of_clean_part >= 8);
    /* A second round removes markers of transactions that have no data any more. */
    size_t markers = 0, markers_after = 0;
    for (size_t i = 0; i < v.n; i++) {
        markers += v.v[i].control;
    }
    sk_view_free(&v);
    KT_TRUE(sk_append(&br, log, sk_marker(8, 0, true)) >= 0);
    for (int round = 0; round < 3; round++) {
        for (int32_t i = 0; i < 60; i++) {
            sk_put(&br, log, 2, i);
        }
        sk_clean(&br);
    }
    sk_read_all(&br, log, &v);
    bool found = false;
    for (size_t i = 0; i < v.n; i++) {
        markers_after += v.v[i].control;
        found = found || v.v[i].key == 999;
    }
    KT_TRUE(found);
    KT_TRUE(markers_after < markers);
    sk_view_free(&v);
    st_close(&br, log);
    end();
}

static void what_was_cleaned_is_not_told_as_aborted(void)
{
    begin();
    struct ks_log *log = open_log(no_retention);
    struct sk_record r = {.key = 1, .value = 1};
    struct sk_batch b = {
        .n = 1, .records = &r, .attrs = KS_ATTR_TRANSACTIONAL, .pid = 7, .padding = 100};
    KT_EQ(sk_append(&br, log, sk_make(&b)), 0);
    KT_EQ(sk_append(&br, log, sk_marker(7, 0, false)), 1);
    KT_EQ(ks_log_aborted(log, 0, 2, NULL, 0), 1);
    for (int round = 0; round < 3; round++) {
        for (int32_t i = 0; i < 60; i++) {
            sk_put(&br, log, 2, i);
        }
        sk_clean(&br);
        KT_EQ(ks_log_aborted(log, 0, INT64_MAX, NULL, 0), 0);
    }
    b.seq = 1; /* a later one is told, here and after a takeover */
    KT_TRUE(sk_append(&br, log, sk_make(&b)) > 0);
    KT_TRUE(sk_append(&br, log, sk_marker(7, 0, false)) > 0);
    KT_EQ(ks_log_aborted(log, 0, INT64_MAX, NULL, 0), 1);
    st_close(&br, log);
    log = open_log(no_retention);
    KT_EQ(ks_log_aborted(log, 0, INT64_MAX, NULL, 0), 1);
    st_close(&br, log);
    end();
}

static void a_producer_goes_on_after_its_records_went(void)
{
    begin();
    struct ks_log *log = open_log(NULL);
    struct sk_record r = {.key = 1};
    struct sk_batch b = {.n = 1, .records = &r, .pid = 42, .padding = 100};
    for (int32_t i = 0; i < 30; i++) {
        r.value = i;
        b.seq = i;
        KT_EQ(sk_append(&br, log, sk_make(&b)), i);
    }
    for (int32_t i = 0; i < 100; i++) {
        sk_put(&br, log, 1, i);
    }
    sk_clean(&br);
    struct sk_view v;
    sk_read_all(&br, log, &v);
    KT_TRUE(v.empty_batches >= KS_PROD_WINDOW); /* what may be repeated */
    sk_view_free(&v);
    st_close(&br, log);
    log = open_log(NULL);
    for (b.seq = 30 - KS_PROD_WINDOW; b.seq < 30; b.seq++) {
        KT_EQ(sk_append(&br, log, sk_make(&b)), b.seq); /* the same again: a repeat */
    }
    b.seq = 24;
    KT_EQ(sk_append(&br, log, sk_make(&b)), -KS_K_OUT_OF_ORDER_SEQUENCE);
    b.seq = 35;
    KT_EQ(sk_append(&br, log, sk_make(&b)), -KS_K_OUT_OF_ORDER_SEQUENCE);
    b.seq = 30;
    KT_EQ(sk_append(&br, log, sk_make(&b)), 130);
    st_close(&br, log);
    end();
}

static void compressed_batches_are_cleaned_record_by_record(void)
{
    for (uint16_t codec = KS_CODEC_GZIP; codec <= KS_CODEC_ZSTD; codec++) {
        begin();
        struct ks_log *log = open_log(NULL);
        struct sk_view v;
        for (int32_t i = 0; i < 60; i++) {
            struct sk_record r[20];
            for (int32_t k = 0; k < 20; k++) {
                r[k] = (struct sk_record){.key = k == 0 ? 1000 + i : k, .value = i};
            }
            struct sk_batch b = {.n = 20, .records = r, .attrs = codec, .padding = 50};
            KT_EQ(sk_append(&br, log, sk_make(&b)), i * 20);
        }
        sk_clean(&br);
        sk_read_all(&br, log, &v);
        size_t lone = 0;
        for (size_t i = 0; i < v.n; i++) {
            lone += v.v[i].key >= 1000;
            KT_EQ(v.v[i].offset / 20, v.v[i].value);
            KT_TRUE(v.v[i].key >= 1000 || v.v[i].key == v.v[i].offset % 20);
        }
        KT_EQ(lone, 60);
        KT_TRUE(v.n < 60 * 20 / 2);
        sk_view_free(&v);
        st_close(&br, log);
        end();
    }
}

static void small_map(void)
{
    struct ks_cleaner_config c = {.enabled = true, .backoff_ms = 15000, .dedupe_bytes = 1};
    ks_engine_cleaner(br.e, &c);
}

/* More keys than the map holds (its smallest is some 900): several passes. */
static void keys_that_do_not_fit_are_cleaned_in_passes(void)
{
    begin();
    small_map();
    struct ks_log *log = open_log(NULL);
    struct sk_view v;
    enum { KEYS = 3000 };
    for (int32_t round = 0; round < 2; round++) {
        for (int32_t i = 0; i < KEYS; i += 20) {
            struct sk_record r[20];
            for (int32_t k = 0; k < 20; k++) {
                r[k] = (struct sk_record){.key = i + k, .value = round};
            }
            sk_append(&br, log, sk_make(&(struct sk_batch){.n = 20, .records = r}));
        }
    }
    sk_clean(&br);
    KT_TRUE(log->clean > 2 * KEYS - 200);
    sk_read_all(&br, log, &v);
    KT_TRUE(v.n >= KEYS && v.n < KEYS + 200);
    sk_view_free(&v);
    st_close(&br, log);
    end();
}

static void records_without_a_key_are_refused(void)
{
    begin();
    struct ks_log *log = open_log(NULL);
    struct sk_record r[2] = {{.key = 1, .value = 1}, {.key = -1, .value = 2}};
    for (uint16_t codec = KS_CODEC_NONE; codec <= KS_CODEC_ZSTD; codec++) {
        struct sk_batch b = {.n = 2, .records = r, .attrs = codec};
        struct ks_append_result a = st_append(&br, log, sk_make(&b));
        KT_EQ(a.error, KS_K_INVALID_RECORD);
        KT_TRUE(a.message && strstr(a.message, "need a key"));
        b.n = 1;
        KT_TRUE(sk_append(&br, log, sk_make(&b)) >= 0);
        struct kc_slice broken = sk_make(&b);
        if (codec) {
            memset(broken.buf->data + KS_BATCH_HEADER + 4, 0xee, broken.len - KS_BATCH_HEADER - 4);
            st_fix_crc(broken);
            KT_EQ(st_append(&br, log, broken).error, KS_K_INVALID_RECORD);
        } else {
            kc_buf_unref(broken.buf);
        }
    }
    st_close(&br, log);
    end();
}

/* ---- against a naive model ---- */

/* What the log holds against everything that was ever appended. */
static void compare(struct ks_log *log, const struct sk_found *all, size_t n_all, int32_t keys,
                    bool tombstones_stay)
{
    struct sk_view v;
    sk_read_all(&br, log, &v);
    size_t at = 0;
    int64_t before = -1;
    for (size_t i = 0; i < v.n; i++) { /* what is there was there, unchanged and in order */
        while (at < n_all && all[at].offset < v.v[i].offset) {
            at++;
        }
        KT_REQUIRE(at < n_all);
        KT_EQ(all[at].offset, v.v[i].offset);
        KT_EQ(all[at].key, v.v[i].key);
        KT_EQ(all[at].value, v.v[i].value);
        KT_EQ(all[at].ts, v.v[i].ts);
        KT_TRUE(v.v[i].offset > before);
        before = v.v[i].offset;
    }
    for (int32_t k = 0; k < keys; k++) { /* the last word on each key stands */
        size_t last = n_all, found = v.n;
        for (size_t i = 0; i < n_all; i++) {
            last = all[i].key == k ? i : last;
        }
        for (size_t i = 0; i < v.n; i++) {
            found = v.v[i].key == k ? i : found;
        }
        if (last < n_all && (all[last].value >= 0 || tombstones_stay)) {
            KT_REQUIRE(found < v.n);
            KT_EQ(v.v[found].offset, all[last].offset);
        } else if (found < v.n) {
            KT_EQ(v.v[found].value, all[last].value); /* a tombstone may be gone, not outlived */
        }
        /* and below the clean offset there is no second one */
        size_t copies = 0;
        for (size_t i = 0; i < v.n; i++) {
            copies += v.v[i].key == k && v.v[i].offset < log->clean;
        }
        KT_TRUE(copies <= 1);
    }
    sk_view_free(&v);
}

static void random_logs_agree_with_a_naive_model(void)
{
    struct kc_rng rng;
    kc_rng_seed(&rng, kt_seed());
    for (int run = 0; run < 6; run++) {
        begin();
        struct ks_log *log = open_log(run % 2 ? no_retention : NULL);
        struct sk_found *all = NULL;
        size_t n_all = 0, room = 0;
        int32_t keys = 1 + (int32_t)kc_rng_below(&rng, 40);
        for (int step = 0; step < 120; step++) {
            struct sk_record r[8];
            int32_t n = 1 + (int32_t)kc_rng_below(&rng, 8);
            for (int32_t i = 0; i < n; i++) {
                r[i].key = (int32_t)kc_rng_below(&rng, (uint64_t)keys);
                r[i].value = kc_rng_below(&rng, 5) ? step : -1;
                r[i].ts = 1700000000000 + (int64_t)kc_rng_below(&rng, 1000);
            }
            struct sk_batch b = {.n = n,
                                 .records = r,
                                 .attrs = (uint16_t)kc_rng_below(&rng, 5),
                                 .padding = kc_rng_below(&rng, 100)};
            int64_t base = sk_append(&br, log, sk_make(&b));
            KT_REQUIRE(base >= 0);
            for (int32_t i = 0; i < n; i++) {
                if (n_all == room) {
                    room = KC_MAX(room * 2, (size_t)64);
                    all = kc_realloc(all, room * sizeof(*all));
                }
                all[n_all++] = (struct sk_found){
                    .offset = base + i, .key = r[i].key, .value = r[i].value, .ts = r[i].ts};
            }
            if (kc_rng_below(&rng, 30) == 0) {
                sk_clean(&br);
            }
            if (kc_rng_below(&rng, 40) == 0) {
                st_close(&br, log);
                log = open_log(run % 2 ? no_retention : NULL);
            }
        }
        sk_clean(&br);
        compare(log, all, n_all, keys, run % 2 == 0);
        kc_free(all);
        st_close(&br, log);
        end();
    }
}

KT_MAIN("compact", KT(newest_value_of_each_key_stays),
        KT(reads_at_cleaned_offsets_find_the_next_batch),
        KT(a_takeover_reads_what_the_cleaner_left), KT(tombstones_go_once_their_horizon_passed),
        KT(transactions_leave_only_what_was_committed), KT(what_was_cleaned_is_not_told_as_aborted),
        KT(a_producer_goes_on_after_its_records_went),
        KT(compressed_batches_are_cleaned_record_by_record),
        KT(keys_that_do_not_fit_are_cleaned_in_passes), KT(records_without_a_key_are_refused),
        KT(random_logs_agree_with_a_naive_model))
