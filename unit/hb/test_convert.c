/* Between messages and the controller's plain data. */
#include "kt.h"

#include <stdlib.h>

#include "base/kc_rng.h"
#include "hb/hb_convert.h"

static struct kc_arena arena;

static struct kc_uuid uuid(uint8_t n)
{
    struct kc_uuid u = {{n, 2, 3}};
    u.b[15] = 9;
    return u;
}

static struct kp_row sample_row(void)
{
    struct kp_row r = {.id = 2,
                       .health = KP_DRAINING,
                       .state = KP_STATE_DRAINING,
                       .reason = KP_REASON_WEDGED,
                       .condemned = true,
                       .incarnation = uuid(1),
                       .n_listeners = 2};
    for (int i = 0; i < 2; i++) {
        snprintf(r.listeners[i].name, sizeof(r.listeners[i].name), "l%d", i);
        snprintf(r.listeners[i].host, sizeof(r.listeners[i].host), "h%d", i);
        r.listeners[i].port = (uint16_t)(9092 + i);
    }
    snprintf(r.rack, sizeof(r.rack), "zone-a");
    return r;
}

static void a_row_survives_and_leaves_other_fields_alone(void)
{
    kc_arena_init(&arena, 0, 0);
    struct kp_row row = sample_row(), got = {.id = 2, .last_seen_ms = 77, .partitions = 5};
    Kaas__Heartbeat__Row *m = hb_row_new(&arena, &row);
    KT_REQUIRE(m != NULL);
    KT_EQ(hb_row_apply(m, &got, NULL), 0);
    KT_EQ(got.health, KP_DRAINING);
    KT_EQ(got.state, KP_STATE_DRAINING);
    KT_EQ(got.reason, KP_REASON_WEDGED);
    KT_TRUE(got.condemned && got.serving);
    KT_TRUE(kc_uuid_eq(&got.incarnation, &row.incarnation));
    KT_EQ(got.n_listeners, 2);
    KT_EQ(got.listeners[1].port, 9093);
    KT_STR(got.listeners[1].host, "h1");
    KT_STR(got.rack, "zone-a");
    KT_EQ(got.last_seen_ms, 77);
    KT_EQ(got.partitions, 5);
    kc_arena_fini(&arena);
}

static void a_row_without_incarnation_or_listeners_is_fine(void)
{
    kc_arena_init(&arena, 0, 0);
    struct kp_row row = {.id = 1}, got = sample_row();
    Kaas__Heartbeat__Row *m = hb_row_new(&arena, &row);
    KT_REQUIRE(m != NULL);
    KT_EQ(m->incarnation.len, 0);
    KT_EQ(hb_row_apply(m, &got, NULL), 0);
    KT_TRUE(kc_uuid_is_zero(&got.incarnation));
    KT_EQ(got.n_listeners, 2); /* never said: what was known stays */
    kc_arena_fini(&arena);
}

static void a_full_arena_is_an_answer(void)
{
    struct kp_row row = sample_row();
    for (size_t cap = 16; cap < 600; cap += 16) {
        kc_arena_init(&arena, 0, cap);
        Kaas__Heartbeat__Row *m = hb_row_new(&arena, &row);
        KT_TRUE(m == NULL || m->n_listeners == 2);
        kc_arena_fini(&arena);
    }
}

static void names_too_long_for_their_fields_are_refused(void)
{
    char longer[300];
    memset(longer, 'x', sizeof(longer));
    longer[sizeof(longer) - 1] = '\0';
    struct kc_uuid inc = uuid(1);
    Kaas__Heartbeat__Hello h = KAAS__HEARTBEAT__HELLO__INIT;
    struct kp_hello got;
    h.incarnation = hb_uuid_data(&inc);
    KT_EQ(hb_hello_to_kp(&h, 5, &got, NULL), 0);
    KT_EQ(got.stream, 5);
    h.rack = longer;
    KT_EQ(hb_hello_to_kp(&h, 5, &got, NULL), KC_E_MALFORMED);
    h.rack = (char *)"";
    h.pod_uid = longer;
    KT_EQ(hb_hello_to_kp(&h, 5, &got, NULL), KC_E_MALFORMED);
    h.pod_uid = (char *)"";
    Kaas__Heartbeat__Listener l = KAAS__HEARTBEAT__LISTENER__INIT, *list[9];
    for (int i = 0; i < 9; i++) {
        list[i] = &l;
    }
    l.port = 1;
    h.listeners = list;
    h.n_listeners = 9;
    KT_EQ(hb_hello_to_kp(&h, 5, &got, NULL), KC_E_MALFORMED);
    h.n_listeners = 1;
    l.host = longer;
    KT_EQ(hb_hello_to_kp(&h, 5, &got, NULL), KC_E_MALFORMED);
}

/* A whole report through a frame: what one end fills, the other end reads. */
static void a_status_reaches_the_controller(void)
{
    kc_arena_init(&arena, 0, HB_ARENA_CAP);
    struct kc_uuid inc = uuid(1), other = uuid(5);
    Kaas__Heartbeat__BrokerStatus s = KAAS__HEARTBEAT__BROKER_STATUS__INIT;
    Kaas__Heartbeat__LedReport led = KAAS__HEARTBEAT__LED_REPORT__INIT, *leds[] = {&led};
    Kaas__Heartbeat__BlockedReport b = KAAS__HEARTBEAT__BLOCKED_REPORT__INIT, *bs[] = {&b};
    Kaas__Heartbeat__FailedReport f = KAAS__HEARTBEAT__FAILED_REPORT__INIT, *fs[] = {&f};
    Kaas__Heartbeat__PreparedReport p = KAAS__HEARTBEAT__PREPARED_REPORT__INIT, *ps[] = {&p};
    Kaas__Heartbeat__ReleasedReport r = KAAS__HEARTBEAT__RELEASED_REPORT__INIT, *rs[] = {&r};
    struct kc_uuid topic = uuid(30);
    led.partition = b.partition = f.partition = p.partition = r.partition =
        hb_pid_new(&arena, &topic, 4);
    led.epoch = 12;
    b.broker = 1;
    b.incarnation = hb_uuid_data(&other);
    f.permanent = true;
    p.move_id = 99;
    r.move_id = 100;
    r.stopped_ms_ago = 35;
    s.broker_id = 2;
    s.incarnation = hb_uuid_data(&inc);
    s.healthy = s.full = true;
    s.storage_stalled = true;
    s.volume = KP_VOLUME_READ_ONLY;
    s.led = leds;
    s.blocked = bs;
    s.failed = fs;
    s.prepared = ps;
    s.released = rs;
    s.n_led = s.n_blocked = s.n_failed = s.n_prepared = s.n_released = 1;
    Kaas__Heartbeat__BrokerMessage m = KAAS__HEARTBEAT__BROKER_MESSAGE__INIT;
    m.kind_case = KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_STATUS;
    m.status = &s;
    struct kc_dyn out;
    kc_dyn_init(&out, HB_FRAME_MAX + 4);
    KT_EQ(hb_encode_broker(&m, &out), 0);
    const Kaas__Heartbeat__BrokerMessage *back;
    KT_EQ(hb_decode_broker((struct kc_bytes){out.data + 4, (int32_t)out.len - 4}, &arena, &back,
                           NULL),
          0);
    struct kp_status k;
    KT_EQ(hb_status_to_kp(back->status, 8, 1234, &arena, &k), 0);
    KT_EQ(k.broker, 2);
    KT_EQ(k.stream, 8);
    KT_EQ(k.wall_ms, 1234);
    KT_TRUE(k.healthy && k.full && k.stalled && !k.draining);
    KT_EQ(k.volume, KP_VOLUME_READ_ONLY);
    KT_EQ(k.n_led, 1);
    KT_EQ(k.led[0].epoch, 12);
    KT_EQ(k.led[0].partition, 4);
    KT_TRUE(kc_uuid_eq(&k.led[0].topic_id, &topic));
    KT_EQ(k.blocked[0].broker, 1);
    KT_TRUE(kc_uuid_eq(&k.blocked[0].incarnation, &other));
    KT_TRUE(k.failed[0].permanent);
    KT_EQ(k.prepared[0].move_id, 99);
    KT_EQ(k.n_released, 1);
    KT_EQ(k.released[0].move_id, 100);
    KT_EQ(k.released[0].stopped_ms, 35);
    kc_dyn_fini(&out);
    kc_arena_fini(&arena);
}

static void an_order_survives_with_its_phase(void)
{
    kc_arena_init(&arena, 0, 0);
    for (int phase = KP_MOVE_PREPARE; phase <= KP_MOVE_CANCEL; phase++) {
        struct kp_relay r = {
            .move_id = 7, .p = {uuid(3), 2}, .from = 1, .to = 0, .phase = (enum kp_phase)phase};
        Kaas__Heartbeat__MoveOrder *o = hb_order_new(&arena, &r, NULL);
        KT_REQUIRE(o != NULL);
        struct kp_relay got = hb_order_relay(o);
        KT_EQ(got.phase, phase);
        KT_EQ(got.move_id, 7);
        KT_EQ(got.to, 0);
        KT_TRUE(kc_uuid_eq(&got.p.topic_id, &r.p.topic_id));
        o->phase = (Kaas__Heartbeat__MoveOrder__Phase)77; /* of a newer operator */
        KT_EQ(hb_order_relay(o).phase, KP_MOVE_NONE);
    }
    kc_arena_fini(&arena);
}

static void a_leader_survives(void)
{
    kc_arena_init(&arena, 0, 0);
    struct kp_lead l = {{uuid(4), 17}, 3, uuid(5), 12};
    Kaas__Heartbeat__Lead *m = hb_lead_new(&arena, &l);
    KT_REQUIRE(m != NULL);
    struct kp_lead got = hb_lead(m);
    KT_TRUE(kc_uuid_eq(&got.p.topic_id, &l.p.topic_id) &&
            kc_uuid_eq(&got.incarnation, &l.incarnation));
    KT_EQ(got.p.partition, 17);
    KT_EQ(got.broker, 3);
    KT_EQ(got.epoch, 12);
    kc_arena_fini(&arena);
    kc_arena_init(&arena, 0, 8);
    KT_TRUE(hb_lead_new(&arena, &l) == NULL);
    kc_arena_fini(&arena);
}

KT_MAIN("hb_convert", KT(a_row_survives_and_leaves_other_fields_alone),
        KT(a_row_without_incarnation_or_listeners_is_fine), KT(a_full_arena_is_an_answer),
        KT(names_too_long_for_their_fields_are_refused), KT(a_status_reaches_the_controller),
        KT(an_order_survives_with_its_phase), KT(a_leader_survives))
