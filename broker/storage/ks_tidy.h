/* ks_tidy.h - what earlier lives and deleted topics left on the volume goes, in the background.
 *
 *   claim files and journals   of incarnations of this broker that were there before the present one was
 *                              made: fence, then look through all chains for an unsealed epoch that
 *                              names it, then unlink the journals, then the claim file (ADR 11; ADR 13,
 *                              J8). Only once the present one has claimed something: then the image
 *                              names it, so the earlier ones are condemned, and a paused earlier one
 *                              never takes a later one for old.
 *   topics with a tombstone    whose directory is still there, or again (ADR 11)
 *   tmp.*                      names of publications that ended in between, seen ten minutes ago. They
 *                              are used once, by one link soon after they are made; that link fails
 *                              when the name is gone, and nothing else does.
 *
 * A round is many steps; each does a bounded amount of work on the pool of hints and is asked for by
 * the watch thread. What fails is tried again in a later round: nothing waits for this. */
#ifndef KS_TIDY_H
#define KS_TIDY_H

#include <pthread.h>

#include "base/kc_uuid.h"
#include "rt/rt_pool.h"

struct ks_engine;

enum {
    KS_TIDY_MS = 600000, /* between rounds, and the age of a tmp.* that goes */
    KS_TIDY_OLD_MAX = 1024, /* incarnations a round deals with */
    KS_TIDY_CHAINS = 64, /* a step reads */
    KS_TIDY_TMPS = 1024 /* names a round remembers */
};

struct ks_tidy {
    pthread_mutex_t lock; /* guards what follows */
    bool busy, wanted; /* a step is under way; a round is asked for */
    bool running; /* a round is under way */
    int64_t next_ms; /* monotonic */
    struct kc_uuid made; /* the incarnation that was registered last */
    struct kc_uuid *before; /* what was there before it; taken by the next step */
    uint32_t n_before;
    struct rt_work work;
    struct ks_tidy_round *round; /* of the step */
    _Atomic uint64_t claim_files, topics, tmps; /* removed */
};

void ks_tidy_init(struct ks_engine *e);
void ks_tidy_fini(struct ks_engine *e);
/* [blocking] Before the claim file of `made` is linked: notes what is there. */
void ks_tidy_before(struct ks_engine *e, const struct kc_uuid *made);
void ks_tidy_tick(struct ks_engine *e); /* watch thread: the next step, if one is due */
/* A round as soon as may be. False: at it already, then one more. Any thread. */
bool ks_tidy_now(struct ks_engine *e);
bool ks_tidy_idle(struct ks_engine *e); /* no round is under way, or asked for */

#endif
