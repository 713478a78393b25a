/* libFuzzer target: the records of a partition's chain and their fold. Each record stands behind
 * two bytes that say its length; its number and checksum are made right here, so that what the
 * fuzzer changes is reached. */
#include <string.h>

#include "base/kc_crc32c.h"
#include "storage/ks_bytes.h"
#include "storage/ks_rec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { K_AT = 8, NONCE_AT = 16, RECORDS_MAX = 256 };

/* What every chain must look like, whatever records made it. */
static void check(const struct ks_chain *c)
{
    uint32_t next = 0;
    int64_t base = 0;
    for (uint32_t i = 0; i < c->n_epochs; i++) {
        const struct ks_epoch *e = &c->epochs[i];
        uint32_t end, first = ks_chain_files(c, e, &end);
        KC_ASSERT(first == next && end > first && e->epoch == (int32_t)i);
        bool moved = c->files[first].replaced || c->files[first].compacted;
        KC_ASSERT(e->base < 0 || (e->base == base && (moved || c->files[first].base == base)));
        KC_ASSERT(!e->sealed || (e->base >= 0 && e->end >= e->base));
        for (uint32_t f = first; f < end; f++) {
            const struct ks_chain_file *cf = &c->files[f];
            KC_ASSERT(cf->epoch <= cf->last_epoch && cf->last_epoch < (int32_t)c->n_epochs);
            KC_ASSERT(!cf->replaced || cf->base == cf->end);
            if (cf->replaced || cf->compacted) {
                continue; /* may lie beyond its epoch's range */
            }
            KC_ASSERT(cf->epoch == e->epoch);
            KC_ASSERT(!e->sealed ||
                      (cf->base >= e->base && cf->end >= cf->base && cf->end <= e->end));
            KC_ASSERT(cf->rescued == 0 || f + 1 < end);
        }
        base = e->sealed ? e->end : base;
        next = end;
    }
    KC_ASSERT(next == c->n_files);
}

/* A copy with the number that is due and a right checksum. */
static size_t mend(const uint8_t *p, size_t len, uint64_t k, uint8_t *out)
{
    memcpy(out, p, len);
    if (len >= NONCE_AT + 4) {
        ks_put64(out + K_AT, k);
        ks_put32(out + len - 4, kc_crc32c(0, out, len - 4));
    }
    return len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t rec[KS_REC_MAX], once[KS_REC_MAX], twice[KS_REC_MAX];
    struct ks_chain c;
    ks_chain_init(&c);
    for (size_t at = 0, n = 0; at + 2 <= size && n < RECORDS_MAX; n++) {
        size_t len = ks_get16(data + at);
        at += 2;
        len = KC_MIN(KC_MIN(len, size - at), sizeof(rec));
        len = mend(data + at, len, c.next_k, rec);
        at += len;
        struct ks_rec r, again;
        if (ks_rec_decode(rec, len, &r)) {
            continue;
        }
        /* What was understood is written and understood alike. */
        size_t wrote = ks_rec_encode(&r, once);
        KC_ASSERT(wrote == len && ks_rec_decode(once, wrote, &again) == 0);
        KC_ASSERT(ks_rec_encode(&again, twice) == wrote && memcmp(once, twice, wrote) == 0);
        ks_rec_fini(&again);
        uint64_t k = c.next_k;
        if (ks_chain_apply(&c, &r, NULL) == 0) {
            KC_ASSERT(c.next_k == k + 1);
        } else {
            KC_ASSERT(c.next_k == k);
        }
        check(&c);
        ks_rec_fini(&r);
    }
    ks_chain_fini(&c);
    return 0;
}
