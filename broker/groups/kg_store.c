#include "groups/kg_store.h"

#include <errno.h>
#include <string.h>

#include "base/kc_mem.h"
#include "wire/kw_records_offsets.h"

enum {
    KEY_OFFSET_OLD = 0,
    KEY_OFFSET = 1,
    KEY_GROUP = 2,
    VALUE_GROUP = 3, /* what Kafka 3.7 reads, too */
    VALUE_OFFSET_EXPIRING = 1, /* the only version with an expiry of its own */
    VALUE_OFFSET = 3,
    VALUE_OFFSET_TOPIC_ID = 4
};

/* ---- writing ---- */

void kg_batch_init(struct kg_batch *b, int64_t wall_ms)
{
    *b = (struct kg_batch){.wall_ms = wall_ms};
    kw_writer_init(&b->key, 128 * 1024);
    kw_writer_init(&b->value, KG_BATCHES_BYTES_MAX);
    kc_dyn_init(&b->done, KG_BATCHES_BYTES_MAX);
}

void kg_batch_fini(struct kg_batch *b)
{
    if (b->open) {
        kw_batch_builder_fini(&b->builder);
    }
    kw_writer_fini(&b->key);
    kw_writer_fini(&b->value);
    kc_dyn_fini(&b->done);
}

static void fail(struct kg_batch *b, int error)
{
    if (!b->error) {
        b->error = error;
    }
}

static void close_batch(struct kg_batch *b)
{
    struct kc_bytes bytes;
    int rc = kw_batch_builder_end(&b->builder, &bytes);
    if (rc == 0) {
        kc_dyn_add(&b->done, bytes.ptr, (size_t)bytes.len);
    } else {
        fail(b, rc);
    }
    kw_batch_builder_fini(&b->builder);
    b->open = false;
}

static struct kc_bytes written(const struct kw_writer *w)
{
    return (struct kc_bytes){w->own.data, (int32_t)w->own.len};
}

/* Adds the record whose key, and value unless tombstone, are in the writers. */
static void add_record(struct kg_batch *b, bool tombstone)
{
    if (b->key.error || (!tombstone && b->value.error)) {
        fail(b, b->key.error ? b->key.error : b->value.error);
        return;
    }
    if (b->open && kw_writer_len(&b->builder.w) > KG_BATCH_BYTES) {
        close_batch(b);
    }
    if (!b->open) {
        struct kw_batch_args args = KW_BATCH_ARGS_PLAIN;
        kw_batch_builder_init(&b->builder, &args, KG_BATCHES_BYTES_MAX);
        b->open = true;
    }
    kw_batch_builder_add(&b->builder, b->wall_ms, written(&b->key),
                         tombstone ? KC_BYTES_NULL : written(&b->value), NULL, 0);
}

static void begin_record(struct kg_batch *b, int16_t key_version)
{
    kw_writer_reset(&b->key);
    kw_writer_reset(&b->value);
    kw_writer_i16(&b->key, key_version);
}

void kg_batch_offset(struct kg_batch *b, struct kc_str group, struct kc_str topic,
                     int32_t partition, const struct kg_offset_value *v)
{
    begin_record(b, KEY_OFFSET);
    struct kw_offset_commit_key key = {group, topic, partition};
    kw_offset_commit_key_encode(&b->key, KEY_OFFSET, &key);
    if (v) {
        struct kw_offset_commit_value value;
        kw_offset_commit_value_init(&value);
        value.offset = v->offset;
        value.leader_epoch = v->leader_epoch;
        value.metadata = v->metadata.ptr ? v->metadata : (struct kc_str){"", 0};
        value.commit_timestamp = v->commit_wall_ms;
        value.expire_timestamp = v->expire_wall_ms;
        value.topic_id = v->topic_id;
        int16_t version = v->expire_wall_ms >= 0          ? VALUE_OFFSET_EXPIRING
                          : kc_uuid_is_zero(&v->topic_id) ? VALUE_OFFSET
                                                          : VALUE_OFFSET_TOPIC_ID;
        kw_writer_i16(&b->value, version);
        kw_offset_commit_value_encode(&b->value, version, &value);
    }
    add_record(b, !v);
}

static void group_key(struct kg_batch *b, struct kc_str group)
{
    begin_record(b, KEY_GROUP);
    struct kw_group_metadata_key key = {group};
    kw_group_metadata_key_encode(&b->key, KEY_GROUP, &key);
}

void kg_batch_group_gone(struct kg_batch *b, struct kc_str group)
{
    group_key(b, group);
    add_record(b, true);
}

void kg_batch_group(struct kg_batch *b, const struct kg_group *g, bool staged)
{
    group_key(b, g->id);
    struct kw_group_metadata_value value;
    kw_group_metadata_value_init(&value);
    struct kw_group_metadata_value_member_metadata *members =
        kc_try_zalloc((size_t)g->n_members + 1, sizeof(*members));
    if (!members) {
        fail(b, -ENOMEM);
        return;
    }
    for (int32_t i = 0; i < g->n_members; i++) {
        const struct kg_member *m = g->members[i];
        struct kc_bytes assignment = staged ? m->staged : m->assignment;
        members[i] = (struct kw_group_metadata_value_member_metadata){
            .member_id = m->id,
            .group_instance_id = m->instance_id,
            .client_id = m->client_id.ptr ? m->client_id : (struct kc_str){"", 0},
            .client_host = m->client_host.ptr ? m->client_host : (struct kc_str){"", 0},
            .rebalance_timeout = m->rebalance_timeout_ms,
            .session_timeout = m->session_timeout_ms,
            .subscription = kg_member_metadata(g, m),
            .assignment = assignment.ptr ? assignment : (struct kc_bytes){(const uint8_t *)"", 0},
        };
    }
    value.protocol_type = g->protocol_type.ptr ? g->protocol_type : (struct kc_str){"", 0};
    value.generation = g->generation;
    value.protocol = g->protocol_name;
    value.leader = g->leader;
    value.current_state_timestamp = g->state_wall_ms;
    value.members = members;
    value.n_members = g->n_members;
    kw_writer_i16(&b->value, VALUE_GROUP);
    kw_group_metadata_value_encode(&b->value, VALUE_GROUP, &value);
    kc_free(members);
    add_record(b, false);
}

int kg_batch_take(struct kg_batch *b, struct kc_buf **ret)
{
    if (b->open) {
        close_batch(b);
    }
    if (b->error) {
        return b->error;
    }
    if (!kc_dyn_ok(&b->done)) {
        return b->done.over ? KC_E_TOO_LARGE : -ENOMEM;
    }
    if (b->done.len == 0) {
        return KC_E_MALFORMED;
    }
    struct kc_buf *buf = kc_buf_new(b->done.len);
    if (!buf) {
        return -ENOMEM;
    }
    memcpy(buf->data, b->done.data, b->done.len);
    *ret = buf;
    return 0;
}

/* ---- reading ---- */

/* A record that does not decode is counted and passed over. One that only finds no memory is not: the
 * load fails and is tried again, for what it says was acked. */
static bool passed_over(int rc, bool *ret_unreadable)
{
    *ret_unreadable = rc != -ENOMEM;
    return *ret_unreadable;
}

static bool read_offset(const struct kg_reader *r, struct kw_cursor *key, int16_t key_version,
                        struct kc_bytes value, struct kc_arena *arena, bool *ret_unreadable)
{
    struct kw_offset_commit_key k;
    int key_rc = kw_offset_commit_key_decode(key, key_version, arena, &k);
    if (key_rc) {
        return passed_over(key_rc, ret_unreadable);
    }
    if (!value.ptr) {
        return r->offset(r->ctx, k.group, k.topic, k.partition, NULL);
    }
    struct kw_cursor c;
    struct kw_offset_commit_value v;
    kw_cursor_init(&c, value.ptr, (size_t)value.len);
    int16_t version = kw_cursor_i16(&c);
    int value_rc = kw_offset_commit_value_decode(&c, version, arena, &v);
    if (value_rc) {
        return passed_over(value_rc, ret_unreadable);
    }
    struct kg_offset_value out = {v.offset,           v.leader_epoch,     v.metadata,
                                  v.commit_timestamp, v.expire_timestamp, v.topic_id};
    return r->offset(r->ctx, k.group, k.topic, k.partition, &out);
}

static bool read_group(const struct kg_reader *r, struct kw_cursor *key, struct kc_bytes value,
                       struct kc_arena *arena, bool *ret_unreadable)
{
    struct kw_group_metadata_key k;
    int key_rc = kw_group_metadata_key_decode(key, KEY_GROUP, arena, &k);
    if (key_rc) {
        return passed_over(key_rc, ret_unreadable);
    }
    if (!value.ptr) {
        return r->group(r->ctx, k.group, NULL);
    }
    struct kw_cursor c;
    struct kw_group_metadata_value v;
    kw_cursor_init(&c, value.ptr, (size_t)value.len);
    int16_t version = kw_cursor_i16(&c);
    int value_rc = kw_group_metadata_value_decode(&c, version, arena, &v);
    if (value_rc) {
        return passed_over(value_rc, ret_unreadable);
    }
    return r->group(r->ctx, k.group, &v);
}

static bool read_record(const struct kg_reader *r, const struct kw_record *rec,
                        struct kc_arena *arena, bool *ret_unreadable)
{
    struct kw_cursor c;
    kw_cursor_init(&c, rec->key.ptr, rec->key.ptr ? (size_t)rec->key.len : 0);
    int16_t version = kw_cursor_i16(&c);
    if (c.error) {
        *ret_unreadable = true;
        return true;
    }
    switch (version) {
    case KEY_OFFSET_OLD:
    case KEY_OFFSET:
        return read_offset(r, &c, version, rec->value, arena, ret_unreadable);
    case KEY_GROUP:
        return read_group(r, &c, rec->value, arena, ret_unreadable);
    default:
        return true;
    }
}

static int read_batch(const struct kw_batch *batch, const struct kg_reader *r,
                      struct kc_arena *arena, struct kg_read_stats *stats)
{
    struct kw_record_iter it;
    struct kw_record rec;
    if (kw_record_iter_init(&it, batch) != 0) {
        stats->batches_skipped++;
        return 0;
    }
    for (;;) {
        int rc = kw_record_next(&it, &rec);
        if (rc < 0) {
            stats->batches_skipped++;
            return 0;
        }
        if (rc == 0) {
            return 0;
        }
        bool unreadable = false;
        if (!read_record(r, &rec, arena, &unreadable)) {
            return -ENOMEM;
        }
        stats->records++;
        stats->unreadable += unreadable;
        kc_arena_reset(arena);
    }
}

int kg_records_read(const void *data, size_t len, const struct kg_reader *r,
                    struct kg_read_stats *stats)
{
    struct kc_arena arena;
    /* Decoded, a member takes less than eight times its least bytes: the cap refuses no record. */
    kc_arena_init(&arena, 16 * 1024, (size_t)8 * KG_BATCHES_BYTES_MAX);
    const uint8_t *at = data;
    int rc = 0;
    while (rc == 0 && len > 0) {
        struct kw_batch batch;
        if (kw_batch_view(at, len, &batch) != 0) {
            stats->batches_skipped++;
            break;
        }
        if (!(batch.attributes & KW_BATCH_CONTROL)) {
            rc = read_batch(&batch, r, &arena, stats);
        }
        at += batch.size;
        len -= batch.size;
    }
    kc_arena_fini(&arena);
    return rc;
}

static bool restore_member(struct kg_group *g,
                           const struct kw_group_metadata_value_member_metadata *mv)
{
    struct kg_protocol protocol = {g->protocol_name, mv->subscription};
    struct kg_member_spec spec = {
        .id = mv->member_id,
        .instance_id = mv->group_instance_id,
        .client_id = mv->client_id,
        .client_host = mv->client_host,
        .session_timeout_ms = mv->session_timeout,
        .rebalance_timeout_ms =
            mv->rebalance_timeout >= 0 ? mv->rebalance_timeout : mv->session_timeout,
        .n_protocols = 1,
        .protocols = &protocol,
    };
    if (kg_member_find(g, spec.id)) {
        return true; /* a record never names a member twice */
    }
    struct kg_member *m = kg_member_add(g, &spec);
    return m && kg_member_set(g, &m->assignment, mv->assignment);
}

bool kg_group_restore(struct kg_group *g, const struct kw_group_metadata_value *v)
{
    g->state = v->n_members > 0 ? KG_STABLE : KG_EMPTY;
    g->generation = v->generation;
    if (v->current_state_timestamp >= 0) {
        g->state_wall_ms = v->current_state_timestamp;
    }
    if (!kg_str_set(&g->protocol_name, v->protocol) || !kg_str_set(&g->leader, v->leader)) {
        return false;
    }
    /* "" stands for "only simple commits": kept as null. */
    if (v->protocol_type.len > 0 && !kg_str_set(&g->protocol_type, v->protocol_type)) {
        return false;
    }
    for (int32_t i = 0; i < v->n_members; i++) {
        if (!restore_member(g, &v->members[i])) {
            return false;
        }
    }
    return true;
}

int16_t kg_append_error(int16_t error, bool commit)
{
    switch (error) {
    case KAFKA_NONE:
        return 0;
    case KAFKA_UNKNOWN_TOPIC_OR_PARTITION:
    case KAFKA_NOT_ENOUGH_REPLICAS:
    case KAFKA_NOT_ENOUGH_REPLICAS_AFTER_APPEND:
    case KAFKA_REQUEST_TIMED_OUT:
        return KAFKA_COORDINATOR_NOT_AVAILABLE;
    case KAFKA_NOT_LEADER_OR_FOLLOWER:
    case KAFKA_KAFKA_STORAGE_ERROR:
        return KAFKA_NOT_COORDINATOR;
    case KAFKA_MESSAGE_TOO_LARGE:
    case KAFKA_RECORD_LIST_TOO_LARGE:
    case KAFKA_INVALID_FETCH_SIZE:
        return commit ? KAFKA_INVALID_COMMIT_OFFSET_SIZE : KAFKA_UNKNOWN_SERVER_ERROR;
    default:
        return error;
    }
}
