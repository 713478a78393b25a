/* The control plane with a real engine, real data loops and a fake operator. */
#include "kt.h"

#include "base/kc_clock.h"
#include "rig.h"

static bool any_status(const struct fop_heard *h, void *ctx)
{
    (void)ctx;
    return h->statuses > 0;
}
static bool serving(const struct fop_heard *h, void *ctx)
{
    (void)ctx;
    return h->serving;
}
static bool leads(const struct fop_heard *h, void *ctx)
{
    return h->n_led == *(int *)ctx;
}
static bool greeted(const struct fop_heard *h, void *ctx)
{
    return h->hellos >= *(int *)ctx;
}
static bool draining(const struct fop_heard *h, void *ctx)
{
    (void)ctx;
    return h->draining;
}

/* Starts, joins with the first n partitions of "t" assigned to broker 0, and serves. */
static struct clf_topic *up_as(struct rig *r, int flags, int n)
{
    rig_start(r, flags);
    struct clf_topic *t = clf_topic(&r->cluster, "t", 4);
    for (int i = 0; i < n; i++) {
        t->parts[i].assigned = 0;
    }
    rig_join(r);
    RIG_WAIT(r, serving, NULL);
    RIG_WAIT(r, leads, &n);
    return t;
}

static struct clf_topic *up(struct rig *r, int n)
{
    return up_as(r, 0, n);
}

static void a_broker_says_hello_takes_over_and_serves(void)
{
    struct rig r;
    up(&r, 3);
    struct fop_heard h;
    fop_copy(&r.op, &h);
    KT_STR(h.cluster, "default/demo");
    KT_STR(h.token, "open sesame");
    KT_TRUE(h.first_full);
    KT_TRUE(h.healthy);
    KT_EQ(h.image_generation, r.cluster.order.generation);
    KT_TRUE(kl_serving(r.kl));
    KT_EQ(kd_n_open(r.data), 3);
    KT_EQ(atomic_load(&r.generation), r.cluster.order.generation);
    rig_stop(&r);
}

/* W6, R54: no status before every data loop has ticked; the first carries the real value. */
static void W6_no_status_before_every_loop_has_ticked(void)
{
    struct rig r;
    int one = 1;
    rig_start(&r, RIG_DATA_LATER);
    RIG_WAIT(&r, greeted, &one);
    KT_FALSE(rig_wait(&r, any_status, NULL, 700)); /* two intervals and more */
    rig_run_data(&r);
    RIG_WAIT(&r, any_status, NULL);
    struct fop_heard h;
    fop_copy(&r.op, &h);
    KT_TRUE(h.first_healthy);
    rig_stop(&r);
}

static bool status_count(const struct fop_heard *h, void *ctx)
{
    return h->stream_statuses >= *(int *)ctx;
}

/* W4 from the broker's side: an operator that is silent is dialled again, and told everything. */
static void W4_a_silent_operator_is_dialled_again(void)
{
    struct rig r;
    up_as(&r, RIG_IMPATIENT, 2);
    struct fop_heard h;
    int hellos = fop_copy(&r.op, &h)->hellos + 1, fulls = h.fulls;
    r.say.mute = true;
    rig_say(&r);
    RIG_WAIT(&r, greeted, &hellos);
    int one = 1;
    RIG_WAIT(&r, status_count, &one);
    fop_copy(&r.op, &h);
    KT_TRUE(h.fulls > fulls);
    KT_EQ(h.n_led, 2);
    KT_TRUE(kl_serving(r.kl)); /* losing the operator stops nothing */
    rig_stop(&r);
}

/* R51: a lost stream is redialled well within one interval. */
static void R51_a_lost_stream_is_redialled_within_the_interval(void)
{
    struct rig r;
    up_as(&r, RIG_SLOW, 1);
    struct fop_heard h;
    int hellos = fop_copy(&r.op, &h)->hellos + 1;
    fop_drop_streams(&r.op);
    RIG_WAIT(&r, greeted, &hellos);
    rig_stop(&r);
}

static bool unhealthy(const struct fop_heard *h, void *ctx)
{
    (void)ctx;
    return !h->healthy && strstr(h->stall, "wedged") != NULL;
}
static bool healthy(const struct fop_heard *h, void *ctx)
{
    (void)ctx;
    return h->healthy;
}

/* R41, R47: with every data loop blocked the stream goes on and says healthy=false, and serving is
 * still true: nothing was closed. */
static void R41_R47_a_wedge_is_told_over_a_living_stream(void)
{
    struct rig r;
    up(&r, 2);
    struct fop_heard h;
    int hellos = fop_copy(&r.op, &h)->hellos;
    kd_test_wedge(r.data, true);
    RIG_WAIT(&r, unhealthy, NULL);
    fop_copy(&r.op, &h);
    KT_EQ(h.hellos, hellos);
    KT_TRUE(h.serving);
    KT_EQ(h.n_led, 2);
    kd_test_wedge(r.data, false);
    RIG_WAIT(&r, healthy, NULL);
    rig_stop(&r);
}

static bool stalled(const struct fop_heard *h, void *ctx)
{
    (void)ctx;
    return !h->healthy && strstr(h->stall, "storage stalled") != NULL;
}

/* R46: a volume that does not answer makes the broker unhealthy, by name; what it has open stays. */
static void R46_a_stalled_storage_is_told_over_a_living_stream(void)
{
    struct rig r;
    struct clf_topic *t = up(&r, 1);
    struct fop_heard h;
    int hellos = fop_copy(&r.op, &h)->hellos;
    rig_hold_syncs(true);
    t->parts[1].assigned = 0;
    rig_publish(&r);
    rig_await_held();
    RIG_WAIT(&r, stalled, NULL);
    fop_copy(&r.op, &h);
    KT_EQ(h.hellos, hellos);
    KT_TRUE(h.storage_stalled);
    KT_TRUE(strstr(h.stall, ": datasync on ") != NULL);
    KT_TRUE(h.serving);
    KT_EQ(h.n_led, 1);
    rig_hold_syncs(false);
    RIG_WAIT(&r, healthy, NULL);
    int two = 2;
    RIG_WAIT(&r, leads, &two);
    rig_stop(&r);
}

static void answer(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

/* R56: with a takeover stuck in the file system every loop goes on: the data loops answer what they
 * are sent, and the control loop's heartbeats, which say all is well, do not pause. */
static void R56_a_takeover_that_hangs_holds_up_no_loop(void)
{
    struct rig r;
    rig_start(&r, 0);
    clf_topic(&r.cluster, "t", 1)->parts[0].assigned = 0;
    rig_hold_claims(true);
    rig_join(&r);
    rig_await_held();
    static _Atomic int answers;
    atomic_store(&answers, 0);
    struct fop_heard h;
    int more = fop_copy(&r.op, &h)->stream_statuses + 3;
    for (int32_t i = 0; i < kd_n_loops(r.data); i++) {
        rt_call(kd_loop(r.data, i), answer, &answers);
    }
    RIG_WAIT(&r, status_count, &more);
    KT_EQ(atomic_load(&answers), kd_n_loops(r.data));
    fop_copy(&r.op, &h);
    KT_TRUE(h.healthy);
    KT_FALSE(h.serving);
    KT_EQ(kd_n_open(r.data), 0);
    rig_hold_claims(false);
    RIG_WAIT(&r, serving, NULL);
    rig_stop(&r);
}

/* R58: between main alive and takeover complete the broker says serving=false. */
static void R58_not_serving_while_taking_over(void)
{
    struct rig r;
    rig_start(&r, 0);
    RIG_WAIT(&r, any_status, NULL);
    struct fop_heard h;
    KT_FALSE(fop_copy(&r.op, &h)->serving);
    KT_TRUE(h.healthy); /* R49 */
    KT_FALSE(kl_serving(r.kl));
    struct clf_topic *t = clf_topic(&r.cluster, "t", 1);
    t->parts[0].assigned = 0;
    t->fresh = false; /* no directory, and none may be made: offline, which is not unready (R45) */
    rig_join(&r);
    RIG_WAIT(&r, serving, NULL);
    fop_copy(&r.op, &h);
    KT_EQ(h.n_led, 0);
    KT_TRUE(h.n_failed > 0);
    rig_stop(&r);
}

static bool applied(const struct fop_heard *h, void *ctx)
{
    return h->image_generation == *(uint64_t *)ctx;
}

/* R38: a row that is pushed, or a document of the time before, is not today's image: by that one the broker would
 * claim what others lead, and send its clients to where the leaders were. */
static void R38_an_image_older_than_what_is_published_starts_nothing(void)
{
    struct rig r;
    int one = 1, more;
    struct fop_heard h;
    rig_start(&r, 0);
    clf_topic(&r.cluster, "t", 1)->parts[0].assigned = 0;
    RIG_WAIT(&r, greeted, &one);
    r.cluster.rows[0].incarnation = fop_copy(&r.op, &h)->incarnation;
    r.cluster.order.generation = 9;
    rig_say(&r);
    more = fop_copy(&r.op, &h)->stream_statuses + 2;
    RIG_WAIT(&r, status_count, &more);
    r.cluster.order.generation = 3;
    rig_publish(&r);
    uint64_t generation = r.cluster.order.generation;
    RIG_WAIT(&r, applied, &generation);
    KT_FALSE(rig_wait(&r, serving, NULL, 700));
    KT_EQ(kd_n_open(r.data), 0);
    r.cluster.order.generation = 9;
    rig_publish(&r);
    RIG_WAIT(&r, serving, NULL);
    RIG_WAIT(&r, leads, &one);
    rig_stop(&r);
}

static bool another_incarnation(const struct fop_heard *h, void *ctx)
{
    return !kc_uuid_eq(&h->incarnation, ctx);
}

/* design.md, 4: condemned is final; the process registers again and starts from nothing. */
static void a_condemned_incarnation_is_replaced(void)
{
    struct rig r;
    up(&r, 2);
    struct kc_uuid old = r.cluster.rows[0].incarnation;
    r.cluster.rows[0].condemned = true;
    r.cluster.rows[0].health = KP_DEAD;
    r.say.condemned = old;
    rig_say(&r);
    RIG_WAIT(&r, another_incarnation, &old);
    KT_FALSE(kl_serving(r.kl));
    KT_EQ(kd_n_open(r.data), 0);
    r.cluster.rows[0].health = KP_ALIVE;
    rig_join(&r);
    RIG_WAIT(&r, serving, NULL);
    int two = 2;
    RIG_WAIT(&r, leads, &two);
    struct fop_heard h;
    KT_TRUE(fop_copy(&r.op, &h)->led[0].epoch >= 1); /* a new claim over the sealed old one */
    rig_stop(&r);
}

/* A hello that is refused because the incarnation is condemned says so (HelloAnswer.condemned). */
static void a_condemned_hello_registers_another_incarnation(void)
{
    struct rig r;
    rig_start(&r, 0);
    int one = 1;
    RIG_WAIT(&r, greeted, &one);
    struct fop_heard h;
    struct kc_uuid old = fop_copy(&r.op, &h)->incarnation;
    r.say.refuse = "condemned";
    r.say.condemned = old;
    rig_say(&r);
    fop_drop_streams(&r.op);
    RIG_WAIT(&r, another_incarnation, &old);
    rig_stop(&r);
}

static bool prepared(const struct fop_heard *h, void *ctx)
{
    (void)ctx;
    return h->n_prepared == 1;
}
static bool released(const struct fop_heard *h, void *ctx)
{
    (void)ctx;
    return h->n_released == 1;
}

static void a_planned_move_is_followed_phase_by_phase(void)
{
    struct rig r;
    struct clf_topic *t = up(&r, 1);
    t->parts[0].move = (struct kp_move){.id = 9, .from = 0, .to = 1, .phase = KP_MOVE_PREPARE};
    rig_publish(&r);
    r.say.n_relays = 1;
    r.say.relays[0] = (struct kp_relay){
        .move_id = 9, .p = {t->id, 0}, .from = 0, .to = 1, .phase = KP_MOVE_RELEASE};
    rig_say(&r);
    RIG_WAIT(&r, released, NULL);
    struct fop_heard h;
    fop_copy(&r.op, &h);
    KT_EQ(h.released[0].move_id, 9);
    KT_TRUE(h.released[0].seal_len > 0);
    KT_EQ(h.n_led, 0);
    KT_EQ(kd_n_open(r.data), 0);
    r.say.n_relays = 0;
    memset(&t->parts[0].move, 0, sizeof(t->parts[0].move));
    t->parts[0].assigned = 1;
    rig_publish(&r);
    /* And back: this broker is the target now. */
    r.say.n_relays = 1;
    r.say.relays[0] = (struct kp_relay){
        .move_id = 10, .p = {t->id, 0}, .from = 1, .to = 0, .phase = KP_MOVE_PREPARE};
    rig_say(&r);
    RIG_WAIT(&r, prepared, NULL);
    r.say.relays[0].phase = KP_MOVE_GO;
    rig_say(&r);
    int one = 1;
    RIG_WAIT(&r, leads, &one);
    KT_EQ(fop_copy(&r.op, &h)->led[0].epoch, 1);
    rig_stop(&r);
}

static void drain(void *arg)
{
    kl_drain(((struct rig *)arg)->kl);
}

static bool is_drained(const struct fop_heard *h, void *ctx)
{
    (void)h;
    return atomic_load(&((struct rig *)ctx)->drained) != 0;
}

/* R23-R26: the next heartbeat says draining while everything is still led, and it stays so until the
 * image says otherwise; what is moved away is released; with the last one gone the drain is over. */
static void R23_R24_R26_a_drain_is_told_before_anything_is_given_up(void)
{
    struct rig r;
    struct clf_topic *t = up(&r, 2);
    rt_call(&r.control, drain, &r);
    RIG_WAIT(&r, draining, NULL);
    struct fop_heard h;
    int more = fop_copy(&r.op, &h)->stream_statuses + 2;
    KT_EQ(h.drained_led, 2);
    RIG_WAIT(&r, status_count, &more);
    fop_copy(&r.op, &h);
    KT_EQ(h.n_led, 2);
    KT_TRUE(h.serving && h.healthy);
    r.cluster.rows[0].health = KP_DRAINING;
    t->parts[0].assigned = 1;
    t->parts[1].assigned = 2;
    rig_publish(&r);
    int none = 0;
    RIG_WAIT(&r, leads, &none);
    RIG_WAIT(&r, is_drained, &r);
    rig_stop(&r);
}

/* R24: at once, not with the heartbeat that is due in a minute. */
static void R24_a_drain_waits_for_no_heartbeat(void)
{
    struct rig r;
    up_as(&r, RIG_SLOW, 2);
    rt_call(&r.control, drain, &r);
    RIG_WAIT(&r, draining, NULL);
    rig_stop(&r);
}

/* R29: nobody else is alive: seal everything and leave at once, not at the deadline. */
static void R29_the_last_broker_seals_and_leaves_at_once(void)
{
    struct rig r;
    up_as(&r, RIG_SLOW_DRAIN, 2);
    r.cluster.rows[1].health = r.cluster.rows[2].health = KP_DEAD;
    rig_publish(&r);
    rt_call(&r.control, drain, &r);
    RIG_WAIT(&r, is_drained, &r);
    KT_EQ(kd_n_open(r.data), 0);
    rig_stop(&r);
}

/* R29: nobody takes anything over: at the deadline what is left is sealed, before the pod is killed. */
static void R29_at_the_deadline_of_a_drain_everything_is_sealed(void)
{
    struct rig r;
    up(&r, 2);
    int64_t t0 = kc_mono_ms();
    rt_call(&r.control, drain, &r);
    RIG_WAIT(&r, is_drained, &r);
    KT_TRUE(kc_mono_ms() - t0 >= 3000); /* the rig's deadline */
    KT_EQ(kd_n_open(r.data), 0);
    struct fop_heard h;
    KT_EQ(fop_copy(&r.op, &h)->n_led, 0); /* and it was said */
    rig_stop(&r);
}

static bool deleted(const struct fop_heard *h, void *ctx)
{
    (void)ctx;
    return h->n_deleted == 1;
}

static void a_tombstone_is_removed_by_its_last_leader(void)
{
    struct rig r;
    struct clf_topic *t = up(&r, 2);
    KT_EQ(rig_count(&r, "topics"), 1);
    t->deleted = true;
    rig_publish(&r);
    RIG_WAIT(&r, deleted, NULL);
    KT_EQ(kd_n_open(r.data), 0);
    KT_EQ(rig_count(&r, "topics"), 0);
    KT_EQ(rig_count(&r, "deleted"), 1);
    r.cluster.n_topics = 0;
    rig_publish(&r);
    rig_stop(&r);
}

static bool inventory(const struct fop_heard *h, void *ctx)
{
    return h->n_inventory > 0 && h->inventory_topics == *(int *)ctx;
}

static void the_inventory_is_sent_when_asked(void)
{
    struct rig r;
    up(&r, 2);
    r.say.want_inventory = true;
    rig_say(&r);
    int one = 1;
    /* meta is written soon after the takeover; the stream is asked again until it is there. */
    for (int i = 0; i < 20 && !rig_wait(&r, inventory, &one, 200); i++) {
        fop_drop_streams(&r.op);
    }
    RIG_WAIT(&r, inventory, &one);
    rig_stop(&r);
}

static bool asked(const struct fop_heard *h, void *ctx)
{
    return h->n_admin >= *(int *)ctx;
}

/* design.md, 1: a retry carries the same sequence, so that nothing is applied twice. */
static void an_admin_change_is_repeated_with_its_sequence(void)
{
    struct rig r;
    up(&r, 0);
    struct kb_admin_change change = {
        .kind = KB_CREATE_TOPIC, .principal = "User:ANONYMOUS", .topic = "orders", .partitions = 3};
    struct kb_admin_port port = kl_admin_port(r.kl);
    port.submit(port.ctx, NULL, &change, kc_mono_ms() + 20000);
    int want = 1;
    RIG_WAIT(&r, asked, &want);
    pthread_mutex_lock(&r.op.lock);
    r.op.answer_admin = true;
    pthread_mutex_unlock(&r.op.lock);
    fop_drop_streams(&r.op);
    want = 2;
    RIG_WAIT(&r, asked, &want);
    struct kb_admin_result settled = rig_settled();
    KT_EQ(settled.error, 0);
    KT_EQ(settled.partitions, 3);
    KT_EQ(settled.order.generation, r.cluster.order.generation + 1);
    struct fop_heard h;
    fop_copy(&r.op, &h);
    KT_EQ(h.admin_sequence[0], h.admin_sequence[1]);
    KT_STR(h.admin_topic[1], "orders");
    rig_stop(&r);
}

static void an_admin_change_without_an_operator_times_out(void)
{
    struct rig r;
    up(&r, 0);
    r.say.active = false;
    rig_say(&r);
    struct kb_admin_change change = {.kind = KB_DELETE_TOPIC, .principal = "", .topic = "x"};
    struct kb_admin_port port = kl_admin_port(r.kl);
    port.submit(port.ctx, NULL, &change, kc_mono_ms() + 400);
    struct kb_admin_result settled = rig_settled();
    KT_EQ(settled.error, 7);
    rig_stop(&r);
}

/* A standby's word decides nothing; neither does an operator of an older term. */
static void only_the_active_operator_decides(void)
{
    struct rig r;
    up(&r, 1);
    struct kc_uuid mine = r.cluster.rows[0].incarnation;
    r.say.active = false;
    r.say.condemned = mine;
    rig_say(&r);
    r.cluster.rows[1].health = KP_DEAD;
    struct ki_image *unused = clf_publish(&r.cluster);
    ki_image_unref(unused);
    memset(&r.say.condemned, 0, sizeof(r.say.condemned));
    r.say.active = true;
    r.cluster.order.term = 5;
    rig_publish(&r);
    uint64_t generation = r.cluster.order.generation;
    RIG_WAIT(&r, applied, &generation);
    r.cluster.order.term = 1; /* superseded, and does not know it */
    r.say.condemned = mine;
    rig_say(&r);
    int none = 0;
    KT_FALSE(rig_wait(&r, leads, &none, 700));
    struct fop_heard h;
    KT_TRUE(kc_uuid_eq(&fop_copy(&r.op, &h)->incarnation, &mine));
    rig_stop(&r);
}

KT_MAIN("kl_control", KT(a_broker_says_hello_takes_over_and_serves),
        KT(W6_no_status_before_every_loop_has_ticked), KT(W4_a_silent_operator_is_dialled_again),
        KT(R51_a_lost_stream_is_redialled_within_the_interval),
        KT(R41_R47_a_wedge_is_told_over_a_living_stream),
        KT(R46_a_stalled_storage_is_told_over_a_living_stream),
        KT(R56_a_takeover_that_hangs_holds_up_no_loop), KT(R58_not_serving_while_taking_over),
        KT(R38_an_image_older_than_what_is_published_starts_nothing),
        KT(a_condemned_incarnation_is_replaced),
        KT(a_condemned_hello_registers_another_incarnation),
        KT(a_planned_move_is_followed_phase_by_phase),
        KT(R23_R24_R26_a_drain_is_told_before_anything_is_given_up),
        KT(R24_a_drain_waits_for_no_heartbeat), KT(R29_the_last_broker_seals_and_leaves_at_once),
        KT(R29_at_the_deadline_of_a_drain_everything_is_sealed),
        KT(a_tombstone_is_removed_by_its_last_leader), KT(the_inventory_is_sent_when_asked),
        KT(an_admin_change_is_repeated_with_its_sequence),
        KT(an_admin_change_without_an_operator_times_out), KT(only_the_active_operator_decides))
