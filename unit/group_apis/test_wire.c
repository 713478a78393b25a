/* Every group API at every version it is served in, byte for byte through a running broker. The
 * expected answers are those of real brokers. */

#include "base/kc_clock.h"
#include "base/kc_str.h"
#include "client.h"
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

/* ---- the tests ---- */

static void every_version_of_the_member_apis_works(void)
{
    for (int16_t v = 0; v <= 9; v++) {
        struct kc_str g = cl_group_of("member", v);
        struct joined j = cl_enter(&cl_conn, v, g);
        char assignment[64];
        int16_t sync_version = KC_MIN(v, (int16_t)5), beat = KC_MIN(v, (int16_t)4);
        KT_EQ(cl_sync_group(&cl_conn, sync_version, g, &j, assignment), 0);
        KT_STR(assignment, "yours");
        KT_EQ(cl_heartbeat(beat, g, &j), 0);
        struct joined stale = j;
        stale.generation++;
        KT_EQ(cl_heartbeat(beat, g, &stale), KAFKA_ILLEGAL_GENERATION);
        KT_EQ(cl_leave(KC_MIN(v, (int16_t)5), g, "nobody"), KAFKA_UNKNOWN_MEMBER_ID);
        KT_EQ(cl_leave(KC_MIN(v, (int16_t)5), g, j.member), 0);
        KT_EQ(cl_heartbeat(beat, g, &j), KAFKA_UNKNOWN_MEMBER_ID);
    }
}

static void every_version_of_commit_and_fetch_works(void)
{
    for (int16_t v = 2; v <= 10; v++) {
        struct kc_str g = cl_group_of("offsets", v);
        KT_EQ(cl_commit(v, g, NULL, 100 + v, 0), 0);
        KT_EQ(cl_commit(v, g, NULL, 1, 9), KAFKA_UNKNOWN_TOPIC_OR_PARTITION);
        for (int16_t f = 1; f <= 10; f++) {
            struct fetched got = cl_fetch(f, g, false);
            KT_EQ(got.group_error, 0);
            KT_EQ(got.error, 0);
            KT_EQ(got.offset, 100 + v);
            KT_STR(got.metadata, "note");
            if (f >= 2) {
                got = cl_fetch(f, g, true);
                KT_EQ(got.n_topics, 1);
                KT_EQ(got.offset, 100 + v);
            }
        }
    }
    struct fetched none = cl_fetch(1, KC_STR_LIT("never seen"), false);
    KT_EQ(none.error, 0);
    KT_EQ(none.offset, -1);
    none = cl_fetch(10, KC_STR_LIT("never seen"), true);
    KT_EQ(none.group_error, 0);
    KT_EQ(none.n_topics, 0);
}

static void commits_are_judged_by_the_group(void)
{
    struct kc_str g = KC_STR_LIT("judged");
    struct joined stranger = {.generation = 1, .member = "x"};
    KT_EQ(cl_commit(9, g, &stranger, 1, 0), KAFKA_ILLEGAL_GENERATION);
    struct joined j = cl_enter(&cl_conn, 5, g);
    char assignment[64];
    KT_EQ(cl_commit(9, g, &j, 1, 0), KAFKA_REBALANCE_IN_PROGRESS);
    KT_EQ(cl_sync_group(&cl_conn, 5, g, &j, assignment), 0);
    KT_EQ(cl_commit(9, g, &j, 1, 0), 0);
    KT_EQ(cl_commit(9, g, NULL, 1, 0), KAFKA_UNKNOWN_MEMBER_ID);
    struct joined stale = j;
    stale.generation = 0;
    KT_EQ(cl_commit(9, g, &stale, 1, 0), KAFKA_ILLEGAL_GENERATION);
    cl_leave(5, g, j.member);
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
    struct kw_find_coordinator_response *r = bx_ask(&cl_conn, 10, version, &q);
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
    struct joined j = cl_enter(&cl_conn, 5, g);
    char assignment[64];
    cl_sync_group(&cl_conn, 5, g, &j, assignment);
    for (int16_t v = 0; v <= 6; v++) {
        struct kc_str names[] = {g, KC_STR_LIT("no such group")};
        struct kw_describe_groups_request q;
        kw_describe_groups_request_init(&q);
        q.groups = names;
        q.n_groups = 2;
        struct kw_describe_groups_response *r = bx_ask(&cl_conn, 15, v, &q);
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
    cl_leave(5, g, j.member);
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
    struct kw_list_groups_response *r = bx_ask(&cl_conn, 16, version, &q);
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
    cl_commit(5, KC_STR_LIT("listed"), NULL, 1, 0);
    for (int i = 0; i < 20; i++) {
        cl_commit(5, cl_group_of("many", i), NULL, 1, 0);
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
    struct kw_delete_groups_response *r = bx_ask(&cl_conn, 42, version, &q);
    KT_REQUIRE(r != NULL && r->n_results == 1);
    return r->results[0].error_code;
}

static void groups_are_deleted_in_every_version(void)
{
    for (int16_t v = 0; v <= 3; v++) {
        struct kc_str g = cl_group_of("deleted", v);
        KT_EQ(delete_group(v, g), KAFKA_GROUP_ID_NOT_FOUND);
        struct joined j = cl_enter(&cl_conn, 3, g);
        KT_EQ(delete_group(v, g), KAFKA_NON_EMPTY_GROUP);
        cl_leave(1, g, j.member);
        KT_EQ(cl_commit(5, g, NULL, 3, 0), 0);
        KT_EQ(delete_group(v, g), 0);
        KT_EQ(cl_fetch(5, g, false).offset, -1);
    }
}

static void offsets_are_deleted(void)
{
    struct kc_str g = KC_STR_LIT("trimmed");
    struct kw_offset_delete_request_partition parts[] = {{0}, {77}};
    struct kw_offset_delete_request_topic t = {CL_TOPIC, parts, 2};
    struct kw_offset_delete_request q = {g, &t, 1};
    struct kw_offset_delete_response *r = bx_ask(&cl_conn, 47, 0, &q);
    KT_EQ(r->error_code, KAFKA_GROUP_ID_NOT_FOUND);
    cl_commit(5, g, NULL, 3, 0);
    r = bx_ask(&cl_conn, 47, 0, &q);
    KT_EQ(r->error_code, 0);
    KT_EQ(r->topics[0].partitions[0].error_code, 0);
    KT_EQ(r->topics[0].partitions[1].error_code, KAFKA_UNKNOWN_TOPIC_OR_PARTITION);
    KT_EQ(cl_fetch(5, g, false).offset, -1);
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
    struct kw_init_producer_id_response *r = bx_ask(&cl_conn, 22, version, &q);
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
        cl_commit(5, kc_str_of(names[i]), NULL, i, 0);
        kw_offset_fetch_request_group_init(&groups[i]);
        groups[i].group_id = kc_str_of(names[i]);
        groups[i].topics = NULL;
    }
    q.groups = groups;
    q.n_groups = 12;
    struct kw_offset_fetch_response *r = bx_ask(&cl_conn, 9, 8, &q);
    KT_REQUIRE(r != NULL && r->n_groups == 12);
    for (int i = 0; i < 12; i++) {
        KT_TRUE(kc_str_eqz(r->groups[i].group_id, names[i]));
        KT_EQ(r->groups[i].topics[0].partitions[0].committed_offset, i);
    }
    q.n_groups = 0; /* some brokers never answer this */
    r = bx_ask(&cl_conn, 9, 8, &q);
    KT_REQUIRE(r != NULL);
    KT_EQ(r->n_groups, 0);
}

static void a_second_member_waits_for_the_first(void)
{
    struct kc_str g = KC_STR_LIT("pair");
    struct bx_conn other;
    char assignment[64];
    bx_connect(&broker, &other);
    struct joined a = cl_enter(&cl_conn, 3, g);
    cl_sync_group(&cl_conn, 3, g, &a, assignment);
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
    while (cl_heartbeat(3, g, &a) != KAFKA_REBALANCE_IN_PROGRESS) {
        KT_REQUIRE(kc_mono_ms() < until);
    }
    KT_FALSE(bx_waiting(&other, 0));
    char id[128];
    snprintf(id, sizeof(id), "%s", a.member);
    a = cl_join(&cl_conn, 3, g, id);
    KT_EQ(a.generation, 2);
    KT_EQ(a.n_members, 2);
    struct kw_join_group_response *r = bx_receive(&other, 11, 3);
    KT_EQ(r->generation_id, 2);
    KT_EQ(r->n_members, 0);
    bx_close(&other);
    cl_leave(0, g, id);
}

static void everything_acknowledged_survives_a_kill(void)
{
    struct kc_str g = KC_STR_LIT("survivor");
    char assignment[64];
    struct joined j = cl_enter(&cl_conn, 5, g);
    KT_EQ(cl_sync_group(&cl_conn, 5, g, &j, assignment), 0);
    KT_EQ(cl_commit(9, g, &j, 4711, 0), 0);
    bx_close(&cl_conn);
    bx_kill(&broker);
    bx_start(&broker, false);
    bx_connect(&broker, &cl_conn);
    KT_EQ(cl_heartbeat(4, g, &j), 0);
    KT_EQ(cl_fetch(7, g, false).offset, 4711);
    KT_EQ(cl_sync_group(&cl_conn, 5, g, &j, assignment), 0);
    KT_STR(assignment, "yours");
    KT_EQ(cl_commit(9, g, &j, 4712, 0), 0);
}

/* ---- frame ---- */

static void begin(void)
{
    bx_start(&broker, true);
    bx_connect(&broker, &cl_conn);
    struct kw_metadata_request_topic topic;
    struct kw_metadata_request q;
    int64_t until = kc_mono_ms() + 20000;
    for (;;) { /* the topic is made by being asked for */
        kw_metadata_request_topic_init(&topic);
        kw_metadata_request_init(&q);
        topic.name = CL_TOPIC;
        q.topics = &topic;
        q.n_topics = 1;
        struct kw_metadata_response *r = bx_ask(&cl_conn, 3, 12, &q);
        KT_REQUIRE(r != NULL && r->n_topics == 1);
        if (r->topics[0].error_code == 0) {
            cl_topic_id = r->topics[0].topic_id;
            return;
        }
        KT_REQUIRE(kc_mono_ms() < until);
    }
}

static void end(void)
{
    bx_close(&cl_conn);
    bx_end(&broker);
}

KT_MAIN("group apis", KT(begin), KT(every_version_of_the_member_apis_works),
        KT(every_version_of_commit_and_fetch_works), KT(commits_are_judged_by_the_group),
        KT(the_coordinator_is_found_in_every_version), KT(groups_are_described_in_every_version),
        KT(groups_are_listed_over_all_loops_with_filters), KT(groups_are_deleted_in_every_version),
        KT(offsets_are_deleted), KT(every_producer_gets_an_id_of_its_own),
        KT(one_request_fetches_many_groups), KT(a_second_member_waits_for_the_first),
        KT(everything_acknowledged_survives_a_kill), KT(end))
