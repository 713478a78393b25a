/* op_control.h - a played control thread: what the reconciler tells it is written down. */
#ifndef OP_CONTROL_H
#define OP_CONTROL_H

#include "control/ko_control.h"

struct op_played {
    char log[8192]; /* "cluster ns/demo 3|slice …|topic …|…" */
    int32_t n_eps; /* of the last slice */
    struct kp_endpoint eps[8];
    char topic_id[KC_UUID_B64_LEN + 1]; /* of the last topic told */
    int32_t topic_parts;
    char topic_config[400]; /* "key=value;" of each */
    uint64_t rollout; /* to be measured */
    uint64_t done_ticket;
    int32_t done_error;
    int done;
};
extern struct op_played op_played;
void op_played_reset(void);
/* A view of three Serving brokers of ns/demo with one reference. */
struct ko_view *op_view(void);

#endif
