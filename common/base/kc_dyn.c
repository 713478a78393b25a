#include "base/kc_dyn.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/kc_mem.h"

void kc_dyn_init(struct kc_dyn *d, size_t max_bytes)
{
    *d = (struct kc_dyn){.max = max_bytes};
}

void kc_dyn_fini(struct kc_dyn *d)
{
    kc_free(d->data);
    *d = (struct kc_dyn){.max = d->max};
}

void kc_dyn_reset(struct kc_dyn *d)
{
    d->len = 0;
    d->failed = d->over = false;
}

uint8_t *kc_dyn_extend(struct kc_dyn *d, size_t n)
{
    if (d->failed || n > d->max || d->len > d->max - n) {
        d->over = d->over || !d->failed;
        d->failed = true;
        return NULL;
    }
    if (d->room - d->len < n || !d->data) { /* never NULL after success, for n = 0 too */
        size_t room = KC_MIN(d->max, KC_MAX(d->len + n, KC_MAX(d->room * 2, (size_t)256)));
        uint8_t *p = kc_try_realloc(d->data, room);
        if (!p) {
            d->failed = true;
            return NULL;
        }
        d->data = p;
        d->room = room;
    }
    uint8_t *at = d->data + d->len;
    d->len += n;
    return at;
}

void kc_dyn_add(struct kc_dyn *d, const void *data, size_t n)
{
    uint8_t *p = kc_dyn_extend(d, n);
    if (p && n) {
        memcpy(p, data, n);
    }
}

void kc_dyn_addf(struct kc_dyn *d, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n >= 0) {
        uint8_t *p = kc_dyn_extend(d, (size_t)n + 1);
        if (p) {
            vsnprintf((char *)p, (size_t)n + 1, fmt, again);
            d->len--; /* the terminator is not part of the text */
        }
    }
    va_end(again);
}

void kc_dyn_consume(struct kc_dyn *d, size_t n)
{
    KC_ASSERT(n <= d->len);
    if (n == 0) {
        return;
    }
    memmove(d->data, d->data + n, d->len - n);
    d->len -= n;
}

uint8_t *kc_dyn_steal(struct kc_dyn *d, size_t *ret_len)
{
    if (d->failed) {
        return NULL;
    }
    uint8_t *p = d->data ? d->data : kc_alloc(1);
    *ret_len = d->len;
    d->data = NULL;
    d->len = d->room = 0;
    return p;
}
