/* ko_session.c - what a broker says on its stream: hello with its identity, inventory, statuses. */
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "control/ko_int.h"
#include "hb/hb_convert.h"

static struct ko_cc *cluster_of(const struct ko_stream *s)
{
    return ko_cc_find(s->c, s->cluster);
}

void ko_session_closed(struct ko_stream *s)
{
    struct ko_cc *cc = s->cluster[0] ? cluster_of(s) : NULL;
    if (cc && s->admitted && ko_cc_held(cc)) {
        kp_ctl_stream_closed(cc->ctl, s->hello.broker, s->id, ko_now(s->c));
        cc->next_ms = 0;
        ko_step_soon(s->c);
    }
    s->admitted = false;
    ko_admin_stream_closed(s);
}

static int send_hello(struct ko_stream *s, Kaas__Heartbeat__HelloAnswer *h)
{
    Kaas__Heartbeat__OperatorMessage m = KAAS__HEARTBEAT__OPERATOR_MESSAGE__INIT;
    m.kind_case = KAAS__HEARTBEAT__OPERATOR_MESSAGE__KIND_HELLO;
    m.hello = h;
    return ko_stream_send(s, &m);
}

/* Says why and closes. */
static void refuse(struct ko_stream *s, const char *why, bool condemned)
{
    Kaas__Heartbeat__HelloAnswer h = KAAS__HEARTBEAT__HELLO_ANSWER__INIT;
    h.reason = (char *)(uintptr_t)why;
    h.condemned = condemned;
    h.active = s->c->keeper.leader;
    struct kc_log_buf cluster, reason;
    kc_log(KC_INFO, "control", "event=hello_refused cluster=%s broker=%d reason=%s",
           kc_log_str(kc_str_of(s->cluster), &cluster), (int)s->hello.broker,
           kc_log_str(kc_str_of(why), &reason));
    s->close_after_write = true;
    send_hello(s, &h);
}

/* Another cluster's volume is refused; the first word on a volume nobody has named yet is taken. */
static bool volume_fits(struct ko_cc *cc, const struct ko_stream *s)
{
    if (s->volume_cluster_id[0] == '\0') {
        return true;
    }
    if (cc->cluster_id[0] == '\0') {
        memcpy(cc->cluster_id, s->volume_cluster_id, sizeof(cc->cluster_id));
        cc->dirty_root = true;
    }
    return strcmp(cc->cluster_id, s->volume_cluster_id) == 0;
}

static void accept_as_standby(struct ko_stream *s)
{
    Kaas__Heartbeat__HelloAnswer h = KAAS__HEARTBEAT__HELLO_ANSWER__INIT;
    h.accepted = true;
    h.active_host = s->c->keeper.address;
    s->state = KO_ST_UP;
    if (send_hello(s, &h) == 0) {
        ko_stream_resume(s);
    }
}

static void accept_as_active(struct ko_cc *cc, struct ko_stream *s)
{
    struct kc_err err = {0};
    if (!volume_fits(cc, s)) {
        refuse(s, "the volume belongs to another cluster", false);
        return;
    }
    int rc = kp_ctl_hello(cc->ctl, &s->hello, ko_now(s->c), &err);
    if (rc) {
        refuse(s, err.msg, rc == KC_E_FENCED);
        return;
    }
    s->admitted = true;
    s->state = KO_ST_UP;
    Kaas__Heartbeat__HelloAnswer h = KAAS__HEARTBEAT__HELLO_ANSWER__INIT;
    h.accepted = true;
    h.active = true;
    h.active_host = (char *)(uintptr_t)s->c->o.advertised;
    h.term = cc->order.term;
    h.want_inventory = cc->inventory_due;
    h.cluster_id = cc->cluster_id;
    cc->next_ms = 0;
    ko_step_soon(s->c);
    if (send_hello(s, &h) == 0) {
        ko_stream_resume(s);
    }
}

/* ---- identity: asked on the API loop, answered when it likes ---- */

struct identity {
    uint64_t stream;
    struct ko_control *c;
    char cluster[KO_CLUSTER_KEY_MAX];
    char pod_name[256];
    char pod_uid[40];
    char *token;
    bool ok;
    char why[200];
};

static void identity_free(void *p)
{
    struct identity *id = p;
    kc_free(id->token);
    kc_free(id);
}

static void on_identity(struct ko_control *c, void *arg)
{
    struct identity *id = arg;
    struct ko_stream *s = ko_stream_find(c, id->stream);
    if (s && s->state == KO_ST_AUTH) {
        struct ko_cc *cc = cluster_of(s);
        if (!id->ok) {
            refuse(s, id->why[0] ? id->why : "not who it says it is", false);
        } else if (!cc) {
            refuse(s, "no such KaasCluster here", false);
        } else if (!c->keeper.leader) {
            accept_as_standby(s);
        } else if (!ko_cc_held(cc)) {
            refuse(s, "the operator is taking over; dial again", false);
        } else {
            accept_as_active(cc, s);
        }
    }
    identity_free(id);
}

static void verdict(void *ctx, bool ok, const char *why)
{
    struct identity *id = ctx;
    struct ko_control *c = id->c;
    id->ok = ok;
    size_t n = why ? KC_MIN(strlen(why), sizeof(id->why) - 1) : 0;
    if (n) {
        memcpy(id->why, why, n);
    }
    ko_to_control(c, on_identity, id);
    ko_control_unref(c);
}

static void ask_identity(struct ko_control *c, void *arg)
{
    struct identity *id = arg;
    id->c = c;
    ko_control_ref(c);
    c->o.auth(c->o.auth_ctx, id->cluster, id->token, id->pod_name, id->pod_uid, verdict, id);
}

static bool copy_name(char *to, size_t size, const char *from)
{
    size_t n = strlen(from);
    if (n >= size) {
        return false;
    }
    memcpy(to, from, n + 1);
    return true;
}

static int on_hello(struct ko_stream *s, const Kaas__Heartbeat__Hello *h, struct kc_err *err)
{
    if (s->state != KO_ST_HELLO) {
        return kc_fail(err, KC_E_MALFORMED, "second hello");
    }
    int rc = hb_hello_to_kp(h, s->id, &s->hello, err);
    if (rc) {
        return rc;
    }
    s->hello.process = s->process = hb_uuid(h->process_id);
    struct identity *id = kc_zalloc(sizeof(*id));
    id->stream = s->id;
    if (!copy_name(s->cluster, sizeof(s->cluster), h->cluster) || !h->cluster[0] ||
        !copy_name(s->volume_cluster_id, sizeof(s->volume_cluster_id), h->volume_cluster_id) ||
        !copy_name(id->cluster, sizeof(id->cluster), h->cluster) ||
        !copy_name(id->pod_name, sizeof(id->pod_name), h->pod_name) ||
        !copy_name(id->pod_uid, sizeof(id->pod_uid), h->pod_uid)) {
        kc_free(id);
        return kc_fail(err, KC_E_MALFORMED, "hello with a name too long or empty");
    }
    id->token = kc_strdup(h->token);
    s->state = KO_ST_AUTH;
    ko_stream_pause(s);
    ko_to_api(s->c, ask_identity, id, identity_free);
    return 0;
}

/* ---- statuses ---- */

/* As of the moment a broker stopped being healthy: the ages in it would make news of every status. */
static void note_trouble(struct ko_cc *cc, int32_t broker, const Kaas__Heartbeat__BrokerStatus *b)
{
    char *to = cc->trouble[broker];
    if (!b->healthy && to[0] == '\0') {
        for (int i = 0; i < KO_TROUBLE_MAX - 1 && b->stall_reason[i]; i++) {
            char ch = b->stall_reason[i];
            to[i] = ch;
            if (ch < ' ' || ch > '~') {
                to[i] = '?'; /* else the cut might leave half a letter */
            }
        }
        cc->view_due = true;
    } else if (b->healthy && to[0] != '\0') {
        memset(to, 0, KO_TROUBLE_MAX);
        cc->view_due = true;
    }
}

static void on_status(struct ko_stream *s, const Kaas__Heartbeat__BrokerStatus *b)
{
    struct ko_cc *cc = cluster_of(s);
    int64_t now = ko_now(s->c);
    if (cc && s->admitted && ko_cc_held(cc)) {
        struct kp_status k;
        cc->connected_wall_ms = kc_wall_ms();
        if (hb_status_to_kp(b, s->id, cc->connected_wall_ms, &s->c->arena, &k)) {
            ko_stream_close(s, "status too large");
            return;
        }
        k.broker = s->hello.broker; /* the authenticated one, whatever the message says */
        for (size_t i = 0; i < b->n_released; i++) {
            ko_seal_take(cc, b->released[i], now);
        }
        kp_ctl_status(cc->ctl, &k, now);
        note_trouble(cc, k.broker, b);
        for (size_t i = 0; i < b->n_deleted; i++) {
            struct kc_uuid id = hb_uuid(b->deleted[i]->topic_id);
            ko_topic_removed(cc, &id);
        }
        if (ko_cc_decides(cc)) {
            ko_cc_step_paced(cc, now);
        }
    }
    if (s->state == KO_ST_UP) {
        ko_answer(s, true);
    }
}

int ko_session_frame(struct ko_stream *s, struct kc_bytes frame, struct kc_err *err)
{
    const Kaas__Heartbeat__BrokerMessage *m;
    kc_arena_reset(&s->c->arena);
    int rc = hb_decode_broker(frame, &s->c->arena, &m, err);
    if (rc) {
        return rc;
    }
    bool hello = m->kind_case == KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_HELLO;
    if (s->state == KO_ST_HELLO && !hello) {
        return kc_fail(err, KC_E_MALFORMED, "the first message is not a hello");
    }
    struct ko_cc *cc = s->cluster[0] ? cluster_of(s) : NULL;
    switch (m->kind_case) {
    case KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_HELLO:
        return on_hello(s, m->hello, err);
    case KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_STATUS:
        on_status(s, m->status);
        break;
    case KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_ADMIN:
        ko_admin_request(s, m->admin);
        break;
    case KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_INVENTORY:
        if (cc && s->admitted && ko_cc_held(cc)) {
            ko_merge_inventory(cc, m->inventory);
        }
        break;
    default:
        break; /* a newer broker's kind of message */
    }
    return 0;
}
