/* ss_mutant.h - the engine with one rule of storage.md broken, by switches that the linker puts
 * between its functions (--wrap). The numbers are
 * storage.md's. */
#ifndef SS_MUTANT_H
#define SS_MUTANT_H

#include "storage/ks_fs.h"
#include "storage/ks_rec.h"

enum ss_mutant {
    SS_SOUND,
    SS_M1_SCAN_BEFORE_FENCE,
    SS_M2_CHECK_BEFORE_WRITE,
    SS_M3_NO_CHECK,
    SS_M4_NO_FENCE,
    SS_M5_SEAL_OVERWRITTEN, /* whoever loses the race for a SEAL replaces it */
    SS_M6_OWN_LENGTH, /* a lost link of a SEAL counts as won */
    SS_M7_GAP, /* a CLAIM takes the name after the next one */
    SS_M8_UNLINK_FIRST, /* files go before their TRIM stands */
    SS_M9_NO_RECORD, /* after an error on a file the epoch goes on in another one: nobody is told, */
    SS_M9B_ISSUED, /* or by a ROLL that counts what was issued, not what was acked, */
    SS_M9D_BY_SIZE, /* or by a right ROLL, but scans go by the size of the file before it */
    SS_M10_ACK_BEFORE_ROLL, /* a ROLL's link is left out */
    SS_M12_EMPTY_SEAL, /* an epoch that may have opened is sealed empty */
    SS_M13_GO_ON, /* a lost link of a CLAIM counts as won */
    /* ADR 10; the names are those of e2e/model/crash.pml. */
    SS_C1_NO_COPY, /* the tail is sealed where it stands */
    SS_C3_COPY_NOT_SYNCED, /* before the SEAL */
    SS_C4_UNCONFIRMED, /* an owner leaves more bytes unconfirmed than a claimant copies */
    SS_C4_BESIDE, /* a sync behind counts for what was written beside it, too */
    SS_C_SYNC_ONLY, /* a sync by somebody who wrote nothing instead of a copy */
    SS_I10_NO_CHECK, /* a coordinator answers whatever the age of the fence check */
    /* Compaction. */
    SS_K1_UNLINK_FIRST, /* replaced files go before the COMPACT stands (M8) */
    SS_K2_NOT_SYNCED, /* the replacement, before the COMPACT */
    SS_K3_GO_ON, /* a lost link of a COMPACT counts as won: it hands over though it lost the claim */
    SS_K4_DOUBT_IS_LOSS, /* the replacement goes when the reply to the COMPACT is lost (ADR 12) */
    SS_K5_LAST_OF_KEY, /* the record at the end of what is cleaned counts as superseded */
    SS_K6_ONE_OF_PRODUCER, /* of each producer one batch stays, not all that it may repeat */
    SS_K7_MOVED, /* what is left of a batch moves to another offset */
    SS_K8_NEW_EPOCH, /* or gets another epoch (I9) */
    /* ADR 13; the numbers are its rules'. */
    SS_J1_ACK_FIRST, /* a turn is acked before its journal is synced */
    SS_J2_NOT_BEHIND, /* a journal goes without the syncs of its files */
    SS_J2_ERROR, /* or although one of them failed */
    SS_J3_NOT_READ, /* claimants ignore journals */
    SS_J3_EARLY, /* or read them before the fence */
    SS_J4_BELIEVED, /* a second sync of a journal after an error counts */
    SS_J5_OWN_SEAL /* a planned SEAL at what only the journal has */
};
void ss_mutate(enum ss_mutant m);
enum ss_mutant ss_mutant_now(void);

/* The unbroken fold, for the checker. */
int ss_chain_apply(struct ks_chain *c, const struct ks_rec *r, struct kc_err *err);

/* ---- for ss_engine.c ---- */

struct ks_task;
void ss_mutant_reset(void);
void ss_put_off_forget(void); /* of a takeover that ended otherwise */
void ss_put_off_fence(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation);
bool ss_take_fence(struct ks_fs **ret_fs, int32_t *ret_broker, struct kc_uuid *ret_incarnation);
void ss_put_off_close(struct ks_fs *fs, int fd);
bool ss_put_off_is(int fd);
int ss_take_close(void); /* -1 = nothing was put off */
int ss_overwrite_record(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition,
                        const struct ks_rec *r);
/* After an error on the file of a turn, instead of a new claim. */
void ss_go_on_in_second_file(struct ks_task *t, enum ss_mutant m);

#endif
