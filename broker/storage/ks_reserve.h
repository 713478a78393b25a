/* ks_reserve.h - bytes that lie on the volume to be given up when it is full (ks_room.h).
 *
 *   inc/<broker>/reserve.<n>          a piece: KS_RESERVE_PIECE bytes that mean nothing
 *
 * Pieces are the broker's, not an incarnation's: whoever runs as this broker finds, gives up and
 * writes them. Their bytes are random and written, not allocated: a file system that compresses, or
 * copies on write, keeps no promise made by fallocate, and NFS before 4.2 has none.
 *
 * A piece is given up for a chain record, the first file of a claim, a claim file, a fence, a
 * tombstone, the copy of a tail (ADR 10); never for records, snapshots, indexes, journals or what the
 * cleaner writes. */
#ifndef KS_RESERVE_H
#define KS_RESERVE_H

#include <pthread.h>

#include "rt/rt_pool.h"
#include "storage/ks_room.h"

struct ks_reserve {
    pthread_mutex_t lock; /* guards what follows; never held over I/O */
    struct ks_room room;
    uint64_t there[KS_RESERVE_PIECES / 64]; /* pieces by number */
    _Atomic uint32_t have; /* so many */
    bool busy; /* a look or a trial is under way */
    bool trial;
    int64_t look_ms; /* monotonic: the next look at the free bytes */
    struct rt_work work;
    int64_t bytes; /* of ks_opts */
    _Atomic int state; /* room.state, for readers without the lock */
    _Atomic int64_t free_bytes; /* -1 = not known */
    _Atomic uint64_t refused; /* errors that say that the volume takes no bytes */
};

void ks_reserve_init(struct ks_engine *e, int64_t bytes);
void ks_reserve_fini(struct ks_engine *e);
/* [blocking] At the start, before anything is written: what an earlier process left. */
void ks_reserve_find(struct ks_engine *e);
/* Watch thread, each round. True: appends have just been stopped, or are still: room is wanted. */
bool ks_reserve_tick(struct ks_engine *e);
bool ks_reserve_may_retry(struct ks_engine *e);
uint64_t ks_reserve_bytes(struct ks_engine *e); /* that lie there; lock-free */

#endif
