/* Record batches one after the other, their records and headers; what could be read is built again
 * and must read the same. */
#include "wire/kw_batch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_HEADERS = 8 };

static bool same(struct kc_bytes a, struct kc_bytes b)
{
    return !a.ptr == !b.ptr && a.len == b.len &&
           (a.len == 0 || memcmp(a.ptr, b.ptr, (size_t)a.len) == 0);
}

/* The records of `built` are those of `b`, in order. */
static void check_built(const struct kw_batch *b, struct kc_bytes built)
{
    struct kw_batch v;
    int rc = kw_batch_view(built.ptr, (size_t)built.len, &v);
    KC_ASSERT(rc == 0 && kw_batch_crc_ok(&v) && v.count == b->count);
    struct kw_record_iter want, got;
    rc = kw_record_iter_init(&want, b);
    KC_ASSERT(rc == 0);
    rc = kw_record_iter_init(&got, &v);
    KC_ASSERT(rc == 0);
    struct kw_record x, y;
    while (kw_record_next(&want, &x) == 1) {
        rc = kw_record_next(&got, &y);
        KC_ASSERT(rc == 1 && same(x.key, y.key) && same(x.value, y.value));
        KC_ASSERT(x.timestamp_ms == y.timestamp_ms && x.n_headers == y.n_headers);
    }
    rc = kw_record_next(&got, &y);
    KC_ASSERT(rc == 0);
}

/* Adds every record of b to the builder; false when b does not read to its end. */
static bool rebuild(const struct kw_batch *b, struct kw_batch_builder *out)
{
    struct kw_record_iter it;
    struct kw_record r;
    int rc = kw_record_iter_init(&it, b);
    if (rc) {
        return false;
    }
    while ((rc = kw_record_next(&it, &r)) == 1) {
        struct kw_record_header headers[MAX_HEADERS];
        int32_t n = 0;
        struct kw_record walk = r;
        struct kw_record_header h;
        while (kw_record_header_next(&walk, &h)) {
            KC_ASSERT(h.key.ptr && h.key.len >= 0);
            headers[KC_MIN(n, MAX_HEADERS - 1)] = h;
            n++;
        }
        KC_ASSERT(n == r.n_headers);
        if (n > MAX_HEADERS) {
            return false;
        }
        kw_batch_builder_add(out, r.timestamp_ms, r.key, r.value, headers, n);
    }
    return rc == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kw_batch b;
    while (size && kw_batch_view(data, size, &b) == 0) {
        (void)kw_batch_crc_ok(&b);
        struct kw_batch_builder builder;
        struct kw_batch_args args = KW_BATCH_ARGS_PLAIN;
        struct kc_bytes built;
        kw_batch_builder_init(&builder, &args, 1 << 20);
        if (rebuild(&b, &builder) && b.count > 0) {
            int rc = kw_batch_builder_end(&builder, &built);
            KC_ASSERT(rc == 0);
            check_built(&b, built);
        }
        kw_batch_builder_fini(&builder);
        data += b.size;
        size -= b.size;
    }
    return 0;
}
