/* kc_buf.h - reference-counted byte slab: record bytes travel in it from socket to disk to socket.
 *
 * Immutable once shared; ref and unref from any thread. */
#ifndef KC_BUF_H
#define KC_BUF_H

#include <stdatomic.h>

#include "base/kc_base.h"

struct kc_range; /* kc_range.h */

struct kc_buf {
    _Atomic uint32_t refs;
    size_t len;
    struct kc_range *range; /* NULL, or the slab stands for bytes of a file, and this is in data */
    _Alignas(16) uint8_t data[];
};

/* One reference, len bytes, not zeroed; NULL when memory is out. */
struct kc_buf *kc_buf_new(size_t len) KC_MUST_CHECK;
struct kc_buf *kc_buf_ref(struct kc_buf *b);
void kc_buf_unref(struct kc_buf *b); /* NULL allowed */

/* A borrowed range of a slab; holders that keep it take a reference of their own. */
struct kc_slice {
    struct kc_buf *buf;
    const uint8_t *ptr; /* NULL: the bytes of buf->range, all of them */
    size_t len;
};

#endif
