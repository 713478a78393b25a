/* ss_mutant.h - the engine with one rule of storage.md broken, by switches that the linker puts
 * between its functions (--wrap). The numbers are storage.md's. */
#ifndef SS_MUTANT_H
#define SS_MUTANT_H

#include "storage/ks_rec.h"

enum ss_mutant {
    SS_SOUND,
    SS_M2_CHECK_BEFORE_WRITE,
    SS_M3_NO_CHECK,
    SS_M4_NO_FENCE,
    SS_M6_OWN_LENGTH, /* a lost link of a SEAL counts as won */
    SS_M8_UNLINK_FIRST, /* files go before their TRIM stands */
    SS_M10_ACK_BEFORE_ROLL, /* a ROLL's link is left out */
    SS_M12_EMPTY_SEAL, /* an epoch that may have opened is sealed empty */
    SS_M13_GO_ON /* a lost link of a CLAIM counts as won */
};
void ss_mutate(enum ss_mutant m);

/* The unbroken fold, for the checker. */
int ss_chain_apply(struct ks_chain *c, const struct ks_rec *r, struct kc_err *err);

#endif
