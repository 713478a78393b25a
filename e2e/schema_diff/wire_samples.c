/* Prints random messages of every API and version as `request|response KEY VERSION HEX`, one a line,
 * for a peer that decodes and encodes them with Kafka's own classes.
 *
 *   wire_samples SEED COUNT */
#include <stdio.h>
#include <stdlib.h>

#include "base/kc_mem.h"
#include "wire_help.h"

static void print_sample(const struct kw_api *api, const struct kw_message *m, int16_t version,
                         struct kc_rng *rng)
{
    struct kc_arena arena;
    kc_arena_init(&arena, 65536, 0);
    void *in = kc_arena_zalloc(&arena, 1, m->root->size);
    KC_ASSERT(in);
    wire_fill(m, version, rng, &arena, in);
    struct kw_writer w;
    kw_writer_init(&w, 16 << 20);
    kw_encode(m, &w, version, in);
    KC_ASSERT(!w.error);
    char *hex = wire_hex(&w);
    printf("%s %d %d %s\n", m == api->request ? "request" : "response", api->key, version, hex);
    kc_free(hex);
    kw_writer_fini(&w);
    kc_arena_fini(&arena);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: wire_samples SEED COUNT\n");
        return 2;
    }
    struct kc_rng rng;
    kc_rng_seed(&rng, strtoull(argv[1], NULL, 10));
    int count = (int)strtol(argv[2], NULL, 10);
    size_t n;
    const struct kw_api *const *apis = kw_api_all(&n);
    for (size_t i = 0; i < n; i++) {
        for (int16_t v = apis[i]->min; v <= apis[i]->max; v++) {
            for (int k = 0; k < count; k++) {
                print_sample(apis[i], apis[i]->request, v, &rng);
                print_sample(apis[i], apis[i]->response, v, &rng);
            }
        }
    }
    return 0;
}
