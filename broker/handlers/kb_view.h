/* kb_view.h - what clients may see of brokers and leaders: one place for R30 to R36 and W7.
 *
 * Everything is decided from the request's image, this broker's own open partitions, and the
 * listener the client came through. On a data loop. */
#ifndef KB_VIEW_H
#define KB_VIEW_H

#include "app/kb_req.h"

struct kb_node {
    int32_t id;
    struct kc_str host; /* as advertised on the client's listener; borrows from image or app */
    int32_t port;
    struct kc_str rack; /* null = none */
    bool fenced;
};

/* The brokers that the client may see, by rising id: Serving and Draining ones, and always this one,
 * never fenced (R30, R32). include_fenced adds all other registered ones (R31). A broker that has no
 * listener of the client's name is left out. Returns the count, or -1 when req was dropped. */
int32_t kb_nodes(struct kb_req *req, bool include_fenced, struct kb_node **ret);
/* One of the visible brokers; false if it is not visible. */
bool kb_node(const struct kb_req *req, int32_t broker, struct kb_node *ret);
/* The broker with the lowest id that serves, else this one: any broker takes admin changes. */
int32_t kb_controller(const struct kb_req *req);

struct kb_leader {
    int16_t error; /* 0, or LEADER_NOT_AVAILABLE */
    int32_t id; /* -1 with an error */
    int32_t epoch; /* -1 = never led */
};
/* The leader of a partition: this broker if it has it open; else, while the image does not know yet that
 * it was released, the broker it went to; else the broker that reported it led, if that life of it is
 * visible (W7). p < t->n_parts. */
void kb_leader(const struct kb_req *req, const struct ki_topic *t, int32_t p,
               struct kb_leader *ret);

/* Replica lists, which are virtual: a partition lives once. At most one id each. */
struct kb_replicas {
    int32_t all[1], isr[1], offline[1];
    int32_t n_all, n_isr, n_offline;
};
void kb_replicas(const struct ki_topic *t, int32_t p, const struct kb_leader *leader,
                 struct kb_replicas *ret);

/* The topic a request names: by id if the id is set, else by name. NULL and an error otherwise. */
const struct ki_topic *kb_topic(const struct kb_req *req, struct kc_str name,
                                const struct kc_uuid *id, int16_t *ret_error);

/* Bits of authorized operations where nothing is forbidden. */
enum { KB_OPS_TOPIC = 3576, KB_OPS_CLUSTER = 8096, KB_OPS_GROUP = 328 };

#endif
