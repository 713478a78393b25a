#include "storage/ks_codec.h"

#include <errno.h>
#include <lz4frame.h>
#include <snappy-c.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/kc_error.h"
#include "base/kc_mem.h"
#include "storage/ks_bytes.h"

enum {
    PIECE = 64 * 1024, /* unpacked at a time */
    LIMIT_BASE = 16 * 1024 * 1024,
    LIMIT_RATIO = 128,
    GZIP_WINDOW = 15 + 16, /* zlib: largest window, gzip framing */
    XERIAL_HEADER = 16, /* snappy-java: magic, version, compatible version */
    XERIAL_BLOCK = 32 * 1024
};
static const uint8_t XERIAL_MAGIC[8] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0};

void ks_bytes_free(struct ks_bytes_buf *b)
{
    kc_free(b->p);
    *b = (struct ks_bytes_buf){0};
}

int ks_bytes_reserve(struct ks_bytes_buf *b, size_t n, size_t cap)
{
    if (n > cap || b->len > cap - n) {
        return KC_E_TOO_LARGE;
    }
    if (b->room - b->len >= n) {
        return 0;
    }
    size_t room = KC_MIN(KC_MAX(b->room * 2, (size_t)PIECE), cap);
    room = KC_MAX(room, b->len + n);
    uint8_t *p = kc_try_realloc(b->p, room);
    if (!p) {
        return -ENOMEM;
    }
    b->p = p;
    b->room = room;
    return 0;
}

int ks_bytes_add(struct ks_bytes_buf *b, const void *p, size_t n, size_t cap)
{
    int rc = ks_bytes_reserve(b, n, cap);
    if (!rc && n) {
        memcpy(b->p + b->len, p, n);
        b->len += n;
    }
    return rc;
}

size_t ks_codec_limit(size_t len)
{
    return len > (KS_BATCH_MAX - LIMIT_BASE) / LIMIT_RATIO ? KS_BATCH_MAX
                                                           : LIMIT_BASE + len * LIMIT_RATIO;
}

/* ---- unpacking ---- */

static int unpack_gzip(const uint8_t *p, size_t len, struct ks_bytes_buf *out, size_t cap)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)p, .avail_in = (uInt)len};
    if (inflateInit2(&z, GZIP_WINDOW) != Z_OK) {
        return -ENOMEM;
    }
    int rc = 0, zrc = Z_OK;
    while (!rc && !(zrc == Z_STREAM_END && z.avail_in == 0)) {
        rc = zrc == Z_STREAM_END && inflateReset(&z) != Z_OK ? KC_E_MALFORMED : 0; /* next member */
        rc = rc ? rc : ks_bytes_reserve(out, 1, cap);
        if (!rc) {
            size_t room = KC_MIN(out->room, cap) - out->len;
            z.next_out = out->p + out->len;
            z.avail_out = (uInt)KC_MIN(room, (size_t)PIECE);
            uInt before = z.avail_out, in = z.avail_in;
            zrc = inflate(&z, Z_NO_FLUSH);
            out->len += before - z.avail_out;
            bool stuck = zrc == Z_OK && before == z.avail_out && in == z.avail_in;
            rc = zrc == Z_MEM_ERROR                              ? -ENOMEM
                 : (zrc != Z_OK && zrc != Z_STREAM_END) || stuck ? KC_E_MALFORMED
                                                                 : 0;
        }
    }
    inflateEnd(&z);
    return rc;
}

static int unpack_lz4(const uint8_t *p, size_t len, struct ks_bytes_buf *out, size_t cap)
{
    LZ4F_dctx *d = NULL;
    if (LZ4F_isError(LZ4F_createDecompressionContext(&d, LZ4F_VERSION))) {
        return -ENOMEM;
    }
    int rc = 0;
    size_t left = 1; /* what the decoder still wants; 0 = end of a frame */
    for (size_t at = 0; !rc && at < len;) {
        rc = ks_bytes_reserve(out, 1, cap);
        if (!rc) {
            size_t room = KC_MIN(KC_MIN(out->room, cap) - out->len, (size_t)PIECE);
            size_t in = len - at;
            left = LZ4F_decompress(d, out->p + out->len, &room, p + at, &in, NULL);
            rc = LZ4F_isError(left) || (room == 0 && in == 0) ? KC_E_MALFORMED : 0;
            out->len += rc ? 0 : room;
            at += in;
        }
    }
    /* The input may be eaten while the decoder still holds bytes of it. */
    while (!rc && left) {
        size_t none = 0;
        rc = ks_bytes_reserve(out, 1, cap);
        if (!rc) {
            size_t room = KC_MIN(KC_MIN(out->room, cap) - out->len, (size_t)PIECE);
            left = LZ4F_decompress(d, out->p + out->len, &room, p + len, &none, NULL);
            rc = LZ4F_isError(left) || room == 0 ? KC_E_MALFORMED : 0;
            out->len += rc ? 0 : room;
        }
    }
    LZ4F_freeDecompressionContext(d);
    return rc;
}

static int unpack_zstd(const uint8_t *p, size_t len, struct ks_bytes_buf *out, size_t cap)
{
    ZSTD_DStream *d = ZSTD_createDStream();
    if (!d) {
        return -ENOMEM;
    }
    ZSTD_inBuffer in = {p, len, 0};
    size_t left = 1;
    int rc = 0;
    while (!rc && (in.pos < in.size || left)) {
        rc = ks_bytes_reserve(out, 1, cap);
        if (!rc) {
            size_t before = in.pos;
            size_t room = KC_MIN(KC_MIN(out->room, cap) - out->len, (size_t)PIECE);
            ZSTD_outBuffer o = {out->p + out->len, room, 0};
            left = ZSTD_decompressStream(d, &o, &in);
            rc = ZSTD_isError(left) || (o.pos == 0 && in.pos == before) ? KC_E_MALFORMED : 0;
            out->len += rc ? 0 : o.pos;
        }
    }
    ZSTD_freeDStream(d);
    return rc;
}

static int snappy_block(const uint8_t *p, size_t len, struct ks_bytes_buf *out, size_t cap)
{
    size_t n = 0;
    if (snappy_uncompressed_length((const char *)p, len, &n) != SNAPPY_OK) {
        return KC_E_MALFORMED;
    }
    /* The claimed length decides the allocation: a block expands to at most some 64 times its size,
     * so check that the claim is possible before it is believed. */
    if (n > 64 * len + 64) {
        return KC_E_MALFORMED;
    }
    int rc = ks_bytes_reserve(out, n, cap);
    if (!rc &&
        snappy_uncompress((const char *)p, len, (char *)(out->p + out->len), &n) != SNAPPY_OK) {
        rc = KC_E_MALFORMED;
    }
    out->len += rc ? 0 : n;
    return rc;
}

static bool is_xerial(const uint8_t *p, size_t len)
{
    return len >= XERIAL_HEADER && memcmp(p, XERIAL_MAGIC, sizeof(XERIAL_MAGIC)) == 0;
}

static int unpack_snappy(const uint8_t *p, size_t len, struct ks_bytes_buf *out, size_t cap)
{
    if (!is_xerial(p, len)) {
        return snappy_block(p, len, out, cap);
    }
    int rc = 0;
    for (size_t at = XERIAL_HEADER; !rc && at < len;) {
        size_t n = len - at >= 4 ? ks_get32(p + at) : SIZE_MAX;
        if (n > len - at - 4) {
            return KC_E_MALFORMED;
        }
        rc = snappy_block(p + at + 4, n, out, cap);
        at += 4 + n;
    }
    return rc;
}

int ks_codec_unpack(enum ks_codec codec, struct kc_bytes packed, size_t most,
                    struct ks_bytes_buf *out)
{
    const uint8_t *p = packed.ptr;
    size_t len = (size_t)packed.len, cap = out->len + most;
    switch (codec) {
    case KS_CODEC_NONE:
        return ks_bytes_add(out, p, len, cap);
    case KS_CODEC_GZIP:
        return unpack_gzip(p, len, out, cap);
    case KS_CODEC_SNAPPY:
        return unpack_snappy(p, len, out, cap);
    case KS_CODEC_LZ4:
        return unpack_lz4(p, len, out, cap);
    case KS_CODEC_ZSTD:
        return unpack_zstd(p, len, out, cap);
    }
    return KC_E_MALFORMED;
}

int ks_records_open(const uint8_t *p, const struct ks_batch *b, size_t most,
                    struct ks_bytes_buf *scratch, struct ks_record_iter *ret)
{
    enum ks_codec codec = (enum ks_codec)(b->attrs & KS_ATTR_CODEC);
    ks_records_begin(ret, p, b);
    if (b->count < 0) {
        return KC_E_CORRUPT;
    }
    if (codec == KS_CODEC_NONE) {
        return 0;
    }
    scratch->len = 0;
    struct kc_bytes packed = {p + KS_BATCH_HEADER, (int32_t)(b->size - KS_BATCH_HEADER)};
    int rc = ks_codec_unpack(codec, packed, most, scratch);
    if (rc) {
        return rc == -ENOMEM || rc == KC_E_TOO_LARGE ? rc : KC_E_CORRUPT;
    }
    ret->p = scratch->p;
    ret->end = scratch->p + scratch->len;
    return 0;
}

/* ---- packing ---- */

static int pack_gzip(const uint8_t *p, size_t len, struct ks_bytes_buf *out, size_t cap)
{
    z_stream z = {0};
    if (deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) !=
        Z_OK) {
        return -ENOMEM;
    }
    size_t bound = deflateBound(&z, (uLong)len);
    int rc = ks_bytes_reserve(out, bound, cap);
    if (!rc) {
        z.next_in = (Bytef *)(uintptr_t)p;
        z.avail_in = (uInt)len;
        z.next_out = out->p + out->len;
        z.avail_out = (uInt)bound;
        rc = deflate(&z, Z_FINISH) == Z_STREAM_END ? 0 : KC_E_TOO_LARGE;
        out->len += rc ? 0 : z.total_out;
    }
    deflateEnd(&z);
    return rc;
}

static int pack_lz4(const uint8_t *p, size_t len, struct ks_bytes_buf *out, size_t cap)
{
    /* Java's reader wants blocks that do not depend on each other. */
    LZ4F_preferences_t prefs = {
        .frameInfo = {.blockSizeID = LZ4F_max64KB, .blockMode = LZ4F_blockIndependent}};
    size_t bound = LZ4F_compressFrameBound(len, &prefs);
    int rc = ks_bytes_reserve(out, bound, cap);
    if (!rc) {
        size_t n = LZ4F_compressFrame(out->p + out->len, bound, p, len, &prefs);
        rc = LZ4F_isError(n) ? -ENOMEM : 0;
        out->len += rc ? 0 : n;
    }
    return rc;
}

static int pack_zstd(const uint8_t *p, size_t len, struct ks_bytes_buf *out, size_t cap)
{
    size_t bound = ZSTD_compressBound(len);
    int rc = ks_bytes_reserve(out, bound, cap);
    if (!rc) {
        size_t n = ZSTD_compress(out->p + out->len, bound, p, len, ZSTD_CLEVEL_DEFAULT);
        rc = ZSTD_isError(n) ? -ENOMEM : 0;
        out->len += rc ? 0 : n;
    }
    return rc;
}

static int pack_block(const uint8_t *p, size_t len, bool framed, struct ks_bytes_buf *out,
                      size_t cap)
{
    size_t n = snappy_max_compressed_length(len), head = framed ? 4 : 0;
    int rc = ks_bytes_reserve(out, head + n, cap);
    if (rc) {
        return rc;
    }
    uint8_t *to = out->p + out->len;
    if (snappy_compress((const char *)p, len, (char *)to + head, &n) != SNAPPY_OK) {
        return -ENOMEM;
    }
    if (framed) {
        ks_put32(to, (uint32_t)n);
    }
    out->len += head + n;
    return 0;
}

static int pack_snappy(const uint8_t *p, size_t len, struct kc_bytes like, struct ks_bytes_buf *out,
                       size_t cap)
{
    if (!like.ptr || !is_xerial(like.ptr, (size_t)like.len)) {
        return pack_block(p, len, false, out, cap);
    }
    int rc = ks_bytes_add(out, like.ptr, XERIAL_HEADER, cap);
    for (size_t at = 0; !rc && at < len; at += XERIAL_BLOCK) {
        rc = pack_block(p + at, KC_MIN(len - at, (size_t)XERIAL_BLOCK), true, out, cap);
    }
    return rc;
}

int ks_codec_pack(enum ks_codec codec, const uint8_t *p, size_t len, struct kc_bytes like,
                  struct ks_bytes_buf *out)
{
    size_t cap = out->len + 2 * (size_t)KS_BATCH_MAX; /* of the bound; the result is far smaller */
    switch (codec) {
    case KS_CODEC_NONE:
        return ks_bytes_add(out, p, len, cap);
    case KS_CODEC_GZIP:
        return pack_gzip(p, len, out, cap);
    case KS_CODEC_SNAPPY:
        return pack_snappy(p, len, like, out, cap);
    case KS_CODEC_LZ4:
        return pack_lz4(p, len, out, cap);
    case KS_CODEC_ZSTD:
        return pack_zstd(p, len, out, cap);
    }
    return KC_E_MALFORMED;
}
