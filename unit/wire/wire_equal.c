#include <string.h>

#include "base/kc_str.h"
#include "wire_help.h"

static bool equal_struct(const struct kw_struct *s, const uint8_t *a, const uint8_t *b);

static bool equal_value(const struct kw_field *f, const uint8_t *a, const uint8_t *b)
{
    switch (f->type) {
    case KW_STRUCT:
        return equal_struct(f->sub, a, b);
    case KW_STRING:
        return kc_str_eq(*(const struct kc_str *)(const void *)a,
                         *(const struct kc_str *)(const void *)b);
    case KW_BYTES:
    case KW_RECORDS: {
        const struct kc_bytes *x = (const void *)a, *y = (const void *)b;
        return !x->ptr == !y->ptr && x->len == y->len &&
               (x->len == 0 || memcmp(x->ptr, y->ptr, (size_t)x->len) == 0);
    }
    default:
        return memcmp(a, b, kw_field_size(f)) == 0;
    }
}

/* One more run over records, which may stand in slices on either side. */
struct run {
    const struct kc_slice *slices;
    int32_t n;
    struct kc_slice whole;
};

static struct run run_of(const struct kw_field *f, const uint8_t *in)
{
    struct run r = {
        .slices = *(const struct kc_slice *const *)(const void *)(in + f->slices_offset),
        .n = *(const int32_t *)(const void *)(in + f->n_offset),
    };
    if (!r.slices) {
        const struct kc_bytes *b = (const void *)(in + f->offset);
        r.whole = (struct kc_slice){NULL, b->ptr, (size_t)b->len};
        r.n = b->ptr ? 1 : -1;
    }
    return r;
}

static bool next_byte(const struct run *r, int32_t *i, size_t *at, uint8_t *ret)
{
    const struct kc_slice *s = r->slices ? r->slices : &r->whole;
    while (*i < r->n && *at == s[*i].len) {
        ++*i;
        *at = 0;
    }
    if (*i >= r->n) {
        return false;
    }
    *ret = s[*i].ptr[(*at)++];
    return true;
}

static bool equal_records(const struct kw_field *f, const uint8_t *a, const uint8_t *b)
{
    struct run x = run_of(f, a), y = run_of(f, b);
    int32_t i = 0, j = 0;
    size_t x_at = 0, y_at = 0;
    if ((x.n < 0) != (y.n < 0)) {
        return false;
    }
    for (;;) {
        uint8_t p = 0, q = 0;
        bool more_x = next_byte(&x, &i, &x_at, &p);
        bool more_y = next_byte(&y, &j, &y_at, &q);
        if (more_x != more_y || p != q) {
            return false;
        }
        if (!more_x) {
            return true;
        }
    }
}

static bool equal_field(const struct kw_field *f, const uint8_t *a, const uint8_t *b)
{
    const uint8_t *x = a + f->offset, *y = b + f->offset;
    if (f->array) {
        int32_t n = *(const int32_t *)(const void *)(a + f->n_offset);
        if (n != *(const int32_t *)(const void *)(b + f->n_offset)) {
            return false;
        }
        x = *(const uint8_t *const *)(const void *)x;
        y = *(const uint8_t *const *)(const void *)y;
        size_t size = kw_field_size(f);
        for (int32_t i = 0; i < n; i++) {
            if (!equal_value(f, x + (size_t)i * size, y + (size_t)i * size)) {
                return false;
            }
        }
        return true;
    }
    if (f->pointer) {
        x = *(const uint8_t *const *)(const void *)x;
        y = *(const uint8_t *const *)(const void *)y;
        return !x == !y && (!x || equal_struct(f->sub, x, y));
    }
    return f->type == KW_RECORDS ? equal_records(f, a, b) : equal_value(f, x, y);
}

static bool equal_struct(const struct kw_struct *s, const uint8_t *a, const uint8_t *b)
{
    for (uint16_t i = 0; i < s->n_fields; i++) {
        if (!equal_field(&s->fields[i], a, b)) {
            return false;
        }
    }
    return true;
}

bool wire_equal(const struct kw_message *m, const void *a, const void *b)
{
    return equal_struct(m->root, a, b);
}
