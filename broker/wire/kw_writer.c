#include "wire/kw_writer.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/kc_mem.h"

void kw_writer_init(struct kw_writer *w, size_t max_bytes)
{
    *w = (struct kw_writer){.max = max_bytes};
    kc_dyn_init(&w->own, max_bytes);
}

static void drop_links(struct kw_writer *w)
{
    for (size_t i = 0; i < w->n_links; i++) {
        kc_buf_unref(w->links[i].slice.buf);
    }
    w->n_links = 0;
    w->linked = 0;
}

void kw_writer_fini(struct kw_writer *w)
{
    drop_links(w);
    kc_free(w->links);
    kc_dyn_fini(&w->own);
    *w = (struct kw_writer){.max = w->max};
    kc_dyn_init(&w->own, w->max);
}

void kw_writer_reset(struct kw_writer *w)
{
    drop_links(w);
    kc_dyn_reset(&w->own);
    w->error = 0;
    w->error_field = NULL;
}

void kw_writer_fail(struct kw_writer *w, int error)
{
    if (!w->error) {
        w->error = error;
    }
}

static uint8_t *extend_slowly(struct kw_writer *w, size_t n)
{
    if (w->error) {
        return NULL;
    }
    if (n > w->max || kw_writer_len(w) > w->max - n) {
        kw_writer_fail(w, KC_E_TOO_LARGE);
        return NULL;
    }
    uint8_t *p = kc_dyn_extend(&w->own, n);
    if (!p) {
        kw_writer_fail(w, -ENOMEM);
    }
    return p;
}

/* Room for n bytes of the own buffer; NULL after any error. */
static inline uint8_t *extend(struct kw_writer *w, size_t n)
{
    struct kc_dyn *own = &w->own;
    if (w->error || n > own->room - own->len || own->len + n > w->max - w->linked) {
        return extend_slowly(w, n);
    }
    uint8_t *p = own->data + own->len;
    own->len += n;
    return p;
}

void kw_writer_raw(struct kw_writer *w, const void *data, size_t len)
{
    uint8_t *p = len ? extend(w, len) : NULL;
    if (p) {
        memcpy(p, data, len);
    }
}

void kw_writer_add_slice(struct kw_writer *w, struct kc_slice slice)
{
    if (w->error || slice.len == 0) {
        return;
    }
    if (slice.len > w->max || kw_writer_len(w) > w->max - slice.len) {
        kw_writer_fail(w, KC_E_TOO_LARGE);
        return;
    }
    if (w->n_links == w->links_room) {
        size_t room = w->links_room ? w->links_room * 2 : 8;
        struct kw_link *links = kc_try_realloc(w->links, room * sizeof(*links));
        if (!links) {
            kw_writer_fail(w, -ENOMEM);
            return;
        }
        w->links = links;
        w->links_room = room;
    }
    if (slice.buf) {
        kc_buf_ref(slice.buf);
    }
    w->links[w->n_links++] = (struct kw_link){.at = w->own.len, .slice = slice};
    w->linked += slice.len;
}

void kw_writer_u8(struct kw_writer *w, uint8_t v)
{
    uint8_t *p = extend(w, 1);
    if (p) {
        p[0] = v;
    }
}

static void put_u32(uint8_t *p, uint32_t v)
{
    v = htobe32(v);
    memcpy(p, &v, sizeof(v));
}

void kw_writer_u16(struct kw_writer *w, uint16_t v)
{
    uint8_t *p = extend(w, 2);
    if (p) {
        p[0] = (uint8_t)(v >> 8);
        p[1] = (uint8_t)v;
    }
}

void kw_writer_u32(struct kw_writer *w, uint32_t v)
{
    uint8_t *p = extend(w, 4);
    if (p) {
        put_u32(p, v);
    }
}

void kw_writer_u64(struct kw_writer *w, uint64_t v)
{
    uint8_t *p = extend(w, 8);
    if (p) {
        put_u32(p, (uint32_t)(v >> 32));
        put_u32(p + 4, (uint32_t)v);
    }
}

void kw_writer_f64(struct kw_writer *w, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    kw_writer_u64(w, bits);
}

void kw_writer_bool(struct kw_writer *w, bool v)
{
    kw_writer_u8(w, v ? 1 : 0);
}

void kw_writer_uuid(struct kw_writer *w, const struct kc_uuid *v)
{
    kw_writer_raw(w, v->b, sizeof(v->b));
}

/* Encodes v into out (10 bytes) and returns the number of bytes. */
static size_t put_uvar(uint8_t *out, uint64_t v)
{
    size_t n = 0;
    while (v >= 0x80) {
        out[n++] = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    out[n++] = (uint8_t)v;
    return n;
}

void kw_writer_uvarlong(struct kw_writer *w, uint64_t v)
{
    uint8_t b[10];
    kw_writer_raw(w, b, put_uvar(b, v));
}

void kw_writer_uvarint(struct kw_writer *w, uint32_t v)
{
    kw_writer_uvarlong(w, v);
}

void kw_writer_varint(struct kw_writer *w, int32_t v)
{
    kw_writer_uvarlong(w, (uint32_t)v << 1 ^ (v < 0 ? UINT32_MAX : 0));
}

void kw_writer_varlong(struct kw_writer *w, int64_t v)
{
    kw_writer_uvarlong(w, (uint64_t)v << 1 ^ (v < 0 ? UINT64_MAX : 0));
}

void kw_writer_str(struct kw_writer *w, struct kc_str v, bool flexible)
{
    if (v.ptr && (v.len < 0 || v.len > INT16_MAX)) {
        kw_writer_fail(w, KC_E_TOO_LARGE);
        return;
    }
    int32_t len = v.ptr ? v.len : -1;
    if (flexible) {
        kw_writer_uvarint(w, (uint32_t)(len + 1));
    } else {
        kw_writer_i16(w, (int16_t)len);
    }
    if (len > 0) {
        kw_writer_raw(w, v.ptr, (size_t)len);
    }
}

/* The prefix of a value of type bytes, or of an array: -1 means null. */
static void write_len(struct kw_writer *w, int32_t len, bool flexible)
{
    if (flexible) {
        kw_writer_uvarint(w, (uint32_t)len + 1);
    } else {
        kw_writer_i32(w, len);
    }
}

void kw_writer_bytes(struct kw_writer *w, struct kc_bytes v, bool flexible)
{
    if (v.ptr && v.len < 0) {
        kw_writer_fail(w, KC_E_MALFORMED);
        return;
    }
    write_len(w, v.ptr ? v.len : -1, flexible);
    if (v.ptr && v.len > 0) {
        kw_writer_raw(w, v.ptr, (size_t)v.len);
    }
}

void kw_writer_slices(struct kw_writer *w, const struct kc_slice *slices, int32_t n, bool flexible)
{
    size_t total = 0;
    for (int32_t i = 0; i < n; i++) {
        if (slices[i].len > INT32_MAX - total) {
            kw_writer_fail(w, KC_E_TOO_LARGE);
            return;
        }
        total += slices[i].len;
    }
    write_len(w, (int32_t)total, flexible);
    for (int32_t i = 0; i < n; i++) {
        kw_writer_add_slice(w, slices[i]);
    }
}

void kw_writer_array(struct kw_writer *w, int32_t n, bool flexible)
{
    write_len(w, n < 0 ? -1 : n, flexible);
}

void kw_writer_insert_size(struct kw_writer *w, size_t own_at)
{
    if (w->error) {
        return;
    }
    KC_ASSERT(own_at <= w->own.len);
    KC_ASSERT(w->n_links == 0 || w->links[w->n_links - 1].at <= own_at);
    size_t size = w->own.len - own_at;
    uint8_t prefix[10];
    size_t n = put_uvar(prefix, size);
    if (!extend(w, n)) {
        return;
    }
    memmove(w->own.data + own_at + n, w->own.data + own_at, size);
    memcpy(w->own.data + own_at, prefix, n);
}

struct kw_frame kw_writer_begin_frame(struct kw_writer *w)
{
    kw_writer_u32(w, 0);
    return (struct kw_frame){.own = w->own.len, .linked = w->linked};
}

void kw_writer_end_frame(struct kw_writer *w, struct kw_frame frame)
{
    if (w->error) {
        return;
    }
    size_t size = kw_writer_len(w) - frame.own - frame.linked;
    if (size > INT32_MAX) {
        kw_writer_fail(w, KC_E_TOO_LARGE);
        return;
    }
    put_u32(w->own.data + frame.own - 4, (uint32_t)size);
}

bool kw_writer_next(const struct kw_writer *w, struct kw_piece_iter *it, const uint8_t **ret_ptr,
                    size_t *ret_len)
{
    size_t stop = it->link < w->n_links ? w->links[it->link].at : w->own.len;
    if (it->own < stop) {
        *ret_ptr = w->own.data + it->own;
        *ret_len = stop - it->own;
        it->own = stop;
        return true;
    }
    if (it->link < w->n_links) {
        const struct kc_slice *slice = &w->links[it->link++].slice;
        *ret_ptr = slice->ptr;
        *ret_len = slice->len;
        return true;
    }
    return false;
}
