/* The encoder: walks a description along a struct. As deep as the schema nests structs. */
#include "wire/kw_schema.h"

struct encode {
    struct kw_writer *w;
    int16_t version;
    bool flexible;
};

static void encode_struct(struct encode *e, const struct kw_struct *s, const uint8_t *in);

static void fail_at(struct encode *e, const struct kw_field *f, int error)
{
    if (!e->w->error) {
        e->w->error_field = f->name;
    }
    kw_writer_fail(e->w, error);
}

/* Null is refused where the version has no null: the reader would refuse it, too. */
static bool check_null(struct encode *e, const struct kw_field *f, bool nullable)
{
    if (nullable) {
        return true;
    }
    fail_at(e, f, KC_E_MALFORMED);
    return false;
}

static void encode_string(struct encode *e, const struct kw_field *f, bool nullable,
                          const struct kc_str *v)
{
    if (v->ptr || check_null(e, f, nullable)) {
        kw_writer_str(e->w, *v, e->flexible);
    }
}

static void encode_bytes(struct encode *e, const struct kw_field *f, bool nullable,
                         const struct kc_bytes *v)
{
    if (v->ptr || check_null(e, f, nullable)) {
        kw_writer_bytes(e->w, *v, e->flexible);
    }
}

/* One value that is neither an array nor a pointer. */
static void encode_value(struct encode *e, const struct kw_field *f, bool nullable,
                         const uint8_t *at)
{
    struct kw_writer *w = e->w;
    const void *v = at;
    switch (f->type) {
    case KW_BOOL:
        kw_writer_bool(w, *(const bool *)v);
        break;
    case KW_INT8:
        kw_writer_u8(w, *at);
        break;
    case KW_INT16:
    case KW_UINT16:
        kw_writer_u16(w, *(const uint16_t *)v);
        break;
    case KW_INT32:
    case KW_UINT32:
        kw_writer_u32(w, *(const uint32_t *)v);
        break;
    case KW_INT64:
        kw_writer_u64(w, *(const uint64_t *)v);
        break;
    case KW_FLOAT64:
        kw_writer_f64(w, *(const double *)v);
        break;
    case KW_UUID:
        kw_writer_uuid(w, v);
        break;
    case KW_STRING:
        encode_string(e, f, nullable, v);
        break;
    case KW_BYTES:
    case KW_RECORDS:
        encode_bytes(e, f, nullable, v);
        break;
    default:
        encode_struct(e, f->sub, at);
    }
}

static void encode_array(struct encode *e, const struct kw_field *f, bool nullable,
                         const uint8_t *in)
{
    const uint8_t *items = *(const uint8_t *const *)(const void *)(in + f->offset);
    int32_t n = *(const int32_t *)(const void *)(in + f->n_offset);
    if (n < 0 && !check_null(e, f, nullable)) {
        return;
    }
    kw_writer_array(e->w, n, e->flexible);
    size_t size = kw_field_size(f);
    for (int32_t i = 0; i < n && !e->w->error; i++) {
        encode_value(e, f, false, items + (size_t)i * size);
    }
}

static void encode_pointer(struct encode *e, const struct kw_field *f, bool nullable,
                           const uint8_t *in)
{
    const uint8_t *value = *(const uint8_t *const *)(const void *)(in + f->offset);
    if (!value && !check_null(e, f, nullable)) {
        return;
    }
    if (nullable) {
        kw_writer_i8(e->w, value ? 1 : -1);
    }
    if (value) {
        encode_struct(e, f->sub, value);
    }
}

static void encode_field(struct encode *e, const struct kw_field *f, const uint8_t *in)
{
    bool nullable = kw_range_has(f->nullable, e->version);
    if (f->array) {
        encode_array(e, f, nullable, in);
        return;
    }
    if (f->pointer) {
        encode_pointer(e, f, nullable, in);
        return;
    }
    if (f->type == KW_RECORDS) {
        const struct kc_slice *slices =
            *(const struct kc_slice *const *)(const void *)(in + f->slices_offset);
        if (slices) {
            int32_t n = *(const int32_t *)(const void *)(in + f->n_offset);
            kw_writer_slices(e->w, slices, n, e->flexible);
            return;
        }
    }
    encode_value(e, f, nullable, in + f->offset);
}

/* Tagged fields with their default value are left out (KIP-482). */
static void encode_tags(struct encode *e, const struct kw_struct *s, const uint8_t *in)
{
    const struct kw_field *tagged = s->fields + (s->n_fields - s->n_tagged);
    uint32_t n = 0;
    for (uint16_t i = 0; i < s->n_tagged; i++) {
        n += kw_range_has(tagged[i].versions, e->version) && !kw_field_is_default(&tagged[i], in);
    }
    kw_writer_uvarint(e->w, n);
    for (uint16_t i = 0; n && i < s->n_tagged; i++) {
        const struct kw_field *f = &tagged[i];
        if (kw_range_has(f->versions, e->version) && !kw_field_is_default(f, in)) {
            kw_writer_uvarint(e->w, (uint32_t)f->tag);
            size_t at = e->w->own.len;
            encode_field(e, f, in);
            kw_writer_insert_size(e->w, at);
        }
    }
}

static void encode_struct(struct encode *e, const struct kw_struct *s, const uint8_t *in)
{
    for (uint16_t i = 0; i < s->n_fields && !e->w->error; i++) {
        const struct kw_field *f = &s->fields[i];
        if (!kw_range_has(f->versions, e->version)) {
            if (!f->ignorable && !kw_field_is_default(f, in)) {
                fail_at(e, f, KC_E_UNSUPPORTED);
            }
        } else if (f->tag < 0) {
            encode_field(e, f, in);
        }
    }
    if (e->flexible) {
        encode_tags(e, s, in);
    }
}

void kw_encode(const struct kw_message *m, struct kw_writer *w, int16_t version, const void *in)
{
    if (!kw_range_has(m->versions, version)) {
        kw_writer_fail(w, KC_E_UNSUPPORTED);
    }
    if (!w->error) {
        struct encode e = {.w = w, .version = version, .flexible = kw_message_flexible(m, version)};
        encode_struct(&e, m->root, in);
    }
}
