/* ko_queue.h - what has to be reconciled: keys, once each, with back-off.
 *
 * Level-triggered: a key says "look at this object", not what happened. A key that is added while it
 * is being worked on is looked at again afterwards, never twice at once. Failures wait 50 ms, doubled
 * up to 30 s; success forgets them. Pure: time is an argument. One owner thread. */
#ifndef KO_QUEUE_H
#define KO_QUEUE_H

#include "base/kc_base.h"

struct ko_queue;

enum { KO_BACKOFF_MIN_MS = 50, KO_BACKOFF_MAX_MS = 30000, KO_KEY_MAX = 560 };

struct ko_queue *ko_queue_new(void);
void ko_queue_free(struct ko_queue *q);
/* Due at at_ms, or earlier if it was queued for earlier already. A key waiting out a back-off is due
 * at once: something about it changed. */
void ko_queue_add(struct ko_queue *q, const char *key, int64_t at_ms);
/* The key due longest, now in work until ko_queue_done; NULL: nothing is due. Borrowed until then. */
const char *ko_queue_pop(struct ko_queue *q, int64_t now_ms);
/* ok false: again after the back-off. */
void ko_queue_done(struct ko_queue *q, const char *key, bool ok, int64_t now_ms);
/* When the next key is due; INT64_MAX if none waits. */
int64_t ko_queue_next_ms(const struct ko_queue *q);
size_t ko_queue_len(const struct ko_queue *q); /* waiting and in work */

#endif
