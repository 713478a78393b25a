/* What clients see of brokers and leaders, from hand-built images, by rule: R30 to R36, W7. */
#include "hx.h"

#include "base/kc_str.h"
#include "wire/kw_api_versions.h"
#include "wire/kw_describe_cluster.h"
#include "wire/kw_errors.h"
#include "wire/kw_metadata.h"

static struct hx h;

static const struct kw_metadata_response *metadata(struct hx_client *c, int16_t version)
{
    struct kw_metadata_request in;
    kw_metadata_request_init(&in);
    in.n_topics = version == 0 ? 0 : -1; /* all */
    const struct kw_metadata_response *m = hx_call(c, 3, version, &in);
    KT_REQUIRE(m != NULL);
    return m;
}

static const struct kw_describe_cluster_response *describe(struct hx_client *c, int16_t version,
                                                           bool fenced)
{
    struct kw_describe_cluster_request in;
    kw_describe_cluster_request_init(&in);
    in.include_fenced_brokers = fenced && version >= 2;
    const struct kw_describe_cluster_response *d = hx_call(c, 60, version, &in);
    KT_REQUIRE(d != NULL);
    return d;
}

static bool lists(const struct kw_metadata_response *m, int32_t id)
{
    for (int32_t i = 0; i < m->n_brokers; i++) {
        if (m->brokers[i].node_id == id) {
            return true;
        }
    }
    return false;
}

/* Self 1 and 2 serve, 3 drains, 4 boots, 5 is dead; 6 was never registered. */
static void mixed_cluster(struct hx_client *c)
{
    hx_up(&h, 1, 1);
    hx_row(&h, 1);
    hx_row(&h, 2);
    struct kp_row *r = hx_row(&h, 3);
    r->state = KP_STATE_DRAINING;
    r->health = KP_DRAINING;
    r = hx_row(&h, 4);
    r->state = KP_FENCED;
    r->reason = KP_REASON_BOOTING;
    r = hx_row(&h, 5);
    r->state = KP_FENCED;
    r->health = KP_DEAD;
    hx_publish(&h);
    hx_dial(&h, c, 0);
}

static void R30_metadata_lists_serving_and_draining_brokers_in_every_version(void)
{
    struct hx_client c;
    mixed_cluster(&c);
    for (int16_t v = 0; v <= 13; v++) {
        const struct kw_metadata_response *m = metadata(&c, v);
        KT_EQ(m->n_brokers, 3);
        KT_TRUE(lists(m, 1) && lists(m, 2) && lists(m, 3));
    }
    hx_end(&h, &c);
}

static void R1_R31_R33_fenced_brokers_show_only_from_v2_and_when_asked_for(void)
{
    struct hx_client c;
    mixed_cluster(&c);
    KT_EQ(describe(&c, 0, false)->n_brokers, 3);
    KT_EQ(describe(&c, 1, false)->n_brokers, 3);
    KT_EQ(describe(&c, 2, false)->n_brokers, 3);
    const struct kw_describe_cluster_response *d = describe(&c, 2, true);
    KT_EQ(d->n_brokers, 5);
    for (int32_t i = 0; i < d->n_brokers; i++) {
        KT_EQ(d->brokers[i].broker_id, i + 1); /* R33: what is gone is absent */
        KT_EQ(d->brokers[i].is_fenced, i + 1 >= 4); /* R34: booting reads as fenced */
    }
    hx_end(&h, &c);
}

static void R32_the_answering_broker_is_listed_and_never_fenced(void)
{
    struct hx_client c;
    hx_up(&h, 7, 1);
    hx_row(&h, 2);
    struct kp_row *self = hx_row(&h, 7);
    self->state = KP_FENCED;
    hx_publish(&h);
    hx_dial(&h, &c, 0);
    for (int with_row = 1; with_row >= 0; with_row--) {
        KT_TRUE(lists(metadata(&c, 12), 7));
        const struct kw_describe_cluster_response *d = describe(&c, 2, true);
        KT_EQ(d->n_brokers, 2);
        KT_EQ(d->brokers[1].broker_id, 7);
        KT_FALSE(d->brokers[1].is_fenced);
        h.n_rows = 1; /* next: no row at all */
        hx_publish(&h);
    }
    hx_end(&h, &c);
}

static void R35_describe_cluster_is_advertised_to_version_2(void)
{
    struct hx_client c;
    hx_up(&h, 1, 1);
    hx_dial(&h, &c, 0);
    struct kw_api_versions_request in;
    kw_api_versions_request_init(&in);
    in.client_software_name = KC_STR_LIT("hx");
    in.client_software_version = KC_STR_LIT("1");
    const struct kw_api_versions_response *r = hx_call(&c, 18, 3, &in);
    KT_REQUIRE(r != NULL);
    bool found = false;
    for (int32_t i = 0; i < r->n_api_keys; i++) {
        const struct kw_api *api = kw_api_find(r->api_keys[i].api_key);
        KT_REQUIRE(api != NULL);
        KT_TRUE(r->api_keys[i].max_version <= api->max);
        found |= api->key == 60 && r->api_keys[i].max_version == 2;
    }
    KT_TRUE(found);
    hx_end(&h, &c);
}

static void W7_a_leader_that_is_not_visible_is_not_available(void)
{
    struct hx_client c;
    mixed_cluster(&c);
    hx_topic(&h, "serving", 1, 2);
    hx_topic(&h, "draining", 1, 3);
    hx_topic(&h, "booting", 1, 4);
    hx_topic(&h, "dead", 1, 5);
    hx_topic(&h, "gone", 1, 6);
    hx_topic(&h, "nobody", 1, -1);
    struct hx_topic *old = hx_topic(&h, "former-life", 1, 2);
    old->parts[0].led_incarnation = hx_uuid(99);
    hx_topic(&h, "released", 1, 1); /* the image says self, but it is not open here */
    hx_publish(&h);
    const struct kw_metadata_response *m = metadata(&c, 12);
    KT_EQ(m->n_topics, 8);
    for (int32_t i = 0; i < m->n_topics; i++) {
        const struct kw_metadata_response_partition *p = &m->topics[i].partitions[0];
        bool led =
            kc_str_eqz(m->topics[i].name, "serving") || kc_str_eqz(m->topics[i].name, "draining");
        KT_EQ(p->error_code, led ? KAFKA_NONE : KAFKA_LEADER_NOT_AVAILABLE);
        KT_EQ(p->leader_id >= 0, led);
        KT_TRUE(!led || lists(m, p->leader_id));
        KT_EQ(p->n_isr_nodes, led ? 1 : 0);
    }
    hx_end(&h, &c);
}

static const struct kw_metadata_response_partition *only_partition(struct hx_client *c)
{
    const struct kw_metadata_response *m = metadata(c, 12);
    KT_REQUIRE(m->n_topics == 1 && m->topics[0].n_partitions == 1);
    return &m->topics[0].partitions[0];
}

/* ADR 19: a leader that was heard of counts if its epoch is higher, and is shown as any other. */
static void a_newer_leader_is_told_before_the_image_has_it(void)
{
    struct hx_client c;
    mixed_cluster(&c);
    struct hx_topic *t = hx_topic(&h, "t", 1, 5); /* led by one that died */
    h.leads[0] = (struct kp_lead){{t->id, 0}, 2, h.rows[1].incarnation, 4};
    h.n_leads = 1;
    hx_publish(&h);
    const struct kw_metadata_response_partition *p = only_partition(&c);
    KT_EQ(p->error_code, KAFKA_NONE);
    KT_EQ(p->leader_id, 2);
    KT_EQ(p->leader_epoch, 4);
    h.leads[0].epoch = 3; /* no newer than the image */
    hx_publish(&h);
    KT_EQ(only_partition(&c)->error_code, KAFKA_LEADER_NOT_AVAILABLE);
    h.leads[0].epoch = 4;
    h.leads[0].incarnation = hx_uuid(99); /* of a former life of 2 */
    hx_publish(&h);
    KT_EQ(only_partition(&c)->error_code, KAFKA_LEADER_NOT_AVAILABLE);
    h.leads[0].p.partition = 1; /* of another partition */
    hx_publish(&h);
    KT_EQ(only_partition(&c)->leader_epoch, 3);
    hx_hang_up(&c);
    h.n_leads = 0;
    hx_down(&h);
}

static void each_listener_shows_its_own_addresses(void)
{
    struct hx_client in, ex;
    hx_up(&h, 1, 1);
    hx_row(&h, 1);
    hx_row(&h, 2);
    struct kp_row *r = hx_row(&h, 3);
    r->n_listeners = 1; /* has no external listener: not for clients of that one */
    hx_publish(&h);
    hx_dial(&h, &in, 0);
    hx_dial(&h, &ex, 1);
    const struct kw_metadata_response *m = metadata(&in, 12);
    KT_EQ(m->n_brokers, 3);
    KT_TRUE(kc_str_eqz(m->brokers[0].host, "self-in"));
    KT_EQ(m->brokers[0].port, 19000);
    KT_EQ(m->brokers[1].port, 9002);
    m = metadata(&ex, 12);
    KT_EQ(m->n_brokers, 2);
    KT_TRUE(kc_str_eqz(m->brokers[0].host, "self-ex"));
    KT_EQ(m->brokers[1].port, 9102);
    hx_hang_up(&in);
    hx_hang_up(&ex);
    hx_down(&h);
}

static void the_controller_is_the_lowest_serving_broker(void)
{
    struct hx_client c;
    hx_up(&h, 5, 1);
    hx_row(&h, 1)->state = KP_FENCED;
    hx_row(&h, 2)->state = KP_STATE_DRAINING;
    hx_row(&h, 3);
    hx_row(&h, 5);
    hx_publish(&h);
    hx_dial(&h, &c, 0);
    KT_EQ(metadata(&c, 12)->controller_id, 3);
    KT_EQ(describe(&c, 2, false)->controller_id, 3);
    h.rows[2].state = KP_FENCED;
    h.rows[3].state = KP_FENCED;
    hx_publish(&h);
    KT_EQ(metadata(&c, 12)->controller_id, 5); /* nobody serves: self */
    hx_end(&h, &c);
}

static void endpoint_types_other_than_brokers_are_refused(void)
{
    struct hx_client c;
    hx_up(&h, 1, 1);
    hx_dial(&h, &c, 0);
    struct kw_describe_cluster_request in;
    kw_describe_cluster_request_init(&in);
    in.endpoint_type = 2;
    const struct kw_describe_cluster_response *d = hx_call(&c, 60, 2, &in);
    KT_EQ(d->error_code, KAFKA_MISMATCHED_ENDPOINT_TYPE);
    in.endpoint_type = 9;
    d = hx_call(&c, 60, 1, &in);
    KT_EQ(d->error_code, KAFKA_UNSUPPORTED_ENDPOINT_TYPE);
    hx_end(&h, &c);
}

KT_MAIN("views", KT(R30_metadata_lists_serving_and_draining_brokers_in_every_version),
        KT(R1_R31_R33_fenced_brokers_show_only_from_v2_and_when_asked_for),
        KT(R32_the_answering_broker_is_listed_and_never_fenced),
        KT(R35_describe_cluster_is_advertised_to_version_2),
        KT(W7_a_leader_that_is_not_visible_is_not_available),
        KT(a_newer_leader_is_told_before_the_image_has_it),
        KT(each_listener_shows_its_own_addresses), KT(the_controller_is_the_lowest_serving_broker),
        KT(endpoint_types_other_than_brokers_are_refused))
