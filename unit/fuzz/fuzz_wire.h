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

/* Decodes an input as a request (or response) of the API that it picks: no input may crash the decoder
 * or take memory out of proportion. */
static inline void fuzz_decode(const uint8_t *data, size_t size, bool response)
{
    struct fuzz_pick pick;
    struct kw_cursor c;
    kw_cursor_init(&c, data, size);
    if (!fuzz_pick(&c, &pick)) {
        return;
    }
    size_t n;
    const struct kw_api *const *apis = kw_api_all(&n);
    const struct kw_api *api = apis[pick.which % n];
    const struct kw_message *m = response ? api->response : api->request;
    struct kc_arena arena;
    kc_arena_init(&arena, 4096, FUZZ_ARENA_CAP);
    void *out = kc_arena_alloc(&arena, m->root->size);
    if (out) {
        int rc = kw_decode(m, &c, fuzz_version(m, pick), &arena, out);
        KC_ASSERT(rc <= 0);
    }
    kc_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
