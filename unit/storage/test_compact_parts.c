/* The pure parts of log compaction: which log is next, the codecs' bounds, the fold of the record. */
#include "base/kc_mem.h"
#include "sk.h"

/* ---- the decision, on virtual time ---- */

enum { NOW = 1000000 };
static const struct ks_clean_rules half = {.min_dirty_ratio = 0.5, .max_lag_ms = INT64_MAX};

static struct ks_clean_file file(int64_t base, uint64_t bytes, int64_t ts)
{
    return (struct ks_clean_file){
        .base = base, .end = base + 10, .bytes = bytes, .first_ts = ts, .max_ts = ts};
}

static void a_log_is_due_when_its_dirty_part_is_large(void)
{
    struct ks_clean_file f[] = {file(0, 60, 1), file(10, 40, 1), file(20, 30, 1)};
    struct ks_clean_need n = ks_clean_judge(f, 2, 10, INT64_MAX, &half, NOW);
    KT_EQ(n.clean_bytes, 60);
    KT_EQ(n.dirty_bytes, 40);
    KT_FALSE(ks_clean_due(&n, &half));
    n = ks_clean_judge(f, 3, 10, INT64_MAX, &half, NOW);
    KT_EQ(n.until, 30);
    KT_TRUE(ks_clean_due(&n, &half));
    n = ks_clean_judge(f, 3, 10, 25, &half, NOW); /* an open transaction in the last file */
    KT_EQ(n.until, 20);
    KT_FALSE(ks_clean_due(&n, &half));
    n = ks_clean_judge(f, 3, 30, INT64_MAX, &half, NOW);
    KT_FALSE(ks_clean_due(&n, &(struct ks_clean_rules){.min_dirty_ratio = 0}));
}

static void lags_hold_back_and_press(void)
{
    struct ks_clean_file f[] = {file(0, 900, 10), file(10, 10, NOW - 500), file(20, 10, NOW - 50)};
    struct ks_clean_rules r = {.min_dirty_ratio = 0, .min_lag_ms = 100, .max_lag_ms = INT64_MAX};
    struct ks_clean_need n = ks_clean_judge(f, 3, 10, INT64_MAX, &r, NOW);
    KT_EQ(n.until, 20); /* the young one waits */
    n = ks_clean_judge(f, 3, 10, INT64_MAX, &r, NOW + 60);
    KT_EQ(n.until, 30);
    r = (struct ks_clean_rules){.min_dirty_ratio = 0.9, .max_lag_ms = 501};
    n = ks_clean_judge(f, 3, 10, INT64_MAX, &r, NOW);
    KT_FALSE(ks_clean_due(&n, &r));
    n = ks_clean_judge(f, 3, 10, INT64_MAX, &r, NOW + 2);
    KT_TRUE(ks_clean_due(&n, &r)); /* overdue, whatever the ratio */
}

static void the_dirtiest_log_goes_first(void)
{
    struct ks_clean_need a = {.ratio = 0.7}, b = {.ratio = 0.6};
    KT_TRUE(ks_clean_before(&a, &b));
    KT_FALSE(ks_clean_before(&b, &a));
    KT_FALSE(ks_clean_before(&a, &a));
}

/* ---- codecs ---- */

static int unpack(int codec, const struct ks_bytes_buf *packed, size_t len,
                  struct ks_bytes_buf *ret)
{
    struct kc_bytes part = {packed->p, (int32_t)len};
    return ks_codec_unpack((enum ks_codec)codec, part, ks_codec_limit(len), ret);
}

static void every_codec_gives_back_what_it_got(void)
{
    enum { LEN = 300000 };
    uint8_t *p = kc_alloc(LEN);
    for (size_t i = 0; i < LEN; i++) {
        p[i] = (uint8_t)((i * i) >> 7);
    }
    static const uint8_t xerial[16] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0,
                                       0,    0,   0,   1,   0,   0,   0,   1};
    for (int c = KS_CODEC_NONE; c <= KS_CODEC_ZSTD; c++) {
        for (int framed = 0; framed < 2; framed++) {
            struct ks_bytes_buf packed = {0}, back = {0};
            struct kc_bytes like = framed ? (struct kc_bytes){xerial, 16} : KC_BYTES_NULL;
            KT_EQ(ks_codec_pack((enum ks_codec)c, p, LEN, like, &packed), 0);
            KT_EQ(unpack(c, &packed, packed.len, &back), 0);
            KT_REQUIRE(back.len == LEN);
            KT_TRUE(memcmp(back.p, p, LEN) == 0);
            for (size_t cut = 0; c && cut < packed.len; cut += 1 + packed.len / 64) {
                back.len = 0; /* cut short: an error, or less, but never out of bounds */
                int rc = unpack(c, &packed, cut, &back);
                KT_TRUE(rc != 0 || back.len < LEN);
            }
            ks_bytes_free(&packed);
            ks_bytes_free(&back);
        }
    }
    kc_free(p);
}

static void a_bomb_is_not_unpacked(void)
{
    enum { LEN = 64 * 1024 * 1024 };
    uint8_t *zeros = kc_zalloc(LEN);
    for (int c = KS_CODEC_GZIP; c <= KS_CODEC_ZSTD; c++) {
        struct ks_bytes_buf packed = {0}, back = {0};
        KT_EQ(ks_codec_pack((enum ks_codec)c, zeros, LEN, KC_BYTES_NULL, &packed), 0);
        int rc = unpack(c, &packed, packed.len, &back);
        bool within = ks_codec_limit(packed.len) >= LEN;
        KT_EQ(rc, within ? 0 : KC_E_TOO_LARGE);
        KT_TRUE(back.room <= ks_codec_limit(packed.len));
        ks_bytes_free(&packed);
        ks_bytes_free(&back);
    }
    kc_free(zeros);
}

/* ---- the map ---- */

static void the_map_is_full_where_it_says(void)
{
    struct ks_clean_map m;
    KT_REQUIRE(ks_clean_map_init(&m, 1000000, 24 * 2000) == 0);
    int n = 0;
    while (n < 5000 && ks_clean_map_put(&m, &n, sizeof(n), n)) {
        n++;
    }
    KT_EQ(n, 1800);
    int first = 0, unknown = -5;
    KT_TRUE(ks_clean_map_put(&m, &first, sizeof(first), 9999)); /* a known key still fits */
    KT_EQ(ks_clean_map_get(&m, &first, sizeof(first)), 9999);
    KT_EQ(ks_clean_map_get(&m, &unknown, sizeof(unknown)), -1);
    ks_clean_map_fini(&m);
}

/* ---- the record ---- */

static struct ks_file_id id(uint32_t n)
{
    return (struct ks_file_id){.inc8 = 7, .seq = n};
}

/* Epoch 0: files 0 (offsets 0-9), 1 (10-19), 2 (20-29); epoch 1: file 3 (30-39), 4 (active). */
static void make_chain(struct ks_chain *c)
{
    struct ks_rec r[] = {
        {.type = KS_CLAIM, .epoch = 0, .claim.file = id(0)},
        {.type = KS_ROLL, .epoch = 0, .roll = {.file = id(1), .base = 10, .prev_len = 100}},
        {.type = KS_ROLL, .epoch = 0, .roll = {.file = id(2), .base = 20, .prev_len = 100}},
        {.type = KS_CLAIM, .epoch = 1, .claim.file = id(3)},
        {.type = KS_SEAL, .epoch = 0, .seal = {.file = id(2), .end = 30, .len = 100}},
        {.type = KS_ROLL, .epoch = 1, .roll = {.file = id(4), .base = 40, .prev_len = 100}},
    };
    ks_chain_init(c);
    for (size_t i = 0; i < KC_ARRAY_LEN(r); i++) {
        r[i].k = i;
        KT_REQUIRE(ks_chain_apply(c, &r[i], NULL) == 0);
    }
}

static struct ks_rec compact(const struct ks_chain *c, struct ks_file_id *old, uint16_t n,
                             struct ks_new_file *fresh, int64_t until)
{
    return (struct ks_rec){.type = KS_COMPACT,
                           .k = c->next_k,
                           .epoch = 1,
                           .drop = {.start = fresh->base,
                                    .end = until,
                                    .clean = until,
                                    .n_old = n,
                                    .n_new = 1,
                                    .old = old,
                                    .new_files = fresh}};
}

static void a_compact_record_swaps_files_of_several_epochs(void)
{
    struct ks_chain c;
    make_chain(&c);
    struct ks_file_id old[] = {id(1), id(2), id(3)};
    struct ks_new_file fresh = {.file = id(9), .base = 10, .len = 50, .crc = 5};
    struct ks_rec r = compact(&c, old, 3, &fresh, 40);
    static uint8_t buf[KS_REC_MAX];
    struct ks_rec back;
    size_t len = ks_rec_encode(&r, buf);
    KT_REQUIRE(ks_rec_decode(buf, len, &back) == 0);
    KT_EQ(ks_chain_apply(&c, &back, NULL), 0);
    ks_rec_fini(&back);
    KT_TRUE(ks_file_eq(c.files[1].id, id(9)));
    KT_TRUE(c.files[1].compacted);
    KT_EQ(c.files[1].base, 10);
    KT_EQ(c.files[1].end, 40);
    KT_EQ(c.files[1].epoch, 0);
    KT_EQ(c.files[1].last_epoch, 1);
    KT_TRUE(c.files[2].replaced && c.files[3].replaced);
    KT_EQ(c.clean, 40);
    KT_EQ(c.n_gone, 3);
    KT_EQ(c.n_files, 5);
    /* and again, what was compacted with what came before it */
    struct ks_file_id both[] = {id(0), id(9)};
    struct ks_new_file next = {.file = id(10), .base = 0, .len = 60};
    r = compact(&c, both, 2, &next, 40);
    KT_EQ(ks_chain_apply(&c, &r, NULL), 0);
    KT_EQ(c.files[0].end, 40);
    KT_EQ(c.files[0].last_epoch, 1);
    ks_chain_fini(&c);
}

static void compact_records_that_do_not_fit_are_refused(void)
{
    struct ks_file_id two[] = {id(0), id(1)}, gap[] = {id(0), id(2)}, turned[] = {id(1), id(0)},
                      active[] = {id(3), id(4)};
    struct ks_new_file at0 = {.file = id(9), .base = 0, .len = 50}, at30 = at0, known = at0,
                       none = at0;
    at30.base = 30;
    known.file = id(3);
    none.len = 0;
    struct {
        struct ks_file_id *old;
        struct ks_new_file *fresh;
        int64_t until;
        int32_t epoch;
    } bad[] = {
        {gap, &at0, 30, 1},   {turned, &at0, 20, 1}, {active, &at30, 50, 1},
        {two, &known, 20, 1}, {two, &none, 20, 1},   {two, &at0, 19, 1},
        {two, &at0, 21, 1},   {two, &at0, 0, 1},     {two, &at0, 20, 0},
    };
    for (size_t i = 0; i < KC_ARRAY_LEN(bad); i++) {
        struct ks_chain c;
        make_chain(&c);
        struct ks_rec r = compact(&c, bad[i].old, 2, bad[i].fresh, bad[i].until);
        r.epoch = bad[i].epoch;
        KT_EQ(ks_chain_apply(&c, &r, NULL), KC_E_CORRUPT);
        KT_EQ(c.n_gone, 0);
        KT_EQ(c.compactions, 0);
        ks_chain_fini(&c);
    }
}

KT_MAIN("compact_parts", KT(a_log_is_due_when_its_dirty_part_is_large),
        KT(lags_hold_back_and_press), KT(the_dirtiest_log_goes_first),
        KT(every_codec_gives_back_what_it_got), KT(a_bomb_is_not_unpacked),
        KT(the_map_is_full_where_it_says), KT(a_compact_record_swaps_files_of_several_epochs),
        KT(compact_records_that_do_not_fit_are_refused))
