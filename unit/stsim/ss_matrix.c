/* Which faults can meet which steps, and the table of how often they did. */
#include <inttypes.h>
#include <stdio.h>

#include "ss_step.h"

const char *ss_impossible(enum ss_fault f, enum ss_step s)
{
    (void)f;
    (void)s;
    return NULL;
}

void ss_matrix_print(const struct ss_hits *h)
{
    printf("%-11s", "");
    for (int f = 0; f < SS_FAULTS; f++) {
        printf(" %10s", ss_fault_name((enum ss_fault)f));
    }
    printf("\n");
    for (int s = 0; s < SS_STEPS; s++) {
        printf("%-11s", ss_step_name((enum ss_step)s));
        for (int f = 0; f < SS_FAULTS; f++) {
            if (ss_impossible((enum ss_fault)f, (enum ss_step)s)) {
                printf(" %10s", "-");
            } else {
                printf(" %10" PRIu64, h->at[f][s]);
            }
        }
        printf("\n");
    }
}
