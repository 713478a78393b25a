/* Images for the tests of broker/cluster: a cluster to be changed and published again and again. */
#ifndef CL_FIXTURE_H
#define CL_FIXTURE_H

#include "image/ki_image.h"

enum { CLF_PARTS_MAX = 64, CLF_TOPICS_MAX = 8 };

struct clf {
    struct kp_order order;
    int32_t n_rows;
    struct kp_row rows[8];
    struct ki_config config; /* the one cluster-wide config; name NULL = none */
    int32_t n_topics;
    struct clf_topic {
        struct kc_uuid id;
        char name[32];
        bool internal, fresh, deleted;
        struct ki_config config; /* the one override; name NULL = none */
        int32_t n_parts;
        struct kp_part parts[CLF_PARTS_MAX];
    } topics[CLF_TOPICS_MAX];
};

struct kc_uuid clf_uuid(uint8_t n);
/* n brokers alive with incarnations clf_uuid(100 + id), no topics, order (uid-1, 1, 0). */
void clf_init(struct clf *c, int32_t n_brokers);
/* Partitions all assigned to nobody. */
struct clf_topic *clf_topic(struct clf *c, const char *name, int32_t n_parts);
/* The next generation, as an image; one reference. */
struct ki_image *clf_publish(struct clf *c);

#endif
