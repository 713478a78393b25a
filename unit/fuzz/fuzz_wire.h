/* fuzz_wire.h - shared by the codec's fuzz targets: the first four bytes of an input pick a message
 * and a version, the rest is the message. */
#ifndef FUZZ_WIRE_H
#define FUZZ_WIRE_H

#include "wire/kw_api.h"

enum {
    FUZZ_PICK_LEN = 4,
    FUZZ_ARENA_CAP = 64 << 20, /* what one message may take, as in the broker */
};

struct fuzz_pick {
    uint16_t which;
    uint16_t version;
};

/* Takes the pick off the cursor; false when the input is too short. */
static inline bool fuzz_pick(struct kw_cursor *c, struct fuzz_pick *ret)
{
    ret->which = kw_cursor_u16(c);
    ret->version = kw_cursor_u16(c);
    return !c->error;
}

static inline int16_t fuzz_version(const struct kw_message *m, struct fuzz_pick pick)
{
    int n = m->versions.max - m->versions.min + 1;
    return (int16_t)(m->versions.min + pick.version % n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
