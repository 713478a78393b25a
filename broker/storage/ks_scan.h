/* ks_scan.h - walks the batches of a data file: the longest valid prefix, in bounded memory.
 *
 * Blocking; pool threads only. */
#ifndef KS_SCAN_H
#define KS_SCAN_H

#include "storage/ks_batch.h"
#include "storage/ks_fs.h"

/* Nonzero stops the walk and is returned. */
typedef int (*ks_scan_fn)(void *arg, const struct ks_batch *b, uint64_t pos);

struct ks_scan {
    int fd;
    int32_t epoch; /* every batch must carry it (I9) */
    uint64_t limit; /* bytes that count; UINT64_MAX = up to the end of the file */
    int64_t end; /* offset to stop at; INT64_MAX = none */
    bool crc; /* verify checksums */
    /* in: where to start; out: behind the last valid batch */
    uint64_t pos;
    int64_t next;
    uint32_t last_crc; /* CRC field of the last batch walked; unchanged if there is none */
};

/* 0: walked up to limit, end or the first byte that is no valid batch; the caller compares.
 * Negative: an error of the file or of fn. */
int ks_scan(struct ks_fs *fs, struct ks_scan *s, ks_scan_fn fn, void *arg);

#endif
