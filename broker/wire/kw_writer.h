/* kw_writer.h - writes Kafka's primitive types into a growing buffer, and links record bytes into
 * it without copying them.
 *
 * Any thread, one owner. The first error is sticky (`error`), so that an encoder checks once, at
 * the end. The output is a sequence of pieces: ranges of the writer's own buffer and linked
 * slices, in order; a socket sends them with writev. A writer has no pointers into itself and may
 * be moved by assignment. */
#ifndef KW_WRITER_H
#define KW_WRITER_H

#include "base/kc_base.h"
#include "base/kc_buf.h"
#include "base/kc_dyn.h"
#include "base/kc_error.h"
#include "base/kc_uuid.h"

struct kw_link {
    size_t at; /* offset in the own buffer before which the slice stands */
    struct kc_slice slice;
};

struct kw_writer {
    struct kc_dyn own;
    struct kw_link *links;
    size_t n_links;
    size_t links_room;
    size_t linked; /* bytes in links */
    size_t max; /* most bytes of the whole output */
    int error; /* 0, KC_E_UNSUPPORTED, KC_E_MALFORMED, KC_E_TOO_LARGE or -ENOMEM */
    const char *error_field; /* the field at which an encoder failed, or NULL; static text */
};

void kw_writer_init(struct kw_writer *w, size_t max_bytes);
/* Frees the buffer and drops the references of linked slices. */
void kw_writer_fini(struct kw_writer *w);
/* Empties the writer for the next message and clears the error; keeps memory. */
void kw_writer_reset(struct kw_writer *w);
/* Records the first error. */
void kw_writer_fail(struct kw_writer *w, int error);
/* Bytes of the whole output so far. */
static inline size_t kw_writer_len(const struct kw_writer *w)
{
    return w->own.len + w->linked;
}

void kw_writer_raw(struct kw_writer *w, const void *data, size_t len);
/* Links a slice at the current position and takes a reference of its own (slice.buf NULL: memory
 * that outlives the writer). */
void kw_writer_add_slice(struct kw_writer *w, struct kc_slice slice);

void kw_writer_u8(struct kw_writer *w, uint8_t v);
void kw_writer_u16(struct kw_writer *w, uint16_t v);
void kw_writer_u32(struct kw_writer *w, uint32_t v);
void kw_writer_u64(struct kw_writer *w, uint64_t v);
static inline void kw_writer_i8(struct kw_writer *w, int8_t v)
{
    kw_writer_u8(w, (uint8_t)v);
}
static inline void kw_writer_i16(struct kw_writer *w, int16_t v)
{
    kw_writer_u16(w, (uint16_t)v);
}
static inline void kw_writer_i32(struct kw_writer *w, int32_t v)
{
    kw_writer_u32(w, (uint32_t)v);
}
static inline void kw_writer_i64(struct kw_writer *w, int64_t v)
{
    kw_writer_u64(w, (uint64_t)v);
}
void kw_writer_f64(struct kw_writer *w, double v);
void kw_writer_bool(struct kw_writer *w, bool v);
void kw_writer_uuid(struct kw_writer *w, const struct kc_uuid *v);
void kw_writer_uvarint(struct kw_writer *w, uint32_t v);
void kw_writer_uvarlong(struct kw_writer *w, uint64_t v);
void kw_writer_varint(struct kw_writer *w, int32_t v); /* zigzag */
void kw_writer_varlong(struct kw_writer *w, int64_t v); /* zigzag */

/* Length-prefixed values in the form of kw_cursor.h; a null pointer writes null. Whether null is
 * allowed is the caller's business. Strings longer than 32767 fail with KC_E_TOO_LARGE. */
void kw_writer_str(struct kw_writer *w, struct kc_str v, bool flexible);
void kw_writer_bytes(struct kw_writer *w, struct kc_bytes v, bool flexible);
/* Slices, linked one after the other, as one value of type bytes; n = 0 is empty, not null. */
void kw_writer_slices(struct kw_writer *w, const struct kc_slice *slices, int32_t n, bool flexible);
void kw_writer_array(struct kw_writer *w, int32_t n, bool flexible); /* -1 = null */

/* Puts the size of everything written since the own buffer had own_at bytes in front of it, as a
 * uvarint: a tagged field's length is known only afterwards. Nothing may have been linked since. */
void kw_writer_insert_size(struct kw_writer *w, size_t own_at);

/* Reserves the int32 length of a frame; ..._end_frame fills it. A writer may hold many frames. */
struct kw_frame {
    size_t own; /* bytes of the own buffer, and */
    size_t linked; /* linked bytes, before the frame's content */
};
struct kw_frame kw_writer_begin_frame(struct kw_writer *w);
void kw_writer_end_frame(struct kw_writer *w, struct kw_frame frame);

/* The output piece by piece:
 *   struct kw_piece_iter it = {0};
 *   while (kw_writer_next(w, &it, &ptr, &len)) ...
 * Valid until the writer changes. Empty pieces are left out. */
struct kw_piece_iter {
    size_t own; /* bytes of the own buffer handed out */
    size_t link; /* links handed out */
};
bool kw_writer_next(const struct kw_writer *w, struct kw_piece_iter *it, const uint8_t **ret_ptr,
                    size_t *ret_len);

#endif
