/* ss_broker.h - a broker of the simulation: an engine over a client of its own, a main thread that
 * turns its loop, and what it does with the partitions. A node that ends boots again after a while.
 *
 * What belongs to a broker runs on its main thread, which a freeze of the node stops, too. */
#ifndef SS_BROKER_H
#define SS_BROKER_H

#include "ss_check.h"
#include "storage/ks_rec.h"

enum ss_slot_state { SS_NONE, SS_OPENING, SS_WARMING, SS_WARM, SS_OPEN, SS_SEALING };

enum { SS_WINDOW = 4, SS_BROKERS = 3 };

struct ss_broker;
struct ss_slot {
    enum ss_slot_state state;
    struct ss_broker *b;
    int part;
    struct ks_open *handle;
    struct ks_log *log;
    bool gone; /* the watcher said so */
    int in_flight;
    uint64_t acks; /* of this log, since the volume is well at the end */
};

struct ss_broker {
    int node, id;
    bool auditor;
    bool up; /* its engine is open */
    bool dead; /* nobody hears of it any more */
    bool fenced;
    struct ss_thread *main;
    struct ss_thread *job; /* something that blocks: registering, removing a topic */
    void (*job_fn)(struct ss_broker *b);
    bool job_done;
    int job_topic;
    struct ss_client *client;
    struct kg_coord *coord; /* ss_coord.h */
    int64_t coord_wake_ms;
    struct rt_loop loop;
    struct ks_engine *e;
    struct kc_uuid inc;
    struct ss_slot slot[SS_PARTS];
};

/* What all brokers share. */
struct ss_shared {
    struct kc_uuid topic[SS_TOPICS];
    int now; /* the topic that is in use; those before it are deleted */
    bool quit, settling;
    bool coord; /* partition 1 is a coordinator's */
    uint64_t generation, takeovers;
    int64_t segment_bytes, retention_bytes[SS_PARTS];
    int64_t flush_messages[SS_PARTS], flush_ms;
    bool compact[SS_PARTS];
    double dirty_ratio; /* from which on a log is cleaned */
    int64_t delete_retention_ms; /* of tombstones */
    uint32_t cleanings; /* per mille: how often a broker's cleaner looks for work */
    uint64_t unconfirmed; /* bytes of a file, and so of a copy (ADR 10) */
    int64_t checkpoint_bytes; /* between two snapshots (ADR 14) */
    uint32_t direct_files; /* a turn of more goes into the journal (ADR 13) */
    uint64_t journal_bytes;
    int64_t journal_ms;
    uint32_t condemn; /* per mille: how often somebody else counts as condemned */
    uint32_t appetite; /* per mille: how often a log gets an append */
    uint32_t alert; /* per mille: how often a loop looks after its messages */
    uint32_t moves, cancels, deletions; /* per mille */
    struct ss_producer { /* idempotent: several batches on their way, in order, to one broker */
        struct ss_sent {
            uint64_t number;
            int32_t seq, records;
            bool acked;
        } sent[SS_WINDOW];
        int n, next; /* how many are not yet done with; which one goes out next */
        int in_flight;
        bool rewind; /* one was refused: all go out again when none is on its way */
        int32_t seq;
        int64_t last_base;
        struct ss_slot *to;
    } producer[SS_ALL_PARTS];
    uint8_t seal[KS_REC_MAX]; /* the last one handed over */
    int32_t seal_len;
    int seal_part;
};
extern struct ss_shared ss_shared;

/* ---- life (ss_node.c) ---- */

/* On the caller's thread: for an auditor. */
void ss_broker_up(struct ss_broker *b, int node, int id, bool auditor);
void ss_broker_down(struct ss_broker *b);
void ss_broker_turn(struct ss_broker *b); /* runs what its loop has to do */
/* On a thread of its own, until ss_shared.quit and ss_broker_join. */
void ss_broker_start(struct ss_broker *b, int node, int id);
void ss_broker_join(struct ss_broker *b);
/* Something befalls the node, or the server. */
void ss_broker_strike(struct ss_broker *b, enum ss_fault f);

/* ---- what a broker does with a partition (ss_broker.c) ---- */

bool ss_slot_is_coord(const struct ss_slot *s);
void ss_slot_open(struct ss_slot *s);
void ss_slot_prepare(struct ss_slot *s);
void ss_slot_go(struct ss_slot *s);
void ss_slot_cancel(struct ss_slot *s);
void ss_slot_append(struct ss_slot *s, bool idempotent);
void ss_slot_read(struct ss_slot *s);
void ss_slot_read_all(struct ss_slot *s); /* from the start to the end, for the final log; waits */
void ss_slot_delete_records(struct ss_slot *s);
void ss_slot_seal(struct ss_slot *s);
void ss_slot_close(struct ss_slot *s);

#endif
