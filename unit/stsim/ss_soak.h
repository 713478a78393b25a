/* ss_soak.h - many runs in several processes, one sum; and the search for each flaw. */
#ifndef SS_SOAK_H
#define SS_SOAK_H

#include "ss_world.h"

enum { SS_FULL_SEEDS = 100000, SS_FULL_HITS = 1000, SS_FLAW_SECONDS = 60 };

struct ss_sum {
    uint64_t runs;
    struct ss_counts counts;
    struct ss_hits hits;
    uint64_t effects[SS_EFFECTS];
    uint64_t takeovers, switches;
    int64_t virtual_ms;
};
void ss_sum_add(struct ss_sum *to, const struct ss_run *r);
void ss_sum_print(const struct ss_sum *sum, double seconds, double cpu_seconds);

/* Seeds from .. from + n - 1 in that many processes; prints violations with their seeds, and the
 * sum. False: something was violated, or a pair of a fault and a step was hit too rarely for so many
 * runs. */
bool ss_soak(uint64_t from, uint64_t n, int jobs);

/* An engine, or a file system, that breaks one rule. */
struct ss_flaw {
    const char *name;
    enum ss_mutant mutant;
    enum ss_lie lie;
};
extern const struct ss_flaw ss_flaws[];
extern const int ss_n_flaws;
/* Prints what was found; false: nothing within SS_FLAW_SECONDS of processor time. */
bool ss_flaw_find(const struct ss_flaw *f, uint64_t seed);

double ss_seconds(void); /* of the real clock */

#endif
