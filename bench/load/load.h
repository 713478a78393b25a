/* load.h - what the files of kaas-load share.
 *
 * kaas-load is a light generator of Kafka load: one thread, raw sockets, record batches that are encoded once
 * and shared by all requests, so that on a machine of two cores the broker is what is measured. It speaks
 * versions that Apache Kafka 3.7 to 4.4 and kaas both serve: ApiVersions 0, Metadata 4, Produce 7, Fetch 11,
 * ListOffsets 1, CreateTopics 4, DeleteTopics 1. Anything that a measurement cannot go on with ends the
 * process with a message and exit code 1; an error that the broker answered, with 2. */
#ifndef LOAD_H
#define LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdnoreturn.h>
#include <sys/resource.h>

enum {
    LD_BROKERS = 64,
    LD_PARTS = 65536, /* of a topic */
    LD_CONFIGS = 8,
    LD_HOST = 256,
    LD_BATCH_HEADER = 61,
    LD_FRAME_MAX = 256 << 20, /* no answer is larger */
};

/* ---- options (load_main.c) ---- */

struct ld_opts {
    const char *mode, *bootstrap, *topic, *pids;
    const char *configs[LD_CONFIGS]; /* of created topics, key=value */
    int n_configs;
    int64_t conns, inflight, acks, per_request, parts, repeat;
    int64_t n, p, rf, per; /* topics, partitions of each, replicas, topics a request */
    int64_t batch, rec, bytes, part_max, max_bytes;
    int64_t gap_ms, max_wait_ms, min_bytes, timeout_ms;
    double secs, rate, hold, t0, warmup;
    bool crc, drop;
};

/* Prints why and ends the process: 1, or 2 for ld_refused. */
noreturn void ld_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
noreturn void ld_refused(const char *what, int kafka_error);

/* ---- time, histograms, accounting (load_report.c) ---- */

struct ld_hist { /* of nanoseconds, 32 steps a power of two: off by less than 1.6 % */
    uint64_t count[64 * 64];
    uint64_t n;
    int64_t max_ns;
    double sum_ns;
};

struct ld_usage { /* of the brokers, summed */
    double user_s, system_s;
    int64_t rss_kib, anon_kib, peak_kib;
};

struct ld_meter {
    const char *pids;
    struct ld_usage brokers;
    struct rusage self;
    int64_t start_ns;
};

struct ld_sums {
    int64_t bytes, msgs, reqs;
};

int64_t ld_now_ns(void); /* monotonic */
double ld_wall_s(void);
void ld_hist_add(struct ld_hist *h, int64_t ns);
/* Prints ,"name":{…} with microseconds. */
void ld_hist_print(const char *name, const struct ld_hist *h);
/* What the processes of a list "1,2" use now; those that are gone count nothing. */
void ld_usage_read(const char *pids, struct ld_usage *ret_usage);
void ld_meter_start(struct ld_meter *m, const struct ld_opts *o);
/* Prints the line up to, without, its closing brace. */
void ld_meter_print(const struct ld_meter *m, const char *mode, int64_t end_ns,
                    const struct ld_sums *sums);

/* ---- bytes (load_wire.c) ---- */

struct ld_w { /* a request that is written */
    uint8_t *p;
    size_t len, cap;
};

struct ld_r { /* an answer that is read; once too short, `bad` and all zeros */
    const uint8_t *p, *end;
    bool bad;
};

struct ld_batch {
    uint8_t *p;
    size_t len;
    int32_t records;
    size_t value_at; /* of the first record's value */
};

void ld_put16(uint8_t *p, int v);
void ld_put32(uint8_t *p, int64_t v);
void ld_put64(uint8_t *p, int64_t v);
int16_t ld_get16(const uint8_t *p);
int32_t ld_get32(const uint8_t *p);
int64_t ld_get64(const uint8_t *p);
void ld_w_bytes(struct ld_w *w, const void *data, size_t len);
void ld_w8(struct ld_w *w, int v);
void ld_w16(struct ld_w *w, int v);
void ld_w32(struct ld_w *w, int64_t v);
void ld_w64(struct ld_w *w, int64_t v);
void ld_w_str(struct ld_w *w, const char *s); /* NULL: null */
/* Starts a request over: a length to be filled in, and the header. */
void ld_w_request(struct ld_w *w, int api, int version, int32_t correlation);
const uint8_t *ld_r_bytes(struct ld_r *r, int64_t len); /* NULL when there are fewer */
int16_t ld_r16(struct ld_r *r);
int32_t ld_r32(struct ld_r *r);
int64_t ld_r64(struct ld_r *r);
/* A string's bytes, cut to fit; "" for null. */
void ld_r_str(struct ld_r *r, char *ret_s, size_t cap);
/* The length of an array of which each element takes at least `least` bytes; null: 0. */
int32_t ld_r_count(struct ld_r *r, size_t least);
/* A batch of about `target` bytes with values of `rec` random bytes: at least one record. */
void ld_batch_build(struct ld_batch *b, int64_t target, int64_t rec);
/* Puts a time and the checksum into a copy of a batch. */
void ld_batch_stamp(uint8_t *p, size_t len, int64_t wall_ms);

/* ---- the control plane, blocking (load_ctl.c) ---- */

struct ld_broker {
    int32_t id, port;
    char host[LD_HOST];
};

struct ld_part {
    int32_t leader;
    int64_t end; /* its high watermark when asked */
};

struct ld {
    struct ld_opts o;
    struct ld_broker brokers[LD_BROKERS];
    int n_brokers;
    struct ld_part *parts;
    int n_parts;
    struct ld_batch batch;
    int epoll;
    struct ld_conn *conns;
    int n_conns;
    struct ld_meter meter;
    int64_t stop_ns; /* no fetch is sent after it; 0: never */
};

/* A connected socket, or -errno. The host is an IPv4 address or localhost. */
int ld_dial(const char *host, int port, int64_t timeout_ms);
/* To the first address of the bootstrap list that takes it, from the n-th on; or -errno. */
int ld_bootstrap(const struct ld *l, int from, int64_t timeout_ms);
int ld_dial_broker(const struct ld *l, int32_t id, int64_t timeout_ms);
/* Sends a request and reads its answer, correlation id first: 0 or -errno. */
int ld_call(int fd, struct ld_w *request, struct ld_w *answer);
/* Who leads the topic's partitions: 0, a Kafka error, or -errno. */
int ld_metadata(struct ld *l, int fd);
/* Waits until all partitions of the topic have leaders that answer; reads their end offsets. */
void ld_topic_wait(struct ld *l);

/* ---- connections that carry the load (load_conn.c) ---- */

struct ld_slot { /* a produce request in flight */
    uint8_t *head, *part_heads; /* of the second partition on: index and size */
    size_t head_len, len;
    int64_t due_ns;
};

struct ld_conn {
    int fd;
    bool wants_out, consumer, busy, done;
    int32_t *parts; /* indexes of partitions */
    int n_parts;
    uint32_t turn;
    struct ld_slot *slots;
    uint64_t queued, sent, acked;
    size_t sent_bytes; /* of the slot `sent` */
    uint8_t *in;
    size_t in_len, in_cap;
    int64_t to_drop; /* bytes of an answer still to be dropped; -1: none is being dropped */
    int64_t *next; /* offset to fetch, by the place in parts */
    int32_t *place; /* in parts, by partition */
    int64_t round, asked_ns;
    struct ld_w request;
};

void ld_conn_open(struct ld *l, struct ld_conn *c, int32_t broker);
void ld_conn_give(struct ld *l, struct ld_conn *c, int32_t part);
void ld_conn_want_out(struct ld *l, struct ld_conn *c, bool on);
/* Makes the connections and spreads the partitions over them, each to one leader. */
void ld_conns_open(struct ld *l);
void ld_produce_head(const struct ld *l, struct ld_w *w, int32_t part, int parts);
/* Reads once; false when nothing was there. */
bool ld_conn_fill(struct ld_conn *c);
/* The size of the frame at `at` of what was read, 0 while its length is incomplete. */
size_t ld_frame_len(const struct ld_conn *c, size_t at);
/* Handles all answers to Produce that are there; the number of them. */
int64_t ld_drain_acks(const struct ld *l, struct ld_conn *c, struct ld_hist *h);

/* ---- fetching (load_fetch.c) ---- */

struct ld_fetched {
    int64_t bytes, msgs;
    struct ld_hist *age; /* from the time in the first record's value; NULL: not looked at */
    int64_t from_ns; /* older ones do not count in it */
};

/* Asks for what is next of each partition; a connection that has read all is done. */
void ld_fetch_send(struct ld *l, struct ld_conn *c);
/* Reads what is there; true when a whole answer was handled. */
bool ld_fetch_read(const struct ld *l, struct ld_conn *c, struct ld_fetched *f);

/* ---- modes ---- */

void ld_mode_produce(struct ld *l);
void ld_mode_fetch(struct ld *l);
void ld_mode_e2e(struct ld *l);
void ld_mode_idle(struct ld *l);
void ld_mode_probe(struct ld *l);
void ld_mode_ready(struct ld *l);
void ld_mode_first(struct ld *l);
void ld_mode_create(struct ld *l);
void ld_mode_led(struct ld *l);
void ld_mode_delete(struct ld *l);
void ld_mode_leader(struct ld *l);

#endif
