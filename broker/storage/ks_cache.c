/* Recent batches in memory: what consumers at the tail read.
 *
 * Batches are copied into chunks that grow with the traffic of the log, so that a read gets many
 * small batches in one slice; a large slab with a single holder is taken as it is. The chunks of
 * all logs of a loop share a budget and go oldest first. Batches not yet on disk stay alive through
 * the references of the commit queue, so a chunk may go at any time. */
#include "base/kc_mem.h"
#include "storage/ks_batch.h"
#include "storage/ks_int.h"

enum { CHUNK_MIN = 2048, CHUNK_MAX = 256 * 1024, TAKE_MIN = 32 * 1024 };

static void chunk_free(struct ks_chunk *c)
{
    kc_list_del(&c->in_shard);
    kc_list_del(&c->in_log);
    c->log->shard->bytes -= (int64_t)c->room;
    kc_buf_unref(c->buf);
    kc_free(c);
}

void ks_cache_drop(struct ks_log *log)
{
    KC_LIST_EACH(it, nx, &log->chunks)
    {
        chunk_free(KC_LIST_ENTRY(it, struct ks_chunk, in_log));
    }
}

void ks_cache_forget(struct ks_log *log, int64_t end)
{
    KC_LIST_EACH(it, nx, &log->chunks)
    {
        struct ks_chunk *c = KC_LIST_ENTRY(it, struct ks_chunk, in_log);
        if (c->end > end) {
            c->base = KC_MAX(c->base, end); /* only what follows is found in it any more */
            break;
        }
        chunk_free(c);
    }
}

static struct ks_chunk *newest(struct ks_log *log)
{
    return kc_list_empty(&log->chunks) ? NULL
                                       : KC_LIST_ENTRY(log->chunks.prev, struct ks_chunk, in_log);
}

/* Takes the reference to buf. */
static struct ks_chunk *chunk_new(struct ks_log *log, struct kc_buf *buf, uint8_t *start,
                                  size_t room)
{
    struct ks_shard *s = log->shard;
    struct ks_chunk *c = buf ? kc_try_zalloc(1, sizeof(*c)) : NULL;
    if (!c) {
        kc_buf_unref(buf);
        return NULL;
    }
    int64_t budget = ks_shard_part(log->e, log->e->cache_bytes);
    while (s->bytes + (int64_t)room > budget && !kc_list_empty(&s->chunks)) {
        chunk_free(KC_LIST_ENTRY(s->chunks.next, struct ks_chunk, in_shard));
    }
    *c = (struct ks_chunk){.log = log, .buf = buf, .start = start, .room = room, .base = -1};
    s->bytes += (int64_t)room;
    kc_list_add_tail(&s->chunks, &c->in_shard);
    kc_list_add_tail(&log->chunks, &c->in_log);
    return c;
}

static struct kc_slice put(struct ks_chunk *c, size_t len, int64_t base, int64_t end,
                           uint8_t **ret_data)
{
    *ret_data = c->start + c->used;
    c->used += len;
    c->base = c->base < 0 ? base : c->base;
    c->end = end;
    return (struct kc_slice){.buf = kc_buf_ref(c->buf), .ptr = *ret_data, .len = len};
}

struct kc_slice ks_cache_add(struct ks_log *log, struct kc_slice in, int64_t base, int64_t end,
                             uint8_t **ret_data)
{
    struct ks_chunk *c = newest(log);
    bool only_holder = atomic_load_explicit(&in.buf->refs, memory_order_acquire) == 1;
    if (in.len >= TAKE_MIN && only_holder && in.len >= in.buf->len / 2) {
        uint8_t *start = in.buf->data + (in.ptr - in.buf->data);
        c = chunk_new(log, kc_buf_ref(in.buf), start, in.len);
        return c ? put(c, in.len, base, end, ret_data) : (struct kc_slice){0};
    }
    if (!c || c->room - c->used < in.len) {
        size_t room = c ? KC_MIN(c->room * 2, (size_t)CHUNK_MAX) : CHUNK_MIN;
        room = KC_MAX(room, in.len);
        struct kc_buf *buf = kc_buf_new(room);
        c = chunk_new(log, buf, buf ? buf->data : NULL, room);
        if (!c) {
            return (struct kc_slice){0};
        }
    }
    struct kc_slice out = put(c, in.len, base, end, ret_data);
    __builtin_memcpy(*ret_data, in.ptr, in.len);
    return out;
}

/* Finds the batch that holds offset in a chunk; false if the chunk has it not. */
static bool seek(const struct ks_chunk *c, int64_t offset, size_t *ret_pos)
{
    struct ks_batch b;
    for (size_t pos = 0; pos < c->used; pos += b.size) {
        if (!ks_batch_parse(c->start + pos, &b)) {
            return false;
        }
        if (ks_batch_last(&b) >= offset) {
            *ret_pos = pos;
            return true;
        }
    }
    return false;
}

/* Adds whole batches from pos of the chunk on. False: a limit was met. */
static bool collect(const struct ks_chunk *c, size_t pos, const struct ks_read_args *args,
                    size_t *bytes, struct ks_read_result *ret)
{
    struct ks_batch b;
    size_t start = pos;
    bool more = true;
    while (pos < c->used && ks_batch_parse(c->start + pos, &b)) {
        bool first = *bytes == 0 && args->at_least_one;
        if (ks_batch_last(&b) >= args->limit_offset ||
            (!first && *bytes + b.size > (size_t)KC_MAX(args->max_bytes, 0))) {
            more = false;
            break;
        }
        *bytes += b.size;
        pos += b.size;
        ret->next_offset = ks_batch_last(&b) + 1;
    }
    if (pos > start) {
        ret->slices[ret->n_slices++] = (struct kc_slice){
            .buf = kc_buf_ref(c->buf), .ptr = c->start + start, .len = pos - start};
    }
    return more && ret->n_slices < (int32_t)KC_ARRAY_LEN(ret->slices);
}

bool ks_cache_read(struct ks_log *log, const struct ks_read_args *args, struct ks_read_result *ret)
{
    struct kc_list *it = log->chunks.prev;
    while (it != &log->chunks && KC_LIST_ENTRY(it, struct ks_chunk, in_log)->base > args->offset) {
        it = it->prev;
    }
    if (it == &log->chunks) {
        return false;
    }
    const struct ks_chunk *c = KC_LIST_ENTRY(it, struct ks_chunk, in_log);
    size_t pos, bytes = 0;
    if (args->offset >= c->end || !seek(c, args->offset, &pos)) {
        return false;
    }
    while (collect(c, pos, args, &bytes, ret) && it->next != &log->chunks) {
        it = it->next;
        c = KC_LIST_ENTRY(it, struct ks_chunk, in_log);
        pos = 0;
    }
    return true;
}
