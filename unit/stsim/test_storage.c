/* The storage engine under simulation (README.md). KAAS_SEED replays one run and those after it;
 * kaas-sim does this in earnest, with many more. */
#include "kt.h"

#include <inttypes.h>

#include "ss_soak.h"

enum { SECONDS = 8 };

static void nothing_acknowledged_is_lost_and_no_offset_is_given_twice(void)
{
    double start = ss_seconds();
    struct ss_sum sum = {0};
    uint64_t seed = kt_seed();
    bool ok = true;
    while (ok && ss_seconds() - start < SECONDS) {
        struct ss_run r = {.seed = seed + sum.runs};
        ok = ss_world_run(&r);
        if (!ok) {
            printf("seed %" PRIu64 ": %s\n", r.seed, r.broken);
        }
        KT_TRUE(ok);
        ss_sum_add(&sum, &r);
    }
    ss_sum_print(&sum, ss_seconds() - start, 0);
    ss_matrix_print(&sum.hits, 0);
}

static void equal_seeds_give_equal_runs(void)
{
    struct ss_run a = {.seed = kt_seed()}, b = a;
    ss_world_run(&a);
    ss_world_run(&b);
    KT_TRUE(a.trace == b.trace);
    KT_EQ(a.switches, b.switches);
    KT_EQ(a.counts.acks, b.counts.acks);
}

KT_MAIN("storage", KT(nothing_acknowledged_is_lost_and_no_offset_is_given_twice),
        KT(equal_seeds_give_equal_runs))
