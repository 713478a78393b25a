/* Encoding of chain records. */
#include "storage/ks_rec.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/kc_crc32c.h"
#include "base/kc_error.h"
#include "base/kc_mem.h"
#include "storage/ks_bytes.h"

enum { MAGIC = 0x4b434831 /* "KCH1" */, HEAD = 36, TAIL = 4, FILE_LEN = 8, NEW_LEN = 28 };

struct out {
    uint8_t *p;
};
struct in {
    const uint8_t *p, *end;
    bool bad;
};

static void w8(struct out *o, uint8_t v)
{
    *o->p++ = v;
}
static void w16(struct out *o, uint16_t v)
{
    ks_put16(o->p, v);
    o->p += 2;
}
static void w32(struct out *o, uint32_t v)
{
    ks_put32(o->p, v);
    o->p += 4;
}
static void w64(struct out *o, uint64_t v)
{
    ks_put64(o->p, v);
    o->p += 8;
}
static void wbytes(struct out *o, const void *v, size_t n)
{
    memcpy(o->p, v, n);
    o->p += n;
}
static void wfile(struct out *o, struct ks_file_id f)
{
    w32(o, f.inc8);
    w32(o, f.seq);
}

static const uint8_t *take(struct in *i, size_t n)
{
    static const uint8_t zeros[64];
    if (i->bad || (size_t)(i->end - i->p) < n) {
        i->bad = true;
        return zeros;
    }
    const uint8_t *p = i->p;
    i->p += n;
    return p;
}
static uint16_t r16(struct in *i)
{
    return ks_get16(take(i, 2));
}
static uint32_t r32(struct in *i)
{
    return ks_get32(take(i, 4));
}
static uint64_t r64(struct in *i)
{
    return ks_get64(take(i, 8));
}
static struct ks_file_id rfile(struct in *i)
{
    uint32_t inc8 = r32(i);
    return (struct ks_file_id){.inc8 = inc8, .seq = r32(i)};
}

static void encode_claim(struct out *o, const struct ks_rec *r)
{
    size_t uid_len = strnlen(r->claim.order.uid, sizeof(r->claim.order.uid) - 1);
    w32(o, (uint32_t)r->claim.broker);
    wbytes(o, r->claim.incarnation.b, sizeof(r->claim.incarnation.b));
    wfile(o, r->claim.file);
    w64(o, r->claim.order.term);
    w64(o, r->claim.order.generation);
    w8(o, (uint8_t)uid_len);
    wbytes(o, r->claim.order.uid, uid_len);
}

static void encode_drop(struct out *o, const struct ks_rec *r)
{
    w64(o, (uint64_t)r->drop.start);
    w64(o, (uint64_t)r->drop.end);
    if (r->type == KS_COMPACT) {
        w64(o, (uint64_t)r->drop.clean);
    }
    w16(o, r->drop.n_old);
    w16(o, r->drop.n_new);
    for (uint16_t i = 0; i < r->drop.n_old; i++) {
        wfile(o, r->drop.old[i]);
    }
    for (uint16_t i = 0; i < r->drop.n_new; i++) {
        wfile(o, r->drop.new_files[i].file);
        w64(o, (uint64_t)r->drop.new_files[i].base);
        w64(o, r->drop.new_files[i].len);
        w32(o, r->drop.new_files[i].crc);
    }
}

size_t ks_rec_encode(const struct ks_rec *r, uint8_t *out)
{
    struct out o = {out};
    w32(&o, MAGIC);
    w8(&o, (uint8_t)r->type);
    w8(&o, 0);
    w16(&o, 0);
    w64(&o, r->k);
    wbytes(&o, r->nonce, sizeof(r->nonce));
    w32(&o, (uint32_t)r->epoch);
    switch (r->type) {
    case KS_CLAIM:
        encode_claim(&o, r);
        break;
    case KS_ROLL:
        wfile(&o, r->roll.file);
        w64(&o, (uint64_t)r->roll.base);
        w64(&o, r->roll.prev_len);
        w32(&o, r->roll.prev_crc);
        break;
    case KS_SEAL:
        wfile(&o, r->seal.file);
        w64(&o, (uint64_t)r->seal.end);
        w64(&o, r->seal.len);
        w32(&o, r->seal.crc);
        if (r->seal.rescued) {
            wfile(&o, r->seal.copy.file);
            w64(&o, (uint64_t)r->seal.copy.base);
            w64(&o, r->seal.copy.len);
            w32(&o, r->seal.copy.crc);
        }
        break;
    case KS_COMPACT:
    case KS_TRIM:
        KC_ASSERT(r->drop.n_old <= KS_REC_FILES_MAX && r->drop.n_new <= KS_REC_FILES_MAX / 2);
        encode_drop(&o, r);
        break;
    }
    w32(&o, kc_crc32c(0, out, (size_t)(o.p - out)));
    return (size_t)(o.p - out);
}

static void decode_claim(struct in *i, struct ks_rec *r)
{
    r->claim.broker = (int32_t)r32(i);
    memcpy(r->claim.incarnation.b, take(i, 16), 16);
    r->claim.file = rfile(i);
    r->claim.order.term = r64(i);
    r->claim.order.generation = r64(i);
    size_t uid_len = *take(i, 1);
    if (uid_len >= sizeof(r->claim.order.uid)) {
        i->bad = true;
        return;
    }
    memcpy(r->claim.order.uid, take(i, uid_len), uid_len);
    i->bad = i->bad || strlen(r->claim.order.uid) != uid_len;
}

static void decode_seal(struct in *i, struct ks_rec *r)
{
    r->seal.file = rfile(i);
    r->seal.end = (int64_t)r64(i);
    r->seal.len = r64(i);
    r->seal.crc = r32(i);
    r->seal.rescued = !i->bad && i->p != i->end;
    if (r->seal.rescued) {
        r->seal.copy.file = rfile(i);
        r->seal.copy.base = (int64_t)r64(i);
        r->seal.copy.len = r64(i);
        r->seal.copy.crc = r32(i);
    }
}

static int decode_drop(struct in *i, struct ks_rec *r)
{
    r->drop.start = (int64_t)r64(i);
    r->drop.end = (int64_t)r64(i);
    r->drop.clean = r->type == KS_COMPACT ? (int64_t)r64(i) : 0;
    r->drop.n_old = r16(i);
    r->drop.n_new = r16(i);
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
        r->drop.old[n] = rfile(i);
    }
    for (uint16_t n = 0; n < r->drop.n_new; n++) {
        r->drop.new_files[n].file = rfile(i);
        r->drop.new_files[n].base = (int64_t)r64(i);
        r->drop.new_files[n].len = r64(i);
        r->drop.new_files[n].crc = r32(i);
    }
    return 0;
}

int ks_rec_decode(const uint8_t *p, size_t len, struct ks_rec *ret)
{
    if (len < HEAD + TAIL || len > KS_REC_MAX ||
        kc_crc32c(0, p, len - TAIL) != ks_get32(p + len - TAIL)) {
        return KC_E_CORRUPT;
    }
    struct in i = {.p = p, .end = p + len - TAIL};
    struct ks_rec r = {0};
    int rc = 0;
    i.bad = r32(&i) != MAGIC;
    uint32_t type = *take(&i, 1);
    take(&i, 3);
    r.k = r64(&i);
    memcpy(r.nonce, take(&i, 16), 16);
    r.epoch = (int32_t)r32(&i);
    r.type = (enum ks_rec_type)type;
    switch (r.type) {
    case KS_CLAIM:
        decode_claim(&i, &r);
        break;
    case KS_ROLL:
        r.roll.file = rfile(&i);
        r.roll.base = (int64_t)r64(&i);
        r.roll.prev_len = r64(&i);
        r.roll.prev_crc = r32(&i);
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
