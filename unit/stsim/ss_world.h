/* ss_world.h - one run: three brokers that fight for two partitions over one simulated volume. */
#ifndef SS_WORLD_H
#define SS_WORLD_H

#include "ss_check.h"
#include "ss_mutant.h"

struct ss_run {
    uint64_t seed;
    enum ss_mutant mutant;
    enum ss_lie lie;
    /* results */
    char broken[512]; /* "" = no invariant was violated */
    uint64_t trace, switches;
    int64_t virtual_ms;
    uint64_t takeovers, effects[SS_EFFECTS];
    struct ss_hits hits;
    struct ss_counts counts;
};
/* True: nothing was violated. */
bool ss_world_run(struct ss_run *run);

#endif
