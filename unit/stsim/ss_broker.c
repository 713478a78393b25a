#include "ss_broker.h"

#include <stdio.h>
#include <string.h>

#include "base/kc_mem.h"
#include "ss_coord.h"
#include "ss_records.h"
#include "ss_srv.h"
#include "storage/ks_int.h"

struct ss_shared ss_shared;

bool ss_slot_is_coord(const struct ss_slot *s)
{
    return ss_shared.coord && s->part % SS_PARTS == 1;
}

/* ---- opening ---- */

static bool condemned(void *ctx, int32_t broker, const struct kc_uuid *inc)
{
    const struct ss_broker *b = ctx;
    (void)broker;
    (void)inc;
    return b->auditor || ss_chance(ss_shared.condemn);
}

static void on_watch(void *ctx, struct ks_log *log, bool gone)
{
    struct ss_slot *s = ctx;
    if (!s->b->dead) {
        ss_check_high_watermark(s->part, ks_log_offsets(log).high_watermark, ks_log_epoch(log));
    }
    s->gone = s->gone || gone;
}

static void on_open(void *ctx, int rc, struct ks_log *log, const struct kc_err *err,
                    int32_t blocker, const struct kc_uuid *blocker_inc)
{
    struct ss_slot *s = ctx;
    (void)blocker;
    (void)blocker_inc;
    if (rc == KC_E_CORRUPT && !s->b->dead && !ss_check_is_deleted(s->part)) {
        ss_check_fail("an open says that partition %d is corrupt: %s", s->part, err->msg);
    }
    if (rc == 0 && !log) {
        s->state = SS_WARM;
        return;
    }
    s->handle = NULL;
    s->state = rc ? SS_NONE : SS_OPEN;
    if (!rc) {
        ss_shared.takeovers++;
        s->log = log;
        s->gone = false;
        s->acks = 0;
        ks_log_own(log, &s->b->loop);
        ks_log_watch(log, on_watch, s);
        on_watch(s, log, false);
        if (ss_slot_is_coord(s)) {
            ss_coord_opened(s);
        }
    }
}

static struct ks_open_args open_args(struct ss_slot *s)
{
    int64_t retention = ss_shared.retention_bytes[s->part % SS_PARTS];
    struct ks_open_args args = {
        .topic_id = ss_shared.topic[s->part / SS_PARTS],
        .partition = s->part % SS_PARTS,
        .may_create = true,
        .order = {.uid = "map", .term = 1, .generation = ++ss_shared.generation},
        .config = {.segment_bytes = ss_shared.segment_bytes,
                   .retention_ms = -1,
                   .retention_bytes = retention,
                   .compact = ss_shared.compact[s->part % SS_PARTS],
                   .compact_only = ss_shared.compact[s->part % SS_PARTS] && retention < 0,
                   .min_dirty_ratio = ss_shared.dirty_ratio,
                   .max_compaction_lag_ms = INT64_MAX,
                   .delete_retention_ms = ss_shared.delete_retention_ms,
                   .segment_ms = INT64_MAX,
                   .max_message_bytes = 1048588,
                   .timestamp_before_max_ms = -1,
                   .timestamp_after_max_ms = -1,
                   .flush_messages = ss_shared.flush_messages[s->part % SS_PARTS],
                   .flush_ms = ss_shared.flush_ms},
        .condemned = condemned,
        .condemned_ctx = s->b,
        .loop = &s->b->loop,
        .done = on_open,
        .ctx = s,
    };
    return args;
}

void ss_slot_open(struct ss_slot *s)
{
    struct ks_open_args args = open_args(s);
    s->state = SS_OPENING;
    s->handle = ks_log_open(s->b->e, &args);
}

void ss_slot_prepare(struct ss_slot *s)
{
    struct ks_open_args args = open_args(s);
    s->state = SS_WARMING;
    s->handle = ks_log_prepare(s->b->e, &args);
}

void ss_slot_go(struct ss_slot *s)
{
    bool known = ss_shared.seal_len && ss_shared.seal_part == s->part;
    struct kc_bytes seal = {known ? ss_shared.seal : NULL, known ? ss_shared.seal_len : 0};
    s->state = SS_OPENING;
    ks_open_go(s->handle, seal);
}

void ss_slot_cancel(struct ss_slot *s)
{
    if (s->handle) {
        ks_open_cancel(s->handle);
        s->handle = NULL;
        s->state = SS_NONE;
    }
}

/* ---- appends ---- */

struct append {
    struct ss_slot *s;
    uint64_t number;
    int32_t records;
    bool idempotent;
};

static void producer_acked(struct ss_producer *p, uint64_t number, int64_t base)
{
    int i = 0;
    while (i < p->n && p->sent[i].number != number) {
        i++;
    }
    if (i == p->n || p->sent[i].acked) {
        return; /* a repeat, acked before */
    }
    if (base <= p->last_base || (i > 0 && !p->sent[i - 1].acked)) {
        ss_check_fail("batch %llu of a producer was acked at offset %lld, out of its order",
                      (unsigned long long)number, (long long)base);
    }
    p->last_base = base;
    p->sent[i].acked = true;
    while (p->n > 0 && p->sent[0].acked) {
        memmove(p->sent, p->sent + 1, sizeof(p->sent) - sizeof(p->sent[0]));
        p->n--;
        p->next = KC_MAX(p->next - 1, 0);
    }
}

static void on_append(void *ctx, const struct ks_append_result *r)
{
    struct append *a = ctx;
    struct ss_slot *s = a->s;
    struct ss_counts *c = ss_check_counts();
    struct ss_producer *p = &ss_shared.producer[s->part];
    bool acked = r->error == 0 && !s->b->dead;
    s->in_flight--;
    if (acked) {
        s->acks++;
        ss_check_acked(s->part, a->number, r->base_offset, a->records, ks_log_epoch(s->log));
    } else {
        c->refused++;
        if (r->error == 45 && !s->b->dead) {
            ss_check_out_of_order(s->part, ks_log_epoch(s->log));
        }
    }
    if (a->idempotent) {
        p->in_flight--;
        p->rewind = p->rewind || !acked;
        if (acked) {
            producer_acked(p, a->number, r->base_offset);
        }
    }
    kc_free(a);
}

/* What the idempotent producer of the partition sends next to this broker; NULL: nothing now. */
static struct ss_sent *producer_next(struct ss_slot *s)
{
    struct ss_producer *p = &ss_shared.producer[s->part];
    if (p->in_flight && (p->rewind || p->to != s)) {
        return NULL;
    }
    if (!p->in_flight) {
        p->rewind = false;
        p->next = 0;
        p->to = s;
    }
    if (p->next == SS_WINDOW) {
        return NULL;
    }
    struct ss_sent *b = &p->sent[p->next++];
    if (p->next > p->n) {
        *b = (struct ss_sent){
            .number = ss_check_new(s->part), .seq = p->seq, .records = 1 + (int32_t)ss_below(3)};
        p->seq += b->records;
        p->n++;
        if (p->n == 1 && b->seq == 0) {
            p->last_base = -1;
        }
    } else {
        ss_check_counts()->repeats++;
    }
    p->in_flight++;
    return b;
}

void ss_slot_append(struct ss_slot *s, bool idempotent)
{
    if (ss_slot_is_coord(s)) {
        ss_coord_request(s);
        return;
    }
    /* A repeat is known by its batch in the log, which retention of a few batches drops too early; and
     * what follows an acked batch that went with its broker has no place. */
    idempotent = idempotent && ss_shared.retention_bytes[s->part % SS_PARTS] < 0 &&
                 ss_shared.flush_messages[s->part % SS_PARTS] == 1;
    struct ss_sent plain = {.seq = -1}, *b = idempotent ? producer_next(s) : &plain;
    if (!b) {
        return;
    }
    if (!idempotent) {
        plain.number = ss_check_new(s->part);
        plain.records = 1 + (int32_t)ss_below(3);
    }
    struct append *a = kc_zalloc(sizeof(*a));
    *a = (struct append){
        .s = s, .number = b->number, .records = b->records, .idempotent = idempotent};
    struct ks_append_args args = {
        .batches = ss_batch(a->number, a->records, idempotent ? 1000 + s->part : -1, b->seq),
        .origin = KS_FROM_CLIENT,
        .now_wall_ms = 1700001000000,
        .acks = -1,
        .done = on_append,
        .ctx = a};
    ss_check_counts()->appends++;
    s->in_flight++;
    ks_log_append(s->log, &args);
    kc_buf_unref(args.batches.buf);
}

/* ---- reads ---- */

struct read {
    struct ss_slot *s;
    int64_t from;
    bool final, *done;
    int64_t *next;
};

static void on_read(void *ctx, const struct ks_read_result *r)
{
    struct read *rd = ctx;
    if (!r->error && !rd->s->b->dead) {
        ss_check_read(rd->s->part, rd->from, r, rd->final);
    } else if (rd->final) {
        ss_check_fail("the final log of partition %d cannot be read at offset %lld: error %d",
                      rd->s->part, (long long)*rd->next, r->error);
    }
    for (int32_t i = 0; i < r->n_slices; i++) {
        kc_buf_unref(r->slices[i].buf);
    }
    if (rd->final) {
        *rd->next = r->next_offset;
        *rd->done = true;
    }
    kc_free(rd);
}

void ss_slot_read(struct ss_slot *s)
{
    struct ks_offsets o = ks_log_offsets(s->log);
    if (o.high_watermark <= o.start) {
        return;
    }
    struct read *rd = kc_zalloc(sizeof(*rd));
    *rd = (struct read){
        .s = s, .from = o.start + (int64_t)ss_below((uint64_t)(o.high_watermark - o.start))};
    struct ks_read_args args = {.offset = rd->from,
                                .limit_offset = o.high_watermark,
                                .max_bytes = 1 + (int32_t)ss_below(9000),
                                .at_least_one = true};
    ks_log_read(s->log, &args, on_read, rd);
}

void ss_slot_read_all(struct ss_slot *s)
{
    struct ks_offsets o = ks_log_offsets(s->log);
    int64_t at = o.start;
    while (at < o.high_watermark && !ss_check_broken()) {
        bool done = false;
        int64_t next = at;
        struct read *rd = kc_zalloc(sizeof(*rd));
        *rd = (struct read){.s = s, .from = at, .final = true, .done = &done, .next = &next};
        struct ks_read_args args = {.offset = at,
                                    .limit_offset = o.high_watermark,
                                    .max_bytes = 1 << 16,
                                    .at_least_one = true};
        ks_log_read(s->log, &args, on_read, rd);
        while (!done) {
            ss_sleep_us(500);
            ss_broker_turn(s->b);
        }
        if (next <= at) {
            ss_check_fail("a read of partition %d at offset %lld gives nothing", s->part,
                          (long long)at);
        }
        at = next;
    }
    ss_check_final(s->part, o.start, o.high_watermark);
}

/* ---- letting go ---- */

struct deletion {
    struct ks_delete d;
    struct ss_slot *s;
};

static void on_deleted(struct ks_delete *d, int16_t error, int64_t log_start)
{
    struct deletion *del = KC_CONTAINER_OF(d, struct deletion, d);
    if (!error && !del->s->b->dead) {
        ss_check_start(del->s->part, log_start);
    }
    kc_free(del);
}

void ss_slot_delete_records(struct ss_slot *s)
{
    struct ks_offsets o = ks_log_offsets(s->log);
    struct deletion *del = kc_zalloc(sizeof(*del));
    del->s = s;
    del->d.done = on_deleted;
    del->d.offset = o.start + (int64_t)ss_below((uint64_t)(o.high_watermark - o.start) + 1);
    ks_log_delete_records(s->log, &del->d);
}

static void on_seal(void *ctx, int rc, struct kc_bytes record, int64_t end, int32_t epoch)
{
    struct ss_slot *s = ctx;
    s->state = SS_NONE;
    s->log = NULL;
    if (rc == 0 && !s->b->dead) {
        ss_check_high_watermark(s->part, end, epoch);
        memcpy(ss_shared.seal, record.ptr, (size_t)record.len);
        ss_shared.seal_len = record.len;
        ss_shared.seal_part = s->part;
    }
}

void ss_slot_seal(struct ss_slot *s)
{
    s->state = SS_SEALING;
    if (ss_slot_is_coord(s)) {
        ss_coord_closing(s);
    }
    ks_log_seal(s->log, &s->b->loop, on_seal, s);
}

void ss_slot_close(struct ss_slot *s)
{
    if (s->state == SS_OPEN) {
        if (ss_slot_is_coord(s)) {
            ss_coord_closing(s);
        }
        s->state = SS_NONE;
        ks_log_close(s->log);
        s->log = NULL;
    }
}
