/* ko_events.h - core v1 Events about our objects: one an occurrence, repeated ones counted.
 *
 * The same reason and message about the same object within ten minutes raise `count` and move
 * lastTimestamp. At most 50 events at once and one a second after that, a process; more are dropped
 * and counted. Details get no more than the first half of that: a stream of them must not cost the
 * transition that it leads to. Owner: the API loop. */
#ifndef KO_EVENTS_H
#define KO_EVENTS_H

#include "store/ko_store.h"

struct ko_events;
enum ko_event_level { KO_EVENT_DETAIL, KO_EVENT_NORMAL, KO_EVENT_WARNING };

struct ko_events *ko_events_new(struct ko_store *store, const char *component);
void ko_events_free(struct ko_events *e);
/* about: the object (kind, apiVersion and metadata are read). True if it was written. */
bool ko_event_emit(struct ko_events *e, const json_t *about, enum ko_event_level level,
                   const char *reason, const char *message, int64_t now_wall_ms);

#endif
