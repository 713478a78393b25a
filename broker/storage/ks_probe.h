/* ks_probe.h - does a volume keep the promises that the log is built on? (storage.md)
 *
 * Exclusive links, link counts, forced attribute reads, directory sync; measures the latency of a
 * sync. Leaves nothing behind. Blocking. */
#ifndef KS_PROBE_H
#define KS_PROBE_H

#include "storage/ks_fs.h"

struct ks_probe {
    int64_t sync_us; /* 4 KiB written and synced */
};

/* 0, or KC_E_UNSUPPORTED with the promise that is broken, or -errno. */
int ks_probe_run(struct ks_fs *fs, struct ks_probe *ret, struct kc_err *err);

#endif
