/* Every group API at every version it is served in, byte for byte through a running broker. The
 * expected answers are those of real brokers. */

#include "base/kc_clock.h"
#include "base/kc_str.h"
#include "broker_fix.h"
#include "kt.h"
#include "wire/kw_delete_groups.h"
#include "wire/kw_describe_groups.h"
#include "wire/kw_errors.h"
#include "wire/kw_find_coordinator.h"
#include "wire/kw_heartbeat.h"
#include "wire/kw_init_producer_id.h"
#include "wire/kw_join_group.h"
#include "wire/kw_leave_group.h"
#include "wire/kw_list_groups.h"
#include "wire/kw_metadata.h"
#include "wire/kw_offset_commit.h"
#include "wire/kw_offset_delete.h"
#include "wire/kw_offset_fetch.h"
#include "wire/kw_sync_group.h"

static struct bx broker;
static struct bx_conn conn;
static struct kc_uuid topic_id;

#define T KC_STR_LIT("t")

/* ---- short forms ---- */

static struct kc_str group_of(const char *prefix, int version)
{
    static char names[8][32];
    static int next;
    char *at = names[next++ % 8];
    snprintf(at, sizeof(names[0]), "%s-%d", prefix, version);
    return kc_str_of(at);
}

struct joined {
    int16_t error;
    int32_t generation;
    char member[128], leader[128];
    int32_t n_members;
};

static struct joined join(struct bx_conn *c, int16_t version, struct kc_str group, const char *member)
{
    static const uint8_t meta[] = {0, 0, 0, 0, 0, 1, 0, 1, 't', 0, 0, 0, 0};
    struct kw_join_group_request_protocol p = {KC_STR_LIT("range"), {meta, sizeof(meta)}};
    struct kw_join_group_request q;
    kw_join_group_request_init(&q);
    q.group_id = group;
    q.session_timeout_ms = 30000;
    if (version >= 1) {
        q.rebalance_timeout_ms = 30000;
    }
    q.member_id = kc_str_of(member);
    q.protocol_type = KC_STR_LIT("consumer");
    q.protocols = &p;
    q.n_protocols = 1;
    struct kw_join_group_response *r = bx_ask(c, 11, version, &q);
    KT_REQUIRE(r != NULL);
    struct joined j = {.error = r->error_code, .generation = r->generation_id,
                       .n_members = r->n_members};
    snprintf(j.member, sizeof(j.member), "%.*s", KC_STR_ARG(r->member_id));
    snprintf(j.leader, sizeof(j.leader), "%.*s", KC_STR_ARG(r->leader));
    return j;
}

/* A member of a stable generation, whatever steps the version asks for. */
static struct joined enter(struct bx_conn *c, int16_t join_version, struct kc_str group)
{
    struct joined j = join(c, join_version, group, "");
    if (join_version >= 4) {
        KT_EQ(j.error, KAFKA_MEMBER_ID_REQUIRED);
        char id[128];
        snprintf(id, sizeof(id), "%s", j.member);
        j = join(c, join_version, group, id);
    }
    KT_EQ(j.error, 0);
    KT_EQ(j.n_members, 1);
    KT_STR(j.leader, j.member);
    return j;
}

static int16_t sync_group(struct bx_conn *c, int16_t version, struct kc_str group,
                          const struct joined *j, char assignment[64])
{
    struct kw_sync_group_request_assignment a = {kc_str_of(j->member),
                                                 {(const uint8_t *)"yours", 5}};
    struct kw_sync_group_request q;
    kw_sync_group_request_init(&q);
    q.group_id = group;
    q.generation_id = j->generation;
    q.member_id = kc_str_of(j->member);
    if (version >= 5) {
        q.protocol_type = KC_STR_LIT("consumer");
        q.protocol_name = KC_STR_LIT("range");
    }
    q.assignments = &a;
    q.n_assignments = 1;
    struct kw_sync_group_response *r = bx_ask(c, 14, version, &q);
    KT_REQUIRE(r != NULL);
    snprintf(assignment, 64, "%.*s", r->assignment.len, (const char *)r->assignment.ptr);
    return r->error_code;
}

static int16_t heartbeat(int16_t version, struct kc_str group, const struct joined *j)
{
    struct kw_heartbeat_request q;
    kw_heartbeat_request_init(&q);
    q.group_id = group;
    q.generation_id = j->generation;
    q.member_id = kc_str_of(j->member);
    struct kw_heartbeat_response *r = bx_ask(&conn, 12, version, &q);
    KT_REQUIRE(r != NULL);
    return r->error_code;
}

static int16_t commit(int16_t version, struct kc_str group, const struct joined *j, int64_t offset,
                      int32_t partition)
{
    struct kw_offset_commit_request_partition p;
    struct kw_offset_commit_request_topic t;
    struct kw_offset_commit_request q;
    kw_offset_commit_request_partition_init(&p);
    kw_offset_commit_request_topic_init(&t);
    kw_offset_commit_request_init(&q);
    p.partition_index = partition;
    p.committed_offset = offset;
    p.committed_metadata = KC_STR_LIT("note");
    t.name = version < 10 ? T : KC_STR_LIT("");
    if (version >= 10) {
        t.topic_id = topic_id;
    }
    t.partitions = &p;
    t.n_partitions = 1;
    q.group_id = group;
    q.member_id = j ? kc_str_of(j->member) : KC_STR_LIT("");
    q.generation_id_or_member_epoch = j ? j->generation : -1;
    q.topics = &t;
    q.n_topics = 1;
    struct kw_offset_commit_response *r = bx_ask(&conn, 8, version, &q);
    KT_REQUIRE(r != NULL && r->n_topics == 1 && r->topics[0].n_partitions == 1);
    return r->topics[0].partitions[0].error_code;
}

struct fetched {
    int16_t group_error, error;
    int32_t n_topics;
    int64_t offset;
    char metadata[64];
};

static void read_old(const struct kw_offset_fetch_response *r, struct fetched *f)
{
    f->group_error = r->error_code;
    f->n_topics = r->n_topics;
    if (r->n_topics) {
        const struct kw_offset_fetch_response_partition *p = &r->topics[0].partitions[0];
        f->error = p->error_code;
        f->offset = p->committed_offset;
        snprintf(f->metadata, sizeof(f->metadata), "%.*s", KC_STR_ARG(p->metadata));
    }
}

static void read_new(const struct kw_offset_fetch_response *r, struct fetched *f)
{
    KT_REQUIRE(r->n_groups == 1);
    f->group_error = r->groups[0].error_code;
    f->n_topics = r->groups[0].n_topics;
    if (f->n_topics) {
        const struct kw_offset_fetch_response_partitions *p = &r->groups[0].topics[0].partitions[0];
        f->error = p->error_code;
        f->offset = p->committed_offset;
        snprintf(f->metadata, sizeof(f->metadata), "%.*s", KC_STR_ARG(p->metadata));
    }
}

static struct fetched fetch(int16_t version, struct kc_str group, bool all)
{
    int32_t zero = 0;
    struct kw_offset_fetch_request_topic old = {T, &zero, 1};
    struct kw_offset_fetch_request_topics fresh;
    struct kw_offset_fetch_request_group g;
    struct kw_offset_fetch_request q;
    kw_offset_fetch_request_topics_init(&fresh);
    kw_offset_fetch_request_group_init(&g);
    kw_offset_fetch_request_init(&q);
    fresh.name = version < 10 ? T : KC_STR_LIT("");
    if (version >= 10) {
        fresh.topic_id = topic_id;
    }
    fresh.partition_indexes = &zero;
    fresh.n_partition_indexes = 1;
    g.group_id = group;
    g.topics = all ? NULL : &fresh;
    g.n_topics = all ? 0 : 1;
    if (version >= 8) {
        q.groups = &g;
        q.n_groups = 1;
    } else {
        q.group_id = group;
        q.topics = all ? NULL : &old;
        q.n_topics = all ? 0 : 1;
    }
    struct kw_offset_fetch_response *r = bx_ask(&conn, 9, version, &q);
    KT_REQUIRE(r != NULL);
    struct fetched f = {.offset = -2};
    if (version >= 8) {
        read_new(r, &f);
    } else {
        read_old(r, &f);
    }
    return f;
}

static int16_t leave(int16_t version, struct kc_str group, const char *member)
{
    struct kw_leave_group_request_member_identity m;
    struct kw_leave_group_request q;
    kw_leave_group_request_member_identity_init(&m);
    kw_leave_group_request_init(&q);
    q.group_id = group;
    if (version < 3) {
        q.member_id = kc_str_of(member);
    } else {
        m.member_id = kc_str_of(member);
        q.members = &m;
        q.n_members = 1;
    }
    struct kw_leave_group_response *r = bx_ask(&conn, 13, version, &q);
    KT_REQUIRE(r != NULL);
    if (version < 3) {
        return r->error_code;
    }
    KT_EQ(r->error_code, 0);
    KT_REQUIRE(r->n_members == 1);
    return r->members[0].error_code;
}

/* ---- the tests ---- */

static void every_version_of_the_member_apis_works(void)
{
    for (int16_t v = 0; v <= 9; v++) {
        struct kc_str g = group_of("member", v);
        struct joined j = enter(&conn, v, g);
        char assignment[64];
        int16_t sync_version = KC_MIN(v, (int16_t)5), beat = KC_MIN(v, (int16_t)4);
        KT_EQ(sync_group(&conn, sync_version, g, &j, assignment), 0);
        KT_STR(assignment, "yours");
        KT_EQ(heartbeat(beat, g, &j), 0);
        struct joined stale = j;
        stale.generation++;
        KT_EQ(heartbeat(beat, g, &stale), KAFKA_ILLEGAL_GENERATION);
        KT_EQ(leave(KC_MIN(v, (int16_t)5), g, "nobody"), KAFKA_UNKNOWN_MEMBER_ID);
        KT_EQ(leave(KC_MIN(v, (int16_t)5), g, j.member), 0);
        KT_EQ(heartbeat(beat, g, &j), KAFKA_UNKNOWN_MEMBER_ID);
    }
}

static void every_version_of_commit_and_fetch_works(void)
{
    for (int16_t v = 2; v <= 10; v++) {
        struct kc_str g = group_of("offsets", v);
        KT_EQ(commit(v, g, NULL, 100 + v, 0), 0);
        KT_EQ(commit(v, g, NULL, 1, 9), KAFKA_UNKNOWN_TOPIC_OR_PARTITION);
        for (int16_t f = 1; f <= 10; f++) {
            struct fetched got = fetch(f, g, false);
            KT_EQ(got.group_error, 0);
            KT_EQ(got.error, 0);
            KT_EQ(got.offset, 100 + v);
            KT_STR(got.metadata, "note");
            if (f >= 2) {
                got = fetch(f, g, true);
                KT_EQ(got.n_topics, 1);
                KT_EQ(got.offset, 100 + v);
            }
        }
    }
    struct fetched none = fetch(1, KC_STR_LIT("never seen"), false);
    KT_EQ(none.error, 0);
    KT_EQ(none.offset, -1);
    none = fetch(10, KC_STR_LIT("never seen"), true);
    KT_EQ(none.group_error, 0);
    KT_EQ(none.n_topics, 0);
}

static void commits_are_judged_by_the_group(void)
{
    struct kc_str g = KC_STR_LIT("judged");
    struct joined stranger = {.generation = 1, .member = "x"};
    KT_EQ(commit(9, g, &stranger, 1, 0), KAFKA_ILLEGAL_GENERATION);
    struct joined j = enter(&conn, 5, g);
    char assignment[64];
    KT_EQ(commit(9, g, &j, 1, 0), KAFKA_REBALANCE_IN_PROGRESS);
    KT_EQ(sync_group(&conn, 5, g, &j, assignment), 0);
    KT_EQ(commit(9, g, &j, 1, 0), 0);
    KT_EQ(commit(9, g, NULL, 1, 0), KAFKA_UNKNOWN_MEMBER_ID);
    struct joined stale = j;
    stale.generation = 0;
    KT_EQ(commit(9, g, &stale, 1, 0), KAFKA_ILLEGAL_GENERATION);
    leave(5, g, j.member);
}

static int16_t find(int16_t version, int8_t type, struct kc_str key)
{
    struct kw_find_coordinator_request q;
    kw_find_coordinator_request_init(&q);
    q.key_type = type;
    if (version >= 4) {
        q.coordinator_keys = &key;
        q.n_coordinator_keys = 1;
    } else {
        q.key = key;
    }
    struct kw_find_coordinator_response *r = bx_ask(&conn, 10, version, &q);
    KT_REQUIRE(r != NULL);
    int16_t error = version >= 4 ? r->coordinators[0].error_code : r->error_code;
    int32_t port = version >= 4 ? r->coordinators[0].port : r->port;
    int32_t node = version >= 4 ? r->coordinators[0].node_id : r->node_id;
    KT_EQ(port, error ? -1 : broker.port);
    KT_EQ(node, error ? -1 : 0);
    return error;
}

static void the_coordinator_is_found_in_every_version(void)
{
    for (int16_t v = 0; v <= 6; v++) {
        KT_EQ(find(v, 0, KC_STR_LIT("any")), 0);
        KT_EQ(find(v, 0, KC_STR_LIT("")), 0);
    }
    for (int16_t v = 1; v <= 6; v++) {
        KT_EQ(find(v, 7, KC_STR_LIT("any")), KAFKA_INVALID_REQUEST);
    }
}

static void groups_are_described_in_every_version(void)
{
    struct kc_str g = KC_STR_LIT("described");
    struct joined j = enter(&conn, 5, g);
    char assignment[64];
    sync_group(&conn, 5, g, &j, assignment);
    for (int16_t v = 0; v <= 6; v++) {
        struct kc_str names[] = {g, KC_STR_LIT("no such group")};
        struct kw_describe_groups_request q;
        kw_describe_groups_request_init(&q);
        q.groups = names;
        q.n_groups = 2;
        struct kw_describe_groups_response *r = bx_ask(&conn, 15, v, &q);
        KT_REQUIRE(r != NULL && r->n_groups == 2);
        KT_EQ(r->groups[0].error_code, 0);
        KT_TRUE(kc_str_eqz(r->groups[0].group_state, "Stable"));
        KT_TRUE(kc_str_eqz(r->groups[0].protocol_data, "range"));
        KT_REQUIRE(r->groups[0].n_members == 1);
        KT_TRUE(kc_str_eqz(r->groups[0].members[0].member_id, j.member));
        KT_TRUE(kc_str_eqz(r->groups[0].members[0].client_id, "test"));
        KT_TRUE(kc_str_eqz(r->groups[0].members[0].client_host, "/127.0.0.1"));
        KT_EQ(r->groups[0].members[0].member_assignment.len, 5);
        KT_EQ(r->groups[1].error_code, v >= 6 ? KAFKA_GROUP_ID_NOT_FOUND : 0);
        KT_TRUE(kc_str_eqz(r->groups[1].group_state, "Dead"));
    }
    leave(5, g, j.member);
}

static int32_t list(int16_t version, const char *state, const char *type, bool *ret_found)
{
    struct kc_str states = kc_str_of(state), types = kc_str_of(type);
    struct kw_list_groups_request q;
    kw_list_groups_request_init(&q);
    if (state) {
        q.states_filter = &states;
        q.n_states_filter = 1;
    }
    if (type) {
        q.types_filter = &types;
        q.n_types_filter = 1;
    }
    struct kw_list_groups_response *r = bx_ask(&conn, 16, version, &q);
    KT_REQUIRE(r != NULL);
    KT_EQ(r->error_code, 0);
    *ret_found = false;
    for (int32_t i = 0; i < r->n_groups; i++) {
        *ret_found |= kc_str_eqz(r->groups[i].group_id, "listed");
    }
    return r->n_groups;
}

static void groups_are_listed_over_all_loops_with_filters(void)
{
    bool found;
    commit(5, KC_STR_LIT("listed"), NULL, 1, 0);
    for (int i = 0; i < 20; i++) {
        commit(5, group_of("many", i), NULL, 1, 0);
    }
    for (int16_t v = 0; v <= 5; v++) {
        KT_TRUE(list(v, NULL, NULL, &found) >= 21);
        KT_TRUE(found);
    }
    list(4, "empty", NULL, &found);
    KT_TRUE(found);
    list(4, "Stable", NULL, &found);
    KT_FALSE(found);
    list(5, "Empty", "Classic", &found);
    KT_TRUE(found);
    KT_EQ(list(5, NULL, "consumer", &found), 0);
}

static int16_t delete_group(int16_t version, struct kc_str group)
{
    struct kw_delete_groups_request q = {&group, 1};
    struct kw_delete_groups_response *r = bx_ask(&conn, 42, version, &q);
    KT_REQUIRE(r != NULL && r->n_results == 1);
    return r->results[0].error_code;
}

static void groups_are_deleted_in_every_version(void)
{
    for (int16_t v = 0; v <= 3; v++) {
        struct kc_str g = group_of("deleted", v);
        KT_EQ(delete_group(v, g), KAFKA_GROUP_ID_NOT_FOUND);
        struct joined j = enter(&conn, 3, g);
        KT_EQ(delete_group(v, g), KAFKA_NON_EMPTY_GROUP);
        leave(1, g, j.member);
        KT_EQ(commit(5, g, NULL, 3, 0), 0);
        KT_EQ(delete_group(v, g), 0);
        KT_EQ(fetch(5, g, false).offset, -1);
    }
}

static void offsets_are_deleted(void)
{
    struct kc_str g = KC_STR_LIT("trimmed");
    struct kw_offset_delete_request_partition parts[] = {{0}, {77}};
    struct kw_offset_delete_request_topic t = {T, parts, 2};
    struct kw_offset_delete_request q = {g, &t, 1};
    struct kw_offset_delete_response *r = bx_ask(&conn, 47, 0, &q);
    KT_EQ(r->error_code, KAFKA_GROUP_ID_NOT_FOUND);
    commit(5, g, NULL, 3, 0);
    r = bx_ask(&conn, 47, 0, &q);
    KT_EQ(r->error_code, 0);
    KT_EQ(r->topics[0].partitions[0].error_code, 0);
    KT_EQ(r->topics[0].partitions[1].error_code, KAFKA_UNKNOWN_TOPIC_OR_PARTITION);
    KT_EQ(fetch(5, g, false).offset, -1);
}

static int64_t init_pid(int16_t version, struct kc_str transactional_id, int64_t id, int16_t epoch,
                        int16_t *ret_error)
{
    struct kw_init_producer_id_request q;
    kw_init_producer_id_request_init(&q);
    q.transactional_id = transactional_id;
    q.transaction_timeout_ms = 60000;
    if (version >= 3) {
        q.producer_id = id;
        q.producer_epoch = epoch;
    }
    struct kw_init_producer_id_response *r = bx_ask(&conn, 22, version, &q);
    KT_REQUIRE(r != NULL);
    *ret_error = r->error_code;
    KT_EQ(r->producer_epoch, r->error_code ? -1 : 0);
    return r->producer_id;
}

static void every_producer_gets_an_id_of_its_own(void)
{
    int64_t last = -1;
    int16_t error;
    for (int16_t v = 0; v <= 5; v++) {
        int64_t id = init_pid(v, KC_STR_NULL, -1, -1, &error);
        KT_EQ(error, 0);
        KT_TRUE(id >= 0 && id != last);
        last = id;
    }
    KT_TRUE(init_pid(4, KC_STR_NULL, last, 3, &error) != last); /* KIP-360: a new one */
    KT_EQ(error, 0);
    init_pid(4, KC_STR_NULL, last, -1, &error);
    KT_EQ(error, KAFKA_INVALID_REQUEST);
    init_pid(4, KC_STR_LIT(""), -1, -1, &error);
    KT_EQ(error, KAFKA_INVALID_REQUEST);
    init_pid(4, KC_STR_LIT("tx"), -1, -1, &error);
    KT_EQ(error, KAFKA_UNSUPPORTED_VERSION);
}

/* The slots of many groups lie on all loops; one request visits them all. */
static void one_request_fetches_many_groups(void)
{
    struct kw_offset_fetch_request_group groups[12];
    static char names[12][16];
    struct kw_offset_fetch_request q;
    kw_offset_fetch_request_init(&q);
    for (int i = 0; i < 12; i++) {
        snprintf(names[i], sizeof(names[i]), "batch-%d", i);
        commit(5, kc_str_of(names[i]), NULL, i, 0);
        kw_offset_fetch_request_group_init(&groups[i]);
        groups[i].group_id = kc_str_of(names[i]);
        groups[i].topics = NULL;
    }
    q.groups = groups;
    q.n_groups = 12;
    struct kw_offset_fetch_response *r = bx_ask(&conn, 9, 8, &q);
    KT_REQUIRE(r != NULL && r->n_groups == 12);
    for (int i = 0; i < 12; i++) {
        KT_TRUE(kc_str_eqz(r->groups[i].group_id, names[i]));
        KT_EQ(r->groups[i].topics[0].partitions[0].committed_offset, i);
    }
    q.n_groups = 0; /* some brokers never answer this */
    r = bx_ask(&conn, 9, 8, &q);
    KT_REQUIRE(r != NULL);
    KT_EQ(r->n_groups, 0);
}

static void a_second_member_waits_for_the_first(void)
{
    struct kc_str g = KC_STR_LIT("pair");
    struct bx_conn other;
    char assignment[64];
    bx_connect(&broker, &other);
    struct joined a = enter(&conn, 3, g);
    sync_group(&conn, 3, g, &a, assignment);
    struct kw_join_group_request_protocol p = {KC_STR_LIT("range"), {(const uint8_t *)"", 0}};
    struct kw_join_group_request q;
    kw_join_group_request_init(&q);
    q.group_id = g;
    q.session_timeout_ms = q.rebalance_timeout_ms = 30000;
    q.protocol_type = KC_STR_LIT("consumer");
    q.protocols = &p;
    q.n_protocols = 1;
    bx_send(&other, 11, 3, &q);
    int64_t until = kc_mono_ms() + 10000;
    while (heartbeat(3, g, &a) != KAFKA_REBALANCE_IN_PROGRESS) {
        KT_REQUIRE(kc_mono_ms() < until);
    }
    KT_FALSE(bx_waiting(&other, 0));
    char id[128];
    snprintf(id, sizeof(id), "%s", a.member);
    a = join(&conn, 3, g, id);
    KT_EQ(a.generation, 2);
    KT_EQ(a.n_members, 2);
    struct kw_join_group_response *r = bx_receive(&other, 11, 3);
    KT_EQ(r->generation_id, 2);
    KT_EQ(r->n_members, 0);
    bx_close(&other);
    leave(0, g, id);
}

static void everything_acknowledged_survives_a_kill(void)
{
    struct kc_str g = KC_STR_LIT("survivor");
    char assignment[64];
    struct joined j = enter(&conn, 5, g);
    KT_EQ(sync_group(&conn, 5, g, &j, assignment), 0);
    KT_EQ(commit(9, g, &j, 4711, 0), 0);
    bx_close(&conn);
    bx_kill(&broker);
    bx_start(&broker, false);
    bx_connect(&broker, &conn);
    KT_EQ(heartbeat(4, g, &j), 0);
    KT_EQ(fetch(7, g, false).offset, 4711);
    KT_EQ(sync_group(&conn, 5, g, &j, assignment), 0);
    KT_STR(assignment, "yours");
    KT_EQ(commit(9, g, &j, 4712, 0), 0);
}

/* ---- frame ---- */

static void begin(void)
{
    bx_start(&broker, true);
    bx_connect(&broker, &conn);
    struct kw_metadata_request_topic topic;
    struct kw_metadata_request q;
    int64_t until = kc_mono_ms() + 20000;
    for (;;) { /* the topic is made by being asked for */
        kw_metadata_request_topic_init(&topic);
        kw_metadata_request_init(&q);
        topic.name = T;
        q.topics = &topic;
        q.n_topics = 1;
        struct kw_metadata_response *r = bx_ask(&conn, 3, 12, &q);
        KT_REQUIRE(r != NULL && r->n_topics == 1);
        if (r->topics[0].error_code == 0) {
            topic_id = r->topics[0].topic_id;
            return;
        }
        KT_REQUIRE(kc_mono_ms() < until);
    }
}

static void end(void)
{
    bx_close(&conn);
    bx_end(&broker);
}

KT_MAIN("group apis", KT(begin), KT(every_version_of_the_member_apis_works),
        KT(every_version_of_commit_and_fetch_works), KT(commits_are_judged_by_the_group),
        KT(the_coordinator_is_found_in_every_version), KT(groups_are_described_in_every_version),
        KT(groups_are_listed_over_all_loops_with_filters), KT(groups_are_deleted_in_every_version),
        KT(offsets_are_deleted), KT(every_producer_gets_an_id_of_its_own),
        KT(one_request_fetches_many_groups), KT(a_second_member_waits_for_the_first),
        KT(everything_acknowledged_survives_a_kill), KT(end))
