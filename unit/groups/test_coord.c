/* The coordinator on a fake log: durability before answers, loading, closing, deletions, expiry. */
#include <stdlib.h>
#include <string.h>

#include "base/kc_str.h"
#include "coord_fix.h"
#include "kt.h"
#include "wire/kw_batch.h"

static void answer_admin(struct kg_admin *a)
{
    a->entry = a; /* a mark: answered */
}

static int16_t delete_group(struct cx *x, struct kg_admin *a)
{
    *a = (struct kg_admin){.done = answer_admin};
    kg_request_delete(x->shard, CX_GROUP, a);
    return a->entry ? a->error : -100;
}

static int16_t delete_offset(struct cx *x, const char *topic, int32_t partition, int16_t *ret_part)
{
    struct kg_commit_part part = {.topic = kc_str_of(topic), .partition = partition};
    struct kg_admin a = {.n = 1, .parts = &part, .done = answer_admin};
    kg_request_offset_delete(x->shard, CX_GROUP, &a);
    *ret_part = part.error;
    return a.error;
}

static void member_ids_are_client_id_and_uuid(void)
{
    struct cx x;
    char m[128];
    cx_init(&x);
    cx_stable(&x, m);
    KT_TRUE(strncmp(m, "app-", 4) == 0);
    KT_EQ(strlen(m), 4 + 36);
    KT_EQ(m[4 + 8], '-');
    KT_EQ(m[4 + 23], '-');
    cx_fini(&x);
}

static void a_takeover_knows_members_assignments_and_offsets(void)
{
    struct cx x;
    char m[128];
    struct cx_commit c;
    cx_init(&x);
    cx_stable(&x, m);
    cx_commit(&x, &c, m, 1, "t", 0, 42);
    KT_TRUE(c.done);
    KT_EQ(c.part.error, 0);
    cx_close(&x);
    KT_EQ(cx_offset(&x, "t", 0), -100 - KAFKA_NOT_COORDINATOR);
    x.read_bytes = 1; /* one batch a chunk */
    cx_open(&x);
    KT_EQ(cx_offset(&x, "t", 0), -100 - KAFKA_COORDINATOR_LOAD_IN_PROGRESS);
    cx_turns(&x);
    KT_EQ(cx_offset(&x, "t", 0), 42);
    int16_t error;
    const struct kg_group *g = kg_request_describe(x.shard, CX_GROUP, &error);
    KT_REQUIRE(g != NULL);
    KT_EQ(g->state, KG_STABLE);
    KT_EQ(g->generation, 1);
    KT_STR(g->leader.ptr, m);
    KT_STR(g->protocol_name.ptr, "range");
    KT_EQ(g->members[0]->session_timeout_ms, 10000);
    KT_STR(g->members[0]->client_host.ptr, "/1.2.3.4");
    struct kg_who who = {.member_id = kc_str_of(m), .generation = 1};
    KT_EQ(kg_request_heartbeat(x.shard, CX_GROUP, &who), 0);
    struct cx_answer *s = cx_sync(&x, m, 1, NULL, NULL);
    KT_STR(s->assignment, "mine");
    cx_pass(&x, 10000); /* its session began when the slot was loaded */
    KT_EQ(kg_request_heartbeat(x.shard, CX_GROUP, &who), KAFKA_UNKNOWN_MEMBER_ID);
    cx_fini(&x);
}

static void while_loading_requests_hear_what_sends_clients_the_right_way(void)
{
    struct cx x;
    char m[128];
    struct cx_commit c;
    cx_init(&x);
    cx_stable(&x, m);
    cx_close(&x);
    cx_open(&x);
    struct kg_who who = {.member_id = kc_str_of(m), .generation = 1};
    KT_EQ(cx_join(&x, m, "app", 10000)->error, KAFKA_COORDINATOR_LOAD_IN_PROGRESS);
    KT_EQ(cx_sync(&x, m, 1, NULL, NULL)->error, KAFKA_REBALANCE_IN_PROGRESS);
    KT_EQ(kg_request_heartbeat(x.shard, CX_GROUP, &who), 0);
    cx_commit(&x, &c, m, 1, "t", 0, 1);
    KT_EQ(c.part.error, KAFKA_COORDINATOR_LOAD_IN_PROGRESS);
    KT_FALSE(kg_shard_list(x.shard, NULL, NULL));
    cx_fini(&x);
}

static void parked_members_hear_16_when_the_slot_leaves(void)
{
    struct cx x;
    char m[128];
    cx_init(&x);
    cx_stable(&x, m);
    struct cx_answer *j = cx_join(&x, "", "other", 10000);
    KT_EQ(j->count, 0);
    cx_close(&x);
    KT_EQ(j->error, KAFKA_NOT_COORDINATOR);
    KT_EQ(cx_join(&x, "", "other", 10000)->error, KAFKA_NOT_COORDINATOR);
    cx_open(&x);
    cx_fini(&x);
}

static void a_commit_is_answered_and_visible_only_after_its_ack(void)
{
    struct cx x;
    struct cx_commit first, second;
    cx_init(&x);
    x.manual = true;
    cx_commit(&x, &first, "", -1, "t", 0, 1);
    cx_commit(&x, &second, "", -1, "t", 0, 2);
    KT_FALSE(first.done);
    KT_EQ(cx_offset(&x, "t", 0), -1);
    cx_ack(&x, 0);
    KT_TRUE(first.done);
    KT_FALSE(second.done);
    KT_EQ(cx_offset(&x, "t", 0), 1);
    cx_ack(&x, KAFKA_NOT_LEADER_OR_FOLLOWER);
    KT_EQ(second.part.error, KAFKA_NOT_COORDINATOR);
    KT_EQ(cx_offset(&x, "t", 0), 1);
    cx_fini(&x);
}

static void a_commit_that_fails_leaves_no_group_behind(void)
{
    struct cx x;
    struct cx_commit c;
    int16_t error;
    cx_init(&x);
    x.fail_next = KAFKA_MESSAGE_TOO_LARGE;
    cx_commit(&x, &c, "", -1, "t", 0, 1);
    KT_EQ(c.part.error, KAFKA_INVALID_COMMIT_OFFSET_SIZE);
    KT_TRUE(kg_request_describe(x.shard, CX_GROUP, &error) == NULL);
    cx_fini(&x);
}

static void commits_are_refused_as_kafka_refuses_them(void)
{
    struct cx x;
    char m[128];
    struct cx_commit c;
    cx_init(&x);
    cx_commit(&x, &c, "x", 3, "t", 0, 1);
    KT_EQ(c.part.error, KAFKA_ILLEGAL_GENERATION); /* a member of an unknown group */
    cx_stable(&x, m);
    cx_commit(&x, &c, "", -1, "t", 0, 1);
    KT_EQ(c.part.error, KAFKA_UNKNOWN_MEMBER_ID);
    static char text[5000];
    memset(text, 'x', sizeof(text));
    c = (struct cx_commit){
        .part = {.topic = KC_STR_LIT("t"), .v = {.metadata = {text, 4097}, .expire_wall_ms = -1}}};
    c.c = (struct kg_commit){.who = {.member_id = kc_str_of(m), .generation = 1},
                             .n = 1,
                             .parts = &c.part,
                             .done = NULL};
    struct cx_commit done;
    cx_commit(&x, &done, m, 1, "t", 1, 1);
    c.c.done = done.c.done;
    kg_request_commit(x.shard, CX_GROUP, &c.c);
    KT_EQ(c.part.error, KAFKA_OFFSET_METADATA_TOO_LARGE);
    cx_fini(&x);
}

static void an_old_fence_check_silences_the_coordinator(void)
{
    struct cx x;
    cx_init(&x);
    x.fence_age = KG_FENCE_AGE_MAX_MS + 1;
    KT_EQ(cx_offset(&x, "t", 0), -100 - KAFKA_NOT_COORDINATOR);
    x.fence_age = 10;
    KT_EQ(cx_offset(&x, "t", 0), -1);
    cx_fini(&x);
}

static void bad_joins_are_refused(void)
{
    struct cx x;
    cx_init(&x);
    KT_EQ(cx_join(&x, "", "app", 1)->error, KAFKA_INVALID_SESSION_TIMEOUT);
    KT_EQ(cx_join(&x, "", "app", 7200000)->error, KAFKA_INVALID_SESSION_TIMEOUT);
    KT_EQ(cx_join(&x, "nobody", "app", 10000)->error, KAFKA_UNKNOWN_MEMBER_ID);
    struct kg_who who = {.generation = 1};
    KT_EQ(kg_request_heartbeat(x.shard, KC_STR_LIT(""), &who), KAFKA_INVALID_GROUP_ID);
    int16_t errors[1];
    KT_EQ(kg_request_leave(x.shard, CX_GROUP, &who, NULL, 1, errors), 0);
    KT_EQ(errors[0], KAFKA_UNKNOWN_MEMBER_ID);
    cx_fini(&x);
}

static void deleting_a_group_leaves_nothing_in_memory_or_log(void)
{
    struct cx x;
    struct cx_commit c;
    struct kg_admin a;
    char m[128];
    int16_t errors[1], error;
    cx_init(&x);
    KT_EQ(delete_group(&x, &a), KAFKA_GROUP_ID_NOT_FOUND);
    cx_stable(&x, m);
    cx_commit(&x, &c, m, 1, "t", 0, 1);
    KT_EQ(delete_group(&x, &a), KAFKA_NON_EMPTY_GROUP);
    struct kg_who who = {.member_id = kc_str_of(m)};
    kg_request_leave(x.shard, CX_GROUP, &who, NULL, 1, errors);
    KT_EQ(errors[0], 0);
    KT_EQ(delete_group(&x, &a), 0);
    KT_TRUE(kg_request_describe(x.shard, CX_GROUP, &error) == NULL);
    cx_close(&x);
    cx_open(&x);
    cx_turns(&x);
    KT_TRUE(kg_request_describe(x.shard, CX_GROUP, &error) == NULL);
    KT_EQ(cx_offset(&x, "t", 0), -1);
    cx_fini(&x);
}

/* The commits before the deletion go, acked or not; the one behind it stays. */
static void a_deletion_and_commits_around_it_end_as_the_log_says(void)
{
    struct cx x;
    struct cx_commit before, after;
    struct kg_admin a;
    cx_init(&x);
    x.manual = true;
    cx_commit(&x, &before, "", -1, "t", 0, 1);
    KT_EQ(delete_group(&x, &a), -100);
    cx_commit(&x, &after, "", -1, "t", 1, 2);
    for (int i = 0; i < 3; i++) {
        cx_ack(&x, 0);
    }
    KT_EQ(a.error, 0);
    KT_EQ(cx_offset(&x, "t", 0), -1);
    KT_EQ(cx_offset(&x, "t", 1), 2);
    cx_close(&x);
    cx_open(&x);
    cx_turns(&x);
    KT_EQ(cx_offset(&x, "t", 0), -1);
    KT_EQ(cx_offset(&x, "t", 1), 2);
    cx_fini(&x);
}

static void offsets_of_topics_not_read_can_be_deleted(void)
{
    struct cx x;
    struct cx_commit c;
    char m[128];
    int16_t part;
    cx_init(&x);
    KT_EQ(delete_offset(&x, "t", 0, &part), KAFKA_GROUP_ID_NOT_FOUND);
    cx_stable(&x, m); /* subscribes to t */
    cx_commit(&x, &c, m, 1, "t", 0, 1);
    cx_commit(&x, &c, m, 1, "u", 0, 2);
    KT_EQ(delete_offset(&x, "t", 0, &part), 0);
    KT_EQ(part, KAFKA_GROUP_SUBSCRIBED_TO_TOPIC);
    KT_EQ(delete_offset(&x, "u", 0, &part), 0);
    KT_EQ(part, 0);
    KT_EQ(cx_offset(&x, "t", 0), 1);
    KT_EQ(cx_offset(&x, "u", 0), -1);
    cx_close(&x);
    cx_open(&x);
    cx_turns(&x);
    KT_EQ(cx_offset(&x, "t", 0), 1);
    KT_EQ(cx_offset(&x, "u", 0), -1);
    cx_fini(&x);
}

static void a_deleted_topic_takes_its_offsets_along(void)
{
    struct cx x;
    struct cx_commit c;
    cx_init(&x);
    cx_commit(&x, &c, "", -1, "t", 0, 1);
    cx_commit(&x, &c, "", -1, "u", 7, 2);
    kg_topic_deleted(x.shard, KC_STR_LIT("t"));
    KT_EQ(cx_offset(&x, "t", 0), -1);
    KT_EQ(cx_offset(&x, "u", 7), 2);
    cx_close(&x);
    cx_open(&x);
    cx_turns(&x);
    KT_EQ(cx_offset(&x, "t", 0), -1);
    cx_fini(&x);
}

static void offsets_of_an_empty_group_expire_from_when_it_became_empty(void)
{
    struct cx x;
    struct cx_commit c;
    char m[128];
    int16_t errors[1], error;
    cx_init(&x);
    cx_stable(&x, m);
    cx_commit(&x, &c, m, 1, "t", 0, 1);
    struct kg_who who = {.member_id = kc_str_of(m), .generation = 1};
    for (int day = 0; day < 8; day++) { /* members keep offsets alive, however old */
        for (int i = 0; i < 10800; i++) {
            cx_pass(&x, 8000);
            KT_EQ(kg_request_heartbeat(x.shard, CX_GROUP, &who), 0);
        }
    }
    KT_EQ(cx_offset(&x, "t", 0), 1);
    kg_request_leave(x.shard, CX_GROUP, &who, NULL, 1, errors);
    cx_pass(&x, 6 * 86400000LL);
    KT_EQ(cx_offset(&x, "t", 0), 1);
    cx_pass(&x, 86400000LL + 1200000);
    KT_TRUE(kg_request_describe(x.shard, CX_GROUP, &error) == NULL);
    cx_close(&x);
    cx_open(&x);
    cx_turns(&x);
    KT_TRUE(kg_request_describe(x.shard, CX_GROUP, &error) == NULL);
    cx_fini(&x);
}

static void offsets_of_simple_consumers_expire_from_their_commit(void)
{
    struct cx x;
    struct cx_commit c;
    cx_init(&x);
    cx_commit(&x, &c, "", -1, "t", 0, 1);
    cx_pass(&x, 4 * 86400000LL);
    cx_commit(&x, &c, "", -1, "t", 1, 2);
    cx_pass(&x, 4 * 86400000LL);
    KT_EQ(cx_offset(&x, "t", 0), -1);
    KT_EQ(cx_offset(&x, "t", 1), 2);
    cx_fini(&x);
}

static void the_log_holds_kafkas_own_records(void)
{
    struct cx x;
    struct cx_commit c;
    cx_init(&x);
    cx_commit(&x, &c, "", -1, "t", 5, 42);
    struct kw_batch b;
    struct kw_record_iter it;
    struct kw_record r;
    KT_REQUIRE(kw_batch_view(x.log, x.log_len, &b) == 0);
    KT_EQ(b.count, 1);
    KT_EQ(b.producer_id, -1);
    KT_REQUIRE(kw_record_iter_init(&it, &b) == 0 && kw_record_next(&it, &r) == 1);
    static const uint8_t key[] = {0, 1, 0, 1, 'g', 0, 1, 't', 0, 0, 0, 5};
    KT_EQ(r.key.len, sizeof(key));
    KT_TRUE(memcmp(r.key.ptr, key, sizeof(key)) == 0);
    /* version 3: offset, leader epoch, metadata, commit timestamp */
    static const uint8_t value[] = {0, 3, 0, 0, 0, 0, 0,   0,   0,   42,
                                    0, 0, 0, 3, 0, 4, 'n', 'o', 't', 'e'};
    KT_EQ(r.value.len, sizeof(value) + 8);
    KT_TRUE(memcmp(r.value.ptr, value, sizeof(value)) == 0);
    cx_fini(&x);
}

static void garbage_in_the_log_is_left_out(void)
{
    struct cx x;
    struct cx_commit c;
    cx_init(&x);
    cx_commit(&x, &c, "", -1, "t", 0, 7);
    cx_close(&x);
    struct kw_batch_builder b;
    struct kw_batch_args args = KW_BATCH_ARGS_PLAIN;
    struct kc_bytes out;
    static const uint8_t bad_key[] = {0, 1, 0, 99, 'g'}, odd_key[] = {0, 77},
                         group[] = {0, 2, 0, 1, 'g'};
    static const uint8_t bad_value[] = {0, 3, 1};
    kw_batch_builder_init(&b, &args, 4096);
    kw_batch_builder_add(&b, 1, (struct kc_bytes){bad_key, 5}, (struct kc_bytes){bad_value, 3},
                         NULL, 0);
    kw_batch_builder_add(&b, 1, (struct kc_bytes){odd_key, 2}, KC_BYTES_NULL, NULL, 0);
    kw_batch_builder_add(&b, 1, (struct kc_bytes){group, 5}, (struct kc_bytes){bad_value, 3}, NULL,
                         0);
    kw_batch_builder_add(&b, 1, KC_BYTES_NULL, (struct kc_bytes){bad_value, 3}, NULL, 0);
    KT_REQUIRE(kw_batch_builder_end(&b, &out) == 0);
    memcpy(x.log + x.log_len, out.ptr, (size_t)out.len);
    x.log[x.log_len + 7] = 1; /* base offset */
    x.log_len += (size_t)out.len;
    x.end_offset += 4;
    kw_batch_builder_fini(&b);
    cx_open(&x);
    cx_turns(&x);
    KT_EQ(cx_offset(&x, "t", 0), 7);
    cx_fini(&x);
}

KT_MAIN("coordinator", KT(member_ids_are_client_id_and_uuid),
        KT(a_takeover_knows_members_assignments_and_offsets),
        KT(while_loading_requests_hear_what_sends_clients_the_right_way),
        KT(parked_members_hear_16_when_the_slot_leaves),
        KT(a_commit_is_answered_and_visible_only_after_its_ack),
        KT(a_commit_that_fails_leaves_no_group_behind),
        KT(commits_are_refused_as_kafka_refuses_them),
        KT(an_old_fence_check_silences_the_coordinator), KT(bad_joins_are_refused),
        KT(deleting_a_group_leaves_nothing_in_memory_or_log),
        KT(a_deletion_and_commits_around_it_end_as_the_log_says),
        KT(offsets_of_topics_not_read_can_be_deleted), KT(a_deleted_topic_takes_its_offsets_along),
        KT(offsets_of_an_empty_group_expire_from_when_it_became_empty),
        KT(offsets_of_simple_consumers_expire_from_their_commit),
        KT(the_log_holds_kafkas_own_records), KT(garbage_in_the_log_is_left_out))
