/* op_bed.h - a reconciler over a local store and the played control thread. */
#ifndef OP_BED_H
#define OP_BED_H

#include "op_control.h"
#include "op_sample.h"
#include "op_store.h"
#include "reconcile/ko_reconcile.h"
#include "store/ko_object.h"
#include "store/ko_store_local.h"

struct bed {
    struct rt_loop loop;
    uv_timer_t turn;
    struct ko_store *store;
    struct op_counting counting; /* between the reconciler and the store */
    struct ko_rec *rec;
    struct ko_control_callbacks cb;
    int code;
    json_t *doc; /* of the last result, owned */
    uint64_t rv; /* of the newest change any watch saw */
};

void bed_start(struct bed *b); /* leader at once */
/* And the sample KaasCluster (op_cluster_doc), reconciled. */
void bed_start_cluster(struct bed *b, const char *extra);
void bed_stop(struct bed *b);
/* Turns the loop until nothing is queued, under way or left to be written. */
void bed_settle(struct bed *b);
#define BED_WAIT(b, cond)                                                                          \
    while (!(cond)) {                                                                              \
        uv_run(&(b)->loop.uv, UV_RUN_ONCE);                                                        \
    }
/* Result codes; the object is in b->doc. */
int bed_get(struct bed *b, enum ko_kind k, const char *name);
int bed_list(struct bed *b, enum ko_kind k); /* of namespace ns */
int bed_create(struct bed *b, enum ko_kind k, const char *yaml);
int bed_create_doc(struct bed *b, enum ko_kind k, json_t *doc); /* takes doc */
/* A Pod with the label of cluster demo, whose owner has that uid. */
void bed_create_pod(struct bed *b, const char *name, const char *owner);
/* Adds a ready endpoint of the Pod of that name, which need not be there. */
void bed_add_endpoint(struct bed *b, json_t *endpoints, const char *hostname, const char *pod,
                      bool serving);
/* Puts an EndpointSlice of demo's service in place; takes endpoints. */
void bed_put_slice(struct bed *b, const char *name, const char *service, json_t *endpoints);
int bed_merge(struct bed *b, enum ko_kind k, const char *name, const char *yaml);
int bed_remove(struct bed *b, enum ko_kind k, const char *name);
/* Status of a condition of the object in b->doc, "" if it has none. */
const char *bed_cond(struct bed *b, const char *type);

#endif
