/* coord_fix.h - a coordinator on a fake log under virtual time. */
#ifndef COORD_FIX_H
#define COORD_FIX_H

#include "groups/kg_coord.h"

enum { CX_REQS = 32, CX_APPENDS = 64, CX_LOG = 1 << 20 };

struct cx_append {
    size_t len;
    uint8_t *bytes;
    ks_append_done done;
    void *ctx;
};

struct cx_answer {
    struct kg_waiter waiter;
    int count;
    int16_t error;
    int32_t generation;
    char member[128], leader[128], assignment[64];
};

struct cx {
    struct kg_config cfg;
    struct kg_coord *coord;
    struct kg_shard *shard;
    int64_t now, wall, fence_age, wake_at;
    /* one log for all slots: the tests use one group, or slots apart by cx_group */
    uint8_t *log;
    size_t log_len;
    int64_t end_offset;
    size_t read_bytes; /* most bytes a read returns; whole batches */
    bool manual; /* appends wait for cx_ack */
    int n_appends;
    struct cx_append appends[CX_APPENDS];
    struct rt_msg *later;
    int16_t fail_next; /* error of the next append that is performed */
    int n_reqs;
    struct cx_answer answers[CX_REQS];
};

void cx_init(struct cx *x); /* with the slot of "g" open and loaded */
void cx_fini(struct cx *x);
void cx_open(struct cx *x); /* opens the slot; loading needs cx_turns */
void cx_close(struct cx *x);
void cx_turns(struct cx *x); /* runs what was put off */
void cx_ack(struct cx *x, int16_t error); /* the oldest append ends */
void cx_pass(struct cx *x, int64_t ms);

struct cx_answer *cx_join(struct cx *x, const char *member, const char *client, int session_ms);
struct cx_answer *cx_sync(struct cx *x, const char *member, int32_t generation,
                          const char *assign_to, const char *bytes);
/* -100 while the answer is out. */
struct cx_commit {
    struct kg_commit c;
    struct kg_commit_part part;
    bool done;
};
void cx_commit(struct cx *x, struct cx_commit *c, const char *member, int32_t generation,
               const char *topic, int32_t partition, int64_t offset);
/* The visible offset, -1 if there is none, -100 - error if the group cannot be asked. */
int64_t cx_offset(struct cx *x, const char *topic, int32_t partition);
/* Joins and syncs a single member: stable in the next generation; its id goes to `member`. */
void cx_stable(struct cx *x, char member[128]);

#define CX_GROUP KC_STR_LIT("g")

#endif
