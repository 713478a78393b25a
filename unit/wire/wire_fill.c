#include <string.h>

#include "wire_help.h"

struct fill {
    struct kc_rng *rng;
    struct kc_arena *arena;
    int16_t version;
};

static void fill_struct(struct fill *f, const struct kw_struct *s, uint8_t *out);

static uint64_t below(struct fill *f, uint64_t bound)
{
    return kc_rng_below(f->rng, bound);
}

static void *need(void *p)
{
    KC_ASSERT(p);
    return p;
}

static uint8_t *random_bytes(struct fill *f, int32_t *ret_len)
{
    int32_t len = (int32_t)below(f, below(f, 8) == 0 ? 300 : 12);
    uint8_t *p = need(kc_arena_alloc(f->arena, (size_t)len + 1));
    for (int32_t i = 0; i < len; i++) {
        p[i] = (uint8_t)below(f, 256);
    }
    *ret_len = len;
    return p;
}

/* Letters only: peers that decode UTF-8 must give back the same bytes. */
static struct kc_str random_str(struct fill *f)
{
    int32_t len;
    uint8_t *p = random_bytes(f, &len);
    for (int32_t i = 0; i < len; i++) {
        p[i] = (uint8_t)('a' + p[i] % 26);
    }
    return (struct kc_str){(const char *)p, len};
}

static void fill_value(struct fill *f, const struct kw_field *field, uint8_t *at)
{
    /* Small numbers as often as large ones, in any width. */
    uint64_t number = kc_rng_next(f->rng) >> below(f, 64);
    if (below(f, 2)) {
        number = ~number;
    }
    switch (field->type) {
    case KW_BOOL:
        *(bool *)at = number & 1;
        break;
    case KW_STRING:
        *(struct kc_str *)(void *)at = random_str(f);
        break;
    case KW_BYTES:
    case KW_RECORDS: {
        struct kc_bytes *b = (struct kc_bytes *)(void *)at;
        b->ptr = random_bytes(f, &b->len);
        break;
    }
    case KW_STRUCT:
        fill_struct(f, field->sub, at);
        break;
    case KW_UUID:
        memcpy(at, &number, sizeof(number));
        memcpy(at + 8, &number, sizeof(number));
        break;
    case KW_FLOAT64:
        *(double *)(void *)at = (double)(int64_t)number / 8;
        break;
    default: /* integers of any width, little endian */
        memcpy(at, &number, kw_field_size(field));
    }
}

static void fill_slices(struct fill *f, const struct kw_field *field, uint8_t *out)
{
    int32_t n = (int32_t)below(f, 3) + 1;
    struct kc_slice *slices = need(kc_arena_zalloc(f->arena, (size_t)n, sizeof(*slices)));
    for (int32_t i = 0; i < n; i++) {
        int32_t len;
        slices[i].ptr = random_bytes(f, &len);
        slices[i].len = (size_t)len;
    }
    *(struct kc_slice **)(void *)(out + field->slices_offset) = slices;
    *(int32_t *)(void *)(out + field->n_offset) = n;
}

static void fill_field(struct fill *f, const struct kw_field *field, uint8_t *out)
{
    uint8_t *at = out + field->offset;
    bool null = kw_range_has(field->nullable, f->version) && below(f, 4) == 0;
    if (field->array) {
        int32_t n = null ? -1 : (int32_t)below(f, 4);
        size_t size = kw_field_size(field);
        uint8_t *items = n > 0 ? need(kc_arena_zalloc(f->arena, (size_t)n, size)) : NULL;
        for (int32_t i = 0; i < n; i++) {
            fill_value(f, field, items + (size_t)i * size);
        }
        *(void **)(void *)at = items;
        *(int32_t *)(void *)(out + field->n_offset) = n;
    } else if (field->pointer) {
        *(void **)(void *)at = NULL;
        if (!null) {
            uint8_t *value = need(kc_arena_zalloc(f->arena, 1, field->sub->size));
            fill_struct(f, field->sub, value);
            *(void **)(void *)at = value;
        }
    } else if (null) {
        memset(at, 0, kw_field_size(field));
    } else if (field->type == KW_RECORDS && below(f, 2)) {
        fill_slices(f, field, out);
    } else {
        fill_value(f, field, at);
    }
}

static void fill_struct(struct fill *f, const struct kw_struct *s, uint8_t *out)
{
    kw_struct_init(s, out);
    for (uint16_t i = 0; i < s->n_fields; i++) {
        if (kw_range_has(s->fields[i].versions, f->version) &&
            (s->fields[i].tag < 0 || below(f, 2))) {
            fill_field(f, &s->fields[i], out);
        }
    }
}

void wire_fill(const struct kw_message *m, int16_t version, struct kc_rng *rng, struct kc_arena *a,
               void *out)
{
    struct fill f = {.rng = rng, .arena = a, .version = version};
    fill_struct(&f, m->root, out);
}
