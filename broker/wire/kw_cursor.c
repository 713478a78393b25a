#include "wire/kw_cursor.h"

struct kc_uuid kw_cursor_uuid(struct kw_cursor *c)
{
    struct kc_uuid value = {{0}};
    const uint8_t *b = kw_cursor_raw(c, sizeof(value.b));
    if (b) {
        memcpy(value.b, b, sizeof(value.b));
    }
    return value;
}

/* Base-128, low group first; a number of `bits` bits may not use more. */
static uint64_t read_uvar(struct kw_cursor *c, unsigned bits)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < bits; shift += 7) {
        uint8_t b = kw_cursor_u8(c);
        if (c->error) {
            return 0;
        }
        unsigned room = bits - shift;
        if (room < 7 && (b & 0x7f) >> room) {
            break;
        }
        value |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            return value;
        }
    }
    kw_cursor_fail(c, KC_E_MALFORMED);
    return 0;
}

uint32_t kw_cursor_uvarint(struct kw_cursor *c)
{
    return (uint32_t)read_uvar(c, 32);
}

uint64_t kw_cursor_uvarlong(struct kw_cursor *c)
{
    return read_uvar(c, 64);
}

int32_t kw_cursor_varint(struct kw_cursor *c)
{
    uint32_t z = kw_cursor_uvarint(c);
    return (int32_t)(z >> 1 ^ -(z & 1));
}

int64_t kw_cursor_varlong(struct kw_cursor *c)
{
    uint64_t z = kw_cursor_uvarlong(c);
    return (int64_t)(z >> 1 ^ -(z & 1));
}

/* Length of a nullable thing, -1 for null; any negative fixed-width length means null, as in
 * Kafka. On an error the answer is -1, too. */
static int64_t read_len(struct kw_cursor *c, bool flexible, bool is_short, bool nullable)
{
    int64_t len;
    if (flexible) {
        len = (int64_t)kw_cursor_uvarint(c) - 1;
    } else {
        len = is_short ? kw_cursor_i16(c) : kw_cursor_i32(c);
    }
    if (c->error) {
        return -1;
    }
    if (len < 0) {
        if (!nullable) {
            kw_cursor_fail(c, KC_E_MALFORMED);
        }
        return -1;
    }
    if (len > (is_short ? INT16_MAX : INT32_MAX)) {
        kw_cursor_fail(c, KC_E_MALFORMED);
        return -1;
    }
    return len;
}

struct kc_str kw_cursor_str(struct kw_cursor *c, bool flexible, bool nullable)
{
    int64_t len = read_len(c, flexible, true, nullable);
    const uint8_t *p = len < 0 ? NULL : kw_cursor_raw(c, (size_t)len);
    return p ? (struct kc_str){(const char *)p, (int32_t)len} : KC_STR_NULL;
}

struct kc_bytes kw_cursor_bytes(struct kw_cursor *c, bool flexible, bool nullable)
{
    int64_t len = read_len(c, flexible, false, nullable);
    const uint8_t *p = len < 0 ? NULL : kw_cursor_raw(c, (size_t)len);
    return p ? (struct kc_bytes){p, (int32_t)len} : KC_BYTES_NULL;
}

int32_t kw_cursor_array(struct kw_cursor *c, bool flexible, bool nullable)
{
    return (int32_t)read_len(c, flexible, false, nullable);
}

void kw_cursor_skip_tags(struct kw_cursor *c)
{
    uint32_t n = kw_cursor_uvarint(c);
    for (uint32_t i = 0; i < n && !c->error; i++) { /* ends with the bytes: two or more a tag */
        kw_cursor_uvarint(c);
        uint32_t size = kw_cursor_uvarint(c);
        kw_cursor_raw(c, size);
    }
}
