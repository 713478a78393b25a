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

KT_MAIN("kl_view", KT(documents_never_go_back_in_order),
        KT(a_new_uid_replaces_and_a_copy_without_one_does_not),
        KT(a_copy_is_confirmed_by_an_answer_of_its_order),
        KT(a_fresh_read_confirms_the_copy_it_equals),
        KT(a_pushed_row_stands_until_a_document_is_surely_newer),
        KT(a_document_that_agrees_ends_a_push), KT(brokers_come_and_go_by_push),
        KT(an_older_term_is_recognised))
