/* cr.h - the states of the volume that a crash may leave, from a record of what was done to it.
 *
 * A crash falls between two records. What is volatile there may be lost or kept, each piece by itself:
 *
 *   local    the machine crashes, all brokers with it. Written sectors (512 bytes) that no sync of the
 *            file covers, by whoever; sizes that are kept without their bytes (zeros); truncations up;
 *            and names made, removed or renamed in a directory that was not synced since. That is more
 *            than journaling file systems lose, which keep names in order.
 *   journaled  the same, on a file system that keeps names in order (ks_fs_ordered): a name that is there
 *            implies those that were made before it, in whatever directory. Removals, sizes and bytes go
 *            by themselves, which is more than one journal for all loses.
 *   network  the server crashes, and the clients whose bytes it had not written back are dead. Sectors
 *            that no sync of their own writer covers. Names and sizes are the server's at once (ADR 10).
 *
 * Few volatile pieces: every subset. Many: none, all, each alone lost or kept, and random ones. */
#ifndef CR_H
#define CR_H

#include "sc.h"

enum cr_model { CR_LOCAL, CR_JOURNALED, CR_NETWORK };

struct cr_trace {
    struct st_mem_rec *v; /* copies; their bytes are the volume's */
    size_t n;
    size_t settled; /* records below it survived an earlier crash */
    size_t from; /* crashes are looked at from there on */
};
/* What was recorded; settled are the records below. */
void cr_trace_take(struct cr_trace *t, struct st_mem *m, size_t settled);
/* The first `at` records of a trace, and then what was recorded: the brokers ended there, but nothing
 * crashed, so that what was volatile stays so. */
void cr_trace_join(struct cr_trace *t, const struct cr_trace *first, size_t at, struct st_mem *m);
void cr_trace_free(struct cr_trace *t);

/* A piece that may be lost. */
struct cr_piece {
    size_t rec;
    uint64_t from, to; /* of a write: bytes of the file; else 0, 0 */
    bool zeros; /* of a write: only the size, without the bytes */
};
enum { CR_PIECES = 256 };

struct cr_state {
    const struct cr_trace *trace;
    enum cr_model model;
    size_t at; /* records below it were done */
    int n_pieces;
    struct cr_piece pieces[CR_PIECES];
    bool kept[CR_PIECES];
};
/* Finds the volatile pieces of a crash before record `at`. */
void cr_pieces(struct cr_state *c, const struct cr_trace *t, enum cr_model model, size_t at);
/* How many states of it are looked at, and the i-th one. `samples`: random ones when it is not all. */
uint32_t cr_count(const struct cr_state *c, uint32_t samples);
void cr_choose(struct cr_state *c, uint32_t i, uint64_t seed);
/* Makes the volume that state; names below `keep` stay. */
void cr_build(const struct cr_state *c, struct st_mem *m, const char *keep);

void cr_print(const struct cr_state *c, FILE *out);

/* Traces that an engine with a rule broken would leave. */
enum cr_mutant {
    CR_HONEST,
    CR_ACK_BEFORE_SYNC, /* answers come before the data file's sync */
    CR_NO_RECORD_SYNC, /* a chain record is linked before its bytes are synced */
    CR_NO_DIR_SYNC, /* answers come before the directory of the partition, or of ids, is synced */
    CR_UNLINK_FIRST, /* files go before the record that drops them */
    CR_ACK_BEFORE_JOURNAL, /* answers come before the journal's sync (ADR 13) */
    CR_MUTANTS
};
void cr_mutate(struct cr_trace *t, enum cr_mutant mutant);

#endif
