#include "client.h"

#include "kt.h"
#include "wire/kw_errors.h"
#include "wire/kw_heartbeat.h"
#include "wire/kw_join_group.h"
#include "wire/kw_leave_group.h"
#include "wire/kw_offset_commit.h"
#include "wire/kw_offset_fetch.h"
#include "wire/kw_sync_group.h"

struct bx_conn cl_conn;
struct kc_uuid cl_topic_id;

struct kc_str cl_group_of(const char *prefix, int version)
{
    static char names[8][32];
    static int next;
    char *at = names[next++ % 8];
    snprintf(at, sizeof(names[0]), "%s-%d", prefix, version);
    return kc_str_of(at);
}

struct joined cl_join(struct bx_conn *c, int16_t version, struct kc_str group, const char *member)
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
    struct joined j = {
        .error = r->error_code, .generation = r->generation_id, .n_members = r->n_members};
    snprintf(j.member, sizeof(j.member), "%.*s", KC_STR_ARG(r->member_id));
    snprintf(j.leader, sizeof(j.leader), "%.*s", KC_STR_ARG(r->leader));
    return j;
}

/* A member of a stable generation, whatever steps the version asks for. */
struct joined cl_enter(struct bx_conn *c, int16_t join_version, struct kc_str group)
{
    struct joined j = cl_join(c, join_version, group, "");
    if (join_version >= 4) {
        KT_EQ(j.error, KAFKA_MEMBER_ID_REQUIRED);
        char id[128];
        snprintf(id, sizeof(id), "%s", j.member);
        j = cl_join(c, join_version, group, id);
    }
    KT_EQ(j.error, 0);
    KT_EQ(j.n_members, 1);
    KT_STR(j.leader, j.member);
    return j;
}

int16_t cl_sync_group(struct bx_conn *c, int16_t version, struct kc_str group,
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

int16_t cl_heartbeat(int16_t version, struct kc_str group, const struct joined *j)
{
    struct kw_heartbeat_request q;
    kw_heartbeat_request_init(&q);
    q.group_id = group;
    q.generation_id = j->generation;
    q.member_id = kc_str_of(j->member);
    struct kw_heartbeat_response *r = bx_ask(&cl_conn, 12, version, &q);
    KT_REQUIRE(r != NULL);
    return r->error_code;
}

int16_t cl_commit(int16_t version, struct kc_str group, const struct joined *j, int64_t offset,
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
    t.name = version < 10 ? CL_TOPIC : KC_STR_LIT("");
    if (version >= 10) {
        t.topic_id = cl_topic_id;
    }
    t.partitions = &p;
    t.n_partitions = 1;
    q.group_id = group;
    q.member_id = j ? kc_str_of(j->member) : KC_STR_LIT("");
    q.generation_id_or_member_epoch = j ? j->generation : -1;
    q.topics = &t;
    q.n_topics = 1;
    struct kw_offset_commit_response *r = bx_ask(&cl_conn, 8, version, &q);
    KT_REQUIRE(r != NULL && r->n_topics == 1 && r->topics[0].n_partitions == 1);
    return r->topics[0].partitions[0].error_code;
}

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

struct fetched cl_fetch(int16_t version, struct kc_str group, bool all)
{
    int32_t zero = 0;
    struct kw_offset_fetch_request_topic old = {CL_TOPIC, &zero, 1};
    struct kw_offset_fetch_request_topics fresh;
    struct kw_offset_fetch_request_group g;
    struct kw_offset_fetch_request q;
    kw_offset_fetch_request_topics_init(&fresh);
    kw_offset_fetch_request_group_init(&g);
    kw_offset_fetch_request_init(&q);
    fresh.name = version < 10 ? CL_TOPIC : KC_STR_LIT("");
    if (version >= 10) {
        fresh.topic_id = cl_topic_id;
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
    struct kw_offset_fetch_response *r = bx_ask(&cl_conn, 9, version, &q);
    KT_REQUIRE(r != NULL);
    struct fetched f = {.offset = -2};
    if (version >= 8) {
        read_new(r, &f);
    } else {
        read_old(r, &f);
    }
    return f;
}

int16_t cl_leave(int16_t version, struct kc_str group, const char *member)
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
    struct kw_leave_group_response *r = bx_ask(&cl_conn, 13, version, &q);
    KT_REQUIRE(r != NULL);
    if (version < 3) {
        return r->error_code;
    }
    KT_EQ(r->error_code, 0);
    KT_REQUIRE(r->n_members == 1);
    return r->members[0].error_code;
}
