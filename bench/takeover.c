/* takeover.c - how long it takes to take over many partitions of a broker that died, and to open
 * them again after an orderly seal.
 *
 *   kaas-takeover DIR PARTITIONS THREADS [SECONDS [FILES]]
 *
 * One engine leads PARTITIONS partitions with a few batches each; another, with THREADS takeovers at
 * once, fences it and opens them all; a third opens them after the second has sealed them. Prints a
 * JSON line: milliseconds until the first, half, 99 % and all of them were open.
 *
 * SECONDS: before that the first one appends to all partitions for so long, one batch each at a time.
 * Prints acks a second, how long an ack took, and the longest time without any. FILES: turns of no more
 * partitions sync their files, others a journal (ADR 13); a large number: never a journal. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_crc32c.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "storage/ks_batch.h"
#include "storage/ks_bytes.h"
#include "storage/ks_int.h"

enum { BATCHES = 3, VALUE = 200, TOOK = 1 << 20 };

struct broker {
    int64_t until_us, last_us, pause_us; /* load */
    uint64_t acks;
    int64_t *took_us; /* TOOK of them, by the acks' number */
    struct rt_loop loop;
    struct ks_engine *e;
    struct ks_log **logs;
    int n, left;
    int64_t start_us, *done_us;
};

static void fail(const char *what, const struct kc_err *err)
{
    fprintf(stderr, "%s: %s\n", what, err && err->msg[0] ? err->msg : "failed");
    exit(1);
}

static void start(struct broker *b, const char *dir, int32_t id, int threads, int n)
{
    struct ks_opts o = {.dir = dir, .broker_id = id, .loop = &b->loop, .takeover_threads = threads};
    char cluster[KC_UUID_B64_LEN + 1] = "";
    struct kc_err err = {0};
    struct kc_uuid inc = kc_uuid_random();
    memset(b, 0, sizeof(*b));
    b->n = n;
    b->logs = kc_zalloc((size_t)n * sizeof(*b->logs));
    b->done_us = kc_zalloc((size_t)n * sizeof(*b->done_us));
    if (rt_loop_init(&b->loop, "bench")) {
        fail("loop", NULL);
    }
    b->loop.thread = pthread_self();
    if (ks_engine_open(&o, cluster, &b->e, &err) || ks_register(b->e, &inc, &err)) {
        fail("engine", &err);
    }
}

static void turn_until_done(struct broker *b)
{
    while (b->left > 0) {
        uv_run(&b->loop.uv, UV_RUN_ONCE);
    }
}

/* ---- opening ---- */

struct opening {
    struct broker *b;
    int i;
};

static void on_open(void *ctx, int rc, struct ks_log *log, const struct kc_err *err,
                    int32_t blocker, const struct kc_uuid *blocker_incarnation)
{
    struct opening *o = ctx;
    (void)blocker;
    (void)blocker_incarnation;
    if (rc) {
        fail("open", err);
    }
    o->b->logs[o->i] = log;
    ks_log_own(log, &o->b->loop);
    o->b->done_us[--o->b->left] = kc_mono_us() - o->b->start_us;
    kc_free(o);
}

static bool condemned(void *ctx, int32_t broker, const struct kc_uuid *inc)
{
    (void)ctx;
    (void)broker;
    (void)inc;
    return true;
}

static void open_all(struct broker *b, const struct kc_uuid *topic)
{
    b->left = b->n;
    b->start_us = kc_mono_us();
    for (int i = 0; i < b->n; i++) {
        struct opening *o = kc_zalloc(sizeof(*o));
        *o = (struct opening){.b = b, .i = i};
        struct ks_open_args args = {.topic_id = *topic,
                                    .partition = i,
                                    .may_create = true,
                                    .config = {.segment_bytes = 1 << 30,
                                               .retention_ms = -1,
                                               .retention_bytes = -1,
                                               .max_message_bytes = 1 << 20,
                                               .timestamp_before_max_ms = -1,
                                               .timestamp_after_max_ms = INT64_MAX,
                                               .flush_messages = 1},
                                    .condemned = condemned,
                                    .loop = &b->loop,
                                    .done = on_open,
                                    .ctx = o};
        ks_log_open(b->e, &args);
    }
    turn_until_done(b);
}

static int by_time(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void report(struct broker *b, const char *what, int threads)
{
    qsort(b->done_us, (size_t)b->n, sizeof(*b->done_us), by_time);
    printf("{\"what\": \"%s\", \"partitions\": %d, \"threads\": %d, \"first_ms\": %.1f, "
           "\"p50_ms\": %.1f, \"p99_ms\": %.1f, \"all_ms\": %.1f}\n",
           what, b->n, threads, (double)b->done_us[0] / 1e3, (double)b->done_us[b->n / 2] / 1e3,
           (double)b->done_us[(b->n - 1) * 99 / 100] / 1e3, (double)b->done_us[b->n - 1] / 1e3);
    fflush(stdout);
}

/* ---- appending and sealing ---- */

static struct kc_slice batch(void)
{
    struct kc_buf *buf = kc_buf_new(KS_BATCH_HEADER + VALUE + 16);
    uint8_t *raw = buf->data, *p = raw + KS_BATCH_HEADER;
    memset(raw, 0, KS_BATCH_HEADER);
    /* length, attributes, timestamp delta, offset delta, no key, value, no headers */
    static const uint8_t head[] = {0x9e, 0x03, 0, 0, 0, 1, 0x90, 0x03};
    memcpy(p, head, sizeof(head));
    memset(p + sizeof(head), 'v', VALUE);
    p += sizeof(head) + VALUE;
    *p++ = 0;
    size_t len = (size_t)(p - raw);
    ks_put32(raw + 8, (uint32_t)(len - 12));
    raw[16] = 2;
    ks_put64(raw + 27, 1700000000000u);
    ks_put64(raw + 35, 1700000000000u);
    memset(raw + 43, 0xff, 14);
    ks_put32(raw + 57, 1);
    ks_put32(raw + 17, kc_crc32c(0, raw + 21, len - 21));
    return (struct kc_slice){.buf = buf, .ptr = raw, .len = len};
}

/* Takes the slice. */
static void append(struct ks_log *log, struct kc_slice s, ks_append_done done, void *ctx)
{
    struct ks_append_args args = {.batches = s,
                                  .origin = KS_FROM_CLIENT,
                                  .now_wall_ms = kc_wall_ms(),
                                  .acks = -1,
                                  .done = done,
                                  .ctx = ctx};
    ks_log_append(log, &args);
    kc_buf_unref(s.buf);
}

static void expect_acked(const struct ks_append_result *r)
{
    if (r->error) {
        fprintf(stderr, "append: error %d\n", r->error);
        exit(1);
    }
}

static void on_append(void *ctx, const struct ks_append_result *r)
{
    struct broker *b = ctx;
    expect_acked(r);
    b->left--;
}

static void fill(struct broker *b)
{
    for (int round = 0; round < BATCHES; round++) {
        b->left = b->n;
        for (int i = 0; i < b->n; i++) {
            append(b->logs[i], batch(), on_append, b);
        }
        turn_until_done(b);
    }
}

/* ---- load ---- */

struct loader {
    struct broker *b;
    int i;
    int64_t sent_us;
};

static void send_one(struct loader *l);

static void on_load(void *ctx, const struct ks_append_result *r)
{
    struct loader *l = ctx;
    struct broker *b = l->b;
    int64_t now = kc_mono_us();
    expect_acked(r);
    b->pause_us = KC_MAX(b->pause_us, now - b->last_us);
    b->last_us = now;
    b->took_us[b->acks++ % TOOK] = now - l->sent_us;
    if (now < b->until_us) {
        send_one(l);
    } else {
        b->left--;
        kc_free(l);
    }
}

static void send_one(struct loader *l)
{
    struct kc_slice s = batch();
    l->sent_us = kc_mono_us();
    append(l->b->logs[l->i], s, on_load, l);
}

static void load(struct broker *b, int64_t seconds)
{
    struct ks_metrics before, m;
    int64_t start_us = kc_mono_us();
    ks_metrics_read(b->e, &before);
    b->left = b->n;
    b->until_us = start_us + seconds * 1000000;
    b->last_us = start_us;
    b->took_us = kc_zalloc(TOOK * sizeof(*b->took_us));
    for (int i = 0; i < b->n; i++) {
        struct loader *l = kc_zalloc(sizeof(*l));
        *l = (struct loader){.b = b, .i = i};
        send_one(l);
    }
    turn_until_done(b);
    ks_metrics_read(b->e, &m);
    size_t n = (size_t)KC_MIN(b->acks, (uint64_t)TOOK);
    qsort(b->took_us, n, sizeof(*b->took_us), by_time);
    printf("{\"what\": \"load\", \"partitions\": %d, \"acks_per_s\": %.0f, \"p50_ms\": %.1f, "
           "\"p99_ms\": %.1f, \"max_ms\": %.1f, \"pause_ms\": %.1f, \"fsyncs\": %llu, "
           "\"frames\": %llu}\n",
           b->n, (double)b->acks * 1e6 / (double)(kc_mono_us() - start_us),
           (double)b->took_us[n / 2] / 1e3, (double)b->took_us[n * 99 / 100] / 1e3,
           (double)b->took_us[n - 1] / 1e3, (double)b->pause_us / 1e3,
           (unsigned long long)(m.fsyncs - before.fsyncs),
           (unsigned long long)(m.frames - before.frames));
    fflush(stdout);
    kc_free(b->took_us);
}

static void on_seal(void *ctx, int rc, struct kc_bytes record, int64_t end, int32_t epoch)
{
    struct broker *b = ctx;
    (void)record;
    (void)end;
    (void)epoch;
    if (rc) {
        fail("seal", NULL);
    }
    b->done_us[--b->left] = kc_mono_us() - b->start_us;
}

static void seal_all(struct broker *b)
{
    b->left = b->n;
    b->start_us = kc_mono_us();
    for (int i = 0; i < b->n; i++) {
        ks_log_seal(b->logs[i], &b->loop, on_seal, b);
    }
    turn_until_done(b);
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc > 6) {
        fprintf(stderr, "usage: kaas-takeover DIR PARTITIONS THREADS [SECONDS [FILES]]\n");
        return 2;
    }
    int n = (int)strtol(argv[2], NULL, 10), threads = (int)strtol(argv[3], NULL, 10);
    static struct broker b[3];
    struct kc_uuid topic = kc_uuid_random();
    kc_log_set_level(KC_ERROR + 1);
    start(&b[0], argv[1], 0, 0, n);
    open_all(&b[0], &topic);
    report(&b[0], "create", 0);
    if (argc > 5) {
        b[0].e->direct_files = (uint32_t)strtoul(argv[5], NULL, 10);
    }
    fill(&b[0]);
    if (argc > 4) {
        load(&b[0], strtol(argv[4], NULL, 10));
    }
    start(&b[1], argv[1], 1, threads, n);
    open_all(&b[1], &topic);
    report(&b[1], "takeover", threads);
    fill(&b[1]);
    seal_all(&b[1]);
    report(&b[1], "seal", threads);
    start(&b[2], argv[1], 2, threads, n);
    open_all(&b[2], &topic);
    report(&b[2], "open", threads);
    return 0; /* nothing more is measured: the process's end is the cleanup */
}
