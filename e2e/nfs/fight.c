/* fight.c - one of two brokers that fight for one partition on a real NFS mount.
 *
 *   fight DIR BROKER SECONDS ACKS    takes the partition over again and again, appends, and writes a
 *                                    line "offset value epoch" to ACKS for every acknowledged record
 *   fight DIR read OUT               opens the partition for the last time, writes "offset value" of
 *                                    every record in the log to OUT
 *
 * Both sides take every other incarnation for condemned: the worst that a controller could do. The
 * storage engine is the production one; this is its only user here. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_crc32c.h"
#include "base/kc_log.h"
#include "base/kc_rng.h"
#include "storage/ks_engine.h"

enum { HEADER = 61, RECORD = 15, BATCH = HEADER + RECORD, MIN_HOLD_MS = 300, MAX_HOLD_MS = 3000 };

struct fight {
    struct rt_loop loop;
    struct ks_engine *engine;
    struct ks_log *log;
    struct kc_rng rng;
    FILE *out;
    int32_t broker;
    int64_t end_ms;
    int64_t hold_until_ms;
    uint64_t next_value;
    uint64_t acks, takeovers, fenced;
    int64_t read_at;
    bool reading;
    bool register_again;
    uv_timer_t timer;
};

struct sent {
    struct fight *f;
    uint64_t value;
    int32_t epoch;
};

static void try_open(struct fight *f);
static void append_one(struct fight *f);

static void die(const char *what, const struct kc_err *err)
{
    fprintf(stderr, "%s: %s\n", what, err->msg);
    exit(1);
}

static void put(uint8_t *p, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        p[i] = (uint8_t)(v >> (8 * (bytes - 1 - i)));
    }
}

static uint64_t get(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++) {
        v = v << 8 | p[i];
    }
    return v;
}

/* A batch v2 with one record whose value is 8 bytes. */
static struct kc_buf *make_batch(uint64_t value)
{
    struct kc_buf *b = kc_buf_new(BATCH);
    uint8_t *p = b->data;
    memset(p, 0, BATCH);
    put(p + 8, BATCH - 12, 4);
    p[16] = 2;
    put(p + 27, (uint64_t)kc_wall_ms(), 8);
    put(p + 35, get(p + 27, 8), 8);
    put(p + 43, UINT64_MAX, 8);
    put(p + 51, UINT64_MAX, 2);
    put(p + 53, UINT64_MAX, 4);
    put(p + 57, 1, 4);
    uint8_t *r = p + HEADER;
    r[0] = (RECORD - 1) << 1; /* zigzag: the length of what follows */
    r[4] = 1; /* no key: -1 */
    r[5] = 8 << 1; /* length of the value */
    put(r + 6, value, 8);
    put(p + 17, kc_crc32c(0, p + 21, BATCH - 21), 4);
    return b;
}

static void on_acked(void *ctx, const struct ks_append_result *r)
{
    struct sent *s = ctx;
    struct fight *f = s->f;
    if (r->error == 0) {
        fprintf(f->out, "%" PRId64 " %" PRIu64 " %d\n", r->base_offset, s->value, s->epoch);
        f->acks++;
    }
    free(s);
    if (r->error == 0 && f->log) {
        append_one(f);
    }
}

static void append_one(struct fight *f)
{
    if (kc_mono_ms() > f->hold_until_ms) {
        return; /* silent from here on; the other side will take over */
    }
    struct sent *s = malloc(sizeof(*s));
    *s = (struct sent){f, ++f->next_value, ks_log_epoch(f->log)};
    struct kc_buf *b = make_batch(s->value);
    struct ks_append_args a = {.batches = {b, b->data, b->len},
                               .origin = KS_FROM_CLIENT,
                               .now_wall_ms = kc_wall_ms(),
                               .acks = -1,
                               .done = on_acked,
                               .ctx = s};
    ks_log_append(f->log, &a);
    kc_buf_unref(b);
}

static void on_log(void *ctx, struct ks_log *log, bool gone)
{
    struct fight *f = ctx;
    if (gone && f->log == log) {
        f->log = NULL;
        ks_log_close(log);
    }
}

static void on_read(void *ctx, const struct ks_read_result *r)
{
    struct fight *f = ctx;
    if (r->error || r->n_slices == 0) {
        fprintf(stderr, "read at %" PRId64 ": error %d\n", f->read_at, r->error);
        exit(r->error ? 1 : 0);
    }
    for (int32_t i = 0; i < r->n_slices; i++) {
        const uint8_t *p = r->slices[i].ptr;
        size_t left = r->slices[i].len;
        while (left > HEADER) {
            size_t n = (size_t)get(p + 8, 4) + 12;
            fprintf(f->out, "%" PRIu64 " %" PRIu64 "\n", get(p, 8), get(p + HEADER + 6, 8));
            p += n;
            left -= n;
        }
        kc_buf_unref(r->slices[i].buf);
    }
    f->read_at = r->next_offset;
}

static void read_all(struct fight *f)
{
    struct ks_offsets o = ks_log_offsets(f->log);
    if (f->read_at >= o.high_watermark) {
        fclose(f->out);
        printf("read %" PRId64 "\n", f->read_at);
        exit(0);
    }
    struct ks_read_args a = {.offset = f->read_at,
                             .limit_offset = o.high_watermark,
                             .max_bytes = 1 << 20,
                             .at_least_one = true};
    (void)ks_log_read(f->log, &a, on_read, f);
}

static bool everyone_is_condemned(void *ctx, int32_t broker, const struct kc_uuid *incarnation)
{
    (void)ctx, (void)broker, (void)incarnation;
    return true;
}

static void on_open(void *ctx, int rc, struct ks_log *log, const struct kc_err *err,
                    int32_t blocker, const struct kc_uuid *blocker_incarnation)
{
    struct fight *f = ctx;
    (void)blocker, (void)blocker_incarnation;
    f->hold_until_ms = 0;
    if (rc) {
        if (rc != KC_E_DEPOSED && rc != KC_E_FENCED) {
            fprintf(stderr, "open: %s\n", err ? err->msg : kc_strerror(rc));
        }
        f->register_again = f->register_again || rc == KC_E_FENCED;
        return;
    }
    f->takeovers++;
    f->log = log;
    ks_log_own(log, &f->loop);
    ks_log_watch(log, on_log, f);
    f->hold_until_ms =
        kc_mono_ms() + MIN_HOLD_MS + (int64_t)kc_rng_below(&f->rng, MAX_HOLD_MS - MIN_HOLD_MS);
    if (!f->reading) {
        append_one(f);
    }
}

static void on_fenced(void *ctx, const char *why)
{
    struct fight *f = ctx;
    (void)why;
    f->fenced++;
    f->register_again = true;
}

static void try_open(struct fight *f)
{
    struct ks_open_args a = {.partition = 0,
                             .may_create = true,
                             .order = {.uid = "fight", .term = 1, .generation = 1},
                             .config = {.segment_bytes = 64 << 10,
                                        .max_message_bytes = 1 << 20,
                                        .retention_ms = -1,
                                        .retention_bytes = -1,
                                        .segment_ms = INT64_MAX,
                                        .timestamp_before_max_ms = INT64_MAX,
                                        .timestamp_after_max_ms = INT64_MAX,
                                        .flush_messages = 1},
                             .condemned = everyone_is_condemned,
                             .loop = &f->loop,
                             .done = on_open,
                             .ctx = f};
    memset(a.topic_id.b, 7, sizeof(a.topic_id.b));
    f->hold_until_ms = INT64_MAX; /* an open is under way */
    ks_log_open(f->engine, &a);
}

/* Every 50 ms: lets go when the time is over, or tries to take over. */
static void on_timer(uv_timer_t *t)
{
    struct fight *f = t->data;
    int64_t now = kc_mono_ms();
    struct kc_err err;
    if (f->reading && f->log) {
        read_all(f);
        return;
    }
    if (now > f->end_ms) {
        fclose(f->out);
        printf("broker %d: %" PRIu64 " takeovers, %" PRIu64 " acks, %" PRIu64 " fenced\n",
               f->broker, f->takeovers, f->acks, f->fenced);
        exit(0);
    }
    if (f->log && now > f->hold_until_ms && kc_rng_below(&f->rng, 10) == 0) {
        struct ks_log *log = f->log;
        f->log = NULL;
        ks_log_close(log); /* without a seal: the next owner has to fence and scan */
        return;
    }
    if (f->register_again && !f->log) {
        f->register_again = false;
        struct kc_uuid inc = kc_uuid_random();
        if (ks_register(f->engine, &inc, &err)) {
            /* A client whose lease ran out is told EIO once: as a broker does, try again. */
            fprintf(stderr, "register: %s\n", err.msg);
            f->register_again = true;
        }
    }
    bool may_open = !f->log && !f->register_again && f->hold_until_ms != INT64_MAX;
    if (may_open && (f->reading || kc_rng_below(&f->rng, 6) == 0)) {
        try_open(f);
    }
}

int main(int argc, char **argv)
{
    struct fight f = {0};
    struct kc_err err;
    char cluster_id[KC_UUID_B64_LEN + 1] = "";
    if (argc < 4) {
        fprintf(stderr, "usage: fight DIR BROKER SECONDS ACKS | fight DIR read OUT\n");
        return 2;
    }
    kc_log_set_level(KC_WARN);
    f.reading = strcmp(argv[2], "read") == 0;
    f.broker = f.reading ? 9 : (int32_t)strtol(argv[2], NULL, 10);
    f.end_ms = kc_mono_ms() + (f.reading ? 60000 : 1000 * strtol(argv[3], NULL, 10));
    f.out = fopen(argv[f.reading ? 3 : 4], "w");
    if (!f.out) {
        perror(argv[f.reading ? 3 : 4]);
        return 1;
    }
    setvbuf(f.out, NULL, _IOLBF, 0);
    kc_rng_seed(&f.rng, (uint64_t)kc_mono_us());
    f.next_value = (uint64_t)f.broker << 40;
    if (rt_loop_init(&f.loop, "fight")) {
        return 1;
    }
    struct ks_opts o = {
        .dir = argv[1], .broker_id = f.broker, .loop = &f.loop, .on_fenced = on_fenced, .ctx = &f};
    struct kc_uuid inc = kc_uuid_random();
    if (ks_engine_open(&o, cluster_id, &f.engine, &err) || ks_register(f.engine, &inc, &err)) {
        die("open", &err);
    }
    uv_timer_init(&f.loop.uv, &f.timer);
    f.timer.data = &f;
    uv_timer_start(&f.timer, on_timer, 0, 50);
    rt_loop_run(&f.loop);
    return 0;
}
