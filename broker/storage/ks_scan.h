/* ks_scan.h - walks the batches of a data file: the longest valid prefix, in bounded memory; where
 * an epoch that nobody sealed ends, and how its tail is made safe (ADR 10).
 *
 * Blocking; pool threads only. */
#ifndef KS_SCAN_H
#define KS_SCAN_H

#include <assert.h>

#include "storage/ks_batch.h"
#include "storage/ks_frames.h"
#include "storage/ks_rec.h"

/* Nonzero stops the walk and is returned. */
typedef int (*ks_scan_fn)(void *arg, const struct ks_batch *b, uint64_t pos);

struct ks_scan {
    int fd;
    struct ks_overlay frames; /* laid over the file (ADR 13); zero = none */
    int32_t epoch; /* every batch must carry it (I9) */
    bool gaps; /* a compacted file: offsets grow, but may be left out, and epochs grow from
                  first_epoch to epoch */
    int32_t first_epoch;
    uint64_t limit; /* bytes that count; UINT64_MAX = up to the end of the file */
    int64_t end; /* offset to stop at; INT64_MAX = none */
    bool crc; /* verify checksums */
    /* With crc: gets the bytes of each batch in pieces, as they are verified; that they were valid is
     * known when the walk has gone past them. Nonzero stops. */
    int (*sink)(void *arg, const uint8_t *p, size_t n);
    void *sink_arg;
    /* in: where to start; out: behind the last valid batch */
    uint64_t pos;
    int64_t next;
    uint64_t read; /* bytes read so far */
    uint32_t last_crc; /* CRC field of the last batch walked; unchanged if there is none */
};

/* Whether b may be the next batch, by its header. */
bool ks_scan_fits(const struct ks_scan *s, const struct ks_batch *b);
/* 0: walked up to limit, end or the first byte that is no valid batch; the caller compares.
 * Negative: an error of the file or of fn. */
int ks_scan(struct ks_fs *fs, struct ks_scan *s, ks_scan_fn fn, void *arg);

/* ---- the end of an epoch that nobody sealed ---- */

/* ADR 10: an owner has at most this many bytes (or one batch, if that is larger) in a data file that
 * no sync has confirmed, so of what a claimant reads there all but the last so many are durable. Part
 * of the protocol between versions: the file may be of an older version, or of a newer one. */
enum {
    KS_UNCONFIRMED_MAX = 1024 * 1024, /* of this version's owners: may become less, never more */
    KS_UNCONFIRMED_EVER = 1024 * 1024 /* of any version's, so claimants go by it: never less */
};
static_assert(KS_UNCONFIRMED_MAX <= KS_UNCONFIRMED_EVER, "a claimant would take too little");

struct ks_epoch_scan {
    struct ks_fs *fs;
    struct kc_uuid topic;
    int32_t partition;
    const struct ks_chain *chain;
    const struct ks_epoch *epoch;
    uint64_t unconfirmed; /* KS_UNCONFIRMED_EVER */
    const struct ks_frames *frames; /* of the epoch's incarnation, or NULL */
    int64_t limit; /* offsets from here on do not count; INT64_MAX = none */
    /* Where to start: a snapshot of the epoch's owner. It was written only after everything before
     * that position was synced and acknowledged, so that much is whole, durable, and part of the
     * epoch whatever else is found (ADR 14). NULL: at the epoch's base. */
    const struct ks_scan_start {
        struct ks_file_id file;
        uint64_t pos;
        int64_t next;
        uint32_t crc; /* of the batch before it; 0 = none */
    } * from;
    /* out: the longest valid prefix of the epoch's files */
    int fd; /* of `file`, which the caller closes; -1 = none */
    struct ks_file_id file;
    int64_t end;
    uint64_t len;
    uint32_t crc;
    struct ks_overlay overlay; /* the frames of `file` */
    /* The first batch that reaches into the last `unconfirmed` bytes of it or into a frame, and the
     * checksum of the one before. tail_pos = len: all of it is durable. */
    uint64_t tail_pos;
    int64_t tail_base;
    uint32_t tail_crc;
    uint64_t read; /* bytes read */
};

/* Base and files are the chain's. KC_E_CORRUPT: a file that the chain names is gone. */
int ks_epoch_scan(struct ks_epoch_scan *s, struct kc_err *err);
/* What a SEAL says of an epoch that ends there, all in its own files. */
void ks_epoch_seal(const struct ks_epoch_scan *s, struct ks_rec *ret);
/* Writes the tail, unchanged, to an empty file and syncs that. Fills ret->seal with both parts; if
 * there was nothing left to copy, with one (ret->seal.rescued). The directory is not synced. */
int ks_tail_copy(const struct ks_epoch_scan *s, int to, struct ks_file_id id, struct ks_rec *ret);

#endif
