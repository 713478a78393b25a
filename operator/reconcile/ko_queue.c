#include "reconcile/ko_queue.h"

#include <string.h>

#include "base/kc_list.h"
#include "base/kc_map.h"
#include "base/kc_mem.h"

struct item {
    struct kc_list link; /* in waiting, sorted by due; alone while in work */
    int64_t due_ms;
    int failures;
    bool in_work, again;
    int64_t again_ms;
    char key[];
};

struct ko_queue {
    struct kc_map items; /* every key that waits, is in work or has failures */
    struct kc_list waiting;
};

struct ko_queue *ko_queue_new(void)
{
    struct ko_queue *q = kc_zalloc(sizeof(*q));
    kc_map_init(&q->items);
    kc_list_init(&q->waiting);
    return q;
}

void ko_queue_free(struct ko_queue *q)
{
    if (q) {
        kc_map_fini(&q->items, kc_free);
        kc_free(q);
    }
}

/* Into the list by due time; equal times keep the order of adding. */
static void insert(struct ko_queue *q, struct item *it)
{
    struct kc_list *at = q->waiting.prev;
    while (at != &q->waiting && KC_LIST_ENTRY(at, struct item, link)->due_ms > it->due_ms) {
        at = at->prev;
    }
    kc_list_add_tail(at->next, &it->link); /* before the one after it */
}

void ko_queue_add(struct ko_queue *q, const char *key, int64_t at_ms)
{
    size_t len = strlen(key);
    KC_ASSERT(len < KO_KEY_MAX);
    struct item *it = kc_map_get(&q->items, key, len);
    if (!it) {
        it = kc_zalloc(sizeof(*it) + len + 1);
        memcpy(it->key, key, len + 1);
        kc_list_init(&it->link);
        kc_map_put(&q->items, key, len, it);
        it->due_ms = at_ms;
    } else if (it->in_work) {
        it->again_ms = it->again ? KC_MIN(it->again_ms, at_ms) : at_ms;
        it->again = true;
        return;
    } else {
        kc_list_del(&it->link);
        it->due_ms = KC_MIN(it->due_ms, at_ms);
    }
    insert(q, it);
}

const char *ko_queue_pop(struct ko_queue *q, int64_t now_ms)
{
    if (kc_list_empty(&q->waiting)) {
        return NULL;
    }
    struct item *it = KC_LIST_ENTRY(q->waiting.next, struct item, link);
    if (it->due_ms > now_ms) {
        return NULL;
    }
    kc_list_del(&it->link);
    it->in_work = true;
    it->again = false;
    return it->key;
}

void ko_queue_done(struct ko_queue *q, const char *key, bool ok, int64_t now_ms)
{
    struct item *it = kc_map_get(&q->items, key, strlen(key));
    KC_ASSERT(it && it->in_work);
    it->in_work = false;
    if (ok && !it->again) {
        kc_map_del(&q->items, it->key, strlen(it->key));
        kc_free(it);
        return;
    }
    if (ok) {
        it->failures = 0;
        it->due_ms = it->again_ms;
    } else {
        int64_t wait = (int64_t)KO_BACKOFF_MIN_MS << KC_MIN(it->failures, 16);
        it->failures++;
        it->due_ms = now_ms + KC_MIN(wait, (int64_t)KO_BACKOFF_MAX_MS);
        /* A change that came meanwhile does not shorten the wait of a key that fails over and over:
         * its own failing writes may be what comes back as changes. */
    }
    it->again = false;
    insert(q, it);
}

int64_t ko_queue_next_ms(const struct ko_queue *q)
{
    return kc_list_empty(&q->waiting) ? INT64_MAX
                                      : KC_LIST_ENTRY(q->waiting.next, struct item, link)->due_ms;
}

size_t ko_queue_len(const struct ko_queue *q)
{
    return q->items.len;
}
