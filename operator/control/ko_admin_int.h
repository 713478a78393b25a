/* ko_admin_int.h - one admin request, shared by ko_admin.c (order, results) and ko_admin_check.c. */
#ifndef KO_ADMIN_INT_H
#define KO_ADMIN_INT_H

#include "control/ko_int.h"

enum ko_req_state {
    KO_REQ_QUEUED,
    KO_REQ_ASKED, /* the API loop is writing the object */
    KO_REQ_APPLIED, /* waits for the image that shows it */
    KO_REQ_DONE
};

struct ko_req {
    struct kc_list link; /* process.order, by arrival */
    struct kc_arena arena;
    uint64_t sequence;
    uint64_t stream; /* to be answered on; 0 = closed meanwhile */
    enum ko_req_state state;
    struct ko_admin change; /* kind, topic, …; configs: the whole set afterwards */
    struct ki_config *entries; /* as asked; value NULL = remove */
    int32_t n_entries;
    bool validate_only;
    /* the result */
    int32_t error;
    char message[512];
    uint64_t generation; /* of the image that shows it */
};

/* Checks a request against the topics of now and completes `change`: 0, or Kafka's error with the
 * message set. */
int32_t ko_req_check(struct ko_cc *cc, struct ko_req *r);
/* Makes the checked change: 0 or Kafka's error. */
int32_t ko_req_apply(struct ko_cc *cc, struct ko_req *r);

#endif
