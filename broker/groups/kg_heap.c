/* kg_heap.c - which group of a shard is due first: a binary heap, and the one wake-up it asks for. */
#include "base/kc_mem.h"
#include "groups/kg_int.h"

static void put(struct kg_shard *sh, size_t at, struct kg_entry *e)
{
    sh->heap[at] = e;
    e->heap_at = at + 1;
}

static void up(struct kg_shard *sh, size_t at, struct kg_entry *e)
{
    while (at > 0 && sh->heap[(at - 1) / 2]->due_ms > e->due_ms) {
        put(sh, at, sh->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    put(sh, at, e);
}

static void down(struct kg_shard *sh, size_t at, struct kg_entry *e)
{
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= sh->heap_len) {
            break;
        }
        if (child + 1 < sh->heap_len && sh->heap[child + 1]->due_ms < sh->heap[child]->due_ms) {
            child++;
        }
        if (sh->heap[child]->due_ms >= e->due_ms) {
            break;
        }
        put(sh, at, sh->heap[child]);
        at = child;
    }
    put(sh, at, e);
}

static void take_out(struct kg_shard *sh, struct kg_entry *e)
{
    size_t at = e->heap_at - 1;
    struct kg_entry *last = sh->heap[--sh->heap_len];
    e->heap_at = 0;
    if (last == e) {
        return;
    }
    if (at > 0 && sh->heap[(at - 1) / 2]->due_ms > last->due_ms) {
        up(sh, at, last);
    } else {
        down(sh, at, last);
    }
}

void kgi_heap_set(struct kg_shard *sh, struct kg_entry *e, int64_t due_ms)
{
    if (e->heap_at) {
        if (e->due_ms == due_ms) {
            return;
        }
        take_out(sh, e);
    }
    e->due_ms = due_ms;
    if (due_ms == INT64_MAX) {
        return;
    }
    if (sh->heap_len == sh->heap_room) {
        sh->heap_room = sh->heap_room ? sh->heap_room * 2 : 64;
        sh->heap = kc_realloc(sh->heap, sh->heap_room * sizeof(struct kg_entry *));
    }
    up(sh, sh->heap_len++, e);
    kgi_shard_ask(sh);
}

void kgi_shard_ask(struct kg_shard *sh)
{
    int64_t at = sh->heap_len ? sh->heap[0]->due_ms : INT64_MAX;
    at = KC_MIN(at, KC_MIN(sh->clean_ms, sh->retry_ms));
    if (at < sh->asked_ms) {
        sh->asked_ms = at;
        sh->k->port.wake(sh->k->port.ctx, sh->index, at);
    }
}
