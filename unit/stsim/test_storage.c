/* The storage engine under simulation (README.md). KAAS_SEED replays one run and those after it,
 * KAAS_SOAK=1 runs for minutes (KAAS_SOAK_SECONDS). */
#include "kt.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ss_world.h"

enum { FOUND = 42, MUTANT_SECONDS = 60 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void add(struct ss_run *sum, const struct ss_run *r)
{
    const uint64_t *from = (const uint64_t *)&r->counts;
    uint64_t *to = (uint64_t *)&sum->counts;
    for (size_t i = 0; i < sizeof(r->counts) / sizeof(uint64_t); i++) {
        to[i] += from[i];
    }
    for (int f = 0; f < SS_FAULTS; f++) {
        sum->faults[f] += r->faults[f];
    }
    sum->takeovers += r->takeovers;
    sum->switches += r->switches;
    sum->virtual_ms += r->virtual_ms - 1000000;
}

static void report(const struct ss_run *sum, int runs, double took)
{
    const struct ss_counts *c = &sum->counts;
    printf("%d runs in %.1f s (%.1f a second), %" PRId64 " virtual s, %" PRIu64 " switches\n", runs,
           took, runs / took, sum->virtual_ms / 1000, sum->switches);
    printf("  appends %" PRIu64 " (repeats %" PRIu64 "), acks %" PRIu64 ", refused %" PRIu64
           " (out of order %" PRIu64 "), reads %" PRIu64 " of %" PRIu64 " batches\n",
           c->appends, c->repeats, c->acks, c->refused, c->out_of_order, c->reads, c->batches_read);
    printf("  takeovers %" PRIu64 ", claims %" PRIu64 ", seals %" PRIu64 ", rolls %" PRIu64
           ", trims %" PRIu64 "\n ",
           sum->takeovers, c->claims, c->seals, c->rolls, c->trims);
    for (int f = 0; f < SS_FAULTS; f++) {
        printf(" %s %" PRIu64, ss_fault_name((enum ss_fault)f), sum->faults[f]);
    }
    printf("\n");
}

static void nothing_acknowledged_is_lost_and_no_offset_is_given_twice(void)
{
    const char *soak = getenv("KAAS_SOAK"), *limit = getenv("KAAS_SOAK_SECONDS");
    double max = soak ? (limit ? atof(limit) : 600) : 8, start = seconds();
    struct ss_run sum = {0};
    uint64_t seed = kt_seed();
    int runs = 0;
    do {
        struct ss_run r = {.seed = seed + (uint64_t)runs};
        bool ok = ss_world_run(&r);
        if (!ok) {
            printf("KAAS_SEED=%" PRIu64 ": %s\n", r.seed, r.broken);
        }
        KT_TRUE(ok);
        add(&sum, &r);
        runs++;
        if (!ok) {
            break;
        }
    } while (seconds() - start < max);
    KT_TRUE(sum.counts.acks >= 150 * (uint64_t)runs);
    report(&sum, runs, seconds() - start);
}

static void equal_seeds_give_equal_runs(void)
{
    struct ss_run a = {.seed = kt_seed()}, b = {.seed = kt_seed()};
    ss_world_run(&a);
    ss_world_run(&b);
    KT_TRUE(a.trace == b.trace);
    KT_EQ(a.switches, b.switches);
    KT_EQ(a.counts.acks, b.counts.acks);
}

/* In a process of its own: a broken engine may also trip over an assertion of its own, which counts
 * as found, too. */
static void must_find(const char *name, enum ss_mutant mutant, enum ss_lie lie)
{
    uint64_t seed = kt_seed();
    double start = seconds();
    fflush(stdout);
    pid_t pid = fork();
    KT_REQUIRE(pid >= 0);
    if (pid == 0) {
        for (int i = 0; seconds() - start < MUTANT_SECONDS; i++) {
            struct ss_run r = {.seed = seed + (uint64_t)i, .mutant = mutant, .lie = lie};
            if (!ss_world_run(&r)) {
                printf("  %s: run %d: %s\n", name, i + 1, r.broken);
                fflush(stdout);
                _exit(FOUND);
            }
        }
        _exit(0);
    }
    int status = 0;
    KT_REQUIRE(waitpid(pid, &status, 0) == pid);
    KT_TRUE((WIFEXITED(status) && WEXITSTATUS(status) == FOUND) ||
            (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT));
    printf("  %s: %.1f s\n", name, seconds() - start);
}

#define FINDS(fn, mutant, lie)                                                                     \
    static void fn(void)                                                                           \
    {                                                                                              \
        must_find(#fn, mutant, lie);                                                               \
    }

FINDS(a_check_from_the_cache_is_found, SS_SOUND, SS_STAT_CACHED)
FINDS(a_sync_that_does_nothing_is_found, SS_SOUND, SS_SYNC_NOTHING)
FINDS(a_link_that_overwrites_is_found, SS_SOUND, SS_LINK_OVERWRITES) /* M5, M7 */
FINDS(m2_check_before_the_write_is_found, SS_M2_CHECK_BEFORE_WRITE, SS_HONEST)
FINDS(m3_no_check_is_found, SS_M3_NO_CHECK, SS_HONEST)
FINDS(m4_no_fence_is_found, SS_M4_NO_FENCE, SS_HONEST)
FINDS(m6_own_length_is_found, SS_M6_OWN_LENGTH, SS_HONEST)
FINDS(m8_unlink_first_is_found, SS_M8_UNLINK_FIRST, SS_HONEST)
FINDS(m10_ack_before_roll_is_found, SS_M10_ACK_BEFORE_ROLL, SS_HONEST)
FINDS(m12_empty_seal_is_found, SS_M12_EMPTY_SEAL, SS_HONEST)
FINDS(m13_going_on_after_a_lost_claim_is_found, SS_M13_GO_ON, SS_HONEST)

KT_MAIN("storage", KT(nothing_acknowledged_is_lost_and_no_offset_is_given_twice),
        KT(equal_seeds_give_equal_runs), KT(a_check_from_the_cache_is_found),
        KT(a_sync_that_does_nothing_is_found), KT(a_link_that_overwrites_is_found),
        KT(m2_check_before_the_write_is_found), KT(m3_no_check_is_found), KT(m4_no_fence_is_found),
        KT(m6_own_length_is_found), KT(m8_unlink_first_is_found), KT(m10_ack_before_roll_is_found),
        KT(m12_empty_seal_is_found), KT(m13_going_on_after_a_lost_claim_is_found))
