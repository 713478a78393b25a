/* The decoder: walks a description along the input. Recursion is as deep as the schema nests structs,
 * which the generator bounds; the input cannot deepen it. */
#include <errno.h>

#include "wire/kw_schema.h"

struct decode {
    struct kw_cursor *c;
    struct kc_arena *arena;
    int16_t version;
    bool flexible;
};

static void decode_struct(struct decode *d, const struct kw_struct *s, uint8_t *out);

/* One value that is neither an array nor a pointer. */
static void decode_value(struct decode *d, const struct kw_field *f, bool nullable, uint8_t *at)
{
    struct kw_cursor *c = d->c;
    switch (f->type) {
    case KW_BOOL:
        *(bool *)at = kw_cursor_bool(c);
        break;
    case KW_INT8:
        *at = kw_cursor_u8(c);
        break;
    case KW_INT16:
    case KW_UINT16:
        *(uint16_t *)(void *)at = kw_cursor_u16(c);
        break;
    case KW_INT32:
    case KW_UINT32:
        *(uint32_t *)(void *)at = kw_cursor_u32(c);
        break;
    case KW_INT64:
        *(uint64_t *)(void *)at = kw_cursor_u64(c);
        break;
    case KW_FLOAT64:
        *(double *)(void *)at = kw_cursor_f64(c);
        break;
    case KW_UUID:
        *(struct kc_uuid *)at = kw_cursor_uuid(c);
        break;
    case KW_STRING:
        *(struct kc_str *)(void *)at = kw_cursor_str(c, d->flexible, nullable);
        break;
    case KW_BYTES:
    case KW_RECORDS:
        *(struct kc_bytes *)(void *)at = kw_cursor_bytes(c, d->flexible, nullable);
        break;
    default:
        decode_struct(d, f->sub, at);
    }
}

/* Least bytes of one element on the wire, for the bound on an array's count. */
static size_t min_wire(const struct decode *d, const struct kw_field *f)
{
    switch (f->type) {
    case KW_STRING:
        return d->flexible ? 1 : 2;
    case KW_BYTES:
    case KW_RECORDS:
        return d->flexible ? 1 : 4;
    case KW_STRUCT:
        return f->sub->min_wire;
    case KW_BOOL:
        return 1;
    default:
        return kw_field_size(f);
    }
}

static void decode_array(struct decode *d, const struct kw_field *f, bool nullable, uint8_t *out)
{
    void **ret = (void **)(void *)(out + f->offset);
    int32_t *ret_n = (int32_t *)(void *)(out + f->n_offset);
    int32_t n = kw_cursor_array(d->c, d->flexible, nullable);
    *ret = NULL;
    *ret_n = n;
    if (n <= 0) {
        return;
    }
    if ((size_t)n > kw_cursor_left(d->c) / min_wire(d, f)) {
        kw_cursor_fail(d->c, KC_E_TRUNCATED);
        return;
    }
    size_t size = kw_field_size(f);
    uint8_t *items = kc_arena_zalloc(d->arena, (size_t)n, size);
    if (!items) {
        kw_cursor_fail(d->c, -ENOMEM);
        return;
    }
    *ret = items;
    for (int32_t i = 0; i < n && !d->c->error; i++) {
        decode_value(d, f, false, items + (size_t)i * size);
    }
}

/* A nullable struct: int8 -1 for null, else 1 and the struct (KIP-893). */
static void decode_pointer(struct decode *d, const struct kw_field *f, bool nullable, uint8_t *out)
{
    void **ret = (void **)(void *)(out + f->offset);
    *ret = NULL;
    if (nullable && kw_cursor_i8(d->c) < 0) {
        return;
    }
    if (d->c->error) {
        return;
    }
    uint8_t *value = kc_arena_zalloc(d->arena, 1, f->sub->size);
    if (!value) {
        kw_cursor_fail(d->c, -ENOMEM);
        return;
    }
    *ret = value;
    decode_struct(d, f->sub, value);
}

static void decode_field(struct decode *d, const struct kw_field *f, uint8_t *out)
{
    bool nullable = kw_range_has(f->nullable, d->version);
    if (f->array) {
        decode_array(d, f, nullable, out);
    } else if (f->pointer) {
        decode_pointer(d, f, nullable, out);
    } else {
        decode_value(d, f, nullable, out + f->offset);
    }
}

static const struct kw_field *find_tag(const struct decode *d, const struct kw_struct *s,
                                       uint32_t tag)
{
    for (int i = s->n_fields - s->n_tagged; i < s->n_fields; i++) {
        const struct kw_field *f = &s->fields[i];
        if ((uint32_t)f->tag == tag) {
            return kw_range_has(f->versions, d->version) ? f : NULL;
        }
    }
    return NULL;
}

/* KIP-482: unknown tags are skipped by their size; a known one must fill its size exactly. */
static void decode_tags(struct decode *d, const struct kw_struct *s, uint8_t *out)
{
    struct kw_cursor *c = d->c;
    uint32_t n = kw_cursor_uvarint(c);
    for (uint32_t i = 0; i < n && !c->error; i++) {
        uint32_t tag = kw_cursor_uvarint(c);
        uint32_t size = kw_cursor_uvarint(c);
        const uint8_t *value = kw_cursor_raw(c, size);
        const struct kw_field *f = value ? find_tag(d, s, tag) : NULL;
        if (!f) {
            continue;
        }
        struct kw_cursor sub;
        kw_cursor_init(&sub, value, size);
        d->c = &sub;
        decode_field(d, f, out);
        d->c = c;
        if (sub.error || kw_cursor_left(&sub)) {
            kw_cursor_fail(c, sub.error ? sub.error : KC_E_MALFORMED);
        }
    }
}

static void decode_struct(struct decode *d, const struct kw_struct *s, uint8_t *out)
{
    for (uint16_t i = 0; i < s->n_fields && !d->c->error; i++) {
        const struct kw_field *f = &s->fields[i];
        if (f->tag >= 0 || !kw_range_has(f->versions, d->version)) {
            kw_field_init(f, out);
        } else {
            if (f->type == KW_RECORDS) {
                kw_field_init(f, out);
            }
            decode_field(d, f, out);
        }
    }
    if (d->flexible) {
        decode_tags(d, s, out);
    }
}

int kw_decode(const struct kw_message *m, struct kw_cursor *c, int16_t version, struct kc_arena *a,
              void *out)
{
    if (!kw_range_has(m->versions, version)) {
        kw_cursor_fail(c, KC_E_UNSUPPORTED);
    }
    struct decode d = {
        .c = c, .arena = a, .version = version, .flexible = kw_message_flexible(m, version)};
    if (!c->error) {
        decode_struct(&d, m->root, out);
    }
    return c->error;
}
