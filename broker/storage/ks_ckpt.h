/* ks_ckpt.h - when and how an owner writes checkpoints (ks_hint.h).
 *
 * The state of producers runs ahead of what is acknowledged, so a snapshot is taken in three steps on
 * the owner's loop: at the append that fills the interval the producers are copied; when that append
 * is acked the content is encoded, for now the index and the position are those of the same offset;
 * when a sync of the file covers it (at once, unless flush.messages is relaxed or the turn went into a
 * journal, ADR 13) a job on a pool of its own writes it. A failure is logged, and nothing waits for it: the next opening reads more. */
#ifndef KS_CKPT_H
#define KS_CKPT_H

#include "storage/ks_hint.h"

struct ks_log;
struct ks_entry;
struct ks_engine;
struct ks_file;

/* Of an open log; owner loop, but for what the job under way has. */
struct ks_ckpt {
    uint64_t since; /* bytes appended since the last snapshot was begun */
    bool
        unsynced; /* the last acked batch waits for a sync of its file (relaxed flush.messages, or it
                      stands in a journal) */
    bool stale; /* producers know of batches that will not be acked: nothing may be taken */
    bool wanted; /* at the next append, whatever the interval says */
    bool copied; /* producers are those at `offset` */
    struct ks_prods producers;
    int64_t offset;
    uint8_t *data; /* encoded, waits for a sync; name says where */
    size_t len;
    struct ks_snap_name name;
    uint64_t pos; /* of it, in its file */
    _Atomic bool busy; /* a job is under way: it has `known` */
    _Atomic bool failed; /* the last one */
    _Atomic int64_t covered; /* newest snapshot known to be on the volume; 0 = none */
    struct ks_snaps known; /* what lies there */
};

/* Default of ks_opts.checkpoint_bytes. A takeover reads what came after the last checkpoint twice
 * (scan and rebuild), and appends go on while one is written: a quarter of the 64 MiB. A sealed log
 * gets a snapshot if a sixteenth came since the last one, a finished file an index from a quarter on:
 * what is smaller is rather read again. Below a 64th nobody looks for a hint at all. */
enum {
    KS_CKPT_BYTES = 16 * 1024 * 1024,
    KS_CKPT_SNAP_SHARE = 16,
    KS_CKPT_IDX_SHARE = 4,
    KS_CKPT_WORTH_SHARE = 64
};

void ks_ckpt_fini(struct ks_ckpt *c);
/* All on the owner's loop; before it has one, the opener's thread. */
void ks_ckpt_opened(struct ks_log *log, const struct ks_build *b);
void ks_ckpt_appended(struct ks_log *log, uint64_t bytes);
void ks_ckpt_noted(struct ks_log *log, const struct ks_entry *entry);
/* A sync behind has confirmed that many bytes of a file of the log. */
void ks_ckpt_synced(struct ks_log *log, const struct ks_file *file, uint64_t pos);
/* The last segment is finished: its index is written if it is worth a file. */
void ks_ckpt_finished(struct ks_log *log);
/* After our own seal of everything that was appended. */
void ks_ckpt_sealed(struct ks_log *log);
/* What was appended will not be acked: no snapshot before the log is opened anew. */
void ks_ckpt_forget(struct ks_log *log);
/* Whether files before `start` may go without the loss of their producers. False: a snapshot was
 * asked for, ask again later. */
bool ks_ckpt_covers(struct ks_log *log, int64_t start);
/* Writes the index of a finished segment that a reader rebuilt. */
void ks_ckpt_index(struct ks_log *log, const struct ks_seg *seg);

#endif
