#include "base/kc_mem.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t fail_at;
static _Atomic bool fail_forever;
static _Atomic uint64_t try_count;
static _Atomic(kc_mem_fails_fn) chosen; /* NULL: by number */
static _Thread_local bool spared;

static void *must(void *p)
{
    if (!p) {
        fputs("out of memory\n", stderr);
        abort();
    }
    return p;
}

void *kc_alloc(size_t size)
{
    return must(malloc(size ? size : 1));
}

void *kc_zalloc(size_t size)
{
    return must(calloc(1, size ? size : 1));
}

void *kc_realloc(void *ptr, size_t size)
{
    return must(realloc(ptr, size ? size : 1));
}

/* Counts one fallible allocation; true if the test hook wants this one to fail. */
static bool should_fail(void)
{
    uint64_t at = atomic_load_explicit(&fail_at, memory_order_relaxed);
    if (at == 0 || spared) {
        return false;
    }
    uint64_t n = atomic_fetch_add_explicit(&try_count, 1, memory_order_relaxed) + 1;
    kc_mem_fails_fn fails = atomic_load_explicit(&chosen, memory_order_relaxed);
    return fails ? fails()
                 : n == at || (n > at && atomic_load_explicit(&fail_forever, memory_order_relaxed));
}

void *kc_try_alloc(size_t size)
{
    return should_fail() ? NULL : malloc(size ? size : 1);
}

void *kc_try_zalloc(size_t n, size_t size)
{
    return should_fail() ? NULL : calloc(n ? n : 1, size ? size : 1);
}

void *kc_try_realloc(void *ptr, size_t size)
{
    return should_fail() ? NULL : realloc(ptr, size ? size : 1);
}

void kc_free(void *ptr)
{
    free(ptr);
}

char *kc_strdup(const char *s)
{
    return kc_strndup(s, strlen(s));
}

char *kc_strndup(const char *s, size_t len)
{
    char *p = kc_alloc(len + 1);
    if (len) {
        memcpy(p, s, len);
    }
    p[len] = '\0';
    return p;
}

void kc_mem_fail_nth(uint64_t n, bool forever)
{
    atomic_store(&try_count, 0);
    atomic_store(&fail_forever, forever);
    atomic_store(&chosen, NULL);
    atomic_store(&fail_at, n);
}

void kc_mem_fail_chosen(kc_mem_fails_fn fails)
{
    atomic_store(&try_count, 0);
    atomic_store(&chosen, fails);
    atomic_store(&fail_at, UINT64_MAX);
}

uint64_t kc_mem_try_count(void)
{
    return atomic_load(&try_count);
}

void kc_mem_spare(bool on)
{
    spared = on;
}
