#include "wire_help.h"

#include <stdio.h>
#include <string.h>

#include "base/kc_mem.h"

uint8_t *wire_flat(const struct kw_writer *w, size_t *ret_len)
{
    uint8_t *out = kc_alloc(kw_writer_len(w) + 1);
    size_t at = 0;
    struct kw_piece_iter it = {0};
    const uint8_t *p;
    size_t len;
    while (kw_writer_next(w, &it, &p, &len)) {
        memcpy(out + at, p, len);
        at += len;
    }
    KC_ASSERT(at == kw_writer_len(w));
    *ret_len = at;
    return out;
}

char *wire_hex(const struct kw_writer *w)
{
    size_t len;
    uint8_t *flat = wire_flat(w, &len);
    char *hex = kc_alloc(2 * len + 1);
    hex[0] = '\0';
    for (size_t i = 0; i < len; i++) {
        snprintf(hex + 2 * i, 3, "%02x", flat[i]);
    }
    kc_free(flat);
    return hex;
}

size_t wire_unhex(const char *hex, uint8_t *out, size_t room)
{
    size_t n = 0;
    unsigned byte;
    for (; n < room && sscanf(hex + 2 * n, "%2x", &byte) == 1; n++) {
        out[n] = (uint8_t)byte;
    }
    return n;
}

static void each_version(const struct kw_message *m,
                         void (*fn)(const struct kw_message *, int16_t, void *), void *ctx)
{
    for (int16_t v = m->versions.min; v <= m->versions.max; v++) {
        fn(m, v, ctx);
    }
}

void wire_each(void (*fn)(const struct kw_message *m, int16_t version, void *ctx), void *ctx)
{
    size_t n;
    const struct kw_api *const *apis = kw_api_all(&n);
    for (size_t i = 0; i < n; i++) {
        each_version(apis[i]->request, fn, ctx);
        each_version(apis[i]->response, fn, ctx);
    }
    const struct kw_message *const *records = kw_records_all(&n);
    for (size_t i = 0; i < n; i++) {
        each_version(records[i], fn, ctx);
    }
}
