/* kw_cursor.h - reads Kafka's primitive types from a borrowed range of bytes.
 *
 * Any thread, one owner. The first error is sticky: later reads return zero values and consume
 * nothing, so that a decoder checks once, at the end. Nothing read here is trusted: a length is
 * compared with what is left before anything is done with it. */
#ifndef KW_CURSOR_H
#define KW_CURSOR_H

#include <string.h>

#include "base/kc_base.h"
#include "base/kc_error.h"
#include "base/kc_uuid.h"

struct kw_cursor {
    const uint8_t *p;
    const uint8_t *end;
    int error; /* 0, KC_E_TRUNCATED, KC_E_MALFORMED, KC_E_UNSUPPORTED or -ENOMEM */
};

/* data may be NULL when len is 0. */
static inline void kw_cursor_init(struct kw_cursor *c, const void *data, size_t len)
{
    c->p = data;
    c->end = len ? c->p + len : c->p;
    c->error = 0;
}

/* Unread bytes; 0 after an error. Whether trailing bytes are allowed is the caller's business. */
static inline size_t kw_cursor_left(const struct kw_cursor *c)
{
    return (size_t)(c->end - c->p);
}

/* Records the first error and empties the cursor. */
static inline void kw_cursor_fail(struct kw_cursor *c, int error)
{
    if (!c->error) {
        c->error = error;
    }
    c->p = c->end;
}

/* The next n bytes, borrowed; NULL (and KC_E_TRUNCATED) when fewer are left. */
static inline const uint8_t *kw_cursor_raw(struct kw_cursor *c, size_t n)
{
    if (c->error || n > kw_cursor_left(c)) {
        kw_cursor_fail(c, KC_E_TRUNCATED);
        return NULL;
    }
    const uint8_t *at = c->p;
    c->p += n;
    return at;
}

static inline uint8_t kw_cursor_u8(struct kw_cursor *c)
{
    const uint8_t *b = kw_cursor_raw(c, 1);
    return b ? b[0] : 0;
}

static inline uint16_t kw_cursor_u16(struct kw_cursor *c)
{
    const uint8_t *b = kw_cursor_raw(c, 2);
    return b ? (uint16_t)(b[0] << 8 | b[1]) : 0;
}

static inline uint32_t kw_cursor_u32(struct kw_cursor *c)
{
    const uint8_t *b = kw_cursor_raw(c, 4);
    return b ? (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3] : 0;
}

static inline uint64_t kw_cursor_u64(struct kw_cursor *c)
{
    uint64_t high = kw_cursor_u32(c);
    uint64_t low = kw_cursor_u32(c);
    return c->error ? 0 : high << 32 | low;
}

static inline int8_t kw_cursor_i8(struct kw_cursor *c)
{
    return (int8_t)kw_cursor_u8(c);
}

static inline int16_t kw_cursor_i16(struct kw_cursor *c)
{
    return (int16_t)kw_cursor_u16(c);
}

static inline int32_t kw_cursor_i32(struct kw_cursor *c)
{
    return (int32_t)kw_cursor_u32(c);
}

static inline int64_t kw_cursor_i64(struct kw_cursor *c)
{
    return (int64_t)kw_cursor_u64(c);
}

static inline double kw_cursor_f64(struct kw_cursor *c)
{
    uint64_t bits = kw_cursor_u64(c);
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Any byte but 0 is true, as in Kafka. */
static inline bool kw_cursor_bool(struct kw_cursor *c)
{
    return kw_cursor_u8(c) != 0;
}

struct kc_uuid kw_cursor_uuid(struct kw_cursor *c);

/* Varints of at most 5 (10) bytes; longer ones, and bits beyond 32 (64), are KC_E_MALFORMED. */
uint32_t kw_cursor_uvarint(struct kw_cursor *c);
uint64_t kw_cursor_uvarlong(struct kw_cursor *c);
/* Zigzag. */
int32_t kw_cursor_varint(struct kw_cursor *c);
int64_t kw_cursor_varlong(struct kw_cursor *c);

/* Length-prefixed values, borrowed: compact (length + 1 as uvarint) in flexible versions, else
 * int16 for strings and int32 for bytes. Null gives the null view; where `nullable` is false it is
 * KC_E_MALFORMED. Strings longer than 32767 are refused in both forms, as in Kafka. */
struct kc_str kw_cursor_str(struct kw_cursor *c, bool flexible, bool nullable);
struct kc_bytes kw_cursor_bytes(struct kw_cursor *c, bool flexible, bool nullable);
/* The count of an array; -1 for null. Not yet compared with what is left. */
int32_t kw_cursor_array(struct kw_cursor *c, bool flexible, bool nullable);

/* Skips a whole section of tagged fields (KIP-482): count, then tag, size and bytes of each. */
void kw_cursor_skip_tags(struct kw_cursor *c);

#endif
