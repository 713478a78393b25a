/* The image as a broker sees it: documents in order, rows pushed ahead of them. */
#include "kt.h"

#include "cl_fixture.h"
#include "cluster/kl_view.h"
#include "hb/hb_convert.h"

static struct clf c;
static struct kl_view v;
static struct kc_arena arena;

static void setup(void)
{
    clf_init(&c, 3);
    memset(&v, 0, sizeof(v));
    kc_arena_init(&arena, 0, 0);
}

static void done(void)
{
    kl_view_fini(&v);
    kc_arena_fini(&arena);
}

static bool apply(bool fresh)
{
    return kl_view_document(&v, clf_publish(&c), fresh);
}

static bool push(const struct kp_row *row, int32_t gone)
{
    Kaas__Heartbeat__StatusAnswer a = KAAS__HEARTBEAT__STATUS_ANSWER__INIT;
    Kaas__Heartbeat__Row *r = row ? hb_row_new(&arena, row) : NULL;
    a.rows = &r;
    a.n_rows = row != NULL;
    a.gone = &gone;
    a.n_gone = gone >= 0;
    return kl_view_push(&v, &a, &c.order);
}

static void documents_never_go_back_in_order(void)
{
    setup();
    KT_TRUE(apply(true));
    KT_TRUE(apply(true));
    c.order.generation = 0;
    KT_FALSE(apply(true)); /* generation 1 again */
    KT_EQ(v.document->order.generation, 2);
    c.order.generation = 1;
    KT_FALSE(apply(true)); /* the same again */
    c.order.term = 2;
    c.order.generation = 0;
    KT_TRUE(apply(true)); /* a newer term counts anew */
    KT_EQ(v.document->order.term, 2);
    done();
}

static void a_new_uid_replaces_and_a_copy_without_one_does_not(void)
{
    setup();
    c.order.generation = 40;
    apply(true);
    snprintf(c.order.uid, sizeof(c.order.uid), "uid-2");
    c.order.generation = 0;
    KT_TRUE(apply(true));
    KT_STR(v.document->order.uid, "uid-2");
    c.order.uid[0] = '\0';
    c.order.generation = 90;
    KT_FALSE(apply(false));
    KT_STR(v.document->order.uid, "uid-2");
    done();
}

/* design.md, 4: confirmed = repeated by a heartbeat answer, or a fresh read. */
static void a_copy_is_confirmed_by_an_answer_of_its_order(void)
{
    setup();
    struct kp_order answer = {.uid = "uid-1", .term = 1, .generation = 2};
    c.order.uid[0] = '\0'; /* a mount does not know it */
    KT_TRUE(apply(false));
    KT_FALSE(kl_view_confirmed(&v));
    KT_FALSE(kl_view_answer(&v, &answer)); /* another generation */
    KT_FALSE(kl_view_confirmed(&v));
    answer.generation = 1;
    KT_TRUE(kl_view_answer(&v, &answer));
    KT_TRUE(kl_view_confirmed(&v));
    KT_STR(v.merged->order.uid, "uid-1");
    KT_FALSE(kl_view_answer(&v, &answer)); /* said once */
    done();
}

static void a_fresh_read_confirms_the_copy_it_equals(void)
{
    setup();
    apply(false);
    KT_FALSE(kl_view_confirmed(&v));
    c.order.generation = 0;
    KT_TRUE(apply(true));
    KT_TRUE(kl_view_confirmed(&v));
    done();
}

static void a_pushed_row_stands_until_a_document_is_surely_newer(void)
{
    setup();
    apply(true);
    struct kp_row dead = c.rows[1];
    dead.health = KP_DEAD;
    dead.condemned = true;
    KT_TRUE(push(&dead, -1));
    KT_FALSE(push(&dead, -1)); /* no news */
    KT_EQ(ki_row(v.merged, 1)->health, KP_DEAD);
    KT_EQ(ki_row(v.document, 1)->health, KP_ALIVE);
    KT_TRUE(v.merged->shards[0] == v.document->shards[0]);
    apply(true); /* may have been written before the row changed */
    KT_EQ(ki_row(v.merged, 1)->health, KP_DEAD);
    apply(true); /* this one was not */
    KT_EQ(ki_row(v.merged, 1)->health, KP_ALIVE);
    KT_TRUE(v.merged->rows == v.document->rows);
    done();
}

static void a_document_that_agrees_ends_a_push(void)
{
    setup();
    apply(true);
    struct kp_row dead = c.rows[1];
    dead.health = KP_DEAD;
    push(&dead, -1);
    c.rows[1].health = KP_DEAD;
    apply(true);
    KT_EQ(v.n_pushed, 0);
    KT_EQ(ki_row(v.merged, 1)->health, KP_DEAD);
    done();
}

static void brokers_come_and_go_by_push(void)
{
    setup();
    apply(true);
    struct kp_row fourth = {.id = 3, .health = KP_ALIVE, .incarnation = clf_uuid(7)};
    KT_TRUE(push(&fourth, -1));
    KT_EQ(v.merged->n_rows, 4);
    KT_EQ(ki_row(v.merged, 3)->health, KP_ALIVE);
    KT_TRUE(push(NULL, 0));
    KT_TRUE(ki_row(v.merged, 0) == NULL);
    KT_EQ(v.merged->n_rows, 3);
    for (int32_t i = 1; i < v.merged->n_rows; i++) {
        KT_TRUE(v.merged->rows[i - 1].id < v.merged->rows[i].id);
    }
    KT_FALSE(push(NULL, 0)); /* gone already */
    done();
}

/* What an operator of the document's uid says of topic 0's partition 1. */
static bool push_lead(int32_t broker, int32_t epoch)
{
    Kaas__Heartbeat__StatusAnswer a = KAAS__HEARTBEAT__STATUS_ANSWER__INIT;
    struct kp_lead lead = {{c.topics[0].id, 1}, broker, clf_uuid((uint8_t)(100 + broker)), epoch};
    Kaas__Heartbeat__Lead *l = hb_lead_new(&arena, &lead);
    a.leads = &l;
    a.n_leads = 1;
    return kl_view_leads(&v, &a, &c.order);
}

static struct kp_lead leader(void)
{
    return ki_leader(v.merged, ki_topic_by_id(v.merged, &c.topics[0].id), 1);
}

static void led(int32_t broker, int32_t epoch)
{
    c.topics[0].parts[1].led = broker;
    c.topics[0].parts[1].led_incarnation = clf_uuid((uint8_t)(100 + broker));
    c.topics[0].parts[1].led_epoch = epoch;
}

/* ADR 19: the higher epoch is the newer word, wherever it comes from. */
static void a_pushed_leader_stands_until_the_document_is_as_new(void)
{
    setup();
    clf_topic(&c, "t", 3);
    led(0, 4);
    apply(true);
    KT_EQ(leader().broker, 0);
    KT_FALSE(push_lead(2, 4)); /* as old as the document */
    KT_TRUE(push_lead(2, 5));
    struct kp_lead now = leader();
    KT_EQ(now.broker, 2);
    KT_EQ(now.epoch, 5);
    KT_TRUE(kc_uuid_eq(&now.incarnation, &c.rows[2].incarnation));
    KT_TRUE(v.merged->shards[0] == v.document->shards[0]);
    KT_FALSE(push_lead(2, 5)); /* said twice */
    KT_FALSE(push_lead(1, 4));
    apply(true); /* a document that was written before it */
    KT_EQ(leader().broker, 2);
    KT_TRUE(push_lead(1, 6));
    KT_EQ(leader().broker, 1);
    KT_EQ(v.n_leads, 1);
    led(1, 6);
    apply(true);
    KT_EQ(v.n_leads, 0);
    KT_EQ(leader().broker, 1);
    KT_TRUE(v.merged->rows == v.document->rows);
    /* Sealed since, under the same epoch: the document's word counts. */
    KT_TRUE(push_lead(0, 7));
    led(0, 7);
    c.topics[0].parts[1].led = KP_NO_BROKER;
    apply(true);
    KT_EQ(leader().broker, KP_NO_BROKER);
    done();
}

static void leaders_of_another_image_are_not_taken(void)
{
    setup();
    clf_topic(&c, "t", 3);
    led(0, 4);
    KT_FALSE(push_lead(2, 5)); /* no document yet */
    apply(true);
    struct kp_order own = c.order;
    snprintf(c.order.uid, sizeof(c.order.uid), "uid-2");
    KT_FALSE(push_lead(2, 5));
    c.order = own;
    KT_TRUE(push_lead(2, 5));
    snprintf(c.order.uid, sizeof(c.order.uid), "uid-2");
    led(1, 3);
    apply(true);
    KT_EQ(leader().broker, 1);
    done();
}

/* Rows and leaders are laid over a document side by side. */
static void rows_and_leaders_are_pushed_side_by_side(void)
{
    setup();
    clf_topic(&c, "t", 3);
    led(0, 4);
    apply(true);
    struct kp_row dead = c.rows[0];
    dead.health = KP_DEAD;
    KT_TRUE(push(&dead, -1));
    KT_TRUE(push_lead(2, 5));
    KT_EQ(ki_row(v.merged, 0)->health, KP_DEAD);
    KT_EQ(leader().broker, 2);
    done();
}

/* More leaders than there is room for wait for the document; those taken stay in order. */
static void a_flood_of_leaders_is_bounded(void)
{
    setup();
    for (int32_t i = 0; i < CLF_TOPICS_MAX; i++) {
        char name[16];
        snprintf(name, sizeof(name), "t%d", i);
        clf_topic(&c, name, CLF_PARTS_MAX);
    }
    apply(true);
    Kaas__Heartbeat__StatusAnswer a = KAAS__HEARTBEAT__STATUS_ANSWER__INIT;
    enum { N = CLF_TOPICS_MAX * CLF_PARTS_MAX };
    static Kaas__Heartbeat__Lead *list[N];
    for (int32_t i = 0; i < N; i++) {
        int32_t at = (i * 37 + 11) % N; /* in no order */
        struct kp_lead l = {
            {c.topics[at % CLF_TOPICS_MAX].id, at / CLF_TOPICS_MAX}, 1, clf_uuid(101), 9};
        list[i] = hb_lead_new(&arena, &l);
    }
    a.leads = list;
    a.n_leads = N;
    KT_TRUE(kl_view_leads(&v, &a, &c.order));
    KT_EQ(v.n_leads, N);
    for (int32_t i = 1; i < v.n_leads; i++) {
        KT_TRUE(ki_pid_cmp(&v.leads[i - 1].p, &v.leads[i].p) < 0);
    }
    v.n_leads = KL_LEADS_MAX; /* as if it were full */
    struct kp_lead last = {{clf_uuid(1), 0}, 1, clf_uuid(101), 9};
    list[0] = hb_lead_new(&arena, &last);
    a.n_leads = 1;
    KT_FALSE(kl_view_leads(&v, &a, &c.order));
    KT_EQ(v.n_leads, KL_LEADS_MAX);
    v.n_leads = N;
    done();
}

static void an_older_term_is_recognised(void)
{
    setup();
    struct kp_order answer = {.uid = "uid-1", .term = 5, .generation = 1};
    KT_TRUE(kl_view_current_term(&v, 5));
    kl_view_answer(&v, &answer);
    KT_FALSE(kl_view_current_term(&v, 4));
    KT_TRUE(kl_view_current_term(&v, 5));
    KT_TRUE(kl_view_current_term(&v, 6));
    done();
}

/* R38: a broker that was away has a document of then, and hears at once that it is alive again. */
static void a_document_of_the_time_away_is_not_caught_up(void)
{
    setup();
    KT_FALSE(kl_view_caught_up(&v));
    KT_TRUE(apply(true));
    kl_view_begin(&v);
    KT_FALSE(kl_view_caught_up(&v)); /* nobody has said what is published */
    struct kp_order published = c.order;
    KT_FALSE(kl_view_answer(&v, &(struct kp_order){.term = 1}));
    published.generation += 2;
    KT_FALSE(kl_view_answer(&v, &published));
    KT_FALSE(kl_view_caught_up(&v));
    KT_TRUE(apply(true));
    KT_FALSE(kl_view_caught_up(&v));
    KT_TRUE(apply(true));
    KT_TRUE(kl_view_caught_up(&v));
    published.generation += 5; /* what is published from then on need not be awaited */
    kl_view_answer(&v, &published);
    KT_TRUE(kl_view_caught_up(&v));
    kl_view_begin(&v);
    KT_TRUE(kl_view_answer(&v, &c.order)); /* nothing was missed: known with the answer */
    KT_TRUE(kl_view_caught_up(&v));
    snprintf(published.uid, sizeof(published.uid), "another");
    kl_view_answer(&v, &published);
    KT_FALSE(kl_view_caught_up(&v)); /* the image was made anew */
    c.order = published;
    KT_TRUE(apply(true));
    KT_TRUE(kl_view_caught_up(&v));
    done();
}

KT_MAIN("kl_view", KT(documents_never_go_back_in_order),
        KT(a_new_uid_replaces_and_a_copy_without_one_does_not),
        KT(a_copy_is_confirmed_by_an_answer_of_its_order),
        KT(a_fresh_read_confirms_the_copy_it_equals),
        KT(a_pushed_row_stands_until_a_document_is_surely_newer),
        KT(a_document_that_agrees_ends_a_push), KT(brokers_come_and_go_by_push),
        KT(a_pushed_leader_stands_until_the_document_is_as_new),
        KT(leaders_of_another_image_are_not_taken), KT(rows_and_leaders_are_pushed_side_by_side),
        KT(a_flood_of_leaders_is_bounded), KT(an_older_term_is_recognised),
        KT(a_document_of_the_time_away_is_not_caught_up))
