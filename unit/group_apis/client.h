/* client.h - requests of a group member and of an administrator, in any version. A request that
 * cannot be answered fails the test. */
#ifndef CLIENT_H
#define CLIENT_H

#include "base/kc_str.h"
#include "broker_fix.h"

#define CL_TOPIC KC_STR_LIT("t")

extern struct bx_conn cl_conn; /* where requests go, unless a function takes another */
extern struct kc_uuid cl_topic_id; /* of CL_TOPIC */

/* "<prefix>-<n>", in one of a few static buffers. */
struct kc_str cl_group_of(const char *prefix, int n);

struct joined {
    int16_t error;
    int32_t generation;
    char member[128], leader[128];
    int32_t n_members;
};
struct joined cl_join(struct bx_conn *c, int16_t version, struct kc_str group, const char *member);
/* A new member that leads the next generation, whatever steps the version asks for. */
struct joined cl_enter(struct bx_conn *c, int16_t version, struct kc_str group);
/* As the leader: everybody's assignment is "yours". */
int16_t cl_sync_group(struct bx_conn *c, int16_t version, struct kc_str group,
                      const struct joined *j, char assignment[64]);
int16_t cl_heartbeat(int16_t version, struct kc_str group, const struct joined *j);
int16_t cl_leave(int16_t version, struct kc_str group, const char *member);
/* j NULL: a simple consumer. */
int16_t cl_commit(int16_t version, struct kc_str group, const struct joined *j, int64_t offset,
                  int32_t partition);

struct fetched {
    int16_t group_error, error;
    int32_t n_topics;
    int64_t offset;
    char metadata[64];
};
/* Partition 0 of CL_TOPIC, or all that is committed. */
struct fetched cl_fetch(int16_t version, struct kc_str group, bool all);

#endif
