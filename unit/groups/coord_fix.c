#include "coord_fix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_hash.h"
#include "base/kc_log.h"
#include "base/kc_str.h"
#include "kt.h"
#include "wire/kw_batch.h"

static int32_t slot(void)
{
    return kc_coordinator_slot(CX_GROUP, KP_SLOTS);
}

/* ---- the fake world ---- */

static int64_t mono_ms(void *ctx)
{
    return ((struct cx *)ctx)->now;
}

static int64_t wall_ms(void *ctx)
{
    return ((struct cx *)ctx)->wall;
}

static int64_t fence_age_ms(void *ctx)
{
    return ((struct cx *)ctx)->fence_age;
}

static void put_be64(uint8_t *at, int64_t v)
{
    for (int i = 0; i < 8; i++) {
        at[i] = (uint8_t)((uint64_t)v >> (56 - 8 * i));
    }
}

/* Batches get their offsets as the engine would give them. */
static void write_log(struct cx *x, const uint8_t *bytes, size_t len)
{
    KT_REQUIRE(x->log_len + len <= CX_LOG);
    memcpy(x->log + x->log_len, bytes, len);
    while (len > 0) {
        struct kw_batch b;
        uint8_t *at = x->log + x->log_len;
        KT_REQUIRE(kw_batch_view(at, len, &b) == 0);
        KT_TRUE(kw_batch_crc_ok(&b));
        put_be64(at, x->end_offset);
        x->end_offset += b.last_offset_delta + 1;
        x->log_len += b.size;
        len -= b.size;
    }
}

void cx_ack(struct cx *x, int16_t error)
{
    KT_REQUIRE(x->n_appends > 0);
    struct cx_append a = x->appends[0];
    memmove(x->appends, x->appends + 1, (size_t)--x->n_appends * sizeof(a));
    if (!error) {
        write_log(x, a.bytes, a.len);
    }
    free(a.bytes);
    struct ks_append_result r = {.error = error, .base_offset = x->end_offset};
    a.done(a.ctx, &r);
}

static void append(void *ctx, int32_t s, struct kc_buf *batches, ks_append_done done,
                   void *done_ctx)
{
    struct cx *x = ctx;
    KT_EQ(s, slot());
    KT_REQUIRE(x->n_appends < CX_APPENDS);
    struct cx_append *a = &x->appends[x->n_appends++];
    *a = (struct cx_append){batches->len, malloc(batches->len), done, done_ctx};
    memcpy(a->bytes, batches->data, batches->len);
    if (!x->manual) {
        int16_t error = x->fail_next;
        x->fail_next = 0;
        cx_ack(x, error);
    }
}

static void read_log(void *ctx, int32_t s, const struct ks_read_args *args, ks_read_done done,
                     void *done_ctx)
{
    struct cx *x = ctx;
    (void)s;
    size_t at = 0, from = 0, len = 0;
    int64_t next = args->offset;
    while (at < x->log_len) {
        struct kw_batch b;
        KT_REQUIRE(kw_batch_view(x->log + at, x->log_len - at, &b) == 0);
        if (b.base_offset >= args->offset && (len == 0 || len + b.size <= x->read_bytes)) {
            from = len ? from : at;
            len += b.size;
            next = b.base_offset + b.last_offset_delta + 1;
        }
        at += b.size;
    }
    struct kc_buf *buf = kc_buf_new(len);
    memcpy(buf->data, x->log + from, len);
    struct ks_read_result r = {
        .n_slices = 1, .slices = {{buf, buf->data, len}}, .next_offset = next};
    done(done_ctx, &r);
}

static struct ks_offsets offsets(void *ctx, int32_t s)
{
    struct cx *x = ctx;
    (void)s;
    return (struct ks_offsets){0, x->end_offset, x->end_offset, x->end_offset};
}

static void later(void *ctx, int32_t shard, struct rt_msg *msg)
{
    struct cx *x = ctx;
    (void)shard;
    msg->next = x->later;
    x->later = msg;
}

static void wake(void *ctx, int32_t shard, int64_t at_ms)
{
    (void)shard;
    ((struct cx *)ctx)->wake_at = at_ms;
}

/* ---- driving ---- */

void cx_turns(struct cx *x)
{
    while (x->later) {
        struct rt_msg *m = x->later;
        x->later = m->next;
        m->fn(m);
    }
}

void cx_pass(struct cx *x, int64_t ms)
{
    int64_t until = x->now + ms;
    while (x->wake_at <= until) {
        int64_t at = KC_MAX(x->now, x->wake_at);
        x->wall += at - x->now;
        x->now = at;
        x->wake_at = INT64_MAX;
        kg_shard_tick(x->shard);
        cx_turns(x);
    }
    x->wall += until - x->now;
    x->now = until;
}

void cx_open(struct cx *x)
{
    kg_slot_opened(x->shard, slot());
}

void cx_close(struct cx *x)
{
    kg_slot_closing(x->shard, slot());
}

void cx_init(struct cx *x)
{
    memset(x, 0, sizeof(*x));
    kc_log_set_level(KC_ERROR);
    x->cfg = (struct kg_config)KG_CONFIG_DEFAULTS;
    x->cfg.initial_delay_ms = 0;
    x->now = 1000;
    x->wall = 1700000000000;
    x->wake_at = INT64_MAX;
    x->log = malloc(CX_LOG);
    x->read_bytes = CX_LOG;
    struct kg_port port = {x,        mono_ms, wall_ms, fence_age_ms, append,
                           read_log, offsets, later,   wake};
    x->coord = kg_coord_new(&x->cfg, &port, 1);
    x->shard = kg_shard_at(x->coord, 0);
    cx_open(x);
    cx_turns(x);
}

void cx_fini(struct cx *x)
{
    cx_turns(x);
    while (x->n_appends) {
        cx_ack(x, KAFKA_NOT_LEADER_OR_FOLLOWER);
    }
    cx_close(x);
    for (int i = 0; i < x->n_reqs; i++) {
        KT_EQ(x->answers[i].count, 1);
    }
    struct kg_metrics m;
    kg_metrics_read(x->coord, &m);
    KT_EQ(m.members, 0); /* the gauges came back to nothing */
    KT_EQ(m.offsets, 0);
    KT_EQ(m.slots, 0);
    KT_EQ(m.slots_loading, 0);
    for (int i = 0; i <= KG_DEAD; i++) {
        KT_EQ(m.groups[i], 0);
    }
    kg_coord_free(x->coord);
    free(x->log);
}

/* ---- requests ---- */

static void copy(char *out, size_t cap, struct kc_str s)
{
    snprintf(out, cap, "%.*s", KC_STR_ARG(s));
}

static void on_joined(struct kg_waiter *w, const struct kg_join_out *out)
{
    struct cx_answer *a = KC_CONTAINER_OF(w, struct cx_answer, waiter);
    a->count++;
    a->error = out->error;
    a->generation = out->generation;
    copy(a->member, sizeof(a->member), out->member_id);
    copy(a->leader, sizeof(a->leader), out->leader);
}

static void on_synced(struct kg_waiter *w, const struct kg_sync_out *out)
{
    struct cx_answer *a = KC_CONTAINER_OF(w, struct cx_answer, waiter);
    a->count++;
    a->error = out->error;
    copy(a->assignment, sizeof(a->assignment),
         (struct kc_str){(const char *)out->assignment.ptr, out->assignment.len});
}

static struct cx_answer *ask(struct cx *x)
{
    KT_REQUIRE(x->n_reqs < CX_REQS);
    struct cx_answer *a = &x->answers[x->n_reqs++];
    a->waiter = (struct kg_waiter){on_joined, on_synced};
    return a;
}

struct cx_answer *cx_join(struct cx *x, const char *member, const char *client, int session_ms)
{
    struct cx_answer *a = ask(x);
    /* A subscription to topic "t" (version 0, one topic, no user data). */
    static const uint8_t sub[] = {0, 0, 0, 0, 0, 1, 0, 1, 't', 0, 0, 0, 0};
    struct kg_protocol p = {KC_STR_LIT("range"), {sub, sizeof(sub)}};
    struct kg_join_in in = {.req = &a->waiter,
                            .spec = {.id = kc_str_of(member),
                                     .client_id = kc_str_of(client),
                                     .client_host = KC_STR_LIT("/1.2.3.4"),
                                     .session_timeout_ms = session_ms,
                                     .rebalance_timeout_ms = 60000,
                                     .n_protocols = 1,
                                     .protocols = &p},
                            .protocol_type = KC_STR_LIT("consumer")};
    kg_request_join(x->shard, CX_GROUP, &in, KC_STR_NULL);
    return a;
}

struct cx_answer *cx_sync(struct cx *x, const char *member, int32_t generation,
                          const char *assign_to, const char *bytes)
{
    struct cx_answer *a = ask(x);
    struct kg_assignment list = {kc_str_of(assign_to ? assign_to : ""),
                                 {(const uint8_t *)bytes, bytes ? (int32_t)strlen(bytes) : 0}};
    struct kg_sync_in in = {.req = &a->waiter,
                            .who = {.member_id = kc_str_of(member), .generation = generation},
                            .n_assignments = assign_to ? 1 : 0,
                            .assignments = &list};
    kg_request_sync(x->shard, CX_GROUP, &in);
    return a;
}

static void on_commit(struct kg_commit *c)
{
    KC_CONTAINER_OF(c, struct cx_commit, c)->done = true;
}

void cx_commit(struct cx *x, struct cx_commit *c, const char *member, int32_t generation,
               const char *topic, int32_t partition, int64_t offset)
{
    *c = (struct cx_commit){.part = {.topic = kc_str_of(topic),
                                     .partition = partition,
                                     .v = {.offset = offset,
                                           .leader_epoch = 3,
                                           .metadata = KC_STR_LIT("note"),
                                           .expire_wall_ms = -1}}};
    c->c = (struct kg_commit){.who = {.member_id = kc_str_of(member), .generation = generation},
                              .n = 1,
                              .parts = &c->part,
                              .done = on_commit};
    kg_request_commit(x->shard, CX_GROUP, &c->c);
}

int64_t cx_offset(struct cx *x, const char *topic, int32_t partition)
{
    const struct kg_offsets *o;
    int16_t error = kg_request_fetch(x->shard, CX_GROUP, &o);
    if (error) {
        return -100 - error;
    }
    const struct kg_offset *p = o ? kg_offset_find(o, kc_str_of(topic), partition) : NULL;
    return p && p->visible ? p->v.offset : -1;
}

void cx_stable(struct cx *x, char member[128])
{
    struct cx_answer *j = cx_join(x, "", "app", 10000);
    KT_EQ(j->count, 1);
    KT_EQ(j->error, 0);
    snprintf(member, 128, "%s", j->member);
    struct cx_answer *s = cx_sync(x, member, j->generation, member, "mine");
    KT_EQ(s->error, 0);
    KT_STR(s->assignment, "mine");
}
