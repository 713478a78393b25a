/* What a sweep asks about groups. */
#include "sw_parts.h"

#include "base/kc_hash.h"
#include "wire/kw_delete_groups.h"
#include "wire/kw_describe_groups.h"
#include "wire/kw_errors.h"
#include "wire/kw_find_coordinator.h"
#include "wire/kw_heartbeat.h"
#include "wire/kw_join_group.h"
#include "wire/kw_leave_group.h"
#include "wire/kw_list_groups.h"
#include "wire/kw_offset_commit.h"
#include "wire/kw_offset_delete.h"
#include "wire/kw_offset_fetch.h"
#include "wire/kw_sync_group.h"

enum { SLOTS = 50, SESSION_MS = 6000 };

/* ---- members ---- */

struct member {
    char id[128];
    int32_t generation;
};

static bool join(struct sw *s, struct kc_str group, struct member *m)
{
    static const uint8_t meta[] = {0, 0, 0, 0, 0, 1, 0, 1, 't', 0, 0, 0, 0};
    struct kw_join_group_request_protocol p = {KC_STR_LIT("range"), {meta, sizeof(meta)}};
    struct kw_join_group_request q;
    kw_join_group_request_init(&q);
    q.group_id = group;
    q.session_timeout_ms = q.rebalance_timeout_ms = SESSION_MS;
    q.member_id = kc_str_of(m->id);
    q.protocol_type = KC_STR_LIT("consumer");
    q.protocols = &p;
    q.n_protocols = 1;
    s->expect[0] = KAFKA_MEMBER_ID_REQUIRED;
    const struct kw_join_group_response *r = sw_ask(s, 11, 7, &q);
    s->expect[0] = 0;
    if (r) {
        snprintf(m->id, sizeof(m->id), "%.*s", KC_STR_ARG(r->member_id));
        m->generation = r->generation_id;
    }
    return r != NULL;
}

static bool sync_group(struct sw *s, struct kc_str group, const struct member *m)
{
    struct kw_sync_group_request_assignment a = {kc_str_of(m->id), {(const uint8_t *)"yours", 5}};
    struct kw_sync_group_request q;
    kw_sync_group_request_init(&q);
    q.group_id = group;
    q.generation_id = m->generation;
    q.member_id = kc_str_of(m->id);
    q.protocol_type = KC_STR_LIT("consumer");
    q.protocol_name = KC_STR_LIT("range");
    q.assignments = &a;
    q.n_assignments = 1;
    const struct kw_sync_group_response *r = sw_ask(s, 14, 5, &q);
    return r && r->assignment.len == 5;
}

static bool heartbeat(struct sw *s, struct kc_str group, const struct member *m)
{
    struct kw_heartbeat_request q;
    kw_heartbeat_request_init(&q);
    q.group_id = group;
    q.generation_id = m->generation;
    q.member_id = kc_str_of(m->id);
    return sw_ask(s, 12, 4, &q) != NULL;
}

static bool leave(struct sw *s, struct kc_str group, const struct member *m)
{
    struct kw_leave_group_request_member_identity who;
    struct kw_leave_group_request q;
    kw_leave_group_request_member_identity_init(&who);
    kw_leave_group_request_init(&q);
    q.group_id = group;
    who.member_id = kc_str_of(m->id);
    q.members = &who;
    q.n_members = 1;
    return sw_ask(s, 13, 5, &q) != NULL;
}

/* ---- offsets ---- */

static bool commit(struct sw *s, const char *group, const struct member *m, int64_t offset)
{
    struct kw_offset_commit_request_partition p;
    struct kw_offset_commit_request_topic t;
    struct kw_offset_commit_request q;
    kw_offset_commit_request_partition_init(&p);
    kw_offset_commit_request_topic_init(&t);
    kw_offset_commit_request_init(&q);
    p.committed_offset = offset;
    p.committed_metadata = KC_STR_LIT("note");
    t.name = SW_TOPIC;
    t.partitions = &p;
    t.n_partitions = 1;
    q.group_id = kc_str_of(group);
    q.member_id = kc_str_of(m ? m->id : "");
    q.generation_id_or_member_epoch = m ? m->generation : -1;
    q.topics = &t;
    q.n_topics = 1;
    return sw_ask(s, 8, 8, &q) != NULL;
}

/* -2: no answer. */
static int64_t committed(struct sw *s, const char *group)
{
    int32_t zero = 0;
    struct kw_offset_fetch_request_topics t;
    struct kw_offset_fetch_request_group g;
    struct kw_offset_fetch_request q;
    kw_offset_fetch_request_topics_init(&t);
    kw_offset_fetch_request_group_init(&g);
    kw_offset_fetch_request_init(&q);
    t.name = SW_TOPIC;
    t.partition_indexes = &zero;
    t.n_partition_indexes = 1;
    g.group_id = kc_str_of(group);
    g.topics = &t;
    g.n_topics = 1;
    q.groups = &g;
    q.n_groups = 1;
    const struct kw_offset_fetch_response *r = sw_ask(s, 9, 8, &q);
    return r ? r->groups[0].topics[0].partitions[0].committed_offset : -2;
}

bool sw_offsets(struct sw *s)
{
    char group[32];
    snprintf(group, sizeof(group), "o%llu", (unsigned long long)s->number);
    if (!commit(s, group, NULL, 7)) {
        return false;
    }
    KT_REQUIRE(s->n_committed < SW_COMMITS_MAX);
    struct sw_committed *c = &s->committed[s->n_committed++];
    memcpy(c->group, group, sizeof(group));
    c->offset = 7;
    int64_t got = committed(s, group);
    if (got != 7 && got != -2) {
        sw_bad(s, "committed 7, fetched %lld", (long long)got);
    }
    return got == 7;
}

bool sw_verify_offsets(struct sw *s)
{
    for (int32_t i = 0; i < s->n_committed; i++) {
        int64_t got = committed(s, s->committed[i].group);
        if (got == -2) {
            return false;
        }
        if (got != s->committed[i].offset) {
            sw_bad(s, "group %s committed %lld, has %lld", s->committed[i].group,
                   (long long)s->committed[i].offset, (long long)got);
        }
    }
    return true;
}

/* ---- lives of groups ---- */

bool sw_membership(struct sw *s)
{
    char name[32];
    struct member m = {.generation = -1};
    snprintf(name, sizeof(name), "m%llu", (unsigned long long)s->number);
    struct kc_str group = kc_str_of(name);
    return join(s, group, &m) && join(s, group, &m) && sync_group(s, group, &m) &&
           heartbeat(s, group, &m) && commit(s, name, &m, 3) && committed(s, name) == 3 &&
           leave(s, group, &m);
}

static bool describe(struct sw *s, struct kc_str *groups, int32_t n)
{
    struct kw_describe_groups_request q;
    kw_describe_groups_request_init(&q);
    q.groups = groups;
    q.n_groups = n;
    return sw_ask(s, 15, 5, &q) != NULL;
}

bool sw_group_admin(struct sw *s)
{
    char name[32];
    snprintf(name, sizeof(name), "a%llu", (unsigned long long)s->number);
    struct kc_str group = kc_str_of(name);
    struct kw_offset_delete_request_partition p = {0};
    struct kw_offset_delete_request_topic t = {SW_TOPIC, &p, 1};
    struct kw_offset_delete_request oq = {group, &t, 1};
    struct kw_list_groups_request lq;
    kw_list_groups_request_init(&lq);
    struct kw_delete_groups_request dq;
    kw_delete_groups_request_init(&dq);
    dq.groups_names = &group;
    dq.n_groups_names = 1;
    if (!commit(s, name, NULL, 1) || !sw_ask(s, 16, 4, &lq) || !describe(s, &group, 1) ||
        !sw_ask(s, 47, 0, &oq)) {
        return false;
    }
    s->expect[0] = KAFKA_GROUP_ID_NOT_FOUND; /* a group without offsets may be gone already */
    bool ok = sw_ask(s, 42, 2, &dq) != NULL;
    s->expect[0] = 0;
    return ok;
}

bool sw_find_coordinator(struct sw *s)
{
    struct kc_str keys[2] = {KC_STR_LIT("a"), KC_STR_LIT("b")};
    struct kw_find_coordinator_request q;
    kw_find_coordinator_request_init(&q);
    q.coordinator_keys = keys;
    q.n_coordinator_keys = 2;
    return sw_ask(s, 10, 4, &q) != NULL;
}

bool sw_coordinates(struct sw *s)
{
    static char names[SLOTS][16];
    struct kc_str groups[SLOTS];
    memset(names, 0, sizeof(names));
    for (int i = 0, found = 0; found < SLOTS; i++) {
        char name[16];
        int len = snprintf(name, sizeof(name), "probe%d", i);
        int32_t slot = kc_coordinator_slot((struct kc_str){name, len}, SLOTS);
        if (!names[slot][0]) {
            memcpy(names[slot], name, sizeof(name));
            groups[slot] = kc_str_of(names[slot]);
            found++;
        }
    }
    return describe(s, groups, SLOTS);
}
