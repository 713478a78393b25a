/* ss_coord.h - the production group coordinator (broker/groups) of a simulated broker, over partition 1.
 *
 * In the runs that have one, everything in that partition is written by the coordinator: a simple
 * consumer commits ever larger offsets of a few partitions. I10: what was acknowledged is there after
 * any takeover, and no answer is older than the fence check that it needs. */
#ifndef SS_COORD_H
#define SS_COORD_H

#include "ss_broker.h"

struct kg_coord;

void ss_coord_begin(void); /* of a run */
void ss_coord_new(struct ss_broker *b);
void ss_coord_free(struct ss_broker *b); /* its loop has ended */
void ss_coord_opened(struct ss_slot *s);
void ss_coord_closing(struct ss_slot *s);
/* One commit or fetch of the consumer. */
void ss_coord_request(struct ss_slot *s);
void ss_coord_turn(struct ss_broker *b); /* deadlines */
/* At the end: everything acknowledged is there. Waits until the log was read. */
void ss_coord_audit(struct ss_slot *s);

#endif
