/* ks_turn.h - the parts of a turn of the commit thread: the queue, the tasks of its logs and who runs them.
 * Part of ks_int.h, whose structs it is about. */
#ifndef KS_TURN_H
#define KS_TURN_H

#include "storage/ks_int.h"

/* ks_commit.c; ks_entry.c: entries */
int ks_commit_start(struct ks_engine *e);
void ks_commit_stop(struct ks_engine *e);
void ks_commit_init(
    struct ks_engine *e); /* the queue, which lives as long as the engine's memory */
void ks_commit_fini(struct ks_engine *e);
void ks_commit_push(struct ks_engine *e, struct ks_entry *entry); /* any thread */
/* The same on the loop of the entry's log; the commit thread is woken when the loop's turn ends, once for
 * all that was pushed in it. Whatever else wakes it does so before. */
void ks_commit_push_soon(struct ks_engine *e, struct ks_entry *entry);
void ks_commit_wake(struct ks_engine *e); /* any thread: a journal was made */
struct ks_entry *ks_entry_new(struct ks_log *log, enum ks_entry_kind kind);
struct ks_entry *ks_entry_append(struct ks_log *log); /* owner loop; NULL: no memory */
void ks_entry_free(struct ks_entry *entry);
void ks_entry_spare(struct ks_entry *entry); /* the same on the owner loop: kept for an append */

/* ks_task.c */
/* c_file is new: what decides when the next one follows starts anew. */
void ks_log_file_begins(struct ks_log *log);
/* One turn of a log's lower half: a run of appends written and synced, or one other
 * entry. What it took is in taken, in order. */
struct ks_task {
    struct ks_log *log;
    struct ks_entry *taken, *taken_tail;
    bool issued; /* wrote something that needs the fence check */
    bool later; /* in: do not sync, the turn does it for all (ADR 13) */
    bool beside; /* in: write beside a sync of the file that is under way (ks_task_beside) */
    bool unsynced; /* wrote bytes that have to become durable in this turn */
    bool fits; /* as a frame */
    bool frame; /* it goes into the journal */
    uint64_t written; /* bytes, up to c_pos */
};
void ks_task_run(struct ks_task *t);
/* It may have to wait for the volume, as far as can be told now. far: a network file system, where a write
 * waits when much is not on the server yet. */
bool ks_task_may_wait(const struct ks_task *t, bool far);
/* A sync takes longer than it takes to wake a thread for it. */
bool ks_task_sync_waits(const struct ks_engine *e);
/* Syncs what a run left unsynced. */
void ks_task_sync(struct ks_task *t);
/* The journal failed: what was written is not durable. */
void ks_task_refuse(struct ks_task *t);
/* No more writes under the log's epoch; appends get `error` until a recovery has opened a new one. */
void ks_task_fail(struct ks_log *log, int16_t error);
/* The next run of this log, whose file must not be synced now, would go into one frame. */
bool ks_task_fits(const struct ks_log *log);
/* The next run of this log, whose file must not be synced now, needs no sync: flush.messages is relaxed, and
 * what no sync has confirmed stays below the bound that claimants count on (ADR 10). */
bool ks_task_beside(const struct ks_log *log);
/* Half of that bound is used: time for a sync behind. */
bool ks_task_far_ahead(const struct ks_log *log);
/* After the check: what was issued is acked, or (fenced) is not. */
void ks_task_settle(struct ks_task *t, bool fence_ok);
void ks_task_log_error(const struct ks_log *log, const char *what, int rc);
int ks_task_sync_file(struct ks_log *log); /* c_file; never while a sync behind is under way */
int ks_task_sync_dir(struct ks_log *log); /* of the partition */
int ks_task_roll(struct ks_log *log);
void ks_task_take(struct ks_task *t); /* the log's next entry */

/* ks_run.c: the task of a log whose next entry is an append */
void ks_run_appends(struct ks_task *t);

/* ks_team.c: deals with those of the n tasks that are wanted (NULL: all), the caller and so many helpers
 * together. Between start and finish the caller may do something else. Commit thread. */
struct ks_team;
struct ks_team *ks_team_start(struct ks_engine *e, struct ks_task *tasks, uint32_t n,
                              uint32_t helpers, bool (*wanted)(const struct ks_task *t),
                              void (*run)(struct ks_task *t));
void ks_team_finish(struct ks_team *m); /* takes part, and waits until all are done */

#endif
