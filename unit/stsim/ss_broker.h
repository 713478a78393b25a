/* ss_broker.h - a broker of the simulation: an engine, the loop that the main thread turns for it, and
 * what it does with the partitions. Main thread only. */
#ifndef SS_BROKER_H
#define SS_BROKER_H

#include "ss_check.h"
#include "storage/ks_rec.h"

enum ss_slot_state { SS_NONE, SS_OPENING, SS_WARMING, SS_WARM, SS_OPEN, SS_SEALING };

enum { SS_WINDOW = 4 };

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
    bool up, dead, auditor, fenced;
    struct ss_client *client;
    struct rt_loop loop;
    struct ks_engine *e;
    struct kc_uuid inc;
    struct ss_slot slot[SS_PARTS];
};

/* What all brokers share. */
struct ss_shared {
    struct kc_uuid topic;
    uint64_t generation, takeovers;
    int64_t segment_bytes, retention_bytes;
    uint64_t unconfirmed; /* bytes of a file, and so of a copy (ADR 10) */
    uint32_t condemn; /* per mille: how often somebody else counts as condemned */
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
    } producer[SS_PARTS];
    uint8_t seal[KS_REC_MAX]; /* the last one handed over */
    int32_t seal_len;
};
extern struct ss_shared ss_shared;

void ss_broker_start(struct ss_broker *b, int node, int id, bool auditor);
void ss_broker_stop(struct ss_broker *b, bool crash);
void ss_broker_turn(struct ss_broker *b); /* runs what its loop has to do */
void ss_broker_retain(struct ss_broker *b); /* a round of retention, which is rare by itself */
void ss_broker_register(struct ss_broker *b); /* as a new incarnation, when it may */

void ss_slot_open(struct ss_slot *s);
void ss_slot_prepare(struct ss_slot *s);
void ss_slot_go(struct ss_slot *s);
void ss_slot_cancel(struct ss_slot *s);
void ss_slot_append(struct ss_slot *s, bool idempotent);
/* all: from the start to the end, for the final log; waits. */
void ss_slot_read(struct ss_slot *s);
void ss_slot_read_all(struct ss_slot *s);
void ss_slot_seal(struct ss_slot *s);
void ss_slot_close(struct ss_slot *s);

#endif
