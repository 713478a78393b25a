#include "kpt.h"
#include "kt.h"

/* Brokers hear who has come to lead what before an image says it (ADR 19). */
static struct kpt w;
static struct kp_lead got[KP_LEADS_MAX];

static void begin(void)
{
    kpt_init(&w, 3);
    kpt_topic(&w, 12);
    kpt_start(&w, 3);
    KT_REQUIRE(kpt_await_settled(&w, 30000));
}

/* Broker id says that it leads partition p of topic 0 with the next epoch. */
static int32_t claim(int32_t id, int32_t p)
{
    struct kpt_owner *o = &w.topics[0].owner[p];
    struct kp_led led = {w.topics[0].id, p, ++o->epoch};
    o->broker = id;
    o->incarnation = w.b[id].incarnation;
    struct kp_status s = {.broker = id,
                          .stream = w.b[id].stream,
                          .incarnation = w.b[id].incarnation,
                          .healthy = true,
                          .serving = true,
                          .led = &led,
                          .n_led = 1};
    kp_ctl_status(w.c, &s, w.now);
    return o->epoch;
}

static void nothing_is_news_once_an_image_shows_it(void)
{
    begin();
    KT_TRUE(kp_ctl_leads_seq(w.c) >= 12);
    kpt_run(&w, 2000);
    KT_EQ(kp_ctl_leads(w.c, 0, got, KP_LEADS_MAX), 0);
    kpt_fini(&w);
}

static void a_new_leader_is_news_until_the_next_publication_stands(void)
{
    begin();
    kpt_run(&w, 2000);
    uint64_t since = kp_ctl_leads_seq(w.c);
    w.step_only = true;
    int32_t leader = kpt_leader(&w, 0, 5);
    int32_t epoch = claim(leader, 5); /* it claimed anew */
    KT_EQ(kp_ctl_leads(w.c, since, got, KP_LEADS_MAX), 1);
    KT_TRUE(kc_uuid_eq(&got[0].p.topic_id, &w.topics[0].id));
    KT_EQ(got[0].p.partition, 5);
    KT_EQ(got[0].broker, leader);
    KT_EQ(got[0].epoch, epoch);
    KT_TRUE(kc_uuid_eq(&got[0].incarnation, &w.b[leader].incarnation));
    KT_EQ(kp_ctl_leads(w.c, kp_ctl_leads_seq(w.c), got, KP_LEADS_MAX), 0); /* told already */
    kp_ctl_published(w.c, w.generation + 1); /* under way then: it may not have it */
    KT_EQ(kp_ctl_leads(w.c, since, got, KP_LEADS_MAX), 1);
    kpt_run(&w, 1000);
    claim(kpt_leader(&w, 0, 6), 6); /* the next publication */
    kpt_run(&w, 1000);
    KT_EQ(kp_ctl_leads(w.c, since, got, KP_LEADS_MAX), 1);
    KT_EQ(got[0].p.partition, 6);
    kpt_fini(&w);
}

/* Each piece of news tells what holds when it is told. */
static void what_was_overtaken_is_told_as_it_is(void)
{
    begin();
    w.step_only = true;
    uint64_t since = kp_ctl_leads_seq(w.c);
    claim(1, 5);
    int32_t epoch = claim(2, 5);
    int32_t n = kp_ctl_leads(w.c, since, got, KP_LEADS_MAX);
    KT_EQ(n, 2);
    for (int32_t i = 0; i < n; i++) {
        KT_EQ(got[i].broker, 2);
        KT_EQ(got[i].epoch, epoch);
    }
    KT_EQ(kp_ctl_leads(w.c, since, got, 1), 1); /* and no more than there is room for */
    kpt_fini(&w);
}

static void whoever_is_behind_by_more_than_the_ring_gets_its_newest(void)
{
    begin();
    w.step_only = true;
    int32_t epoch = 0;
    for (int32_t i = 0; i < KP_LEADS_MAX + 10; i++) {
        epoch = claim(i % 3, 5);
    }
    KT_EQ(kp_ctl_leads(w.c, 0, got, KP_LEADS_MAX), KP_LEADS_MAX);
    KT_EQ(got[KP_LEADS_MAX - 1].epoch, epoch);
    kpt_fini(&w);
}

static void a_partition_without_a_leader_is_no_news(void)
{
    begin();
    w.step_only = true;
    uint64_t since = kp_ctl_leads_seq(w.c);
    claim(1, 5);
    struct kp_pid unled = {w.topics[0].id, 5};
    struct kp_status s = {.broker = 1,
                          .stream = w.b[1].stream,
                          .incarnation = w.b[1].incarnation,
                          .healthy = true,
                          .unled = &unled,
                          .n_unled = 1};
    kp_ctl_status(w.c, &s, w.now);
    KT_EQ(kp_ctl_leads(w.c, since, got, KP_LEADS_MAX), 0);
    kpt_fini(&w);
}

KT_MAIN("news", KT(nothing_is_news_once_an_image_shows_it),
        KT(a_new_leader_is_news_until_the_next_publication_stands),
        KT(what_was_overtaken_is_told_as_it_is),
        KT(whoever_is_behind_by_more_than_the_ring_gets_its_newest),
        KT(a_partition_without_a_leader_is_no_news))
