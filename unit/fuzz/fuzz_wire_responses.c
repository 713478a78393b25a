/* Every response decoder: no input may crash it or take memory out of proportion. */
#include "fuzz_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_pick pick;
    struct kw_cursor c;
    kw_cursor_init(&c, data, size);
    if (!fuzz_pick(&c, &pick)) {
        return 0;
    }
    size_t n;
    const struct kw_api *const *apis = kw_api_all(&n);
    const struct kw_message *m = apis[pick.which % n]->response;
    struct kc_arena arena;
    kc_arena_init(&arena, 4096, FUZZ_ARENA_CAP);
    void *out = kc_arena_alloc(&arena, m->root->size);
    if (out) {
        int rc = kw_decode(m, &c, fuzz_version(m, pick), &arena, out);
        KC_ASSERT(rc <= 0);
    }
    kc_arena_fini(&arena);
    return 0;
}
