/* ks_journal.h - the journals of this incarnation (ADR 13): one sync makes a turn durable that touches
 * many partitions. Their files are written without a sync, synced behind, and then the journal goes.
 *
 * Everything here belongs to the commit thread, except ks_journal_unpend. */
#ifndef KS_JOURNAL_H
#define KS_JOURNAL_H

#include "base/kc_base.h"

struct ks_engine;
struct ks_entry;
struct ks_inc;
struct ks_jfile;
struct ks_log;
struct ks_task;

enum {
    KS_JOURNALS = 4, /* alive at once; beyond that, turns sync their files */
    KS_JOURNAL_BYTES = 16 * 1024 * 1024, /* a journal is retired when it has so much */
    KS_JOURNAL_MS = 30000, /* or is so old */
    KS_DIRECT_FILES = 4, /* a turn of no more files syncs them: nothing is written twice */
    KS_FRAME_MAX = 128 * 1024 /* more from one file in a turn is synced there */
};

/* That a log has frames in a journal which no sync of its file has confirmed. */
struct ks_framed_in {
    struct ks_jfile *journal;
    uint64_t end; /* in the file below: of the last frame */
    uint32_t inc8, seq; /* the data file */
};

void ks_journal_start(struct ks_engine *e);
/* One was made in the background, and waits for ks_journal_tend. */
bool ks_journal_made(const struct ks_engine *e);
/* No sync behind is under way. */
bool ks_journal_idle(const struct ks_engine *e);
/* After the commit thread has ended, idle: removes journals that nobody needs. */
void ks_journal_stop(struct ks_engine *e);

/* True: a journal of inc takes the frames of this turn. Else one is made in the background, if wanted:
 * turns sync their files until it is there. */
bool ks_journal_ready(struct ks_engine *e, struct ks_inc *inc, bool wanted);
/* Writes what the tasks with `frame` set have written to their files, and syncs the journal. An error
 * ends that journal (J4). */
int ks_journal_write(struct ks_engine *e, struct ks_task *tasks, uint32_t n);
/* Forgets frames of the log that its current file's sync, a roll or a recovery have made superfluous. */
void ks_journal_confirm(struct ks_log *log);
/* Begins a sync of the log's file if a retired journal waits for it, or if it is far ahead of what is durable
 * (ks_task_far_ahead), and none is under way. */
void ks_journal_behind(struct ks_log *log);
/* The log ends. sealed: nobody needs its frames; else the orphan of its epoch keeps them. */
void ks_journal_leave(struct ks_log *log, bool sealed);
/* A sync behind came back; entry->synced: what it was for is durable in the file. */
void ks_journal_synced(struct ks_engine *e, struct ks_entry *entry);
/* Between turns: retires journals, starts syncs behind, removes what has done its duty. Returns
 * milliseconds until it wants to be called again at the latest, or -1. */
int64_t ks_journal_tend(struct ks_engine *e);
/* One log less needs it. Any thread. */
void ks_journal_unpend(struct ks_jfile *j);

#endif
