#include <poll.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "kt.h"
#include "kt_net.h"
#include "rig.h"

enum { PATIENCE_MS = 10000 };

void peer_init(struct peer *p, int32_t id)
{
    memset(p, 0, sizeof(*p));
    p->fd = -1;
    p->id = id;
    p->incarnation = kc_uuid_random();
    p->process = kc_uuid_random();
    p->healthy = true;
    p->protocol = 1;
    kc_arena_init(&p->arena, 64 * 1024, HB_ARENA_CAP);
    snprintf(p->volume, sizeof(p->volume), "%s", "AAAAAAAAAAAAAAAAAAAAAA");
}

void peer_hangup(struct peer *p)
{
    if (p->fd >= 0) {
        close(p->fd);
        hb_reader_fini(&p->reader);
    }
    p->fd = -1;
}

void peer_fini(struct peer *p)
{
    peer_hangup(p);
    kc_arena_fini(&p->arena);
}

void peer_send(struct peer *p, const Kaas__Heartbeat__BrokerMessage *m)
{
    struct kc_dyn d;
    kc_dyn_init(&d, HB_FRAME_MAX + 4);
    KT_EQ(hb_encode_broker(m, &d), 0);
    size_t at = 0;
    while (p->fd >= 0 && at < d.len) {
        ssize_t n = write(p->fd, d.data + at, d.len - at);
        if (n <= 0) {
            p->closed = true;
            break;
        }
        at += (size_t)n;
    }
    kc_dyn_fini(&d);
}

static void take_answer(struct peer *p, const Kaas__Heartbeat__StatusAnswer *a)
{
    p->active = a->active;
    p->condemned = a->condemned;
    p->term = a->term;
    p->generation = a->generation;
    snprintf(p->uid, sizeof(p->uid), "%s", a->image_uid);
    for (size_t i = 0; i < a->n_rows; i++) {
        int32_t id = a->rows[i]->id;
        KT_REQUIRE(id >= 0 && id < 16);
        KT_EQ(hb_row_apply(a->rows[i], &p->rows[id], NULL), 0);
        p->row_there[id] = true;
    }
    for (size_t i = 0; i < a->n_gone; i++) {
        p->row_there[a->gone[i]] = false;
    }
    for (size_t i = 0; i < a->n_leads; i++) {
        p->leads[p->n_leads++ % 64] = hb_lead(a->leads[i]);
    }
    p->n_orders = (int32_t)a->n_orders;
    for (size_t i = 0; i < a->n_orders && i < 64; i++) {
        p->orders[i] = hb_order_relay(a->orders[i]);
        p->order_seal[i] = a->orders[i]->seal != NULL;
    }
}

static void take(struct peer *p, const Kaas__Heartbeat__OperatorMessage *m)
{
    switch (m->kind_case) {
    case KAAS__HEARTBEAT__OPERATOR_MESSAGE__KIND_HELLO:
        p->accepted = m->hello->accepted;
        p->active = m->hello->active;
        p->want_inventory = m->hello->want_inventory;
        p->condemned = m->hello->condemned;
        snprintf(p->reason, sizeof(p->reason), "%s", m->hello->reason);
        snprintf(p->active_host, sizeof(p->active_host), "%s", m->hello->active_host);
        break;
    case KAAS__HEARTBEAT__OPERATOR_MESSAGE__KIND_STATUS:
        p->answered++;
        take_answer(p, m->status);
        break;
    case KAAS__HEARTBEAT__OPERATOR_MESSAGE__KIND_ADMIN: {
        int i = p->n_results++ % 64;
        p->results[i].sequence = m->admin->sequence;
        p->results[i].error = m->admin->error_code;
        p->results[i].generation = m->admin->generation;
        p->results[i].topic_id = hb_uuid(m->admin->topic_id);
        snprintf(p->results[i].message, sizeof(p->results[i].message), "%s", m->admin->message);
        break;
    }
    default:
        break;
    }
}

/* Reads what there is within ms. Returns the number of messages. */
static int read_some(struct peer *p, int ms)
{
    struct pollfd f = {.fd = p->fd, .events = POLLIN};
    uint8_t buf[65536];
    int taken = 0;
    if (p->fd < 0 || poll(&f, 1, ms) <= 0) {
        return 0;
    }
    ssize_t n = read(p->fd, buf, sizeof(buf));
    if (n <= 0) {
        p->closed = true;
        return 0;
    }
    KT_EQ(hb_reader_feed(&p->reader, buf, (size_t)n), 0);
    struct kc_bytes frame;
    while (hb_reader_next(&p->reader, &frame, NULL) > 0) {
        const Kaas__Heartbeat__OperatorMessage *m;
        kc_arena_reset(&p->arena);
        KT_EQ(hb_decode_operator(frame, &p->arena, &m, NULL), 0);
        take(p, m);
        taken++;
    }
    return taken;
}

static void say_hello(struct peer *p, const char *token)
{
    Kaas__Heartbeat__BrokerMessage m = KAAS__HEARTBEAT__BROKER_MESSAGE__INIT;
    Kaas__Heartbeat__Hello h = KAAS__HEARTBEAT__HELLO__INIT;
    char pod[32], name[32];
    snprintf(pod, sizeof(pod), "pod-%d", (int)p->id);
    snprintf(name, sizeof(name), "demo-%d", (int)p->id);
    h.cluster = (char *)(uintptr_t)RIG_CLUSTER;
    h.broker_id = p->id;
    h.incarnation = hb_uuid_data(&p->incarnation);
    h.process_id = hb_uuid_data(&p->process);
    h.pod_uid = pod;
    h.pod_name = name;
    h.token = (char *)(uintptr_t)token;
    h.protocol_version = p->protocol;
    h.software_version = (char *)(uintptr_t) "0.1.0";
    h.volume_cluster_id = p->volume;
    m.kind_case = KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_HELLO;
    m.hello = &h;
    peer_send(p, &m);
}

bool peer_dial(struct peer *p, struct rig *r, const char *token)
{
    peer_hangup(p);
    p->accepted = p->closed = p->active = p->condemned = false;
    p->reason[0] = '\0';
    p->n_orders = 0;
    memset(p->row_there, 0, sizeof(p->row_there));
    p->fd = kt_dial(r->port, 0);
    if (p->fd < 0) {
        return false;
    }
    hb_reader_init(&p->reader, HB_FRAME_MAX);
    say_hello(p, token);
    for (int64_t end = kc_mono_ms() + PATIENCE_MS; kc_mono_ms() < end && !p->closed;) {
        if (read_some(p, 100) > 0) {
            return p->accepted;
        }
    }
    return false;
}

void peer_status(struct peer *p)
{
    Kaas__Heartbeat__BrokerMessage m = KAAS__HEARTBEAT__BROKER_MESSAGE__INIT;
    Kaas__Heartbeat__BrokerStatus s = KAAS__HEARTBEAT__BROKER_STATUS__INIT;
    Kaas__Heartbeat__LedReport led[256], *list[256];
    Kaas__Heartbeat__PartitionId ids[256];
    p->said++;
    s.broker_id = p->id;
    s.incarnation = hb_uuid_data(&p->incarnation);
    s.protocol_version = p->protocol;
    s.healthy = p->healthy;
    s.stall_reason = (char *)(uintptr_t)(p->trouble ? p->trouble : "");
    s.draining = p->draining;
    s.serving = p->serving;
    s.full = true;
    for (int32_t i = 0; i < p->n_led; i++) {
        kaas__heartbeat__led_report__init(&led[i]);
        kaas__heartbeat__partition_id__init(&ids[i]);
        ids[i].topic_id = hb_uuid_data(&p->led[i].topic_id);
        ids[i].partition = p->led[i].partition;
        led[i].partition = &ids[i];
        led[i].epoch = p->led[i].epoch;
        list[i] = &led[i];
    }
    s.led = list;
    s.n_led = (size_t)p->n_led;
    m.kind_case = KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_STATUS;
    m.status = &s;
    peer_send(p, &m);
}

void peer_inventory(struct peer *p, const Kaas__Heartbeat__Inventory *inv)
{
    Kaas__Heartbeat__BrokerMessage m = KAAS__HEARTBEAT__BROKER_MESSAGE__INIT;
    m.kind_case = KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_INVENTORY;
    m.inventory = (Kaas__Heartbeat__Inventory *)(uintptr_t)inv;
    peer_send(p, &m);
}

uint64_t peer_admin(struct peer *p, Kaas__Heartbeat__AdminRequest *a, uint64_t sequence)
{
    Kaas__Heartbeat__BrokerMessage m = KAAS__HEARTBEAT__BROKER_MESSAGE__INIT;
    a->sequence = sequence ? sequence : ++p->sequence;
    m.kind_case = KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_ADMIN;
    m.admin = a;
    peer_send(p, &m);
    return a->sequence;
}

bool peer_await(struct peer *p, bool (*cond)(struct peer *p, void *arg), void *arg)
{
    int64_t said = kc_mono_ms();
    for (int64_t end = kc_mono_ms() + PATIENCE_MS; kc_mono_ms() < end;) {
        if (cond(p, arg)) {
            return true;
        }
        if (p->closed) {
            return false;
        }
        read_some(p, 20);
        if (kc_mono_ms() - said > 500 && p->accepted) {
            peer_status(p);
            said = kc_mono_ms();
        }
    }
    return false;
}

bool peer_result(struct peer *p, uint64_t sequence, int *ret_index)
{
    for (int i = 0; i < KC_MIN(p->n_results, 64); i++) {
        if (p->results[i].sequence == sequence) {
            *ret_index = i;
            return true;
        }
    }
    return false;
}

bool peer_is_active(struct peer *p, void *arg)
{
    (void)arg;
    return p->active && p->generation > 0;
}

bool peer_all_answered(struct peer *p, void *arg)
{
    (void)arg;
    return p->answered >= p->said;
}

bool peer_has_result(struct peer *p, void *arg)
{
    struct peer_wanted *w = arg;
    return peer_result(p, w->sequence, &w->index);
}

void peer_begin(struct peer *p, struct rig *r)
{
    Kaas__Heartbeat__Inventory none = KAAS__HEARTBEAT__INVENTORY__INIT;
    KT_REQUIRE(peer_dial(p, r, "secret"));
    KT_TRUE(p->want_inventory);
    peer_inventory(p, &none);
    peer_status(p);
    KT_REQUIRE(peer_await(p, peer_is_active, NULL));
}

Kaas__Heartbeat__AdminRequest peer_create_topic(const char *name, int32_t partitions)
{
    Kaas__Heartbeat__AdminRequest a = KAAS__HEARTBEAT__ADMIN_REQUEST__INIT;
    a.kind = KAAS__HEARTBEAT__ADMIN_KIND__CREATE_TOPIC;
    a.principal = (char *)(uintptr_t) "User:test";
    a.topic = (char *)(uintptr_t)name;
    a.partitions = partitions;
    a.replication_factor = 1;
    return a;
}
