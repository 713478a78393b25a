#include "kt.h"
#include "rig.h"

#include "base/kc_json.h"

/* The control thread as brokers and the API loop see it. */
static struct rig rig;
static struct peer peers[3];

static bool was_answered(struct peer *p, void *arg)
{
    return p->answered >= *(int *)arg;
}

static bool never(struct peer *p, void *arg)
{
    (void)p;
    (void)arg;
    return false;
}

static void begin(int32_t n)
{
    rig_begin(&rig, n);
    for (int32_t i = 0; i < n; i++) {
        peer_init(&peers[i], i);
    }
}

static void end(int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        peer_fini(&peers[i]);
    }
    rig_stop(&rig);
}

/* One broker, an empty volume, deciding. */
static void begin_deciding(void)
{
    begin(1);
    peer_begin(&peers[0], &rig);
}

static bool has_internal(const struct ki_image *im, void *arg)
{
    (void)arg;
    const struct ki_topic *t = ki_topic_by_name(im, KC_STR_LIT("__consumer_offsets"));
    return t && t->n_parts == KP_SLOTS && t->internal && t->parts[0].assigned == 0 &&
           ki_topic_by_name(im, KC_STR_LIT("__transaction_state")) && im->n_rows == 1;
}

static void first_activation_makes_the_documents_and_the_internal_topics(void)
{
    begin(1);
    json_t *root = rig_configmap(&rig, "demo-image"), *last = rig_configmap(&rig, "demo-image-15");
    KT_TRUE(root && last); /* before any broker has spoken */
    json_decref(root);
    json_decref(last);
    struct ki_image *im = rig_image(&rig);
    KT_TRUE(im && im->n_topics == 0 && im->order.term == 1);
    ki_image_unref(im);
    end(1);
    begin_deciding();
    KT_TRUE(rig_await_image(&rig, has_internal, NULL));
    im = rig_image(&rig);
    KT_STR(
        ki_topic_config(ki_topic_by_name(im, KC_STR_LIT("__consumer_offsets")), "cleanup.policy"),
        "compact");
    KT_STR(im->cluster_id, peers[0].volume);
    ki_image_unref(im);
    end(1);
}

static void a_wrong_token_is_refused_with_the_reason(void)
{
    begin(1);
    KT_FALSE(peer_dial(&peers[0], &rig, "guess"));
    KT_STR(peers[0].reason, "wrong token");
    end(1);
}

static void garbage_costs_only_its_stream(void)
{
    begin_deciding();
    struct peer bad;
    peer_init(&bad, 0);
    KT_TRUE(peer_dial(&bad, &rig, "secret")); /* replaces the stream; then misbehaves */
    Kaas__Heartbeat__BrokerMessage m = KAAS__HEARTBEAT__BROKER_MESSAGE__INIT;
    Kaas__Heartbeat__Hello h = KAAS__HEARTBEAT__HELLO__INIT;
    h.cluster = (char *)(uintptr_t) "x";
    m.kind_case = KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_HELLO;
    m.hello = &h;
    peer_send(&bad, &m);
    KT_FALSE(peer_await(&bad, never, NULL));
    KT_TRUE(bad.closed);
    peer_fini(&bad);
    peers[0].incarnation = kc_uuid_random();
    KT_TRUE(peer_dial(&peers[0], &rig, "secret"));
    end(1);
}

static void another_volume_is_refused(void)
{
    begin(2);
    KT_TRUE(peer_dial(&peers[0], &rig, "secret"));
    snprintf(peers[1].volume, sizeof(peers[1].volume), "BBBBBBBBBBBBBBBBBBBBBB");
    KT_FALSE(peer_dial(&peers[1], &rig, "secret"));
    KT_STR(peers[1].reason, "the volume belongs to another cluster");
    end(2);
}

static void an_unregistered_ordinal_is_refused(void)
{
    begin(1);
    peer_init(&peers[1], 7);
    KT_FALSE(peer_dial(&peers[1], &rig, "secret"));
    KT_TRUE(strstr(peers[1].reason, "not registered") != NULL);
    KT_FALSE(peers[1].condemned);
    peer_fini(&peers[1]);
    end(1);
}

static void nothing_is_published_before_the_inventory_and_it_is_adopted_with_its_ids(void)
{
    begin(1);
    KT_TRUE(peer_dial(&peers[0], &rig, "secret"));
    peer_status(&peers[0]);
    struct kc_uuid old = kc_uuid_random(), offsets = kc_uuid_random(), dead = kc_uuid_random();
    Kaas__Heartbeat__Inventory inv = KAAS__HEARTBEAT__INVENTORY__INIT;
    Kaas__Heartbeat__InventoryTopic t[3], *list[3];
    const char *names[] = {"orders", "__consumer_offsets", "buried"};
    struct kc_uuid *ids[] = {&old, &offsets, &dead};
    for (int i = 0; i < 3; i++) {
        kaas__heartbeat__inventory_topic__init(&t[i]);
        t[i].topic_id = hb_uuid_data(ids[i]);
        t[i].name = (char *)(uintptr_t)names[i];
        t[i].partitions = i == 1 ? KP_SLOTS : 3;
        t[i].internal = i == 1;
        list[i] = &t[i];
    }
    ProtobufCBinaryData graves[1] = {hb_uuid_data(&dead)};
    inv.topics = list;
    inv.n_topics = 3;
    inv.deleted = graves;
    inv.n_deleted = 1;
    struct ki_image *im = rig_image(&rig);
    KT_EQ(im->n_topics, 0);
    ki_image_unref(im);
    peer_inventory(&peers[0], &inv);
    KT_TRUE(peer_await(&peers[0], peer_is_active, NULL));
    KT_TRUE(rig_await_image(&rig, rig_image_names, (void *)(uintptr_t) "orders"));
    im = rig_image(&rig);
    const struct ki_topic *o = ki_topic_by_name(im, KC_STR_LIT("orders"));
    KT_TRUE(kc_uuid_eq(&o->id, &old));
    KT_FALSE(o->fresh); /* its directories exist */
    KT_TRUE(kc_uuid_eq(&ki_topic_by_name(im, KC_STR_LIT("__consumer_offsets"))->id, &offsets));
    KT_TRUE(ki_topic_by_name(im, KC_STR_LIT("__transaction_state"))->fresh);
    KT_TRUE(ki_topic_by_name(im, KC_STR_LIT("buried")) == NULL);
    ki_image_unref(im);
    KT_EQ(rig.adopted, 1);
    KT_STR(rig.adopted_name, "orders");
    end(1);
}

static int32_t ask(Kaas__Heartbeat__AdminRequest a, struct peer_wanted *w)
{
    w->sequence = peer_admin(&peers[0], &a, 0);
    KT_TRUE(peer_await(&peers[0], peer_has_result, w));
    return peers[0].results[w->index].error;
}

static void a_created_topic_is_in_the_image_when_the_answer_comes(void)
{
    begin_deciding();
    struct peer_wanted w;
    KT_EQ(ask(peer_create_topic("orders", 3), &w), 0);
    struct ki_image *im = rig_image(&rig);
    KT_TRUE(im->order.generation >= peers[0].results[w.index].generation);
    const struct ki_topic *t = ki_topic_by_name(im, KC_STR_LIT("orders"));
    KT_REQUIRE(t != NULL);
    KT_TRUE(kc_uuid_eq(&t->id, &peers[0].results[w.index].topic_id));
    KT_TRUE(t->fresh && t->n_parts == 3 && t->parts[0].assigned == 0);
    ki_image_unref(im);
    KT_EQ(rig.n_admins, 1);
    KT_STR(rig.admins[0].topic, "orders");
    end(1);
}

static void a_retry_returns_the_stored_result_and_applies_nothing_twice(void)
{
    begin_deciding();
    struct peer_wanted w;
    KT_EQ(ask(peer_create_topic("orders", 1), &w), 0);
    peers[0].n_results = 0;
    Kaas__Heartbeat__AdminRequest again = peer_create_topic("orders", 1);
    KT_TRUE(peer_dial(&peers[0], &rig, "secret")); /* on another stream, too */
    peer_status(&peers[0]);
    peer_admin(&peers[0], &again, w.sequence);
    KT_TRUE(peer_await(&peers[0], peer_has_result, &w));
    KT_EQ(peers[0].results[w.index].error, 0);
    KT_EQ(rig.n_admins, 1);
    end(1);
}

static void admin_requests_are_checked_with_kafkas_codes(void)
{
    begin_deciding();
    struct peer_wanted w;
    KT_EQ(ask(peer_create_topic("a.b", 1), &w), 0);
    KT_EQ(ask(peer_create_topic("a.b", 1), &w), 36);
    KT_EQ(ask(peer_create_topic("a_b", 1), &w), 17);
    KT_EQ(ask(peer_create_topic("", 1), &w), 17);
    KT_EQ(ask(peer_create_topic("..", 1), &w), 17);
    KT_EQ(ask(peer_create_topic("with space", 1), &w), 17);
    KT_EQ(ask(peer_create_topic("none", 0), &w), 37);
    KT_EQ(ask(peer_create_topic("many", 1000), &w), 44);
    Kaas__Heartbeat__AdminRequest a = peer_create_topic("rf", 1);
    a.replication_factor = 3;
    KT_EQ(ask(a, &w), 38);
    a = peer_create_topic("dry", 2);
    a.validate_only = true;
    KT_EQ(ask(a, &w), 0);
    a = peer_create_topic("missing", 1);
    a.kind = KAAS__HEARTBEAT__ADMIN_KIND__DELETE_TOPIC;
    KT_EQ(ask(a, &w), 3);
    a = peer_create_topic("__consumer_offsets", 1);
    a.kind = KAAS__HEARTBEAT__ADMIN_KIND__DELETE_TOPIC;
    KT_EQ(ask(a, &w), 73);
    a = peer_create_topic("a.b", 1);
    a.kind = KAAS__HEARTBEAT__ADMIN_KIND__CREATE_PARTITIONS;
    KT_EQ(ask(a, &w), 37);
    a.partitions = 4;
    KT_EQ(ask(a, &w), 0);
    struct ki_image *im = rig_image(&rig);
    KT_EQ(ki_topic_by_name(im, KC_STR_LIT("a.b"))->n_parts, 4);
    KT_TRUE(ki_topic_by_name(im, KC_STR_LIT("dry")) == NULL);
    ki_image_unref(im);
    end(1);
}

static void config_changes_are_laid_over_what_is_set(void)
{
    begin_deciding();
    struct peer_wanted w;
    Kaas__Heartbeat__ConfigEntry e[2], *list[2] = {&e[0], &e[1]};
    kaas__heartbeat__config_entry__init(&e[0]);
    kaas__heartbeat__config_entry__init(&e[1]);
    e[0].name = (char *)(uintptr_t) "retention.ms";
    e[0].value = (char *)(uintptr_t) "1000";
    e[1].name = (char *)(uintptr_t) "cleanup.policy";
    e[1].value = (char *)(uintptr_t) "compact";
    Kaas__Heartbeat__AdminRequest a = peer_create_topic("t", 1);
    a.configs = list;
    a.n_configs = 2;
    KT_EQ(ask(a, &w), 0);
    a.kind = KAAS__HEARTBEAT__ADMIN_KIND__ALTER_TOPIC_CONFIG;
    a.n_configs = 2;
    e[0].remove = true;
    e[1].value = (char *)(uintptr_t) "delete";
    KT_EQ(ask(a, &w), 0);
    struct ki_image *im = rig_image(&rig);
    const struct ki_topic *t = ki_topic_by_name(im, KC_STR_LIT("t"));
    KT_EQ(t->n_configs, 1);
    KT_STR(ki_topic_config(t, "cleanup.policy"), "delete");
    ki_image_unref(im);
    end(1);
}

static void an_object_that_cannot_be_written_fails_the_request_and_changes_nothing(void)
{
    begin_deciding();
    rig.admin_error = 44;
    struct peer_wanted w;
    KT_EQ(ask(peer_create_topic("orders", 1), &w), 44);
    KT_STR(peers[0].results[w.index].message, "said so");
    struct ki_image *im = rig_image(&rig);
    KT_TRUE(ki_topic_by_name(im, KC_STR_LIT("orders")) == NULL);
    ki_image_unref(im);
    end(1);
}

static bool is_gone(struct rig *r, void *arg)
{
    return r->gone > 0 && kc_uuid_eq(&r->gone_id, arg);
}

static bool tombstone(const struct ki_image *im, void *arg)
{
    const struct ki_topic *t = ki_topic_by_id(im, arg);
    return t && t->deleted;
}

static bool vanished(const struct ki_image *im, void *arg)
{
    return ki_topic_by_id(im, arg) == NULL;
}

static void a_deleted_topic_is_a_tombstone_until_its_directory_is_gone(void)
{
    begin_deciding();
    struct peer_wanted w;
    KT_EQ(ask(peer_create_topic("orders", 1), &w), 0);
    struct kc_uuid id = peers[0].results[w.index].topic_id;
    Kaas__Heartbeat__AdminRequest a = peer_create_topic("orders", 0);
    a.kind = KAAS__HEARTBEAT__ADMIN_KIND__DELETE_TOPIC;
    KT_EQ(ask(a, &w), 0);
    KT_TRUE(rig_await_image(&rig, tombstone, &id));
    KT_EQ(ask(peer_create_topic("orders", 1), &w), 0); /* the name is free at once */
    Kaas__Heartbeat__BrokerMessage m = KAAS__HEARTBEAT__BROKER_MESSAGE__INIT;
    Kaas__Heartbeat__BrokerStatus s = KAAS__HEARTBEAT__BROKER_STATUS__INIT;
    Kaas__Heartbeat__PartitionId p = KAAS__HEARTBEAT__PARTITION_ID__INIT, *list[1] = {&p};
    p.topic_id = hb_uuid_data(&id);
    p.partition = -1;
    s.broker_id = 0;
    s.incarnation = hb_uuid_data(&peers[0].incarnation);
    s.healthy = true;
    s.protocol_version = 1;
    s.deleted = list;
    s.n_deleted = 1;
    m.kind_case = KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_STATUS;
    m.status = &s;
    peer_send(&peers[0], &m);
    KT_TRUE(rig_await_image(&rig, vanished, &id));
    KT_TRUE(rig_await(&rig, is_gone, &id));
    end(1);
}

static bool sees_serving(struct peer *p, void *arg)
{
    int32_t id = *(int32_t *)arg;
    return p->row_there[id] && p->rows[id].state == KP_SERVING;
}

static bool sees_dead(struct peer *p, void *arg)
{
    int32_t id = *(int32_t *)arg;
    return p->row_there[id] && p->rows[id].health == KP_DEAD && p->rows[id].condemned;
}

static void brokers_are_told_of_each_others_transitions(void)
{
    begin(2);
    Kaas__Heartbeat__Inventory none = KAAS__HEARTBEAT__INVENTORY__INIT;
    int32_t one = 1;
    for (int i = 0; i < 2; i++) {
        KT_TRUE(peer_dial(&peers[i], &rig, "secret"));
        if (i == 0) {
            peer_inventory(&peers[0], &none);
        }
        peer_status(&peers[i]);
    }
    KT_TRUE(peer_await(&peers[0], peer_is_active, NULL));
    KT_FALSE(peers[0].row_there[1] && peers[0].rows[1].state == KP_SERVING);
    peers[1].serving = true;
    peer_status(&peers[1]);
    KT_TRUE(peer_await(&peers[0], sees_serving, &one));
    peer_hangup(&peers[1]);
    KT_TRUE(peer_await(&peers[0], sees_dead, &one));
    KT_FALSE(peer_dial(&peers[1], &rig, "secret")); /* condemned is final */
    KT_TRUE(peers[1].condemned);
    peers[1].incarnation = kc_uuid_random();
    KT_TRUE(peer_dial(&peers[1], &rig, "secret"));
    end(2);
}

static bool sees_alive_but_fenced(struct peer *p, void *arg)
{
    int32_t id = *(int32_t *)arg;
    return p->row_there[id] && p->rows[id].state == KP_FENCED && p->rows[id].health == KP_ALIVE;
}

/* An image that sends neither field 6 nor a protocol version: silence on its health is no bad news, and whether it
 * serves is what its slice says. One that does send field 6 is held to it once it has said true. */
static void R52_R36_a_status_without_field_6_keeps_an_old_image_in(void)
{
    begin(2);
    Kaas__Heartbeat__Inventory none = KAAS__HEARTBEAT__INVENTORY__INIT;
    int32_t one = 1;
    peers[1].protocol = 0;
    peers[1].healthy = false; /* proto3: false is not sent */
    for (int i = 0; i < 2; i++) {
        KT_TRUE(peer_dial(&peers[i], &rig, "secret"));
        if (i == 0) {
            peer_inventory(&peers[0], &none);
        }
        peer_status(&peers[i]);
    }
    KT_TRUE(peer_await(&peers[0], sees_serving, &one)); /* it never said so: its slice did */
    rig_slice(&rig, 2, false);
    KT_TRUE(peer_await(&peers[0], sees_alive_but_fenced, &one));
    rig_slice(&rig, 2, true);
    KT_TRUE(peer_await(&peers[0], sees_serving, &one));
    peers[1].healthy = true;
    peer_status(&peers[1]);
    KT_TRUE(peer_await(&peers[0], sees_serving, &one));
    peers[1].healthy = false;
    peer_status(&peers[1]);
    KT_TRUE(peer_await(&peers[0], sees_dead, &one));
    end(2);
}

static bool term_above(const struct ki_image *im, void *arg)
{
    return im->order.term > *(uint64_t *)arg;
}

static void a_new_operator_takes_the_root_with_its_term_and_moves_nothing(void)
{
    begin_deciding();
    struct peer_wanted w;
    KT_EQ(ask(peer_create_topic("orders", 3), &w), 0);
    struct ki_image *before = rig_image(&rig);
    uint64_t term = before->order.term;
    rig_restart(&rig);
    rig_cluster(&rig, 1);
    KT_TRUE(rig_await_image(&rig, term_above, &term));
    KT_TRUE(rig_await(&rig, rig_is_held, NULL));
    KT_TRUE(peer_dial(&peers[0], &rig, "secret"));
    KT_FALSE(peers[0].want_inventory); /* the image was published after one */
    peer_status(&peers[0]);
    KT_TRUE(peer_await(&peers[0], peer_is_active, NULL));
    struct ki_image *after = rig_image(&rig);
    const struct ki_topic *a = ki_topic_by_name(before, KC_STR_LIT("orders")),
                          *b = ki_topic_by_name(after, KC_STR_LIT("orders"));
    KT_REQUIRE(a && b);
    KT_TRUE(kc_uuid_eq(&a->id, &b->id));
    for (int i = 0; i < 3; i++) {
        KT_EQ(b->parts[i].assigned, a->parts[i].assigned);
        KT_EQ(b->parts[i].assigned_generation, a->parts[i].assigned_generation);
    }
    KT_TRUE(rig.adopted > 0); /* no KaasTopic was told: it is to be made again */
    ki_image_unref(before);
    ki_image_unref(after);
    end(1);
}

static bool in_view(struct rig *r, void *arg)
{
    (void)arg;
    return r->view && r->view->active && r->view->n_rows == 1 &&
           r->view->rows[0].state == KP_SERVING && r->view->partitions == 3 &&
           r->view->leaderless == 0 && r->events[KP_EV_SERVING] == 1;
}

static void views_and_events_follow_the_cluster(void)
{
    begin_deciding();
    struct peer_wanted w;
    KT_EQ(ask(peer_create_topic("orders", 3), &w), 0);
    struct ki_image *im = rig_image(&rig);
    for (int32_t s = 0; s < KP_SHARDS; s++) {
        for (int32_t t = 0; t < im->shards[s]->n_topics; t++) {
            for (int32_t i = 0; i < im->shards[s]->topics[t].n_parts; i++) {
                peers[0].led[peers[0].n_led++] = (struct kp_led){im->shards[s]->topics[t].id, i, 0};
            }
        }
    }
    ki_image_unref(im);
    peers[0].serving = true;
    peer_status(&peers[0]);
    KT_TRUE(rig_await(&rig, in_view, NULL));
    end(1);
}

static bool has_trouble(struct rig *r, void *arg)
{
    return r->view && r->view->n_rows == 1 && strcmp(r->view->troubles[0], arg) == 0;
}

/* What is shown is what was wrong at first; that it lasts is no news. */
static void what_a_broker_says_is_wrong_with_it_reaches_the_view(void)
{
    begin_deciding();
    struct peer *p = &peers[0];
    char none[] = "", first[] = "wedged loop 1, 5 s", other[] = "??";
    KT_TRUE(rig_await(&rig, has_trouble, none));
    p->healthy = false;
    p->trouble = first;
    peer_status(p);
    KT_TRUE(rig_await(&rig, has_trouble, first));
    p->trouble = "wedged loop 1, 6 s";
    int more = p->answered + 1;
    peer_status(p);
    KT_TRUE(peer_await(p, was_answered, &more));
    KT_TRUE(rig_await(&rig, has_trouble, first));
    p->healthy = true;
    peer_status(p);
    KT_TRUE(rig_await(&rig, has_trouble, none));
    p->healthy = false;
    p->trouble = "\xc3\xa9"; /* cut to size, it might be half a letter */
    peer_status(p);
    KT_TRUE(rig_await(&rig, has_trouble, other));
    end(1);
}

static bool measures(struct rig *r, void *arg)
{
    const struct ko_view *want = arg;
    return r->view && r->view->rollout == want->rollout &&
           r->view->measure.gaps == want->measure.gaps;
}

/* From the broker's words to the view: a partition that is led no more, and then again, is one gap. */
static void a_rollout_is_measured_while_it_goes_on(void)
{
    begin_deciding();
    struct peer_wanted w;
    struct peer *p = &peers[0];
    KT_EQ(ask(peer_create_topic("orders", 1), &w), 0);
    p->led[p->n_led++] = (struct kp_led){p->results[w.index].topic_id, 0, 0};
    p->serving = true;
    peer_status(p);
    struct ko_view want = {.rollout = 77};
    ko_control_rollout(rig.c, RIG_CLUSTER, want.rollout);
    KT_TRUE(rig_await(&rig, measures, &want));
    p->n_led--;
    peer_status(p);
    p->led[p->n_led++] = (struct kp_led){p->results[w.index].topic_id, 0, 1};
    peer_status(p);
    want.measure.gaps = 1;
    KT_TRUE(rig_await(&rig, measures, &want));
    want.rollout = 0;
    ko_control_rollout(rig.c, RIG_CLUSTER, want.rollout);
    KT_TRUE(rig_await(&rig, measures, &want));
    end(1);
}

static bool was_refused(struct rig *r, void *arg)
{
    return kc_uuid_eq(&r->refused_id, arg) && strstr(r->refused, "limit of 100 partitions");
}

static bool is_refused_no_more(struct rig *r, void *arg)
{
    return kc_uuid_eq(&r->refused_id, arg) && !*r->refused;
}

/* A KaasTopic's as an admin request's, in the same words; it waits for room. */
static void a_topic_over_the_limits_is_refused_until_there_is_room(void)
{
    begin_deciding();
    struct ki_topic one = {
        .id = kc_uuid_random(), .name = "one", .n_parts = 60, .replication_factor = 1};
    struct ki_topic other = one;
    other.id = kc_uuid_random();
    other.name = "other";
    ko_control_topic(rig.c, RIG_CLUSTER, &one);
    ko_control_topic(rig.c, RIG_CLUSTER, &other);
    KT_TRUE(rig_await(&rig, was_refused, &other.id));
    other.n_parts = 50; /* still too much: said once more, for it is another word */
    ko_control_topic(rig.c, RIG_CLUSTER, &other);
    KT_TRUE(rig_await_image(&rig, rig_image_names, (void *)(uintptr_t) "one"));
    struct ki_image *im = rig_image(&rig);
    KT_TRUE(im && !ki_topic_by_name(im, KC_STR_LIT("other")));
    ki_image_unref(im);
    ko_control_topic_delete(rig.c, RIG_CLUSTER, &one.id);
    KT_TRUE(rig_await(&rig, is_refused_no_more, &other.id));
    KT_TRUE(rig_await_image(&rig, rig_image_names, (void *)(uintptr_t) "other"));
    KT_EQ(rig.refusals, 3);
    end(1);
}

KT_MAIN("control", KT(a_topic_over_the_limits_is_refused_until_there_is_room),
        KT(first_activation_makes_the_documents_and_the_internal_topics),
        KT(a_wrong_token_is_refused_with_the_reason), KT(garbage_costs_only_its_stream),
        KT(another_volume_is_refused), KT(an_unregistered_ordinal_is_refused),
        KT(nothing_is_published_before_the_inventory_and_it_is_adopted_with_its_ids),
        KT(a_created_topic_is_in_the_image_when_the_answer_comes),
        KT(a_retry_returns_the_stored_result_and_applies_nothing_twice),
        KT(admin_requests_are_checked_with_kafkas_codes),
        KT(config_changes_are_laid_over_what_is_set),
        KT(an_object_that_cannot_be_written_fails_the_request_and_changes_nothing),
        KT(a_deleted_topic_is_a_tombstone_until_its_directory_is_gone),
        KT(brokers_are_told_of_each_others_transitions),
        KT(R52_R36_a_status_without_field_6_keeps_an_old_image_in),
        KT(a_new_operator_takes_the_root_with_its_term_and_moves_nothing),
        KT(views_and_events_follow_the_cluster),
        KT(what_a_broker_says_is_wrong_with_it_reaches_the_view),
        KT(a_rollout_is_measured_while_it_goes_on))
