/* What one request may cost: work that grows with the square of a request's length would block a
 * data loop for minutes, and a blocked loop is a dead broker (R40). */
#include "hx.h"

#include <stdio.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "wire/kw_create_partitions.h"
#include "wire/kw_create_topics.h"
#include "wire/kw_errors.h"
#include "wire/kw_metadata.h"

enum { MANY = 60000, IN_TIME_MS = 3000, NAME = 16 };

static struct hx h;
static struct hx_client c;

static void on_change(struct kb_admin_ticket *t, const struct kb_admin_change *change)
{
    (void)change;
    struct kb_admin_result r = {.error = KAFKA_POLICY_VIOLATION, .message = "no"};
    kb_admin_settle(t, &r);
}

static void up(void)
{
    hx_up_admin(&h, 2, on_change);
    hx_topic(&h, "plain", 2, 1);
    hx_publish(&h);
    hx_dial(&h, &c, 0);
}

static void down(void)
{
    hx_end(&h, &c);
}

static const void *call_in_time(int16_t key, int16_t version, const void *request)
{
    int64_t before = kc_mono_ms();
    const void *r = hx_call(&c, key, version, request);
    KT_REQUIRE(r != NULL);
    KT_TRUE(kc_mono_ms() - before < IN_TIME_MS);
    return r;
}

static void sixty_thousand_topics_in_one_request(void)
{
    up();
    char(*names)[NAME] = kc_alloc(MANY * sizeof(*names));
    struct kw_create_topics_request_creatable_topic *t = kc_zalloc(MANY * sizeof(*t));
    struct kw_create_partitions_request_topic *p = kc_zalloc(MANY * sizeof(*p));
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], NAME, "topic-%08d", i);
        t[i].name = p[i].name = kc_str_of(names[i]);
        t[i].num_partitions = t[i].replication_factor = 1;
        p[i].count = 5;
        p[i].n_assignments = -1;
    }
    struct kw_create_topics_request in = {.topics = t, .n_topics = MANY, .timeout_ms = 60000};
    const struct kw_create_topics_response *r = call_in_time(19, 5, &in);
    KT_EQ(r->n_topics, MANY);
    KT_EQ(r->topics[MANY - 1].error_code, KAFKA_POLICY_VIOLATION);
    KT_EQ(h.submitted, 0); /* refused as a whole: half of it would be worse */
    struct kw_create_partitions_request more = {.topics = p, .n_topics = MANY, .timeout_ms = 60000};
    const struct kw_create_partitions_response *m = call_in_time(37, 3, &more);
    KT_EQ(m->results[0].error_code, KAFKA_POLICY_VIOLATION);
    in.n_topics = 10000; /* the most that are taken; two of them have the same name */
    t[9999].name = t[7].name;
    r = call_in_time(19, 5, &in);
    KT_EQ(r->topics[6].error_code, KAFKA_POLICY_VIOLATION);
    KT_EQ(r->topics[7].error_code, KAFKA_INVALID_REQUEST);
    KT_EQ(r->topics[9999].error_code, KAFKA_INVALID_REQUEST);
    KT_EQ(h.submitted, 9998);
    kc_free(names);
    kc_free(t);
    kc_free(p);
    down();
}

static void an_assignment_of_a_million_partitions(void)
{
    up();
    int32_t broker = 1;
    enum { N = 400000 };
    struct kw_create_topics_request_creatable_replica_assignment *a = kc_zalloc(N * sizeof(*a));
    for (int i = 0; i < N; i++) {
        a[i].partition_index = N - 1 - i;
        a[i].broker_ids = &broker;
        a[i].n_broker_ids = 1;
    }
    struct kw_create_topics_request_creatable_topic t = {.name = KC_STR_LIT("manual"),
                                                         .num_partitions = -1,
                                                         .replication_factor = -1,
                                                         .assignments = a,
                                                         .n_assignments = N};
    struct kw_create_topics_request in = {.topics = &t, .n_topics = 1, .timeout_ms = 60000};
    const struct kw_create_topics_response *r = call_in_time(19, 5, &in);
    KT_EQ(r->topics[0].error_code, KAFKA_INVALID_PARTITIONS);
    t.n_assignments = 3;
    t.assignments = &a[N - 3]; /* 2, 1, 0: in any order */
    r = call_in_time(19, 5, &in);
    KT_EQ(r->topics[0].error_code, KAFKA_POLICY_VIOLATION);
    KT_EQ(h.submitted, 1);
    a[N - 2].partition_index = 0; /* 2, 0, 0 */
    r = call_in_time(19, 5, &in);
    KT_EQ(r->topics[0].error_code, KAFKA_INVALID_REPLICA_ASSIGNMENT);
    a[N - 2].partition_index = -1;
    r = call_in_time(19, 5, &in);
    KT_EQ(r->topics[0].error_code, KAFKA_INVALID_REPLICA_ASSIGNMENT);
    kc_free(a);
    down();
}

/* Dynamic in Kafka, too: in force with the image, for new connections. */
static void connection_limits_follow_the_image(void)
{
    up();
    struct hx_client other;
    h.configs[0] = (struct ki_config){"max.connections.per.ip", "1"};
    h.n_configs = 1;
    hx_publish(&h);
    hx_dial(&h, &other, 0);
    KT_EQ(hx_receive_raw(&other), -1);
    hx_hang_up(&other);
    h.configs[0] = (struct ki_config){"max.connections.per.ip", "2"};
    hx_publish(&h);
    struct kw_metadata_request ask = {.n_topics = -1};
    hx_dial(&h, &other, 0);
    KT_TRUE(hx_call(&other, 3, 5, &ask) != NULL);
    KT_TRUE(hx_call(&c, 3, 5, &ask) != NULL); /* that was open all the time */
    hx_hang_up(&other);
    h.app.connection_cap = 1; /* descriptors are for the log first */
    h.configs[0] = (struct ki_config){"max.connections", "50"};
    hx_publish(&h);
    hx_dial(&h, &other, 0);
    KT_EQ(hx_receive_raw(&other), -1);
    hx_hang_up(&other);
    down();
}

KT_MAIN("limits", KT(connection_limits_follow_the_image), KT(sixty_thousand_topics_in_one_request),
        KT(an_assignment_of_a_million_partitions))
