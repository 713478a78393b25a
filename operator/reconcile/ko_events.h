/* ko_events.h - core v1 Events about our objects: one an occurrence, repeated ones counted.
 *
 * The same reason and message about the same object within ten minutes raise `count` and move
 * lastTimestamp. At most 50 events at once and one a second after that, a process; more are dropped
 * and counted. Owner: the API loop. */
#ifndef KO_EVENTS_H
#define KO_EVENTS_H

#include "store/ko_store.h"

struct ko_events;
struct ko_events *ko_events_new(struct ko_store *store, const char *component);
void ko_events_free(struct ko_events *e);
/* about: the object (kind, apiVersion and metadata are read). warning: type Warning, else Normal.
 * True if it was written. */
bool ko_event_emit(struct ko_events *e, const json_t *about, bool warning, const char *reason,
                   const char *message, int64_t now_wall_ms);

#endif
