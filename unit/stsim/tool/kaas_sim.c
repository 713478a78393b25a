/* kaas-sim - runs the simulation of the storage engine (unit/stsim/README.md).
 *
 *   kaas-sim [--seeds N] [--from SEED] [--jobs J]   N runs; 1 with --from replays that seed
 *   kaas-sim --flaws                                every mutant must be found
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/kc_str.h"
#include "ss_soak.h"

static int usage(void)
{
    fprintf(stderr,
            "usage: kaas-sim [--seeds N] [--from SEED] [--jobs J] | --flaws [--from SEED]\n");
    return 2;
}

static int find_flaws(uint64_t from)
{
    int found = 0;
    for (int i = 0; i < ss_n_flaws; i++) {
        found += ss_flaw_find(&ss_flaws[i], from);
    }
    printf("%d of %d flaws found within %d s each\n", found, ss_n_flaws, SS_FLAW_SECONDS);
    return found == ss_n_flaws ? 0 : 1;
}

int main(int argc, char **argv)
{
    int64_t n = 1000, from = 1, jobs = sysconf(_SC_NPROCESSORS_ONLN);
    bool flaws = false;
    for (int i = 1; i < argc; i++) {
        int64_t *to = strcmp(argv[i], "--seeds") == 0  ? &n
                      : strcmp(argv[i], "--from") == 0 ? &from
                      : strcmp(argv[i], "--jobs") == 0 ? &jobs
                                                       : NULL;
        if (strcmp(argv[i], "--flaws") == 0) {
            flaws = true;
        } else if (!to || ++i == argc || kc_parse_i64(kc_str_of(argv[i]), to) || *to < 1) {
            return usage();
        }
    }
    if (flaws) {
        return find_flaws((uint64_t)from);
    }
    return ss_soak((uint64_t)from, (uint64_t)n, (int)KC_MIN(jobs, (int64_t)64)) ? 0 : 1;
}
