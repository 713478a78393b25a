/* Chain records: what is written is read back, nothing else is believed; the rules of a chain. */
#include "st.h"

#include "base/kc_mem.h"
#include "storage/ks_rec.h"

static size_t encode(struct ks_rec *r, uint8_t *out)
{
    for (size_t i = 0; i < sizeof(r->nonce); i++) {
        r->nonce[i] = (uint8_t)i;
    }
    return ks_rec_encode(r, out);
}

static struct ks_rec claim(uint64_t k, int32_t epoch)
{
    struct ks_rec r = {.type = KS_CLAIM, .k = k, .epoch = epoch};
    r.claim.broker = 7;
    r.claim.incarnation = kc_uuid_random();
    r.claim.file = (struct ks_file_id){.inc8 = 1, .seq = (uint32_t)epoch};
    r.claim.order = (struct kp_order){.uid = "uid-1", .term = 3, .generation = 9};
    return r;
}

static struct ks_rec seal(uint64_t k, int32_t epoch, int64_t end)
{
    struct ks_rec r = {.type = KS_SEAL, .k = k, .epoch = epoch};
    r.seal.file = (struct ks_file_id){.inc8 = 1, .seq = (uint32_t)epoch};
    r.seal.end = end;
    r.seal.len = (uint64_t)end * 10;
    r.seal.crc = 5;
    return r;
}

/* Sealed with the offsets from `base` on in a copy. */
static struct ks_rec rescue(uint64_t k, int32_t epoch, int64_t base, int64_t end)
{
    struct ks_rec r = seal(k, epoch, end);
    r.seal.len = (uint64_t)base * 10;
    r.seal.rescued = true;
    r.seal.copy.file = (struct ks_file_id){.inc8 = 9, .seq = 4};
    r.seal.copy.base = base;
    r.seal.copy.len = (uint64_t)(end - base) * 10;
    r.seal.copy.crc = 6;
    return r;
}

static struct ks_rec roll(uint64_t k, int32_t epoch, int64_t base)
{
    struct ks_rec r = {.type = KS_ROLL, .k = k, .epoch = epoch};
    r.roll.file = (struct ks_file_id){.inc8 = 1, .seq = 100 + (uint32_t)k};
    r.roll.base = base;
    r.roll.prev_len = 77;
    r.roll.prev_crc = 78;
    return r;
}

static void records_survive_encoding_and_damage_is_noticed(void)
{
    static struct ks_file_id old[3] = {{1, 2}, {3, 4}, {5, 6}};
    struct ks_rec recs[] = {
        claim(4, 2),
        roll(5, 2, 1000),
        seal(6, 2, 2000),
        rescue(6, 2, 1500, 2000),
        {.type = KS_TRIM, .k = 7, .epoch = 2, .drop = {.start = 500, .n_old = 3, .old = old}},
    };
    static uint8_t buf[KS_REC_MAX];
    for (size_t i = 0; i < KC_ARRAY_LEN(recs); i++) {
        struct ks_rec back;
        static uint8_t again[KS_REC_MAX];
        size_t len = encode(&recs[i], buf);
        KT_TRUE(len < 512);
        KT_REQUIRE(ks_rec_decode(buf, len, &back) == 0);
        KT_EQ(ks_rec_encode(&back, again), len);
        KT_TRUE(memcmp(buf, again, len) == 0);
        KT_EQ(back.type, recs[i].type);
        KT_EQ(back.k, recs[i].k);
        KT_EQ(back.epoch, recs[i].epoch);
        if (back.type == KS_CLAIM) {
            KT_TRUE(kc_uuid_eq(&back.claim.incarnation, &recs[i].claim.incarnation));
            KT_STR(back.claim.order.uid, "uid-1");
            KT_EQ(back.claim.order.generation, 9);
        } else if (back.type == KS_TRIM) {
            KT_EQ(back.drop.n_old, 3);
            KT_TRUE(ks_file_eq(back.drop.old[2], old[2]));
        } else if (back.type == KS_SEAL) {
            KT_EQ(back.seal.end, 2000);
            KT_EQ(back.seal.len, recs[i].seal.len);
            KT_EQ(back.seal.rescued, recs[i].seal.rescued);
        }
        ks_rec_fini(&back);
        for (size_t bit = 0; bit < len * 8; bit++) {
            buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
            KT_EQ(ks_rec_decode(buf, len, &back), KC_E_CORRUPT);
            buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        for (size_t cut = 0; cut < len; cut++) {
            KT_EQ(ks_rec_decode(buf, cut, &back), KC_E_CORRUPT);
        }
    }
}

static void a_chain_folds_into_epochs_and_files(void)
{
    struct ks_chain c;
    ks_chain_init(&c);
    struct ks_rec recs[] = {claim(0, 0), roll(1, 0, 10), claim(2, 1), seal(3, 0, 10),
                            seal(4, 1, 10)};
    recs[3].seal.file = recs[1].roll.file; /* the rolled file stayed empty */
    recs[3].seal.len = 0;
    recs[4].seal.len = 0;
    for (size_t i = 0; i < KC_ARRAY_LEN(recs); i++) {
        KT_EQ(ks_chain_apply(&c, &recs[i], NULL), 0);
    }
    KT_EQ(c.n_epochs, 2);
    KT_EQ(c.n_files, 3);
    KT_EQ(c.files[0].base, 0);
    KT_EQ(c.files[0].end, 10);
    KT_EQ(c.files[0].len, 77);
    KT_EQ(c.files[1].base, 10);
    KT_EQ(c.files[1].end, 10);
    KT_EQ(c.epochs[1].base, 10);
    KT_TRUE(c.epochs[1].sealed);
    KT_TRUE(ks_chain_unsealed(&c, INT32_MAX) == NULL);
    ks_chain_fini(&c);
}

static void records_that_break_the_rules_are_refused(void)
{
    struct {
        const char *what;
        struct ks_rec r;
    } bad[] = {
        {"an epoch left out", claim(2, 2)},
        {"the same epoch again", claim(2, 0)},
        {"a gap in the chain", claim(3, 1)},
        {"a roll by another epoch", roll(2, 1, 20)},
        {"a roll backwards", roll(2, 0, 10)},
        {"a seal of an epoch that never was", seal(2, 5, 10)},
        {"a seal below the rolled base", seal(2, 0, -1)},
    };
    for (size_t i = 0; i < KC_ARRAY_LEN(bad); i++) {
        struct ks_chain c;
        struct ks_rec first = claim(0, 0), second = roll(1, 0, 10);
        ks_chain_init(&c);
        KT_EQ(ks_chain_apply(&c, &first, NULL), 0);
        KT_EQ(ks_chain_apply(&c, &second, NULL), 0);
        int rc = ks_chain_apply(&c, &bad[i].r, NULL);
        if (rc != KC_E_CORRUPT) {
            fprintf(stderr, "%s: %d\n", bad[i].what, rc);
        }
        KT_EQ(rc, KC_E_CORRUPT);
        KT_EQ(c.next_k, 2);
        ks_chain_fini(&c);
    }
}

static void a_copied_tail_is_one_more_file_of_its_epoch(void)
{
    struct ks_chain c;
    ks_chain_init(&c);
    struct ks_rec recs[] = {claim(0, 0), roll(1, 0, 10), claim(2, 1), rescue(3, 0, 15, 20),
                            roll(4, 1, 30)};
    recs[3].seal.file = recs[1].roll.file;
    for (size_t i = 0; i < KC_ARRAY_LEN(recs); i++) {
        KT_EQ(ks_chain_apply(&c, &recs[i], NULL), 0);
    }
    KT_REQUIRE(c.n_files == 5);
    const struct ks_chain_file *f = c.files;
    KT_TRUE(f[0].base == 0 && f[0].end == 10 && f[0].len == 77 && f[0].rescued == 0);
    KT_TRUE(f[1].base == 10 && f[1].end == 15 && f[1].len == 150 && f[1].rescued == 50);
    KT_TRUE(f[2].base == 15 && f[2].end == 20 && f[2].len == 50 && f[2].crc == 6);
    KT_TRUE(ks_file_eq(f[2].id, recs[3].seal.copy.file));
    KT_EQ(f[2].epoch, 0);
    KT_TRUE(ks_file_eq(f[3].id, recs[2].claim.file));
    KT_TRUE(f[3].base == 20 && f[3].end == 30 && f[3].epoch == 1);
    uint32_t end;
    KT_EQ(ks_chain_files(&c, &c.epochs[0], &end), 0);
    KT_EQ(end, 3);
    KT_EQ(ks_chain_files(&c, &c.epochs[1], &end), 3);
    KT_EQ(end, 5);
    ks_chain_fini(&c);
}

static void a_tail_that_does_not_fit_its_file_is_refused(void)
{
    struct {
        const char *what;
        struct ks_rec r;
    } bad[] = {
        {"a tail before its file", rescue(3, 0, 9, 20)},
        {"an empty tail", rescue(3, 0, 20, 20)},
        {"a tail without bytes", rescue(3, 0, 15, 20)},
        {"a part before it without bytes", rescue(3, 0, 15, 20)},
        {"the whole file, and bytes of it", rescue(3, 0, 10, 20)},
        {"a file that the chain names already", rescue(3, 0, 15, 20)},
    };
    struct ks_rec first[] = {claim(0, 0), roll(1, 0, 10), claim(2, 1)};
    bad[2].r.seal.copy.len = 0;
    bad[3].r.seal.len = 0;
    bad[5].r.seal.copy.file = first[2].claim.file;
    for (size_t i = 0; i < KC_ARRAY_LEN(bad); i++) {
        struct ks_chain c;
        ks_chain_init(&c);
        for (size_t n = 0; n < KC_ARRAY_LEN(first); n++) {
            KT_EQ(ks_chain_apply(&c, &first[n], NULL), 0);
        }
        bad[i].r.seal.file = first[1].roll.file;
        int rc = ks_chain_apply(&c, &bad[i].r, NULL);
        if (rc != KC_E_CORRUPT) {
            fprintf(stderr, "%s: %d\n", bad[i].what, rc);
        }
        KT_EQ(rc, KC_E_CORRUPT);
        KT_TRUE(c.n_files == 3 && !c.epochs[0].sealed && c.files[1].end == -1);
        ks_chain_fini(&c);
    }
}

static void the_first_seal_of_an_epoch_wins(void)
{
    struct ks_chain c;
    ks_chain_init(&c);
    struct ks_rec recs[] = {claim(0, 0), claim(1, 1), seal(2, 0, 10), seal(3, 0, 12)};
    for (size_t i = 0; i < KC_ARRAY_LEN(recs); i++) {
        KT_EQ(ks_chain_apply(&c, &recs[i], NULL), 0);
    }
    KT_EQ(c.epochs[0].end, 10);
    KT_EQ(c.epochs[1].base, 10);
    KT_EQ(c.late_seals, 1);
    ks_chain_fini(&c);
}

static void an_epoch_claimed_over_before_its_elders_were_sealed_never_opened(void)
{
    struct ks_chain c;
    ks_chain_init(&c);
    struct ks_rec recs[] = {claim(0, 0), claim(1, 1), claim(2, 2), seal(3, 0, 10), claim(4, 3)};
    for (size_t i = 0; i < KC_ARRAY_LEN(recs); i++) {
        KT_EQ(ks_chain_apply(&c, &recs[i], NULL), 0);
    }
    KT_FALSE(c.epochs[0].never_opened); /* the first one opens at once */
    KT_TRUE(c.epochs[1].never_opened);
    KT_TRUE(c.epochs[2].never_opened); /* epoch 1 was unsealed when epoch 3 came */
    KT_FALSE(c.epochs[3].never_opened);
    ks_chain_fini(&c);
}

KT_MAIN("rec", KT(records_survive_encoding_and_damage_is_noticed),
        KT(a_chain_folds_into_epochs_and_files), KT(records_that_break_the_rules_are_refused),
        KT(a_copied_tail_is_one_more_file_of_its_epoch),
        KT(a_tail_that_does_not_fit_its_file_is_refused), KT(the_first_seal_of_an_epoch_wins),
        KT(an_epoch_claimed_over_before_its_elders_were_sealed_never_opened))
