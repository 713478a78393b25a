/* kc_range.h - bytes of an answer that lie in a file and are not read into memory: the kernel sends
 * them from its page cache (ADR 21).
 *
 * A range is the content of a slab (kc_buf.range): it goes where the slab's references go, and ends
 * with the last of them. Its maker has seen to it that the bytes are what they are said to be and never
 * change; whether they can be had without waiting for the disk is asked just before they are sent. */
#ifndef KC_RANGE_H
#define KC_RANGE_H

#include "base/kc_buf.h"

struct rt_loop; /* common/rt; only handed through */

/* A request for bytes that cannot be had at once. */
struct kc_load {
    struct rt_loop *loop; /* in: where done runs */
    void (*done)(struct kc_load *l);
    struct kc_buf *buf; /* out: the bytes in memory, owned by the asker; NULL: an error */
};

struct kc_range_ops {
    /* How many of the len bytes from `at` of the range on sendfile may be asked for now, on a thread
     * that must not wait; 0: none, they have to be loaded. Any thread. */
    size_t (*ready)(struct kc_range *r, size_t at, size_t len);
    /* Reads len bytes from `at` on on another thread, then runs done, once, never before it returns.
     * The range stays until then. */
    void (*load)(struct kc_range *r, size_t at, size_t len, struct kc_load *l);
    void (*end)(struct kc_range *r); /* lets go of the file; the memory is the slab's. Any thread */
};

struct kc_range {
    const struct kc_range_ops *ops;
    int fd; /* open as long as the range is there */
    uint64_t pos; /* where in the file it begins */
    size_t len;
};

/* A slab that stands for a range and has `room` bytes of memory for what its maker knows of it, a
 * struct that begins with a struct kc_range; NULL: no memory. The range is the maker's to fill; until
 * it has ops nothing is called. */
struct kc_buf *kc_range_new(size_t room) KC_MUST_CHECK;
/* The range of a slab, or NULL: its bytes are in memory. */
static inline struct kc_range *kc_range_of(const struct kc_buf *b)
{
    return b ? b->range : NULL;
}
/* A slice of all of it; takes the reference. Its ptr is NULL: there is nothing to look at. */
static inline struct kc_slice kc_range_slice(struct kc_buf *b)
{
    return (struct kc_slice){.buf = b, .len = b->range->len};
}

#endif
