#include "base/kc_arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/kc_mem.h"

struct kc_arena_chunk {
    struct kc_arena_chunk *next;
    size_t size;
    size_t used;
    _Alignas(16) unsigned char data[];
};

void kc_arena_init(struct kc_arena *a, size_t chunk_bytes, size_t cap_bytes)
{
    *a = (struct kc_arena){.cap = cap_bytes, .chunk = chunk_bytes ? chunk_bytes : 4096};
}

void kc_arena_fini(struct kc_arena *a)
{
    struct kc_arena_chunk *c = a->head;
    while (c) {
        struct kc_arena_chunk *next = c->next;
        kc_free(c);
        c = next;
    }
    a->head = NULL;
    a->used = 0;
}

void kc_arena_reset(struct kc_arena *a)
{
    struct kc_arena_chunk *keep = NULL;
    struct kc_arena_chunk *c = a->head;
    while (c) {
        struct kc_arena_chunk *next = c->next;
        if (!keep && c->size == a->chunk) {
            keep = c;
            keep->next = NULL;
            keep->used = 0;
        } else {
            kc_free(c);
        }
        c = next;
    }
    a->head = keep;
    a->used = 0;
}

void *kc_arena_alloc(struct kc_arena *a, size_t size)
{
    if (size > SIZE_MAX / 2) {
        return NULL;
    }
    size_t need = (size + 15) & ~(size_t)15;
    if (need == 0) {
        need = 16;
    }
    if (a->cap && (need > a->cap || a->used > a->cap - need)) {
        return NULL;
    }
    struct kc_arena_chunk *c = a->head;
    if (!c || c->size - c->used < need) {
        size_t n = KC_MAX(a->chunk, need);
        c = kc_try_alloc(sizeof(*c) + n);
        if (!c) {
            return NULL;
        }
        c->size = n;
        c->used = 0;
        if (n > a->chunk && a->head) { /* an oversized chunk must not hide the open one */
            c->next = a->head->next;
            a->head->next = c;
        } else {
            c->next = a->head;
            a->head = c;
        }
    }
    void *p = c->data + c->used;
    c->used += need;
    a->used += need;
    return p;
}

void *kc_arena_zalloc(struct kc_arena *a, size_t n, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(n, size, &total)) {
        return NULL;
    }
    void *p = kc_arena_alloc(a, total);
    if (p) {
        memset(p, 0, total);
    }
    return p;
}

char *kc_arena_strndup(struct kc_arena *a, const char *s, size_t len)
{
    char *p = kc_arena_alloc(a, len + 1);
    if (p) {
        if (len) {
            memcpy(p, s, len);
        }
        p[len] = '\0';
    }
    return p;
}

char *kc_arena_printf(struct kc_arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : kc_arena_alloc(a, (size_t)n + 1);
    if (p) {
        vsnprintf(p, (size_t)n + 1, fmt, again);
    }
    va_end(again);
    return p;
}
