/* ss_step.h - faults and steps of the protocol: what a thread is doing, what may strike it there, and
 * the count of each pair.
 *
 * A step is known from the production function that runs (ss_trace.c puts itself between them) and
 * from the request that is made (ss_port.c). A thread is in several at once: the scan of a recovery
 * counts as both. Each run draws a few aims, pairs of a fault and a step: the fault strikes when the
 * step is reached for the n-th time. Others come by chance. */
#ifndef SS_STEP_H
#define SS_STEP_H

#include "base/kc_base.h"

enum ss_fault {
    SS_F_EIO, /* nothing done, an error told */
    SS_F_ESTALE, /* the same, as a stale handle */
    SS_F_ENOSPC,
    SS_F_WRITE_ERROR, /* a page's write-back failed; told once */
    SS_F_LOST_REPLY, /* done, an error told */
    SS_F_LATE, /* an error told, done later */
    SS_F_STALL, /* seconds */
    SS_F_STALE_NAME,
    SS_F_STALE_READ,
    SS_F_TORN_LISTING,
    SS_F_NO_MEMORY,
    SS_F_KILL, /* the process ends; its node writes its pages back, at some time */
    SS_F_CRASH, /* the machine ends, and unsynced pages with it */
    SS_F_FREEZE,
    SS_F_CUT, /* no request of the node gets through for a while */
    SS_F_SERVER_CRASH, /* everything that was not committed is forgotten */
    SS_FAULTS
};
const char *ss_fault_name(enum ss_fault f);

enum ss_step {
    SS_S_REGISTER,
    SS_S_CLAIM_FILE,
    SS_S_DATA_FILE,
    SS_S_DIR_SYNC,
    SS_S_CHAIN, /* listing and reading it */
    SS_S_CLAIM,
    SS_S_FENCE,
    SS_S_SCAN,
    SS_S_COPY, /* of an epoch's tail (ADR 10) */
    SS_S_SEAL, /* of an older epoch */
    SS_S_REBUILD,
    SS_S_TOMBSTONE, /* the last look before a log opens (ADR 11) */
    SS_S_WRITE,
    SS_S_SYNC,
    SS_S_CHECK,
    SS_S_ACK, /* between the check and the owner's hearing of it */
    SS_S_ROLL,
    SS_S_TRIM,
    SS_S_CLEAN, /* all that a cleaner reads, writes and removes for one log */
    SS_S_COMPACT, /* its record */
    SS_S_UNLINK,
    SS_S_OWN_SEAL,
    SS_S_OPEN, /* all of a takeover without a preparation, */
    SS_S_PREPARE, /* of a preparation, */
    SS_S_GO, /* of the takeover after it, */
    SS_S_RECOVER, /* and of the one that an error of a file makes necessary */
    SS_S_CANCEL, /* what still runs for a handle that was given up */
    SS_S_REMOVE, /* of a topic */
    SS_S_READ, /* for a consumer */
    SS_S_JOURNAL, /* its writes and syncs (ADR 13) */
    SS_S_BEHIND, /* the syncs behind it */
    SS_S_FRAMES, /* of another incarnation, or of the own one by a recovery: listing, reading */
    SS_STEPS
};
const char *ss_step_name(enum ss_step s);
#define SS_BIT(s) (1u << (s)) /* there is room for 32 */

enum ss_op {
    SS_OP_NONE, /* no request: a point in the engine */
    SS_OP_OPEN,
    SS_OP_CREATE,
    SS_OP_CLOSE,
    SS_OP_WRITE,
    SS_OP_READ,
    SS_OP_SYNC,
    SS_OP_SYNCDIR,
    SS_OP_LINK,
    SS_OP_UNLINK,
    SS_OP_RENAME,
    SS_OP_MKDIR,
    SS_OP_RMDIR,
    SS_OP_EXTEND,
    SS_OP_STAT,
    SS_OP_LIST,
    SS_OPS
};
/* Can this fault strike this request? */
bool ss_fault_fits(enum ss_fault f, enum ss_op op);
/* Why a fault cannot meet a step, or only after another fault; NULL: it can. */
const char *ss_excused(enum ss_fault f, enum ss_step s);

/* ---- what the calling thread is doing ---- */

uint32_t ss_enter(enum ss_step s); /* returns what to hand back */
void ss_leave(uint32_t before);
bool ss_inside(enum ss_step s);
/* The handle of this job may be given up meanwhile. */
const _Atomic bool *ss_watch_cancel(const _Atomic bool *cancelled);
uint32_t ss_steps(void); /* all it is in */
/* A request begins, which is these steps of its own (0: none, also at its end). Returns all. */
uint32_t ss_doing(uint32_t steps);

/* ---- counting ---- */

struct ss_hits {
    uint64_t total[SS_FAULTS];
    uint64_t at[SS_FAULTS][SS_STEPS];
};
/* The table; returns how many pairs without an excuse were hit less than `need` times, and names them. */
uint64_t ss_matrix_print(const struct ss_hits *h, uint64_t need);
void ss_hit(enum ss_fault f, uint32_t steps);
/* It struck whatever the node's threads were at; -1: all nodes'. */
void ss_hit_node(enum ss_fault f, int node);
const struct ss_hits *ss_hits(void);

/* ---- aims ---- */

void ss_aims_draw(uint32_t faults, uint32_t steps); /* of those, as bits; and forgets the hits */
void ss_aims_drop(void);
int ss_aims_left(void);
uint32_t ss_aims_steps(void); /* what the run should come by */
/* Is it this request's turn? SS_FAULTS: none. */
enum ss_fault ss_aim_at(enum ss_op op, uint32_t steps);
bool ss_aim_at_memory(void); /* this allocation's turn? Counts it then. */

#endif
