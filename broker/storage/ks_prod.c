#include "storage/ks_prod.h"

#include <errno.h>
#include <string.h>

#include "base/kc_hash.h"
#include "base/kc_mem.h"
#include "storage/ks_wire.h"

enum { FIRST_SLOTS = 8 };

void ks_prods_init(struct ks_prods *t)
{
    *t = (struct ks_prods){0};
}

void ks_prods_fini(struct ks_prods *t)
{
    kc_free(t->slots);
    ks_prods_init(t);
}

/* The place of a producer id, or the free one where it would go. n_slots > len. */
static struct ks_prod_entry *place(struct ks_prod_entry *slots, uint32_t n_slots, int64_t id)
{
    uint32_t i = (uint32_t)kc_hash64_mix((uint64_t)id, 0x6b73) & (n_slots - 1);
    while (slots[i].producer_id >= 0 && slots[i].producer_id != id) {
        i = (i + 1) & (n_slots - 1);
    }
    return &slots[i];
}

static const struct ks_prod_entry *find(const struct ks_prods *t, int64_t id)
{
    if (!t->slots) {
        return NULL;
    }
    const struct ks_prod_entry *e = place(t->slots, t->n_slots, id);
    return e->producer_id == id ? e : NULL;
}

/* Sequences run 0 .. INT32_MAX and wrap to 0. */
static int32_t seq_after(int32_t seq, int32_t n)
{
    return (int32_t)(((int64_t)seq + n) & INT32_MAX);
}

int16_t ks_prods_check(const struct ks_prods *t, const struct ks_batch *b,
                       const struct ks_prod_batch **ret_original)
{
    *ret_original = NULL;
    const struct ks_prod_entry *e = b->producer_id >= 0 ? find(t, b->producer_id) : NULL;
    if (!e) {
        return KS_K_NONE; /* no state: any sequence is accepted */
    }
    if (b->producer_epoch < e->epoch) {
        return KS_K_INVALID_PRODUCER_EPOCH;
    }
    if (b->attrs & KS_ATTR_CONTROL) {
        return KS_K_NONE; /* markers carry no sequence */
    }
    bool any_seq = e->epoch < 0; /* an id without an epoch: as ProducerAppendInfo.checkSequence */
    if (b->producer_epoch > e->epoch) {
        return b->first_seq == 0 || any_seq ? KS_K_NONE : KS_K_OUT_OF_ORDER_SEQUENCE;
    }
    int32_t last_seq = seq_after(b->first_seq, b->last_delta);
    for (uint8_t i = 0; i < e->n; i++) {
        if (e->batches[i].first_seq == b->first_seq && e->batches[i].last_seq == last_seq) {
            *ret_original = &e->batches[i];
            return KS_K_NONE;
        }
    }
    if (e->n > 0 && !any_seq && b->first_seq != seq_after(e->batches[e->n - 1].last_seq, 1)) {
        return KS_K_OUT_OF_ORDER_SEQUENCE;
    }
    if (e->txn_first >= 0 && !(b->attrs & KS_ATTR_TRANSACTIONAL)) {
        return KS_K_INVALID_TXN_STATE;
    }
    return KS_K_NONE;
}

static bool silent(const struct ks_prod_entry *e, int64_t now, int64_t for_ms)
{
    return e->txn_first < 0 && now - KC_MAX(e->last_ts, (int64_t)0) > for_ms;
}

bool ks_prod_expired(const struct ks_prod_entry *e, int64_t now_wall_ms)
{
    return silent(e, now_wall_ms, KS_PROD_EXPIRE_MS);
}

/* Moves what is younger than expire_ms, or in a transaction, into a table of n_slots places. */
static int rehash(struct ks_prods *t, uint32_t n_slots, int64_t now, int64_t expire_ms)
{
    struct ks_prod_entry *slots = kc_try_zalloc(n_slots, sizeof(*slots));
    if (!slots) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < n_slots; i++) {
        slots[i].producer_id = -1;
    }
    uint32_t len = 0;
    for (uint32_t i = 0; i < t->n_slots; i++) {
        const struct ks_prod_entry *e = &t->slots[i];
        if (e->producer_id >= 0 && !silent(e, now, expire_ms)) {
            *place(slots, n_slots, e->producer_id) = *e;
            len++;
        }
    }
    kc_free(t->slots);
    t->slots = slots;
    t->n_slots = n_slots;
    t->len = len;
    return 0;
}

static bool has_room(const struct ks_prods *t, uint32_t n)
{
    return (uint64_t)t->len + n <= t->n_slots - t->n_slots / 4;
}

int ks_prods_reserve(struct ks_prods *t, uint32_t n, int64_t now_wall_ms)
{
    int64_t expire_ms = KS_PROD_EXPIRE_MS;
    if (n > KS_PROD_MAX / 2) {
        return -ENOMEM;
    }
    while (!has_room(t, n)) {
        uint32_t want = t->n_slots ? t->n_slots * 2 : FIRST_SLOTS;
        if (want > KS_PROD_SLOTS) {
            /* Full: forget the longest silent ones first, as if the expiration were shorter. */
            want = t->n_slots;
            if (expire_ms == 0) {
                return -ENOMEM; /* all of them in transactions */
            }
            expire_ms /= 2;
        }
        int rc = rehash(t, want, now_wall_ms, expire_ms);
        if (rc) {
            return rc;
        }
    }
    return 0;
}

int ks_prods_apply(struct ks_prods *t, const struct ks_batch *b, int64_t now_wall_ms)
{
    if (b->producer_id < 0) {
        return 0;
    }
    int rc = ks_prods_reserve(t, 1, now_wall_ms);
    if (rc) {
        return rc;
    }
    struct ks_prod_entry *e = place(t->slots, t->n_slots, b->producer_id);
    if (e->producer_id < 0) {
        *e = (struct ks_prod_entry){
            .producer_id = b->producer_id, .epoch = b->producer_epoch, .txn_first = -1};
        t->len++;
    }
    if (b->producer_epoch != e->epoch) {
        e->epoch = b->producer_epoch;
        e->n = 0;
    }
    e->last_ts = b->max_ts >= 0 ? b->max_ts : now_wall_ms;
    if (b->attrs & KS_ATTR_CONTROL) {
        if (e->txn_first >= 0) {
            e->txn_first = -1;
            t->open_txns--;
        }
        return 0;
    }
    if ((b->attrs & KS_ATTR_TRANSACTIONAL) && e->txn_first < 0) {
        e->txn_first = b->base;
        t->open_txns++;
    }
    if (e->n == KS_PROD_WINDOW) {
        memmove(e->batches, e->batches + 1, sizeof(e->batches) - sizeof(e->batches[0]));
        e->n--;
    }
    e->batches[e->n++] = (struct ks_prod_batch){
        .first_seq = b->first_seq,
        .last_seq = seq_after(b->first_seq, b->last_delta),
        .last_offset = ks_batch_last(b),
        .max_ts = b->max_ts,
    };
    return 0;
}

int64_t ks_prods_first_open(const struct ks_prods *t)
{
    int64_t first = INT64_MAX;
    for (uint32_t i = 0; t->open_txns > 0 && i < t->n_slots; i++) {
        if (t->slots[i].producer_id >= 0 && t->slots[i].txn_first >= 0) {
            first = KC_MIN(first, t->slots[i].txn_first);
        }
    }
    return first;
}

int ks_prods_put(struct ks_prods *t, const struct ks_prod_entry *entry)
{
    int rc = ks_prods_reserve(t, 1, entry->last_ts);
    if (rc) {
        return rc;
    }
    struct ks_prod_entry *e = place(t->slots, t->n_slots, entry->producer_id);
    t->len += e->producer_id < 0;
    t->open_txns -= e->producer_id >= 0 && e->txn_first >= 0;
    t->open_txns += entry->txn_first >= 0;
    *e = *entry;
    return 0;
}

int ks_prods_copy(struct ks_prods *dst, const struct ks_prods *src)
{
    *dst = *src;
    dst->slots = src->n_slots ? kc_try_alloc(src->n_slots * sizeof(*src->slots)) : NULL;
    if (src->n_slots && !dst->slots) {
        ks_prods_init(dst);
        return -ENOMEM;
    }
    if (src->n_slots) {
        memcpy(dst->slots, src->slots, src->n_slots * sizeof(*src->slots));
    }
    return 0;
}

int64_t ks_prods_txn_first(const struct ks_prods *t, int64_t producer_id)
{
    const struct ks_prod_entry *e = producer_id >= 0 ? find(t, producer_id) : NULL;
    return e ? e->txn_first : -1;
}
