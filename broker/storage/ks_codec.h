/* ks_codec.h - opens and packs the compressed records of a batch.
 *
 * Pure but for memory; any thread. What comes out of a packed batch is bounded twice, in bytes and
 * in proportion to what went in, so that a few bytes of a hostile producer cannot fill the memory;
 * it is unpacked piece by piece and never trusted for its own claim of a size. */
#ifndef KS_CODEC_H
#define KS_CODEC_H

#include "base/kc_base.h"
#include "storage/ks_batch.h"

enum ks_codec { KS_CODEC_NONE, KS_CODEC_GZIP, KS_CODEC_SNAPPY, KS_CODEC_LZ4, KS_CODEC_ZSTD };

/* Bytes that grow; kept from batch to batch. */
struct ks_bytes_buf {
    uint8_t *p;
    size_t len, room;
};
void ks_bytes_free(struct ks_bytes_buf *b);
/* Room for n more bytes, never past cap in all. -ENOMEM, KC_E_TOO_LARGE. */
int ks_bytes_reserve(struct ks_bytes_buf *b, size_t n, size_t cap) KC_MUST_CHECK;
int ks_bytes_add(struct ks_bytes_buf *b, const void *p, size_t n, size_t cap) KC_MUST_CHECK;

/* Most bytes that len packed ones may become. */
size_t ks_codec_limit(size_t len);
/* Appends what the packed bytes hold to out, at most so many bytes. KC_E_MALFORMED, KC_E_TOO_LARGE
 * (there is more), -ENOMEM. */
int ks_codec_unpack(enum ks_codec codec, struct kc_bytes packed, size_t most,
                    struct ks_bytes_buf *out) KC_MUST_CHECK;
/* Appends the packed form of len bytes. like: the packed batch it replaces, whose framing is kept
 * where a codec has more than one (snappy). -ENOMEM, KC_E_TOO_LARGE. */
int ks_codec_pack(enum ks_codec codec, const uint8_t *p, size_t len, struct kc_bytes like,
                  struct ks_bytes_buf *out) KC_MUST_CHECK;

/* Begins the records of a batch that may be compressed: p holds b->size bytes. Unpacked into scratch,
 * which must outlive the walk, at most so many bytes. KC_E_CORRUPT (they do not open), KC_E_TOO_LARGE,
 * -ENOMEM. */
int ks_records_open(const uint8_t *p, const struct ks_batch *b, size_t most,
                    struct ks_bytes_buf *scratch, struct ks_record_iter *ret) KC_MUST_CHECK;

#endif
