/* ks_cursor.h - fields one after another, as the records and hints of the volume have them.
 *
 * A writer has its room counted beforehand. A reader never goes past its end: what is not there reads
 * as zeros, and `bad` says so once, at the end. */
#ifndef KS_CURSOR_H
#define KS_CURSOR_H

#include <string.h>

#include "base/kc_uuid.h"
#include "storage/ks_bytes.h"
#include "storage/ks_rec.h"

struct ks_out {
    uint8_t *p;
};
static inline void ks_out_u8(struct ks_out *o, uint8_t v)
{
    *o->p++ = v;
}
static inline void ks_out_u16(struct ks_out *o, uint16_t v)
{
    ks_put16(o->p, v);
    o->p += 2;
}
static inline void ks_out_u32(struct ks_out *o, uint32_t v)
{
    ks_put32(o->p, v);
    o->p += 4;
}
static inline void ks_out_u64(struct ks_out *o, uint64_t v)
{
    ks_put64(o->p, v);
    o->p += 8;
}
static inline void ks_out_bytes(struct ks_out *o, const void *v, size_t n)
{
    memcpy(o->p, v, n);
    o->p += n;
}
static inline void ks_out_uuid(struct ks_out *o, const struct kc_uuid *u)
{
    ks_out_bytes(o, u->b, sizeof(u->b));
}
static inline void ks_out_file(struct ks_out *o, struct ks_file_id f)
{
    ks_out_u32(o, f.inc8);
    ks_out_u32(o, f.seq);
}

enum { KS_IN_MOST = 64 }; /* bytes of one ks_in_take */

struct ks_in {
    const uint8_t *p, *end;
    bool bad;
};
/* The next n bytes, which are there as long as the input is. */
static inline const uint8_t *ks_in_take(struct ks_in *i, size_t n)
{
    static const uint8_t zeros[KS_IN_MOST];
    KC_ASSERT(n <= KS_IN_MOST);
    if (i->bad || (size_t)(i->end - i->p) < n) {
        i->bad = true;
        return zeros;
    }
    i->p += n;
    return i->p - n;
}
static inline uint8_t ks_in_u8(struct ks_in *i)
{
    return *ks_in_take(i, 1);
}
static inline uint16_t ks_in_u16(struct ks_in *i)
{
    return ks_get16(ks_in_take(i, 2));
}
static inline uint32_t ks_in_u32(struct ks_in *i)
{
    return ks_get32(ks_in_take(i, 4));
}
static inline uint64_t ks_in_u64(struct ks_in *i)
{
    return ks_get64(ks_in_take(i, 8));
}
static inline void ks_in_uuid(struct ks_in *i, struct kc_uuid *ret)
{
    memcpy(ret->b, ks_in_take(i, sizeof(ret->b)), sizeof(ret->b));
}
static inline struct ks_file_id ks_in_file(struct ks_in *i)
{
    uint32_t inc8 = ks_in_u32(i);
    return (struct ks_file_id){.inc8 = inc8, .seq = ks_in_u32(i)};
}

#endif
