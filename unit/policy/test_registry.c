#include "kpt.h"
#include "kt.h"

/* Rules A (R2-R10) and W1 on the registry alone: slices in, rows out. */
static struct kpt w;

static void begin(int32_t desired, int32_t n)
{
    kpt_init(&w, desired);
    for (int32_t i = 0; i < n; i++) {
        w.b[i].listed = true;
        w.b[i].pod = 1;
    }
    kpt_slices(&w);
}

static int32_t registered(void)
{
    const struct kp_row *rows;
    return kp_ctl_rows(w.c, &rows);
}

static struct kp_endpoint endpoint(int32_t ordinal, bool ready, const char *pod, int64_t created)
{
    struct kp_endpoint e = {.ordinal = ordinal, .ready = ready, .created_ms = created};
    snprintf(e.pod_uid, sizeof(e.pod_uid), "%s", pod);
    return e;
}

static void R3_unready_endpoints_are_registered_with_readiness_as_an_attribute(void)
{
    begin(3, 0);
    struct kp_endpoint e[2] = {endpoint(0, false, "p0", 1), endpoint(1, true, "p1", 1)};
    kp_ctl_slice(w.c, "s", e, 2, w.now);
    KT_EQ(registered(), 2);
    KT_FALSE(kpt_row(&w, 0)->slice_ready);
    KT_TRUE(kpt_row(&w, 1)->slice_ready);
    e[1].ready = false;
    kp_ctl_slice(w.c, "s", e, 2, w.now);
    KT_EQ(registered(), 2);
    KT_FALSE(kpt_row(&w, 1)->slice_ready);
    kpt_fini(&w);
}

static void R4_missing_from_its_slice_and_unwanted_is_deregistered_at_once(void)
{
    begin(3, 3);
    KT_EQ(registered(), 3);
    kpt_desired(&w, 2);
    KT_EQ(registered(), 3); /* listed still: R27 */
    w.b[2].listed = false;
    kpt_slices(&w);
    KT_EQ(registered(), 2);
    KT_TRUE(kpt_row(&w, 2) == NULL);
    kpt_fini(&w);
}

static void R5_two_slices_updated_in_turn_lose_nobody(void)
{
    begin(2, 0);
    struct kp_endpoint a[2] = {endpoint(0, true, "p0", 1), endpoint(1, true, "p1", 1)};
    struct kp_endpoint b[2] = {endpoint(2, true, "p2", 1), endpoint(3, true, "p3", 1)};
    for (int i = 0; i < 5; i++) {
        kp_ctl_slice(w.c, "a", a, 2, w.now);
        KT_EQ(registered(), i == 0 ? 2 : 4);
        kp_ctl_slice(w.c, "b", b, 2, w.now);
        KT_EQ(registered(), 4);
    }
    kpt_fini(&w);
}

static void R6_deleting_a_slice_removes_exactly_what_only_it_listed(void)
{
    begin(0, 0);
    struct kp_endpoint a[2] = {endpoint(0, true, "p0", 1), endpoint(1, true, "p1", 1)};
    struct kp_endpoint b[2] = {endpoint(1, true, "p1", 1), endpoint(2, true, "p2", 1)};
    kp_ctl_slice(w.c, "a", a, 2, w.now);
    kp_ctl_slice(w.c, "b", b, 2, w.now);
    kp_ctl_slice_deleted(w.c, "a", w.now);
    KT_EQ(registered(), 2);
    KT_TRUE(kpt_row(&w, 0) == NULL && kpt_row(&w, 1) != NULL && kpt_row(&w, 2) != NULL);
    kp_ctl_slice_deleted(w.c, "unknown", w.now);
    KT_EQ(registered(), 2);
    kpt_fini(&w);
}

static void R6_an_ordinal_that_moved_to_another_slice_survives_the_first_ones_update(void)
{
    begin(0, 0);
    struct kp_endpoint one = endpoint(1, true, "p1", 1);
    kp_ctl_slice(w.c, "a", &one, 1, w.now);
    kp_ctl_slice(w.c, "b", &one, 1, w.now);
    kp_ctl_slice(w.c, "a", NULL, 0, w.now);
    KT_TRUE(kpt_row(&w, 1) != NULL);
    kp_ctl_slice(w.c, "b", NULL, 0, w.now);
    KT_TRUE(kpt_row(&w, 1) == NULL);
    kpt_fini(&w);
}

/* A dual-stack Service has a slice an address family, and each lists every ordinal. */
static void R5_R6_dual_stack_slices_list_every_ordinal_twice(void)
{
    begin(0, 0); /* no desired replicas: the slices alone keep them */
    struct kp_endpoint e[3] = {endpoint(0, true, "p0", 1), endpoint(1, true, "p1", 1),
                               endpoint(2, true, "p2", 1)};
    kp_ctl_slice(w.c, "ipv4", e, 3, w.now);
    kp_ctl_slice(w.c, "ipv6", e, 3, w.now);
    KT_EQ(registered(), 3);
    kp_ctl_slice(w.c, "ipv4", e, 2, w.now); /* one family is told first */
    KT_EQ(registered(), 3);
    e[1].ready = false;
    kp_ctl_slice(w.c, "ipv6", e, 2, w.now);
    KT_EQ(registered(), 2);
    KT_FALSE(kpt_row(&w, 1)->slice_ready); /* the last lister speaks */
    kp_ctl_slice_deleted(w.c, "ipv4", w.now); /* single stack from now on */
    KT_EQ(registered(), 2);
    kp_ctl_slice_deleted(w.c, "ipv6", w.now);
    KT_EQ(registered(), 0);
    kpt_fini(&w);
}

/* Slices that list none of our pods, however many somebody makes, are not in the way of those that do. */
static void slices_that_list_nobody_take_no_room(void)
{
    begin(1, 0);
    char key[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof(key), "foreign-%d", i);
        kp_ctl_slice(w.c, key, NULL, 0, w.now);
    }
    struct kp_endpoint e = endpoint(0, true, "p0", 1);
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof(key), "s-%d", i);
        kp_ctl_slice(w.c, key, &e, 1, w.now);
        kp_ctl_slice(w.c, key, NULL, 0, w.now);
    }
    kp_ctl_slice(w.c, "ours", &e, 1, w.now);
    KT_TRUE(kpt_row(&w, 0) && kpt_row(&w, 0)->slice_ready);
    kpt_fini(&w);
}

static struct kp_ctl *self_led(int32_t self)
{
    struct kp_ctl_opts o = {.max_brokers = 8,
                            .max_topics = 10,
                            .max_partitions = 100,
                            .interval_ms = 1000,
                            .timeout_ms = 3000,
                            .self_id = self};
    return kp_ctl_new(&o);
}

static void R7_self_is_pinned_against_every_slice(void)
{
    struct kp_ctl *c = self_led(2);
    kp_ctl_set_desired(c, 0);
    struct kp_endpoint e[2] = {endpoint(2, false, "impostor", 9), endpoint(3, true, "p3", 1)};
    kp_ctl_slice(c, "s", e, 2, 0);
    KT_STR(kp_ctl_row(c, 2)->pod_uid, "");
    kp_ctl_slice(c, "s", NULL, 0, 0);
    kp_ctl_slice_deleted(c, "s", 0);
    KT_TRUE(kp_ctl_row(c, 2) != NULL);
    KT_TRUE(kp_ctl_row(c, 3) == NULL);
    kp_ctl_free(c);
}

static void R8_own_readiness_lost_unassigns_nothing(void)
{
    struct kp_ctl *c = self_led(0);
    struct kc_uuid id = {{7}}, inc = {{9}};
    struct kp_hello h = {.broker = 0, .stream = 1, .incarnation = inc, .protocol_version = 1};
    struct kp_status s = {
        .broker = 0, .stream = 1, .incarnation = inc, .healthy = true, .serving = true};
    struct kp_changes ch;
    KT_EQ(kp_ctl_topic(c, &id, false, KP_NOT_SLOTS, 5, true), 0);
    kp_ctl_activate(c, 0);
    KT_EQ(kp_ctl_hello(c, &h, 0, NULL), 0);
    kp_ctl_status(c, &s, 0);
    kp_ctl_step(c, 10, 1, &ch);
    KT_EQ(kp_ctl_row(c, 0)->state, KP_SERVING);
    s.serving = s.healthy = false;
    for (int i = 0; i < 20; i++) {
        kp_ctl_status(c, &s, 1000 * i);
        kp_ctl_step(c, 1000 * i + 10, 2, &ch);
    }
    int32_t n;
    const struct kp_part *p = kp_ctl_parts(c, &id, &n);
    for (int32_t i = 0; i < n; i++) {
        KT_EQ(p[i].assigned, 0);
    }
    KT_EQ(kp_ctl_row(c, 0)->health, KP_ALIVE);
    KT_FALSE(kp_ctl_row(c, 0)->condemned);
    kp_ctl_free(c);
}

static void R9_R33_scale_down_leaves_rows_and_homes_in_one_step(void)
{
    kpt_init(&w, 3);
    kpt_slot_topic(&w, KP_GROUP_SLOTS);
    kpt_start_settled(&w, 3);
    kpt_desired(&w, 2);
    kpt_kill(&w, 2);
    w.b[2].listed = false;
    kpt_slices(&w);
    kpt_step(&w);
    KT_TRUE(kpt_row(&w, 2) == NULL);
    for (int32_t s = 0; s < KP_SLOTS; s++) {
        KT_TRUE(kp_ctl_homes(w.c, KP_GROUP_SLOTS)[s] != 2);
        KT_TRUE(kpt_leader(&w, 0, s) != 2);
    }
    kpt_fini(&w);
}

static void R10_ordinals_out_of_range_are_ignored(void)
{
    begin(3, 0);
    struct kp_endpoint e[3] = {endpoint(-1, true, "x", 1), endpoint(KP_BROKERS_MAX, true, "y", 1),
                               endpoint(INT32_MAX, true, "z", 1)};
    kp_ctl_slice(w.c, "s", e, 3, w.now);
    KT_EQ(registered(), 0);
    kpt_fini(&w);
}

static void newest_pod_of_an_ordinal_wins_and_an_older_one_is_refused(void)
{
    begin(1, 0);
    struct kp_endpoint e[2] = {endpoint(0, true, "new", 20), endpoint(0, true, "old", 10)};
    struct kp_hello h = {.broker = 0, .stream = 1, .incarnation = {{1}}, .pod_uid = "old"};
    kp_ctl_slice(w.c, "a", e, 2, w.now);
    KT_STR(kpt_row(&w, 0)->pod_uid, "new");
    kp_ctl_slice(w.c, "b", &e[1], 1, w.now);
    KT_STR(kpt_row(&w, 0)->pod_uid, "new");
    KT_EQ(kp_ctl_hello(w.c, &h, w.now, NULL), KC_E_REFUSED);
    snprintf(h.pod_uid, sizeof(h.pod_uid), "new");
    KT_EQ(kp_ctl_hello(w.c, &h, w.now, NULL), 0);
    h.broker = 5;
    KT_EQ(kp_ctl_hello(w.c, &h, w.now, NULL), KC_E_REFUSED);
    kpt_fini(&w);
}

/* W1: a pod that is being recreated is absent from the slice for a moment. */
static void W1_absence_alone_changes_neither_rows_nor_homes(void)
{
    kpt_init(&w, 3);
    kpt_slot_topic(&w, KP_GROUP_SLOTS);
    kpt_topic(&w, 30);
    kpt_start_settled(&w, 3);
    int32_t before[KP_SLOTS];
    memcpy(before, kp_ctl_homes(w.c, KP_GROUP_SLOTS), sizeof(before));
    w.b[1].listed = false;
    kpt_kill(&w, 1);
    kpt_slices(&w);
    kpt_run(&w, 20000);
    KT_TRUE(kpt_row(&w, 1) != NULL);
    KT_EQ(kpt_row(&w, 1)->health, KP_DEAD);
    KT_EQ(memcmp(before, kp_ctl_homes(w.c, KP_GROUP_SLOTS), sizeof(before)), 0);
    kpt_new_pod(&w, 1);
    KT_TRUE(kpt_await_settled(&w, 60000));
    KT_EQ(memcmp(before, kp_ctl_homes(w.c, KP_GROUP_SLOTS), sizeof(before)), 0);
    kpt_fini(&w);
}

static void R2_only_a_slice_admits_neither_the_spec_nor_a_dial(void)
{
    begin(3, 3);
    kpt_desired(&w, 5);
    KT_EQ(registered(), 3);
    struct kp_hello h = {.broker = 4, .stream = 1, .incarnation = {{1}}, .pod_uid = "p4"};
    KT_EQ(kp_ctl_hello(w.c, &h, w.now, NULL), KC_E_REFUSED);
    KT_EQ(registered(), 3);
    kpt_fini(&w);
}

KT_MAIN("registry", KT(R3_unready_endpoints_are_registered_with_readiness_as_an_attribute),
        KT(R4_missing_from_its_slice_and_unwanted_is_deregistered_at_once),
        KT(R5_two_slices_updated_in_turn_lose_nobody),
        KT(R6_deleting_a_slice_removes_exactly_what_only_it_listed),
        KT(R6_an_ordinal_that_moved_to_another_slice_survives_the_first_ones_update),
        KT(R5_R6_dual_stack_slices_list_every_ordinal_twice),
        KT(slices_that_list_nobody_take_no_room), KT(R7_self_is_pinned_against_every_slice),
        KT(R8_own_readiness_lost_unassigns_nothing),
        KT(R9_R33_scale_down_leaves_rows_and_homes_in_one_step),
        KT(R10_ordinals_out_of_range_are_ignored),
        KT(newest_pod_of_an_ordinal_wins_and_an_older_one_is_refused),
        KT(W1_absence_alone_changes_neither_rows_nor_homes),
        KT(R2_only_a_slice_admits_neither_the_spec_nor_a_dial))
