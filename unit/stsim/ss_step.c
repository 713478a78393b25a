#include "ss_step.h"

#include <stdatomic.h>
#include <string.h>

#include "ss_sched.h"

enum { AIMS = 16 };

struct aim {
    enum ss_fault fault;
    enum ss_step step;
    uint32_t n; /* times to go */
};

static struct {
    struct ss_hits hits;
    struct aim aims[AIMS];
    int n_aims;
} T;

const char *ss_fault_name(enum ss_fault f)
{
    static const char *const names[SS_FAULTS] = {
        [SS_F_EIO] = "eio",
        [SS_F_ESTALE] = "estale",
        [SS_F_ENOSPC] = "enospc",
        [SS_F_WRITE_ERROR] = "write-error",
        [SS_F_LOST_REPLY] = "lost-reply",
        [SS_F_LATE] = "late",
        [SS_F_STALL] = "stall",
        [SS_F_STALE_NAME] = "stale-name",
        [SS_F_STALE_READ] = "stale-read",
        [SS_F_TORN_LISTING] = "torn-list",
        [SS_F_NO_MEMORY] = "no-memory",
        [SS_F_KILL] = "kill",
        [SS_F_CRASH] = "crash",
        [SS_F_FREEZE] = "freeze",
        [SS_F_CUT] = "cut",
        [SS_F_SERVER_CRASH] = "server",
    };
    return names[f];
}

const char *ss_step_name(enum ss_step s)
{
    static const char *const names[SS_STEPS] = {
        [SS_S_REGISTER] = "register",
        [SS_S_CLAIM_FILE] = "claim-file",
        [SS_S_DATA_FILE] = "data-file",
        [SS_S_DIR_SYNC] = "dir-sync",
        [SS_S_CHAIN] = "chain",
        [SS_S_CLAIM] = "claim",
        [SS_S_FENCE] = "fence",
        [SS_S_SCAN] = "scan",
        [SS_S_COPY] = "copy",
        [SS_S_SEAL] = "seal",
        [SS_S_REBUILD] = "rebuild",
        [SS_S_TOMBSTONE] = "tombstone",
        [SS_S_WRITE] = "write",
        [SS_S_SYNC] = "sync",
        [SS_S_CHECK] = "check",
        [SS_S_ACK] = "ack",
        [SS_S_ROLL] = "roll",
        [SS_S_TRIM] = "trim",
        [SS_S_CLEAN] = "clean",
        [SS_S_COMPACT] = "compact",
        [SS_S_UNLINK] = "unlink",
        [SS_S_OWN_SEAL] = "own-seal",
        [SS_S_OPEN] = "open",
        [SS_S_PREPARE] = "prepare",
        [SS_S_GO] = "go",
        [SS_S_CANCEL] = "cancel",
        [SS_S_RECOVER] = "recover",
        [SS_S_REMOVE] = "remove",
        [SS_S_READ] = "read",
        [SS_S_JOURNAL] = "journal",
        [SS_S_BEHIND] = "behind",
        [SS_S_FRAMES] = "frames",
    };
    return names[s];
}

/* ---- what can meet what ---- */

#define OP(o) (1u << SS_OP_##o)
#define ALL_REQUESTS                                                                               \
    (OP(OPEN) | OP(CREATE) | OP(CLOSE) | OP(READ) | OP(SYNC) | OP(SYNCDIR) | OP(LINK) |            \
     OP(UNLINK) | OP(RENAME) | OP(MKDIR) | OP(RMDIR) | OP(EXTEND) | OP(STAT) | OP(LIST))

static const uint32_t fits[SS_FAULTS] = {
    [SS_F_EIO] = ALL_REQUESTS & ~OP(CLOSE),
    [SS_F_ESTALE] = ALL_REQUESTS & ~OP(CLOSE),
    [SS_F_ENOSPC] = OP(CREATE) | OP(SYNC) | OP(LINK) | OP(MKDIR) | OP(RENAME) | OP(WRITE),
    [SS_F_WRITE_ERROR] = OP(SYNC) | OP(WRITE),
    [SS_F_LOST_REPLY] =
        OP(CREATE) | OP(SYNC) | OP(LINK) | OP(UNLINK) | OP(RENAME) | OP(MKDIR) | OP(EXTEND),
    [SS_F_LATE] = OP(LINK) | OP(UNLINK) | OP(EXTEND),
    [SS_F_STALL] = ALL_REQUESTS | OP(WRITE) | OP(NONE),
    [SS_F_STALE_NAME] = OP(EXTEND),
    [SS_F_STALE_READ] = 0, /* comes by itself */
    [SS_F_TORN_LISTING] = 0, /* comes by itself */
    [SS_F_NO_MEMORY] = 0, /* strikes no request */
    [SS_F_KILL] = ALL_REQUESTS | OP(WRITE) | OP(NONE),
    [SS_F_CRASH] = ALL_REQUESTS | OP(WRITE) | OP(NONE),
    [SS_F_FREEZE] = ALL_REQUESTS | OP(WRITE) | OP(NONE),
    [SS_F_CUT] = ALL_REQUESTS | OP(WRITE) | OP(NONE),
    [SS_F_SERVER_CRASH] = ALL_REQUESTS | OP(WRITE) | OP(NONE),
};

bool ss_fault_fits(enum ss_fault f, enum ss_op op)
{
    return (fits[f] & (1u << op)) != 0;
}

/* ---- what a thread is doing ---- */

uint32_t ss_enter(enum ss_step s)
{
    struct ss_local *l = ss_local();
    uint32_t before = l->inside;
    l->inside |= SS_BIT(s);
    return before;
}

void ss_leave(uint32_t before)
{
    ss_local()->inside = before;
}

bool ss_inside(enum ss_step s)
{
    return (ss_local()->inside & SS_BIT(s)) != 0;
}

const _Atomic bool *ss_watch_cancel(const _Atomic bool *cancelled)
{
    struct ss_local *l = ss_local();
    const _Atomic bool *before = l->cancelled;
    l->cancelled = cancelled;
    return before;
}

static uint32_t steps_of(const struct ss_local *l)
{
    bool gave_up = l->cancelled && atomic_load(l->cancelled);
    return l->inside | l->doing | (gave_up ? SS_BIT(SS_S_CANCEL) : 0);
}

uint32_t ss_steps(void)
{
    return steps_of(ss_local());
}

uint32_t ss_doing(uint32_t steps)
{
    struct ss_local *l = ss_local();
    l->doing = steps;
    return steps_of(l);
}

/* ---- counting ---- */

void ss_hit(enum ss_fault f, uint32_t steps)
{
    T.hits.total[f]++;
    ss_trace_add((uint64_t)f);
    for (int s = 0; s < SS_STEPS; s++) {
        T.hits.at[f][s] += (steps >> s) & 1;
    }
}

void ss_hit_node(enum ss_fault f, int node)
{
    uint32_t steps = 0;
    const struct ss_local *l;
    for (int i = 0; ss_local_at(i, node, &l); i++) {
        steps |= l ? steps_of(l) : 0;
    }
    ss_hit(f, steps);
}

const struct ss_hits *ss_hits(void)
{
    return &T.hits;
}

/* ---- aims ---- */

static int pick_bit(uint32_t bits)
{
    uint64_t nth = ss_below((uint64_t)__builtin_popcount(bits));
    while (nth--) {
        bits &= bits - 1;
    }
    return __builtin_ctz(bits);
}

/* What a run seldom comes by, or where a fault seldom finds what it strikes, is drawn more often. */
static enum ss_step draw_step(uint32_t steps)
{
    static const struct {
        enum ss_step step;
        uint32_t per_mille;
    } rare[] = {{SS_S_COMPACT, 130}, {SS_S_CLEAN, 60}, {SS_S_TRIM, 10}};
    uint64_t dice = ss_below(1000);
    for (size_t i = 0; i < KC_ARRAY_LEN(rare); i++) {
        if (dice < rare[i].per_mille) {
            return steps & SS_BIT(rare[i].step) ? rare[i].step : (enum ss_step)pick_bit(steps);
        }
        dice -= rare[i].per_mille;
    }
    return (enum ss_step)pick_bit(steps);
}

void ss_aims_draw(uint32_t faults, uint32_t steps)
{
    memset(&T, 0, sizeof(T));
    for (int tries = 0; tries < 4 * AIMS && T.n_aims < AIMS; tries++) {
        struct aim a = {.fault = (enum ss_fault)pick_bit(faults),
                        .step = draw_step(steps),
                        .n = 1 + (uint32_t)ss_below(ss_chance(700) ? 3 : 20)};
        if (a.fault == SS_F_NO_MEMORY || a.fault == SS_F_LATE) {
            a.n = 1 + (uint32_t)ss_below(ss_chance(700) ? 1 : 10); /* allocations, links are few */
        }
        if ((fits[a.fault] || a.fault == SS_F_NO_MEMORY) && !ss_excused(a.fault, a.step)) {
            T.aims[T.n_aims++] = a;
        }
    }
}

void ss_aims_drop(void)
{
    T.n_aims = 0;
}

int ss_aims_left(void)
{
    return T.n_aims;
}

uint32_t ss_aims_steps(void)
{
    uint32_t steps = 0;
    for (int i = 0; i < T.n_aims; i++) {
        steps |= SS_BIT(T.aims[i].step);
    }
    return steps;
}

enum ss_fault ss_aim_at(enum ss_op op, uint32_t steps)
{
    for (int i = 0; i < T.n_aims; i++) {
        struct aim *a = &T.aims[i];
        if ((steps & SS_BIT(a->step)) && ss_fault_fits(a->fault, op) && --a->n == 0) {
            enum ss_fault f = a->fault;
            *a = T.aims[--T.n_aims];
            return f;
        }
    }
    return SS_FAULTS;
}

bool ss_aim_at_memory(void)
{
    const struct ss_local *l = ss_local();
    for (int i = 0; i < T.n_aims && l->inside && !l->ours; i++) {
        struct aim *a = &T.aims[i];
        if (a->fault == SS_F_NO_MEMORY && ((l->inside | l->doing) & SS_BIT(a->step)) &&
            --a->n == 0) {
            *a = T.aims[--T.n_aims];
            ss_hit(SS_F_NO_MEMORY, steps_of(l));
            return true;
        }
    }
    return false;
}
