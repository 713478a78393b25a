/* Encoding of chain records. */
#include "storage/ks_rec.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/kc_crc32c.h"
#include "base/kc_error.h"
#include "base/kc_mem.h"
#include "storage/ks_cursor.h"

enum { MAGIC = 0x4b434831 /* "KCH1" */, HEAD = 36, TAIL = 4, FILE_LEN = 8, NEW_LEN = 28 };

static void encode_claim(struct ks_out *o, const struct ks_rec *r)
{
    size_t uid_len = strnlen(r->claim.order.uid, sizeof(r->claim.order.uid) - 1);
    ks_out_u32(o, (uint32_t)r->claim.broker);
    ks_out_uuid(o, &r->claim.incarnation);
    ks_out_file(o, r->claim.file);
    ks_out_u64(o, r->claim.order.term);
    ks_out_u64(o, r->claim.order.generation);
    ks_out_u8(o, (uint8_t)uid_len);
    ks_out_bytes(o, r->claim.order.uid, uid_len);
}

static void encode_drop(struct ks_out *o, const struct ks_rec *r)
{
    ks_out_u64(o, (uint64_t)r->drop.start);
    ks_out_u64(o, (uint64_t)r->drop.end);
    if (r->type == KS_COMPACT) {
        ks_out_u64(o, (uint64_t)r->drop.clean);
    }
    ks_out_u16(o, r->drop.n_old);
    ks_out_u16(o, r->drop.n_new);
    for (uint16_t i = 0; i < r->drop.n_old; i++) {
        ks_out_file(o, r->drop.old[i]);
    }
    for (uint16_t i = 0; i < r->drop.n_new; i++) {
        ks_out_file(o, r->drop.new_files[i].file);
        ks_out_u64(o, (uint64_t)r->drop.new_files[i].base);
        ks_out_u64(o, r->drop.new_files[i].len);
        ks_out_u32(o, r->drop.new_files[i].crc);
    }
}

size_t ks_rec_encode(const struct ks_rec *r, uint8_t *out)
{
    struct ks_out o = {out};
    ks_out_u32(&o, MAGIC);
    ks_out_u8(&o, (uint8_t)r->type);
    ks_out_u8(&o, 0);
    ks_out_u16(&o, 0);
    ks_out_u64(&o, r->k);
    ks_out_bytes(&o, r->nonce, sizeof(r->nonce));
    ks_out_u32(&o, (uint32_t)r->epoch);
    switch (r->type) {
    case KS_CLAIM:
        encode_claim(&o, r);
        break;
    case KS_ROLL:
        ks_out_file(&o, r->roll.file);
        ks_out_u64(&o, (uint64_t)r->roll.base);
        ks_out_u64(&o, r->roll.prev_len);
        ks_out_u32(&o, r->roll.prev_crc);
        break;
    case KS_SEAL:
        ks_out_file(&o, r->seal.file);
        ks_out_u64(&o, (uint64_t)r->seal.end);
        ks_out_u64(&o, r->seal.len);
        ks_out_u32(&o, r->seal.crc);
        if (r->seal.rescued) {
            ks_out_file(&o, r->seal.copy.file);
            ks_out_u64(&o, (uint64_t)r->seal.copy.base);
            ks_out_u64(&o, r->seal.copy.len);
            ks_out_u32(&o, r->seal.copy.crc);
        }
        break;
    case KS_COMPACT:
    case KS_TRIM:
        KC_ASSERT(r->drop.n_old <= KS_REC_FILES_MAX && r->drop.n_new <= KS_REC_FILES_MAX / 2);
        encode_drop(&o, r);
        break;
    }
    ks_out_u32(&o, kc_crc32c(0, out, (size_t)(o.p - out)));
    return (size_t)(o.p - out);
}

static void decode_claim(struct ks_in *i, struct ks_rec *r)
{
    r->claim.broker = (int32_t)ks_in_u32(i);
    ks_in_uuid(i, &r->claim.incarnation);
    r->claim.file = ks_in_file(i);
    r->claim.order.term = ks_in_u64(i);
    r->claim.order.generation = ks_in_u64(i);
    size_t uid_len = ks_in_u8(i);
    if (uid_len >= sizeof(r->claim.order.uid)) {
        i->bad = true;
        return;
    }
    memcpy(r->claim.order.uid, ks_in_take(i, uid_len), uid_len);
    i->bad = i->bad || strlen(r->claim.order.uid) != uid_len;
}

static void decode_seal(struct ks_in *i, struct ks_rec *r)
{
    r->seal.file = ks_in_file(i);
    r->seal.end = (int64_t)ks_in_u64(i);
    r->seal.len = ks_in_u64(i);
    r->seal.crc = ks_in_u32(i);
    r->seal.rescued = !i->bad && i->p != i->end;
    if (r->seal.rescued) {
        r->seal.copy.file = ks_in_file(i);
        r->seal.copy.base = (int64_t)ks_in_u64(i);
        r->seal.copy.len = ks_in_u64(i);
        r->seal.copy.crc = ks_in_u32(i);
    }
}

static int decode_drop(struct ks_in *i, struct ks_rec *r)
{
    r->drop.start = (int64_t)ks_in_u64(i);
    r->drop.end = (int64_t)ks_in_u64(i);
    r->drop.clean = r->type == KS_COMPACT ? (int64_t)ks_in_u64(i) : 0;
    r->drop.n_old = ks_in_u16(i);
    r->drop.n_new = ks_in_u16(i);
    size_t need = (size_t)r->drop.n_old * FILE_LEN + (size_t)r->drop.n_new * NEW_LEN;
    if (i->bad || r->drop.start < 0 || (size_t)(i->end - i->p) != need ||
        r->drop.n_old > KS_REC_FILES_MAX || r->drop.n_new > KS_REC_FILES_MAX / 2) {
        i->bad = true;
        r->drop.n_old = r->drop.n_new = 0;
        return 0;
    }
    r->drop.old = kc_try_zalloc(r->drop.n_old + 1u, sizeof(*r->drop.old));
    r->drop.new_files = kc_try_zalloc(r->drop.n_new + 1u, sizeof(*r->drop.new_files));
    if (!r->drop.old || !r->drop.new_files) {
        return -ENOMEM;
    }
    for (uint16_t n = 0; n < r->drop.n_old; n++) {
        r->drop.old[n] = ks_in_file(i);
    }
    for (uint16_t n = 0; n < r->drop.n_new; n++) {
        r->drop.new_files[n].file = ks_in_file(i);
        r->drop.new_files[n].base = (int64_t)ks_in_u64(i);
        r->drop.new_files[n].len = ks_in_u64(i);
        r->drop.new_files[n].crc = ks_in_u32(i);
    }
    return 0;
}

int ks_rec_decode(const uint8_t *p, size_t len, struct ks_rec *ret)
{
    if (len < HEAD + TAIL || len > KS_REC_MAX ||
        kc_crc32c(0, p, len - TAIL) != ks_get32(p + len - TAIL)) {
        return KC_E_CORRUPT;
    }
    struct ks_in i = {.p = p, .end = p + len - TAIL};
    struct ks_rec r = {0};
    int rc = 0;
    i.bad = ks_in_u32(&i) != MAGIC;
    uint32_t type = ks_in_u8(&i);
    ks_in_take(&i, 3);
    r.k = ks_in_u64(&i);
    memcpy(r.nonce, ks_in_take(&i, 16), 16);
    r.epoch = (int32_t)ks_in_u32(&i);
    r.type = (enum ks_rec_type)type;
    switch (r.type) {
    case KS_CLAIM:
        decode_claim(&i, &r);
        break;
    case KS_ROLL:
        r.roll.file = ks_in_file(&i);
        r.roll.base = (int64_t)ks_in_u64(&i);
        r.roll.prev_len = ks_in_u64(&i);
        r.roll.prev_crc = ks_in_u32(&i);
        break;
    case KS_SEAL:
        decode_seal(&i, &r);
        break;
    case KS_COMPACT:
    case KS_TRIM:
        rc = decode_drop(&i, &r);
        break;
    default:
        return KC_E_CORRUPT;
    }
    if (!rc && (i.bad || i.p != i.end || r.epoch < 0)) {
        rc = KC_E_CORRUPT;
    }
    if (rc) {
        ks_rec_fini(&r);
        return rc;
    }
    *ret = r;
    return 0;
}

void ks_rec_fini(struct ks_rec *r)
{
    if (r->type == KS_COMPACT || r->type == KS_TRIM) {
        kc_free(r->drop.old);
        kc_free(r->drop.new_files);
        r->drop.old = NULL;
        r->drop.new_files = NULL;
    }
}

const char *ks_rec_type_name(enum ks_rec_type t)
{
    static const char *const names[] = {[KS_CLAIM] = "CLAIM",
                                        [KS_ROLL] = "ROLL",
                                        [KS_SEAL] = "SEAL",
                                        [KS_COMPACT] = "COMPACT",
                                        [KS_TRIM] = "TRIM"};
    return t >= KS_CLAIM && t <= KS_TRIM ? names[t] : "?";
}

void ks_file_name(struct ks_file_id id, char out[KS_FILE_NAME_LEN])
{
    snprintf(out, KS_FILE_NAME_LEN, "%08x-%u.log", id.inc8, id.seq);
}

bool ks_file_parse(const char *name, struct ks_file_id *ret)
{
    char again[KS_FILE_NAME_LEN];
    return sscanf(name, "%8x-%u.log", &ret->inc8, &ret->seq) == 2 &&
           (ks_file_name(*ret, again), strcmp(again, name) == 0);
}
