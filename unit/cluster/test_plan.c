/* The plan on virtual time: what is opened, warmed, sealed and dropped, and when a broker serves. */
#include "kt.h"

#include "base/kc_error.h"
#include "cl_fixture.h"
#include "cluster/kl_plan.h"

static struct clf c;
static struct kl_plan *plan;
static int64_t now;

static void setup(int32_t n_brokers)
{
    clf_init(&c, n_brokers);
    plan = kl_plan_new(0);
    now = 1000;
    struct kc_uuid mine = clf_uuid(100);
    kl_plan_incarnation(plan, &mine, now);
}

static void publish(bool confirmed)
{
    struct ki_image *im = clf_publish(&c);
    kl_plan_image(plan, im, confirmed, now);
    ki_image_unref(im);
}

/* The next action; fails if it is not the expected one. */
static struct kl_action expect(enum kl_do what)
{
    struct kl_action a = {0};
    kl_plan_tick(plan, now);
    KT_REQUIRE(kl_plan_next(plan, now, &a));
    KT_EQ(a.what, what);
    return a;
}

static void expect_nothing(void)
{
    struct kl_action a;
    kl_plan_tick(plan, now);
    KT_FALSE(kl_plan_next(plan, now, &a));
}

static void open_ok(struct kl_item *it, int32_t epoch)
{
    kl_plan_opened(plan, it, 0, epoch, KP_NO_BROKER, NULL, now);
    kl_plan_installed(plan, it, now);
}

static void released(struct kl_item *it)
{
    kl_plan_released(plan, it, KC_BYTES_NULL, -1, -1, now);
}

/* Opens everything that is asked for. */
static int open_all(void)
{
    int n = 0;
    struct kl_action a;
    kl_plan_tick(plan, now);
    while (kl_plan_next(plan, now, &a)) {
        KT_EQ(a.what, KL_DO_OPEN);
        open_ok(a.item, 3);
        n++;
    }
    return n;
}

/* Three brokers, of which we are 0, and a topic of one partition. */
static struct clf_topic *assigned_to(int32_t broker)
{
    setup(3);
    struct clf_topic *t = clf_topic(&c, "t", 1);
    t->parts[0].assigned = broker;
    publish(true);
    return t;
}

/* It is ours, and open. */
static struct clf_topic *leading(void)
{
    struct clf_topic *t = assigned_to(0);
    KT_EQ(open_all(), 1);
    return t;
}

static void order(uint64_t id, struct clf_topic *t, int32_t from, int32_t to, enum kp_phase phase)
{
    struct kp_relay r = {.move_id = id, .p = {t->id, 0}, .from = from, .to = to, .phase = phase};
    kl_plan_order(plan, &r, KC_BYTES_NULL, &c.order, now);
}

static void done(void)
{
    kl_plan_free(plan);
    plan = NULL;
}

/* design.md, 4: a claim needs a confirmed image whose row names the own incarnation as alive. */
static void nothing_is_claimed_before_the_image_names_us(void)
{
    setup(3);
    clf_topic(&c, "t", 2)->parts[0].assigned = 0;
    publish(false);
    expect_nothing();
    c.rows[0].incarnation = clf_uuid(99); /* our own past */
    publish(true);
    expect_nothing();
    c.rows[0].incarnation = clf_uuid(100);
    c.rows[0].health = KP_DEAD;
    publish(true);
    expect_nothing();
    c.rows[0].health = KP_ALIVE;
    c.rows[0].condemned = true;
    publish(true);
    expect_nothing();
    c.rows[0].condemned = false;
    publish(true);
    struct kl_action a = expect(KL_DO_OPEN);
    KT_EQ(a.item->partition, 0);
    KT_TRUE(a.item->fresh);
    expect_nothing();
    done();
}

/* R38: false before an own image; the boot set must be open; none assigned serves at once. */
static void R38_R58_serving_needs_the_boot_set(void)
{
    setup(3);
    struct clf_topic *t = clf_topic(&c, "t", 3);
    t->parts[0].assigned = t->parts[1].assigned = 0;
    t->parts[2].assigned = 1;
    KT_FALSE(kl_plan_serving(plan, now));
    publish(true);
    struct kl_action a = expect(KL_DO_OPEN), b = expect(KL_DO_OPEN);
    KT_FALSE(kl_plan_serving(plan, now)); /* R58: between alive and takeover complete */
    open_ok(a.item, 1);
    KT_FALSE(kl_plan_serving(plan, now));
    open_ok(b.item, 1);
    KT_TRUE(kl_plan_serving(plan, now));
    done();

    setup(3);
    publish(true);
    KT_TRUE(kl_plan_serving(plan, now));
    done();
}

/* A move homed here counts once it is prepared; a cancelled or reassigned item leaves the set. */
static void R38_the_boot_set_counts_prepares_and_forgets_what_left(void)
{
    setup(3);
    struct clf_topic *t = clf_topic(&c, "t", 2);
    t->parts[0].assigned = 1;
    t->parts[0].move = (struct kp_move){.id = 7, .from = 1, .to = 0, .phase = KP_MOVE_PREPARE};
    t->parts[1].assigned = 0;
    publish(true);
    struct kl_action a, b;
    KT_REQUIRE(kl_plan_next(plan, now, &a) && kl_plan_next(plan, now, &b));
    if (a.what == KL_DO_OPEN) { /* in either order */
        struct kl_action x = a;
        a = b;
        b = x;
    }
    KT_EQ(a.what, KL_DO_PREPARE);
    KT_EQ(b.what, KL_DO_OPEN);
    kl_plan_warm(plan, a.item, 0, now);
    KT_FALSE(kl_plan_serving(plan, now));
    t->parts[1].assigned = 2; /* reassigned while it is still being opened */
    publish(true);
    expect_nothing();
    KT_TRUE(kl_plan_serving(plan, now));
    KT_EQ(b.item->state, KL_OPENING);
    done();
}

/* R45: after the latch a new partition counts only when it has been unopened for more than 10 s. */
static void R45_readiness_latches(void)
{
    setup(3);
    publish(true);
    KT_TRUE(kl_plan_serving(plan, now));
    struct clf_topic *t = clf_topic(&c, "t", 40);
    for (int i = 0; i < 40; i++) {
        t->parts[i].assigned = 0;
    }
    publish(true);
    KT_TRUE(kl_plan_serving(plan, now));
    struct kl_action a = expect(KL_DO_OPEN);
    now += KL_LATE_MS;
    KT_TRUE(kl_plan_serving(plan, now));
    now += 1;
    KT_FALSE(kl_plan_serving(plan, now));
    open_ok(a.item, 1);
    open_all();
    KT_TRUE(kl_plan_serving(plan, now));
    done();
}

/* R61, R45: a permanent failure makes a partition offline, not the broker unready; others retry. */
static void R45_R61_failures_are_retried_and_permanent_ones_are_offline(void)
{
    setup(3);
    struct clf_topic *t = clf_topic(&c, "t", 2);
    t->parts[0].assigned = t->parts[1].assigned = 0;
    publish(true);
    struct kl_action a = expect(KL_DO_OPEN), b = expect(KL_DO_OPEN);
    kl_plan_opened(plan, a.item, KC_E_CORRUPT, -1, -1, NULL, now);
    kl_plan_opened(plan, b.item, -5, -1, -1, NULL, now);
    KT_TRUE(a.item->permanent);
    KT_FALSE(kl_plan_serving(plan, now));
    expect_nothing();
    int64_t begun = now;
    for (int attempt = 0; attempt < 7; attempt++) {
        int64_t next = kl_plan_next_ms(plan, now);
        KT_TRUE(next > now && next <= now + KL_RETRY_MAX_MS);
        now = next;
        b = expect(KL_DO_OPEN);
        KT_TRUE(b.item != a.item);
        kl_plan_opened(plan, b.item, -5, -1, -1, NULL, now);
    }
    now = kl_plan_next_ms(plan, now);
    b = expect(KL_DO_OPEN);
    open_ok(b.item, 4);
    KT_TRUE(kl_plan_serving(plan, now)); /* without partition 0 */
    now = kl_plan_next_ms(plan, now); /* a repaired volume needs no restart */
    KT_EQ(now - begun, KL_PERMANENT_RETRY_MS);
    a = expect(KL_DO_OPEN);
    open_ok(a.item, 2);
    KT_FALSE(a.item->permanent);
    KT_EQ(plan->n_permanent, 0);
    done();
}

static void a_blocked_takeover_goes_on_when_the_blocker_is_condemned(void)
{
    assigned_to(0);
    struct kl_action a = expect(KL_DO_OPEN);
    struct kc_uuid other = clf_uuid(101);
    uint64_t before = plan->seq;
    kl_plan_opened(plan, a.item, KC_E_BLOCKED, -1, 1, &other, now);
    KT_TRUE(a.item->blocked && a.item->changed > before);
    KT_EQ(a.item->blocker, 1);
    expect_nothing();
    c.rows[1].condemned = true;
    publish(true); /* at once, not with the next retry */
    a = expect(KL_DO_OPEN);
    open_ok(a.item, 9);
    KT_FALSE(a.item->blocked);
    done();
}

static void a_partition_given_to_another_is_sealed(void)
{
    struct clf_topic *t = leading();
    t->parts[0].assigned = 2;
    publish(false); /* a copy of unknown age takes nothing away */
    expect_nothing();
    publish(true);
    struct kl_action a = expect(KL_DO_RELEASE);
    KT_TRUE(a.seal);
    KT_EQ(a.hint, 2);
    released(a.item);
    KT_EQ(a.item->state, KL_IDLE);
    expect_nothing();
    done();
}

/* A claim that may be in the chain already is finished, then sealed: it must block nobody. */
static void an_open_under_way_is_finished_and_then_sealed(void)
{
    struct clf_topic *t = assigned_to(0);
    struct kl_action a = expect(KL_DO_OPEN);
    t->parts[0].assigned = 1;
    publish(true);
    expect_nothing();
    open_ok(a.item, 2);
    a = expect(KL_DO_RELEASE);
    KT_TRUE(a.seal);
    done();
}

/* The source of a planned move, phase by phase. */
static void a_source_seals_at_release_and_stays_away(void)
{
    struct clf_topic *t = leading();
    t->parts[0].move = (struct kp_move){.id = 5, .from = 0, .to = 1, .phase = KP_MOVE_PREPARE};
    publish(true);
    expect_nothing();
    order(5, t, 0, 1, KP_MOVE_RELEASE);
    struct kl_action a = expect(KL_DO_RELEASE);
    KT_TRUE(a.seal);
    KT_EQ(a.hint, 1); /* KIP-951 */
    kl_plan_released(plan, a.item, (struct kc_bytes){(const uint8_t *)"seal", 4}, 77, 3, now);
    KT_EQ(a.item->state, KL_RELEASED);
    KT_EQ(a.item->seal_len, 4);
    uint64_t said = a.item->changed;
    order(5, t, 0, 1, KP_MOVE_RELEASE); /* repeated: our answer may be lost */
    KT_TRUE(a.item->changed > said);
    expect_nothing();
    memset(&t->parts[0].move, 0, sizeof(t->parts[0].move));
    t->parts[0].assigned = 1;
    publish(true);
    expect_nothing();
    KT_EQ(a.item->state, KL_IDLE);
    done();
}

static void a_cancelled_move_gives_the_source_back(void)
{
    struct clf_topic *t = leading();
    order(5, t, 0, 1, KP_MOVE_RELEASE);
    struct kl_action a = expect(KL_DO_RELEASE);
    released(a.item);
    order(5, t, 0, 1, KP_MOVE_CANCEL);
    a = expect(KL_DO_OPEN);
    open_ok(a.item, 4);
    order(5, t, 0, 1, KP_MOVE_RELEASE); /* an older phase changes nothing */
    expect_nothing();
    done();
}

/* design.md, 4: it has released and hears neither go nor cancel: an ordinary claim. */
static void a_released_source_resumes_by_itself(void)
{
    struct clf_topic *t = leading();
    order(5, t, 0, 1, KP_MOVE_RELEASE);
    struct kl_action a = expect(KL_DO_RELEASE);
    released(a.item);
    now += KL_RESUME_MS;
    expect_nothing();
    now += 1;
    expect(KL_DO_OPEN);
    done();
}

static void a_target_warms_then_goes(void)
{
    struct clf_topic *t = assigned_to(1);
    order(6, t, 1, 0, KP_MOVE_PREPARE);
    struct kl_action a = expect(KL_DO_PREPARE);
    kl_plan_warm(plan, a.item, 0, now);
    KT_EQ(a.item->state, KL_PREPARED);
    expect_nothing();
    struct kp_relay go = {.move_id = 6, .p = {t->id, 0}, .from = 1, .to = 0, .phase = KP_MOVE_GO};
    kl_plan_order(plan, &go, (struct kc_bytes){(const uint8_t *)"sealed", 6}, &c.order, now);
    a = expect(KL_DO_GO);
    KT_EQ(a.item->seal_len, 6);
    open_ok(a.item, 12);
    KT_EQ(kl_plan_led(plan), 1);
    expect_nothing(); /* though the image still assigns it to the source */
    t->parts[0].assigned = 0;
    publish(true);
    expect_nothing();
    done();
}

/* An order may be ahead of the image that will carry the move: an older image does not end it. */
static void an_order_ahead_of_its_image_stands(void)
{
    struct clf_topic *t = assigned_to(1);
    c.order.generation++; /* published, not applied here yet */
    order(6, t, 1, 0, KP_MOVE_PREPARE);
    c.order.generation--;
    struct kl_action a = expect(KL_DO_PREPARE);
    publish(true);
    kl_plan_warm(plan, a.item, 0, now);
    expect_nothing();
    KT_EQ(a.item->state, KL_PREPARED);
    t->fresh = false;
    publish(true); /* newer, and without the move: it is over */
    expect(KL_DO_CANCEL);
    done();
}

static void a_cancelled_target_drops_what_it_warmed(void)
{
    struct clf_topic *t = assigned_to(1);
    order(6, t, 1, 0, KP_MOVE_PREPARE);
    struct kl_action a = expect(KL_DO_PREPARE);
    order(6, t, 1, 0, KP_MOVE_CANCEL);
    a = expect(KL_DO_CANCEL);
    KT_EQ(a.item->state, KL_IDLE);
    expect_nothing();
    done();
}

/* Fenced: everything closes without a seal; a new incarnation starts from nothing. */
static void a_drop_closes_without_a_seal_and_starts_again(void)
{
    setup(3);
    struct clf_topic *t = clf_topic(&c, "t", 3);
    t->parts[0].assigned = t->parts[1].assigned = t->parts[2].assigned = 0;
    publish(true);
    struct kl_action a = expect(KL_DO_OPEN), b = expect(KL_DO_OPEN), d = expect(KL_DO_OPEN);
    open_ok(a.item, 1);
    kl_plan_opened(plan, b.item, 0, 1, -1, NULL, now); /* on its way to its loop */
    kl_plan_set_mode(plan, KL_DROP, now);
    KT_FALSE(kl_plan_serving(plan, now));
    int cancels = 0, releases = 0;
    struct kl_action x;
    while (kl_plan_next(plan, now, &x)) {
        cancels += x.what == KL_DO_CANCEL && x.item == d.item;
        releases += x.what == KL_DO_RELEASE && x.item == a.item && !x.seal;
    }
    KT_EQ(cancels, 1);
    KT_EQ(releases, 1);
    kl_plan_installed(plan, b.item, now);
    x = expect(KL_DO_RELEASE);
    KT_FALSE(x.seal);
    released(a.item);
    KT_EQ(kl_plan_active(plan), 1);
    released(b.item);
    KT_EQ(kl_plan_active(plan), 0);
    struct kc_uuid next = clf_uuid(200);
    kl_plan_incarnation(plan, &next, now);
    expect_nothing(); /* the image still names the old one */
    c.rows[0].incarnation = next;
    publish(true);
    KT_EQ(open_all(), 3);
    KT_TRUE(kl_plan_serving(plan, now));
    done();
}

static void draining_opens_nothing_and_leaving_seals_all(void)
{
    setup(3);
    struct clf_topic *t = clf_topic(&c, "t", 3);
    t->parts[0].assigned = 0;
    publish(true);
    open_all();
    kl_plan_set_mode(plan, KL_DRAIN, now);
    t->parts[1].assigned = 0;
    publish(true);
    expect_nothing();
    KT_TRUE(kl_plan_serving(plan, now));
    kl_plan_set_mode(plan, KL_LEAVE, now);
    struct kl_action a = expect(KL_DO_RELEASE);
    KT_TRUE(a.seal);
    KT_EQ(a.hint, KP_NO_BROKER);
    done();
}

/* A draining broker still follows moves: that is how it gets rid of what it leads (R26). */
static void R26_a_draining_source_releases(void)
{
    struct clf_topic *t = leading();
    kl_plan_set_mode(plan, KL_DRAIN, now);
    c.rows[0].health = KP_DRAINING;
    publish(true);
    expect_nothing();
    order(5, t, 0, 1, KP_MOVE_RELEASE);
    struct kl_action a = expect(KL_DO_RELEASE);
    KT_TRUE(a.seal);
    int64_t stop = now; /* what a rollout's report counts from, however long the seal takes */
    now += 30;
    released(a.item);
    KT_EQ(a.item->stop_ms, stop);
    done();
}

static void a_tombstone_closes_and_an_absent_topic_is_sealed(void)
{
    setup(3);
    struct clf_topic *t = clf_topic(&c, "t", 1), *u = clf_topic(&c, "u", 1);
    t->parts[0].assigned = u->parts[0].assigned = 0;
    publish(true);
    KT_EQ(open_all(), 2);
    t->deleted = true;
    publish(true);
    struct kl_action a = expect(KL_DO_RELEASE);
    KT_FALSE(a.seal);
    KT_TRUE(kc_uuid_eq(&a.item->topic_id, &t->id));
    expect_nothing();
    c.n_topics = 1; /* u is gone without a tombstone: nothing is thrown away */
    publish(true);
    a = expect(KL_DO_RELEASE);
    KT_TRUE(a.seal);
    done();
}

static void internal_partitions_are_opened_first(void)
{
    setup(1);
    struct clf_topic *t = clf_topic(&c, "t", 20), *o = clf_topic(&c, "__consumer_offsets", 20);
    o->internal = true;
    for (int i = 0; i < 20; i++) {
        t->parts[i].assigned = o->parts[i].assigned = 0;
    }
    publish(true);
    for (int i = 0; i < 40; i++) {
        struct kl_action a = expect(KL_DO_OPEN);
        KT_EQ(a.item->internal, i < 20);
    }
    done();
}

static void a_log_that_stopped_is_opened_again(void)
{
    struct clf_topic *t = leading();
    kl_plan_stopped(plan, &t->id, 0);
    struct kl_action a = expect(KL_DO_RELEASE);
    KT_FALSE(a.seal);
    released(a.item);
    a = expect(KL_DO_OPEN);
    open_ok(a.item, 4);
    expect_nothing();
    done();
}

/* Counted, not timed: a turn looks at what is due, however much is pending. */
static void a_turn_costs_what_is_due(void)
{
    enum { N = CLF_TOPICS_MAX * CLF_PARTS_MAX, TURNS = 100 };
    setup(1);
    for (int i = 0; i < CLF_TOPICS_MAX; i++) {
        struct clf_topic *t = clf_topic(&c, (char[]){(char)('a' + i), 0}, CLF_PARTS_MAX);
        for (int n = 0; n < CLF_PARTS_MAX; n++) {
            t->parts[n].assigned = 0;
        }
    }
    publish(true);
    for (int round = 0; round < 3; round++) { /* under way; failed once; twice */
        struct kl_item *items[N];
        int64_t before = plan->visits;
        for (int i = 0; i < N; i++) {
            items[i] = expect(KL_DO_OPEN).item;
        }
        KT_TRUE(plan->visits - before <= 2 * N); /* each once, and a next one a turn */
        before = plan->visits;
        for (int i = 0; i < TURNS; i++) {
            expect_nothing();
            KT_FALSE(kl_plan_serving(plan, now));
        }
        KT_TRUE(plan->visits - before <= 2 * TURNS);
        for (int i = 0; i < N; i++) {
            kl_plan_opened(plan, items[i], -5, -1, -1, NULL, now);
        }
        before = plan->visits;
        for (int i = 0; i < TURNS; i++) {
            expect_nothing();
            KT_FALSE(kl_plan_serving(plan, now));
        }
        KT_TRUE(plan->visits - before <= 2 * TURNS);
        now = kl_plan_next_ms(plan, now);
    }
    KT_EQ(open_all(), N);
    KT_TRUE(kl_plan_serving(plan, now));
    done();
}

/* R45: how late a partition is counts from when it was wanted, however often it failed since. */
static void R45_a_failed_partition_stays_the_oldest(void)
{
    setup(1);
    struct clf_topic *t = clf_topic(&c, "t", 2);
    publish(true);
    t->parts[0].assigned = 0;
    publish(true);
    struct kl_action a = expect(KL_DO_OPEN);
    now += KL_LATE_MS / 2;
    t->parts[1].assigned = 0;
    publish(true);
    expect(KL_DO_OPEN);
    kl_plan_opened(plan, a.item, -5, -1, -1, NULL, now);
    now += KL_LATE_MS / 2;
    KT_TRUE(kl_plan_serving(plan, now));
    now += 1;
    KT_FALSE(kl_plan_serving(plan, now));
    done();
}

KT_MAIN("kl_plan", KT(nothing_is_claimed_before_the_image_names_us),
        KT(R38_R58_serving_needs_the_boot_set),
        KT(R38_the_boot_set_counts_prepares_and_forgets_what_left), KT(R45_readiness_latches),
        KT(R45_R61_failures_are_retried_and_permanent_ones_are_offline),
        KT(a_blocked_takeover_goes_on_when_the_blocker_is_condemned),
        KT(a_partition_given_to_another_is_sealed),
        KT(an_open_under_way_is_finished_and_then_sealed),
        KT(a_source_seals_at_release_and_stays_away), KT(a_cancelled_move_gives_the_source_back),
        KT(a_released_source_resumes_by_itself), KT(a_target_warms_then_goes),
        KT(an_order_ahead_of_its_image_stands), KT(a_cancelled_target_drops_what_it_warmed),
        KT(a_drop_closes_without_a_seal_and_starts_again),
        KT(draining_opens_nothing_and_leaving_seals_all), KT(R26_a_draining_source_releases),
        KT(a_tombstone_closes_and_an_absent_topic_is_sealed),
        KT(internal_partitions_are_opened_first), KT(a_log_that_stopped_is_opened_again),
        KT(a_turn_costs_what_is_due), KT(R45_a_failed_partition_stays_the_oldest))
