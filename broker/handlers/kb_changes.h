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

struct kb_change {
    struct kb_changes *all;
    struct kb_admin_change change; /* filled by the handler; kind 0: nothing is submitted */
    int16_t error; /* set before the start: nothing is submitted */
    const char *message; /* "" = none */
    struct kc_uuid topic_id; /* of the result */
    int32_t partitions;
};

struct kb_changes_api;

struct kb_changes {
    struct kb_req *req;
    const struct kb_changes_api *api; /* NULL: not by kb_changes_run */
    int32_t n, pending;
    struct kb_change *items;
    void (*answer)(struct kb_changes *c);
};

/* n zeroed changes; NULL when req was dropped. */
struct kb_changes *kb_changes_new(struct kb_req *req, int32_t n);
/* Submits those that are filled and not refused; answer runs when all of them have come back, perhaps
 * before this returns. The request then has the image that shows them. */
void kb_changes_submit(struct kb_changes *c, int32_t timeout_ms,
                       void (*answer)(struct kb_changes *c));

/* What an API has of its own, whose requests are lists of changes. */
struct kb_changes_api {
    /* What entry i of the request calls its topic, where all that are called the same are refused; NULL: a
     * topic may come again. */
    struct kc_str (*topic)(const void *body, int32_t i);
    /* Fills change i, or refuses it; false when req was dropped. */
    bool (*prepare)(struct kb_req *req, int32_t i, struct kb_change *c);
    /* Refuses what only all of them together show to be wrong; false when req was dropped. May be NULL. */
    bool (*check)(struct kb_changes *c);
    /* The answer has an element a change, of result_size bytes: fills the one of change i, which is zeroed;
     * false when req was dropped. */
    size_t result_size;
    bool (*result)(struct kb_req *req, int32_t i, const struct kb_change *c, void *ret);
    /* Answers with all n of them, which live in the arena. */
    void (*reply)(struct kb_req *req, void *results, int32_t n);
};
/* Prepares, submits and answers the n changes of a request. api is static. */
void kb_changes_run(struct kb_req *req, int32_t n, int32_t timeout_ms,
                    const struct kb_changes_api *api);
/* Refuses a change. message is static or lives in the arena. */
void kb_refuse(struct kb_change *c, int16_t error, const char *message);
/* Why it failed; null where nothing is to be said. */
struct kc_str kb_change_message(const struct kb_change *c);

/* A terminated copy in the arena; NULL when req was dropped. */
const char *kb_text(struct kb_req *req, struct kc_str s);

#endif
