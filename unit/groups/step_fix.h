/* step_fix.h - a group under virtual time: requests go in, answers are kept by request. */
#ifndef STEP_FIX_H
#define STEP_FIX_H

#include "groups/kg_step.h"

enum { FX_REQS = 64 };

struct fx_answer {
    int count; /* how often this request was answered */
    bool join;
    int16_t error;
    int32_t generation;
    char leader[64], member[64], protocol[64];
    bool skip;
    int32_t n_members;
    char first_member[64], first_metadata[64], assignment[64];
};

struct fx {
    struct kg_config cfg;
    struct kg_step step;
    struct kg_group group;
    int64_t now;
    int n_reqs;
    struct fx_answer answers[FX_REQS];
    int n_persists; /* asked for so far */
    enum kg_persist persist;
    int32_t persist_generation;
    char persist_member[64];
    bool auto_persist; /* appends succeed at once (default) */
};

struct fx_join {
    const char *id; /* member id; NULL = "" */
    const char *instance; /* NULL = dynamic */
    const char *new_id; /* what a new member is to be called */
    const char *protocols; /* "range:meta,roundrobin:meta"; NULL = "range:x" */
    const char *type; /* NULL = "consumer" */
    bool two_step; /* v4+ */
    bool can_skip; /* v9+ */
    int32_t session_ms, rebalance_ms; /* 0 = 10 s, 60 s */
};

void fx_init(struct fx *f);
void fx_fini(struct fx *f);
/* Return the number of the request, an index of answers. */
int fx_join(struct fx *f, struct fx_join j);
/* assignments: "id=bytes,id=bytes" or NULL. */
int fx_sync(struct fx *f, const char *id, int32_t generation, const char *assignments);
int16_t fx_beat(struct fx *f, const char *id, int32_t generation);
int16_t fx_leave(struct fx *f, const char *id, const char *instance);
int16_t fx_commit(struct fx *f, const char *id, int32_t generation);
void fx_persisted(struct fx *f, int16_t error);
/* Lets time pass; deadlines fire in order, each at its time. */
void fx_pass(struct fx *f, int64_t ms);
struct fx_answer *fx_at(struct fx *f, int req);
/* Two members "a" (leader) and "b" of generation 1, which wait for their assignments. */
void fx_two_joined(struct fx *f);
/* Two members "a" (leader) and "b" in a stable generation 1, assignments "1" and "2". */
void fx_two_stable(struct fx *f);

#endif
