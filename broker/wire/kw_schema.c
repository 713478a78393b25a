/* Defaults of described structs: setting and recognising them. */
#include "wire/kw_schema.h"

#include <string.h>

static const uint8_t type_size[] = {
    [KW_BOOL] = sizeof(bool),
    [KW_INT8] = 1,
    [KW_INT16] = 2,
    [KW_UINT16] = 2,
    [KW_INT32] = 4,
    [KW_UINT32] = 4,
    [KW_INT64] = 8,
    [KW_FLOAT64] = 8,
    [KW_UUID] = sizeof(struct kc_uuid),
    [KW_STRING] = sizeof(struct kc_str),
    [KW_BYTES] = sizeof(struct kc_bytes),
    [KW_RECORDS] = sizeof(struct kc_bytes),
};

size_t kw_field_size(const struct kw_field *f)
{
    return f->type == KW_STRUCT ? f->sub->size : type_size[f->type];
}

static void set_default(const struct kw_field *f, uint8_t *at)
{
    switch (f->type) {
    case KW_BOOL:
        *(bool *)at = f->dflt != 0;
        break;
    case KW_INT8:
        *(int8_t *)at = (int8_t)f->dflt;
        break;
    case KW_INT16:
    case KW_UINT16:
        *(uint16_t *)(void *)at = (uint16_t)f->dflt;
        break;
    case KW_INT32:
    case KW_UINT32:
        *(uint32_t *)(void *)at = (uint32_t)f->dflt;
        break;
    case KW_INT64:
        *(int64_t *)(void *)at = f->dflt;
        break;
    case KW_STRING:
        *(struct kc_str *)(void *)at = f->null_dflt ? KC_STR_NULL : KC_STR_LIT("");
        break;
    case KW_BYTES:
    case KW_RECORDS:
        *(struct kc_bytes *)(void *)at =
            f->null_dflt ? KC_BYTES_NULL : (struct kc_bytes){(const uint8_t *)"", 0};
        break;
    case KW_STRUCT:
        kw_struct_init(f->sub, at); /* as deep as the schema, which has no cycles */
        break;
    default: /* KW_FLOAT64, KW_UUID: zero */
        memset(at, 0, kw_field_size(f));
    }
}

void kw_field_init(const struct kw_field *f, void *out)
{
    uint8_t *base = out;
    uint8_t *at = base + f->offset;
    if (f->array) {
        *(void **)(void *)at = NULL;
        *(int32_t *)(void *)(base + f->n_offset) = f->null_dflt ? -1 : 0;
        return;
    }
    if (f->pointer) {
        *(void **)(void *)at = NULL;
        return;
    }
    set_default(f, at);
    if (f->type == KW_RECORDS) {
        *(void **)(void *)(base + f->slices_offset) = NULL;
        *(int32_t *)(void *)(base + f->n_offset) = 0;
    }
}

void kw_struct_init(const struct kw_struct *s, void *out)
{
    for (uint16_t i = 0; i < s->n_fields; i++) {
        kw_field_init(&s->fields[i], out);
    }
}

void *kw_struct_new(const struct kw_struct *s, struct kc_arena *a, int32_t n)
{
    KC_ASSERT(n >= 0);
    uint8_t *p = kc_arena_zalloc(a, (size_t)n, s->size);
    for (int32_t i = 0; p && i < n; i++) {
        kw_struct_init(s, p + (size_t)i * s->size);
    }
    return p;
}

static bool struct_is_default(const struct kw_struct *s, const uint8_t *in)
{
    for (uint16_t i = 0; i < s->n_fields; i++) {
        if (!kw_field_is_default(&s->fields[i], in)) {
            return false;
        }
    }
    return true;
}

bool kw_field_is_default(const struct kw_field *f, const void *in)
{
    const uint8_t *base = in;
    const uint8_t *at = base + f->offset;
    if (f->array) {
        int32_t n = *(const int32_t *)(const void *)(base + f->n_offset);
        return f->null_dflt ? n < 0 : n == 0;
    }
    if (f->pointer) {
        return !*(void *const *)(const void *)at;
    }
    switch (f->type) {
    case KW_BOOL:
        return *(const bool *)at == (f->dflt != 0);
    case KW_INT8:
        return *(const int8_t *)at == (int8_t)f->dflt;
    case KW_INT16:
    case KW_UINT16:
        return *(const uint16_t *)(const void *)at == (uint16_t)f->dflt;
    case KW_INT32:
    case KW_UINT32:
        return *(const uint32_t *)(const void *)at == (uint32_t)f->dflt;
    case KW_INT64:
        return *(const int64_t *)(const void *)at == f->dflt;
    case KW_FLOAT64:
        return *(const uint64_t *)(const void *)at == 0;
    case KW_UUID:
        return kc_uuid_is_zero((const struct kc_uuid *)at);
    case KW_STRING: {
        const struct kc_str *s = (const struct kc_str *)(const void *)at;
        return f->null_dflt ? !s->ptr : s->ptr && s->len == 0;
    }
    case KW_STRUCT:
        return struct_is_default(f->sub, at); /* as deep as the schema */
    default: { /* KW_BYTES, KW_RECORDS */
        const struct kc_bytes *b = (const struct kc_bytes *)(const void *)at;
        if (f->type == KW_RECORDS && *(void *const *)(const void *)(base + f->slices_offset)) {
            return false;
        }
        return f->null_dflt ? !b->ptr : b->ptr && b->len == 0;
    }
    }
}
