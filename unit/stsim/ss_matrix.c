/* Which faults can meet which steps, and the table of how often they did. */
#include <inttypes.h>
#include <stdio.h>

#include "ss_step.h"

/* Steps of one kind; what is left out here can be struck by everything. */
enum {
    READING = SS_BIT(SS_S_SCAN) | SS_BIT(SS_S_REBUILD) | SS_BIT(SS_S_CHAIN) |
              SS_BIT(SS_S_TOMBSTONE) | SS_BIT(SS_S_CHECK) | SS_BIT(SS_S_READ) | SS_BIT(SS_S_FRAMES),
    RECORDS = SS_BIT(SS_S_CLAIM) | SS_BIT(SS_S_SEAL) | SS_BIT(SS_S_OWN_SEAL) | SS_BIT(SS_S_ROLL) |
              SS_BIT(SS_S_TRIM) | SS_BIT(SS_S_COMPACT),
    TAKEOVERS = SS_BIT(SS_S_OPEN) | SS_BIT(SS_S_GO) | SS_BIT(SS_S_RECOVER) | SS_BIT(SS_S_CANCEL),
    LISTING = SS_BIT(SS_S_CHAIN) | SS_BIT(SS_S_TOMBSTONE) | SS_BIT(SS_S_PREPARE) | TAKEOVERS |
              SS_BIT(SS_S_REMOVE) | SS_BIT(SS_S_REBUILD) | SS_BIT(SS_S_FRAMES),
    /* Reads files that somebody else may have written to meanwhile. */
    STALE = SS_BIT(SS_S_CHAIN) | SS_BIT(SS_S_PREPARE) | SS_BIT(SS_S_OPEN) | SS_BIT(SS_S_CANCEL) |
            SS_BIT(SS_S_READ),
    /* Allocates something that it can do without. */
    ALLOCATING = RECORDS | TAKEOVERS | SS_BIT(SS_S_CHAIN) | SS_BIT(SS_S_SCAN) | SS_BIT(SS_S_COPY) |
                 SS_BIT(SS_S_REBUILD) | SS_BIT(SS_S_TOMBSTONE) | SS_BIT(SS_S_PREPARE) |
                 SS_BIT(SS_S_REMOVE) | SS_BIT(SS_S_CLEAN) | SS_BIT(SS_S_JOURNAL) |
                 SS_BIT(SS_S_FRAMES),
    FENCES = SS_BIT(SS_S_FENCE) | SS_BIT(SS_S_OPEN) | SS_BIT(SS_S_GO) | SS_BIT(SS_S_CANCEL),
    /* Makes or fills files, or links them. */
    FILLING = RECORDS | TAKEOVERS | SS_BIT(SS_S_REGISTER) | SS_BIT(SS_S_CLAIM_FILE) |
              SS_BIT(SS_S_DATA_FILE) | SS_BIT(SS_S_COPY) | SS_BIT(SS_S_WRITE) | SS_BIT(SS_S_SYNC) |
              SS_BIT(SS_S_PREPARE) | SS_BIT(SS_S_REMOVE) | SS_BIT(SS_S_CLEAN) |
              SS_BIT(SS_S_JOURNAL) | SS_BIT(SS_S_BEHIND),
    LINKING = RECORDS | TAKEOVERS | SS_BIT(SS_S_REGISTER) | SS_BIT(SS_S_CLAIM_FILE) |
              SS_BIT(SS_S_FENCE) | SS_BIT(SS_S_UNLINK) | SS_BIT(SS_S_REMOVE) |
              SS_BIT(SS_S_PREPARE) | SS_BIT(SS_S_CLEAN)
};

/* Pairs that cannot meet, or only after another fault of the same thread. First match. */
static const struct rule {
    uint32_t faults, steps;
    const char *why;
} excuses[] = {
#define F(f) (1u << SS_F_##f)
    {F(EIO) | F(ESTALE) | F(ENOSPC) | F(WRITE_ERROR) | F(LOST_REPLY) | F(LATE) | F(STALE_NAME) |
         F(STALE_READ) | F(TORN_LISTING) | F(NO_MEMORY),
     SS_BIT(SS_S_ACK), "a message between threads: no request is made, no fallible allocation"},
    {F(EIO) | F(ESTALE) | F(LOST_REPLY) | F(LATE), SS_BIT(SS_S_WRITE),
     "a write goes to the client's pages, not to the server; its errors are those of write-back"},
    {F(ENOSPC) | F(WRITE_ERROR), ~(uint32_t)FILLING,
     "nothing is written, made or linked, or (fence) only where the name was not found"},
    {F(WRITE_ERROR), SS_BIT(SS_S_DATA_FILE) | SS_BIT(SS_S_PREPARE), "the file is empty so far"},
    {F(WRITE_ERROR), SS_BIT(SS_S_REMOVE), "the tombstone's eight bytes are all it writes"},
    {F(LOST_REPLY), READING | SS_BIT(SS_S_DIR_SYNC), "what changes nothing may as well fail"},
    {F(LATE), ~(uint32_t)LINKING,
     "only links, removals and truncations are done after their sender gave up"},
    {F(LATE), SS_BIT(SS_S_PREPARE), "it removes a file only after another fault"},
    {F(STALE_NAME), ~(uint32_t)FENCES,
     "names are looked up when they are known to exist; only the fence meets an unknown one"},
    {F(STALE_READ), ~(uint32_t)STALE,
     "it opens files anew and drops what is cached: only what lands in that moment, or nothing"},
    {F(NO_MEMORY), SS_BIT(SS_S_OWN_SEAL), "its room is allocated before, where it counts as none"},
    {F(NO_MEMORY), ~(uint32_t)ALLOCATING,
     "no allocation that may fail, or (read) one that is made before its first request"},
    {F(TORN_LISTING), ~(uint32_t)LISTING, "it lists no directory"},
#undef F
};

const char *ss_excused(enum ss_fault f, enum ss_step s)
{
    for (size_t i = 0; i < KC_ARRAY_LEN(excuses); i++) {
        const struct rule *r = &excuses[i];
        if ((r->faults >> f & 1) && (r->steps & SS_BIT(s))) {
            return r->why;
        }
    }
    return NULL;
}

static void print_table(const struct ss_hits *h)
{
    printf("%-11s", "");
    for (int f = 0; f < SS_FAULTS; f++) {
        printf(" %11s", ss_fault_name((enum ss_fault)f));
    }
    printf("\n");
    for (int s = 0; s < SS_STEPS; s++) {
        printf("%-11s", ss_step_name((enum ss_step)s));
        for (int f = 0; f < SS_FAULTS; f++) {
            uint64_t n = h->at[f][s];
            if (!ss_excused((enum ss_fault)f, (enum ss_step)s)) {
                printf(" %11" PRIu64, n);
            } else if (n) {
                printf(" %10" PRIu64 "*", n);
            } else {
                printf(" %11s", "-");
            }
        }
        printf("\n");
    }
}

uint64_t ss_matrix_print(const struct ss_hits *h, uint64_t need)
{
    uint64_t rare = 0;
    print_table(h);
    for (int i = 0; i < SS_STEPS * SS_FAULTS; i++) {
        enum ss_step step = (enum ss_step)(i / SS_FAULTS);
        enum ss_fault fault = (enum ss_fault)(i % SS_FAULTS);
        if (!ss_excused(fault, step) && h->at[fault][step] < need) {
            printf("too rare: %s at %s, %" PRIu64 " times\n", ss_fault_name(fault),
                   ss_step_name(step), h->at[fault][step]);
            rare++;
        }
    }
    return rare;
}
