/* ks_fsck.h - `kaas-broker fsck`: verifies a volume offline and tells what a takeover would do.
 *
 * Reads only. Checks every chain (contiguous, every record's checksum, the rules of each record),
 * every batch under a seal (magic, epoch, offset continuity, CRC, lengths), and shows open epochs as
 * the next claimant would find them. Late bytes beyond a seal and left-over files are counted; they
 * are no errors (storage.md). Every name on the volume is looked at: what no broker makes, what a crash
 * left unfinished, and what is there but would not be served are told, too. */
#ifndef KS_FSCK_H
#define KS_FSCK_H

#include <stdio.h>

#include "base/kc_error.h"

struct ks_fsck_opts {
    const char *dir;
    bool verbose; /* every epoch and file, not only what is wrong or open */
    FILE *out;
};

struct ks_fsck_result {
    uint64_t topics, partitions, epochs, files, batches, bytes;
    uint64_t
        deleted; /* topics with a tombstone that are not gone yet: nothing of them is checked */
    uint64_t open_epochs; /* a takeover would fence and seal them */
    uint64_t zombie_bytes; /* beyond seals */
    uint64_t hints, bad_hints; /* checkpoints; those that do not verify are ignored by everybody */
    uint64_t leftovers; /* data files that no record names, or not any more */
    uint64_t temporary; /* names of something unfinished */
    uint64_t strange; /* names that no broker makes */
    uint64_t unlisted; /* topics without meta, partitions beyond what it says */
    uint64_t tombstones; /* of topics, gone or not */
    uint64_t live, fenced; /* claim files */
    uint64_t journals; /* of incarnations (ADR 13) */
    uint64_t errors;
};

/* 0: every partition verifies. KC_E_CORRUPT: at least one does not (ret->errors, lines in out).
 * Other codes: the volume could not be read. */
int ks_fsck(const struct ks_fsck_opts *opts, struct ks_fsck_result *ret, struct kc_err *err);
/* Over a given file system (borrowed); opts->dir is its name in messages. */
struct ks_fs;
int ks_fsck_on(const struct ks_fs *fs, const struct ks_fsck_opts *opts, struct ks_fsck_result *ret,
               struct kc_err *err);

/* `fsck --probe DIR`: the conformance probe alone; prints its result. */
int ks_fsck_probe(const char *dir, FILE *out, struct kc_err *err);

#endif
