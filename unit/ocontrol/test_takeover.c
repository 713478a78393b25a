#include "kt.h"
#include "rig.h"

#include <semaphore.h>
#include <time.h>

#include "base/kc_clock.h"

/* Two operators, a store that fails, documents that other hands touch (design.md, 3 and 4). */
static struct rig a, b;
static struct peer p;

static bool is_no_leader(struct rig *r, void *arg)
{
    (void)arg;
    return !r->leader;
}

static bool has_rows(struct rig *r, void *arg)
{
    return r->view && r->view->n_rows == *(int *)arg;
}

static bool is_closed(struct peer *q, void *arg)
{
    (void)arg;
    return q->closed;
}

static bool is_passive(struct peer *q, void *arg)
{
    (void)arg;
    return !q->active;
}

/* An operator that decides for n brokers, one of which has dialled. */
static void begin_deciding(int32_t n)
{
    rig_begin(&a, n);
    peer_init(&p, 0);
    peer_begin(&p, &a);
}

static bool dial_until_active(struct rig *r)
{
    for (int i = 0; i < 1000; i++) { /* refused while it takes over: brokers dial again */
        if (peer_dial(&p, r, "secret") && p.active) {
            peer_status(&p);
            return peer_await(&p, peer_is_active, NULL);
        }
        struct timespec t = {.tv_nsec = 10000000};
        nanosleep(&t, NULL);
    }
    return false;
}

static int32_t create(const char *name)
{
    struct peer_wanted w;
    Kaas__Heartbeat__AdminRequest r = peer_create_topic(name, 2);
    w.sequence = peer_admin(&p, &r, 0);
    KT_TRUE(peer_await(&p, peer_has_result, &w));
    return p.results[w.index].error;
}

static void *text(const char *s)
{
    return (void *)(uintptr_t)s;
}

static void a_standby_accepts_streams_and_names_the_active_one(void)
{
    begin_deciding(1);
    rig_start_second(&b, &a);
    rig_cluster(&b, 1);
    struct peer q;
    peer_init(&q, 0);
    q.incarnation = p.incarnation;
    bool known = false;
    for (int i = 0; i < 500 && !known; i++) { /* it has read the Lease by then */
        KT_TRUE(peer_dial(&q, &b, "secret"));
        known = strcmp(q.active_host, "10.0.0.1:7070") == 0;
    }
    KT_TRUE(known);
    KT_FALSE(q.active);
    peer_status(&q);
    Kaas__Heartbeat__AdminRequest r = peer_create_topic("t", 1);
    struct peer_wanted w;
    w.sequence = peer_admin(&q, &r, 0);
    KT_TRUE(peer_await(&q, peer_has_result, &w));
    KT_EQ(q.results[w.index].error, 7);
    peer_fini(&q);
    peer_fini(&p);
    rig_stop(&b);
    rig_stop(&a);
}

static void a_released_lease_hands_over_at_once_and_no_partition_moves(void)
{
    begin_deciding(1);
    KT_EQ(create("orders"), 0);
    rig_start_second(&b, &a);
    rig_cluster(&b, 1);
    struct peer q; /* the broker's stream to the standby */
    peer_init(&q, 0);
    q.incarnation = p.incarnation;
    KT_TRUE(peer_dial(&q, &b, "secret"));
    struct ki_image *before = rig_image(&a);
    rig_halt(&a); /* gives the Lease up */
    KT_TRUE(rig_await(&b, rig_is_leader, NULL));
    KT_TRUE(peer_await(&q, is_closed, NULL) || q.closed); /* to be dialled anew */
    peer_fini(&q);
    KT_TRUE(dial_until_active(&b));
    KT_EQ(create("after"), 0);
    struct ki_image *after = rig_image(&a);
    KT_TRUE(after->order.term > before->order.term);
    const struct ki_topic *x = ki_topic_by_name(before, KC_STR_LIT("orders")),
                          *y = ki_topic_by_name(after, KC_STR_LIT("orders"));
    KT_REQUIRE(x && y);
    KT_EQ(x->parts[0].assigned_generation, y->parts[0].assigned_generation);
    ki_image_unref(before);
    ki_image_unref(after);
    peer_fini(&p);
    rig_stop(&b);
    rig_stop(&a);
}

static void an_operator_that_cannot_renew_stops_leading_and_keeps_its_streams(void)
{
    begin_deciding(1);
    atomic_store(&a.cut, true);
    KT_TRUE(rig_await(&a, is_no_leader, NULL));
    KT_TRUE(peer_await(&p, is_passive, NULL));
    KT_FALSE(p.closed);
    atomic_store(&a.cut, false);
    KT_TRUE(rig_await(&a, rig_is_leader, NULL));
    KT_TRUE(dial_until_active(&a));
    KT_EQ(create("again"), 0);
    peer_fini(&p);
    rig_stop(&a);
}

/* Two are registered, one is wanted: the other is drained, and stays until its endpoint goes (R27). An
 * operator that starts in the middle hears of the KaasCluster before it hears of the slices. */
static void R4_R27_an_operator_that_starts_in_a_scale_down_waits_for_the_slices(void)
{
    int one = 1, two = 2;
    begin_deciding(2);
    KT_REQUIRE(rig_await(&a, has_rows, &two));
    rig_restart(&a);
    rig_spec(&a, 1);
    KT_TRUE(rig_await(&a, has_rows, &two)); /* held, from the image */
    rig_slice(&a, 2, true);
    rig_synced(&a);
    KT_TRUE(dial_until_active(&a));
    pthread_mutex_lock(&a.lock);
    KT_EQ(a.view->n_rows, 2);
    KT_EQ(a.events[KP_EV_DEREGISTERED], 0);
    pthread_mutex_unlock(&a.lock);
    rig_slice(&a, 1, true);
    KT_TRUE(rig_await(&a, has_rows, &one));
    peer_fini(&p);
    rig_stop(&a);
}

static void failed_and_unanswered_writes_are_retried_until_they_stand(void)
{
    begin_deciding(1);
    atomic_store(&a.flaky.refuse, 3);
    KT_EQ(create("one"), 0);
    KT_TRUE(rig_await_image(&a, rig_image_names, text("one")));
    for (int i = 1; i <= 3; i++) { /* of the shard, of the root, and then of both */
        char name[16];
        snprintf(name, sizeof(name), "lost-%d", i);
        atomic_store(&a.flaky.lose, i);
        KT_EQ(create(name), 0);
        KT_TRUE(rig_await_image(&a, rig_image_names, name));
    }
    peer_fini(&p);
    rig_stop(&a);
}

/* ---- the API loop, stuck ---- */

static struct {
    sem_t reached, pass;
} gate;

static void stand_still(void *arg)
{
    (void)arg;
    sem_post(&gate.reached);
    sem_wait(&gate.pass);
}

/* Ends early when it is no longer told that this operator decides. */
static bool is_over(struct peer *q, void *arg)
{
    return !q->active || kc_mono_ms() > *(int64_t *)arg;
}

/* Encoding, reconciling and calls of the API server all happen on the API loop. Here it does not turn
 * for longer than a Lease lasts without a renewal, with a publication and an admin change waiting. */
static void R63_a_stuck_api_loop_delays_neither_the_lease_nor_heartbeats(void)
{
    begin_deciding(1);
    sem_init(&gate.reached, 0, 0);
    sem_init(&gate.pass, 0, 0);
    rt_call(a.api, stand_still, NULL);
    sem_wait(&gate.reached);
    struct peer_wanted w;
    Kaas__Heartbeat__AdminRequest r = peer_create_topic("waits", 1);
    w.sequence = peer_admin(&p, &r, 0);
    p.answered = p.said = 0;
    p.serving = true; /* a row changes: something is to be published */
    peer_status(&p);
    int64_t until = kc_mono_ms() + RIG_RENEW_DEADLINE_MS + 1000;
    KT_TRUE(peer_await(&p, is_over, &until));
    KT_TRUE(p.active); /* the Lease was renewed */
    KT_TRUE(p.said > 3);
    KT_TRUE(peer_await(&p, peer_all_answered, NULL));
    KT_FALSE(peer_has_result(&p, &w));
    sem_post(&gate.pass);
    KT_TRUE(peer_await(&p, peer_has_result, &w));
    KT_TRUE(rig_await_image(&a, rig_image_names, text("waits")));
    peer_fini(&p);
    rig_stop(&a);
}

static void removed_documents_are_made_again(void)
{
    begin_deciding(1);
    KT_EQ(create("one"), 0);
    struct ki_image *before = rig_image(&a);
    struct kc_uuid id = ki_topic_by_name(before, KC_STR_LIT("one"))->id;
    char shard[32];
    snprintf(shard, sizeof(shard), "demo-image-%d", (int)kp_shard_of(&id));
    rig_remove_configmap(&a, "demo-image");
    KT_EQ(create("two"), 0); /* the next publication makes the root again, with another uid */
    KT_TRUE(rig_await_image(&a, rig_image_names, text("two")));
    KT_TRUE(rig_await_image(&a, rig_image_names, text("one")));
    rig_remove_configmap(&a, shard);
    rig_restart(&a);
    KT_TRUE(rig_await(&a, rig_is_leader, NULL));
    rig_cluster(&a, 1);
    KT_TRUE(rig_await(&a, rig_is_held, NULL));
    KT_TRUE(peer_dial(&p, &a, "secret"));
    KT_TRUE(p.want_inventory); /* the volume says what the lost shard said */
    Kaas__Heartbeat__Inventory inv = KAAS__HEARTBEAT__INVENTORY__INIT;
    Kaas__Heartbeat__InventoryTopic t = KAAS__HEARTBEAT__INVENTORY_TOPIC__INIT, *list[1] = {&t};
    t.topic_id = hb_uuid_data(&id);
    t.name = (char *)(uintptr_t) "one";
    t.partitions = 2;
    inv.topics = list;
    inv.n_topics = 1;
    peer_inventory(&p, &inv);
    peer_status(&p);
    KT_TRUE(peer_await(&p, peer_is_active, NULL));
    KT_TRUE(rig_await_image(&a, rig_image_names, text("one")));
    struct ki_image *after = rig_image(&a);
    KT_TRUE(kc_uuid_eq(&ki_topic_by_name(after, KC_STR_LIT("one"))->id, &id));
    ki_image_unref(after);
    ki_image_unref(before);
    peer_fini(&p);
    rig_stop(&a);
}

static void a_document_touched_by_another_hand_is_written_over(void)
{
    begin_deciding(1);
    KT_EQ(create("one"), 0);
    json_t *junk = json_pack("{s:s}", "image.json", "not json");
    for (int i = 0; i < KP_SHARDS; i++) {
        char name[32];
        snprintf(name, sizeof(name), "demo-image-%d", i);
        rig_set_configmap(&a, name, junk);
    }
    rig_set_configmap(&a, "demo-image", junk);
    json_decref(junk);
    for (int i = 0; i < 18; i++) { /* enough to reach most shards */
        char name[16];
        snprintf(name, sizeof(name), "t%d", i);
        KT_EQ(create(name), 0);
    }
    json_t *doc = rig_configmap(&a, "demo-image"), *payload = NULL;
    struct ki_image *root = NULL;
    KT_EQ(ki_configmap_parse(doc, &payload, NULL), 0);
    KT_EQ(ki_root_decode(payload, &root, NULL), 0);
    ki_image_unref(root);
    json_decref(payload);
    json_decref(doc);
    peer_fini(&p);
    rig_stop(&a);
}

static void idle_documents_are_looked_after(void)
{
    begin_deciding(1);
    KT_EQ(create("one"), 0);
    a.check_ms = 20;
    rig_restart(&a);
    rig_cluster(&a, 1);
    KT_TRUE(rig_await(&a, rig_is_held, NULL));
    KT_TRUE(dial_until_active(&a));
    for (int i = -1; i < KP_SHARDS; i++) { /* nothing changes, yet each comes back */
        char name[32];
        snprintf(name, sizeof(name), i < 0 ? "demo-image" : "demo-image-%d", i);
        rig_remove_configmap(&a, name);
    }
    KT_TRUE(rig_await_image(&a, rig_image_names, text("one")));
    KT_TRUE(rig_await_image(&a, rig_image_names, text("__consumer_offsets")));
    peer_fini(&p);
    rig_stop(&a);
}

/* A predecessor wrote a shard and died before the root: whole and newer, it is adopted. */
static void a_newer_whole_shard_is_adopted(void)
{
    begin_deciding(1);
    KT_EQ(create("one"), 0);
    struct ki_image *im = rig_image(&a);
    const struct ki_topic *one = ki_topic_by_name(im, KC_STR_LIT("one"));
    int32_t s = kp_shard_of(&one->id);
    struct kp_part part = {.home = 0, .assigned = 0, .led = -1, .led_epoch = -1};
    struct ki_topic topics[64], extra = {.name = "unpublished", .n_parts = 1, .parts = &part};
    int32_t n = im->shards[s]->n_topics;
    memcpy(topics, im->shards[s]->topics, (size_t)n * sizeof(topics[0]));
    do {
        extra.id = kc_uuid_random();
    } while (kp_shard_of(&extra.id) != s);
    extra.replication_factor = 1;
    topics[n] = extra;
    struct ki_shard *newer =
        ki_shard_build(s, im->order.term, im->order.generation + 1, topics, n + 1);
    json_t *payload = ki_shard_encode(newer, im->shards[s]);
    json_t *data = ki_configmap_data(payload);
    char name[32];
    snprintf(name, sizeof(name), "demo-image-%d", (int)s);
    rig_set_configmap(&a, name, data);
    struct ki_image *still = rig_image(&a);
    KT_TRUE(still &&
            !rig_image_names(still, text("unpublished"))); /* the root decides for brokers */
    ki_image_unref(still);
    rig_restart(&a);
    rig_cluster(&a, 1);
    KT_TRUE(rig_await(&a, rig_is_held, NULL));
    KT_TRUE(dial_until_active(&a));
    KT_TRUE(rig_await_image(&a, rig_image_names, text("unpublished")));
    json_decref(data);
    json_decref(payload);
    ki_shard_unref(newer);
    ki_image_unref(im);
    peer_fini(&p);
    rig_stop(&a);
}

static bool dial_until_asked(struct rig *r)
{
    for (int i = 0; i < 1000; i++) {
        if (peer_dial(&p, r, "secret") && p.want_inventory) {
            return true;
        }
        struct timespec t = {.tv_nsec = 10000000};
        nanosleep(&t, NULL);
    }
    return false;
}

static bool was_told_gone(struct rig *r, void *arg)
{
    return kc_uuid_eq(&r->gone_id, arg);
}

/* Its KaasTopic went, and so did the topic, but this operator has not heard of either yet. */
static void a_topic_deleted_under_another_leader_does_not_come_back(void)
{
    begin_deciding(1);
    KT_EQ(create("kept"), 0);
    rig_start_second(&b, &a);
    struct ki_topic dead = {
        .id = kc_uuid_random(), .name = "dead", .n_parts = 1, .replication_factor = 1};
    ko_control_topic(b.c, RIG_CLUSTER, &dead);
    rig_cluster(&b, 1);
    rig_halt(&a);
    KT_TRUE(rig_await(&b, rig_is_leader, NULL));
    KT_REQUIRE(dial_until_asked(&b));
    Kaas__Heartbeat__Inventory inv = KAAS__HEARTBEAT__INVENTORY__INIT;
    ProtobufCBinaryData id = {sizeof(dead.id.b), dead.id.b};
    inv.deleted = &id;
    inv.n_deleted = 1;
    peer_inventory(&p, &inv);
    peer_status(&p);
    KT_TRUE(peer_await(&p, peer_is_active, NULL));
    KT_TRUE(rig_await(&b, was_told_gone, &dead.id));
    struct ki_image *im = rig_image(&a);
    KT_TRUE(im && rig_image_names(im, text("kept")) && !rig_image_names(im, text("dead")));
    ki_image_unref(im);
    peer_fini(&p);
    rig_stop(&b);
    rig_stop(&a);
}

static void a_burst_of_topics_becomes_few_publications(void)
{
    begin_deciding(1);
    struct ki_image *im = rig_image(&a);
    uint64_t before = im->order.generation;
    ki_image_unref(im);
    char names[15][16];
    struct peer_wanted w[15];
    for (int i = 0; i < 15; i++) {
        snprintf(names[i], sizeof(names[i]), "burst-%d", i);
        Kaas__Heartbeat__AdminRequest r = peer_create_topic(names[i], 1);
        w[i].sequence = peer_admin(&p, &r, 0);
    }
    for (int i = 0; i < 15; i++) {
        KT_TRUE(peer_await(&p, peer_has_result, &w[i]));
        KT_EQ(p.results[w[i].index].error, 0);
    }
    im = rig_image(&a);
    KT_TRUE(im->order.generation - before <= 8);
    ki_image_unref(im);
    peer_fini(&p);
    rig_stop(&a);
}

KT_MAIN("takeover", KT(a_standby_accepts_streams_and_names_the_active_one),
        KT(a_released_lease_hands_over_at_once_and_no_partition_moves),
        KT(an_operator_that_cannot_renew_stops_leading_and_keeps_its_streams),
        KT(R4_R27_an_operator_that_starts_in_a_scale_down_waits_for_the_slices),
        KT(failed_and_unanswered_writes_are_retried_until_they_stand),
        KT(R63_a_stuck_api_loop_delays_neither_the_lease_nor_heartbeats),
        KT(removed_documents_are_made_again),
        KT(a_document_touched_by_another_hand_is_written_over), KT(a_newer_whole_shard_is_adopted),
        KT(idle_documents_are_looked_after),
        KT(a_topic_deleted_under_another_leader_does_not_come_back),
        KT(a_burst_of_topics_becomes_few_publications))
