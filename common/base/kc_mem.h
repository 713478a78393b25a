/* kc_mem.h - the only door to the allocator.
 *
 * kc_alloc and friends are for small, fixed sizes of our own: they abort when memory is out.
 * Any size that derives from the wire, the disk or the API server goes through kc_try_alloc with a
 * cap of the caller's, and a NULL answer is an ordinary error. Tests make the n-th allocation fail. */
#ifndef KC_MEM_H
#define KC_MEM_H

#include "base/kc_base.h"

void *kc_alloc(size_t size); /* not zeroed; aborts on failure */
void *kc_zalloc(size_t size); /* zeroed; aborts on failure */
void *kc_realloc(void *ptr, size_t size); /* aborts on failure */
void *kc_try_alloc(size_t size) KC_MUST_CHECK; /* NULL on failure */
void *kc_try_zalloc(size_t n, size_t size) KC_MUST_CHECK; /* n*size overflow-checked, zeroed */
void *kc_try_realloc(void *ptr, size_t size) KC_MUST_CHECK;
void kc_free(void *ptr); /* NULL allowed */
char *kc_strdup(const char *s); /* aborts on failure */
char *kc_strndup(const char *s, size_t len); /* copies len bytes and terminates */

/* Makes the n-th kc_try_* call from now (1 = next) return NULL, once or for good; 0 turns it off.
 * Test hook; process-wide. */
void kc_mem_fail_nth(uint64_t n, bool forever);
uint64_t kc_mem_try_count(void);
/* Asks at each kc_try_* call from now, on its thread, whether it fails; until kc_mem_fail_nth(0, …). */
typedef bool (*kc_mem_fails_fn)(void);
void kc_mem_fail_chosen(kc_mem_fails_fn fails);
/* The calling thread's allocations neither fail nor count until it is turned off: a test's own. */
void kc_mem_spare(bool on);

#endif
