/* Whatever decodes must encode, and the result must decode and encode to the same bytes. */
#include "fuzz_wire.h"

/* Requests, responses and records, by a running number. */
static const struct kw_message *message(uint16_t which)
{
    size_t n_apis, n_records;
    const struct kw_api *const *apis = kw_api_all(&n_apis);
    const struct kw_message *const *records = kw_records_all(&n_records);
    size_t i = which % (2 * n_apis + n_records);
    if (i < 2 * n_apis) {
        return i % 2 ? apis[i / 2]->response : apis[i / 2]->request;
    }
    return records[i - 2 * n_apis];
}

/* Decodes and encodes again into w; false when the input does not decode. */
static bool recode(const struct kw_message *m, int16_t version, struct kw_cursor *c,
                   struct kw_writer *w)
{
    struct kc_arena arena;
    kc_arena_init(&arena, 4096, FUZZ_ARENA_CAP);
    void *out = kc_arena_alloc(&arena, m->root->size);
    bool ok = out && kw_decode(m, c, version, &arena, out) == 0;
    if (ok) {
        kw_encode(m, w, version, out);
        KC_ASSERT(!w->error);
    }
    kc_arena_fini(&arena);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_pick pick;
    struct kw_cursor c;
    kw_cursor_init(&c, data, size);
    if (!fuzz_pick(&c, &pick)) {
        return 0;
    }
    const struct kw_message *m = message(pick.which);
    int16_t version = fuzz_version(m, pick);
    struct kw_writer first, second;
    kw_writer_init(&first, 64 << 20);
    kw_writer_init(&second, 64 << 20);
    if (recode(m, version, &c, &first)) {
        kw_cursor_init(&c, first.own.data, first.own.len);
        bool again = recode(m, version, &c, &second);
        KC_ASSERT(again);
        KC_ASSERT(kw_cursor_left(&c) == 0);
        KC_ASSERT(first.own.len == second.own.len);
        KC_ASSERT(first.own.len == 0 ||
                  memcmp(first.own.data, second.own.data, first.own.len) == 0);
    }
    kw_writer_fini(&first);
    kw_writer_fini(&second);
    return 0;
}
