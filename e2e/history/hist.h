/* hist.h - what clients saw of a log, and the rules it must keep (README.md: format and classes).
 *
 * A history is loaded from files, then checked by one function a family of rules; every check only
 * reads the history and adds to the findings. Everything is held in plain arrays: a million records
 * with their reads take a second or two. One thread. */
#ifndef HIST_H
#define HIST_H

#include <stdio.h>

#include "base/kc_base.h"
#include "base/kc_error.h"

enum {
    HIST_PROCESSES = 65536,
    HIST_SEQUENCE_BITS = 40,
    HIST_PARTITIONS_MAX = 10000,
    HIST_NAMES_MAX = 1024,
    HIST_FIRST = 5 /* examples kept of a class */
};

#define HIST_OFFSET_MAX ((int64_t)1 << 30)

enum hist_flag { HIST_IDEMPOTENT = 1, HIST_ORDERED = 2, HIST_COMMITTED = 4 };
enum hist_outcome { HIST_OPEN, HIST_ACKED, HIST_UNKNOWN, HIST_REFUSED };
enum hist_txn_end { HIST_TXN_OPEN, HIST_TXN_COMMITTED, HIST_TXN_ABORTED, HIST_TXN_UNKNOWN };

struct hist_send {
    int64_t invoked_us, acked_us;
    int64_t offset; /* as acknowledged; -1 = not told */
    int64_t key, txn; /* -1 = none */
    int64_t found; /* the first offset it was seen at, anywhere; -1 = nowhere */
    int32_t part; /* index of the partition; -1 = not known */
    int16_t topic;
    uint8_t outcome;
    bool final; /* a final read has it */
};

struct hist_process {
    char *name; /* NULL: no such process */
    uint32_t flags;
    bool final; /* made final reads: all its reads are */
    struct hist_send *sends;
    size_t n_sends, room;
    uint8_t *txns; /* enum hist_txn_end by transaction number */
    size_t n_txns;
};

enum { HIST_SEEN = 1, HIST_FINAL = 2 };

/* The log of a partition as anyone saw it: offset -> value. */
struct hist_part {
    int16_t topic;
    int32_t number;
    uint64_t *values; /* 0 = never seen; process numbers begin at 1 */
    uint8_t *marks;
    int64_t n; /* offsets 0 .. n-1 are allocated */
    int64_t final_start, final_end; /* -1 = no final read */
};

struct hist_topic {
    char *name;
    bool compacted, deleting;
    int32_t *parts; /* partition number -> index, -1 = none */
    int32_t n_parts;
};

/* A poll, or (n < 0) a new beginning at `start`. */
struct hist_poll {
    int64_t start_us, end_us;
    int64_t start;
    size_t first;
    int32_t n, part;
    uint16_t process;
};

struct hist_record {
    int64_t offset;
    uint64_t value;
};

struct hist_water {
    int64_t start_us, end_us, high;
    int32_t part;
    uint16_t process;
};

/* A commit, or (asked) a committed offset as told. */
struct hist_commit {
    int64_t start_us, end_us, offset;
    int32_t part;
    int16_t group;
    uint16_t process;
    bool asked, unknown;
    bool open; /* begun, and no outcome yet */
};

enum hist_class {
    HIST_COLLISION,
    HIST_DUPLICATE,
    HIST_REORDERED,
    HIST_LOST,
    HIST_UNSENT,
    HIST_ABORTED,
    HIST_ACK_ORDER,
    HIST_REAL_TIME,
    HIST_POLL_ORDER,
    HIST_POLL_SKIP,
    HIST_STALE,
    HIST_OFFSET_BACK,
    HIST_CLASSES
};

struct hist {
    struct hist_process *processes; /* by number */
    struct hist_topic topics[HIST_NAMES_MAX];
    int32_t n_topics;
    char *groups[HIST_NAMES_MAX];
    int32_t n_groups;
    struct hist_part *parts;
    struct hist_poll *polls;
    struct hist_record *records;
    struct hist_water *waters;
    struct hist_commit *commits;
    size_t n_parts, n_polls, n_records, n_waters, n_commits;
    size_t room_parts, room_polls, room_records, room_waters, room_commits;
    int64_t stale_us;
    bool partial; /* final reads are not asked for */

    /* findings */
    uint64_t found[HIST_CLASSES];
    char *first[HIST_CLASSES][HIST_FIRST];
    uint64_t plain_duplicates; /* of producers that may have them */
};

struct hist *hist_new(void);
void hist_free(struct hist *h);
/* The topic of that name, made if need be; NULL: too many. */
struct hist_topic *hist_topic(struct hist *h, const char *name, size_t len);
/* The text of a file. 0 or KC_E_MALFORMED with the line named. Files in any order. */
int hist_load(struct hist *h, const char *text, size_t len, struct kc_err *err) KC_MUST_CHECK;
/* All rules. After the last file; once. */
void hist_check(struct hist *h);
uint64_t hist_violations(const struct hist *h);
const char *hist_class_name(enum hist_class c);
/* One JSON object: counts, figures, violations with their first examples. */
void hist_report(const struct hist *h, FILE *out);

/* ---- between the files of the checker ---- */

void hist_check_log(struct hist *h); /* collision … aborted; fills the values of partitions */
void hist_check_time(struct hist *h); /* ack-order, real-time, stale */
void hist_check_polls(struct hist *h);
void hist_check_groups(struct hist *h);

/* Adds a finding: "topic/partition: " and the text. part -1: none. */
void hist_found(struct hist *h, enum hist_class c, int32_t part, const char *fmt, ...)
    KC_PRINTF(4, 5);
/* NULL: nobody sent it. */
struct hist_send *hist_send_of(const struct hist *h, uint64_t value);
const struct hist_process *hist_sender(const struct hist *h, uint64_t value);
/* Room for one more of an array; returns the array. */
void *hist_grow(void *array, size_t n, size_t *room, size_t size);

#endif
