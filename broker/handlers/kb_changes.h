/* kb_changes.h - the admin changes of one request: submitted together, joined when all have answered.
 *
 * Owner: the request's home loop. Everything lives in the request's arena. */
#ifndef KB_CHANGES_H
#define KB_CHANGES_H

#include "handlers/kb_context.h"

struct kb_changes;

/* Changes of one request, as Kafka's controller bounds a request's records: a change costs memory and
 * a turn of the active operator. A request with more is refused as a whole, POLICY_VIOLATION. */
enum { KB_CHANGES_MAX = 10000 };
#define KB_TOO_MANY_CHANGES "A request may have at most 10000 changes."

struct kb_change {
    struct kb_changes *all;
    struct kb_admin_change change; /* filled by the handler; kind 0: nothing is submitted */
    int16_t error; /* set before the start: nothing is submitted */
    const char *message; /* "" = none */
    struct kc_uuid topic_id; /* of the result */
    int32_t partitions;
};

struct kb_changes {
    struct kb_req *req;
    int32_t n, pending;
    struct kb_change *items;
    void (*done)(struct kb_changes *c);
};

/* n zeroed changes; NULL when req was dropped. */
struct kb_changes *kb_changes_new(struct kb_req *req, int32_t n);
/* Submits those without an error; done runs when all have answered, perhaps before this returns. The
 * request then has the image that shows them. */
void kb_changes_run(struct kb_changes *c, int32_t timeout_ms, void (*done)(struct kb_changes *c));
/* Refuses a change. message is static or lives in the arena. */
void kb_refuse(struct kb_change *c, int16_t error, const char *message);

/* Which of n names come more than once; NULL when req was dropped. Not by comparing all with all: n is
 * the client's choice, and the loop is everybody's. */
bool *kb_named_twice(struct kb_req *req, int32_t n,
                     struct kc_str (*name)(const void *from, int32_t i), const void *from);

/* A terminated copy in the arena; NULL when req was dropped. */
const char *kb_text(struct kb_req *req, struct kc_str s);

#endif
