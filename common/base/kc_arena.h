/* kc_arena.h - chunked bump allocator with a cap.
 *
 * One owner thread. Memory lives until kc_arena_reset or kc_arena_fini; single frees do not exist.
 * The cap bounds the bytes a peer can make us allocate for one message. */
#ifndef KC_ARENA_H
#define KC_ARENA_H

#include "base/kc_base.h"

struct kc_arena_chunk;

struct kc_arena {
    struct kc_arena_chunk *head;
    size_t used; /* bytes handed out since the last reset */
    size_t cap; /* most bytes that may be handed out; 0 = no cap */
    size_t chunk; /* size of a normal chunk */
};

/* cap_bytes: 0 for none. No allocation happens before the first kc_arena_alloc. */
void kc_arena_init(struct kc_arena *a, size_t chunk_bytes, size_t cap_bytes);
void kc_arena_fini(struct kc_arena *a);
/* Forgets everything; keeps one normal chunk for reuse. */
void kc_arena_reset(struct kc_arena *a);

/* Aligned to 16, not zeroed. NULL if the cap would be exceeded or memory is out. */
void *kc_arena_alloc(struct kc_arena *a, size_t size) KC_MUST_CHECK;
/* n elements of size bytes, overflow-checked and zeroed; NULL as above. */
void *kc_arena_zalloc(struct kc_arena *a, size_t n, size_t size) KC_MUST_CHECK;
/* Terminated copy; NULL as above. */
char *kc_arena_strndup(struct kc_arena *a, const char *s, size_t len) KC_MUST_CHECK;
/* printf into the arena; NULL as above. */
char *kc_arena_printf(struct kc_arena *a, const char *fmt, ...) KC_PRINTF(2, 3) KC_MUST_CHECK;

#endif
