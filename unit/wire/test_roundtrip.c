/* Every message of the codec at every version: random values survive encode and decode, cut inputs
 * are refused, and no allocation failure hurts. */
#include <errno.h>
#include <string.h>

#include "base/kc_mem.h"
#include "kt.h"
#include "wire_help.h"

struct state {
    struct kc_rng rng;
    struct kc_arena arena;
    struct kc_arena back_arena;
    struct kw_writer w;
    int checked;
};

static void setup(struct state *s)
{
    kc_rng_seed(&s->rng, kt_seed());
    kc_arena_init(&s->arena, 65536, 0);
    kc_arena_init(&s->back_arena, 65536, 0);
    kw_writer_init(&s->w, 16 << 20);
    s->checked = 0;
}

static void teardown(struct state *s)
{
    kw_writer_fini(&s->w);
    kc_arena_fini(&s->back_arena);
    kc_arena_fini(&s->arena);
}

static void reset(struct state *s)
{
    kc_arena_reset(&s->arena);
    kc_arena_reset(&s->back_arena);
    kw_writer_reset(&s->w);
}

/* A random message in s->arena, encoded into s->w and flat bytes (kc_free). */
static void *make(struct state *s, const struct kw_message *m, int16_t version, uint8_t **ret_flat,
                  size_t *ret_len)
{
    reset(s);
    void *in = kc_arena_zalloc(&s->arena, 1, m->root->size);
    KT_REQUIRE(in);
    wire_fill(m, version, &s->rng, &s->arena, in);
    kw_encode(m, &s->w, version, in);
    if (s->w.error) {
        fprintf(stderr, "%s v%d: field %s: %s\n", m->name, version, s->w.error_field,
                kc_strerror(s->w.error));
    }
    KT_REQUIRE(!s->w.error);
    *ret_flat = wire_flat(&s->w, ret_len);
    return in;
}

static void check_equal(const struct kw_message *m, int16_t version, void *ctx)
{
    struct state *s = ctx;
    for (int i = 0; i < 25; i++) {
        uint8_t *flat;
        size_t len;
        void *in = make(s, m, version, &flat, &len);
        void *out = kc_arena_zalloc(&s->arena, 1, m->root->size);
        KT_REQUIRE(out);
        struct kw_cursor c;
        kw_cursor_init(&c, flat, len);
        int rc = kw_decode(m, &c, version, &s->back_arena, out);
        bool ok = rc == 0 && kw_cursor_left(&c) == 0 && wire_equal(m, in, out);
        if (!ok) {
            fprintf(stderr, "%s v%d: rc %d, %zu bytes left\n", m->name, version, rc,
                    kw_cursor_left(&c));
        }
        KT_TRUE(ok);
        kc_free(flat);
        s->checked++;
    }
}

static void random_messages_survive_encode_and_decode(void)
{
    struct state s;
    setup(&s);
    wire_each(check_equal, &s);
    KT_TRUE(s.checked > 25 * 400);
    teardown(&s);
}

static void check_cut(const struct kw_message *m, int16_t version, void *ctx)
{
    struct state *s = ctx;
    uint8_t *flat;
    size_t len;
    make(s, m, version, &flat, &len);
    void *out = kc_arena_zalloc(&s->arena, 1, m->root->size);
    KT_REQUIRE(out);
    size_t step = 1 + len / 64;
    for (size_t cut = 0; cut < len; cut += step) {
        uint8_t *part = kc_alloc(cut + 1); /* of its own, so that a sanitizer sees an overrun */
        memcpy(part, flat, cut);
        struct kw_cursor c;
        kw_cursor_init(&c, part, cut);
        kc_arena_reset(&s->back_arena);
        int rc = kw_decode(m, &c, version, &s->back_arena, out);
        KT_TRUE(rc == KC_E_TRUNCATED || rc == KC_E_MALFORMED);
        kc_free(part);
    }
    kc_free(flat);
}

static void cut_messages_are_refused(void)
{
    struct state s;
    setup(&s);
    wire_each(check_cut, &s);
    teardown(&s);
}

static void other_versions_are_refused(void)
{
    size_t n;
    const struct kw_api *const *apis = kw_api_all(&n);
    struct kc_arena a;
    kc_arena_init(&a, 4096, 0);
    for (size_t i = 0; i < n; i++) {
        void *out = kc_arena_zalloc(&a, 1, apis[i]->request_size);
        KT_REQUIRE(out);
        struct kw_cursor c;
        kw_cursor_init(&c, "", 0);
        KT_EQ(kw_api_decode_request(apis[i], &c, (int16_t)(apis[i]->max + 1), &a, out),
              KC_E_UNSUPPORTED);
        struct kw_writer w;
        kw_writer_init(&w, 1024);
        kw_api_init_request(apis[i], out);
        kw_api_encode_request(apis[i], &w, (int16_t)(apis[i]->min - 1), out);
        KT_EQ(w.error, KC_E_UNSUPPORTED);
        kw_writer_fini(&w);
    }
    kc_arena_fini(&a);
}

static void decode_survives_every_failing_allocation(void)
{
    struct state s;
    setup(&s);
    size_t n;
    const struct kw_api *const *apis = kw_api_all(&n);
    for (size_t i = 0; i < n; i++) {
        const struct kw_message *m = apis[i]->request;
        uint8_t *flat;
        size_t len;
        make(&s, m, m->versions.max, &flat, &len);
        void *out = kc_arena_zalloc(&s.arena, 1, m->root->size);
        KT_REQUIRE(out);
        int rc = -ENOMEM;
        for (uint64_t nth = 1; rc == -ENOMEM; nth++) {
            struct kc_arena small; /* one allocation an array */
            kc_arena_init(&small, 16, 0);
            struct kw_cursor c;
            kw_cursor_init(&c, flat, len);
            kc_mem_fail_nth(nth, false);
            rc = kw_decode(m, &c, m->versions.max, &small, out);
            kc_mem_fail_nth(0, false);
            kc_arena_fini(&small);
            KT_REQUIRE(nth < 10000);
        }
        KT_EQ(rc, 0);
        kc_free(flat);
    }
    teardown(&s);
}

static void encode_survives_every_failing_allocation(void)
{
    struct state s;
    setup(&s);
    const struct kw_message *m = kw_api_find(1)->response; /* Fetch: links slices */
    uint8_t *flat;
    size_t len;
    void *in = make(&s, m, m->versions.max, &flat, &len);
    int rc = -ENOMEM;
    for (uint64_t nth = 1; rc == -ENOMEM; nth++) {
        struct kw_writer w;
        kw_writer_init(&w, 1 << 20);
        kc_mem_fail_nth(nth, false);
        kw_encode(m, &w, m->versions.max, in);
        kc_mem_fail_nth(0, false);
        rc = w.error;
        kw_writer_fini(&w);
        KT_REQUIRE(nth < 10000);
    }
    KT_EQ(rc, 0);
    kc_free(flat);
    teardown(&s);
}

KT_MAIN("wire roundtrip", KT(random_messages_survive_encode_and_decode),
        KT(cut_messages_are_refused), KT(other_versions_are_refused),
        KT(decode_survives_every_failing_allocation), KT(encode_survives_every_failing_allocation))
