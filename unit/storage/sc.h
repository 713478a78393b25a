/* sc.h - what brokers do to a volume, as scenarios that go on under any error, and a ledger of what
 * they were told: the sweeps (test_sweep_*) run them with faults, test_crash with crashes.
 *
 * A scenario never demands success. What it checks is that every answer is one that Kafka's clients
 * understand, and that all answers together agree with each other: a ledger entry says that this batch
 * is at this offset, for ever (I4). sc_audit then looks for all of it with an engine of its own. */
#ifndef SC_H
#define SC_H

#include "st.h"
#include "st_mem.h"

enum { SC_BROKERS = 3, SC_PARTS = 3, SC_LOGS = 8, SC_ACKS = 512, SC_PORTS = 32, SC_VALUE = 700 };

/* An answer: this batch is there. */
struct sc_ack {
    int32_t part; /* or what else was answered: */
    int64_t base;
    int32_t count;
    uint32_t crc; /* tells batches apart: no two of a run are equal */
    int32_t seq; /* -1 = of no idempotent producer */
    int32_t key; /* in a compacted log, of its one record; 0 = none */
};
enum {
    SC_TOPIC = -1, /* topic `base` has `count` partitions; 0: it may be gone, SC_GONE: it is */
    SC_PIDS = -2, /* the block that begins at `base` was given out */
    SC_GONE = -1 /* a count */
};

/* The idempotent producer of a partition: one batch at a time, the same one again until it is acked. */
struct sc_producer {
    int32_t seq; /* of the next batch; its content follows from it */
};

/* A port on the volume. */
struct sc_port {
    struct sc *s;
    int number; /* of the broker */
};

struct sc {
    struct st_mem *mem; /* the volume; or NULL and vol */
    struct st_vol vol;
    const struct st_hooks *hooks; /* the test's; NULL = a healthy volume */
    struct st_hooks own[SC_PORTS];
    struct sc_port ports[SC_PORTS];
    int n_ports;
    _Atomic int dying, dead; /* broker numbers; 0 = none */
    bool faults; /* any operation may fail */
    _Atomic bool poison;
    struct kc_uuid topic;
    struct st_broker b[SC_BROKERS];
    bool up[SC_BROKERS];
    struct {
        struct ks_log *log;
        int32_t broker, part;
    } logs[SC_LOGS]; /* open ones */
    struct ks_log_config cfg;
    int64_t checkpoint_bytes; /* of brokers that start from now on; 0 = the default */
    struct sc_producer producers[SC_PARTS];
    struct sc_ack acks[SC_ACKS];
    int n_acks;
    int64_t trimmed[SC_PARTS]; /* retention may have dropped offsets below */
    int64_t pids[64]; /* first of every block of producer ids */
    int n_pids;
    struct kc_uuid topics[2]; /* of the topics scenario, and what was answered of them */
    int32_t written[2];
    bool removed[2];
    int64_t stamp, first_stamp; /* make batches differ */
    int errors; /* violations, each told on stderr */
};

typedef void (*sc_fn)(struct sc *s);
struct sc_scenario {
    const char *name;
    sc_fn setup; /* on a healthy volume; NULL = an empty one */
    sc_fn run;
    void (*check)(struct sc *s,
                  int i); /* afterwards, on the healthy volume, by broker i; or NULL */
};
extern const struct sc_scenario sc_scenarios[];
extern const int sc_n_scenarios;

void sc_begin(struct sc *s, bool in_memory, const struct st_hooks *hooks);
/* Ends every log and broker. */
void sc_end(struct sc *s);
void sc_free(struct sc *s); /* and the volume */
void sc_bad(struct sc *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A port of that number on the volume, with the hooks if there are some. */
void sc_fs(struct sc *s, int port, struct ks_fs *ret);
bool sc_up(struct sc *s, int i); /* starts broker i + 1 and registers it; false: error */
bool sc_up_as(struct sc *s, int i, int32_t number); /* as broker `number` */
void sc_down(struct sc *s, int i); /* its logs are closed before */
/* NULL: it could not be opened. With everybody else condemned. */
struct ks_log *sc_open(struct sc *s, int i, int32_t part);
/* Takes a log that was opened into the list and gives it to its broker's loop. */
void sc_own(struct sc *s, int i, int32_t part, struct ks_log *log);
void sc_close(struct sc *s, struct ks_log *log);
void sc_seal(struct sc *s, struct ks_log *log, struct st_seal *seal);
/* Appends a batch of n records, plain or of the partition's producer, and waits. true: acked. */
bool sc_put(struct sc *s, struct ks_log *log, int32_t n); /* to a compacted log: of one record */
bool sc_put_idem(struct sc *s, struct ks_log *log);
/* Appends where only `allowed` makes an ack right. */
void sc_put_refused(struct sc *s, struct ks_log *log, bool allowed);
/* Several batches on two logs at once, then all answers: a group commit. */
void sc_put_group(struct sc *s, struct ks_log *a, struct ks_log *b, int each);
/* Appends of the producer until one is acked or the log is gone, which has to come. */
bool sc_resume(struct sc *s, struct ks_log *log);
/* The same, a few times only: under faults it need not come. */
bool sc_try(struct sc *s, struct ks_log *log, int times);
/* Reads from the start to the high watermark, from the volume (no cache); stops at an error. What was
 * read counts like an ack. */
void sc_read(struct sc *s, struct ks_log *log);
/* fn for every batch from the start to the high watermark, from the volume; false: an error. */
typedef void (*sc_batch_fn)(struct sc *s, int32_t part, const struct ks_batch *b);
bool sc_walk(struct sc *s, struct ks_log *log, sc_batch_fn fn);
struct sc_ack sc_told_of(const struct ks_batch *b);

/* Cleans until nothing is due, or an error ends it. */
void sc_clean(struct sc *s, int i);
/* Waits until no checkpoint of the log is being written. */
void sc_settle(struct ks_log *log);
/* Waits until no round of tidying is under way: the first claim of a life asks for one. Not on a volume
 * without room, where a round waits for it. */
void sc_tidied(struct sc *s, int i);

/* ---- topics and producer ids ---- */

/* Notes an answer that is of no log. */
void sc_tell(struct sc *s, int32_t kind, int64_t base, int32_t count);
/* What an answer says of topics and ids; part of what a ledger knows. */
void sc_learn(struct sc *s, const struct sc_ack *a);

/* ---- judging ---- */

/* The volume is healthy again: an engine that was not there before, broker `number`, opens every
 * partition and judges it; then fsck. */
void sc_audit(struct sc *s, int number);
/* The end of a run with faults: heals the volume, ends the brokers, checks and audits, frees. */
void sc_finish(struct sc *s, const struct sc_scenario *sc);
/* Everything in the ledger is in this log, at its offset and once; a repeat of the producer's last
 * batch is told so, its open batch is appended once, and appends go on. */
void sc_audit_log(struct sc *s, struct ks_log *log);
/* The next fdatasync of a data file fails, whatever else does. */
void sc_poison(struct sc *s);
/* The node of broker i + 1 dies when it next syncs a data file: what it wrote is not synced, and
 * nothing that it asks for is done any more. */
void sc_kill(struct sc *s, int i);
/* fsck finds nothing wrong. */
void sc_fsck(struct sc *s);
void sc_config(struct sc *s, int64_t segment_bytes, int64_t retention_bytes);
/* Broker i + 1 puts every turn into journals of so many bytes (ADR 13); on a healthy volume returns when
 * there is one. Appends to these logs of it until then. */
void sc_journal(struct sc *s, int i, uint64_t bytes, struct ks_log *a, struct ks_log *b);

#endif
