#include "base/kc_buf.h"

#include <string.h>

#include "base/kc_mem.h"
#include "base/kc_range.h"

struct kc_buf *kc_buf_new(size_t len)
{
    if (len > SIZE_MAX - sizeof(struct kc_buf)) {
        return NULL;
    }
    struct kc_buf *b = kc_try_alloc(sizeof(*b) + len);
    if (b) {
        atomic_init(&b->refs, 1);
        b->len = len;
        b->range = NULL;
    }
    return b;
}

struct kc_buf *kc_buf_ref(struct kc_buf *b)
{
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

void kc_buf_unref(struct kc_buf *b)
{
    if (b && atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) == 1) {
        if (b->range && b->range->ops) {
            b->range->ops->end(b->range);
        }
        kc_free(b);
    }
}

struct kc_buf *kc_range_new(size_t room)
{
    struct kc_buf *b = kc_buf_new(room);
    if (b) {
        memset(b->data, 0, room);
        b->range = (struct kc_range *)(void *)b->data;
    }
    return b;
}
