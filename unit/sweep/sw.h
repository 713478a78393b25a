/* sw.h - a whole self-led broker in the test's own process, whose allocations can be made to fail, and
 * a client whose own never do.
 *
 * The broker runs on a thread as it does in its process; only the client's thread is spared. Which
 * allocation is the n-th differs a little from run to run, as the threads do: a sweep goes through
 * all numbers, and a failing one is run again many times. */
#ifndef SW_H
#define SW_H

#include <pthread.h>

#include "base/kc_arena.h"
#include "kt.h"
#include "kt_dir.h"
#include "wire/kw_api.h"

enum { SW_TOPIC_PARTS = 2, SW_ACKS_MAX = 4096, SW_COMMITS_MAX = 4096, SW_EXPECT_MAX = 4 };

/* ---- the broker ---- */

struct sw_broker {
    char dir[KT_DIR_MAX];
    uint16_t port;
    pthread_t thread;
    struct kb_config *config;
    int exit_code;
    _Atomic bool ended;
};

void sw_make(struct sw_broker *b); /* a directory with a volume and a configuration */
void sw_remove(struct sw_broker *b);
/* Reads the configuration and runs; false if the configuration is refused. */
bool sw_start(struct sw_broker *b);
/* Ends it as Kubernetes does, and waits. Returns the exit code. */
int sw_stop(struct sw_broker *b);

/* ---- a client ---- */

struct sw_acked {
    int32_t partition;
    int64_t offset;
    uint64_t stamp;
};

struct sw_committed {
    char group[32];
    int64_t offset;
};

/* What a sweep knows of one broker; one thread. */
struct sw {
    struct sw_broker *broker;
    bool faults; /* allocations may fail: errors a client retries after are fine */
    int errors; /* findings */
    bool complaint; /* the last answer carried an error that is no part of the scenario … */
    char why[256]; /* … this one, or none came */
    uint64_t number; /* of the runs: makes names unique */
    uint64_t stamp; /* of the records */
    struct kc_uuid topic_id;

    int32_t n_acked, n_committed;
    struct sw_acked acked[SW_ACKS_MAX];
    struct sw_committed committed[SW_COMMITS_MAX];

    int fd;
    bool closed; /* by the broker */
    int32_t correlation;
    struct kc_arena arena;
    uint8_t *frame;
    int16_t expect[SW_EXPECT_MAX]; /* errors the next answer may carry, always */

    int64_t producer_id; /* of the record on its way; -1 = none */
    int16_t producer_epoch;
    uint64_t producer_stamp;
};

void sw_bad(struct sw *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool sw_dial(struct sw *s); /* false: refused */
void sw_hang_up(struct sw *s);
/* Sends; false if the connection is closed. */
bool sw_send(struct sw *s, int16_t key, int16_t version, const void *request);
bool sw_send_raw(struct sw *s, const void *data, size_t len);
/* The answer, until the next one. NULL: closed, or an error that is no part of the scenario. No answer
 * and no end within half a minute is a finding, as is an error that would mislead a client. */
const void *sw_receive(struct sw *s, int16_t key, int16_t version);
/* The same, with whatever errors: complaint tells. */
const void *sw_receive_all(struct sw *s, int16_t key, int16_t version);
const void *sw_ask(struct sw *s, int16_t key, int16_t version, const void *request);
/* Whether the peer closes, or answers nothing, which is a finding when it must close. */
bool sw_await_close(struct sw *s);

/* ---- scenarios: true when every answer was the one of a healthy broker ---- */

/* The topic of the tests, made if it is missing; every slot of the group coordinator is open. */
bool sw_ready(struct sw *s);
/* Everything acked and committed is there, once. */
bool sw_verify(struct sw *s);
/* Runs it on connections of its own without faults until it is true; a finding if that takes long. */
void sw_await(struct sw *s, const char *what, bool (*run)(struct sw *s));
/* One record of a value of its own to each partition; acks 0 gives no answer. */
bool sw_produce(struct sw *s, int16_t acks);

#endif
