#include "ss_coord.h"

#include "base/kc_hash.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "groups/kg_coord.h"
#include "ss_mutant.h"
#include "storage/ks_batch.h"

enum { KEYS = 4, HISTORY = 64 };
#define GROUP KC_STR_LIT("simulated")
#define TOPIC KC_STR_LIT("consumed")

/* What the consumer knows of one partition that it commits offsets of. */
struct key {
    int64_t next; /* it commits next */
    int n; /* acknowledged: the last few, ever larger */
    struct {
        int64_t at_us, offset;
    } acked[HISTORY];
};
static struct key keys[SS_TOPICS][KEYS]; /* by topic whose partition 1 keeps them */

void ss_coord_begin(void)
{
    __builtin_memset(keys, 0, sizeof(keys));
}

static struct key *keys_of(const struct ss_slot *s)
{
    return keys[s->part / SS_PARTS];
}

/* ---- the port ---- */

static struct ss_slot *slot_of(void *ctx)
{
    struct ss_broker *b = ctx;
    return &b->slot[1];
}

static int64_t mono_ms(void *ctx)
{
    (void)ctx;
    return ss_now_us() / 1000;
}

static int64_t wall_ms(void *ctx)
{
    return SS_WALL_MS + mono_ms(ctx);
}

static int64_t fence_age_ms(void *ctx)
{
    struct ss_broker *b = ctx;
    return ss_mutant_now() == SS_I10_NO_CHECK ? 0 : ks_fence_age_ms(b->e, mono_ms(ctx));
}

struct record {
    struct ss_slot *s;
    uint64_t number;
    int32_t records;
    ks_append_done done;
    void *done_ctx;
};

static void on_append(void *ctx, const struct ks_append_result *r)
{
    struct record *rec = ctx;
    rec->s->in_flight--;
    if (!r->error && !rec->s->b->dead) {
        rec->s->acks++;
        ss_check_acked(rec->s->part, rec->number, r->base_offset, rec->records,
                       ks_log_epoch(rec->s->log));
    } else {
        ss_check_counts()->refused++;
    }
    rec->done(rec->done_ctx, r);
    kc_free(rec);
}

static void append(void *ctx, int32_t slot, struct kc_buf *batches, ks_append_done done,
                   void *done_ctx)
{
    struct ss_slot *s = slot_of(ctx);
    struct ks_batch b;
    (void)slot;
    KC_ASSERT(ks_batch_parse(batches->data, &b) && b.size == batches->len);
    struct record *rec = kc_zalloc(sizeof(*rec));
    *rec = (struct record){.s = s, .records = b.count, .done = done, .done_ctx = done_ctx};
    rec->number = ss_check_new_coord(s->part, b.crc);
    struct ks_append_args args = {.batches = {batches, batches->data, batches->len},
                                  .origin = KS_FROM_COORDINATOR,
                                  .now_wall_ms = wall_ms(ctx),
                                  .acks = -1,
                                  .done = on_append,
                                  .ctx = rec};
    ss_check_counts()->appends++;
    s->in_flight++;
    ks_log_append(s->log, &args);
}

static void read_log(void *ctx, int32_t slot, const struct ks_read_args *args, ks_read_done done,
                     void *done_ctx)
{
    (void)slot;
    ks_log_read(slot_of(ctx)->log, args, done, done_ctx);
}

static struct ks_offsets offsets(void *ctx, int32_t slot)
{
    (void)slot;
    return ks_log_offsets(slot_of(ctx)->log);
}

static void later(void *ctx, int32_t shard, struct rt_msg *msg)
{
    struct ss_broker *b = ctx;
    (void)shard;
    rt_post(&b->loop, msg);
}

static void wake(void *ctx, int32_t shard, int64_t at_ms)
{
    struct ss_broker *b = ctx;
    (void)shard;
    b->coord_wake_ms = at_ms;
}

/* ---- life ---- */

void ss_coord_new(struct ss_broker *b)
{
    static const struct kg_config cfg = KG_CONFIG_DEFAULTS;
    struct kg_port port = {.ctx = b,
                           .mono_ms = mono_ms,
                           .wall_ms = wall_ms,
                           .fence_age_ms = fence_age_ms,
                           .append = append,
                           .read = read_log,
                           .offsets = offsets,
                           .later = later,
                           .wake = wake};
    b->coord_wake_ms = INT64_MAX;
    b->coord = kg_coord_new(&cfg, &port, 1);
}

void ss_coord_free(struct ss_broker *b)
{
    kg_coord_free(b->coord);
    b->coord = NULL;
}

static struct kg_shard *shard(const struct ss_slot *s)
{
    return kg_shard_at(s->b->coord, 0);
}

void ss_coord_opened(struct ss_slot *s)
{
    kg_slot_opened(shard(s), kc_coordinator_slot(GROUP, KP_SLOTS));
}

void ss_coord_closing(struct ss_slot *s)
{
    kg_slot_closing(shard(s), kc_coordinator_slot(GROUP, KP_SLOTS));
}

void ss_coord_turn(struct ss_broker *b)
{
    if (b->coord && b->coord_wake_ms <= mono_ms(b)) {
        b->coord_wake_ms = INT64_MAX;
        kg_shard_tick(kg_shard_at(b->coord, 0));
    }
}

/* ---- the consumer ---- */

/* An answer shows everything that was acknowledged before the fence check that it needs. */
static void check(const struct ss_slot *s, const struct kg_offsets *found, int64_t since_us)
{
    for (int32_t p = 0; p < KEYS; p++) {
        const struct key *k = &keys_of(s)[p];
        const struct kg_offset *o = found ? kg_offset_find(found, TOPIC, p) : NULL;
        int64_t has = o && o->visible ? o->v.offset : -1, due = -1;
        for (int i = 0; i < k->n; i++) {
            due = k->acked[i].at_us <= since_us ? k->acked[i].offset : due;
        }
        if (has < due || has >= k->next) {
            ss_check_fail("I10: offset %lld is committed in partition %d, which is %s: %lld",
                          (long long)has, s->part,
                          has < due ? "below what was acknowledged" : "nothing that was sent",
                          (long long)due);
        }
    }
}

static void fetch(const struct ss_slot *s)
{
    const struct kg_offsets *found = NULL;
    if (kg_request_fetch(shard(s), GROUP, &found) == 0) {
        ss_check_counts()->fetches++;
        check(s, found, ss_now_us() - (KG_FENCE_AGE_MAX_MS + 2) * 1000LL);
    }
}

struct commit {
    struct kg_commit c;
    struct kg_commit_part part;
    struct ss_slot *s;
    struct key *key;
};

static void on_committed(struct kg_commit *c)
{
    struct commit *cm = KC_CONTAINER_OF(c, struct commit, c);
    struct key *k = cm->key;
    int64_t offset = cm->part.v.offset;
    if (!cm->part.error && !cm->s->b->dead && (!k->n || k->acked[k->n - 1].offset < offset)) {
        if (k->n == HISTORY) {
            __builtin_memmove(k->acked, k->acked + 1, sizeof(k->acked) - sizeof(k->acked[0]));
            k->n--;
        }
        k->acked[k->n].at_us = ss_now_us();
        k->acked[k->n++].offset = offset;
        ss_check_counts()->commits++;
    }
    kc_free(cm);
}

static void commit(struct ss_slot *s)
{
    int32_t p = (int32_t)ss_below(KEYS);
    struct commit *cm = kc_zalloc(sizeof(*cm));
    cm->s = s;
    cm->key = &keys_of(s)[p];
    cm->part = (struct kg_commit_part){.topic = TOPIC,
                                       .partition = p,
                                       .v = {.offset = cm->key->next++,
                                             .leader_epoch = -1,
                                             .metadata = KC_STR_LIT(""),
                                             .expire_wall_ms = -1}};
    cm->c = (struct kg_commit){
        .who = {.member_id = KC_STR_LIT(""), .instance_id = KC_STR_NULL, .generation = -1},
        .n = 1,
        .parts = &cm->part,
        .done = on_committed};
    kg_request_commit(shard(s), GROUP, &cm->c);
}

void ss_coord_request(struct ss_slot *s)
{
    if (ss_chance(200)) {
        fetch(s);
    } else {
        commit(s);
    }
}

void ss_coord_audit(struct ss_slot *s)
{
    const struct kg_offsets *found = NULL;
    for (int i = 0; kg_request_fetch(shard(s), GROUP, &found) != 0 && !ss_check_broken(); i++) {
        ss_sleep_us(1000);
        ss_broker_turn(s->b);
        if (i > 30000) {
            ss_check_fail("I10: the coordinator does not read its log in partition %d", s->part);
        }
    }
    if (!ss_check_broken()) {
        check(s, found, ss_now_us());
    }
}
